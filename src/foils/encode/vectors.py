"""Every text is embedded once: a store of vectors on disk, and the options of doors that embed texts.

Vectors are found by encoder fingerprint, route and text.

For each fingerprint and dimension there is a folder with two files that only grow: the vectors, one
after the other, which are mapped and not read, and for each a key and the checksum of its block. A
block's vectors are written before its keys, so that a kill costs at most the block in the making.
What a checksum denies counts as missing: it is embedded again. Several processes may write, one at
a time.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar, cast

import numpy as np
import numpy.typing as npt
import xxhash

from foils.data.collection import Collection, Rows
from foils.encode.encoder import Encoder, EncoderSettings, Kind, SentenceEncoder, check_finite, load_encoder
from foils.encode.models import CROSS_ENCODER, DEFAULT_MODEL, ENCODER, check_kind, load_cross_encoder
from foils.encode.tokens import Slices, TextPair, Texts, characters
from foils.runtime import memory, progress
from foils.runtime.errors import FailureError, InputError
from foils.runtime.files import cache_place, flush, make_folder, one_at_a_time
from foils.runtime.options import Option, Settings, spelled
from foils.runtime.parallel import map_blocks, map_shards, workers

log = logging.getLogger(__name__)

SLICE = 16_384  # texts looked up, and sorted by length, together
BLOCK = 1_024  # texts of a block, of an encoder that has no other number: what a kill can cost
ALIKE = 32  # distinct texts whose vectors are compared, to see a model that gives all of them one
PAIRS = 4_096  # pairs whose vectors are multiplied at once, at most
RECORD = np.dtype([("key", "<u8", (2,)), ("checksum", "<u8")])  # of a vector, in the file of keys
LEAST_COSINE = 0.999  # between a vector and its float32 form, of every text of the sample
SAMPLE = 64  # documents, and as many queries
OF_CROSS_ENCODERS = ("max_length", "device", "trust_remote_code")  # settings that apply to them too
Keys = npt.NDArray[np.uint64]
Item = TypeVar("Item", bound=str | TextPair)


@dataclass(frozen=True, eq=False)
class Vectors:
    """(n, d) vectors that lie in an array, in memory or mapped from a file.

    Attributes:
        array: (m, d), float16, float32 or float64.
        positions: (n,) the row of each vector in the array; −1: there is none (`spread`).
    """

    array: npt.NDArray[np.floating]
    positions: Rows

    @classmethod
    def of(cls, array: npt.NDArray[np.floating]) -> Vectors:
        """Wrap an (n, d) array."""
        return cls(array, np.arange(len(array), dtype=np.int64))

    def __len__(self) -> int:
        return len(self.positions)

    def __reduce__(self) -> tuple[Callable[..., Vectors], tuple[Any, ...]]:
        """Send a mapped array to other processes by its path."""
        array = self.array
        if isinstance(array, np.memmap) and isinstance(array.base, mmap.mmap):
            place = (str(Path(str(array.filename)).absolute()), array.dtype.str, array.shape)
            return _mapped_again, (*place, self.positions)
        return Vectors, (array, self.positions)

    @property
    def dimension(self) -> int:
        """The dimension d."""
        return int(self.array.shape[1])

    def spread(self, rows: npt.ArrayLike, length: int) -> Vectors:
        """Return `length` rows of which only these, in order, have a vector: the others must not be taken."""
        positions = np.full(length, -1, np.int64)
        positions[np.asarray(rows, np.int64)] = self.positions
        return Vectors(self.array, positions)

    def select(self, rows: npt.ArrayLike) -> Vectors:
        """Return these rows, without copying a vector."""
        return Vectors(self.array, self.positions[np.asarray(rows, np.int64)])

    def take(self, rows: npt.ArrayLike | slice) -> npt.NDArray[np.floating]:
        """Return copies of these rows, (len(rows), d), in float32 (float64 where the vectors are).

        Raises:
            InputError: a row without a vector (`spread`).
        """
        wanted = self.positions[rows if isinstance(rows, slice) else np.asarray(rows, np.int64)]
        if (wanted < 0).any():
            raise InputError(f"{(wanted < 0).sum()} of {len(wanted)} rows have no vector; embed them first")
        vectors = np.take(self.array, wanted, axis=0)
        return np.asarray(vectors, np.float64 if self.array.dtype == np.float64 else np.float32)

    def blocks(self, size: int) -> Iterator[tuple[int, npt.NDArray[np.floating]]]:
        """Yield (first row, block of at most `size` vectors) over all rows."""
        for start in range(0, len(self), size):
            yield start, self.take(slice(start, start + size))


def _mapped_again(path: str, kind: str, shape: tuple[int, int], positions: Rows) -> Vectors:
    return Vectors(np.memmap(path, kind, "r", shape=shape), positions)


class VectorStore:
    """Vectors of texts on disk.

    Args:
        folder: of the store; made on the first write.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._opened: dict[str, _Kept] = {}

    def __reduce__(self) -> tuple[type[VectorStore], tuple[Path]]:
        """Send a store to other processes by its folder."""
        return VectorStore, (self.folder.absolute(),)

    def embed(self, encoder: Encoder, texts: Texts, kind: Kind, *, task: str | None = None) -> Vectors:
        """Return the vectors of texts, encoding those, and only those, that the store does not hold yet.

        Which texts are encoded together is fixed before the first is encoded, wherever that is done.

        Args:
            encoder: what makes the vectors; its fingerprint decides where they are kept.
            texts: (n,) a list, or anything that gives its texts in slices.
            kind: "query" or "document", which decides prompt and route.
            task: what the progress says; None: that texts of this kind are embedded.

        Raises:
            InputError: an encoder that gives another number of vectors, or of another dimension,
                than it says; or one vector for all texts.
            FailureError: a vector that is NaN or infinite, or vectors that cannot be written.
        """
        embedded = self._completed(
            encoder.fingerprint,
            encoder.dimension,
            texts,
            keys_of=partial(text_keys, route=encoder.route(kind)),
            compute=partial(_encoded, encoder, kind),
            size=getattr(encoder, "at_once", BLOCK),
            task=task or f"embedding {kind} texts",
        )
        _, first = np.unique(embedded.positions, return_index=True)
        if len(first) >= ALIKE:
            sample = embedded.take(first[np.linspace(0, len(first) - 1, ALIKE).astype(int)])
            # Vectors so much alike rank nothing.
            if np.abs(sample - sample[0]).max() <= 1e-6 * np.abs(sample).max():
                problem = f"the encoder {encoder.name} gives each of {ALIKE} texts the same vector"
                raise InputError(f"{problem}: its weights are zero, or its training collapsed; take another")
        return embedded

    def score(
        self,
        pairs: Slices[TextPair],
        scores: Callable[[Sequence[TextPair]], npt.NDArray[np.float32]],
        *,
        fingerprint: str,
        name: str,
    ) -> npt.NDArray[np.float64]:
        """Return (n,) the scores of pairs, of those, and only those, that the store does not hold yet, computed now.

        Args:
            pairs: (n,) queries and documents, or anything that gives them in slices.
            scores: from k pairs to (k,) scores.
            fingerprint: of the model that scores; it decides where scores are kept.
            name: of the model, for messages.

        Raises:
            FailureError: a score that is NaN or infinite, or scores that cannot be written.
        """
        kept = self._completed(
            fingerprint,
            1,
            pairs,
            keys_of=pair_keys,
            compute=partial(_scored, scores, name),
            size=BLOCK,
            task="scoring pairs",
            unit="pairs",
        )
        return kept.take(slice(None))[:, 0].astype(np.float64)

    def _completed(
        self,
        fingerprint: str,
        dimension: int,
        items: Slices[Item],
        *,
        keys_of: Callable[[Sequence[Item]], Keys],
        compute: Callable[[tuple[Keys, list[Item]]], tuple[Keys, npt.NDArray[np.floating]]],
        size: int,
        task: str,
        unit: str = "texts",
    ) -> Vectors:
        """Return what is kept of n items, after what is missing was computed, each distinct item once."""
        place = f"{fingerprint}-{dimension}-float32"
        if place not in self._opened:
            self._opened[place] = _Kept(self.folder / place, dimension)
        kept = self._opened[place]
        parts = (items[start : start + SLICE] for start in range(0, len(items), SLICE))
        keys = np.concatenate([keys_of(()), *map(keys_of, parts)])
        rows = kept.find(keys)
        known, missing = len(np.unique(rows[rows >= 0])), np.flatnonzero(rows < 0)
        # Each distinct item once.
        fresh = missing[np.sort(np.unique(keys[missing], axis=0, return_index=True)[1])]
        with progress.task(task, total=known + len(fresh), unit=unit) as advance:
            advance(known)
            for block, vectors in map_shards(compute, _blocks(items, keys, fresh, size), model=True):
                kept.append(block, vectors)
                advance(len(block))
        if len(fresh):
            kept.flush()
            rows = kept.find(keys)
        return Vectors(kept.vectors, rows)


class _Kept:
    """The vectors of one fingerprint.

    Attributes:
        vectors: (m, d), mapped.
    """

    def __init__(self, folder: Path, dimension: int) -> None:
        self._folder, self._kind = folder, np.dtype(("<f4", (dimension,)))
        self._files = {folder / "vectors": self._kind, folder / "keys": RECORD}
        self._take(np.zeros(0, RECORD))

    def find(self, keys: Keys) -> Rows:
        """Return the row of each key, (n, 2) -> (n,), −1 where it is missing or its block is damaged."""
        if (count := self._count()) != len(self._records):
            self._take(np.fromfile(self._folder / "keys", RECORD, count))
        if not count:
            return np.full(len(keys), -1, np.int64)
        # Of equal keys the last, which was written anew.
        at = np.searchsorted(self._first, keys[:, 0], "right") - 1
        rows: Rows = self._order[at]
        rows[(self._records["key"][rows] != keys).any(axis=1)] = -1
        block = np.searchsorted(self._starts, rows, "right") - 1
        for each in np.unique(block[(rows >= 0) & ~self._sound[block]]):
            part = slice(self._starts[each], self._starts[each + 1])
            records = self._records[part]
            self._sound[each] = _checksum(part.start, records["key"], self.vectors[part]) == records["checksum"][0]
        rows[~self._sound[block]] = -1
        return rows

    def append(self, keys: Keys, vectors: npt.NDArray[np.floating]) -> None:
        """Write a block: keys (n, 2) and vectors (n, d).

        Raises:
            InputError: the folder cannot be made.
            FailureError: it cannot be written.
        """
        records = np.empty(len(keys), RECORD)
        records["key"] = keys
        make_folder(self._folder)
        try:
            with one_at_a_time(self._folder):
                count = self._count()
                records["checksum"] = _checksum(count, keys, vectors)
                for (path, kind), data in zip(self._files.items(), (vectors, records), strict=True):
                    path.touch()
                    with path.open("r+b") as out:
                        out.truncate(count * kind.itemsize)  # what a killed writer began
                        out.seek(0, os.SEEK_END)
                        out.write(np.ascontiguousarray(data).view(np.uint8).data)
        except OSError as error:
            raise FailureError(f"cannot write {path}: {error.strerror or error}; the rest is kept") from error

    def flush(self) -> None:
        """Wait until all is on disk; of what a power cut took before, the checksums tell."""
        try:
            for path in self._files:
                flush(path)
        except OSError as error:
            raise FailureError(f"cannot write {path}: {error.strerror or error}; the rest is kept") from error

    def _count(self) -> int:
        """How many vectors there are that have a key."""
        sizes = [path.stat().st_size // kind.itemsize for path, kind in self._files.items() if path.is_file()]
        return min(sizes) if len(sizes) == len(self._files) else 0

    def _take(self, records: npt.NDArray[np.void]) -> None:
        """Know these records; `find` compares the blocks' checksums."""
        self._records, self._order = records, np.argsort(records["key"][:, 0], kind="stable")
        self._first = records["key"][self._order, 0]
        self.vectors = np.zeros((0, *self._kind.shape), self._kind.base)
        if len(records):
            shape = (len(records), *self._kind.shape)
            self.vectors = np.memmap(self._folder / "vectors", self._kind.base, "r", shape=shape)
        changes = np.flatnonzero(np.diff(records["checksum"])) + 1
        self._starts, self._sound = np.array([0, *changes, len(records)], np.int64), np.zeros(len(changes) + 1, bool)


def _checksum(start: int, keys: Keys, vectors: npt.NDArray[np.floating]) -> int:
    """Of a block that begins at row `start`: two processes may write the same vectors one after the other."""
    hasher = xxhash.xxh3_64(np.ascontiguousarray(keys).tobytes(), seed=int(start))
    hasher.update(np.ascontiguousarray(vectors).view(np.uint8).data)
    return hasher.intdigest()


def _encoded(encoder: Encoder, kind: Kind, block: tuple[Keys, list[str]]) -> tuple[Keys, npt.NDArray[np.floating]]:
    """Return the keys of a block, (n, 2), and the vectors, (n, d), as they are stored; here or elsewhere."""
    keys, texts = block
    vectors = encoder.encode(texts, kind)
    if vectors.shape != (len(texts), encoder.dimension):
        problem = f"the encoder {encoder.name} gave vectors of shape {vectors.shape} for {len(texts)} texts"
        raise InputError(f"{problem}; expected ({len(texts)}, {encoder.dimension})")
    return keys, check_finite(vectors.astype("<f4"), texts, encoder.name)


def _scored(
    scores: Callable[[Sequence[TextPair]], npt.NDArray[np.float32]], name: str, block: tuple[Keys, list[TextPair]]
) -> tuple[Keys, npt.NDArray[np.floating]]:
    """Return the keys of a block of pairs, (n, 2), and the scores, (n, 1), as they are stored; here or elsewhere."""
    keys, pairs = block
    values = scores(pairs)[:, None].astype("<f4")
    return keys, check_finite(values, [" – ".join(pair) for pair in pairs], name)


def _blocks(items: Slices[Item], keys: Keys, fresh: Rows, size: int) -> Iterator[tuple[Keys, list[Item]]]:
    """Yield keys and items of blocks of ≤ `size` such rows, ascending: those of a slice, longest first."""
    together = max(SLICE, size)
    for start in range(0, len(items), together):
        if len(rows := fresh[slice(*np.searchsorted(fresh, [start, start + together]))]):
            part = items[start : start + together]
            rows = rows[np.argsort([-characters(part[row - start]) for row in rows], kind="stable")]
            for chosen in (rows[at : at + size] for at in range(0, len(rows), size)):
                yield keys[chosen], [part[row - start] for row in chosen]


def text_keys(texts: Sequence[str], route: str) -> Keys:
    """Return (n, 2) 128-bit digests (BLAKE2b) of route and text."""
    prefix = hashlib.blake2b(route.encode() + b"\x1f", digest_size=16)
    digests = bytearray()
    for text in texts:
        hasher = prefix.copy()
        hasher.update(text.encode("utf-8", "surrogatepass"))
        digests += hasher.digest()
    return np.frombuffer(bytes(digests), np.uint64).reshape(-1, 2)


def pair_keys(pairs: Sequence[TextPair]) -> Keys:
    """Return (n, 2) 128-bit digests of pairs of texts; the length of the first tells where the second begins."""
    return text_keys([f"{len(query)}\x1f{query}\x1f{text}" for query, text in pairs], "pair")


def paired_products(a: Vectors, a_rows: Rows, b: Vectors, b_rows: Rows) -> npt.NDArray[np.float64]:
    """Return the inner product of row a_rows[i] of a and row b_rows[i] of b, (n,)."""

    def products(part: slice) -> npt.NDArray[np.float64]:
        return np.asarray(np.einsum("nd,nd->n", a.take(a_rows[part]), b.take(b_rows[part])), np.float64)

    size = memory.rows_at_once(8 * a.dimension * workers(), most=PAIRS)
    parts = (slice(start, start + size) for start in range(0, len(a_rows), size))
    return np.concatenate([np.zeros(0), *map_blocks(products, parts)])


def cosine_loss(reference: npt.NDArray[np.float32], vectors: npt.NDArray[np.float32]) -> tuple[float, float]:
    """Return mean and least cosine of paired rows, (n, d), zeros left out: what another precision changes."""
    a, b = reference.astype(np.float64), vectors.astype(np.float64)
    lengths = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    cosines = (a * b).sum(1)[lengths > 0] / lengths[lengths > 0]
    return float(cosines.mean()), float(cosines.min(initial=1))


# Which encoder a stage uses: the options of every door that embeds texts


class EmbeddingModel(Protocol):
    """A loaded SentenceTransformer."""

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        """Return vectors of texts."""


class PairModel(Protocol):
    """A loaded CrossEncoder."""

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Return scores of pairs of texts."""


CrossEncoderLike = Annotated[str | Path | PairModel, Option(metavar="MODEL")]
EncoderLike = Annotated[str | Path | Encoder | EmbeddingModel, Option(metavar="MODEL")]
StoreLike = str | Path | VectorStore


@dataclass(frozen=True)
class EncoderName(Settings):
    """Which encoder.

    Attributes:
        encoder: A sentence-transformers model: a folder, a hub name, the embedded all-MiniLM-L6-v2,
            or static:NAME for the word table of one. In Python also a SentenceTransformer, or an
            object with the methods of `Encoder`.
    """

    encoder: EncoderLike = DEFAULT_MODEL


@dataclass(frozen=True)
class EmbeddingSettings(EncoderSettings):
    """The options of every door that embeds texts, beside the encoder's name.

    Attributes:
        vectors: `VectorStore`, or its folder, where vectors are kept, so that no text is embedded
            twice. Default: the cache.
    """

    vectors: Annotated[StoreLike | None, Option(in_program=False)] = None

    def open_store(self) -> VectorStore:
        """Return the store of vectors."""
        if isinstance(self.vectors, VectorStore):
            return self.vectors
        return VectorStore(self.vectors or cache_place("vectors"))

    def open_encoder(self, model: EncoderLike, collection: Collection) -> Encoder:
        """Return an encoder (see `as_encoder`).

        A model by name computes in the `fastest` precision where that is left open.
        """
        chosen = EncoderSettings(**{each.name: getattr(self, each.name) for each in fields(EncoderSettings)})
        encoder = as_encoder(model, chosen)
        if isinstance(model, str | Path) and isinstance(encoder, SentenceEncoder) and self.precision == "auto":
            return encoder if fastest(encoder, collection, self.open_store()) else load_encoder(model, chosen)
        return encoder

    def open_cross_encoder(self, model: CrossEncoderLike) -> Any:
        """Return what scores pairs: a model as it is, or that of a name, with length and device too."""
        if not isinstance(model, (str, Path)):
            check_kind(model, CROSS_ENCODER)
            return model
        return load_cross_encoder(model, **{name: getattr(self, name) for name in OF_CROSS_ENCODERS})


@dataclass(frozen=True)
class EncodingSettings(EmbeddingSettings, EncoderName):
    """The options of every door that embeds texts with one encoder."""

    def open(self, collection: Collection) -> tuple[Encoder, VectorStore]:
        """Load the encoder (see `open_encoder`) and open the store."""
        return self.open_encoder(self.encoder, collection), self.open_store()


#: Settings of the default encoder at 128 tokens, as all five papers train and score.
AT_128 = EncodingSettings(max_length=128)


def as_encoder(model: EncoderLike, settings: EncoderSettings) -> Encoder:
    """Return an encoder: of a model's name or folder, of a SentenceTransformer, or as it is.

    Settings do not change an object that is an `Encoder` already.

    Raises:
        InputError: an object of another kind, a model that cannot be loaded, or settings that do not fit it.
    """
    if isinstance(model, (str, Path)):
        return load_encoder(model, settings)
    if all(hasattr(model, name) for name in ("fingerprint", "route", "encode")):
        return cast(Encoder, model)
    check_kind(model, ENCODER)
    if all(hasattr(model, name) for name in ("encode_query", "encode_document", "prompts")):
        return SentenceEncoder(model, settings)
    expected = "the name of a model, a loaded SentenceTransformer, or an object with the methods of Encoder"
    raise InputError(f"an encoder of type {type(model).__name__}; expected {expected}")


def description(encoder: Encoder) -> dict[str, Any]:
    """Return what provenance says of an encoder: its own facts, at least name, fingerprint and dimension."""
    if hasattr(encoder, "describe"):
        return dict(encoder.describe())
    return {"name": encoder.name, "fingerprint": encoder.fingerprint, "dimension": encoder.dimension}


def computes_bfloat16(device: Any) -> bool:
    """Tell whether a torch device multiplies bfloat16 by its own instructions, which is faster than float32.

    A GPU says it itself. A processor does with AMX or AVX512-BF16, where torch may use them
    (`ATEN_CPU_CAPABILITY`); on others nothing was measured, so that they count as those that do
    not.
    """
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    if device.type != "cpu" or not torch.backends.cpu.get_cpu_capability().startswith("AVX512"):
        return False
    capabilities: dict[str, Any] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(capabilities.get(instructions) for instructions in ("amx_bf16", "avx512_bf16"))


def fastest(exact: SentenceEncoder, collection: Collection, store: VectorStore) -> bool:
    """Move an encoder to the fastest precision that keeps the vectors; one log line says which, and why.

    It is bfloat16 where the device computes it (`computes_bfloat16`), and where the lowest cosine
    of a sample of the collection's texts to their float32 vectors is at least .999; otherwise
    float32. So it is the same on machines of one kind. The vectors of the sample are kept: the next
    call encodes none of them.

    Args:
        exact: computes in float32; it is changed.
        collection: whose texts are the sample: 64 documents and 64 queries, evenly spread.
        store: keeps their vectors.

    Returns:
        Whether the encoder may be used; else it computes in bfloat16, which loses too much, and is
            to be loaded again.
    """
    if exact.static:  # a bag of words looks vectors up
        return True
    if not computes_bfloat16(exact.model.device):
        log.info("precision float32: nothing faster is native to this device")
        return True
    reference = _sample(exact, collection, store)
    exact.compute_in("bfloat16")
    try:
        mean, least = cosine_loss(reference, _sample(exact, collection, store))
    except FailureError:  # vectors that are not finite
        mean = least = np.nan
    keeps = least >= LEAST_COSINE
    log.info(
        "precision %s: cosine of bfloat16 to float32 %.5f on average, %.5f at least, over %d texts; %s",
        "bfloat16" if keeps else "float32", mean, least, len(reference),
        f"{spelled('precision', 'float32')} computes exactly" if keeps else f"at least {LEAST_COSINE} is expected",
    )  # fmt: skip
    return keeps


def _sample(encoder: SentenceEncoder, collection: Collection, store: VectorStore) -> Any:
    """The vectors, (m, d), of documents and queries of a collection."""
    sides: list[tuple[Kind, Any, Any]] = [
        ("document", collection.documents, collection.document_texts),
        ("query", collection.queries, collection.query_texts),
    ]
    vectors = []
    for kind, table, texts_of in sides:
        rows = np.unique(np.linspace(0, len(table) - 1, SAMPLE).astype(int))[: len(table)]
        vectors.append(store.embed(encoder, texts_of(rows), kind, task="trying precisions").take(slice(None)))
    return np.concatenate(vectors)
