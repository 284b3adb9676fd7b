"""Token sets against plain Python sets."""

from __future__ import annotations

import sys
import unicodedata

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from foils.data.tokens import TOKENIZERS, Vocabulary, alphanumeric, folded, inverse_document_frequency
from foils.runtime.errors import InputError

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


def test_by_hand() -> None:
    vocabulary = Vocabulary()
    sets = vocabulary.sets(["b a a", "", "c b"])
    assert len(vocabulary) == 3
    assert sets.matrix.toarray().tolist() == [[1, 1, 0], [0, 0, 0], [1, 0, 1]]  # b, a, c
    assert sets.document_frequency().tolist() == [2, 1, 1]
    assert sets.document_frequency(np.array([0, 1])).tolist() == [1, 1, 0]
    shared = sets.shared_weight(np.array([0, 0, 1, 0]), sets, np.array([0, 2, 0, 1]), np.array([0.5, 10.0, 100.0]))
    assert shared.tolist() == [10.5, 0.5, 0, 0]


@given(texts)
def test_idf_equals_scikit_learn(corpus: list[str]) -> None:
    sets = Vocabulary().sets(corpus)
    if not len(sets.vocabulary):
        return
    theirs = TfidfVectorizer(token_pattern=r"[^\W_]+", smooth_idf=True).fit(corpus)  # ln((1 + n) / (1 + df)) + 1
    idf = inverse_document_frequency(sets.document_frequency(), len(corpus))
    order = [theirs.vocabulary_[token] for token in sets.vocabulary._numbers]
    np.testing.assert_allclose(idf, theirs.idf_[order], rtol=1e-14)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
@given(left=texts, right=texts, data=st.data())
def test_equals_python_sets(tokenizer: str, left: list[str], right: list[str], data: st.DataObject) -> None:
    tokenize = TOKENIZERS[tokenizer]
    vocabulary = Vocabulary(tokenize)
    ours, theirs = vocabulary.sets(left), vocabulary.sets(right)  # the first was made before the vocabulary was whole
    assert len(vocabulary) == len({token for text in [*left, *right] for token in tokenize(text)})
    pairs = data.draw(st.lists(st.tuples(st.integers(0, len(left) - 1), st.integers(0, len(right) - 1)), max_size=5))
    rows, other_rows = (np.array([pair[side] for pair in pairs], np.int64) for side in (0, 1))
    weights = np.array(
        data.draw(st.lists(st.integers(0, 9), min_size=len(vocabulary), max_size=len(vocabulary))), float
    )
    number = {token: weights[at] for token, at in vocabulary._numbers.items()}
    plain = [(set(tokenize(left[i])), set(tokenize(right[j]))) for i, j in pairs]
    shared = ours.shared_weight(rows, theirs, other_rows, weights)
    assert shared.tolist() == [sum(number[token] for token in a & b) for a, b in plain]
    counts = ours.document_frequency()
    assert counts.tolist() == [sum(token in set(tokenize(text)) for text in left) for token in vocabulary._numbers]


def test_a_vocabulary_that_may_not_grow() -> None:
    vocabulary = Vocabulary()
    vocabulary.sets(["a b"])
    asked = vocabulary.sets(["b c", "c"], grow=False)
    assert len(vocabulary) == 2
    assert asked.matrix.toarray().tolist() == [[0, 1], [0, 0]]
    assert vocabulary.sets(["b c"]).matrix.sum() == 2


def test_two_vocabularies_cannot_be_compared() -> None:
    row = np.zeros(1, np.int64)
    with pytest.raises(InputError, match="over two vocabularies"):
        Vocabulary().sets(["a"]).shared_weight(row, Vocabulary().sets(["a"]), row, np.ones(1))


def test_blocks_change_nothing() -> None:
    rng = np.random.default_rng(0)
    sets = Vocabulary().sets([" ".join(map(str, rng.integers(0, 40, 12))) for _ in range(50)])
    rows, others = rng.integers(0, 50, (2, 70_000))
    weights, at = rng.random(len(sets.vocabulary)), np.arange(0, 70_000, 9_999)
    parts = [sets.shared_weight(rows[i : i + 9_999], sets, others[i : i + 9_999], weights) for i in at]
    assert len(rows) > 65_536  # the block that the module itself takes
    np.testing.assert_array_equal(sets.shared_weight(rows, sets, others, weights), np.concatenate(parts))
