"""Hashed token sets: against plain sets of tokens."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foils.data import Collection, tokens
from foils.data.tokens import DocumentSets, alphanumeric, cut_by_bytes, token_hashes
from foils.runtime import memory

LETTERS = "aAbBzZ09 _-.!\n\u00e9\u00c9\u0130\u2103\u4e2d\u0301\U0001f600"
TEXTS = st.lists(st.text(LETTERS, max_size=30), min_size=1, max_size=8)


def hashes_of(texts: list[str]) -> list[frozenset[int]]:
    found: list[frozenset[int]] = []
    for count, owners, hashes in token_hashes(texts):
        assert (np.diff(owners) >= 0).all()
        found += [frozenset(hashes[owners == at].tolist()) for at in range(count)]
    return found


def tokens_of(text: str) -> set[str]:
    return set(alphanumeric(text) or [text])


@given(TEXTS)
@example(["", " ", "?", "\u2103", "x" * 300, "a b a", "B A", "_a_b_"])
def test_hashes_are_those_of_the_tokens(texts: list[str]) -> None:
    number: dict[str, int] = {}
    for text, hashes in zip(texts, hashes_of(texts), strict=True):
        assert len(hashes) == len(tokens_of(text))
        for token in tokens_of(text):
            [own] = hashes_of([token])[0]
            assert own in hashes
            assert number.setdefault(token, own) == own
    assert len(set(number.values())) == len(number)


@pytest.mark.parametrize("at_once", [1, 16, 1 << 17])
def test_hashes_do_not_depend_on_what_is_hashed_together(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{n}" for n in rng.integers(0, 50, size)) for size in (0, 1, 30, 200, 3)]
    apart = [hashes_of([text])[0] for text in texts]
    monkeypatch.setattr(tokens, "AT_ONCE", at_once)
    assert hashes_of(texts) == apart


def documents(size: int, words: int) -> tuple[Collection, list[set[str]]]:
    """Documents of `words` words, each of which keeps more of the first's than the one before."""
    rng = np.random.default_rng(size)
    first = [f"w{n}" for n in range(words)]
    texts = {"d0": " ".join(first)}
    for at in range(1, size):
        changed = rng.random(words) < 0.4 * (1 - at / size)
        texts[f"d{at}"] = " ".join(f"{at}x{n}" if new else first[n] for n, new in enumerate(changed))
    collection = Collection.from_dicts("alike", texts, {"q": "anything"}, {"train": {"q": {"d0": 1}}})
    return collection, [set(text.split()) for text in texts.values()]


@pytest.mark.parametrize("words", [1, 40, 6_000])
def test_similarities_are_those_of_plain_sets_unless_the_sizes_rule_them_out(words):
    collection, sets = documents(40, words)
    ours, theirs = np.zeros(40, np.int64), np.arange(40)
    true = np.array([len(sets[0] & each) / len(sets[0] | each) for each in sets])
    assert DocumentSets(collection).jaccard(ours, theirs) == pytest.approx(true, abs=1e-12)
    with memory.limited(memory.LEAST):
        found = DocumentSets(collection).jaccard(ours, theirs, 0.9)
    assert found[true >= 0.9] == pytest.approx(true[true >= 0.9], abs=1e-12)
    assert (found[true < 0.9] < 0.9).all()


def test_parts_have_about_so_many_bytes() -> None:
    assert cut_by_bytes(np.array([3, 3, 3, 20, 1]), 7) == [slice(0, 2), slice(2, 3), slice(3, 5)]
    assert cut_by_bytes(np.zeros(0, np.int64), 7) == []
