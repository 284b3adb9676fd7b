"""What is believed of pairs before any label, and the draw that heeds it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_world import oracle, relevant, source, world

from fakes import HashingEncoder
from foils import label
from foils.data import Collection, Negatives
from foils.encode import VectorStore
from foils.labelling import PairPool, pairs_of
from foils.labelling.evidence import prior_before_labels
from foils.statistics import importance

SOURCES = {"a": source("a", 1), "b": source("b", 2)}


def believed(collection: Collection, sources: dict[str, Negatives], folder: Path) -> np.ndarray | None:
    universe = pairs_of(sources)
    return prior_before_labels(universe, collection, sources, HashingEncoder(), VectorStore(folder))


def truly(universe: PairPool) -> np.ndarray:
    pairs = universe.table.select(["query_id", "doc_id"]).to_pylist()
    return np.array([relevant(int(pair["query_id"][1:]), int(pair["doc_id"][1:])) for pair in pairs])


def labelled(folder: Path, name: str, **settings: Any) -> Any:
    given = {"n": 20, "ask": oracle, "output": folder / f"{name}.tsv", **settings}
    return label(world(), SOURCES, encoder=HashingEncoder(), vectors=folder / "v", draw="uncertain", **given)


def test_pairs_that_may_be_relevant_are_believed_to_be_it_rather(tmp_path: Path) -> None:
    universe, belief = pairs_of(SOURCES), believed(world(), SOURCES, tmp_path)
    assert belief is not None
    assert belief.shape == (len(universe),)
    assert ((belief > 0) & (belief < 1)).all()
    good = truly(universe)
    assert belief[good].mean() > 3 * belief[~good].mean()
    np.testing.assert_array_equal(belief, believed(world(), SOURCES, tmp_path))


def test_a_pair_of_a_query_that_the_split_does_not_judge_has_the_mean(tmp_path: Path) -> None:
    belief = believed(world(dev=("q0",)), SOURCES, tmp_path)
    assert belief is not None
    of_it = np.array([query == "q0" for query in pairs_of(SOURCES).table["query_id"].to_pylist()])
    assert belief[of_it] == pytest.approx(belief[~of_it].mean())
    assert np.ptp(belief[~of_it]) > 0.1


def test_one_query_believes_nothing(tmp_path: Path) -> None:
    whole = world()
    one = replace(whole, qrels={"train": whole.qrels["train"].slice(0, 1)})
    assert believed(one, {"a": source("a", 1)}, tmp_path) is None


def test_the_draw_prefers_uncertain_pairs_and_stays_while_they_are_judged(tmp_path: Path) -> None:
    equal, first = label(world(), SOURCES, n=20, ask=oracle, output=tmp_path / "e.tsv"), labelled(tmp_path, "one")
    assert set(equal.drawn) != set(first.drawn)
    pi = first.belief
    spread, sizes = np.sqrt(pi * (1 - pi)), importance(list(first.universe.members.values()), len(pi))
    many = [labelled(tmp_path, f"seed{seed}", seed=seed).drawn for seed in range(1, 4)]
    assert np.mean([spread[drawn].mean() for drawn in many]) > 1.3 * (spread * sizes).sum()
    before = (tmp_path / "one.tsv").read_bytes()
    again = labelled(tmp_path, "one")
    assert again.drawn.tolist() == first.drawn.tolist()
    assert (tmp_path / "one.tsv").read_bytes() == before
    more = labelled(tmp_path, "one", n=35)
    assert set(first.drawn) < set(more.drawn)
    assert more.labels.to_json()["judges"]["person"]["judged"] == 35
    for share in more.shares:
        rows = more.universe.members[share.source]
        assert share.share.low <= truly(more.universe)[rows].mean() <= share.share.high
