"""The vectors that batches are built from: a cache of them, texts embedded once, exchanges between processes.

HOBIT-C: the vectors that the previous epoch's own forward passes left behind (HOBIT section 5.4, A.6).

When a batch is trained, the cached vectors that it was built from are less than two epochs of steps
old: lag ℓ ≤ 2t − 1 with t steps per epoch. A row that an epoch trains on costs no extra pass. A row
that it left out, as one of a short last batch that is dropped, keeps its vectors for one more
epoch; if that epoch leaves it out too, it is embedded when the next one begins. Warm-up epochs fill
the cache as all others. Memory is bounded: one row per training pair, 2 · N · d numbers.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foils.batching.batches import Rows
from foils.encode.encoder import model_outputs, unit
from foils.encode.tokens import kept_tokens
from foils.runtime.errors import InputError

Vectors = NDArray[np.floating]


class EmbeddingCache:
    """The latest vectors of each training pair.

    Args:
        rows: N, how many pairs there are.
        scaled: whether vectors are kept with length 1, for a model that compares by cosine; else
            they are kept as they are, for one that compares by inner product.
    """

    def __init__(self, rows: int, *, scaled: bool = True) -> None:
        self.rows, self.scaled = rows, scaled
        self.queries: Vectors = np.empty((0, 0), np.float32)
        self.documents: Vectors = np.empty((0, 0), np.float32)
        self.recent = np.zeros(rows, bool)
        self.fresh = np.zeros(rows, bool)  # what the other processes do not know yet

    def update(self, rows: Rows, queries: Vectors, documents: Vectors) -> None:
        """Store vectors (m, d) of these rows, replacing older ones; they are scaled here where the cache is.

        Raises:
            InputError: vectors that are not finite or zero.
        """
        pair = (unit(queries), unit(documents)) if self.scaled else (np.asarray(queries), np.asarray(documents))
        if not all(np.isfinite(side).all() and side.any(axis=1).all() for side in pair):
            raise InputError("vectors to cache must be finite and not zero: the training may have diverged")
        self.store(rows, *pair)
        self.fresh[rows] = True

    def store(self, rows: Rows, queries: Vectors, documents: Vectors) -> None:
        """Store vectors (m, d) of these rows as they are."""
        if not self.queries.size:
            self.queries, self.documents = np.zeros((2, self.rows, queries.shape[1]), np.float32)
        self.queries[rows], self.documents[rows], self.recent[rows] = queries, documents, True

    def turn(self) -> Rows:
        """Begin an epoch: return the rows that were not updated since the one before began, ascending."""
        old = np.flatnonzero(~self.recent)
        self.recent[:] = False
        return old

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the contents as arrays, for a checkpoint."""
        return {name: getattr(self, name) for name in ("queries", "documents", "recent")}

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Take the contents from a checkpoint's arrays.

        Raises:
            InputError: they are of another data set, or no vectors.
        """
        pair = np.stack([state["queries"], state["documents"]]).astype(np.float32)
        if state["recent"].shape != (self.rows,) or pair.shape[1] != self.rows or not np.isfinite(pair).all():
            raise InputError("the saved cache has no vectors of these rows")
        (self.queries, self.documents), self.recent = pair, state["recent"].astype(bool)


Encode = Callable[[Sequence[str], str], Vectors]
BLOCK = 16384
"""Texts that are looked up and embedded at once."""


class DistinctTexts:
    """The texts of a data set's column, each looked up and embedded once, however many rows have it.

    Rows are compared by what the column stores where its texts depend on nothing else (texts
    themselves, or a transform with a method `texts(column, stored)`), by their texts otherwise.

    Args:
        dataset: a `datasets.Dataset`.
        column: a name of its columns.
    """

    def __init__(self, dataset: Any, column: str) -> None:
        transform = dataset.format["format_kwargs"].get("transform")
        self.column, self._lookup = column, getattr(transform, "texts", None)
        if transform is None or self._lookup is not None:
            stored = dataset.with_format("arrow").select_columns([column])[:][column]
        else:
            blocks = (dataset[start : start + BLOCK][column] for start in range(0, len(dataset), BLOCK))
            stored = pa.chunked_array(map(pa.array, blocks))
        encoded = stored.dictionary_encode().unify_dictionaries().combine_chunks()
        self._distinct, self.numbers = encoded.dictionary, np.asarray(encoded.indices, np.int64)

    def __len__(self) -> int:
        return len(self._distinct)

    def __getitem__(self, part: slice) -> list[str]:
        """Return the distinct texts of a slice, in the order in which the column has them first."""
        return self._texts(self._distinct[part])

    def embedded(self, rows: Rows, encode: Encode) -> tuple[Vectors, Rows]:
        """Return (D, d) vectors of the distinct texts of some rows, and (m,) which of them each row has."""
        wanted, at = np.unique(self.numbers[rows], return_inverse=True)
        vectors = []
        for start in range(0, len(wanted), BLOCK):
            texts = self._texts(self._distinct.take(pa.array(wanted[start : start + BLOCK])))
            vectors.append(np.asarray(encode(texts, self.column)))
        return np.concatenate(vectors), at

    def _texts(self, stored: pa.Array) -> list[str]:
        values = stored.to_pylist()
        return values if self._lookup is None else list(self._lookup(self.column, values))


def encoder_of(model: Any, args: Any = None) -> Encode:
    """Return how the trainer's model embeds a column: with its prompts and precision, in evaluation mode.

    `args.prompts` may be one prompt, or a prompt per column; prompts per data set are not seen
    here. The trainer has wrapped the model's forward pass in the autocast of its precision, which
    holds here as well. Texts that are trained on too are not tokenised again (`kept_tokens`).
    """
    prompts = getattr(args, "prompts", None)
    routes = getattr(args, "router_mapping", None) or {}
    size = getattr(args, "per_device_eval_batch_size", 32)

    def encode(texts: Sequence[str], column: str) -> Vectors:
        prompt, task = prompts.get(column) if isinstance(prompts, dict) else prompts, routes.get(column)
        training = model.training
        try:
            if type(model).__name__ == "SentenceTransformer":
                kept = kept_tokens(model, prompt=prompt or "", task=task)
                if kept is not None:
                    width = int(model.get_embedding_dimension())
                    return model_outputs(model, texts, width, kept, task=task)
            more = {} if task is None else {"task": task}
            return array_of(
                model.encode(
                    list(texts), prompt=prompt, batch_size=size, show_progress_bar=False, convert_to_tensor=True, **more
                )
            )
        finally:
            model.train(training)

    return encode


def array_of(vectors: Any) -> Vectors:
    """Return a tensor's vectors (n, d), dense or sparse, as an array."""
    return np.asarray((vectors.to_dense() if vectors.is_sparse else vectors).detach().float().cpu().numpy())


def rank_and_count() -> tuple[int, int]:
    """Return this process' number and how many there are (0 and 1 without torch.distributed)."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def share_cache(cache: EmbeddingCache) -> None:
    """Give every process the vectors that any of them has made since the last call, block by block."""
    if rank_and_count()[1] == 1:
        return
    from accelerate.utils import gather_object

    rows = np.flatnonzero(cache.fresh)
    for start in itertools.count(step=BLOCK):
        part = rows[start : start + BLOCK]
        shared = gather_object([(part, cache.queries[part], cache.documents[part])] if part.size else [])
        if not shared:
            break
        for each in shared:
            cache.store(*each)
    cache.fresh[:] = False


class ForwardWatch:
    """Leaves the vectors of a training's own forward passes in HOBIT-C's cache, by a hook on the model.

    Passes with gradients come batch by batch in the order in which the sampler gave them, column by
    column: the first b vectors of a batch of b rows are the queries', the next b the positives'.
    Passes that are cut to fewer dimensions (Matryoshka), those of evaluations and those without
    gradients do not count.

    Args:
        model: that trains; it is watched until `stop`.
        sampler: whose batches are trained on, and whose cache is filled.
        split: whether of several processes each trains on its part of a batch.
    """

    def __init__(self, model: Any, sampler: Any, *, split: bool) -> None:
        self.sampler, self.split = sampler, split
        self.due: deque[Rows] = deque()  # of the batches that the sampler gave
        self.seen: list[Vectors] = []
        self.number = self.skipped = self.width = 0
        self.filled = False
        self.stop = model.register_forward_hook(self._keep).remove

    def begin(self, skipped: int = 0) -> None:
        """Begin an epoch, of which the first batches are skipped."""
        self.due.clear()
        self.seen.clear()
        self.number, self.skipped = 0, skipped

    def expect(self, rows: Rows) -> None:
        """Note the next batch that the sampler gives."""
        rank, count = rank_and_count()
        number, self.number = self.number, self.number + 1
        if self.split and count > 1:
            size = self.sampler.batch_size // count
            rows = rows[size * rank : size * (rank + 1)]
        elif number % count != rank:
            return
        if number // (1 if self.split else count) >= self.skipped and rows.size:
            self.due.append(rows)

    def _keep(self, model: Any, _inputs: Any, output: Any) -> None:
        vectors = output.get("sentence_embedding") if isinstance(output, dict) else None
        if vectors is None or not model.training or not vectors.requires_grad or not self.due:
            return
        self.width = max(self.width, vectors.shape[1])
        if vectors.shape[1] < self.width:  # cut vectors of a Matryoshka loss: the loader is a batch ahead
            return
        self.seen.append(array_of(vectors))
        rows = self.due[0]
        if sum(map(len, self.seen)) >= len(rows) * len(self.sampler.columns):
            pair = np.concatenate(self.seen)
            self.sampler.cache.update(rows, pair[: len(rows)], pair[len(rows) : 2 * len(rows)])
            self.filled = True
            self.due.popleft()
            self.seen.clear()

    def check(self) -> None:
        """Raise an InputError where a step's passes were not those of its rows."""
        if self.due and (self.seen or not self.filled):
            raise InputError(
                f"the loss computed {sum(map(len, self.seen))} vectors for {len(self.due[0])} rows of "
                f"{len(self.sampler.columns)} texts; HOBIT-C needs a loss that embeds each column once"
            )
