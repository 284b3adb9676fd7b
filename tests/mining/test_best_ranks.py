"""The best ranks: mined deep, decided between, and taken as if they had been asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from decided_world import WorldEncoder
from foils.data.splitting import expected_recurrence
from foils.deciding.mine import mine
from foils.encode import VectorStore
from foils.mining.candidates import Mined
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
    first, end = map(int, chosen["source"].removeprefix("ranks ").split("–"))
    assert (end - first, chosen["depth"], len(chosen["candidates"])) == (5, 50, 12)
    models = {"encoder": WorldEncoder(spoilt), "vectors": VectorStore(tmp_path / "vectors")}
    plain = mine(spoilt.collection, "dense", top=5, ranks=(first, end), **models)
    assert best.table.equals(plain.table)
    assert best.provenance["recapture"] == plain.provenance["recapture"]
    assert list(best.provenance["settings"]["ranks"]) == [first, end]
    assert chosen["sentence"] == best.tables()[1].title
    assert best.to_json()["decision"]["candidates"] == chosen["candidates"]


def test_it_heeds_how_often_documents_recur(spoilt: World, tmp_path: Path) -> None:
    class WordTable(WorldEncoder):
        static = True

    models = {"encoder": WordTable(spoilt), "vectors": VectorStore(tmp_path / "vectors")}
    words = mine(spoilt.collection, "dense", top=5, ranks="best", **models).decision
    context = best_of(spoilt, tmp_path).decision
    assert (words.recurrence, context.recurrence) == (expected_recurrence(spoilt.collection, "train"), 1.0)
    assert words.worths["ranks 0–5"].strength < context.worths["ranks 0–5"].strength


def test_where_nothing_is_hidden_it_takes_the_first_ranks(tmp_path: Path) -> None:
    whole = hidden_world(8, labelled=1.0)
    assert list(best_of(whole, tmp_path).provenance["settings"]["ranks"]) == [0, 5]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"draw": "uniform"}, "draw uniform: no effect with ranks best"),
        ({"method": "random"}, "random negatives are drawn"),
        ({"method": "trisampler"}, "trisampler negatives are drawn"),
        ({"ranks": "worst"}, "FROM- for no end, or best"),
    ],
)
def test_what_does_not_go_together_is_refused(spoilt: World, given: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        mine(spoilt.collection, **{"method": "dense", "top": 5, "ranks": "best", **given})
