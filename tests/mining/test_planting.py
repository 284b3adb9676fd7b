"""What provenance says under `recapture`, held against positives that are truly hidden, for every way of mining."""

from __future__ import annotations

import numpy as np
import pytest

import foils
from foils.data import Collection
from foils.data.collection import PairIndex
from foils.data.negatives import Recapture
from foils.encode import Vectors
from foils.mining import DenseRetriever, Miner, RandomRetriever
from foils.mining.candidates import drawn_positives
from foils.mining.retrievers import CrossEncoderRetriever
from foils.mining.rules import (
    Margin,
    PositiveScores,
    ScoreLimit,
    TextPairs,
    TriSampler,
    Uniform,
)  # fmt: skip
from hidden_positives import DOCUMENTS, QUERIES, World, hidden_world, shares

MOST = 2_000


class NoisyScorer:
    """A cross-encoder's stand-in: the cosine, and noise of the pair's own."""

    column = "logit"

    def __init__(self, world: World) -> None:
        self.dense = world.dense()
        self.noise = np.random.default_rng(5).standard_normal((QUERIES, DOCUMENTS))

    def score(self, pairs: TextPairs) -> np.ndarray:
        return self.dense.score(pairs) + 0.1 * self.noise[pairs.query_rows, pairs.doc_rows]


def cross_encoder(world: World, depth: int = 40) -> CrossEncoderRetriever:
    return CrossEncoderRetriever(world.collection, NoisyScorer(world), world.dense(), depth=depth)  # type: ignore[arg-type]


def shaken(world: World) -> DenseRetriever:
    """Another retriever: the dense one, its vectors of documents a little shaken."""
    vectors = world.documents.take(slice(None))
    noise = np.random.default_rng(8).standard_normal(vectors.shape) * 0.08
    return DenseRetriever(world.queries, Vectors.of(vectors + noise))


WAYS = {
    "window": lambda world: {"retriever": world.dense()},
    "shaken": lambda world: {"retriever": shaken(world)},
    "later window": lambda world: {"retriever": world.dense(), "ranks": (3, 8)},
    "uniform draw": lambda world: {"retriever": world.dense(), "ranks": (0, 20), "draw": Uniform()},
    "margin, minimum": lambda world: {
        "retriever": world.dense(), "rules": [Margin(world.scores(), 0.05, relative=True)],
    },
    "margin of a random order": lambda world: {
        "retriever": RandomRetriever(world.collection), "ranks": (0, DOCUMENTS), "scorer": world.dense(),
        "rules": [ScoreLimit(0.6, below=True), Margin(world.scores(), -0.2)],
    },
    "highest score": lambda world: {"retriever": world.dense(), "rules": [ScoreLimit(0.85)]},
    "cross-encoder": lambda world: {"retriever": cross_encoder(world)},
    "cross-encoder, later, with a margin": lambda world: {
        "retriever": cross_encoder(world), "ranks": (2, 30),
        "rules": [Margin(PositiveScores.of(world.collection, NoisyScorer(world), np.arange(QUERIES)), 0.02)],
    },
    "TriSampler": lambda world: {
        "retriever": world.dense(), "ranks": (0, 50),
        "rules": [region := TriSampler(world.collection, world.queries, world.documents)], "draw": region,
    },
}  # fmt: skip


def mined(world: World, way: str, **more: object):
    settings = {"top": 6, "near_duplicate": 1.1, "plant": MOST, **WAYS[way](world), **more}
    plant = settings.pop("plant")
    return Miner(world.collection, **settings).mined("train", plant=plant)


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [hidden_world(seed, labelled=0.35) for seed in range(3)]


def check(found: list[tuple[float, float, float]]) -> None:
    """The mean error of three worlds, over its standard error, lies within ±3.5 (once in 2,000 by chance)."""
    true, estimated, errors = np.array(found).T
    error = np.sqrt((errors**2).sum()) / len(found)
    assert true.mean() > 0.003
    assert error < 0.2 * true.mean() + 0.002  # else the next line could not fail
    assert abs(estimated.mean() - true.mean()) < 3.5 * error


@pytest.mark.parametrize("way", WAYS)
def test_the_share_of_false_negatives_is_right_for_every_way_of_mining(worlds, way):
    check([shares(world, mined(world, way)) for world in worlds])


@pytest.mark.parametrize("window", [(0, 3), (2, 5)])
def test_positives_of_a_window_are_counted(small, window):
    first, end = window
    retriever = RandomRetriever(small, seed=3)
    found = Miner(small, retriever, top=end - first, ranks=window).mined("train")
    positives = small.positives("train")
    known, returned, labelled = small.known_positives, 0, 0
    for query in positives.query_rows:
        rows, _ = retriever.search(np.array([query]), len(small.documents))
        place = {int(row): rank for rank, row in enumerate(rows[0])}
        own = {int(d) for i, q in enumerate(known.query_rows) if q == query for d in known.of(i)}
        labelled += len(own)
        for document in own:
            above = sum(1 for row, rank in place.items() if rank < place[document] and row not in own)
            kept = [row for row in place if row not in own]
            returned += first <= above < min(end, len(kept))
    recapture = Recapture.of(found)
    assert (recapture.way, recapture.queries) == ("counted", len(positives))
    assert (recapture.returned, recapture.labelled, recapture.kept) == (returned, labelled, found.keep.sum())


def test_planting_agrees_with_counting_where_both_are_possible(worlds):
    """A draw of as many as the window holds takes them all, and is planted."""
    for world in worlds:
        window, draw = mined(world, "window"), mined(world, "window", ranks=(0, 6), draw=Uniform())
        assert draw.table.equals(window.table)
        counted, planted = Recapture.of(window), Recapture.of(draw)
        assert (counted.way, planted.way) == ("counted", "planted")
        assert (counted.labelled, counted.kept, counted.queries) == (planted.labelled, planted.kept, planted.queries)
        assert abs(counted.returned - planted.returned) < 3.5 * planted.standard_error
        assert counted.standard_error < planted.standard_error  # one of each query's positives, or all of them


def test_a_planted_look_alike_of_a_positive_is_rejected_as_a_hidden_one_is():
    alike = [hidden_world(seed, duplicates=0.6) for seed in range(3)]
    for way in ("uniform draw", "cross-encoder"):
        check([shares(world, mined(world, way)) for world in alike])


def test_samples_of_few_queries_are_right_on_average_and_say_how_far_they_stray(worlds):
    whole = Recapture.of(mined(worlds[1], "uniform draw"))
    few = [Recapture.of(mined(worlds[1], "uniform draw", plant=60, seed=seed)) for seed in range(1, 25)]
    assert {each.queries for each in few} == {60}
    returned = np.array([each.returned for each in few])
    deviation = returned.std(ddof=1)
    assert abs(returned.mean() - whole.returned) < 3.5 * np.hypot(deviation / np.sqrt(24), whole.standard_error)
    assert np.mean([each.standard_error for each in few]) == pytest.approx(deviation, rel=0.4)


def test_the_table_is_the_same_with_and_without_planting_and_the_estimate_repeats():
    world = hidden_world(2)
    for way in ("uniform draw", "cross-encoder", "TriSampler"):
        with_it, again, without = mined(world, way), mined(world, way), mined(world, way, plant=0)
        assert with_it.table.equals(without.table)
        assert with_it.provenance == again.provenance
        assert "recapture" not in without.provenance
        assert set(with_it.provenance) - set(without.provenance) == {"recapture"}


# q0's documents by cosine: 1 2 3 4 5; q1's the other way round
SCORES = np.linspace(0.9, 0.5, 5)


def small_world(qrels: dict[str, dict[str, int]], **splits: dict[str, dict[str, int]]) -> World:
    documents = np.stack([SCORES, SCORES[::-1], np.sqrt(1.5 - SCORES**2 - SCORES[::-1] ** 2)], axis=1)
    collection = Collection.from_dicts(
        "small", {f"d{row}": f"word{row}" for row in range(1, 6)}, {"q0": "one", "q1": "two"},
        {"train": qrels, **splits},
    )  # fmt: skip
    return World(collection, Vectors.of(np.eye(3)[:2]), Vectors.of(documents), set())


def of(world: World, **settings: object) -> Recapture | None:
    given = {"top": 1, "near_duplicate": 1.1, "split": "train", "plant": 10, **settings}
    split, plant = given.pop("split"), given.pop("plant")
    return Recapture.of(Miner(world.collection, world.dense(), **given).mined(split, plant=plant))


def small_scores(world: World) -> PositiveScores:
    return PositiveScores.of(world.collection, world.dense(), np.arange(2))


def test_a_draw_by_hand():
    """One of q0's first two unlabelled documents is drawn: with d1 planted, d1 or d3; with d2 planted, d2 or d3."""
    world = small_world({"q0": {"d1": 1, "d2": 1}})
    kept = {of(world, ranks=(0, 2), draw=Uniform(), seed=seed).returned for seed in range(20)}
    assert kept == {0.0, 2.0}  # of two positives: the planted one stands for both
    assert of(world, ranks=(0, 2), top=2, draw=Uniform()).returned == 2
    assert of(world, ranks=(2, 3), draw=Uniform()).returned == 0  # both lie before the window, whichever is planted


def test_a_margin_by_hand():
    """Against the one that is left: d1 planted is .1 above d2, d2 planted .1 below d1."""
    world = small_world({"q0": {"d1": 1, "d2": 1}})
    known, scores = world.collection.known_positives, small_scores(world)
    drawn = [drawn_positives(known, np.array([0]), least=2, most=10, seed=seed)[1][0] + 1 for seed in range(20)]
    for absolute, planted, returned in ((0.05, 1, 0), (0.05, 2, 2), (0.15, 2, 0), (-0.15, 1, 2)):
        assert planted in drawn
        found = of(world, rules=[Margin(scores, absolute)], seed=drawn.index(planted))
        assert (found.way, found.returned) == ("planted", returned)


def test_a_query_with_one_positive_can_be_planted_in_unless_something_compares_with_positives():
    world = small_world({"q0": {"d1": 1}, "q1": {"d1": 1}})
    scores = small_scores(world)
    assert of(world, ranks=(0, 1), draw=Uniform()).returned == 1  # the first of q0, the last of q1
    assert of(world, rules=[ScoreLimit(0.85)]).returned == 0
    assert of(world, rules=[Margin(scores, 0.1)]) is None
    assert of(world, rules=[TriSampler(world.collection, world.queries, world.documents)]) is None
    both = small_world({"q0": {"d1": 1, "d2": 1}, "q1": {"d1": 1}})
    found = of(both, rules=[Margin(small_scores(both), -1.0)])
    assert (found.returned, found.labelled, found.queries) == (3, 3, 1)  # all of q0's, and so all


def test_labels_of_other_splits_are_taken_away_too():
    world = small_world({"q0": {"d1": 1}}, dev={"q0": {"d1": 1}})
    assert of(world, ranks=(0, 1), draw=Uniform()).returned == 1


def test_nothing_is_said_of_what_cannot_be_planted():
    world = small_world({"q0": {"d1": 1, "d2": 1}})
    assert of(world, ranks=(0, 2), draw=Uniform(), plant=0) is None


def test_the_first_queries_that_are_planted_are_the_same_for_every_number_and_need():
    known = hidden_world(3).collection.known_positives
    few, many, two = (
        drawn_positives(known, known.query_rows, least=least, most=most, seed=4)
        for least, most in ((1, 50), (1, 200), (2, 10_000))
    )
    assert PairIndex(*many).contain(*few).all()
    assert (known.counts_of(two[0]) >= 2).all()
    assert len(two[0]) == (known.counts >= 2).sum()
    other = drawn_positives(known, known.query_rows, least=1, most=50, seed=5)
    assert set(other[0]) != set(few[0])


def test_where_a_query_has_one_positive_only_what_compares_with_none_is_planted():
    single = Collection.from_dicts("one", {"a": "a", "b": "b"}, {"q0": "q"}, {"train": {"q0": {"a": 1}}})
    dense = DenseRetriever(Vectors.of(np.ones((1, 1))), Vectors.of(np.ones((2, 1))))
    scores = PositiveScores.of(single, dense, np.array([0]))
    limited, compared = (Miner(single, dense, rules=[rule], top=1) for rule in (ScoreLimit(2.0), Margin(scores)))
    assert Recapture.of(limited.mined("train", plant=5)).way == "planted"
    assert "recapture" not in compared.mined("train", plant=5).provenance


def test_the_verb_plants_and_what_fusing_and_filtering_make_says_nothing(beir_folder):
    folder = beir_folder()
    drawn = foils.mine(folder, "random", top=2, ranks=(0, 4), draw="uniform")
    assert Recapture.of(drawn).way == "planted"
    both = foils.fuse(folder, {"a": drawn, "b": foils.mine(folder, "bm25", top=3)})
    assert Recapture.of(both) is None
    marked = foils.filter(folder, foils.mine(folder, "bm25", top=3), max_score=0.5)
    assert not marked.keep.all()
    assert Recapture.of(marked) is None
