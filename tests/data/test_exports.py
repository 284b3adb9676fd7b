"""Exports: every form by hand, with scores and without; read back as a source, and by the tools that they are for.

The tools' own readers are tried where they are installed; none of them is needed elsewhere. To run these tests, install
them without their dependencies: `pip install --no-deps FlagEmbedding pylate`, and Tevatron from its repository.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import foils as library
from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.data.sources import FORMS, Exported, as_source
from foils.runtime.errors import InputError, UnknownNameError
from rated_rows import with_positives
from refusals import refused
from tiny_models import tiny_cross_encoder, tiny_encoder
from train_models import static_model

OWN = "Bread is bought."
OF_OWN = {"title": "", "text": OWN}
COSINES = {("q1", "d2"): 0.5, ("q1", "d10"): 0.25, ("q2", "d5"): 0.125, ("q2", "llm:1"): -0.5}
OF_POSITIVES = {("q1", "d1"): 0.75, ("q1", "d3"): 0.625, ("q2", "d4"): 1.0}
RANKED = [3.5, 1.25, np.nan, 0.1]


@pytest.fixture
def scored() -> Negatives:
    """Cosines of four negatives, one with a text of its own, and of three positives.

    One row is rejected by a rule, one is of a query of another split.
    """
    ids = [pa.array(column) for column in zip(*COSINES, ("q2", "d6"), ("q4", "d1"), strict=True)]
    table = negatives_table(*ids, "x", [0, 1, 0, 1, 2, 0], [*RANKED, 0.0, 1.0])
    table = table.append_column("text", pa.array([None, None, None, OWN, None, None], pa.large_string()))
    table = table.append_column("cosine", pa.array([*COSINES.values(), 0.0, 0.0]))
    negatives = Negatives(table).reject(np.arange(6) == 4, "near")
    of = [pa.array(column) for column in zip(*OF_POSITIVES, strict=True)]
    return with_positives(negatives, *of, {"cosine": list(OF_POSITIVES.values())})


def text(small: Collection, identifier: str) -> str:
    return OWN if identifier == "llm:1" else small.document_texts(small.document_rows([identifier]))[0]


def by_hand(small: Collection, scores: bool = True) -> dict[str, list[dict[str, Any]]]:
    made: dict[str, list[dict[str, Any]]] = {form: [] for form in FORMS}
    stored = {row["doc_id"]: row for row in small.documents.to_pylist()}
    ranked = dict(zip(COSINES, RANKED, strict=True))

    def with_scores(record: dict[str, Any], **values: Any) -> dict[str, Any]:
        return {**record, **(values if scores else {})}

    for query_id, query in zip(("q1", "q2"), small.query_texts([0, 1]), strict=True):
        positives, negatives = (
            [(key, text(small, key), score) for (of, key), score in found.items() if of == query_id]
            for found in (OF_POSITIVES, COSINES)
        )
        sides, anchor = {"pos": positives, "neg": negatives}, {"anchor": query}
        for _, positive, score in positives:
            made["triplets"] += [
                with_scores({**anchor, "positive": positive, "negative": each}, scores=[score, own])
                for _, each, own in negatives
            ]
            named = {f"negative_{at}": each for at, (_, each, _) in enumerate(negatives, 1)}
            all_scores = [score, *(own for *_, own in negatives)]
            made["tuples"].append(with_scores({**anchor, "positive": positive, **named}, scores=all_scores))
        both, labels = [*positives, *negatives], [1] * len(positives) + [0] * len(negatives)
        made["labelled-pairs"] += [
            {**anchor, "document": each, **({"score": score} if scores else {"label": label})}
            for (_, each, score), label in zip(both, labels, strict=True)
        ]
        values = {"scores": [score for *_, score in both]} if scores else {"labels": labels}
        made["labelled-lists"].append({**anchor, "documents": [each for _, each, _ in both], **values})
        texts = {name: [each for _, each, _ in side] for name, side in sides.items()}
        values = {f"{name}_scores": [score for *_, score in side] for name, side in sides.items()}
        made["flagembedding"].append(with_scores({"query": query, **texts}, **values))
        passages: dict[str, list[dict[str, Any]]] = {"positive_passages": [], "negative_passages": []}
        for name, side in zip(passages, sides.values(), strict=True):
            for key, _, score in side:
                value = score if scores else ranked.get((query_id, key), np.nan)
                parts = {of: stored.get(key, OF_OWN)[of] for of in ("title", "text")}
                passages[name].append({"docid": key, **parts, **({} if np.isnan(value) else {"score": value})})
        made["tevatron"].append({"query_id": query_id, "query": query, **passages})
    return made


@pytest.mark.parametrize("scores", ["cosine", ""])
@pytest.mark.parametrize("form", FORMS)
def test_records_by_hand(small: Collection, scored: Negatives, tmp_path: Path, form: str, scores: str) -> None:
    exported, expected = Exported(small, scored, form, "train", scores), by_hand(small, bool(scores))[form]
    assert list(exported.records()) == expected
    assert exported.write(tmp_path / "out") == len(expected)
    assert [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()] == expected
    assert exported.to_json() == {
        "form": form, "scores": scores or None, "split": "train", "queries": 2, "positives": 3, "negatives": 4,
        "rows_of_other_queries": 1,
    }  # fmt: skip
    if form == "tevatron" and not scores:
        return  # fields that some records lack are null in a table
    dataset = exported.dataset()
    assert exported.to_arrow().to_pylist() == [dataset[at] for at in range(len(expected))] == expected
    assert dataset.column_names == list(expected[0])
    assert pickle.loads(pickle.dumps(dataset))[0] == expected[0]


SOURCES = [form for form in FORMS if not form.startswith("labelled")]  # which are read, too


@pytest.mark.parametrize("form", SOURCES)
def test_scores_come_back(small: Collection, scored: Negatives, tmp_path: Path, form: str) -> None:
    """Of the negatives, from a file as from a table."""
    exported = library.export(small, scored, form=form, scores="cosine")
    exported.write(tmp_path / "out")
    for given in (tmp_path / "out", *([] if form == "tevatron" else [exported.to_arrow()])):
        negatives = as_source(given, small).negatives
        rows = [(row["query_id"], text(small, row["doc_id"]) if row["text"] is None else row["text"], row["score"])
                for row in negatives.kept().to_pylist()]  # fmt: skip
        assert rows == [(query, text(small, document), score) for (query, document), score in COSINES.items()]


@pytest.mark.parametrize("form", SOURCES)
def test_negatives_come_back(small: Collection, scored: Negatives, tmp_path: Path, form: str) -> None:
    Exported(small, scored, form, "train").write(tmp_path / "t.jsonl")
    back = as_source(tmp_path / "t.jsonl", small).negatives.kept()
    ids = [each if each.startswith("d") else None for each in back["doc_id"].to_pylist()]
    assert (back["query_id"].to_pylist(), ids) == (["q1", "q1", "q2", "q2"], ["d2", "d10", "d5", None])
    assert (back["rank"].to_pylist(), back["text"].to_pylist()) == ([0, 1, 0, 1], [None, None, None, OWN])
    if form == "tevatron":
        assert back["doc_id"][3].as_py() == "llm:1"
        np.testing.assert_array_equal(back["score"], RANKED)


def test_a_result_gives_its_table_as_a_frame(small):
    mined = library.mine(small, "bm25", top=2)
    assert mined.to_pandas()["doc_id"].tolist() == mined.table["doc_id"].to_pylist()


def test_short_tuples_are_left_out(small: Collection, scored: Negatives, tmp_path: Path) -> None:
    shorter = scored.reject(np.arange(len(scored)) == 3, "no")
    assert Exported(small, shorter, "tuples", "train").write(tmp_path / "a") == 2
    assert Exported(small, shorter, "tuples", "train").to_json()["queries"] == 1


def test_what_cannot_be_exported(small: Collection, scored: Negatives) -> None:
    for wrong, scores, message in (
        (scored, "elo", "unknown column of scores 'elo'; expected one of: cosine, score"),
        (scored, "score", "3 positives and 1 negatives have no score; score both: score_pairs"),
        (Negatives(scored.kept()), "cosine", "3 positives and 0 negatives have no cosine"),
    ):
        with pytest.raises(InputError, match=message):
            library.export(small, wrong, scores=scores)
    refused("flagembedding", Exported, small, scored, "flag", "train", error=UnknownNameError)
    refused("nothing to export", Exported, small, Negatives(scored.table.slice(5, 1)), "tuples", "train")


# The tools that they are for

LOSSES = [
    ("triplets", "", "MultipleNegativesRankingLoss"),
    ("labelled-pairs", "", "ContrastiveLoss"),
    ("tuples", "cosine", "DistillKLDivLoss"),
]
TWO_STEPS = {
    "max_steps": 2, "per_device_train_batch_size": 2, "use_cpu": True, "report_to": [], "save_strategy": "no",
    "disable_tqdm": True,
}  # fmt: skip


@pytest.mark.parametrize(("form", "scores", "loss"), LOSSES)
def test_sentence_transformers_trains_an_encoder_on_a_dataset(small, scored, tmp_path, form, scores, loss):
    """Two steps of its own trainer, which reads the columns by their order, and knows labels by their names."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses

    model = SentenceTransformer(str(tiny_encoder(tmp_path, small.document_texts(range(10)))), device="cpu")
    before = model[0].embedding.weight.detach().clone()
    dataset = Exported(small, scored, form, "train", scores).dataset()
    settings = SentenceTransformerTrainingArguments(str(tmp_path / "out"), learning_rate=0.1, **TWO_STEPS)
    objective = getattr(losses, loss)(model)
    done = SentenceTransformerTrainer(model, settings, train_dataset=dataset, loss=objective).train()
    assert done.training_loss > 0
    words, changed = model.tokenizer.get_vocab(), (model[0].embedding.weight.detach() != before).any(dim=1)
    assert changed[words["boat"]]
    assert not changed[words["bees"]], "a word of no row"


def test_sentence_transformers_trains_a_cross_encoder_on_lists(small, scored, tmp_path):
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import ListNetLoss

    from foils.encode.encoder import cross_encoder_digest
    from foils.encode.models import load_cross_encoder

    model = load_cross_encoder(tiny_cross_encoder(tmp_path, small.document_texts(range(10))), device="cpu")
    before = cross_encoder_digest(model)
    dataset = Exported(small, scored, "labelled-lists", "train", "cosine").dataset()
    settings = CrossEncoderTrainingArguments(str(tmp_path / "out"), learning_rate=0.1, **TWO_STEPS)
    done = CrossEncoderTrainer(model, settings, train_dataset=dataset, loss=ListNetLoss(model)).train()
    assert done.training_loss > 0
    assert cross_encoder_digest(model) != before


@pytest.fixture
def write(small, tmp_path) -> Callable[[str], Path]:
    """Write BM25's negatives in a form, with the positives' and the negatives' scores."""

    def written(form: str) -> Path:
        scored_by(small, form).write(tmp_path / f"{form}.jsonl")
        return tmp_path / f"{form}.jsonl"

    return written


def scored_by(small: Collection, form: str = "labelled-lists") -> Exported:
    mined = library.score_pairs(small, library.mine(small, top=2), teacher=static_model())
    return library.export(small, mined, form=form, scores="teacher")


@pytest.mark.slow
def test_flagembedding(small, write, tmp_path):
    arguments = pytest.importorskip("FlagEmbedding.abc.finetune.embedder.AbsArguments")
    module = pytest.importorskip("FlagEmbedding.abc.finetune.embedder.AbsDataset")
    settings = arguments.AbsEmbedderDataArguments(
        train_data=[str(write("flagembedding"))], knowledge_distillation=True, train_group_size=2,
        cache_path=str(tmp_path / "cache"),
    )  # fmt: skip
    data = module.AbsEmbedderTrainDataset(settings, None)
    for row, record in enumerate(scored_by(small).records()):
        query, passages, scores = data[row]
        of = dict(zip(record["documents"], record["scores"], strict=True))
        assert (query, [of[passage] for passage in passages]) == (record["anchor"], scores)


@pytest.mark.slow
def test_pylate(small, write):
    """Its distillation takes labelled lists with scores as they are."""
    collator = pytest.importorskip("pylate.utils").ColBERTCollator
    read = pytest.importorskip("datasets").Dataset.from_json(str(write("labelled-lists")))

    def tokenize(texts: list[str], *, is_query: bool, **_: Any) -> dict[str, Any]:
        return {"query" if is_query else "document": texts}

    for row, record in zip(read, scored_by(small).records(), strict=True):
        batch = collator(tokenize)([row])
        assert (batch["anchor_query"], batch["documents_document"]) == ([record["anchor"]], record["documents"])
        assert batch["label"].tolist() == [pytest.approx(record["scores"])]


@pytest.mark.slow
def test_tevatron(small, write, tmp_path):
    dataset = pytest.importorskip("tevatron.retriever.dataset")
    settings = SimpleNamespace(
        dataset_name="json", dataset_config=None, dataset_path=str(write("tevatron")), num_proc=1,
        dataset_split="train", dataset_cache_dir=str(tmp_path / "cache"), corpus_name=None, train_group_size=2,
        query_prefix="", passage_prefix="", assets_path=None,
    )  # fmt: skip
    trainer = SimpleNamespace(state=SimpleNamespace(epoch=0), args=SimpleNamespace(seed=0))
    data = dataset.DistilTrainDataset(settings, trainer)
    for row, record in enumerate(scored_by(small).records()):
        (query, *_), passages, scores = data[row]
        of = dict(zip(record["documents"], record["scores"], strict=True))
        assert (query, [of[text.strip()] for text, *_ in passages]) == (record["anchor"], scores)
