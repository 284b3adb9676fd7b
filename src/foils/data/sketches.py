"""Hashed sets of tokens of documents, and sketches of them that tell most pairs apart without a look at the sets.

A token's hash names one of `BITS` bits; a bit of the sketch is set where an odd number of a text's distinct tokens have
it. Bits in which two sketches differ are therefore at most |A Δ B|, and Jaccard(A, B) ≥ t means that
|A Δ B| ≤ (|A| + |B|) · (1 − t) / (1 + t). Two texts whose sketches differ in more bits are not near: nothing is
overlooked. Unrelated texts differ in about half of the bits.

Source: odd sketches, Mitzenmacher, Pagh and Pham, "Efficient estimation for high similarities using odd sketches"
(WWW 2014).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from foils.data.chunks import BYTES
from foils.data.collection import Collection, Rows
from foils.data.tokens import Float64s, alphanumeric
from foils.runtime import memory

BITS = 2_048  # unrelated texts of up to 9,000 distinct tokens each are told apart at t = 0.9
WORDS = BITS // 64
AT_ONCE = 1 << 17  # bytes of texts whose tokens are hashed at once
PAIRS = 1 << 14  # compared at once
OF_HASH = 48  # bits of a hash that stand in a key, under the number of its text
ODD = 0x9E3779B97F4A7C15
SET = 128  # bytes of a set that is kept, about, beside its hashes

Words = npt.NDArray[np.uint64]


class DocumentSets:
    """Compares the token sets of a collection's documents.

    Tokens are those of `foils.data.tokens.alphanumeric`, or the whole text where it has none; two that have the same
    hash of 48 bits count as one. Sketches and sets are kept, as far as the memory budget goes.

    Args:
        collection: of the documents.
    """

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self._forget_sketches()
        self._forget_sets()

    def _forget_sketches(self) -> None:
        """Start with none: pages of zeros take no memory until they are written to."""
        self._words = np.zeros((len(self._collection.documents), WORDS), np.uint64)
        self._sizes = np.full(len(self._words), -1, np.int64)

    def _forget_sets(self) -> None:
        self._sets, self._held = dict[int, Words](), 0

    @cached_property
    def lengths(self) -> Rows:
        """(documents,) bytes of the texts, without their titles."""
        return np.asarray(pc.binary_length(self._collection.documents["text"]).to_numpy(), np.int64)

    def may_be_near(self, ours: Rows, theirs: Rows, threshold: float) -> npt.NDArray[np.bool_]:
        """Tell for each pair of documents whether their Jaccard similarity may reach the threshold, (n,).

        Args:
            ours: (n,) rows of documents.
            theirs: (n,) row of the other document of each pair.
            threshold: in (0, 1].
        """
        self._sketch(np.unique(np.concatenate([ours, theirs])))
        near = np.zeros(len(ours), bool)
        for start in range(0, len(ours), PAIRS):
            part = slice(start, start + PAIRS)
            one, other = ours[part], theirs[part]
            differing = np.bitwise_count(self._words[one] ^ self._words[other]).sum(axis=1, dtype=np.int64)
            together = self._sizes[one] + self._sizes[other]
            near[part] = differing * (1 + threshold) <= together * (1 - threshold) + 1e-6
        return near

    def jaccard(self, ours: Rows, theirs: Rows) -> Float64s:
        """Return |A ∩ B| / |A ∪ B| of the token sets of each pair of documents, (n,)."""
        sets = self._sets_of(np.unique(np.concatenate([ours, theirs])))
        similarity = np.empty(len(ours))
        for at, (one, other) in enumerate(zip(ours.tolist(), theirs.tolist(), strict=True)):
            both = np.sort(np.concatenate([sets[one], sets[other]]))
            common = int((both[1:] == both[:-1]).sum())
            similarity[at] = common / (len(both) - common)
        return similarity

    def _sketch(self, rows: Rows) -> None:
        if (np.count_nonzero(self._sizes >= 0) + len(rows)) * 8 * WORDS > memory.budget() // 4:
            self._forget_sketches()
        for block, owners, hashes in self._hashed(rows[self._sizes[rows] < 0]):
            self._sizes[block] = np.bincount(owners, minlength=len(block))
            words = np.zeros(len(block) * WORDS, np.uint64)
            bits = hashes & np.uint64(BITS - 1)
            place = owners * WORDS + (bits >> np.uint64(6)).astype(np.int64)
            np.bitwise_xor.at(words, place, np.uint64(1) << (bits & np.uint64(63)))
            self._words[block] = words.reshape(-1, WORDS)

    def _sets_of(self, rows: Rows) -> dict[int, Words]:
        if self._held > memory.budget() // 4:
            self._forget_sets()
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
