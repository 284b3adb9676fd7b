"""Sets of tokens of many texts, and what two texts share: the lexical side of scoring and of near-duplicates."""

from __future__ import annotations

import hashlib
import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from scipy import sparse

from foils.data.collection import Collection, Rows
from foils.data.tables import BYTES
from foils.runtime import memory
from foils.runtime.errors import InputError

Tokenizer = Callable[[str], Iterable[str]]


Float64s = npt.NDArray[np.float64]


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


def inverse_document_frequency(frequency: npt.ArrayLike, documents: int) -> Float64s:
    """Return idf(a) = ln((M + 1) / (df(a) + 1)) + 1 (ECI_sem, after eq. 7).

    Args:
        frequency: (vocabulary,) df, the number of texts of the corpus with the token.
        documents: M, the number of texts of the corpus.
    """
    idf: Float64s = np.log((documents + 1) / (np.asarray(frequency, np.float64) + 1)) + 1
    return idf


def near_pairs(sets: Sequence[Iterable[str]], *, threshold: float) -> list[tuple[int, int]]:
    """Return every pair of token sets that are nearly equal.

    Jaccard(x, y) = |x ∩ y| / |x ∪ y|. A pair at or over the threshold t shares at least ⌈t·|x|⌉ of x's tokens.
    With one order for all tokens, rarest first, it therefore shares one among the first |x| − ⌈t·|x|⌉ + 1 of x
    and one among those of y, and only pairs that meet in such a prefix are compared. The result is exact.

    Args:
        sets: n sets of tokens; a token that is repeated counts once. An empty set is near to none.
        threshold: in (0, 1]; 1 gives the equal sets alone.

    Returns:
        (i, j) with i < j, by j, then i.

    Raises:
        InputError: a threshold outside (0, 1].

    Source: prefix filtering as in Bayardo, Ma and Srikant, "Scaling up all pairs similarity search" (WWW 2007).
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold must be in (0, 1], not {threshold}")
    tokens = [frozenset(each) for each in sets]
    count = Counter(token for each in tokens for token in each)
    holders: defaultdict[str, list[int]] = defaultdict(list)
    pairs: list[tuple[int, int]] = []
    for j, mine in enumerate(tokens):
        ordered = sorted(mine, key=lambda token: (count[token], token))
        needed = math.ceil(threshold * len(mine) - 1e-9)
        prefix = ordered[: len(mine) - needed + 1]
        for i in sorted({i for token in prefix for i in holders[token]}):
            smaller, larger = sorted((len(tokens[i]), len(mine)))
            if smaller < threshold * larger - 1e-9:
                continue
            shared = len(tokens[i] & mine)
            if shared >= threshold * (smaller + larger - shared) - 1e-9:
                pairs.append((i, j))
        for token in prefix:
            holders[token].append(j)
    return pairs


AT_ONCE = 1 << 17  # bytes of texts whose tokens are hashed at once


OF_HASH = 48  # bits of a hash that stand in a key, under the number of its text


ODD = 0x9E3779B97F4A7C15


SET = 128  # bytes of a set that is kept, about, beside its hashes


Words = npt.NDArray[np.uint64]


class DocumentSets:
    """Compares the token sets of a collection's documents.

    Tokens are those of `foils.data.tokens.alphanumeric`, or the whole text where it has none; two that have the same
    hash of 48 bits count as one. Sets are kept, as far as the memory budget goes.

    Args:
        collection: of the documents.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._sets, self._held = dict[int, Words](), 0

    def __reduce__(self) -> tuple[type[DocumentSets], tuple[Collection]]:
        """Go to other processes without the sets."""
        return DocumentSets, (self._collection,)

    @cached_property
    def lengths(self) -> Rows:
        """(documents,) bytes of the texts, without their titles."""
        return np.asarray(pc.binary_length(self._collection.documents["text"]).to_numpy(), np.int64)

    def jaccard(self, ours: Rows, theirs: Rows, least: float = 0.0) -> Float64s:
        """Return |A ∩ B| / |A ∪ B| of the token sets of each pair of documents, (n,).

        Args:
            ours: (n,) rows of documents.
            theirs: (n,) row of the other document of each pair.
            least: where the sizes of the sets rule out this similarity, the bound is returned that they set.
        """
        similarity = np.empty(len(ours))
        for part in cut_by_bytes(self.lengths[ours] + self.lengths[theirs], memory.budget() // 16):
            rows, place = np.unique(np.concatenate([ours[part], theirs[part]]), return_inverse=True)
            known = self._sets_of(rows)
            sets = [known[row] for row in rows.tolist()]
            sizes = np.array([*map(len, sets)])
            flat = np.concatenate(sets).view(np.int64)
            shape = len(rows), 1 << OF_HASH
            matrix = sparse.csr_array((np.ones(len(flat), np.int8), flat, np.cumsum([0, *sizes])), shape=shape)
            one, other = np.split(place, 2)
            bound = np.minimum(sizes[one], sizes[other]) / np.maximum(sizes[one], sizes[other])
            near = np.flatnonzero(bound >= least)
            one, other = one[near], other[near]
            common = np.diff(matrix[one].multiply(matrix[other]).indptr)
            bound[near] = common / (sizes[one] + sizes[other] - common)
            similarity[part] = bound
        return similarity

    def _sets_of(self, rows: Rows) -> dict[int, Words]:
        if self._held > memory.budget() // 4:
            self._sets, self._held = {}, 0
        fresh = np.array([row for row in rows.tolist() if row not in self._sets], np.int64)
        for block, owners, hashes in self._hashed(fresh):
            ends = np.searchsorted(owners, np.arange(1, len(block)))
            self._sets.update(zip(block.tolist(), np.split(hashes, ends), strict=True))
            self._held += hashes.nbytes + SET * len(block)
        return self._sets

    def _hashed(self, rows: Rows) -> Iterator[tuple[Rows, Rows, Words]]:
        """Yield rows, some at a time, and what `token_hashes` says of their texts."""
        for part in cut_by_bytes(self.lengths[rows], min(BYTES, memory.budget() // 16)):
            at = part.start
            for count, owners, hashes in token_hashes(self._collection.document_texts(rows[part])):
                yield rows[at : at + count], owners, hashes
                at += count


def cut_by_bytes(sizes: npt.NDArray[np.integer], most: int) -> list[slice]:
    """Cut things into parts of about so many bytes, one thing at least.

    Args:
        sizes: (n,) bytes of each.
        most: of a part.
    """
    part = np.cumsum(sizes) // most
    ends = [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(part)]
    return [slice(begin, end) for begin, end in pairwise(ends) if begin < end]


def token_hashes(texts: Iterable[str]) -> Iterator[tuple[int, Rows, Words]]:
    """Yield, for the next n texts, n; which of these each distinct token is of, (m,) ascending; and its hash, (m,).

    Hashes have 48 bits, and ascend in each text.

    Args:
        texts: whose tokens are hashed.
    """
    block: list[bytes] = []
    size = 0
    for text in texts:
        block.append(_bytes_of(text))
        size += len(block[-1])
        if size >= AT_ONCE or len(block) == 1 << (64 - OF_HASH):
            yield len(block), *_distinct(block)
            block, size = [], 0
    if block:
        yield len(block), *_distinct(block)


def _bytes_of(text: str) -> bytes:
    """Bytes whose runs of letters and digits are a text's tokens; for a text without any, one run of no token's."""
    if text.isascii() and any(map(str.isalnum, text)):
        return text.encode()
    tokens = [] if text.isascii() else alphanumeric(text)
    return " ".join(tokens).encode() or b"\xff" + hashlib.blake2b(text.encode(), digest_size=8).hexdigest().encode()


def _distinct(texts: list[bytes]) -> tuple[Rows, Words]:
    """Hash the tokens of texts, sort them by their texts, and leave out the repeated ones."""
    data = b" ".join(texts) + b" "
    ends = np.cumsum([len(text) + 1 for text in texts])
    parts, begin = [], 0
    while begin < len(data):
        end = data.find(b" ", begin + AT_ONCE) + 1 or len(data)
        starts, hashes = _hashes(np.frombuffer(data[begin:end], np.uint8))
        owners = np.searchsorted(ends, starts + begin, side="right").astype(np.uint64)
        parts.append((owners << np.uint64(OF_HASH)) | (hashes >> np.uint64(64 - OF_HASH)))
        begin = end
    keys = np.sort(np.concatenate(parts))
    keys = keys[np.diff(keys, prepend=~keys[:1]) != 0]
    return (keys >> np.uint64(OF_HASH)).astype(np.int64), keys & np.uint64((1 << OF_HASH) - 1)


def _hashes(data: npt.NDArray[np.uint8]) -> tuple[Rows, Words]:
    """Return where the runs of letters and digits begin, and a 64-bit hash of each, folded to small letters.

    The hash is Σ value(byte) · ODD^place over the bytes of the token, divided by ODD^(its first place), modulo 2^64: a
    sum over places in the whole text that does not depend on where the token stands.
    """
    powers, inverse = _powers(len(data).bit_length())
    weighed = np.take(_values(), data)
    inside = weighed != 0
    starts = np.flatnonzero(inside & ~np.r_[False, inside[:-1]])
    if not len(starts):
        return starts, np.zeros(0, np.uint64)
    weighed *= powers[: len(data)]
    return starts, mixed(np.add.reduceat(weighed, starts) * inverse[starts])


def mixed(hashes: Words) -> Words:
    """Spread what differs over all bits (the finalizer of splitmix64)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        hashes = (hashes ^ (hashes >> np.uint64(shift))) * np.uint64(factor)
    return hashes ^ (hashes >> np.uint64(31))


@cache
def _values() -> Words:
    """(256,) a number for each byte of a token, one for both cases of a letter; 0 for what stands between tokens."""
    values = np.random.default_rng(0).integers(1, 2**63, 256, np.uint64)
    for code in range(128):
        values[code] = values[ord(chr(code).lower())] if chr(code).isalnum() else 0
    return values


@lru_cache(maxsize=2)
def _powers(bits: int) -> tuple[Words, Words]:
    """(2^bits,) powers of an odd number, and of its inverse, modulo 2^64."""
    powers, inverse = (
        np.multiply.accumulate(np.r_[np.uint64(1), np.full((1 << bits) - 1, each, np.uint64)])
        for each in (ODD, pow(ODD, -1, 1 << 64))
    )
    return powers, inverse
