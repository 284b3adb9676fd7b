"""Recapture of tables that are fused or filtered after mining, held against positives that are truly hidden."""

from __future__ import annotations

import numpy as np
import pytest

import foils
from foils.data import Collection, Negatives, Recapture
from foils.encode import Vectors
from foils.mining import DenseRetriever, RandomRetriever, mine_negatives
from foils.mining.carrying import carried_by_filter, carried_by_fusion, replay_of
from foils.mining.filters import Margin, PositiveScores, ScoreAbove, filter_negatives
from foils.mining.fusion import fuse_sources
from foils.mining.pairs import Rule, TextPairs
from foils.mining.sampling import Uniform
from foils.runtime.errors import InputError
from hidden_positives import QUERIES, World, hidden_world, shares

WORLDS = 3


class Shaken(DenseRetriever):
    """Another retriever: the dense one, its vectors of documents a little shaken."""

    def __init__(self, world: World) -> None:
        vectors = world.documents.take(slice(None))
        noise = np.random.default_rng(8).standard_normal(vectors.shape) * 0.08
        super().__init__(world.queries, type(world.documents).of(vectors + noise))


def mined(world: World, **settings: object) -> Negatives:
    given = {"retriever": world.dense(), "top": 6, "near_duplicate": 1.1, "plant": 2_000, **settings}
    retriever = given.pop("retriever")
    return mine_negatives(world.collection, retriever, split="train", **given)  # type: ignore[arg-type]


PARTS = {
    "two windows": lambda world: {"a": mined(world), "b": mined(world, retriever=Shaken(world))},
    "a window and random ones": lambda world: {
        "a": mined(world), "r": mined(world, retriever=RandomRetriever(world.collection)),
    },
    "a draw and a margin": lambda world: {
        "d": mined(world, ranks=(0, 20), draw=Uniform()),
        "m": mined(world, rules=[Margin(world.scores(), relative=0.02)]),
    },
    "what one rejects the other has": lambda world: {
        "a": mined(world), "s": mined(world, rules=[ScoreAbove(0.85)], retriever=Shaken(world)),
    },
}  # fmt: skip


def fused(world: World, parts: dict[str, Negatives], method: str, top: int | None) -> Negatives:
    def fuse(tables):
        return fuse_sources(tables, method=method, top=top)

    whole = fuse(parts)
    return whole.with_provenance(carried_by_fusion(parts, whole, world.collection, fuse))


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [hidden_world(seed, labelled=0.4) for seed in range(WORLDS)]


def check(found: list[tuple[float, float, float]]) -> None:
    true, estimated, errors = np.array(found).T
    error = np.sqrt((errors**2).sum()) / len(found)
    assert error < 0.2 * true.mean() + 0.002
    assert abs(estimated.mean() - true.mean()) < 3.5 * error


@pytest.mark.parametrize(("method", "top"), [("interleave", 6), ("rrf", 6), ("union", 4), ("union", None)])
@pytest.mark.parametrize("which", PARTS)
def test_a_fused_table_has_the_right_share(worlds, which, method, top):
    check([shares(world, fused(world, PARTS[which](world), method, top)) for world in worlds])


RULES = {
    "score": lambda world: [ScoreAbove(0.85)],
    "margin": lambda world: [Margin(world.scores(), absolute=0.02)],
    "each": lambda world: [Margin(world.scores(), absolute=0.02, against="each")],
}


@pytest.mark.parametrize("which", RULES)
@pytest.mark.parametrize("drawn", [False, True])
def test_a_filtered_table_has_the_right_share(worlds, which, drawn):
    found = []
    for world in worlds:
        rules = RULES[which](world)
        table = mined(world, **({"ranks": (0, 20), "draw": Uniform()} if drawn else {}))
        marked = filter_negatives(table, world.collection, rules)
        carried = carried_by_filter(table, marked, world.collection, rules)
        found.append(shares(world, marked.with_provenance(carried)))
    check(found)


def test_what_was_fused_can_be_fused_and_filtered_again(worlds):
    found = []
    for world in worlds:
        parts = PARTS["two windows"](world)
        both = fused(world, parts, "interleave", 6)
        three = fused(world, {"both": both, **PARTS["a window and random ones"](world)}, "rrf", 6)
        scores = PositiveScores.of(world.collection, world.dense(), np.arange(QUERIES))
        rules: list[Rule] = [Margin(scores, absolute=0.02)]
        marked = filter_negatives(three, world.collection, rules, scorer=world.dense())
        carried = carried_by_filter(three, marked, world.collection, rules, scorer=world.dense())
        found.append(shares(world, marked.with_provenance(carried)))
    check(found)


def test_filtering_while_mining_and_after_it_say_the_same():
    """A window that is not filled loses the same rows by its rules, whenever they are asked."""
    world = hidden_world(4)
    rules: list[Rule] = [Margin(world.scores(), relative=0.02), ScoreAbove(0.9)]
    at_once = mined(world, rules=rules, fill=False)
    table = mined(world, fill=False)
    marked = filter_negatives(table, world.collection, rules)
    carried = carried_by_filter(table, marked, world.collection, rules)
    assert carried["recapture"] == at_once.provenance["recapture"]
    assert sorted(carried["planted"]["query_id"]) == sorted(at_once.provenance["planted"]["query_id"])


class OwnRule:
    reason = "mine"

    def marks(self, pairs: TextPairs) -> np.ndarray:
        return np.zeros(len(pairs), bool)


def test_nothing_is_said_where_a_part_says_nothing():
    world = hidden_world(5)
    table, bare = mined(world), mined(world, plant=0)
    shaken = mined(world, retriever=Shaken(world))
    assert "recapture" in fused(world, {"a": table, "b": shaken}, "rrf", 6).provenance
    assert "recapture" not in fused(world, {"a": table, "b": Negatives(shaken.table)}, "rrf", 6).provenance
    assert "recapture" not in fused(world, {"a": table, "b": bare}, "rrf", 6).provenance
    cut = shaken.reject(shaken.table["rank"].to_numpy() > 3, "cut")
    assert "recapture" not in fused(world, {"a": table, "b": cut}, "rrf", 6).provenance
    assert carried_by_filter(table, table, world.collection, [OwnRule()]) == {}
    single = Collection.from_dicts("one", {"a": "a", "b": "b"}, {"q0": "q"}, {"train": {"q0": {"a": 1}}})
    dense = DenseRetriever(Vectors.of(np.ones((1, 1))), Vectors.of(np.ones((2, 1))))
    one = mine_negatives(single, dense, split="train", top=1, plant=5)
    scores = PositiveScores.of(single, dense, np.array([0]))
    assert carried_by_filter(one, one, single, [ScoreAbove(2.0)])["recapture"]["way"] == "planted"
    assert carried_by_filter(one, one, single, [Margin(scores)]) == {}


def test_another_collection_is_not_taken_for_the_one_that_was_mined():
    world, other = hidden_world(5), hidden_world(6)
    table = mined(world)
    assert replay_of(table, world.collection) is not None
    assert replay_of(table, other.collection) is None


@pytest.mark.parametrize(
    "change",
    [
        {"samples": 3},
        {"samples": [{}]},
        {"samples": [{"split": "train", "least": 1, "most": 9, "seed": -1}]},
        {"rank": "xyz"},
        {"score": [1.0]},
    ],
)
def test_what_cannot_be_read_is_refused(change):
    world = hidden_world(5)
    table = mined(world)
    broken = table.with_provenance({"planted": {**table.provenance["planted"], **change}})
    with pytest.raises(InputError, match="planted positives cannot be read"):
        replay_of(broken, world.collection)


def test_the_verbs_carry_it(beir_folder, tmp_path):
    folder = beir_folder()
    tables = {}
    for method in ("bm25", "random"):
        tables[method] = tmp_path / f"{method}.parquet"
        foils.mine(folder, method, top=3).write(tables[method])
    both = foils.fuse(folder, list(map(str, tables.values())), method="interleave", top=3)
    recapture = Recapture.of_table(both)
    assert (recapture.way, recapture.kept) == ("planted", both.keep.sum())
    marked = foils.filter(folder, str(tables["bm25"]), max_score=0.5)
    assert Recapture.of_table(marked).kept == marked.keep.sum()
    assert "planted" not in marked.provenance["before"]
    drawn = foils.mine(folder, "random", top=2, ranks=(0, 4), draw="uniform")
    assert Recapture.of_table(drawn).way == "planted"


def test_collections_without_that_split_are_fused_without_it():
    judged = {"q0": {"a": 1, "b": 1}}
    known = Collection.from_dicts("c", {"a": "a", "b": "b", "c": "c"}, {"q0": "a b c"}, {"dev": judged})
    other = Collection.from_dicts("c", {"a": "a", "b": "b", "c": "c"}, {"q0": "a b c"}, {"test": judged})
    table = mine_negatives(known, RandomRetriever(known), split="dev", top=1, plant=5)
    assert replay_of(table, known) is not None
    assert replay_of(table, other) is None
    both = {"a": table, "b": table}
    whole = fuse_sources(both)
    assert carried_by_fusion(both, whole, known, fuse_sources)["recapture"]["labelled"] == 2
    assert carried_by_fusion(both, whole, other, fuse_sources) == {}
