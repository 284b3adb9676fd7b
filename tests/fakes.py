"""Stand-ins for what tests cannot have: an encoder without a model, a machine with little memory."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest

from foils.data.tokens import alphanumeric
from foils.encode import Kind


def unit(count: int, dimension: int = 12, seed: int = 0) -> np.ndarray:
    """Random vectors of length 1, (count, dimension) float32."""
    x = np.random.default_rng(seed).normal(size=(count, dimension)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


class HashingEncoder:
    """Unit vectors of hashed words: each word is a random direction drawn from its digest, a text their sum.

    So a text has the same vector in every process, and texts that share words have a high cosine.

    Args:
        dimension: d.
        salt: another salt is another model, with another fingerprint.
        prompts: put before each text of a kind.

    Attributes:
        encoded: how many texts were encoded so far.
        calls: the texts of each call.
    """

    def __init__(self, dimension: int = 32, *, salt: str = "", prompts: dict[Kind, str] | None = None) -> None:
        self.name = f"hashing{salt}"
        self.dimension = dimension
        self.fingerprint = hashlib.blake2b(f"{dimension} {salt}".encode(), digest_size=16).hexdigest()
        self.prompts = prompts or {}
        self.calls: list[list[str]] = []
        self._salt = salt
        self._words: dict[str, np.ndarray] = {}

    @property
    def encoded(self) -> int:
        return sum(map(len, self.calls))

    def route(self, kind: Kind) -> str:
        return self.prompts.get(kind, "")

    def encode(self, texts: Sequence[str], kind: Kind) -> np.ndarray:
        self.calls.append(list(texts))
        summed = np.array([self._vector(self.route(kind) + text) for text in texts]).reshape(-1, self.dimension)
        return (summed / np.linalg.norm(summed, axis=1, keepdims=True)).astype(np.float32)

    def describe(self) -> dict[str, object]:
        return {"name": self.name, "fingerprint": self.fingerprint, "dimension": self.dimension}

    def _vector(self, text: str) -> np.ndarray:
        return np.sum([self._word(word) for word in alphanumeric(text) or [""]], axis=0)

    def _word(self, word: str) -> np.ndarray:
        if word not in self._words:
            seed = int.from_bytes(hashlib.blake2b(f"{self._salt} {word}".encode(), digest_size=8).digest())
            self._words[word] = np.random.default_rng(seed).standard_normal(self.dimension)
        return self._words[word]


@contextmanager
def memory_of(size: int) -> Iterator[None]:
    """Let blocks of everything inside the context, and of programs begun there, take at most `size` bytes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOILS_MEMORY", str(size))
        yield
