"""What a tuning costs, and how much of it fits into the time there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foils.tuning.plan import Section

if TYPE_CHECKING:
    from foils.tuning.pace import Pace

DEV_DOCUMENTS, DEV_PAIRS = 1_000, 10_000  # that an encoder embeds for dev, and that a reranker scores
KEEP_DOCUMENTS, KEEP_PAIRS = 1_000, 5_000  # of the collection that must not be forgotten
KEEP_SHARE, LEAST_KEPT = 0.1, 0.2  # of the time, at most, for measuring it; of its documents or pairs, at least
ALPHAS = (0.25, 0.5, 0.75)
"""Shares of the tuned weights in the merges that are tried."""
LEAST_DOCUMENTS, LEAST_QUERIES = 500, 50
LEAST_RERANKED = 20  # queries of dev, at least
MOST_ROWS = 50_000  # of an epoch that short runs take whole; of more, a part
ALL = "no limit of time was set"
_SEVERAL = (
    "the default learning rate of this kind of model, a third and three times of it; more epochs for the better half, "
    "as long as dev rises"
)
MULTIPLES = (1 / 3, 1.0, 3.0)
"""Learning rates that are tried, as multiples of the default of the model's kind."""


@dataclass(frozen=True)
class Work:
    """How much there is to do.

    Attributes:
        documents: of the collection. `train`, `dev`, `test`: queries of these splits.
        rows_per_query: rows that a query has in training.
    """

    documents: int
    train: int
    dev: int
    rows_per_query: float
    test: int = 0


@dataclass(frozen=True)
class Budget:
    """What fits into the time.

    Attributes:
        pace: of this machine.
        work: that there is.
        seconds: that are left; None: as many as it takes.
        rate: default learning rate of the model.
        keep: whether another collection is measured, which must not be forgotten.
        depth: documents of each query that are reranked; 0: an encoder searches all.
    """

    pace: Pace
    work: Work
    seconds: float | None
    rate: float
    keep: bool = False
    depth: int = 0

    def documents(self) -> Section:
        """Return how many documents are searched, and how many queries are trained on; of rerankers, tested on too."""
        work, pace, seconds = self.work, self.pace, self.seconds
        whole: Section = {"count": work.documents, "train_queries": work.train}
        if self.depth:
            whole = {**whole, "test_queries": work.test}
        if seconds is None:
            return {**whole, "reason": f"all of them; {ALL}"}
        affordable = max(LEAST_QUERIES, int(0.45 * seconds / (work.rows_per_query * pace.row)))
        queries, texts = min(work.train, affordable), int(0.15 * seconds / pace.text)
        if self.depth:
            fitting = {**whole, "train_queries": queries}
            fitting["test_queries"] = min(work.test, max(LEAST_QUERIES, texts // self.depth))
            reason = f"of {work.train:,} training and {work.test:,} test queries, what fits into the time"
        else:
            fitting = {"count": min(work.documents, max(LEAST_DOCUMENTS, texts)), "train_queries": queries}
            reason = self._reason()
        return {**fitting, "reason": "all of them; they fit into the time" if fitting == whole else reason}

    def _reason(self) -> str:
        work = self.work
        return (
            f"of {work.documents:,} documents and {work.train:,} training queries, what fits into the time: "
            "the positives, the documents that BM25 ranks first for queries of dev and test, and random ones; "
            "measures are of these documents alone"
        )

    def _texts(self, documents: Section) -> int:
        """Documents that a model embeds for test, or pairs that it scores."""
        return int(documents["test_queries"]) * self.depth if self.depth else int(documents["count"])

    def trials(self, documents: Section) -> Section:
        """Return which short runs are made: the most thorough that fits."""
        queries = int(documents["train_queries"])
        rows = queries * self.work.rows_per_query
        dev = min(DEV_DOCUMENTS, int(documents["count"]))
        if self.depth:
            dev = min(DEV_PAIRS, self.work.dev * self.depth)
        if self.seconds is None:
            share = min(1.0, MOST_ROWS / rows / 4) if rows > MOST_ROWS else 1.0
            chosen: tuple[Sequence[float], tuple[int, ...], float, int] = (
                (MULTIPLES, (1, 2, 3), 1.0, 0) if share == 1.0 else (MULTIPLES, (1,), share, 2)
            )
            reason = f"the whole search; {ALL}"
        else:
            least = LEAST_RERANKED * self.depth if self.depth else 100
            dev = min(dev, max(least, int(0.03 * self.seconds / self.pace.text)))
            texts = 2 * self._texts(documents) + _texts_to_keep(self._kept(dev), dev)
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
        texts = 2 * self._texts(documents) + _texts_to_keep(kept, dev)
        return texts * self.pace.text + self._cost(way, rows, dev)

    def _kept(self, dev: int) -> int:
        """Return how many documents of the collection to keep are searched: 0 where too few fit into the time."""
        most = KEEP_PAIRS if self.depth else KEEP_DOCUMENTS
        if self.seconds is None or not self.keep:
            return most if self.keep else 0
        texts = KEEP_SHARE * self.seconds / self.pace.text
        sizes = range(most, int(LEAST_KEPT * most) - 1, -most // 10)
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
    """Return how many texts are embedded, or pairs scored, so that a collection is kept, at most.

    Args:
        documents: of it that are searched for its test queries, by the base and the tuned model; for dev half of them,
            by these and all merges.
        dev: documents of the tuned collection's dev, which are searched by the merges.
    """
    return (2 + (2 + len(ALPHAS)) / 2) * documents + len(ALPHAS) * dev if documents else 0.0


def _rounded(rate: float) -> float:
    """A learning rate of two digits."""
    return float(f"{rate:.2g}")
