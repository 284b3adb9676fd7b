"""Draws from a window of ranks: uniform, SimANS, TriSampler."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from foils.data import Collection
from foils.encode import Vectors
from foils.mining import BM25Retriever, DenseRetriever, mine_negatives
from foils.mining.filters import PositiveScores, ScoreAbove
from foils.mining.pairs import TextPairs
from foils.mining.sampling import SimANS, Uniform
from foils.mining.trisampler import TriSampler
from foils.runtime.errors import InputError

QUERIES = 400


@pytest.fixture(scope="module")
def many() -> tuple[Collection, Vectors, Vectors]:
    """400 copies of one query, its positive at cosine 0.9, twelve documents at cosines 0.8, 0.75, …, 0.25."""
    cosines = [0.9, *np.linspace(0.8, 0.25, 12)]
    documents = {f"d{at}": f"word{at}" for at in range(len(cosines))}
    queries = {f"q{at}": f"query {at}" for at in range(QUERIES)}
    world = Collection.from_dicts("many", documents, queries, {"train": {key: {"d0": 1} for key in queries}})
    vectors = np.array([[c, np.sqrt(1 - c * c)] for c in cosines])
    return world, Vectors.of(np.tile([[1.0, 0.0]], (QUERIES, 1))), Vectors.of(vectors)


def drawn(many, **settings) -> np.ndarray:
    """How often each rank (0–11) is kept."""
    world, queries, documents = many
    given = {"split": "train", "top": 1, "ranks": (0, 12), **settings}
    found = mine_negatives(world, DenseRetriever(queries, documents), **given)
    return np.bincount(found.kept()["rank"].to_numpy(), minlength=12)


def test_uniform_draws_are_uniform_repeat_with_the_seed_and_stay_in_the_window(many):
    counts = drawn(many, draw=Uniform(), ranks=(2, 10), seed=1)
    assert counts[:2].sum() == counts[10:].sum() == 0
    assert stats.chisquare(counts[2:10]).pvalue > 1e-4
    assert (drawn(many, draw=Uniform(), seed=1) == drawn(many, draw=Uniform(), seed=1)).all()
    assert (drawn(many, draw=Uniform(), seed=1) != drawn(many, draw=Uniform(), seed=2)).any()


def test_a_draw_of_the_whole_window_is_the_window(many):
    assert (drawn(many, draw=Uniform(), top=12) == QUERIES).all()


def test_what_is_not_drawn_is_marked(many):
    world, queries, documents = many
    found = mine_negatives(
        world, DenseRetriever(queries, documents), split="train", top=3, ranks=(0, 8), draw=Uniform()
    )
    assert found.rejected() == {"not drawn": 5 * QUERIES}
    assert found.short == {}


def test_rejected_candidates_are_replaced_or_leave_a_gap(many):
    filled = drawn(many, draw=Uniform(), rules=[ScoreAbove(0.5)], top=2)
    assert filled[:7].sum() in (0, filled[6])  # 0.5 itself is a matter of rounding
    assert filled.sum() == 2 * QUERIES
    short = drawn(many, draw=Uniform(), rules=[ScoreAbove(0.51)], top=2, fill=False)
    assert 0 < short.sum() < 2 * QUERIES
    assert short.sum() / (2 * QUERIES) == pytest.approx(0.5, abs=0.08)  # half of the window is rejected


def test_simans_draws_as_its_formula_says(many):
    world, queries, documents = many
    positives = PositiveScores.of(world, DenseRetriever(queries, documents), np.arange(QUERIES))
    counts = drawn(many, draw=SimANS(positives, a=30.0, b=-0.3))
    cosines = np.linspace(0.8, 0.25, 12)
    p = np.exp(-30.0 * (cosines - 0.9 + 0.3) ** 2)
    assert stats.chisquare(counts, QUERIES * p / p.sum()).pvalue > 1e-4
    assert counts.argmax() in (3, 4, 5)  # the peak is at 0.6
    flat = drawn(many, draw=SimANS(positives, a=0.0))
    assert (flat == drawn(many, draw=Uniform())).all()


def test_simans_refusals(many, small):
    positives = PositiveScores(np.zeros(1, np.int64), np.zeros(1, np.int64), np.ones(1))
    with pytest.raises(InputError, match="at least 0"):
        SimANS(positives, a=-1.0)
    with pytest.raises(InputError, match="needs a scorer"):
        SimANS(positives).log_weights(
            TextPairs(small, np.zeros(1, np.int64), np.zeros(1, np.int64), np.full(1, np.nan))
        )
    with pytest.raises(InputError, match="window of ranks with an end"):
        mine_negatives(small, BM25Retriever(small), split="train", top=1, draw=Uniform())


@pytest.fixture
def triangle() -> tuple[Collection, Vectors, Vectors]:
    """A query at 0°, its positive at 20°, candidates at −10°, 15°, 20.5°, 50°, 79°, 85°; all in a plane."""
    angles = np.radians([20, -10, 15, 20.5, 50, 79, 85])
    documents = {f"d{at}": f"word{at}" for at in range(len(angles))}
    world = Collection.from_dicts("triangle", documents, {"q": "query"}, {"train": {"q": {"d0": 1}}})
    return world, Vectors.of(np.array([[2.0, 0.0]])), Vectors.of(np.stack([np.cos(angles), np.sin(angles)], 1))


def candidates(world: Collection) -> TextPairs:
    return TextPairs(world, np.zeros(6, np.int64), np.arange(1, 7), np.full(6, np.nan))


def test_the_quasi_triangular_region_by_hand(triangle):
    world = triangle[0]
    # θ = |20° − angle to the query|: 10, 5, 0.5, 30, 59, 65; angles to the positive: 30, 5, 0.5, 30, 59, 65
    assert TriSampler(*triangle, closest=0.9999).marks(candidates(world)).tolist() == [
        False, False, True, False, False, True
    ]  # fmt: skip
    assert TriSampler(*triangle, closest=0.99).marks(candidates(world)).tolist() == [
        False, True, True, False, False, True
    ]  # fmt: skip
    assert TriSampler(*triangle, angle=25, closest=1.0).marks(candidates(world)).tolist() == [
        False, False, False, True, True, True
    ]  # fmt: skip


def test_the_distribution_over_the_region_by_hand(triangle):
    found = TriSampler(*triangle).log_weights(candidates(triangle[0]))
    cos = lambda degrees: np.cos(np.radians(degrees))  # noqa: E731
    assert found[0] == -np.inf  # 30° from the positive, 10° from the query
    assert found[1] == pytest.approx(-((cos(15) - cos(20)) ** 2) / 4 + np.log(cos(5) - cos(15)))
    assert found[3] == pytest.approx(-((cos(50) - cos(20)) ** 2) / 4 + np.log(cos(30) - cos(50)))


def test_trisampler_mines_from_its_region(triangle):
    world, queries, documents = triangle
    region = TriSampler(world, queries, documents, closest=0.99)
    found = mine_negatives(
        world, DenseRetriever(queries, documents), split="train", top=6, ranks=(0, 6), rules=[region], draw=region
    )
    assert sorted(found.kept()["doc_id"].to_pylist()) == ["d4", "d5"]
    assert found.rejected() == {region.reason: 3, "not drawn": 1}
    for bad in ({"angle": 0}, {"angle": 181}, {"closest": -1}):
        with pytest.raises(InputError, match="degrees"):
            TriSampler(*triangle, **bad)
