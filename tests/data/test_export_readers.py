"""Exports read by the tools that they are for, where these are installed: their own readers, and the same scores.

None of these tools is needed elsewhere. To run these tests, install them without their dependencies:
`pip install --no-deps FlagEmbedding pylate`, and Tevatron from its repository.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import foils
from foils.data import Collection
from train_models import static_model

Write = Callable[..., Path]
pytestmark = pytest.mark.slow


@pytest.fixture
def write(small, tmp_path):
    """Write BM25's negatives in a form, with the positives' and the negatives' scores."""

    def written(form: str, **more: Any) -> Path:
        mined = foils.score_pairs(small, foils.mine(small, top=2), teacher=static_model())
        foils.export(small, mined, form=form, **more).write(tmp_path / f"{form}.jsonl")
        return tmp_path / f"{form}.jsonl"

    return written


def expected(small: Collection) -> list[dict[str, Any]]:
    mined = foils.score_pairs(small, foils.mine(small, top=2), teacher=static_model())
    return list(foils.export(small, mined, form="labelled-lists", scores="teacher").records())


def test_flagembedding(small, write, tmp_path):
    arguments = pytest.importorskip("FlagEmbedding.abc.finetune.embedder.AbsArguments")
    module = pytest.importorskip("FlagEmbedding.abc.finetune.embedder.AbsDataset")
    settings = arguments.AbsEmbedderDataArguments(
        train_data=[str(write("flagembedding", scores="teacher"))], knowledge_distillation=True, train_group_size=2,
        cache_path=str(tmp_path / "cache"),
    )  # fmt: skip
    data = module.AbsEmbedderTrainDataset(settings, None)
    for row, record in enumerate(expected(small)):
        query, passages, scores = data[row]
        of = dict(zip(record["documents"], record["scores"], strict=True))
        assert (query, [of[passage] for passage in passages]) == (record["anchor"], scores)


def test_pylate(small, write):
    """Its distillation takes labelled lists with scores as they are."""
    collator = pytest.importorskip("pylate.utils").ColBERTCollator
    read = pytest.importorskip("datasets").Dataset.from_json(str(write("labelled-lists", scores="teacher")))

    def tokenize(texts: list[str], *, is_query: bool, **_: Any) -> dict[str, Any]:
        return {"query" if is_query else "document": texts}

    for row, record in zip(read, expected(small), strict=True):
        batch = collator(tokenize)([row])
        assert (batch["anchor_query"], batch["documents_document"]) == ([record["anchor"]], record["documents"])
        assert batch["label"].tolist() == [pytest.approx(record["scores"])]


def test_tevatron(small, write, tmp_path):
    dataset = pytest.importorskip("tevatron.retriever.dataset")
    settings = SimpleNamespace(
        dataset_name="json", dataset_config=None, dataset_path=str(write("tevatron", scores="teacher")), num_proc=1,
        dataset_split="train", dataset_cache_dir=str(tmp_path / "cache"), corpus_name=None, train_group_size=2,
        query_prefix="", passage_prefix="", assets_path=None,
    )  # fmt: skip
    trainer = SimpleNamespace(state=SimpleNamespace(epoch=0), args=SimpleNamespace(seed=0))
    data = dataset.DistilTrainDataset(settings, trainer)
    for row, record in enumerate(expected(small)):
        (query, *_), passages, scores = data[row]
        of = dict(zip(record["documents"], record["scores"], strict=True))
        assert (query, [of[text.strip()] for text, *_ in passages]) == (record["anchor"], scores)
