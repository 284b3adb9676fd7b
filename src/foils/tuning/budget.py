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
ENOUGH_ROWS = 10_000
"""Rows that have to fit into the time before any of it goes into choosing: with fewer, one training takes all of it."""


@dataclass(frozen=True)
class Way:
    """How a training is chosen, and made.

    Attributes:
        epochs: of the rounds of short runs.
        multiples: learning rates that these try, in multiples of the default.
        share: of the queries that they train on.
        final: epochs of the training on all queries after them; 0: the best of the short runs is the model.
        contest: whether the training is made with other negatives, or without any, too.
    """

    epochs: tuple[int, ...]
    multiples: Sequence[float] = MULTIPLES
    share: float = 1.0
    final: int = 0
    contest: bool = True


CHOOSING = (
    Way((1, 2, 3)),
    Way((1,), share=1 / 2, final=3),
    Way((1,), share=1 / 4, final=2),
    Way((1,), share=1 / 4, final=1),
    Way((1,), share=1 / 8, final=1),
    Way((1,), (1.0,)),
)
"""The most thorough first."""
AT_ONCE = tuple(Way((epochs,), (1.0,), contest=False) for epochs in (4, 3, 2, 1))
"""One training at the rate that suits few steps, the longest first; where others of a batch count, on pairs alone."""


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
        few_steps: multiple of the rate that suits a training of few steps.
    """

    pace: Pace
    work: Work
    seconds: float | None
    rate: float
    keep: bool = False
    depth: int = 0
    few_steps: float = 1.0

    def documents(self) -> Section:
        """Return how many documents are searched, and how many queries are trained on; of rerankers, tested on too."""
        work, pace, seconds = self.work, self.pace, self.seconds
        whole: Section = {"count": work.documents, "train_queries": work.train}
        if self.depth:
            whole = {**whole, "test_queries": work.test}
        if seconds is None:
            return {**whole, "reason": f"all of them; {ALL}"}
        rows = 0.45 * seconds / pace.row if self._chooses else 0.6 * seconds / pace.pair
        affordable = max(LEAST_QUERIES, int(rows / work.rows_per_query))
        queries, texts = min(work.train, affordable), int(0.15 * seconds / pace.text)
        if self.depth:
            fitting = {**whole, "train_queries": queries}
            fitting["test_queries"] = min(work.test, max(LEAST_QUERIES, texts // self.depth))
            reason = f"of {work.train:,} training and {work.test:,} test queries, what fits into the time"
        else:
            fitting = {"count": min(work.documents, max(LEAST_DOCUMENTS, texts)), "train_queries": queries}
            reason = self._reason(all_documents=fitting["count"] == work.documents)
        return {**fitting, "reason": "all of them; they fit into the time" if fitting == whole else reason}

    def _reason(self, *, all_documents: bool) -> str:
        work = self.work
        if all_documents:
            return f"all documents; of {work.train:,} training queries, what fits into the time"
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
            way = CHOOSING[0] if share == 1.0 else Way((1,), share=share, final=2)
            reason = f"the whole search; {ALL}"
        else:
            least = LEAST_RERANKED * self.depth if self.depth else 100
            dev = min(dev, max(least, int(0.03 * self.seconds / self.pace.text)))
            texts = 2 * self._texts(documents) + _texts_to_keep(self._kept(dev), dev)
            left = self.seconds - texts * self.pace.text
            ways = CHOOSING if self._chooses else (*CHOOSING[:2], *AT_ONCE)
            way = next((way for way in ways if self._cost(way, rows, dev) <= left), ways[-1])  # the least that there is
            reason = "the most thorough search that fits into the time"
            if not way.contest:
                reason = "so little training fits into the time that one takes all of it"
        rate = self.rate if way.contest else self.few_steps * self.rate
        return {
            "learning_rates": [_rounded(rate * multiple) for multiple in way.multiples],
            "epochs": list(way.epochs),
            "queries": max(min(queries, LEAST_QUERIES), int(way.share * queries)),
            "final_epochs": way.final,
            "contest": way.contest,
            "dev_documents": dev,
            "keep_documents": self._kept(dev),
            "extend": self.seconds is None and way.share == 1.0,
            "reason": f"{reason}: {self._rates(way)}",
        }

    def _rates(self, way: Way) -> str:
        if len(way.multiples) > 1:
            return _SEVERAL
        return f"the default learning rate{'' if way.contest else ' of few steps'} alone"

    @property
    def _chooses(self) -> bool:
        """Whether so many rows fit into the time that a part of it goes into choosing; of a reranker it always does."""
        return self.seconds is None or self.depth > 0 or 0.45 * self.seconds / self.pace.row >= ENOUGH_ROWS

    def estimate(self, documents: Section, trials: Section) -> float:
        """Return about how many seconds the tuning takes."""
        rows = int(documents["train_queries"]) * self.work.rows_per_query
        share = int(trials["queries"]) / max(1, int(documents["train_queries"]))
        way = Way(
            tuple(trials["epochs"]),
            trials["learning_rates"],
            share,
            int(trials["final_epochs"]),
            bool(trials.get("contest", True)),
        )
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

    def _cost(self, way: Way, rows: float, dev: int) -> float:
        """Return the seconds of the short runs, the last training, and the contest."""
        row = self.pace.row if way.contest else self.pace.pair
        survivors, seconds = len(way.multiples), 0.0
        measure = dev * self.pace.text + self.pace.start
        for each in way.epochs:
            seconds += survivors * (each * way.share * rows * row + measure)
            survivors = (survivors + 1) // 2
        longest = way.final * rows if way.final else way.epochs[-1] * way.share * rows
        trained = longest * row + measure
        return seconds + (bool(way.final) + way.contest) * trained + dev * self.pace.text


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
