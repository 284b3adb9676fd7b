"""Files of faiss indexes that say what they were built from: faiss' bytes, a record of JSON, a digest of both.

Faiss reads its own bytes and leaves the rest alone. Damage is found before faiss, which would crash, sees the file.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from foils.encode import Vectors
from foils.runtime import memory, progress
from foils.runtime.errors import FormatError
from foils.runtime.files import existing_file

END = b"foils-index-2\n"
END_BEFORE = b"foils-index-1\n"  # of versions that wrote no record
SIZE = 4  # bytes of the record's length
DIGEST = 32  # bytes of a digest


@dataclass(frozen=True)
class IndexOrigin:
    """What an index was built from.

    Attributes:
        kind: of index, as `flat`; for an index that was brought along, the name of faiss' class.
        encoder: fingerprint of what made the vectors; empty where that was not said.
        documents: how many.
        dimension: of their vectors.
        vectors: `vectors_digest` of them.
    """

    kind: str
    encoder: str
    documents: int
    dimension: int
    vectors: str

    @classmethod
    def of(cls, documents: Vectors, kind: str, encoder: str) -> IndexOrigin:
        """Return the origin of an index over these documents."""
        return cls(kind, encoder, len(documents), documents.dimension, vectors_digest(documents))

    def differences(self, wanted: IndexOrigin) -> list[str]:
        """Return in words what differs from the wanted origin; nothing where it is the same."""
        differences = [
            text
            for differs, text in (
                (self.kind != wanted.kind, f"kind {self.kind}, not {wanted.kind}"),
                (self.encoder != wanted.encoder, f"encoder {self.encoder or '–'}, not {wanted.encoder or '–'}"),
                (self.documents != wanted.documents, f"{self.documents:,} documents, not {wanted.documents:,}"),
                (self.dimension != wanted.dimension, f"dimension {self.dimension}, not {wanted.dimension}"),
            )
            if differs
        ]
        return [*differences, "other vectors"] if self.vectors != wanted.vectors else differences


def vectors_digest(vectors: Vectors) -> str:
    """Return BLAKE2b of (n, d) and of all vectors in float32, row after row: 128 bits in hexadecimal."""
    n, d = len(vectors), vectors.dimension
    hasher = hashlib.blake2b(f"{n} {d} ".encode(), digest_size=16)
    with progress.task("reading the vectors' digest", total=n, unit="documents") as advance:
        for _, part in vectors.blocks(memory.rows_at_once(8 * d, most=65_536)):
            hasher.update(np.ascontiguousarray(part, "<f4").data)
            advance(len(part))
    return hasher.hexdigest()


def add_origin(path: Path, origin: IndexOrigin) -> None:
    """Write behind faiss' bytes what the index was built from, and a digest of all."""
    record = json.dumps(asdict(origin), sort_keys=True).encode()
    with path.open("ab") as out:
        out.write(record + len(record).to_bytes(SIZE, "little"))
    digest = _digest(path, path.stat().st_size)
    with path.open("ab") as out:
        out.write(END + digest)


def read_origin(path: str | Path) -> IndexOrigin:
    """Return what an index in a file was built from, once the file is known to be whole.

    Raises:
        InputError: no such file.
        FormatError: it is damaged, was not written by `add_origin`, or by a version that kept no record.
    """
    path = existing_file(path)
    end = path.stat().st_size - len(END) - DIGEST
    with path.open("rb") as opened:
        opened.seek(max(end, 0))
        tail = opened.read()
        if end < SIZE or tail[: len(END)] not in (END, END_BEFORE) or tail[len(END) :] != _digest(path, end):
            raise FormatError("damaged, or not an index that foils wrote; build it again", path)
        if tail.startswith(END_BEFORE):
            raise FormatError("of an earlier version, which does not say of what vectors; build it again", path)
        opened.seek(end - SIZE)
        size = int.from_bytes(opened.read(SIZE), "little")
        opened.seek(max(end - SIZE - size, 0))
        try:
            return IndexOrigin(**json.loads(opened.read(size)))
        except (ValueError, TypeError) as error:
            raise FormatError(f"no record of what it was built from ({error}); build it again", path) from error


def _digest(path: Path, size: int) -> bytes:
    """BLAKE2b of the first bytes of a file."""
    hasher = hashlib.blake2b(digest_size=DIGEST)
    with path.open("rb") as opened:
        while size > 0 and (part := opened.read(min(size, 1 << 22))):
            hasher.update(part)
            size -= len(part)
    return hasher.digest()
