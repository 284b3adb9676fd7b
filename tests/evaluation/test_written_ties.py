"""What other tools measure of a run that foils wrote is what foils measures, however its ties came about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

import foils
from foils.data import Collection, Run
from foils.data.run import fuse_runs
from foils.evaluation import bm25_run, measure_run

TEXTS = ["bread and yeast", "boats sail", "bread and yeast", "sails of boats", "bread and yeast", "boats sail", "bees"]
DOCUMENTS = {
    f"d{at:02}": TEXTS[at % len(TEXTS)] for at in range(30)
}  # later documents come first by id, from high to low
QUERIES = {"q1": "bread with yeast", "q2": "sailing boats", "q3": "bees and bread"}
RELEVANT = {"q1": {"d00": 1, "d09": 2}, "q2": {"d01": 1, "d22": 1}, "q3": {"d06": 1, "d13": 1, "d02": 1}}
WORLD = Collection.from_dicts("ties", DOCUMENTS, QUERIES, {"test": RELEVANT})
MEASURES = ("nDCG@10", "RR@10", "AP", "R@5")


def by_bm25() -> Run:
    return bm25_run(WORLD, "test", depth=30)


def by_rounding() -> Run:
    """Scores that differ in float64 and are equal in float32, as trec_eval compares them."""
    return Run.from_dict({q: {d: 1 - 1e-10 * at for at, d in enumerate(DOCUMENTS)} for q in QUERIES}, name="rounding")


def by_fusion() -> Run:
    first, second = [*DOCUMENTS], [*DOCUMENTS][::-1]
    runs = [
        Run.from_dict({q: {d: -float(at) for at, d in enumerate(order)} for q in QUERIES}, name=name)
        for name, order in (("one", first), ("other", second))
    ]
    return fuse_runs(runs, method="rrf")


def by_size() -> Run:
    """Scores beyond float32, and zeros."""
    values = [1e300, 1e299, 1e39, *[0.0] * 24, -1e39, -1e299, -1e300]
    return Run.from_dict({q: dict(zip(DOCUMENTS, values, strict=True)) for q in QUERIES}, name="size")


def check(path: Path, run: Run) -> None:
    ours = measure_run(run, WORLD, "test", MEASURES).means
    lines = [line.split() for line in path.read_text().splitlines()]
    written: dict[str, dict[str, float]] = {}
    for query, _, document, _, score, _ in lines:
        written.setdefault(query, {})[document] = float(score)
    names = {"nDCG@10": "ndcg_cut_10", "AP": "map", "R@5": "recall_5"}
    theirs = pytrec_eval.RelevanceEvaluator(RELEVANT, {"ndcg_cut.10", "map", "recall.5"}).evaluate(written)
    for name, other in names.items():
        assert ours[name] == pytest.approx(np.mean([theirs[query][other] for query in QUERIES]), abs=1e-12)
    parsed = [ir_measures.parse_measure(name) for name in MEASURES]
    found = ir_measures.calc_aggregate(parsed, RELEVANT, ir_measures.read_trec_run(str(path)))
    assert {str(measure): value for measure, value in found.items()} == pytest.approx(ours, abs=1e-12)
    assert (
        Run.read(path)
        .table.select(["query_id", "doc_id", "rank"])
        .equals(run.table.select(["query_id", "doc_id", "rank"]))
    )


@pytest.mark.parametrize("made", [by_bm25, by_rounding, by_fusion, by_size])
def test_a_written_run_measures_elsewhere_what_it_measures_here(made: Callable[[], Run], tmp_path: Path) -> None:
    run = made()
    scores = np.clip(run.table["score"].to_numpy(), -1e38, 1e38).astype(np.float32)
    assert (np.diff(scores)[np.diff(run.table["rank"].to_numpy()) > 0] == 0).any(), "there are ties"
    run.write(tmp_path / "run.trec")
    check(tmp_path / "run.trec", run)


def test_so_do_runs_that_verbs_write(tmp_path: Path) -> None:
    searched = foils.search(WORLD, model="bm25", run=tmp_path / "searched.trec")
    check(tmp_path / "searched.trec", searched.run)
    measured = foils.evaluate(WORLD, {"lexical": "bm25", "fused": by_fusion()})
    measured.write_runs(tmp_path / "runs")
    for run in measured.runs:
        check(tmp_path / "runs" / f"{run.name}.trec", run)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from([0.0, 1.0, 1 + 2**-52]), min_size=1))
def test_written_scores_fall_in_float32_and_keep_what_falls_already(tmp_path_factory, scores: list[float]) -> None:
    path = tmp_path_factory.getbasetemp() / "any.trec"
    run = Run.ranked(["q"] * len(scores), [f"d{at}" for at in range(len(scores))], scores)
    run.write(path)
    written = np.array([float(line.split()[4]) for line in path.read_text().splitlines()])
    assert (np.diff(written) < 0).all()
    assert (np.diff(written.astype(np.float32)) < 0).all()
    before = run.table["score"].to_numpy()
    if (np.abs(before) < 1e38).all() and (np.diff(np.clip(before, -1e38, 1e38).astype(np.float32)) < 0).all():
        np.testing.assert_array_equal(written, before)
