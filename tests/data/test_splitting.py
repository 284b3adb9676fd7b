"""Splits of queries: deterministic, of the wanted sizes, near-twins together."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foils.data.splitting import TWINS, split_queries, twin_pairs
from foils.data.tokens import alphanumeric

WORDS = st.sampled_from(["boat", "harbour", "tide", "rope", "sail", "mast", "keel", "anchor", "deck", "oar"])
QUERIES = st.lists(st.lists(WORDS, min_size=1, max_size=6).map(" ".join), min_size=1, max_size=40)


def similarity(a: str, b: str) -> float:
    x, y = set(alphanumeric(a)), set(alphanumeric(b))
    return len(x & y) / len(x | y)


@given(QUERIES, st.integers(0, 2**32 - 1))
def test_near_twins_of_a_document_stay_together(texts: list[str], seed: int) -> None:
    rows = np.arange(len(texts))
    documents = np.random.default_rng(seed).integers(0, 5, len(texts))
    splits = split_queries(texts, rows, documents)
    twins = {
        (i, j)
        for i in rows
        for j in rows[i + 1 :]
        if documents[i] == documents[j] and similarity(texts[i], texts[j]) >= TWINS - 1e-9
    }
    assert {tuple(pair) for pair in twin_pairs(texts, rows, documents).tolist()} == twins
    assert all(splits[i] == splits[j] for i, j in twins)
    same = {frozenset(alphanumeric(text)): split for text, split in zip(texts, splits, strict=True)}
    assert all(same[frozenset(alphanumeric(text))] == split for text, split in zip(texts, splits, strict=True))


def test_sizes() -> None:
    texts = [f"query number {i}" for i in range(1000)]
    splits = split_queries(texts, np.arange(1000), np.arange(1000))
    assert Counter(splits) == {"train": 800, "dev": 100, "test": 100}
    back = split_queries(texts[::-1], np.arange(1000), np.arange(1000))
    assert splits == back[::-1]


def test_a_group_larger_than_a_split_is_trained_on() -> None:
    texts = ["the same query"] * 50 + [f"other {i}" for i in range(50)]
    splits = split_queries(texts, np.arange(100), np.arange(100))
    assert set(splits[:50]) == {"train"}
    assert Counter(splits) == {"train": 50, "dev": 20, "test": 30}
