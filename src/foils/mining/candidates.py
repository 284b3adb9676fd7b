"""From a ranking of documents per query to negatives: positives out, copies of positives marked, short lists counted.

A retriever ranks; what a negative is, is decided here, once, for every way of ranking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import IDENTICAL, Collection, Rows
from foils.data.negatives import EQUAL, Negatives, negatives_table
from foils.data.run import ranks_within
from foils.data.tables import Provenance
from foils.mining.pairs import (
    BEFORE,
    NOT_DRAWN,
    WHOLE,
    Draw,
    Judged,
    Marks,
    PairScorer,
    Retriever,
    Rule,
    Scores,
    TextPairs,
    with_judgements_of,
)  # fmt: skip
from foils.mining.planting import PLANTED_ROW, counted, drawn_positives, noted, without_labels
from foils.mining.results import Mined
from foils.mining.rules import NEAR, LookAlikes
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.parallel import map_shards

QUERIES = 4_096  # ranked at once
DEPTH = 10  # times `top`: where the window ends when rules reject and no end is given
SPARE = 8  # ranked beyond what is needed, so that copies of positives seldom need a second, deeper search
COPIES = 100  # rows of a query that show copies of its positives; a collection may hold thousands of one text
CANDIDATE = np.dtype([("query", "i8"), ("document", "i8"), ("score", "f8"), ("scale", "f8"), ("reason", "u1")])
_COPY = (1, 2)  # codes of EQUAL and NEAR
_STREAM = 1  # of the draws' random numbers, apart from those by which RandomRetriever ranks with the same seed


def mine_negatives(
    collection: Collection,
    retriever: Retriever,
    *,
    split: str,
    plant: int = 0,
    made: Provenance | None = None,
    **window: Any,
) -> Mined:
    """Take the `top` best-ranked documents that are not positives, for every query of a split that has a positive.

    Of the split `all` it is every query, with or without a positive. A document labelled relevant for the query, in any
    split, is left out; what is left is ranked 0, 1, 2, …. A document whose text equals a positive's (case-folded
    alphanumeric tokens, in order), or whose token set has a Jaccard similarity of `near_duplicate` or more to a
    positive's, stays in the table with `keep = false` and does not count towards `top` (100 such rows of a query at
    most; further ones are counted); so do one that has the query's own id (`Collection.identical`), those that a rule
    rejects, and those before the window of ranks. A list ends with its last negative, or with the window. The table's
    provenance says under `recapture` how many labelled positives would be among the negatives, were they not known
    (`Recapture`): what an estimate of false negatives needs. For a window without rules and draw they are counted, else
    planted.

    Args:
        collection: documents, queries, judgements.
        retriever: what ranks.
        split: whose queries.
        plant: the largest number of queries that are mined once more, for what a draw, rules, or a retriever that reads
            judgements would do with an unknown positive; 0: the table then says nothing of it.
        made: provenance of the table.
        window: `top`, and whatever else `Miner` has.

    Raises:
        InputError: as `Miner` says, an unknown split, a split without positives, or as the rules say.
    """
    return Miner(collection, retriever, **window).mined(split, plant=plant, made=made)


def _recaptured(miner: Miner, found: _Found, query_rows: Rows, kept: int, plant: int) -> Provenance:
    """What the table's provenance says of the labelled positives that this way of mining would return.

    Nothing where no query has a positive; only where positives are planted: where a part of the way of mining does not
    say how it reads judgements, or compares with positives and no query has two.
    """
    known = miner.collection.known_positives
    labelled = int(known.counts_of(query_rows).sum())
    least = 2 if miner.compares else 1
    planted = drawn_positives(known, query_rows, least=least, most=plant, seed=miner.seed) if labelled else None
    if planted is None:
        return {}
    if miner.is_plain:
        listed = np.concatenate(found.listed)
        recapture = counted(known, query_rows, listed, kept)
        return noted(planted.among(listed) if plant else None, miner.collection, labelled, kept, recapture)
    if not len(planted.rows):
        return {}
    reduced = without_labels(miner.collection, planted)
    other = miner.with_judgements(reduced)
    if other is None:
        return {}
    mined = other.searched(planted.rows["query"], f"planting positives for {miner.retriever.name}").taken()
    listed = np.zeros(len(mined), PLANTED_ROW)
    for name in ("query", "document", "score"):
        listed[name] = mined[name]
    listed["rank"], listed["keep"] = ranks_within(mined["query"]), mined["reason"] == 0
    listed = listed[~np.isin(mined["reason"], other.passed_over)]
    return noted(planted.among(listed), miner.collection, labelled, kept)


@dataclass
class _Found:
    """Candidates so far, each query's in rank order, and the counts."""

    rows: list[npt.NDArray[np.void]] = field(default_factory=list)
    positives: int = 0
    copies: int = 0
    listed: list[npt.NDArray[np.void]] = field(default_factory=list)  # labelled positives in the window
    short: Counter[str] = field(default_factory=Counter)

    def add(self, part: _Found) -> None:
        """Take in the candidates of the next queries."""
        self.rows += part.rows
        self.positives += part.positives
        self.copies += part.copies
        self.listed += part.listed
        self.short += part.short

    def taken(self) -> npt.NDArray[np.void]:
        """Return the rows, and let go of them: a table that is made of them is as large."""
        rows = np.concatenate(self.rows)
        self.rows.clear()
        return rows


@dataclass(frozen=True)
class Miner:
    """What ranks, what rejects, what draws, and the window of ranks.

    Attributes:
        collection: documents, queries, judgements.
        retriever: what ranks.
        top: negatives per query, at least 1.
        near_duplicate: threshold in (0, 1]; above 1 nothing is marked but equal texts; None: nothing at all.
        ranks: the window: first rank, and the rank after the last; None: no end, or with rules 10·`top` after the
            first.
        rank_rejected: whether rejected documents count in the ranks of the window.
        depth: how many documents of a ranking are looked at, labelled ones included; None: as many as it takes.
        rules: reject, in their order, before the copies of positives; the first that holds gives the reason.
        scorer: its scores are what rules and draw see, and are added as a column of its name; None: the retriever's.
        draw: `top` candidates of the window are drawn from this distribution, without replacement; None: its first.
        seed: of the draws; a query's depends on it and on the query's row alone.

    Raises:
        InputError: `top` below 1, `near_duplicate` not above 0, or a window that is empty or, with a draw, without an
            end.
    """

    collection: Collection
    retriever: Retriever
    _: KW_ONLY
    top: int
    near_duplicate: float | None = 0.9
    ranks: tuple[int, int | None] = (0, None)
    rank_rejected: bool = True
    depth: int | None = None
    rules: Sequence[Rule] = ()
    scorer: PairScorer | None = None
    draw: Draw | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        first, end = self.ranks
        if self.near_duplicate is not None and not self.near_duplicate > 0:
            raise InputError(f"near-duplicate threshold {self.near_duplicate}; expected above 0, and above 1 for none")
        if self.top < 1:
            raise InputError(f"top {self.top}; expected at least 1 negative per query")
        if first < 0 or (end is not None and end <= first):
            raise InputError(f"ranks {first}–{end}; expected a first rank of at least 0, and an end above it")
        if self.depth is not None and self.depth < 1:
            raise InputError(f"depth {self.depth}; expected at least 1 document of a ranking")
        if self.draw is not None and end is None:
            raise InputError("a draw needs a window of ranks with an end")
        if len(self.reasons) > np.iinfo(np.uint8).max:
            raise InputError(f"{len(self.rules)} rules; expected at most 250")

    def mined(self, split: str, *, plant: int = 0, made: Provenance | None = None) -> Mined:
        """Mine for the queries of a split (`mine_negatives`)."""
        rows = self.collection.queries_of(split)
        found = self.searched(rows, f"mining with {self.retriever.name}")
        negatives = self.table(found.taken(), made or {})
        return Mined.of(
            negatives.with_provenance(_recaptured(self, found, rows, int(negatives.keep.sum()), plant)),
            title=f"{self.retriever.name} negatives of {self.collection.name} ({split})",
            collection=self.collection,
            split=split,
            source=self.retriever.name,
            top=self.top,
            queries=len(rows),
            positives_left_out=found.positives,
            copies_left_out=found.copies,
            short=dict(found.short),
        )

    @property
    def first(self) -> int:
        """The first rank of the window."""
        return self.ranks[0]

    @property
    def end(self) -> int | None:
        """The rank after the last of the window; None: it has no end."""
        first, end = self.ranks
        return first + DEPTH * self.top if end is None and self.rules and self.draw is None else end

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a candidate is rejected, by its code less 1."""
        return (EQUAL, NEAR, IDENTICAL, *(rule.reason for rule in self.rules), BEFORE, NOT_DRAWN)

    @property
    def passed_over(self) -> tuple[int, int]:
        """The codes of BEFORE and NOT_DRAWN."""
        return len(self.reasons) - 1, len(self.reasons)

    @cached_property
    def looks(self) -> LookAlikes:
        """Finds copies of positives."""
        return LookAlikes(self.collection, self.near_duplicate)

    @property
    def is_plain(self) -> bool:
        """Whether positives need only be counted: they are ranked as others are, and nothing rejects or draws."""
        return not (self.rules or self.draw is not None or isinstance(self.retriever, Judged))

    @property
    def compares(self) -> bool:
        """Whether a rule or the draw compares candidates with the query's positives, so that one must be left."""
        return any(getattr(part, "compares", False) for part in (*self.rules, self.draw))

    def with_judgements(self, collection: Collection) -> Miner | None:
        """Return the same with a collection's judgements; None where a part does not say how it reads them."""
        if not all(isinstance(part, Judged) for part in (*self.rules, self.draw) if part is not None):
            return None
        retriever, draw = with_judgements_of(self.retriever, collection), with_judgements_of(self.draw, collection)
        rules = tuple(rule for each in self.rules if (rule := with_judgements_of(each, collection)) is not None)
        lost = len(rules) < len(self.rules) or (draw is None and self.draw is not None)
        if retriever is None or lost:
            return None
        return replace(self, collection=collection, retriever=retriever, rules=rules, draw=draw)

    def table(self, rows: npt.NDArray[np.void], made: Provenance) -> Negatives:
        """Return candidates as a table."""
        table = negatives_table(
            self.collection.queries["query_id"].take(pa.array(rows["query"])),
            self.collection.documents["doc_id"].take(pa.array(rows["document"])),
            self.retriever.name,
            ranks_within(rows["query"]),
            rows["score"],
        )
        table = table.append_column("keep", pa.array(rows["reason"] == 0))
        reasons = pa.array([None, *self.reasons], pa.string()).take(pa.array(rows["reason"]))
        negatives = Negatives(table.append_column("reason", reasons), made)
        return negatives if self.scorer is None else negatives.with_columns({self.scorer.column: rows["scale"]})

    def searched(self, query_rows: Rows, task: str) -> _Found:
        """Return the candidates of all queries, block by block, in other processes where they may be sent there."""
        found, blocks = _Found(), np.split(query_rows, range(QUERIES, len(query_rows), QUERIES))
        portable = self.scorer is None and getattr(self.retriever, "portable", False)
        with progress.task(task, total=len(query_rows), unit="queries") as advance:
            parts = map_shards(self._searched, blocks) if portable else map(self._searched, blocks)
            for block, part in zip(blocks, parts, strict=True):
                found.add(part)
                advance(len(block))
        return found

    def _searched(self, query_rows: Rows) -> _Found:
        """Search ever deeper, for the queries whose list is still short, until each is full or ends."""
        documents, found = len(self.collection.documents), _Found()
        positives = int(self.looks.known.counts.max(initial=0))
        most = self._most(documents, positives)
        pending, depth = query_rows, min(most, self._first_depth(positives))
        while len(pending):
            final = self._taken(pending, depth, most, found)
            pending, depth = pending[~final], min(most, depth * 4)
        joined = np.concatenate(found.rows)
        position = np.empty(int(query_rows.max()) + 1, np.int64)
        position[query_rows] = np.arange(len(query_rows))
        found.rows = [joined[np.argsort(position[joined["query"]], kind="stable")]]
        return found

    def _most(self, documents: int, positives: int) -> int:
        """How deep a search may have to go, where a query has so many positives at most."""
        if self.depth is not None:
            return min(documents, self.depth)
        return min(documents, self.end + positives) if self.end is not None and self.rank_rejected else documents

    def _first_depth(self, positives: int) -> int:
        """How deep to search at first: the whole window where it is drawn from, or rules reject much of it."""
        if self.end is not None and (self.draw is not None or (self.rules and self.scorer is None)):
            return self.end + positives
        return self.first + self.top + SPARE

    def _taken(self, query_rows: Rows, depth: int, most: int, found: _Found) -> Marks:
        """Search so deep, take the candidates of the queries whose list is then final, and return which these are."""
        documents = len(self.collection.documents)
        end = self.end or documents
        rows, scores = self.retriever.search(query_rows, depth)
        candidates, valid, positive = self._judged(query_rows, rows, scores)
        reasons = candidates["reason"]
        if not self.rank_rejected:
            self._look(candidates, valid, None)
        ranked = valid if self.rank_rejected else valid & (reasons == 0)
        rank: Rows = np.cumsum(ranked, axis=1) - ranked
        inside = (rank >= self.first) & (rank < end)
        if self.rank_rejected:
            self._look(candidates, valid & inside, None if self.draw else self.top)
        usable = valid & inside & (reasons == 0)
        wished = np.cumsum(usable, axis=1) - usable < self.top
        over, through = (rows < 0).any(axis=1), ranked.sum(axis=1) >= end
        full = np.zeros(len(query_rows), bool) if self.draw else usable.sum(axis=1) >= self.top
        final: Marks = full | over | through | (depth == most)
        listed = (rank < end) & final[:, None] & (wished | (self.draw is not None))
        reasons[valid & (rank < self.first) & (reasons == 0)] = self.passed_over[0]
        if self.draw is not None:
            usable = self._drawn(candidates, valid & inside, self.draw, final)
        copies = listed & valid & np.isin(reasons, _COPY)
        many = copies & (np.cumsum(copies, axis=1) > COPIES)
        found.rows.append(candidates[listed & valid & ~many])
        found.copies += int(many.sum())
        found.positives += int((positive & listed).sum())
        within = positive & listed & (rank >= self.first)
        found.listed.append(_as_planted(candidates[within], (np.cumsum(valid, axis=1) - valid)[within]))
        lacking: Marks = final & (usable.sum(axis=1) < self.top)
        self._count_short(found, lacking, through, np.asarray(over))
        return final

    def _judged(self, query_rows: Rows, rows: Rows, scores: Scores) -> tuple[npt.NDArray[np.void], Marks, Marks]:
        """Return (n, depth) candidates, which of them are unlabelled documents, and which labelled positives."""
        candidates = np.zeros(rows.shape, CANDIDATE)
        candidates["query"], candidates["document"], candidates["score"] = query_rows[:, None], rows, scores
        flat = candidates.reshape(-1)
        positive = self.looks.known.contain(flat["query"], flat["document"])
        valid = (flat["document"] >= 0) & ~positive
        part = flat[valid]
        if self.scorer is not None:
            pairs = TextPairs(self.collection, part["query"], part["document"], part["score"])
            part["scale"] = self.scorer.score(pairs)
        part["reason"][self.collection.identical[part["query"]] == part["document"]] = 3
        for code, rule in enumerate(self.rules, 4):
            fresh = rule.marks(self._pairs(part)) & (part["reason"] == 0)
            part["reason"][fresh] = code
        flat[valid] = part
        return candidates, valid.reshape(rows.shape), positive.reshape(rows.shape)

    def _pairs(self, rows: npt.NDArray[np.void]) -> TextPairs:
        """Candidates as rules and draws see them."""
        scores = rows["score"] if self.scorer is None else rows["scale"]
        return TextPairs(self.collection, rows["query"], rows["document"], scores)

    def _look(self, candidates: npt.NDArray[np.void], window: Marks, enough: int | None) -> None:
        """Mark copies of positives among the candidates of the window that no rule rejected.

        Looking is what takes long: it goes by rank, and ends where a query has `enough` (None: looks at all).
        Without a threshold nothing is a copy.
        """
        reasons, looked = candidates["reason"], np.zeros(candidates.shape, bool)
        while self.near_duplicate is not None:
            free = window & (reasons == 0) & ~looked
            if enough is not None:
                lacking = enough - (looked & (reasons == 0)).sum(axis=1)
                free &= np.cumsum(free, axis=1) <= np.where(lacking > 0, lacking + SPARE, 0)[:, None]
            if not free.any():
                return
            part = candidates[free]
            equal, near = self.looks.marks(part["query"], part["document"])
            reasons[free] = np.where(equal, _COPY[0], np.where(near, _COPY[1], 0))
            looked |= free

    def _drawn(self, candidates: npt.NDArray[np.void], inside: Marks, draw: Draw, final: Marks) -> Marks:
        """Draw by the largest log weight + Gumbel noise; mark what was not drawn, and return what was."""
        among = inside & (candidates["reason"] == 0) & final[:, None]
        keys = np.full(candidates.shape, -np.inf)
        keys[among] = draw.log_weights(self._pairs(candidates[among]))
        place: Rows = np.maximum(np.cumsum(inside, axis=1) - 1, 0)
        for row in np.flatnonzero(final):
            rng = np.random.default_rng([self.seed, int(candidates["query"][row, 0]), _STREAM])
            keys[row] += rng.gumbel(size=int(place[row, -1]) + 1)[place[row]]
        order = np.argsort(-keys, axis=1, kind="stable")[:, : self.top]
        drawn = np.zeros(candidates.shape, bool)
        np.put_along_axis(drawn, order, True, axis=1)
        drawn &= np.isfinite(keys)
        candidates["reason"][inside & (candidates["reason"] == 0) & ~drawn] = self.passed_over[1]
        return np.asarray(drawn)

    def _count_short(self, found: _Found, lacking: Marks, through: Marks, over: Marks) -> None:
        """Count why lists have fewer than `top`: their window is full, the ranking ends, or the collection does."""
        looked = self.depth is not None and self.depth < len(self.collection.documents)
        ended = f"too few left of the first {self.depth} documents" if looked else WHOLE
        for which, why in (
            (lacking & through, f"too few left of ranks {self.first}–{self.end}"),
            (lacking & ~through & over, self.retriever.short),
            (lacking & ~through & ~over, ended),
        ):
            found.short.update({why: int(which.sum())} if which.any() else {})


def _as_planted(rows: npt.NDArray[np.void], ranks: npt.ArrayLike) -> npt.NDArray[np.void]:
    """Labelled positives as they would stand in the table, with their ranks there."""
    listed = np.ones(len(rows), PLANTED_ROW)
    for name in ("query", "document", "score"):
        listed[name] = rows[name]
    listed["rank"] = ranks
    return listed
