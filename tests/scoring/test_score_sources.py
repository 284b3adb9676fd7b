"""Scoring end to end: what is encoded, hybrids, the control, every setting, errors, and the real encoder."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import plain
import pytest
from score_world import World, negatives, random_world, score
from test_score_plain import MEANS, PER_RECORD, SCORES

from fakes import HashingEncoder
from foils.data import Collection, Negatives
from foils.encode import Kind, VectorStore
from foils.mining.fusion import fuse_sources
from foils.runtime.errors import FailureError, InputError, UnknownNameError
from foils.scoring import Scores, ScoreSettings, SourceScore
from foils.scoring.triplets import CONTROL


def scored(world: World, tmp_path: Path, encoder: HashingEncoder | None = None, **chosen: object) -> Scores:
    chosen = {"replicates": 50, **chosen}
    return score(
        world.collection, world.sources, encoder or HashingEncoder(), VectorStore(tmp_path / "vectors"), **chosen
    )


def by_name(scores: Scores) -> dict[str, SourceScore]:
    return {found.name: found for found in scores.sources}


def distinct_texts(world: World) -> set[str]:
    kept = [record for of in world.plainly.values() for record in plain.usable(of)]
    return {text for record in kept for text in (record.query, *record.positives, *record.negatives)}


@pytest.mark.parametrize("seed", range(3))
def test_exactly_the_distinct_texts_are_encoded_once(tmp_path, seed):
    world, encoder = random_world(seed, skip=0.5), HashingEncoder()
    scored(world, tmp_path, encoder, hybrids=3)
    texts = [text for call in encoder.calls for text in call]
    assert sorted(texts) == sorted(distinct_texts(world))
    again = HashingEncoder()
    scored(world, tmp_path, again, hybrids=3, temperature=0.1, seed=5, idf_corpus="collection")
    assert again.encoded == 0


def test_hybrids_from_parts_equal_a_source_made_of_the_union(tmp_path):
    world, encoder = random_world(4), HashingEncoder()
    parts = by_name(scored(world, tmp_path, encoder, hybrids=3, idf_corpus="collection"))
    before = encoder.encoded
    for size in (2, 3):
        for names in combinations(world.sources, size):
            rows = [
                (
                    row["query_id"],
                    row["doc_id"] if row.get("text") is None else f"{row['doc_id']} {name}",
                    row.get("text"),
                )
                for name in names
                for row in world.sources[name].table.to_pylist()
            ]
            united = World(world.collection, {"united": negatives(list(dict.fromkeys(rows)))}, {})
            found = scored(united, tmp_path, encoder, hybrids=1, idf_corpus="collection").sources[0]
            hybrid = parts["+".join(names)]
            assert hybrid.hybrid
            assert not found.hybrid
            assert (found.records, found.negatives) == (hybrid.records, hybrid.negatives)
            for name in (*SCORES, *MEANS, *PER_RECORD, "eci", "eci_per_query", "signal", "margin", "effective_rank"):
                assert getattr(found, name) == pytest.approx(getattr(hybrid, name), rel=1e-5, abs=1e-7), name
            assert found.buckets == pytest.approx(hybrid.buckets)
    assert encoder.encoded == before


def test_hybrids_of_collection_documents_equal_the_fused_file(tmp_path, small):
    a = negatives([("q1", "d4", None), ("q1", "d2", None), ("q2", "d5", None)], "a")
    b = negatives([("q1", "d2", None), ("q3", "d9", None), ("q2", "d10", None)], "b")
    store = VectorStore(tmp_path)
    hybrid = by_name(score(small, {"a": a, "b": b}, HashingEncoder(), store, control=False))["a+b"]
    fused = score(small, {"ab": fuse_sources({"a": a, "b": b})}, HashingEncoder(), store, control=False).sources[0]
    for name in ("eci_sem", "eci", "mnrl_proxy", "gradient_energy", "coverage"):
        assert getattr(fused, name) == pytest.approx(getattr(hybrid, name), rel=1e-5), name


def test_a_hybrid_without_overlap_is_the_mean_of_its_parts_weighted_by_their_negatives(tmp_path):
    collection = Collection.from_dicts(
        "c", {f"d{i}": f"word{i} wind{i % 3}" for i in range(9)}, {"q": "wind0 word1"}, {"train": {"q": {"d0": 1}}}
    )
    sources = {
        "a": negatives([("q", f"d{i}", None) for i in (1, 2)]),
        "b": negatives([("q", f"d{i}", None) for i in (3, 4, 5, 6, 7)]),
    }
    found = by_name(scored(World(collection, sources, {}), tmp_path))
    for name in ("trace", *MEANS):
        a, b, both = (getattr(found[key], name) for key in ("a", "b", "a+b"))
        assert both == pytest.approx((2 * a + 5 * b) / 7, rel=1e-6), name
    for name in PER_RECORD[:2]:
        assert getattr(found["a+b"], name) >= max(getattr(found[key], name) for key in "ab") * (name == "mnrl_proxy")


def subjects(count: int = 60) -> tuple[Collection, Negatives, Negatives]:
    """Queries, each with a positive; hard negatives share the query's subject, random ones are of any other."""
    rng = np.random.default_rng(0)
    documents = {f"d{i} {j}": f"subject{i} aspect{i}x{j} detail{j}" for i in range(count) for j in range(5)}
    queries = {f"q{i}": f"subject{i} aspect{i}x0" for i in range(count)}
    collection = Collection.from_dicts(
        "subjects", documents, queries, {"train": {f"q{i}": {f"d{i} 0": 1} for i in range(count)}}
    )
    hard = [(f"q{i}", f"d{i} {j}", None) for i in range(count) for j in range(1, 5)]
    others = {i: rng.choice([k for k in range(count) if k != i], 4, replace=False) for i in range(count)}
    easy = [(f"q{i}", f"d{k} {rng.integers(5)}", None) for i in range(count) for k in others[i]]
    return collection, negatives(hard), negatives(easy)


def test_random_negatives_are_flagged_as_easy_and_hard_ones_are_not(tmp_path):
    collection, hard, easy = subjects()
    world = World(collection, {"hard": hard, "uniform": easy}, {})
    scores = scored(world, tmp_path, replicates=300)
    found = by_name(scores)
    assert scores.control is not None
    assert scores.control.name == CONTROL
    assert found["uniform"].easy
    assert not found["hard"].easy
    assert found["hard+uniform"].easy  # one of its parts is
    assert 0.9 < found["uniform"].control_ratio < 1.4
    assert found["hard"].control_ratio_low < found["hard"].control_ratio < found["hard"].control_ratio_high < 0.95
    assert found["hard"].control_ratio == pytest.approx(found["hard"].eci_sem / scores.control.eci_sem)
    assert CONTROL not in scores.ranking
    without = scored(world, tmp_path, control=False)
    assert without.control is None
    assert all(math.isnan(score.control_ratio) and not score.easy for score in without.sources)
    assert by_name(without)["hard"].eci_sem == pytest.approx(found["hard"].eci_sem)


CHANGES: list[tuple[dict[str, object], str]] = [
    ({"temperature": 0.1}, "eci_sem"),
    ({"temperature": 0.1}, "pair_loss"),
    ({"temperature": 0.1}, "buckets"),
    ({"regularization": 0.1}, "eci_sem"),
    ({"regularization": 0.1}, "trace"),
    ({"regularization": 0.1}, "control_ratio"),
    ({"sample": 9}, "eci_sem"),
    ({"tokenizer": "trigrams"}, "coverage"),
    ({"idf_corpus": "collection"}, "coverage"),
    ({"idf_corpus": "uniform"}, "coverage"),
    ({"idf_corpus": "pooled+queries"}, "eci_sem"),
    ({"split": "dev"}, "eci_sem"),
    ({"replicates": 51}, "eci_sem_high"),
    ({"seed": 1}, "eci_sem_low"),
    ({"seed": 1}, "control_ratio"),
]


@pytest.fixture
def two_splits():
    world = random_world(5, queries=30)
    judged = [
        {row["query_id"]: {} for row in world.collection.judgements("train").to_pylist()} for _ in ("train", "dev")
    ]
    for row in world.collection.judgements("train").to_pylist():
        judged[int(row["query_id"].split()[1]) % 3 == 0][row["query_id"]][row["doc_id"]] = 1
    texts = {row["doc_id"]: row["text"] for row in world.collection.documents.to_pylist()}
    for key in list(texts)[::4]:
        texts[key] += " a-b a b it's"
    asked = {row["query_id"]: row["text"] + " a-b it's" for row in world.collection.queries.to_pylist()}
    qrels = {
        name: {query: of for query, of in split.items() if of}
        for name, split in zip(("train", "dev"), judged, strict=True)
    }
    return World(Collection.from_dicts("two", texts, asked, qrels), world.sources, {})


@pytest.mark.parametrize(("change", "field"), CHANGES)
def test_every_setting_changes_the_result(tmp_path, two_splits, change, field):
    base, changed = (scored(two_splits, tmp_path, **given) for given in ({}, change))
    for before, after in zip(base.sources[:3], changed.sources[:3], strict=True):
        first, second = getattr(before, field), getattr(after, field)
        assert first != second
        if field != "buckets":
            assert math.isfinite(first)
            assert math.isfinite(second)


def test_settings_that_add_or_leave_out_parts(tmp_path, two_splits):
    counts = [len(scored(two_splits, tmp_path, hybrids=hybrids).sources) for hybrids in (1, 2, 3, 9)]
    assert counts == [3, 6, 7, 7]
    none = scored(two_splits, tmp_path, replicates=0).sources[0]
    assert math.isnan(none.eci_sem_low)
    assert math.isnan(none.eci_sem_high)
    digests = [
        scored(two_splits, tmp_path, idf_corpus=kind).idf_corpus["digest"]
        for kind in ("pooled", "collection", "pooled+queries", "uniform")
    ]
    assert len(set(digests)) == 4
    assert digests[3] == ""


def test_an_interval_that_does_not_cover_says_so_beside_the_number(tmp_path, two_splits, capsys):
    """At λ = 1e-4 a few records score far below many: the table, the page and the JSON say so; at λ = 1 none does."""
    from foils.runtime.terminal import print_tables

    small, one = (scored(two_splits, tmp_path, regularization=value) for value in (1e-4, 1.0))
    assert not all(found.interval_covers for found in small.sources)
    assert all(found.interval_covers for found in one.sources)
    assert small.sources[0].eci_sem_bias < 0
    print_tables(small.tables())
    shown = capsys.readouterr().out
    for text in (shown, json.dumps(small.to_json(), ensure_ascii=False)):
        assert "does not cover" in text
        assert "records" in text
    print_tables(one.tables())
    assert "does not cover" not in capsys.readouterr().out


def test_the_same_seed_gives_the_same_result(tmp_path, two_splits):
    first, again = (scored(two_splits, tmp_path / name, sample=12, seed=3).to_json() for name in "ab")
    assert first == again
    assert scored(two_splits, tmp_path, sample=12, seed=4).to_json() != first


def test_the_json_is_valid_and_has_the_agreed_fields(tmp_path, two_splits):
    scores = scored(two_splits, tmp_path)
    said = json.loads(json.dumps(scores.to_json(), allow_nan=False))
    assert {"encoder", "dim", "temperature", "lambda", "records", "seed", "sources", "ranking"} <= said.keys()
    assert said["ranking"] == scores.ranking
    fields = "interval_covers eci_sem_bias "
    fields += "name hybrid records negatives dropped eci_sem eci_sem_low eci_sem_high eci_sem_per_dim trace eci signal "
    fields += "margin eci_list eci_list_per_query margin_list rho eta coverage psi pair_loss inversion_rate "
    fields += "gradient_energy mnrl_proxy ambiguity buckets"
    for source in [*said["sources"], said["control"]]:
        assert set(fields.split()) <= source.keys()
    assert said["dim"] == 32
    low, score, high = (said["sources"][0][f"eci_sem{end}"] for end in ("_low", "", "_high"))
    assert low <= score <= high


def test_a_control_whose_weights_are_all_zero_is_no_ground_for_a_ratio(tmp_path):
    """Every text repeats the whole query, so every weight is 0."""
    collection = Collection.from_dicts(
        "zero", {f"d{i}": f"wind text{i}" for i in range(6)}, {"q": "wind", "r": "wind"},
        {"train": {"q": {"d0": 1}, "r": {"d1": 1}}},
    )  # fmt: skip
    world = World(collection, {"s": negatives([("q", "d2", None), ("r", "d3", None), ("r", "d4", None)])}, {})
    scores = scored(world, tmp_path)
    assert scores.sources[0].eci_sem == 0
    assert math.isnan(scores.sources[0].control_ratio)
    assert not scores.sources[0].easy
    json.dumps(scores.to_json(), allow_nan=False)


@pytest.mark.parametrize("seed", range(8))
def test_tiny_worlds_give_valid_json_without_warnings(tmp_path, seed):
    rng = np.random.default_rng(seed)
    collection = Collection.from_dicts(
        "tiny", {f"d{i}": f"{'wind' if i % 2 else 'bread'} text{i}" for i in range(6)}, {"q": "wind", "r": "bread"},
        {"train": {"q": {"d1": 1}, "r": {"d0": 1}}},
    )  # fmt: skip
    rows = [("q", f"d{rng.integers(2, 6)}", None)] + ([("r", f"d{rng.integers(2, 6)}", None)] if seed % 2 else [])
    world = World(collection, {"s": negatives(rows), "t": negatives([("r", "d4", None)])}, {})
    with np.errstate(all="raise", under="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        said = scored(world, tmp_path).to_json()
    assert json.loads(json.dumps(said, allow_nan=False))["sources"] == said["sources"]
    of = {source["name"]: source for source in said["sources"]}
    assert {name: source["records"] for name, source in of.items()} == {"s": len(rows), "t": 1, "s+t": 2}
    assert of["t"]["dropped"] == {"queries without a negative": 1}
    assert all(source["trace"] >= 0 and 0 <= source["inversion_rate"] <= 1 for source in of.values())


def test_a_document_that_is_in_no_source_is_never_read_as_a_vector(tmp_path):
    """A source without a record for some queries, a query whose only documents are its positives."""
    collection = Collection.from_dicts(
        "few", {"a": "wind", "b": "bread and wind"}, {"q": "wind?", "r": "bread?"},
        {"train": {"q": {"a": 1, "b": 1}, "r": {"b": 1}}},
    )  # fmt: skip
    source = negatives([("q", "a", None), ("q", "b", None), ("r", "a", None), ("r", "b", None)])
    found = scored(World(collection, {"s": source}, {}), tmp_path).sources[0]
    assert (found.records, found.negatives) == (1, 1)
    assert found.dropped == {"equal to a positive": 3, "queries without a negative": 1}


class Broken(HashingEncoder):
    def encode(self, texts: Sequence[str], kind: Kind) -> np.ndarray:
        found = super().encode(texts, kind)
        found[[index for index, text in enumerate(texts) if "keel" in text]] = np.nan
        return found


def test_vectors_that_are_nan_raise_and_name_the_text(tmp_path):
    with pytest.raises(FailureError, match=r"NaN or infinite \(first text: '.*keel.*'\)"):
        scored(random_world(1), tmp_path, Broken())


def test_an_encoder_whose_queries_have_another_dimension(tmp_path):
    class Lopsided(HashingEncoder):
        def encode(self, texts, kind):
            return super().encode(texts, kind)[:, : 32 if kind == "document" else 16]

    with pytest.raises(InputError, match=r"gave vectors of shape .*, 16.* texts; expected .*, 32"):
        scored(random_world(1), tmp_path, Lopsided(prompts={"query": "asked "}))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"temperature": 0.0}, "temperature 0; expected above 0"),
        ({"temperature": -1.0}, "temperature -1; expected above 0"),
        ({"temperature": math.nan}, "temperature nan"),
        ({"temperature": math.inf}, "temperature inf"),
        ({"regularization": 0.0}, "regularization 0; expected above 0"),
        ({"hybrids": 0}, "hybrids 0"),
        ({"sample": 0}, "sample 0"),
        ({"seed": -1}, "seed -1"),
    ],
)
def test_settings_out_of_range(bad, message):
    with pytest.raises(InputError, match=message):
        ScoreSettings(**bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("regularization", [1e-12, 1e-300])
def test_a_lambda_below_the_precision_of_the_vectors_is_an_error(tmp_path, regularization):
    """Float32 vectors of few negatives: the smallest eigenvalues of the information are rounding, of either sign."""
    with pytest.raises(InputError, match=r"lambda .* is below what the precision of the vectors resolves"):
        scored(random_world(3, queries=5), tmp_path, HashingEncoder(64), regularization=regularization)
    assert scored(random_world(3), tmp_path, HashingEncoder(64), regularization=1e-5).sources[0].eci_sem > 1


def test_unknown_names_list_the_known_ones_before_anything_is_encoded(tmp_path):
    encoder = HashingEncoder()
    for bad, message in (
        ({"tokenizer": "trigram"}, "Did you mean 'trigrams'"),
        ({"idf_corpus": "pool"}, r"collection, pooled, pooled\+queries, uniform"),
        ({"split": "tests"}, "train"),
    ):
        with pytest.raises(UnknownNameError, match=message):
            scored(random_world(0), tmp_path, encoder, **bad)
    assert encoder.encoded == 0
