"""Near-duplicates of positives: against plain sets, and whatever is remembered of texts."""

from __future__ import annotations

import numpy as np
import pytest

from foils.data import Collection, tokens
from foils.mining.look_alikes import LookAlikes
from foils.runtime import memory


@pytest.fixture
def worded():
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(12)])
    texts = {f"d{i}": " ".join(rng.choice(words, rng.integers(1, 7))) for i in range(60)}
    texts |= {"same": f"{texts['d0'].upper()}!", "turned": " ".join(reversed(texts["d1"].split())), "bare": "?"}
    queries = {f"q{i}": "anything" for i in range(8)}
    return Collection.from_dicts("worded", texts, queries, {"train": {q: {f"d{q[1:]}": 1} for q in queries}})


@pytest.mark.parametrize("kept", [tokens.SET, 1 << 40])  # remembers all sets, or forgets before each call
def test_marks_are_those_of_plain_sets(worded, kept, monkeypatch):
    monkeypatch.setattr(tokens, "SET", kept)
    looks, size = LookAlikes(worded, 0.6), len(worded.documents)
    texts = [text.lower().replace("!", "").split() for text in worded.document_texts(np.arange(size))]
    documents = np.arange(size)
    for query in (*range(8), 0, 3):
        equal, near = looks.marks(np.full(size, query), documents)
        own = texts[query]
        jaccard = np.array([len({*own} & {*text}) / len({*own} | {*text}) for text in texts])
        assert equal.tolist() == [text == own for text in texts]
        assert near.tolist() == ((jaccard >= 0.6) & ~equal).tolist()
    assert looks.marks(np.array([0, 1]), np.array([60, 61]))[0].tolist() == [True, texts[1] == texts[61]]


def test_parts_that_fit_into_the_memory_give_the_marks_of_all_at_once():
    rng = np.random.default_rng(0)
    words = np.array([f"w{i}" for i in range(3_000)])
    texts = {f"d{i}": " ".join(rng.choice(words, 5_000)) for i in range(12)}  # 27 kB each
    texts |= {f"again{i}": texts[f"d{i}"] for i in range(3)}
    judged = {f"q{i}": {f"d{i}": 1, f"d{i + 3}": 1} for i in range(3)}
    collection = Collection.from_dicts("long", texts, dict.fromkeys(judged, "anything"), {"train": judged})
    queries, documents = np.repeat(np.arange(3), 15), np.tile(np.arange(15), 3)
    whole = LookAlikes(collection, 0.5)
    with memory.limited(2**20):
        cut = LookAlikes(collection, 0.5)
        assert len(cut._parts(documents, documents)) > 10
        in_parts = cut.marks(queries, documents)
    assert len(whole._parts(documents, documents)) == 1
    for one, other in zip(in_parts, whole.marks(queries, documents), strict=True):
        assert (one == other).all()
    assert in_parts[0].reshape(3, 15)[:, 12:].tolist() == np.eye(3, dtype=bool).tolist()
    assert in_parts[1].any()
