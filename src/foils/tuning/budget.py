"""What a tuning costs, and how much of it fits into the time there is."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foils.data.collection import Collection
from foils.data.parts import drawn_judgements
from foils.tuning.plan import Section

TEXTS, PROBED, BATCH = 32, 24, 8  # texts embedded, queries trained on and rows of a batch, for the pace
DEV_DOCUMENTS = 1_000
DEV_QUERIES = 500
KEEP_DOCUMENTS, LEAST_KEPT = 1_000, 200  # of the collection that must not be forgotten
KEEP_SHARE = 0.1  # of the time, at most, for measuring it
ALPHAS = (0.25, 0.5, 0.75)
"""Shares of the tuned weights in the merges that are tried."""
LEAST_DOCUMENTS, LEAST_QUERIES = 500, 50
MOST_ROWS = 50_000  # of an epoch that short runs take whole; of more, a part
ALL = "no limit of time was set"
_SEVERAL = (
    "the default learning rate of this kind of model, a third and three times of it; more epochs for the better half, "
    "as long as dev rises"
)
MULTIPLES = (1 / 3, 1.0, 3.0)
"""Learning rates that are tried, as multiples of the default of the model's kind."""


@dataclass(frozen=True)
class Pace:
    """How fast this machine is with a model.

    Attributes:
        text: seconds for embedding a document.
        row: seconds for training on a row.
        start: seconds that a training takes beside its rows.
    """

    text: float
    row: float
    start: float

    @classmethod
    def measured(cls, model: Any, collection: Collection, *, max_length: int | None, seed: int, rows: int) -> Pace:
        """Embed a few documents, and train three steps on a copy that is thrown away.

        Args:
            model: a SentenceTransformer; it is changed.
            collection: with judgements to train on.
            max_length: tokens after which texts are cut.
            seed: of what is drawn.
            rows: of a batch, as trainings will have them; a static embedding's step costs the same whatever its rows.
        """
        rng = np.random.default_rng([seed, 3])
        if max_length is not None and model.max_seq_length not in (None, float("inf")):
            model.max_seq_length = min(max_length, model.max_seq_length)
        texts = collection.document_texts(rng.integers(len(collection.documents), size=2 * TEXTS))
        model.encode_document(texts[:TEXTS], batch_size=16, show_progress_bar=False)
        begin = time.perf_counter()
        model.encode_document(texts[TEXTS:], batch_size=16, show_progress_bar=False)
        text = (time.perf_counter() - begin) / TEXTS
        step, start = _seconds_of_steps(model, collection, max_length, seed)
        return cls(text, step / (rows if is_static(model) else BATCH), start)


def is_static(model: Any) -> bool:
    """Tell whether a model is a bag of word vectors, whose training costs next to nothing."""
    from foils.training.models import kind_of

    return kind_of(model) == "static embedding"


def _seconds_of_steps(model: Any, collection: Collection, max_length: int | None, seed: int) -> tuple[float, float]:
    """Return the seconds of a step of `BATCH` triplets, and of a training beside its steps."""
    from transformers import TrainerCallback

    from foils.mining import RandomRetriever, mine_negatives
    from foils.training.bi_encoder import train_bi_encoder
    from foils.training.data import training_set
    from foils.training.settings import TrainSettings

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Notes the time of each step's end."""

        def __init__(self) -> None:
            self.ends: list[float] = []

        def on_step_end(self, *_: Any, **__: Any) -> None:
            """Note it."""
            self.ends.append(time.perf_counter())

    probe = replace(
        collection, qrels={**collection.qrels, "train": drawn_judgements(collection, "train", PROBED, seed)}
    )
    mined = mine_negatives(probe, RandomRetriever(probe, seed=seed), split="train", top=1)
    clock, begin = Clock(), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="foils-pace-") as folder:
        train_bi_encoder(
            model, training_set(probe, mined, max_positives=1), folder,
            settings=TrainSettings(batch_size=BATCH, max_length=max_length, seed=seed), callbacks=[clock],
        )  # fmt: skip
    total = time.perf_counter() - begin
    step = (clock.ends[-1] - clock.ends[0]) / (len(clock.ends) - 1) if len(clock.ends) > 1 else total / 3
    return step, max(0.0, total - step * len(clock.ends))


@dataclass(frozen=True)
class Work:
    """How much there is to do.

    Attributes:
        documents: of the collection. `train`, `dev`: queries of these splits.
        rows_per_query: rows that a query has in training.
    """

    documents: int
    train: int
    dev: int
    rows_per_query: float


@dataclass(frozen=True)
class Budget:
    """What fits into the time.

    Attributes:
        pace: of this machine.
        work: that there is.
        seconds: that are left; None: as many as it takes.
        rate: default learning rate of the model.
        keep: whether another collection is measured, which must not be forgotten.
    """

    pace: Pace
    work: Work
    seconds: float | None
    rate: float
    keep: bool = False

    def documents(self) -> Section:
        """Return how many documents are searched and how many queries are trained on."""
        work, pace, seconds = self.work, self.pace, self.seconds
        if seconds is None:
            return {"count": work.documents, "train_queries": work.train, "reason": f"all of them; {ALL}"}
        affordable = max(LEAST_QUERIES, int(0.45 * seconds / (work.rows_per_query * pace.row)))
        queries = min(work.train, affordable)
        count = min(work.documents, max(LEAST_DOCUMENTS, int(0.15 * seconds / pace.text)))
        if count == work.documents and queries == work.train:
            return {"count": count, "train_queries": queries, "reason": "all of them; they fit into the time"}
        reason = (
            f"of {work.documents:,} documents and {work.train:,} training queries, what fits into the time: "
            "the positives, the documents that BM25 ranks first for queries of dev and test, and random ones; "
            "measures are of these documents alone"
        )
        return {"count": count, "train_queries": queries, "reason": reason}

    def trials(self, documents: Section) -> Section:
        """Return which short runs are made: the most thorough that fits."""
        queries = int(documents["train_queries"])
        rows = queries * self.work.rows_per_query
        dev = min(DEV_DOCUMENTS, int(documents["count"]))
        if self.seconds is None:
            share = min(1.0, MOST_ROWS / rows / 4) if rows > MOST_ROWS else 1.0
            chosen: tuple[Sequence[float], tuple[int, ...], float, int] = (
                (MULTIPLES, (1, 2, 3), 1.0, 0) if share == 1.0 else (MULTIPLES, (1,), share, 2)
            )
            reason = f"the whole search; {ALL}"
        else:
            dev = min(dev, max(100, int(0.03 * self.seconds / self.pace.text)))
            texts = 2 * int(documents["count"]) + _texts_to_keep(self._kept(dev), dev)
            left = self.seconds - texts * self.pace.text
            chosen = next(
                (way for way in WAYS if self._cost(way, rows, dev) <= left), WAYS[-1]
            )  # the last is the least that there is
            reason = "the most thorough search that fits into the time"
        multiples, epochs, share, final = chosen
        return {
            "learning_rates": [_rounded(self.rate * multiple) for multiple in multiples],
            "epochs": list(epochs),
            "queries": max(min(queries, LEAST_QUERIES), int(share * queries)),
            "final_epochs": final,
            "dev_documents": dev,
            "keep_documents": self._kept(dev),
            "extend": self.seconds is None and share == 1.0,
            "reason": f"{reason}: {_SEVERAL if len(multiples) > 1 else 'the default learning rate alone'}",
        }

    def estimate(self, documents: Section, trials: Section) -> float:
        """Return about how many seconds the tuning takes."""
        rows = int(documents["train_queries"]) * self.work.rows_per_query
        share = int(trials["queries"]) / max(1, int(documents["train_queries"]))
        way = (trials["learning_rates"], tuple(trials["epochs"]), share, int(trials["final_epochs"]))
        dev, kept = int(trials["dev_documents"]), int(trials.get("keep_documents", 0))
        texts = 2 * int(documents["count"]) + _texts_to_keep(kept, dev)
        return texts * self.pace.text + self._cost(way, rows, dev)

    def _kept(self, dev: int) -> int:
        """Return how many documents of the collection to keep are searched: 0 where too few fit into the time."""
        if self.seconds is None or not self.keep:
            return KEEP_DOCUMENTS if self.keep else 0
        texts = KEEP_SHARE * self.seconds / self.pace.text
        sizes = range(KEEP_DOCUMENTS, LEAST_KEPT - 1, -100)
        return next((size for size in sizes if _texts_to_keep(size, dev) <= texts), 0)

    def _cost(self, way: tuple[Sequence[float], tuple[int, ...], float, int], rows: float, dev: int) -> float:
        """Return the seconds of the short runs, and of the last training, with mined negatives and without."""
        multiples, epochs, share, final = way
        survivors, seconds = len(multiples), 0.0
        measure = dev * self.pace.text + self.pace.start
        for each in epochs:
            seconds += survivors * (each * share * rows * self.pace.row + measure)
            survivors = (survivors + 1) // 2
        longest = final * rows if final else epochs[-1] * share * rows
        trained = longest * self.pace.row + measure
        return seconds + (2 * trained if final else trained) + dev * self.pace.text


WAYS: tuple[tuple[Sequence[float], tuple[int, ...], float, int], ...] = (
    (MULTIPLES, (1, 2, 3), 1.0, 0),
    (MULTIPLES, (1,), 1 / 2, 3),
    (MULTIPLES, (1,), 1 / 4, 2),
    (MULTIPLES, (1,), 1 / 4, 1),
    (MULTIPLES, (1,), 1 / 8, 1),
    ((1.0,), (1,), 1.0, 0),
)
"""Learning rates, epochs of the rounds, share of the queries in them, and epochs of the training on all of them after
that (0: the best of the short runs is the model). The most thorough first."""


def _texts_to_keep(documents: int, dev: int) -> float:
    """Return how many texts are embedded so that a collection is kept, at most.

    Args:
        documents: of it that are searched for its test queries, by the base and the tuned model; for dev half of them,
            by these and all merges.
        dev: documents of the tuned collection's dev, which are searched by the merges.
    """
    return (2 + (2 + len(ALPHAS)) / 2) * documents + len(ALPHAS) * dev if documents else 0.0


def _rounded(rate: float) -> float:
    """A learning rate of two digits."""
    return float(f"{rate:.2g}")
