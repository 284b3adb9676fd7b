"""Exports: every form, and back."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import foils
from foils.data.formats import FORMS, Exported
from foils.data.negatives import Negatives, negatives_table
from foils.data.sources import as_source
from foils.runtime.errors import UnknownNameError
from refusals import refused
from tiny_models import tiny_cross_encoder, tiny_encoder


@pytest.fixture
def table(small) -> Negatives:
    """q1 (positives d1, d3): d2, d10; q2 (d4): d5, a text of its own; d6 rejected; q4 is of another split."""
    queries, documents = ["q1", "q1", "q2", "q2", "q2", "q4"], ["d2", "d10", "d5", "llm:1", "d6", "d1"]
    table = negatives_table(
        pa.array(queries), pa.array(documents), "x", [0, 1, 0, 1, 2, 0], [3.5, 1.25, np.nan, 0.1, 0.0, 1.0]
    )
    own = pa.array([None, None, None, "Bread is bought.", None, None], pa.large_string())
    return Negatives(table.append_column("text", own)).reject(np.arange(6) == 4, "no")


def as_dataset(table, small, *, form, split):
    return Exported(small, table, form, split).dataset()


def text(small, identifier: str) -> str:
    return small.document_texts(small.document_rows([identifier]))[0]


def lines(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def expected(small, form: str) -> list[dict]:
    q1, q2 = small.query_texts([0, 1])
    d = {f"d{at}": text(small, f"d{at}") for at in range(1, 11)}
    own = "Bread is bought."
    lists = [(q1, ["d1", "d3"], [d["d2"], d["d10"]]), (q2, ["d4"], [d["d5"], own])]
    pairs = [(q, d[p], negatives) for q, positives, negatives in lists for p in positives]
    return {
        "triplets": [{"anchor": q, "positive": p, "negative": n} for q, p, ns in pairs for n in ns],
        "tuples": [{"anchor": q, "positive": p, "negative_1": ns[0], "negative_2": ns[1]} for q, p, ns in pairs],
        "labelled-pairs": [
            {"anchor": q, "document": text, "label": label}
            for q, ps, ns in lists
            for text, label in [*((d[p], 1) for p in ps), *((n, 0) for n in ns)]
        ],
        "labelled-lists": [
            {"anchor": q, "documents": [*(d[p] for p in ps), *ns], "labels": [1] * len(ps) + [0, 0]}
            for q, ps, ns in lists
        ],
    }[form]


SENTENCE_TRANSFORMERS = [name for name, form in FORMS.items() if form.tool.startswith("sentence-transformers")]


@pytest.mark.parametrize("form", SENTENCE_TRANSFORMERS)
def test_forms_by_hand_as_files_and_as_datasets(small, table, tmp_path, form):
    assert Exported(small, table, form, "train").write(tmp_path / "out.jsonl") == len(expected(small, form))
    assert lines(tmp_path / "out.jsonl") == expected(small, form)
    dataset = as_dataset(table, small, form=form, split="train")
    assert [dataset[at] for at in range(len(dataset))] == expected(small, form)
    assert dataset.column_names == list(expected(small, form)[0])
    assert pickle.loads(pickle.dumps(dataset))[0] == expected(small, form)[0]


LOSSES = [
    ("triplets", "", "MultipleNegativesRankingLoss"),
    ("labelled-pairs", "", "ContrastiveLoss"),
    ("tuples", "cosine", "DistillKLDivLoss"),
]


@pytest.fixture
def with_cosines(table) -> Negatives:
    table = table.with_columns({"cosine": np.linspace(0.5, 0.0, 6)})
    positives = pa.array(["q1", "q1", "q2"]), pa.array(["d1", "d3", "d4"])
    return table.with_rejected(*positives, values={"cosine": [0.9, 0.8, 0.7]})[0]


@pytest.mark.parametrize(("form", "scores", "loss"), LOSSES)
def test_sentence_transformers_trains_an_encoder_on_a_dataset(small, with_cosines, tmp_path, form, scores, loss):
    """Two steps of its own trainer, which reads the columns by their order, and knows labels by their names."""
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )
    from sentence_transformers.sentence_transformer import losses

    model = SentenceTransformer(str(tiny_encoder(tmp_path, small.document_texts(range(10)))), device="cpu")
    before = model[0].embedding.weight.detach().clone()
    dataset = Exported(small, with_cosines, form, "train", scores).dataset()
    settings = SentenceTransformerTrainingArguments(str(tmp_path / "out"), learning_rate=0.1, **TWO_STEPS)
    objective = getattr(losses, loss)(model)
    done = SentenceTransformerTrainer(model, settings, train_dataset=dataset, loss=objective).train()
    assert done.training_loss > 0
    words, changed = model.tokenizer.get_vocab(), (model[0].embedding.weight.detach() != before).any(dim=1)
    assert changed[words["boat"]]
    assert not changed[words["bees"]], "a word of no row"


def test_sentence_transformers_trains_a_cross_encoder_on_lists(small, with_cosines, tmp_path):
    from sentence_transformers.cross_encoder import CrossEncoderTrainer, CrossEncoderTrainingArguments
    from sentence_transformers.cross_encoder.losses import ListNetLoss

    from foils.encode.cross_encoders import cross_encoder_digest, load_cross_encoder

    model = load_cross_encoder(tiny_cross_encoder(tmp_path, small.document_texts(range(10))), device="cpu")
    before = cross_encoder_digest(model)
    dataset = Exported(small, with_cosines, "labelled-lists", "train", "cosine").dataset()
    settings = CrossEncoderTrainingArguments(str(tmp_path / "out"), learning_rate=0.1, **TWO_STEPS)
    done = CrossEncoderTrainer(model, settings, train_dataset=dataset, loss=ListNetLoss(model)).train()
    assert done.training_loss > 0
    assert cross_encoder_digest(model) != before


TWO_STEPS = {
    "max_steps": 2, "per_device_train_batch_size": 2, "use_cpu": True, "report_to": [], "save_strategy": "no",
    "disable_tqdm": True,
}  # fmt: skip


def test_a_result_gives_frames(small):
    mined = foils.mine(small, "bm25", top=2)
    assert mined.to_pandas()["doc_id"].tolist() == mined.table["doc_id"].to_pylist()


def test_short_tuples_are_left_out(small, table, tmp_path):
    shorter = table.reject(np.arange(6) == 3, "no")
    assert Exported(small, shorter, "tuples", "train").write(tmp_path / "a") == 2
    assert Exported(small, shorter, "tuples", "train", number=1).write(tmp_path / "a") == 3
    assert list(lines(tmp_path / "a")[0]) == ["anchor", "positive", "negative_1"]


def rows(negatives: Negatives, *columns: str) -> list[tuple]:
    table = negatives.kept()
    return list(zip(*(table[name].to_pylist() for name in columns), strict=True))


def test_tevatron_comes_back(small, table, tmp_path):
    path = tmp_path / "t.jsonl"
    assert Exported(small, table, "tevatron", "train").write(path) == 2
    back = as_source(str(path), small).negatives
    columns = ("query_id", "doc_id", "rank", "text")
    assert rows(back, *columns) == [row for row in rows(table, *columns) if row[0] != "q4"]
    assert np.array_equal(back.table["score"].to_numpy(), [3.5, 1.25, np.nan, 0.1], equal_nan=True)
    assert [p["docid"] for p in lines(path)[0]["positive_passages"]] == ["d1", "d3"]
    assert lines(path)[0]["positive_passages"][0]["title"] == "Sailing"


@pytest.mark.parametrize("form", [*SENTENCE_TRANSFORMERS, "flagembedding"])
def test_texts_come_back(small, table, tmp_path, form):
    path = tmp_path / "t.jsonl"
    Exported(small, table, form, "train").write(path)
    back = as_source(str(path), small).negatives
    found = [(q, d if d.startswith("d") else None, t) for q, d, t in rows(back, "query_id", "doc_id", "text")]
    assert found == [("q1", "d2", None), ("q1", "d10", None), ("q2", "d5", None), ("q2", None, "Bread is bought.")]
    assert back.table["rank"].to_pylist() == [0, 1, 0, 1]


def test_refusals(small, table):
    refused("flagembedding", Exported, small, table, "flag", "train", error=UnknownNameError)
    refused("triplets", as_dataset, table, small, error=UnknownNameError, form="triples", split="train")
    only = Negatives(table.table.slice(5, 1))
    for form in FORMS:
        refused("nothing to export", Exported, small, only, form, "train")
