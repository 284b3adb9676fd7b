"""Token sets against plain Python sets."""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest
import xxhash
from hypothesis import example, given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from foils.data import Collection
from foils.data.tokens import (
    TOKENIZERS,
    DocumentSets,
    alphanumeric,
    cut_by_bytes,
    folded,
    hashes,
    inverse_document_frequency,
    near_pairs,
)
from foils.runtime import memory

words = st.lists(st.sampled_from(["a", "b", "cc", "dd", "eee"]), max_size=6).map(" ".join)
texts = st.lists(words, min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("tokenizer", "text", "expected"),
    [
        ("alphanumeric", "The BM25 score, x_1: 3.5!", ["the", "bm25", "score", "x", "1", "3", "5"]),
        ("alphanumeric", "STRASSE Stra\u00dfe \u4e2d\u6587", ["strasse", "strasse", "\u4e2d\u6587"]),
        ("alphanumeric", "\u7dad\u751f\u7d20C \u8c93", ["\u7dad\u751f", "\u751f\u7d20", "c", "\u8c93"]),
        ("alphanumeric", " -_\n", []),
        ("alphanumeric-2", "The BM25 score, x_1: 3.5!", ["the", "bm25", "score"]),
        ("whitespace", " The BM25\tscore, x_1:\n3.5! ", ["the", "bm25", "score,", "x_1:", "3.5!"]),
        ("trigrams", "A  bc\td", ["a b", " bc", "bc ", "c d"]),
        ("trigrams", "  ", []),
    ],
)
def test_tokenizers(tokenizer: str, text: str, expected: list[str]) -> None:
    assert list(TOKENIZERS[tokenizer](text)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("किताब पढ़ना, हिन्दी!", ["किताब", "पढ़ना", "हिन्दी"]),  # Devanagari: vowel signs, nukta, virama
        ("ที่นี่ 3 คำ", ["ที่นี่", "3", "คํา"]),  # Thai: bigrams of letters with vowel signs and tones
        ("กินข้าว", ["กิน", "นข้", "ข้า", "าว"]),
        ("كِتَابٌ، قلم", ["كِتَابٌ", "قلم"]),  # Arabic: vowel signs
        ("ﻛﺘﺎﺏ می‌خواهم", ["كتاب", "میخواهم"]),  # presentation forms; a non-joiner
        ("İSTANBUL İstanbul istanbul", ["istanbul"] * 3),
        ("ısı ISI", ["ısı", "isi"]),
        ("ﬁne ＡＢＣ co\u00adoperate x²", ["fine", "abc", "cooperate", "x2"]),
        ("❤️ \u0301", ["❤"]),  # marks without a letter
    ],
)
def test_letters_keep_their_marks(text: str, expected: list[str]) -> None:
    expected = [unicodedata.normalize("NFKC", token) for token in expected]
    assert alphanumeric(text) == expected
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        assert alphanumeric(unicodedata.normalize(form, text)) == expected


def test_every_mark_stays_with_its_letter() -> None:
    marks = [mark for mark in map(chr, range(sys.maxunicode + 1)) if unicodedata.category(mark)[0] == "M"]
    assert [mark for mark in marks if len(alphanumeric(f"x{mark}y \u00e9")) != 2] == []


@given(st.text() | st.text("aIiıİ\u0307\u0301\u0323\u0345\u200dßſΣς \u00adＫ"))
def test_folding(text: str) -> None:
    assert folded(folded(text)) == folded(text)
    for form in ("NFC", "NFD", "NFKC", "NFKD"):
        for tokenizer in TOKENIZERS.values():
            assert list(tokenizer(unicodedata.normalize(form, text))) == list(tokenizer(text))


@given(texts)
def test_idf_equals_scikit_learn(corpus: list[str]) -> None:
    count = Counter(token for text in corpus for token in set(alphanumeric(text)))
    if not count:
        return
    theirs = TfidfVectorizer(token_pattern=r"[^\W_]+", smooth_idf=True).fit(corpus)  # ln((1 + n) / (1 + df)) + 1
    idf = inverse_document_frequency([count[token] for token in sorted(count)], len(corpus))
    np.testing.assert_allclose(idf, theirs.idf_[[theirs.vocabulary_[token] for token in sorted(count)]], rtol=1e-14)


LETTERS = "aAbBzZ09 _-.!\n\u00e9\u00c9\u0130\u2103\u4e2d\u0301\U0001f600"


@given(st.lists(st.text(LETTERS, min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=8))
@example(["?", "\u2103", "x" * 300, "a b a", "B A", "_a_b_"])
def test_similarities_are_those_of_plain_sets_of_any_text(texts: list[str]) -> None:
    sets = [set(alphanumeric(text.strip()) or [text.strip()]) for text in texts]
    made = {str(at): text for at, text in enumerate(texts)}
    ours, theirs = np.indices((len(texts), len(texts))).reshape(2, -1)
    found = DocumentSets(Collection.from_dicts("any", made, {"q": "a"}, {})).jaccard(ours, theirs)
    true = [len(sets[i] & sets[j]) / len(sets[i] | sets[j]) for i, j in zip(ours, theirs, strict=True)]
    assert found == pytest.approx(true, abs=1e-12)


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


def test_hashes_of_tokens_are_the_same_in_every_process() -> None:
    """Python's own would not be: by them two texts might be near-duplicates in one run and not in another."""
    expected = sorted(xxhash.xxh3_64_intdigest(token) >> 16 for token in (b"ab", b"c1"))
    assert hashes("Ab, ab; C1").tolist() == hashes("ab\u2003c1").tolist() == expected


def test_parts_have_about_so_many_bytes() -> None:
    assert cut_by_bytes(np.array([3, 3, 3, 20, 1]), 7) == [slice(0, 2), slice(2, 3), slice(3, 5)]
    assert cut_by_bytes(np.zeros(0, np.int64), 7) == []


token_sets = st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=8), max_size=14)


def jaccard(x: frozenset[str], y: frozenset[str]) -> float:
    return len(x & y) / len(x | y) if x | y else 0.0


@given(token_sets, st.sampled_from([0.01, 0.2, 1 / 3, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.875, 1.0]))
def test_equals_comparing_every_pair(sets: list[frozenset[str]], threshold: float) -> None:
    plain = [(i, j) for j in range(len(sets)) for i in range(j) if jaccard(sets[i], sets[j]) >= threshold - 1e-12]
    assert near_pairs(sets, threshold=threshold) == plain


def test_by_hand() -> None:
    sets = [["a", "b", "c", "d"], ["a", "b", "c"], ["x"], [], ["d", "c", "b", "a", "a"], []]
    assert near_pairs(sets, threshold=0.75) == [(0, 1), (0, 4), (1, 4)]
    assert near_pairs(sets, threshold=0.76) == [(0, 4)]
    assert near_pairs(sets, threshold=1) == [(0, 4)]
    assert near_pairs([], threshold=0.5) == []
