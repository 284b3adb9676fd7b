"""The best ranks: mined deep, decided between, and taken as if they had been asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decided_world import WorldEncoder, oracle, true_share
from foils.data import Negatives
from foils.data.splitting import expected_recurrence
from foils.encode import VectorStore
from foils.mining.doors import mine
from foils.mining.results import Mined
from foils.runtime.errors import InputError
from hidden_positives import World, hidden_world


@pytest.fixture(scope="module")
def spoilt() -> World:
    """A world where more than a third of the first five ranks are false."""
    return hidden_world(9, labelled=0.15)


def best_of(world: World, folder: Path, **given: Any) -> Mined:
    models = {"encoder": WorldEncoder(world), "vectors": VectorStore(folder / "vectors")}
    return mine(world.collection, "dense", top=5, ranks="best", **models, **given)


def test_it_takes_the_ranks_that_it_names_as_if_they_had_been_asked_for(spoilt: World, tmp_path: Path) -> None:
    best = best_of(spoilt, tmp_path)
    chosen = best.provenance["settings"]["best_of"]
    first, end = chosen["best"]["ranks"]
    assert (end - first, chosen["depth"], len(chosen["parts"]), chosen["labels"]) == (5, 50, 10, 0)
    models = {"encoder": WorldEncoder(spoilt), "vectors": VectorStore(tmp_path / "vectors")}
    plain = mine(spoilt.collection, "dense", top=5, ranks=(first, end), **models)
    assert best.table.equals(plain.table)
    assert best.provenance["recapture"] == plain.provenance["recapture"]
    assert list(best.provenance["settings"]["ranks"]) == [first, end]
    assert chosen["sentence"] in best.tables()[1].caption
    assert best.to_json()["curve"]["parts"] == chosen["parts"]


def test_it_passes_spoilt_ranks_over(spoilt: World, tmp_path: Path) -> None:
    hardest = mine(spoilt.collection, "dense", top=5, encoder=WorldEncoder(spoilt), vectors=VectorStore(tmp_path / "v"))
    labelled = best_of(spoilt, tmp_path, labels=oracle(spoilt, {"hardest": Negatives(hardest.table)}, 200))
    assert labelled.provenance["settings"]["best_of"]["labels"] == 200
    assert labelled.provenance["settings"]["ranks"][0] > 0
    assert true_share(spoilt, labelled) < 0.3 * true_share(spoilt, hardest)


def test_it_heeds_how_often_documents_recur(spoilt: World, tmp_path: Path) -> None:
    class WordTable(WorldEncoder):
        static = True

    models = {"encoder": WordTable(spoilt), "vectors": VectorStore(tmp_path / "vectors")}
    words = mine(spoilt.collection, "dense", top=5, ranks="best", **models).provenance["settings"]["best_of"]
    context, none = (best_of(spoilt, tmp_path, recurrence=each).provenance["settings"]["best_of"] for each in (None, 0))
    assert (context["recurrence"], none["recurrence"]) == (1.0, 0.0)
    assert words["recurrence"] == expected_recurrence(spoilt.collection) == 0
    benefits = [[part["benefit"] for part in each["parts"]] for each in (words, none, context)]
    assert benefits[0] == benefits[1] != benefits[2]


def test_where_nothing_is_hidden_it_takes_the_first_ranks(tmp_path: Path) -> None:
    whole = hidden_world(8, labelled=1.0)
    assert list(best_of(whole, tmp_path, best_depth=20).provenance["settings"]["ranks"]) == [0, 5]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"draw": "uniform"}, "draw uniform: no effect with ranks best"),
        ({"best_depth": 9}, "best_depth 9; expected at least two windows of 5 ranks, 10"),
        ({"ranks": (0, 5), "best_depth": 50}, "best_depth 50: no effect without ranks best"),
        ({"method": "random"}, "random negatives are drawn"),
        ({"method": "trisampler"}, "trisampler negatives are drawn"),
        ({"ranks": "worst"}, "FROM- for no end, or best"),
    ],
)
def test_what_does_not_go_together_is_refused(spoilt: World, given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        mine(spoilt.collection, **{"method": "dense", "top": 5, "ranks": "best", **given})
