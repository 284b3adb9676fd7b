"""Batches in sentence-transformers' trainer: one argument, which plans each epoch from the model as it is.

    args = SentenceTransformerTrainingArguments(..., batch_sampler=foils.batch_sampler("hobit", model))
    trainer = SentenceTransformerTrainer(model, args, ...)

The trainer calls the argument for the training set and for every evaluation set; the latter keep plain order. When an
epoch begins, the training set's sampler embeds each distinct text once and builds the batches; dense and sparse
encoders will do. HOBIT-C's cache is filled by a forward hook on the model. `HookEvents`, a callback that transformers
gives to every trainer, tells the argument what the trainer does: so it embeds with the trainer's prompts and precision,
and saves the order with each checkpoint, so that resuming is exact. Under several processes each embeds its share, one
builds the batches, and all get the same ones; `accelerator_config={"split_batches": True}` divides each batch among
them. Needs torch and sentence-transformers: import this module where it is used.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partialmethod
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
from sentence_transformers.base.sampler import DefaultBatchSampler
from transformers import TrainerCallback
from transformers.trainer import DEFAULT_CALLBACKS

from foils.batching.batches import Batches, Conflicts, Rows, find_conflicts, random_order
from foils.batching.methods import SCHEDULE, TEACHER, method_named
from foils.batching.multi_dataset import Mixture, mixed_batches
from foils.batching.rivals import joined, members, rank_communities
from foils.batching.vectors import (
    BLOCK,
    DistinctTexts,
    EmbeddingCache,
    Encode,
    ForwardWatch,
    Vectors,
    broadcast,
    encoder_of,
    rank_and_count,
    share_cache,
)
from foils.encode.models import similarity_of
from foils.runtime.errors import FoilsError, FormatError, InputError

SAVED = "foils_batches.npz"


class EpochBatchSampler(DefaultBatchSampler):  # type: ignore[misc]
    """Batches of an epoch, in plain order until they are made by what the training set is given.

    Args:
        dataset: a `datasets.Dataset`.
        batch_size: rows per batch.
        drop_last: leave out a short last batch.
        valid_label_columns: names that mark the label column; it is neither query nor positive.
        generator: not used: what is drawn depends on the seed, the epoch and the model alone.
        seed: of every epoch's generator.
        planner: the hook that makes the batches.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        drop_last: bool,
        valid_label_columns: list[str] | None = None,
        generator: Any = None,
        seed: int = 0,
        *,
        planner: Any,
    ) -> None:
        super().__init__(dataset, batch_size, drop_last, valid_label_columns, generator, seed or 0)
        self.dataset, self.planner = dataset, planner
        aside = {*(valid_label_columns or ()), "dataset_name"}
        self.columns = [name for name in dataset.column_names if name not in aside]

    @property
    def rows(self) -> int:
        """How many rows an epoch has."""
        return len(self.dataset)

    def __len__(self) -> int:
        rows, size = self.rows, self.batch_size
        return int(rows // size if self.drop_last else -(-rows // size))

    def __iter__(self) -> Iterator[list[int]]:
        return (batch.tolist() for batch in islice(self.batches(), len(self)))

    def batches(self) -> Iterable[Rows]:
        """Return this epoch's batches, a short one last."""
        return Batches(np.arange(len(self.dataset)), self.batch_size)


def checkpoint_of(args: Any, state: Any) -> Path:
    """Return the folder of the checkpoint of this step."""
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


class BatchHook(TrainerCallback):  # type: ignore[misc]
    """What fills a trainer's batches: its `batch_sampler`, and what is around the loss; it may be a callback, too.

    Attributes:
        made: the sampler that it makes for each data set.
        file: in which a checkpoint keeps its state.
    """

    made: type[EpochBatchSampler] = EpochBatchSampler
    file = SAVED
    is_callback = has_trainer = False
    _top: Any = None

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note that it is a callback of the trainer itself, to which `HookEvents` need tell nothing."""
        self.is_callback = True

    def __call__(self, dataset: Any, batch_size: int, drop_last: bool, *rest: Any, **more: Any) -> EpochBatchSampler:
        """Return the sampler of a data set, as the trainer asks for it."""
        return self.made(dataset, batch_size, drop_last, *rest, **more, planner=self)

    def wrapped(self, loss: Any, model: Any) -> Any:
        """Return the loss to train with, which tells the hook what it needs to know of each step."""
        return loss

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell the sampler its epoch, which does not reach it through every wrapper of data loaders."""
        if self._top is not None:
            self._top.set_epoch(math.floor((state.epoch or 0) + 1e-6))

    def find_sampler(self, loader: Any) -> Any:
        """Return the training's sampler, from under accelerate's wrappers.

        Raises:
            InputError: the batches do not come from a sampler of this kind, or come from several.
        """
        sampler = getattr(loader, "batch_sampler", None)
        while sampler is not None and not isinstance(sampler, self.made):
            sampler = getattr(sampler, "batch_sampler", None)
        if sampler is None:
            raise InputError(
                "the trainer's batches do not come from this planner; pass batch_sampler=planner, and one data set"
            )
        self._top = sampler
        return sampler


class HookEvents(TrainerCallback):  # type: ignore[misc]
    """Tells what fills a trainer's batches (`args.batch_sampler`, where it is a `BatchHook`) what the trainer does.

    Every trainer that is made has one, which does nothing for trainers whose batches are filled otherwise.
    """

    def on_init_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Say that there is a trainer; the trainer's own callbacks, told later, may include the hook."""
        hook = getattr(args, "batch_sampler", None)
        if isinstance(hook, BatchHook):
            hook.is_callback, hook.has_trainer = False, True

    def _tell(self, event: str, args: Any, state: Any, control: Any, **given: Any) -> None:
        hook = getattr(args, "batch_sampler", None)
        if isinstance(hook, BatchHook) and not hook.is_callback:
            getattr(hook, event)(args, state, control, **given)

    on_train_begin = partialmethod(_tell, "on_train_begin")
    on_epoch_begin = partialmethod(_tell, "on_epoch_begin")
    on_step_end = partialmethod(_tell, "on_step_end")
    on_log = partialmethod(_tell, "on_log")
    on_save = partialmethod(_tell, "on_save")
    on_train_end = partialmethod(_tell, "on_train_end")


DEFAULT_CALLBACKS.append(HookEvents)  # transformers makes one of each of these classes for every trainer


class PlannedBatchSampler(EpochBatchSampler):
    """Batches of a data set whose first column is the query and whose second is the positive.

    Made by the trainer through a `BatchPlanner`, with the arguments of `EpochBatchSampler`. Without a trainer: make
    one, `attach` an encoder, call `set_epoch` before each epoch. Each epoch is built once, from vectors that are as new
    as the method asks for.

    Attributes:
        conflicts: the known positives among the rows, once an encoder is attached.
        cache: HOBIT-C's; None for other methods.
    """

    conflicts: Conflicts | None = None
    cache: EmbeddingCache | None = None
    _encode: Encode | None = None
    _planned: tuple[int, Batches] | None = None
    _vectors: EmbeddingCache | None = None
    _communities: Rows | None = None
    _texts: list[DistinctTexts] | None = None

    @property
    def rows(self) -> int:
        """How many rows an epoch has: all, or what a mixture takes."""
        mixture, rows = self.planner.mixture, len(self.dataset)
        return int(rows if mixture is None or mixture.rows != rows else mixture.epoch_rows)

    def attach(self, encode: Encode, *, scaled: bool = True) -> None:
        """Make this the sampler of the training set: from now on it builds batches.

        Args:
            encode: (texts, column) → (n, d) vectors by the current model.
            scaled: whether the model compares them by cosine, so that they are scaled to length 1.

        Raises:
            InputError: the data set lacks a query and a positive column, or the conflicts or the mixture are of
                another number of rows.
        """
        choice, count = self.planner, len(self.dataset)
        if len(self.columns) < 2:
            raise InputError(f"batches are built from a query and a positive column; got columns {self.columns}")
        for what, part in (("mixture is", choice.mixture), ("conflicts are", choice.known)):
            if part is not None and part.rows != count:
                raise InputError(f"the {what} of {part.rows} rows, the data set has {count}")
        again, self._encode, self.scaled = self._encode is not None, encode, scaled
        if again:
            return
        self.conflicts = choice.known
        if self.conflicts is None:
            texts = (self.dataset[:][name] for name in self.columns[:2])
            self.conflicts = find_conflicts(*texts, positives=choice.positives)
        if choice.method.vectors == "cached":
            self.cache = EmbeddingCache(count, scaled=scaled)

    def __iter__(self) -> Iterator[list[int]]:
        for batch in super().__iter__():
            if self.cache is not None:
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
        choice, begin = self.planner, time.perf_counter()
        kind = choice.kind(epoch)
        vectors = self._current_vectors(epoch, kind)
        embedded = time.perf_counter()
        pair = None if vectors is None else (vectors.queries, vectors.documents)
        if kind == "teacher" or (kind == "current" and choice.refresh == 1):
            self._vectors = None  # not needed again
        built: Batches | FoilsError | None = None
        if rank_and_count()[0] == 0:
            try:
                if kind == "teacher" and self._communities is None:
                    self._communities = choice.communities(choice.teacher or pair)
                how: dict[str, Any] = {"conflicts": self.conflicts, "seed": self.seed, "communities": self._communities}
                built = choice.build(epoch, pair, self.batch_size, rows=len(self.dataset), **how)
            except FoilsError as error:
                built = error
        batches, self._communities = broadcast((built, self._communities))
        if isinstance(batches, FoilsError):
            raise batches
        times = {"seconds_embedding": embedded - begin, "seconds_building": time.perf_counter() - embedded}
        choice.history.append({"epoch": float(epoch), **times})
        return cast("Batches", batches)

    def _current_vectors(self, epoch: int, kind: str) -> EmbeddingCache | None:
        """Return the vectors that this epoch's batches are built from; embeds only what is due."""
        choice, drawn = self.planner, self.planner.drawn(epoch, self.seed)

        def among(rows: Rows) -> Rows:
            return rows if drawn is None else np.intersect1d(rows, drawn)

        if self.cache is not None:  # of HOBIT-C; the passes of a warm-up fill it too
            share_cache(self.cache)
            self._vectors, old = self.cache, self.cache.turn()
            return None if kind == "none" else self._embedded(self.cache, among(old))
        if kind == "none" or (kind == "teacher" and (choice.teacher or self._communities is not None)):
            return None
        due = (epoch - choice.warmup) % choice.refresh == 0 and kind == "current"
        if self._vectors is None or due:
            self._vectors = EmbeddingCache(len(self.dataset), scaled=self.scaled)
        return self._embedded(self._vectors, among(self._vectors.missing))

    def _embedded(self, vectors: EmbeddingCache, rows: Rows) -> EmbeddingCache:
        """Return the vectors with these rows embedded anew, each process its share.

        Rows of the same query go together, so that its text is embedded once; a positive of several queries may be
        embedded in several processes.
        """
        if not rows.size or self._encode is None:
            return vectors
        if self._texts is None:
            self._texts = [DistinctTexts(self.dataset, name) for name in self.columns[:2]]
        rank, count = rank_and_count()
        by_query = rows[np.argsort(self._texts[0].numbers[rows], kind="stable")]
        own = np.array_split(by_query, count)[rank]
        if own.size:
            (queries, query), (documents, document) = (column.embedded(own, self._encode) for column in self._texts)
            for start in range(0, own.size, BLOCK):
                part = slice(start, start + BLOCK)
                vectors.update(own[part], queries[query[part]], documents[document[part]])
        share_cache(vectors)
        return vectors

    def save(self, path: Path) -> None:
        """Write the epoch's order, and the vectors that later epochs depend on, to `path`, whole."""
        batches = self.batches()
        arrays: dict[str, Any] = {"epoch": self.epoch, "order": batches.order}
        if self._vectors is not None and self._vectors.filled.any():
            arrays.update(self._vectors.state())
        if self._communities is not None:
            arrays["communities"] = self._communities
        temporary = path.with_suffix(".part.npz")
        np.savez(temporary, **arrays)
        temporary.replace(path)

    def restore(self, path: Path) -> None:
        """Take the order of the running epoch, and what later epochs depend on, from a checkpoint.

        Raises:
            InputError: there is no such file, or it lacks the vectors of HOBIT-C's cache.
            FormatError: it is damaged, or of another data set.
        """
        if not path.is_file():
            raise InputError(
                f"resuming needs the order of batches saved with the checkpoint, {path}, which is not there; start "
                "anew, or resume from a checkpoint that was saved with it in the same folder"
            )
        rows, among = len(self.dataset), None if self.planner.mixture is None else len(self.dataset)
        try:
            with np.load(path, allow_pickle=False) as saved:
                arrays = dict(saved)
            order, communities = arrays["order"], arrays.get("communities")
            if order.size != self.rows or (communities is not None and communities.shape != (rows,)):
                raise InputError(f"of {order.size} rows, and an epoch of the data set has {self.rows}")
            planned = int(arrays["epoch"]), Batches(order, self.batch_size, among)
            if "filled" in arrays:
                vectors = self.cache or EmbeddingCache(rows, scaled=self.scaled)
                vectors.restore(arrays)
                self._vectors = vectors
        except Exception as error:  # NumPy's and zip's readers raise what the damage leads them to
            raise FormatError(f"damaged order of batches ({error}); resume from another checkpoint", path) from error
        if self.cache is not None and "filled" not in arrays:
            raise InputError(f"{path} lacks the vectors that HOBIT-C had cached; resume from another checkpoint")
        self._planned, self._communities = planned, communities


class BatchPlanner(BatchHook):
    """Which batches a training builds, from which vectors, and how: the trainer's `batch_sampler`.

    Args:
        name: one of `METHODS`.
        model: that is trained; None: the trainer's.
        settings: the method's own settings, and those of `SCHEDULE`: `warmup`, epochs of random batches before the
            method begins (HOBIT A.9); `refresh`, embed anew every so many epochs; `anneal`, epochs after the warm-up
            over which HOBIT's α rises linearly from 0 to its value (0: constant).
        positives: further (query text, document text) pairs known to be relevant.
        known: conflicts among the rows of the one training set, as `foils.batching.batches.known_conflicts` finds
            them in a collection; None: found by the texts of the data set and `positives`.
        teacher: (queries, documents) vectors (N, d) for B3; None: the model's own before training.
        mixture: of the one training set, which holds several data sets; None: it is one.
        more: further settings, as keywords.

    Attributes:
        history: of each epoch that was built: its number, and the seconds of embedding and of building.

    Raises:
        InputError: an unknown method or setting, or counts out of range.
    """

    made = PlannedBatchSampler
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
        mixture: Mixture | None = None,
        **more: Any,
    ) -> None:
        self.name, self.settings = name, {**(settings or {}), **more}
        self.method = method_named(name, self.settings)
        if TEACHER in self.settings:
            raise InputError(f"{TEACHER}: foils train alone reads it; in Python give a teacher's vectors")
        counts = [self.settings.pop(each, default) for each, default in SCHEDULE.items()]
        self.warmup, self.refresh, self.anneal = counts
        if not all(isinstance(each, int) and each >= least for each, least in zip(counts, (0, 1, 0), strict=True)):
            raise InputError(
                f"warmup and anneal are at least 0 epochs, refresh at least 1; got {self.warmup}, {self.anneal}, "
                f"{self.refresh}"
            )
        if self.anneal and "alpha" not in self.method.settings:
            raise InputError(f"anneal raises the setting alpha, which {name} does not have")
        self.positives, self.known = tuple(positives), known
        self.teacher, self.mixture = teacher, mixture
        self.history: list[dict[str, float]] = []
        self.model, self.watch = model, ForwardWatch()
        self.sampler: PlannedBatchSampler | None = None

    def kind(self, epoch: int) -> str:
        """Return whose vectors an epoch's batches are built from, as `BatchingMethod.vectors` has it."""
        return "none" if epoch < self.warmup else self.method.vectors

    def drawn(self, epoch: int, seed: int) -> Rows | None:
        """Return the rows whose vectors an epoch's batches are built from, ascending; None: all.

        A teacher's communities are of all rows, once for the training.
        """
        if self.mixture is None or self.kind(epoch) == "teacher":
            return None
        return np.unique(np.concatenate(self.mixture.drawn(epoch, seed=seed)))

    def communities(self, vectors: Any) -> Rows:
        """Return (N,) the number of each row's community by a teacher's vectors; of a mixture, each data set's own."""
        queries, documents = vectors
        if self.mixture is None:
            return rank_communities(queries, documents, **self.settings)
        numbers = self.mixture.source_of * len(queries)
        for k in range(len(self.mixture.names)):
            rows = np.flatnonzero(self.mixture.source_of == k)
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
        """Return an epoch's batches; of a mixture, each data set's apart, and joined.

        Args:
            epoch: counted from 0.
            vectors: (N, d) of queries and of documents; None where the epoch needs none. Of a mixture, rows that are
                not `drawn` are not looked at.
            batch_size: rows per batch.
            rows: N.
            conflicts: rows to keep apart.
            seed: epoch e uses the generator of (seed, e).
            communities: (N,) of a teacher's vectors.

        Raises:
            InputError: vectors are needed, and there are none.
        """

        def built(batch_size: int, rng: np.random.Generator, of: Rows | None = None) -> Batches:
            """Batches over all rows or, by their places, over some of them."""
            kind, known = self.kind(epoch), conflicts if conflicts is None or of is None else conflicts.of(of)
            options: dict[str, Any] = {"batch_size": batch_size, "rng": rng, "conflicts": known}
            if kind == "none":
                return random_order(rows if of is None else of.size, **options)
            if kind == "teacher":
                numbers = self.communities(self.teacher or vectors) if communities is None else communities
                return joined(members(numbers, of), **options)
            settings = dict(self.settings)
            if self.anneal:
                alpha = settings.get("alpha", self.method.settings["alpha"])
                settings["alpha"] = alpha * min(1.0, max(0, epoch - self.warmup) / self.anneal)
            queries, documents = (each if of is None else each[of] for each in vectors or ())
            return self.method.build(queries, documents, **options, **settings)

        if self.mixture is None:
            return built(batch_size, np.random.default_rng([seed, epoch]))
        parts, drawn = self.mixture.parts_of(batch_size), self.mixture.drawn(epoch, seed=seed)
        sources = [
            (of, built(batch_size // parts, np.random.default_rng([seed, epoch, k + 1]), of))
            for k, of in enumerate(drawn)
        ]
        rng = np.random.default_rng([seed, epoch])
        return mixed_batches(sources, parts=parts, among=self.mixture.rows, rng=rng)

    def __getstate__(self) -> dict[str, Any]:
        """Leave model, vectors and samplers out of the pickled training arguments."""
        left_out = dict.fromkeys(("_top", "model", "teacher", "known", "mixture", "watch", "sampler"))
        return {**self.__dict__, **left_out, "has_trainer": False}

    def on_train_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Hand the model to the training set's sampler; on resuming, restore the saved order.

        Raises:
            InputError: the trainer trains another model than the planner was given.
        """
        model, self.sampler = given["model"], self.find_sampler(given["train_dataloader"])
        if self.model is not None and type(model) is type(self.model) and model is not self.model:
            raise InputError("the trainer trains another model than batch_sampler was given; give both the same one")
        self.sampler.attach(encoder_of(model, args), scaled=similarity_of(model) == "cosine")
        if state.global_step:
            self.sampler.restore(checkpoint_of(args, state) / self.file)
        if self.method.vectors == "cached":
            self.watch.start(model, self.sampler, split=bool(args.accelerator_config.split_batches))
            self._resumed_at = state.global_step

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **given: Any) -> None:
        """Tell the sampler its epoch, and the watch where it begins."""
        super().on_epoch_begin(args, state, control, **given)
        if self.method.vectors == "cached":
            each = args.gradient_accumulation_steps
            steps = max(1, -(-len(given["train_dataloader"]) // each))
            self.watch.begin(self._resumed_at % steps * each)
            self._resumed_at = 0

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """See that HOBIT-C's cache got the step's vectors."""
        self.watch.check()

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the model as it was."""
        self.watch.stop()

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Save the order with the checkpoint."""
        if self.sampler is not None:
            if self.sampler.cache is not None:
                share_cache(self.sampler.cache)
            if state.is_world_process_zero:
                self.sampler.save(checkpoint_of(args, state) / self.file)


def batch_sampler(
    name: str, model: Any = None, *, positives: Sequence[tuple[str, str]] = (), **settings: Any
) -> BatchPlanner:
    """Return what sentence-transformers' trainers take as `batch_sampler`: it plans each epoch's batches.

        args = SentenceTransformerTrainingArguments(..., batch_sampler=foils.batch_sampler("hobit", model, seeds=1))

    Known positives, by equal texts and by `positives`, do not share a batch. The first text column is the query, the
    second the positive. A checkpoint holds the order of its epoch, so that resuming is exact.

    Args:
        name: random, hobit, hobit-c, mutual, ngame, walks or b3.
        model: the model that is trained, by which batches are planned. Default: the trainer's.
        positives: further (query text, document text) pairs known to be relevant.
        settings: of the method, as seeds=4, or warmup=1, refresh=2, anneal=3 (epochs).

    Raises:
        InputError: a setting out of range.
        UnknownNameError: no such method, or no such setting of it.
    """
    return BatchPlanner(name, settings, model=model, positives=positives)
