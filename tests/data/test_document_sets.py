"""Hashed token sets and their sketches: against plain sets of tokens."""

from __future__ import annotations

import pickle

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


@pytest.mark.parametrize("words", [1, 3, 40, 1_000, 6_000])
@pytest.mark.parametrize("threshold", [0.5, 0.9, 1.0])
def test_sketches_overlook_nothing_and_rule_out_what_is_far(words: int, threshold: float) -> None:
    collection, sets = documents(40, words)
    ours, theirs = np.zeros(40, np.int64), np.arange(40)
    true = np.array([len(sets[0] & each) / len(sets[0] | each) for each in sets])
    compared = DocumentSets(collection)
    may = compared.may_be_near(ours, theirs, threshold)
    assert may[true >= threshold].all()
    if threshold == 0.9:
        assert not may[true < 0.75].any()
    assert compared.jaccard(ours, theirs) == pytest.approx(true, abs=1e-12)
    with memory.limited(memory.LEAST):
        assert (DocumentSets(collection).may_be_near(ours, theirs, threshold) == may).all()


def test_parts_have_about_so_many_bytes() -> None:
    assert cut_by_bytes(np.array([3, 3, 3, 20, 1]), 7) == [slice(0, 2), slice(2, 3), slice(3, 5)]
    assert cut_by_bytes(np.zeros(0, np.int64), 7) == []


def test_sets_that_came_through_shared_memory_are_compared_as_before() -> None:
    """Ray gives arrays that cannot be written to, as buffers of bytes are (3.1, 29)."""
    texts = {"1": "a b c", "2": "a b d", "3": "x y"}
    sets = DocumentSets(Collection.from_dicts("c", texts, {"q": "a"}, {}))
    rows = np.array([0, 1]), np.array([1, 2])
    expected = sets.may_be_near(*rows, 0.5)
    buffers: list[pickle.PickleBuffer] = []
    sent = pickle.dumps(sets, protocol=5, buffer_callback=buffers.append)
    arrived = pickle.loads(sent, buffers=[bytes(each) for each in buffers])
    assert np.array_equal(arrived.may_be_near(*rows, 0.5), expected)
