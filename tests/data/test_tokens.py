"""Token sets against plain Python sets."""

from __future__ import annotations

import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from foils.data.tokens import TOKENIZERS, alphanumeric, folded, inverse_document_frequency

words = st.lists(st.sampled_from(["a", "b", "cc", "dd", "eee"]), max_size=6).map(" ".join)
texts = st.lists(words, min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("tokenizer", "text", "expected"),
    [
        ("alphanumeric", "The BM25 score, x_1: 3.5!", ["the", "bm25", "score", "x", "1", "3", "5"]),
        ("alphanumeric", "STRASSE Stra\u00dfe \u4e2d\u6587", ["strasse", "strasse", "\u4e2d\u6587"]),
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
        ("ที่นี่ 3 คำ", ["ที่นี่", "3", "คํา"]),  # Thai: vowel signs and tones
        ("كِتَابٌ، قلم", ["كِتَابٌ", "قلم"]),  # Arabic: vowel signs
        ("ﻛﺘﺎﺏ می‌خواهم", ["كتاب", "میخواهم"]),  # presentation forms; a non-joiner
        ("İSTANBUL İstanbul istanbul", ["istanbul"] * 3),
        ("ısı ISI", ["ısı", "isi"]),
        ("ﬁne ＡＢＣ co\u00adoperate x²", ["fine", "abc", "cooperate", "x2"]),
        ("❤️ \u0301", []),  # marks without a letter
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
