"""Batches in sentence-transformers' trainer: one argument, which plans each epoch from the model as it is.

    args = SentenceTransformerTrainingArguments(..., batch_sampler=foils.batch_sampler("hobit", model))
    trainer = SentenceTransformerTrainer(model, args, ...)

The trainer calls the argument for the training set and for every evaluation set; the latter keep
plain order. When an epoch begins, the training set's sampler embeds each distinct text once and
builds the batches; dense and sparse encoders will do. HOBIT-C's cache is filled by a forward hook
on the model. `HookEvents`, a callback that transformers gives to every trainer, tells the argument
what the trainer does: so it embeds with the trainer's prompts and precision, and saves the order
with each checkpoint, so that resuming is exact. Under several processes each embeds its share, one
builds the batches, and all get the same ones; `accelerator_config={"split_batches": True}` divides
each batch among them. Needs torch and sentence-transformers: import this module where it is used.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partialmethod
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
from sentence_transformers.base.sampler import DefaultBatchSampler
from transformers import TrainerCallback
from transformers.trainer import DEFAULT_CALLBACKS

from foils.batching.batches import (
    Batches,
    Conflicts,
    Rows,
    find_conflicts,
    mixed_batches,
    parts_of,
    random_order,
)
from foils.batching.methods import SCHEDULE, TEACHER, joined, method_named, rank_communities
from foils.batching.vectors import (
    BLOCK,
    DistinctTexts,
    EmbeddingCache,
    Encode,
    ForwardWatch,
    Vectors,
    encoder_of,
    rank_and_count,
    share_cache,
)
from foils.data.run import grouped
from foils.encode.models import similarity_of
from foils.runtime.errors import FormatError, InputError
from foils.runtime.options import Option

SAVED = "foils_batches.npz"


class EpochBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """Batches of an epoch, in plain order until they are made by what the training set is given.

    Args:
        dataset: a `datasets.Dataset`.
        arguments: of `DefaultBatchSampler`: batch size, whether a short last batch is left out,
            names of label columns, a generator, which is not used, and a seed: what is drawn
            depends on it, the epoch and the model alone.
        planner: the hook that makes the batches.
    """

    def __init__(self, dataset: Any, *arguments: Any, planner: Any, **named: Any) -> None:
        super().__init__(dataset, *arguments, **named)
        self.dataset, self.planner = dataset, planner
        aside = {*(self.valid_label_columns or ()), "dataset_name"}
        self.columns = [name for name in dataset.column_names if name not in aside]

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in islice(self.batches(), len(self)))

    def batches(self) -> Iterable[Rows]:
        """Return this epoch's batches, a short one last."""
        return Batches(np.arange(len(self.dataset)), self.batch_size)


def checkpoint_of(args: Any, state: Any) -> Path:
    """Return the folder of the checkpoint of this step."""
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


class BatchHook:
    """What fills a trainer's batches: its `batch_sampler`, and what is around the loss.

    `HookEvents` calls those of its methods that have the name of an event of transformers' callbacks.

    Attributes:
        made: the sampler that it makes for each data set.
        file: in which a checkpoint keeps its state.
        unpickled: attributes that the pickled training arguments do not hold.
        sampler: that of the training set, once a training begins.
        has_trainer: whether a trainer has it.
    """

    made: ClassVar[type[EpochBatchSampler]] = EpochBatchSampler
    file: ClassVar[str] = SAVED
    unpickled: ClassVar[tuple[str, ...]] = ()
    sampler: Any = None
    has_trainer = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, **dict.fromkeys(("sampler", *self.unpickled)), "has_trainer": False}

    def __call__(self, *arguments: Any, **named: Any) -> EpochBatchSampler:
        """Return the sampler of a data set, as the trainer asks for it."""
        return self.made(*arguments, **named, planner=self)

    def wrapped(self, loss: Any, model: Any) -> Any:
        """Return the loss to train with, which tells the hook what it needs to know of each step."""
        return loss

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note that there is a trainer."""
        self.has_trainer = True

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell the sampler its epoch, which does not reach it through every wrapper of data loaders."""
        self.sampler.set_epoch(math.floor((state.epoch or 0) + 1e-6))

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Find the sampler of the training set, from under accelerate's wrappers.

        Raises:
            InputError: the batches do not come from a sampler of this kind, or come from several.
        """
        sampler = getattr(more["train_dataloader"], "batch_sampler", None)
        while sampler is not None and not isinstance(sampler, self.made):
            sampler = getattr(sampler, "batch_sampler", None)
        if sampler is None:
            raise InputError(
                "the trainer's batches are not this planner's; pass batch_sampler=planner, and one data set"
            )
        self.sampler = sampler


class HookEvents(TrainerCallback):  # type: ignore[misc]
    """Tells what fills a trainer's batches (`args.batch_sampler`, if a `BatchHook`) what the trainer does.

    Every trainer that is made has one, which does nothing for trainers whose batches are filled otherwise.
    """

    def _tell(self, event: str, args: Any, state: Any, control: Any, **more: Any) -> None:
        hook = getattr(args, "batch_sampler", None)
        if isinstance(hook, BatchHook) and hasattr(hook, event):
            getattr(hook, event)(args, state, control, **more)


for _event in ("init_end", "train_begin", "epoch_begin", "step_end", "log", "save", "train_end"):
    setattr(HookEvents, f"on_{_event}", partialmethod(HookEvents._tell, f"on_{_event}"))
DEFAULT_CALLBACKS.append(HookEvents)  # transformers makes one of each of these classes for every trainer


class PlannedBatchSampler(EpochBatchSampler):
    """Batches of a data set whose first column is the query and whose second is the positive.

    Made by the trainer through a `BatchPlanner`, with the arguments of `EpochBatchSampler`. Without
    a trainer: make one, `attach` an encoder, call `set_epoch` before each epoch. Each epoch is
    built once, from vectors that are as new as the method asks for.

    Attributes:
        cache: HOBIT-C's, once an encoder is attached; None for other methods.
    """

    cache: EmbeddingCache | None = None
    _encode: Encode | None = None
    _planned: tuple[int, Batches] | None = None
    _communities: Rows | None = None

    @cached_property
    def conflicts(self) -> Conflicts:
        """The known positives among the rows."""
        if self.planner.known is not None:
            return cast("Conflicts", self.planner.known)
        texts = (self.dataset[:][name] for name in self.columns[:2])
        return find_conflicts(*texts, positives=self.planner.positives)

    @cached_property
    def texts(self) -> list[DistinctTexts]:
        """The distinct queries and positives."""
        return [DistinctTexts(self.dataset, name) for name in self.columns[:2]]

    def attach(self, encode: Encode, *, scaled: bool = True) -> None:
        """Make this the sampler of the training set: from now on it builds batches.

        Args:
            encode: (texts, column) → (n, d) vectors by the current model.
            scaled: whether the model compares them by cosine, so that they are scaled to length 1.

        Raises:
            InputError: the data set lacks a query and a positive column, or the conflicts are of
                another number of rows.
        """
        planner, count = self.planner, len(self.dataset)
        if len(self.columns) < 2:
            raise InputError(f"batches need a query and a positive column; got columns {self.columns}")
        if planner.known is not None and planner.known.rows != count:
            raise InputError(f"the conflicts are of {planner.known.rows} rows, the data set has {count}")
        self._encode, self.scaled = encode, scaled
        self.cache = EmbeddingCache(count, scaled=scaled) if planner.method.vectors == "cached" else None

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            if self.planner.watch is not None and self.cache is not None:
                self.planner.watch.expect(np.asarray(batch))
            yield batch

    def batches(self) -> Batches:
        """Return this epoch's batches: built on first use, plain order of an evaluation set.

        Raises:
            InputError: neither the planner, nor a trainer, nor `attach` has given a model.
        """
        model = self.planner.model
        if self._encode is None and not self.planner.has_trainer:
            if model is None:
                raise InputError("the batch sampler was given no model; give it one, or attach an encoder")
            self.attach(encoder_of(model), scaled=similarity_of(model) == "cosine")
        if self._encode is None:
            return Batches(np.arange(len(self.dataset)), self.batch_size)
        if self._planned is None or self._planned[0] != self.epoch:
            self._planned = (self.epoch, self._plan(self.epoch))
        return self._planned[1]

    def _plan(self, epoch: int) -> Batches:
        planner, begin = self.planner, time.perf_counter()
        vectors = self._current_vectors(epoch)
        embedded, batches = time.perf_counter(), None
        rank, count = rank_and_count()
        if rank == 0:
            if planner.kind(epoch) == "teacher" and self._communities is None:
                self._communities = planner.communities(planner.teacher or vectors)
            how: dict[str, Any] = {"conflicts": self.conflicts, "seed": self.seed, "communities": self._communities}
            batches = planner.build(epoch, vectors, self.batch_size, rows=len(self.dataset), **how)
        if count > 1:
            from accelerate.utils import broadcast_object_list

            batches, self._communities = broadcast_object_list([batches, self._communities])
        times = {"seconds_embedding": embedded - begin, "seconds_building": time.perf_counter() - embedded}
        planner.history.append({"epoch": float(epoch), **times})
        return cast("Batches", batches)

    def _current_vectors(self, epoch: int) -> tuple[Vectors, Vectors] | None:
        """Return the vectors that this epoch's batches are built from; None where they are built without."""
        planner, kind, count = self.planner, self.planner.kind(epoch), len(self.dataset)
        vectors, due = self.cache, np.arange(count)
        if vectors is not None:  # of HOBIT-C; the passes of a warm-up fill it too
            share_cache(vectors)
            due = vectors.turn()
        if kind == "none" or (kind == "teacher" and (planner.teacher or self._communities is not None)):
            return None
        vectors = vectors or EmbeddingCache(count, scaled=self.scaled)
        self._embed(vectors, due)
        return vectors.queries, vectors.documents

    def _embed(self, vectors: EmbeddingCache, rows: Rows) -> None:
        """Embed these rows anew, each process its share.

        Rows of the same query go together, so that its text is embedded once; a positive of several
        queries may be embedded in several processes.
        """
        if not rows.size or self._encode is None:
            return
        rank, count = rank_and_count()
        by_query = rows[np.argsort(self.texts[0].numbers[rows], kind="stable")]
        part = np.array_split(by_query, count)[rank]
        if part.size:
            (queries, query), (documents, document) = (column.embedded(part, self._encode) for column in self.texts)
            for start in range(0, part.size, BLOCK):
                block = slice(start, start + BLOCK)
                vectors.update(part[block], queries[query[block]], documents[document[block]])
        share_cache(vectors)

    def save(self, path: Path) -> None:
        """Write the epoch's order, and what later epochs depend on, to `path`."""
        arrays: dict[str, Any] = {"epoch": self.epoch, "order": self.batches().order}
        if self.cache is not None:
            arrays |= self.cache.state()
        if self._communities is not None:
            arrays["communities"] = self._communities
        np.savez(path, **arrays)

    def restore(self, path: Path) -> None:
        """Take the order of the running epoch, and what later epochs depend on, from a checkpoint.

        Raises:
            FormatError: there is no such file, or it is damaged, or of another data set or method.
        """
        rows = len(self.dataset)
        try:
            with np.load(path, allow_pickle=False) as saved:
                arrays = dict(saved)
            order, communities = arrays["order"], arrays.get("communities")
            if order.size != rows or (communities is not None and communities.shape != (rows,)):
                raise InputError(f"of {order.size} rows, the data set has {rows}")
            planned = int(arrays["epoch"]), Batches(order, self.batch_size)
            if self.cache is not None:
                self.cache.restore(arrays)
        except Exception as error:  # NumPy's and zip's readers raise what the damage leads them to
            raise FormatError(f"damaged order of batches ({error}); resume from another checkpoint", path) from error
        self._planned, self._communities = planned, communities


class BatchPlanner(BatchHook):
    """Which batches a training builds, from which vectors, and how: the trainer's `batch_sampler`.

    Args:
        name: one of `METHODS`.
        settings: the method's own settings, and those of `SCHEDULE`: `warmup`, epochs of random
            batches before the method begins (HOBIT A.9); `anneal`, epochs after the warm-up over
            which HOBIT's α rises linearly from 0 to its value (0: constant).
        model: that is trained; None: the trainer's.
        positives: further (query text, document text) pairs known to be relevant.
        known: conflicts among the rows of the one training set, as
            `foils.batching.batches.known_conflicts` finds them in a collection; None: found by the
            texts of the data set and `positives`.
        teacher: (queries, documents) vectors (N, d) for B3; None: the model's own before training.
        sources: (N,) of a training set that holds several data sets, the number of each row's;
            None: there is one.

    Attributes:
        history: of each epoch that was built: its number, and the seconds of embedding and of building.

    Raises:
        InputError: an unknown method or setting, or counts out of range.
    """

    made = PlannedBatchSampler
    unpickled = ("model", "teacher", "known", "sources", "watch")
    watch: ForwardWatch | None = None
    _resumed_at = 0

    def __init__(
        self,
        name: str,
        settings: Mapping[str, Any] | None = None,
        *,
        model: Any = None,
        positives: Sequence[tuple[str, str]] = (),
        known: Conflicts | None = None,
        teacher: tuple[Vectors, Vectors] | None = None,
        sources: Rows | None = None,
    ) -> None:
        self.name, self.settings = name, dict(settings or {})
        self.method = method_named(name, self.settings)
        if TEACHER in self.settings:
            raise InputError(f"{TEACHER}: foils train alone reads it; in Python give a teacher's vectors")
        self.warmup, self.anneal = epochs = [self.settings.pop(*each) for each in SCHEDULE.items()]
        Option(least=0).check("warmup, anneal", epochs)
        if self.anneal and "alpha" not in self.method.settings:
            raise InputError(f"anneal raises the setting alpha, which {name} does not have")
        self.model, self.positives, self.known = model, tuple(positives), known
        self.teacher, self.sources = teacher, sources
        self.history: list[dict[str, float]] = []

    def kind(self, epoch: int) -> str:
        """Return whose vectors an epoch's batches are built from, as `BatchingMethod.vectors` has it."""
        return "none" if epoch < self.warmup else self.method.vectors

    def communities(self, vectors: Any) -> Rows:
        """Return (N,) each row's community by a teacher's vectors; of several data sets, each has its own."""
        queries, documents = vectors
        if self.sources is None:
            return rank_communities(queries, documents, **self.settings)
        numbers = self.sources * len(queries)
        for rows in grouped(self.sources):
            numbers[rows] += rank_communities(queries[rows], documents[rows], **self.settings)
        return numbers

    def build(
        self,
        epoch: int,
        vectors: tuple[Vectors, Vectors] | None,
        batch_size: int,
        *,
        rows: int,
        conflicts: Conflicts | None,
        seed: int,
        communities: Rows | None = None,
    ) -> Batches:
        """Return an epoch's batches; of several data sets, each one's apart, and joined.

        Args:
            epoch: counted from 0.
            vectors: (N, d) of queries and of documents; None where the epoch needs none.
            batch_size: rows per batch.
            rows: N.
            conflicts: rows to keep apart.
            seed: epoch e uses the generator of (seed, e).
            communities: (N,) of a teacher's vectors.

        Raises:
            InputError: vectors are needed, and there are none.
        """

        def built(batch_size: int, rng: np.random.Generator, some: Rows | None = None) -> Batches:
            """Batches over all rows or, by their places, over some of them."""
            kind, known = self.kind(epoch), conflicts if conflicts is None or some is None else conflicts.of(some)
            options: dict[str, Any] = {"batch_size": batch_size, "rng": rng, "conflicts": known}
            if kind == "none":
                return random_order(rows if some is None else some.size, **options)
            if kind == "teacher":
                numbers = self.communities(self.teacher or vectors) if communities is None else communities
                return joined(grouped(numbers if some is None else numbers[some]), **options)
            settings = dict(self.settings)
            if self.anneal:
                alpha = settings.get("alpha", self.method.settings["alpha"])
                settings["alpha"] = alpha * min(1.0, max(0, epoch - self.warmup) / self.anneal)
            queries, documents = (each if some is None else each[some] for each in vectors or ())
            return self.method.build(queries, documents, **options, **settings)

        if self.sources is None:
            return built(batch_size, np.random.default_rng([seed, epoch]))
        rows_of = grouped(self.sources)
        parts = parts_of(batch_size, len(rows_of))
        apart = [
            (some, built(batch_size // parts, np.random.default_rng([seed, epoch, k + 1]), some))
            for k, some in enumerate(rows_of)
        ]
        return mixed_batches(apart, parts=parts, rng=np.random.default_rng([seed, epoch]))

    def on_train_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Hand the model to the training set's sampler; on resuming, restore the saved order.

        Raises:
            InputError: the trainer trains another model than the planner was given.
        """
        super().on_train_begin(args, state, control, **more)
        model = more["model"]
        if self.model is not None and type(model) is type(self.model) and model is not self.model:
            raise InputError("the trainer trains another model than batch_sampler's; give both the same one")
        self.sampler.attach(encoder_of(model, args), scaled=similarity_of(model) == "cosine")
        if state.global_step:
            self.sampler.restore(checkpoint_of(args, state) / self.file)
        if self.method.vectors == "cached":
            self.on_train_end(args, state, control)
            self.watch = ForwardWatch(model, self.sampler, split=bool(args.accelerator_config.split_batches))
            self._resumed_at = state.global_step

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **more: Any) -> None:
        """Tell the sampler its epoch, and the watch where it begins."""
        super().on_epoch_begin(args, state, control, **more)
        if self.watch is not None:
            each = args.gradient_accumulation_steps
            steps = max(1, -(-len(more["train_dataloader"]) // each))
            self.watch.begin(self._resumed_at % steps * each)
            self._resumed_at = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """See that HOBIT-C's cache got the step's vectors."""
        if self.watch is not None:
            self.watch.check()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the model as it was."""
        if self.watch is not None:
            self.watch.stop()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save the order with the checkpoint."""
        if self.sampler.cache is not None:
            share_cache(self.sampler.cache)
        if state.is_world_process_zero:
            self.sampler.save(checkpoint_of(args, state) / self.file)


def batch_sampler(
    name: str, model: Any = None, *, positives: Sequence[tuple[str, str]] = (), **settings: Any
) -> BatchPlanner:
    """Return what sentence-transformers' trainers take as `batch_sampler`: it plans each epoch's batches.

        args = SentenceTransformerTrainingArguments(..., batch_sampler=foils.batch_sampler("hobit",
        model, seeds=1))

    Known positives, by equal texts and by `positives`, do not share a batch. The first text column
    is the query, the second the positive. A checkpoint holds the order of its epoch, so that
    resuming is exact.

    Args:
        name: random, hobit, hobit-c, ngame, walks or b3.
        model: the model that is trained, by which batches are planned. Default: the trainer's.
        positives: further (query text, document text) pairs known to be relevant.
        settings: of the method, as seeds=4, or warmup=1, anneal=3 (epochs).

    Raises:
        InputError: a setting out of range.
        UnknownNameError: no such method, or no such setting of it.
    """
    return BatchPlanner(name, settings, model=model, positives=positives)
