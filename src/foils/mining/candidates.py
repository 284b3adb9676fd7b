"""From a ranking of documents per query to negatives: positives out, look-alikes of positives marked, short lists told.

A retriever ranks; what a negative is, is decided here, once, for every way of ranking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import IDENTICAL, Collection, Rows
from foils.data.negatives import Negatives, negatives_table
from foils.data.run import ranks_within
from foils.data.store import Provenance
from foils.mining.filters import with_positives
from foils.mining.look_alikes import EQUAL, NEAR, LookAlikes
from foils.mining.pairs import Draw, Marks, Pairs, PairScorer, Rule, Scores
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.parallel import map_shards

BEFORE = "ranked before the window"
NOT_DRAWN = "not drawn"
QUERIES = 4_096  # ranked at once
SPARE = 8  # ranked beyond what is asked for, so that look-alikes seldom need a second, deeper search
DEPTH = 10  # times `top`: where the window ends when rules reject and no end is given


class Retriever(Protocol):
    """Ranks documents of a collection for queries of it.

    One that has an attribute `portable`, and it is true, may be sent to other processes: a ranking depends on its
    query alone, and nothing is embedded or kept on the way.

    Attributes:
        name: of the source.
        short: why a list may end before the collection does.
    """

    name: str
    short: str

    def search(self, query_rows: Rows, depth: int) -> tuple[Rows, Scores]:
        """Rank documents, best first, ties by document position.

        Args:
            query_rows: (n,) rows of queries.
            depth: how many; a deeper search begins with the same documents.

        Returns:
            Document rows (n, depth), −1 after the end of a list, and their scores (n, depth), NaN there and where
            the source has none.
        """
        ...


@dataclass(frozen=True)
class Mined:
    """What mining gave.

    Attributes:
        negatives: the table; rows that a rule rejected are in it, with the reason.
        queries: number of queries of the split.
        positives_left_out: labelled positives that the ranking held above its last negative.
        recaptured: of them, those within the window of ranks: what it would return as negatives, were they not known.
        rejected: reason -> number of rows.
        short: reason -> number of queries with fewer than `top` negatives.
    """

    negatives: Negatives
    queries: int
    positives_left_out: int
    recaptured: int
    rejected: dict[str, int]
    short: dict[str, int]


def mine(
    collection: Collection,
    retriever: Retriever,
    *,
    split: str,
    top: int,
    near_duplicate: float = 0.9,
    ranks: tuple[int, int | None] = (0, None),
    rules: Sequence[Rule] = (),
    scorer: PairScorer | None = None,
    fill: bool = True,
    draw: Draw | None = None,
    seed: int = 0,
    made: Provenance | None = None,
) -> Mined:
    """Take the `top` best-ranked documents that are not positives, for every query of a split that has a positive.

    A document labelled relevant for the query, in any split, is left out; what is left is ranked 0, 1, 2, …. A document
    whose text equals a positive's (case-folded alphanumeric tokens, in order), or whose token set has a Jaccard
    similarity of `near_duplicate` or more to a positive's, stays in the table with `keep = false` and does not count
    towards `top`; so do one that has the query's own id (`Collection.identical`), those that a rule rejects, and those
    before the window of ranks. A list ends with its last negative, or with the window. The table's provenance says
    under `recapture` how many labelled positives the window held, of how many, beside how many negatives kept: what an
    estimate of false negatives needs.

    Args:
        collection: documents, queries, judgements.
        retriever: what ranks.
        split: whose queries.
        top: negatives per query, at least 1.
        near_duplicate: threshold in (0, 1]; above 1 nothing is marked but equal texts.
        ranks: the window: first rank, and the rank after the last; None: no end, or with rules 10·`top` after the
            first.
        rules: reject, in their order, before the look-alikes; the first that holds gives the reason.
        scorer: its scores are what rules and draw see, and are added as a column of its name; None: the retriever's.
        fill: the next in rank takes the place of a rejected document; False: lists with rejected ones are short.
        draw: `top` candidates of the window are drawn from this distribution, without replacement; None: its first.
        seed: of the draws; a query's depends on it and on the query's row alone.
        made: provenance of the table.

    Raises:
        InputError: `top` below 1, `near_duplicate` not above 0, a window that is empty or, with a draw, without an
            end, an unknown split, a split without positives, or as the rules say.
    """
    if not near_duplicate > 0:
        raise InputError(f"near-duplicate threshold {near_duplicate}; expected above 0, and above 1 for none")
    wanted = _Wanted.checked(top, ranks, bool(rules), fill, draw, seed)
    positives = collection.positives(split)
    judge = _Judge(collection, LookAlikes(collection, near_duplicate), rules, scorer)

    def ranked(block: Rows) -> _Found:
        part = _Found()
        _search(retriever, block, wanted, judge, part)
        return part

    found, blocks = _Found(), np.split(positives.query_rows, range(QUERIES, len(positives), QUERIES))
    with progress.task(f"mining with {retriever.name}", total=len(positives), unit="queries") as advance:
        portable = scorer is None and getattr(retriever, "portable", False)
        for block, part in zip(blocks, map_shards(ranked, blocks) if portable else map(ranked, blocks), strict=True):
            found.add(part)
            advance(len(block))
    rows = np.concatenate(found.candidates)
    found.candidates.clear()  # as large as what was made of them
    table = negatives_table(
        collection.queries["query_id"].take(pa.array(rows["query"])),
        collection.documents["doc_id"].take(pa.array(rows["document"])),
        retriever.name,
        ranks_within(rows["query"]),
        rows["score"],
    )
    recapture = {"returned": found.recaptured, "labelled": len(positives.doc_rows)}
    table = table.append_column("keep", pa.array(rows["reason"] == 0))
    negatives = Negatives(table.append_column("reason", judge.said(rows["reason"])), made or {})
    if scorer is not None:
        negatives = negatives.with_columns({scorer.column: rows["scale"]})
    negatives = with_positives(negatives, judge.pairs(rows), rules)
    recapture["kept"] = int(negatives.keep.sum())
    negatives = negatives.with_provenance({"recapture": recapture})
    return Mined(negatives, len(positives), found.positives, found.recaptured, negatives.rejected(), dict(found.short))


_CANDIDATE = np.dtype([("query", "i8"), ("document", "i8"), ("score", "f8"), ("scale", "f8"), ("reason", "u1")])


@dataclass(frozen=True)
class _Wanted:
    """How many negatives, from which ranks, and how they are chosen there."""

    top: int
    first: int
    end: int | None
    fill: bool
    draw: Draw | None
    seed: int

    @classmethod
    def checked(
        cls, top: int, ranks: tuple[int, int | None], rules: bool, fill: bool, draw: Draw | None, seed: int
    ) -> _Wanted:
        first, end = ranks
        if top < 1:
            raise InputError(f"top {top}; expected at least 1 negative per query")
        if first < 0 or (end is not None and end <= first):
            raise InputError(f"ranks {first}–{end}; expected a first rank of at least 0, and an end above it")
        if draw is not None and end is None:
            raise InputError("a draw needs a window of ranks with an end")
        if end is None and rules:
            end = first + DEPTH * top
        if not fill and draw is None:
            end = first + top if end is None else min(end, first + top)
        return cls(top, first, end, fill, draw, seed)

    @property
    def why_short(self) -> str:
        """Why a list may be short though its window is full."""
        return f"too few left of ranks {self.first}–{self.end}" + ("" if self.fill else ", not filled")


class _Found:
    """What was found so far: candidates, each query's in rank order, and the counts."""

    def __init__(self) -> None:
        self.candidates: list[npt.NDArray[np.void]] = []
        self.positives = self.recaptured = 0
        self.short: Counter[str] = Counter()

    def add(self, part: _Found) -> None:
        """Take in what was found for the next queries."""
        self.candidates += part.candidates
        self.positives += part.positives
        self.recaptured += part.recaptured
        self.short += part.short


def _search(retriever: Retriever, query_rows: Rows, wanted: _Wanted, judge: _Judge, found: _Found) -> None:
    """Search ever deeper, for the queries whose list is still short, until each is full or ends."""
    documents = len(judge.collection.documents)
    most = documents if wanted.end is None else min(documents, wanted.end + judge.most_positives)
    depth = min(most, most if wanted.draw or judge.rejects_much else wanted.first + wanted.top + SPARE)
    done, pending = [], query_rows
    while len(pending):
        rows, scores = retriever.search(pending, depth)
        candidates, valid, positive = judge.judged(pending, rows, scores)
        rank: Rows = np.cumsum(valid, axis=1) - valid
        inside = (rank >= wanted.first) & (rank < (wanted.end or documents))
        judge.look(candidates, valid & inside, None if wanted.draw else wanted.top)
        usable = valid & inside & (candidates["reason"] == 0)
        wished = np.cumsum(usable, axis=1) - usable < wanted.top
        over, through = (rows < 0).any(axis=1), valid.sum(axis=1) >= (wanted.end or documents)
        full = np.zeros(len(pending), bool) if wanted.draw else usable.sum(axis=1) >= wanted.top
        final = full | over | through | (depth == documents)
        listed = (rank < (wanted.end or documents)) & final[:, None] & (wished | (wanted.draw is not None))
        candidates["reason"][valid & (rank < wanted.first) & (candidates["reason"] == 0)] = judge.before
        if wanted.draw is not None:
            usable = _drawn(judge, candidates, valid & inside, wanted, wanted.draw, final)
        done.append(candidates[listed & valid])
        found.positives += int((positive & listed).sum())
        found.recaptured += int((positive & listed & (rank >= wanted.first)).sum())
        lacking = final & (usable.sum(axis=1) < wanted.top)
        whole = "the collection has no further document"
        for which, why in (
            (lacking & through, wanted.why_short),
            (lacking & ~through & over, retriever.short),
            (lacking & ~through & ~over, whole),
        ):
            found.short.update({why: int(which.sum())} if which.any() else {})
        pending, depth = pending[~final], min(most, depth * 4)
    joined = np.concatenate(done)
    position = np.empty(int(query_rows.max()) + 1, np.int64)
    position[query_rows] = np.arange(len(query_rows))
    found.candidates.append(joined[np.argsort(position[joined["query"]], kind="stable")])


def _drawn(
    judge: _Judge, candidates: npt.NDArray[np.void], window: Marks, wanted: _Wanted, draw: Draw, final: Marks
) -> Marks:
    """Draw by the largest log weight + Gumbel noise; mark what was not drawn, and return what was and may stay."""
    free = candidates["reason"] == 0
    among = window & (free | (not wanted.fill)) & final[:, None]
    keys = np.full(candidates.shape, -np.inf)
    keys[among] = draw.log_weights(judge.pairs(candidates[among]))
    place: Rows = np.maximum(np.cumsum(window, axis=1) - 1, 0)
    for row in np.flatnonzero(final):
        rng = np.random.default_rng([wanted.seed, int(candidates["query"][row, 0])])
        keys[row] += rng.gumbel(size=int(place[row, -1]) + 1)[place[row]]
    order = np.argsort(-keys, axis=1, kind="stable")[:, : wanted.top]
    drawn = np.zeros(candidates.shape, bool)
    np.put_along_axis(drawn, order, True, axis=1)
    drawn &= np.isfinite(keys)
    candidates["reason"][window & free & ~drawn] = judge.not_drawn
    return np.asarray(drawn & free)


class _Judge:
    """Lays a search's result out as candidates, marked by the rules in their order; `look` then finds look-alikes."""

    def __init__(
        self, collection: Collection, looks: LookAlikes, rules: Sequence[Rule], scorer: PairScorer | None
    ) -> None:
        self.collection, self._looks, self._rules, self._scorer = collection, looks, rules, scorer
        self.reasons = (EQUAL, NEAR, IDENTICAL, *(rule.reason for rule in rules), BEFORE, NOT_DRAWN)
        if len(self.reasons) > np.iinfo(np.uint8).max:
            raise InputError(f"{len(rules)} rules; expected at most 250")
        self.before, self.not_drawn = len(self.reasons) - 1, len(self.reasons)
        self.rejects_much = bool(rules) and scorer is None  # so that one search of the whole window is cheapest
        self.most_positives = int(looks.known.counts.max(initial=0))

    def said(self, codes: npt.NDArray[np.uint8]) -> pa.Array:
        """Return the reasons in words, null for 0."""
        return pa.array([None, *self.reasons], pa.string()).take(pa.array(codes))

    def pairs(self, rows: npt.NDArray[np.void]) -> Pairs:
        """Return candidates as rules and draws see them."""
        scores = rows["score"] if self._scorer is None else rows["scale"]
        return Pairs(self.collection, rows["query"], rows["document"], scores)

    def judged(self, query_rows: Rows, rows: Rows, scores: Scores) -> tuple[npt.NDArray[np.void], Marks, Marks]:
        """Return (n, depth) candidates, which of them are unlabelled documents, and which labelled positives."""
        candidates = np.zeros(rows.shape, _CANDIDATE)
        candidates["query"], candidates["document"], candidates["score"] = query_rows[:, None], rows, scores
        flat = candidates.reshape(-1)
        positive = self._looks.known.contain(flat["query"], flat["document"])
        asked = np.flatnonzero((flat["document"] >= 0) & ~positive)
        part = flat[asked]
        if self._scorer is not None:
            part["scale"] = self._scorer.score(Pairs(self.collection, part["query"], part["document"], part["score"]))
        part["reason"][self.collection.identical[part["query"]] == part["document"]] = 3
        for code, rule in enumerate(self._rules, 4):
            fresh = rule.marks(self.pairs(part)) & (part["reason"] == 0)
            part["reason"][fresh] = code
        flat[asked] = part
        valid = np.zeros(len(flat), bool)
        valid[asked] = True
        return candidates, valid.reshape(rows.shape), positive.reshape(rows.shape)

    def look(self, candidates: npt.NDArray[np.void], window: Marks, enough: int | None) -> None:
        """Mark look-alikes among the candidates of the window that no rule rejected.

        Looking is what takes long: it goes by rank, and ends where a query has `enough` (None: looks at all).
        """
        reasons, looked = candidates["reason"], np.zeros(candidates.shape, bool)
        while True:
            free = window & (reasons == 0) & ~looked
            if enough is not None:
                lacking = enough - (looked & (reasons == 0)).sum(axis=1)
                free &= np.cumsum(free, axis=1) <= np.where(lacking > 0, lacking + SPARE, 0)[:, None]
            if not free.any():
                return
            part = candidates[free]
            equal, near = self._looks.marks(part["query"], part["document"])
            reasons[free] = np.where(equal, 1, np.where(near, 2, 0))
            looked |= free
