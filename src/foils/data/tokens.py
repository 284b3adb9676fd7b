"""Sets of tokens of many texts, and what two texts share: the lexical side of scoring and of near-duplicates."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import numpy.typing as npt
from scipy import sparse

from foils.data.collection import Rows
from foils.runtime.errors import InputError

Tokenizer = Callable[[str], Iterable[str]]
Float64s = npt.NDArray[np.float64]
Int32s = npt.NDArray[np.int32]

_ASCII_WORD = re.compile(r"[^\W_]+")
UNSEEN = re.compile(
    "[\u00ad\u034f\u061c\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0100-\U000e01ef]"
)

_DOTTED = re.compile("i\u0307+")


def folded(text: str) -> str:
    """Return a text without differences of case and of encoding that a reader does not see (Unicode's NFKC_Casefold).

    Composed and decomposed letters are one, as are full-width letters, ligatures and presentation forms with their
    plain ones; soft hyphens, joiners, direction marks and variation selectors are left out. The folding is that of no
    language: İ and i are one (its dot is no mark of its own), ı and i are two, as I and i are one.
    """
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFD", text).casefold()
    compatible = unicodedata.normalize("NFKC", decomposed).casefold()
    return unicodedata.normalize("NFKC", _DOTTED.sub("i", UNSEEN.sub("", compatible)))


def alphanumeric(text: str) -> list[str]:
    """Return the runs of letters and digits, with the marks on them, of the folded text (ECI_sem, text after eq. 8).

    A script that writes no blanks between words, as Thai and Chinese, has one token for each run of them.
    """
    word = _ASCII_WORD if text.isascii() else _word()
    return word.findall(folded(text))


def alphanumeric_2(text: str) -> list[str]:
    """Return the tokens of `alphanumeric` of two characters and more."""
    return [token for token in alphanumeric(text) if len(token) > 1]


def whitespace(text: str) -> list[str]:
    """Return the words between white space of the folded text."""
    return folded(text).split()


def character_trigrams(text: str) -> list[str]:
    """Return every three neighbouring characters of the folded text, white space squeezed to one blank.

    A text of one or two characters is one token as it is; an empty one has none.
    """
    squeezed = " ".join(folded(text).split())
    return [squeezed[start : start + 3] for start in range(max(len(squeezed) - 2, bool(squeezed)))]


@cache
def _word() -> re.Pattern[str]:
    """A letter or digit, and what follows of letters, digits and marks (Unicode's categories M)."""
    codes = (*range(0x300, 0x20000), *range(0xE0100, 0xE01F0))  # no mark lies outside
    marks = "".join(char for char in map(chr, codes) if unicodedata.category(char).startswith("M"))
    return re.compile(rf"[^\W_]+(?:(?![\0-\u02ff])[{marks}]+[^\W_]*)*")


TOKENIZERS: dict[str, Tokenizer] = {
    "alphanumeric": alphanumeric,
    "alphanumeric-2": alphanumeric_2,
    "whitespace": whitespace,
    "trigrams": character_trigrams,
}


class Vocabulary:
    """Numbers tokens in the order in which they are first seen."""

    def __init__(self, tokenizer: Tokenizer = alphanumeric) -> None:
        self.tokenizer = tokenizer
        self._numbers: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._numbers)

    def sets(self, texts: Iterable[str], *, grow: bool = True) -> TokenSets:
        """Return the token set of each text; new tokens join the vocabulary, or are left out where it may not grow."""
        return self.sets_of(map(self.tokenizer, texts), grow=grow)

    def sets_of(self, token_lists: Iterable[Iterable[str]], *, grow: bool = True) -> TokenSets:
        """Return the set of each list of tokens, as `sets` does."""
        return self.sets_of_numbers([self.numbers(tokens, grow=grow) for tokens in token_lists])

    def numbers(self, tokens: Iterable[str], *, grow: bool = True) -> Int32s:
        """Return the numbers of the distinct tokens of a list, in no order."""
        number = self._numbers
        if grow:
            found = {number.setdefault(token, len(number)) for token in tokens}
        else:
            found = {number[token] for token in tokens if token in number}
        return np.fromiter(found, np.int32, len(found))

    def sets_of_numbers(self, lists: Sequence[Int32s]) -> TokenSets:
        """Return the sets with these numbers, each once in a list."""
        flat = np.concatenate(lists) if lists else np.zeros(0, np.int32)
        ends = np.cumsum([0, *map(len, lists)])
        shape = len(lists), len(self)
        return TokenSets(sparse.csr_array((np.ones(len(flat), np.float64), flat, ends), shape=shape), self)


@dataclass(frozen=True)
class TokenSets:
    """Token sets of n texts.

    Attributes:
        matrix: (n, vocabulary when made) sparse, 1 where the text has the token.
        vocabulary: that numbers the columns.
    """

    matrix: sparse.csr_array
    vocabulary: Vocabulary

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    def take(self, rows: Rows) -> TokenSets:
        """Return the sets of these texts, over the same vocabulary."""
        return TokenSets(self.matrix[rows], self.vocabulary)

    @property
    def sizes(self) -> Rows:
        """(n,) number of distinct tokens of each text."""
        sizes: Rows = np.diff(self.matrix.indptr).astype(np.int64)
        return sizes

    def document_frequency(self, rows: Rows | None = None) -> npt.NDArray[np.int64]:
        """Return how many of the texts (of these rows) have each token of the vocabulary."""
        matrix = self.matrix if rows is None else self.matrix[rows]
        return np.bincount(matrix.indices, minlength=len(self.vocabulary)).astype(np.int64)

    def shared_weight(self, rows: Rows, other: TokenSets, other_rows: Rows, weights: Float64s) -> Float64s:
        """Return Σ weights[a] over the tokens a that row i of these and row i of the others share.

        Args:
            rows: (m,) rows of these sets.
            other: sets over the same vocabulary.
            other_rows: (m,) rows of the other sets.
            weights: (vocabulary,) weight of each token.

        Returns:
            (m,) sums, 0 where nothing is shared.
        """
        if other.vocabulary is not self.vocabulary:
            raise InputError("token sets over two vocabularies cannot be compared; make both from one Vocabulary")
        ours, theirs = (_wide(sets.matrix, self.vocabulary) for sets in (self, other))
        out = np.empty(len(rows))
        for start in range(0, len(rows), 65_536):
            part = slice(start, start + 65_536)
            out[part] = ours[rows[part]].multiply(theirs[other_rows[part]]) @ weights
        return out

    def jaccard(self, rows: Rows, other: TokenSets, other_rows: Rows) -> Float64s:
        """Return |A ∩ B| / |A ∪ B| of paired rows, (m,); two empty sets are equal, 1."""
        common = self.shared_weight(rows, other, other_rows, np.ones(len(self.vocabulary)))
        union = self.sizes[rows] + other.sizes[other_rows] - common
        similarity: Float64s = np.where(union > 0, common / np.maximum(union, 1), 1.0)
        return similarity


def inverse_document_frequency(frequency: npt.ArrayLike, documents: int) -> Float64s:
    """Return idf(a) = ln((M + 1) / (df(a) + 1)) + 1 (ECI_sem, after eq. 7).

    Args:
        frequency: (vocabulary,) df, the number of texts of the corpus with the token.
        documents: M, the number of texts of the corpus.
    """
    idf: Float64s = np.log((documents + 1) / (np.asarray(frequency, np.float64) + 1)) + 1
    return idf


def _wide(matrix: sparse.csr_array, vocabulary: Vocabulary) -> sparse.csr_array:
    """The matrix with a column for every token the vocabulary has by now; shares the data."""
    if matrix.shape[1] == len(vocabulary):
        return matrix
    return sparse.csr_array((matrix.data, matrix.indices, matrix.indptr), shape=(matrix.shape[0], len(vocabulary)))
