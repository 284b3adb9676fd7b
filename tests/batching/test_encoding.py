"""What is looked up and embedded for an epoch's batches: each distinct text once, as training embeds it."""

from collections import Counter

import numpy as np
import pytest
import torch
from datasets import Dataset

import foils.batching.sampler as sampler_module
from foils.batching.sampler import BatchPlanner, PlannedBatchSampler
from foils.batching.vectors import DistinctTexts, EmbeddingCache
from foils.data import Collection
from foils.training.data import training_set
from foils.training.fit import train_model
from foils.training.settings import TrainSettings
from train_models import bert_model, made_up, table

QUERIES, NEGATIVES = 20, 10
COLLECTION = made_up()


def counting(seen: Counter[str]):
    """An encoder that counts the texts of each column."""

    def encode(texts, column):
        seen.update((column, text) for text in texts)
        return np.array([[len(text), sum(map(ord, text)), 1.0] for text in texts])

    return encode


@pytest.fixture
def looked_up(monkeypatch):
    """How many texts are looked up in the collection, by kind."""
    counts: Counter[str] = Counter()
    for kind in ("query_texts", "document_texts"):
        original = getattr(Collection, kind)

        def counted(self, rows, kind=kind, original=original):
            counts[kind] += len(rows)
            return original(self, rows)

        monkeypatch.setattr(Collection, kind, counted)
    return counts


def test_triplets_of_a_query_are_looked_up_and_embedded_once(looked_up):
    data = training_set(COLLECTION, table(COLLECTION, per_query=NEGATIVES))
    assert len(data) == QUERIES * NEGATIVES
    sampler = PlannedBatchSampler(data.dataset, 16, False, ["label"], planner=BatchPlanner("ngame"))
    seen: Counter[str] = Counter()
    sampler.attach(counting(seen))
    assert sampler.conflicts.rows == len(data)
    for epoch in range(2):
        looked_up.clear()
        sampler.set_epoch(epoch)
        assert sorted(np.concatenate(list(sampler)).tolist()) == list(range(len(data)))
        assert looked_up == {"query_texts": QUERIES, "document_texts": QUERIES}
        assert set(seen.values()) == {epoch + 1}
        assert Counter(column for column, _ in seen) == {"anchor": QUERIES, "positive": QUERIES}


def rows(count: int = 60) -> dict[str, list[str]]:
    return {"query": [f"q {i // 4}" for i in range(count)], "text": [f"d {i % 7}" for i in range(count)]}


def shouted(batch):
    """A transform that foils knows nothing about: the text depends on another column."""
    return {**batch, "query": [f"{q} {d}".upper() for q, d in zip(batch["query"], batch["text"], strict=True)]}


@pytest.mark.parametrize("kind", ["plain", "shuffled", "transformed"])
def test_every_row_has_the_vector_of_its_text(kind):
    dataset = Dataset.from_dict(rows())
    dataset = dataset.shuffle(seed=1) if kind == "shuffled" else dataset
    dataset = dataset.with_transform(shouted) if kind == "transformed" else dataset
    asked = np.array([59, 3, 3, 0, 17, 41])
    for column in ("query", "text"):
        seen: Counter[str] = Counter()
        vectors, at = DistinctTexts(dataset, column).embedded(asked, counting(seen))
        texts = dataset[asked.tolist()][column]
        expected = counting(Counter())(texts, column)
        np.testing.assert_array_equal(vectors[at], expected)
        assert seen == Counter({(column, text): 1 for text in texts})


@pytest.mark.parametrize("processes", [3, 50])
def test_processes_share_the_queries_out(processes, monkeypatch):
    """Each embeds some of the queries; together they embed every row, and no query's text twice but at the seams."""
    dataset, filled, asked = Dataset.from_dict(rows()), np.zeros(60, int), Counter()
    for rank in range(processes):
        monkeypatch.setattr(sampler_module, "rank_and_count", lambda rank=rank: (rank, processes))
        sampler = PlannedBatchSampler(dataset, 16, False, planner=BatchPlanner("ngame"))
        sampler.attach(counting(asked))
        cache = EmbeddingCache(60)
        sampler._embed(cache, np.arange(60))
        filled += cache.recent
    assert (filled == 1).all()
    of_queries = sum(count for (column, _), count in asked.items() if column == "query")
    assert of_queries <= 15 + processes - 1


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_model_embeds_in_the_precision_of_training_and_without_gradients(precision, tmp_path):
    data = training_set(COLLECTION, table(COLLECTION))
    model, seen, sizes = bert_model(tmp_path / "model"), set(), []

    def note(module, _, output):
        seen.add((module.training, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
        if not module.training:
            sizes.append(len(output["token_embeddings"]))

    model[0].register_forward_hook(note)
    planner = BatchPlanner("ngame")
    settings = TrainSettings(batch_size=16, max_length=32, trainer={"bf16": precision == "bfloat16"})
    train_model(model, data, tmp_path / "out", settings=settings, batches=planner)
    half = precision == "bfloat16"
    assert seen == {(False, False, half), (True, True, half)}
    assert sizes[:2] == [20, 20]  # queries and positives, by their tokens; the model card embeds examples later
