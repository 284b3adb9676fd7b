"""Cross-encoder negatives over a pool: a tiny BERT with random weights, made on the spot."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import foils
from foils.data import Collection
from foils.encode import EncoderSettings, VectorStore, as_encoder
from foils.encode import vectors as vectors_module
from foils.encode.encoder import logits
from foils.encode.models import load_cross_encoder
from foils.mining import Miner, RandomRetriever
from foils.mining.retrievers import CrossEncoderRetriever
from foils.mining.rules import TextPairs
from foils.mining.scorers import CrossEncoderScorer
from foils.rating import BiEncoderJudge
from foils.runtime.errors import FailureError, InputError
from foils.training.data import training_set
from tiny_models import tiny_cross_encoder
from train_models import cross_encoder, made_up, static_model, table


@pytest.fixture(scope="module")
def folder(tmp_path_factory, small):
    texts = [*small.document_texts(range(10)), *small.query_texts(range(5))]
    return tiny_cross_encoder(tmp_path_factory.mktemp("tiny"), texts)


@pytest.fixture
def scorer(folder, tmp_path):
    return CrossEncoderScorer(load_cross_encoder(folder), VectorStore(tmp_path / "scores"))


def counting(scorer: CrossEncoderScorer, monkeypatch, fail_at: int | None = None) -> list[int]:
    """Note how many pairs each call of the model scores; let a call fail."""
    calls: list[int] = []
    model = scorer.model
    predict = model.predict

    def noted(pairs, **settings):
        if len(calls) == fail_at:
            raise KeyboardInterrupt
        calls.append(len(pairs))
        return predict(pairs, **settings)

    monkeypatch.setattr(model, "predict", noted)
    return calls


def plain(scorer: CrossEncoderScorer, small: Collection, query: int, documents: list[int]) -> np.ndarray:
    import torch

    texts = [(small.query_texts([query])[0], text) for text in small.document_texts(documents)]
    return scorer.model.predict(texts, activation_fn=torch.nn.Identity())


def test_negatives_are_the_pools_best_by_logit(small, scorer):
    everything = RandomRetriever(small)
    found = Miner(small, CrossEncoderRetriever(small, scorer, everything, depth=10), top=4).mined("train")
    for query, row in (("q1", 0), ("q2", 1), ("q3", 2)):
        rows = [r for r in found.table.to_pylist() if r["query_id"] == query]
        known = set(small.known_positives.of(row).tolist())
        others = [at for at in range(10) if at not in known]
        logits = plain(scorer, small, row, others)
        best = [f"d{others[at] + 1}" for at in np.argsort(-logits, kind="stable")[:4]]
        assert [r["doc_id"] for r in rows] == best
        assert [r["score"] for r in rows] == pytest.approx(sorted(logits.tolist(), reverse=True)[:4], abs=1e-5)
    assert found.table["source"][0].as_py() == "cross-encoder"


def test_only_the_pool_is_ranked_and_a_short_pool_is_told(small, scorer):
    found = Miner(small, CrossEncoderRetriever(small, scorer, RandomRetriever(small), depth=3), top=9).mined("train")
    assert (np.bincount(found.table["rank"].to_numpy()) <= 3).all()
    assert len(found) <= 9
    assert found.short == {"the pool (random, 3 deep) has no further document": 3}


def test_each_pair_is_scored_once_by_its_texts(small, scorer, monkeypatch):
    calls = counting(scorer, monkeypatch)
    rows = np.array([0, 0, 1, 0, 0]), np.array([1, 2, 1, 1, -1])
    pairs = TextPairs(small, *rows, np.zeros(5), pa.array(small.document_texts([1])))
    first = scorer.score(pairs)
    assert sum(calls) == 3
    assert first[0] == first[3] == first[4]
    assert (scorer.score(pairs) == first).all()
    assert sum(calls) == 3


def test_other_weights_have_other_scores(small, folder, tmp_path):
    import torch

    store = VectorStore(tmp_path)
    one, two = (CrossEncoderScorer(load_cross_encoder(folder), store) for _ in range(2))
    assert one.fingerprint == two.fingerprint
    with torch.no_grad():
        next(two.model.parameters()).add_(0.25)
    changed = CrossEncoderScorer(two.model, store)
    assert changed.fingerprint != one.fingerprint
    assert CrossEncoderScorer(load_cross_encoder(folder, max_length=8), store).fingerprint != one.fingerprint
    pairs = TextPairs(small, np.array([0]), np.array([3]), np.zeros(1))
    assert one.score(pairs) != changed.score(pairs)


@pytest.mark.parametrize("killed", [0, 3])
def test_a_killed_run_resumes_with_the_same_bytes(small, folder, tmp_path, monkeypatch, killed):
    monkeypatch.setattr(vectors_module, "BLOCK", 5)

    def mined(place: Path, out: Path, fail_at: int | None = None) -> int:
        scorer = CrossEncoderScorer(load_cross_encoder(folder), VectorStore(place))
        calls = counting(scorer, monkeypatch, fail_at)
        retriever = CrossEncoderRetriever(small, scorer, RandomRetriever(small), depth=10)
        Miner(small, retriever, top=3).mined("train").write(out)
        return sum(calls)

    whole = mined(tmp_path / "a", tmp_path / "a.parquet")
    with pytest.raises(KeyboardInterrupt):
        mined(tmp_path / "b", tmp_path / "b.parquet", killed)
    assert mined(tmp_path / "b", tmp_path / "b.parquet") == whole - 5 * killed
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_a_score_that_is_no_number_is_a_failure(small, scorer, monkeypatch):
    monkeypatch.setattr(scorer.model, "predict", lambda pairs, **_: np.full(len(pairs), np.nan))
    with pytest.raises(FailureError, match="NaN"):
        scorer.score(TextPairs(small, np.array([0]), np.array([0]), np.zeros(1)))


# Pairs scored by a teacher: which rows, which numbers, and each pair once


@pytest.fixture
def use(tmp_path):
    return {"vectors": str(tmp_path / "vectors")}


def test_kept_negatives_and_positives_are_scored_once(use, tmp_path, monkeypatch):
    collection, model = made_up(), cross_encoder(tmp_path / "cross")
    negatives = table(collection).reject(np.arange(80) == 3, "looks wrong")
    scored = foils.score_pairs(collection, negatives, teacher=model, **use)
    rows = scored.table.to_pylist()
    assert len(rows) == 80 + 20
    assert rows[:80] == [{**row, "teacher": rows[i]["teacher"]} for i, row in enumerate(negatives.table.to_pylist())]
    assert {row["doc_id"] == row["query_id"].replace("q", "d") for row in rows[80:]} == {True}
    assert {row["reason"] for row in rows[80:]} == {"labelled positive"}
    assert np.flatnonzero(np.isnan([row["teacher"] for row in rows])).tolist() == [3]
    text = dict(zip(*(collection.documents[c].to_pylist() for c in ("doc_id", "text")), strict=True))
    asked = dict(zip(*(collection.queries[c].to_pylist() for c in ("query_id", "text")), strict=True))
    for row in (rows[0], rows[50], rows[99]):
        wanted = logits(model, [(asked[row["query_id"]], text[row["doc_id"]])])[0]
        assert row["teacher"] == pytest.approx(float(wanted), abs=1e-5)
    assert len(scored.provenance["settings"]["teachers"][0]["fingerprint"]) > 30
    monkeypatch.setattr("foils.mining.scorers.logits", lambda *_, **__: pytest.fail("scored again"))
    again = foils.score_pairs(collection, negatives, teacher=model, **use)
    assert np.array_equal(again.table["teacher"].to_numpy(), scored.table["teacher"].to_numpy(), equal_nan=True)


def test_a_teacher_needs_no_labels(use):
    collection = made_up()
    bare = replace(collection, qrels={}, digest="bare")
    scored = foils.score_pairs(bare, table(collection), teacher=static_model(), **use)
    labelled = foils.score_pairs(collection, table(collection), teacher=static_model(), **use)
    assert len(scored) == 80
    assert scored.table["teacher"].to_pylist() == labelled.table["teacher"].to_pylist()[:80]
    rated = foils.rate(bare, scored, judge=BiEncoderJudge(as_encoder(static_model(), EncoderSettings())), degree=2)
    lists = training_set(bare, rated, form="lists")
    assert np.isfinite(lists.teacher_scores()).sum() == 80


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"teacher": "all-MiniLM-L6-v2"}, "expected one of bi-encoder:MODEL, cross-encoder:MODEL"),
        ({"teacher": "cross-encoder:"}, "expected one of bi-encoder:MODEL"),
        ({"teacher": "cross-encoder:m", "precision": "bfloat16"}, "without teacher bi-encoder:MODEL"),
    ],
)
def test_what_does_nothing_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        foils.score_pairs(made_up(), table(made_up()), **given)


def test_scores_are_not_overwritten(use):
    collection = made_up()
    scored = foils.score_pairs(collection, table(collection), teacher=static_model(), **use)
    with pytest.raises(InputError, match="has teacher already"):
        foils.score_pairs(collection, scored, teacher=static_model(), **use)
