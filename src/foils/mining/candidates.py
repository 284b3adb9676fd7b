"""From rankings of documents to negatives: positives out, copies of positives marked, short lists counted.

A retriever ranks; what a negative is, is decided here, once, for every way of ranking.

What a way of mining would do with positives that it does not know is measured by *planting*: a
sample of queries is mined once more, the label of one positive of each taken away. To whatever
ranks, rejects and draws, the planted document is then one without a label among others. Where
relevant documents are labelled independently of what they look like, a planted document behind k −
1 labels stands for the unlabelled ones behind k − 1 labels, in every query and for every way of
mining: with weight k, the share of the planted that are kept estimates without bias the share of
the unlabelled relevant documents that are kept.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import IDENTICAL, Collection, PairIndex, Positives, Rows
from foils.data.negatives import EQUAL, TO_RATE, Negatives, Recapture, negatives_table
from foils.data.run import ranks_within
from foils.data.tables import Provenance
from foils.data.tokens import DocumentSets
from foils.mining.rules import (
    BEFORE,
    NEAR,
    NOT_DRAWN,
    WHOLE,
    Draw,
    LookAlikes,
    Marks,
    PairScorer,
    Retriever,
    Rule,
    Scores,
    TextPairs,
    reads_judgements,
)
from foils.runtime import progress, seeds
from foils.runtime.errors import InputError
from foils.runtime.files import cache_place, digest_of, kept_arrays
from foils.runtime.options import Option
from foils.runtime.parallel import map_shards

QUERIES = 4_096  # ranked at once
DEPTH = 10  # times `top`: where the window ends when rules reject and no end is given
SPARE = 8  # ranked beyond what is needed, so that copies of positives seldom need a second, deeper search
COPIES = 100  # rows of a query that show copies of its positives; a collection may hold thousands of one text
# Codes of reasons; those of rules follow.
CODES = {reason: code for code, reason in enumerate((EQUAL, NEAR, IDENTICAL, BEFORE, NOT_DRAWN, TO_RATE), 1)}
CANDIDATE = ("query", "document", "score", "scale", "reason")
# Queries, at most: their share has a standard error of 0.011 at most where each has as many positives.
PLANTED = 2_000

Codes = npt.NDArray[np.uint8]
Lists = Mapping[str, npt.NDArray[Any]]
"""The candidates of some queries, each query's in rank order, by the names of `CANDIDATE`: `scale` is
the score that rules see, `reason` a code, 0 for none. `in_window`: the query of each labelled
positive in its window. `positives`, `copies`: how many were left out. `short`: why a list is short,
one text for each."""


@dataclass(frozen=True, kw_only=True)
class Mined(Negatives):
    """Negatives of a ranking; rows that a rule rejected are in the table, with the reason.

    Attributes:
        source: name of what ranked.
        top: negatives per query that were wanted.
        queries: number of queries of the split.
        positives_left_out: labelled positives that the ranking held above its last negative.
        copies_left_out: copies of a query's positives beyond the 100 that the table shows.
        short: reason -> number of queries with fewer than `top` negatives.
    """

    source: str
    top: int
    queries: int
    positives_left_out: int
    short: dict[str, int]
    copies_left_out: int = 0

    def rows(self) -> list[tuple[str, str]]:
        """Return the counts as the program shows them."""
        kept = int(self.keep.sum())
        return [
            ("queries", f"{self.queries:,}"),
            ("negatives", f"{kept:,}"),
            ("per query", f"{kept / self.queries:.2f}"),
            ("labelled positives left out", f"{self.positives_left_out:,}"),
            *self.rejected_rows(),
            *([("further copies of positives left out", f"{self.copies_left_out:,}")] if self.copies_left_out else []),
            *((f"queries with fewer than {self.top}: {reason}", f"{count:,}") for reason, count in self.short.items()),
        ]

    def looser(self) -> str:
        """Say how more rows would be kept or, where no document was ranked, why."""
        if len(self):
            return super().looser()
        return f"Why lists are short: {'; '.join(self.short) or 'there is no query'}."

    def to_json(self) -> dict[str, Any]:
        """Return source, settings and counts."""
        copies = {"copies_left_out": self.copies_left_out} if self.copies_left_out else {}
        return {
            "source": self.source, "settings": self.provenance.get("settings", {}), "queries": self.queries,
            "negatives": int(self.keep.sum()), "positives_left_out": self.positives_left_out,
            "rejected": self.rejected(), **copies, "short": self.short,
        }  # fmt: skip


def _joined(parts: Sequence[Lists]) -> Lists:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


@dataclass(frozen=True)
class Miner:
    """What ranks, what rejects, what draws, and the window of ranks.

    Attributes:
        collection: documents, queries, judgements.
        retriever: what ranks.
        top: negatives per query, at least 1.
        near_duplicate: threshold in (0, 1]; above 1 nothing is marked but equal texts; None: nothing at all.
        ranks: the window: first rank, and the rank after the last; None: no end, or with rules
            10·`top` after the first.
        rank_rejected: whether documents that a rule rejects count in the ranks of the window.
        depth: how many documents of a ranking are looked at, labelled ones included; None: as many
            as it takes.
        rules: reject, in their order, before the copies of positives; the first that holds gives the reason.
        scorer: its scores are what rules and draw see, and are added as a column of its name; None:
            the retriever's.
        draw: `top` candidates of the window are drawn from this distribution, without replacement;
            None: its first.
        seed: of the draws; a query's depends on it and on the query's row alone.
        keep_positives: labelled positives of the window stay in the table, rejected, for a rating.

    Raises:
        InputError: `top` below 1, `near_duplicate` not above 0, or a window that is empty or, with
            a draw, without an end.
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
    keep_positives: bool = False

    def __post_init__(self) -> None:
        first, end = self.ranks
        Option(above=0).check("near_duplicate", self.near_duplicate)
        Option(least=1).check("top", self.top)
        if first < 0 or (end is not None and end <= first):
            raise InputError(f"ranks {first}–{end}; expected a first rank of at least 0, and an end above it")
        if self.draw is not None and end is None:
            raise InputError("a draw needs a window of ranks with an end")

    def mined(self, split: str, *, plant: int = 0, made: Provenance | None = None) -> Mined:
        """Take the `top` best-ranked documents that are not positives, for each query of a split with a positive.

        Of the split `all` it is every query, with or without a positive. A document labelled relevant
        for the query, in any split, is left out; what is left is ranked 0, 1, 2, …. A document whose
        text equals a positive's (case-folded alphanumeric tokens, in order), or whose token set has a
        Jaccard similarity of `near_duplicate` or more to a positive's, stays in the table with `keep =
        false` and does not count towards `top` (100 such rows of a query at most; further ones are
        counted); so do one that has the query's own id (`Collection.identical`), those that a rule
        rejects, and those before the window of ranks. A list ends with its last negative, or with the
        window. The table's provenance says under `recapture` how many labelled positives would be among
        the negatives, were they not known (`Recapture`): what an estimate of false negatives needs. For
        a window without rules and draw they are counted, else planted.

        Args:
            split: whose queries.
            plant: the largest number of queries that are mined once more, for what a draw, rules, or a
                retriever that reads judgements would do with an unknown positive; 0: the table then
                says nothing of it.
            made: provenance of the table.

        Raises:
            InputError: an unknown split, a split without positives, or as the rules say.
        """
        query_rows, collection, name = self.collection.queries_of(split), self.collection, self.retriever.name
        kept = cache_place("mined", digest_of([made, QUERIES], 16)) if made and len(query_rows) > QUERIES else None
        lists = self.searched(query_rows, f"mining with {name}", kept)
        query_ids = collection.queries["query_id"].take(pa.array(lists["query"]))
        doc_ids = collection.documents["doc_id"].take(pa.array(lists["document"]))
        table = negatives_table(query_ids, doc_ids, name, ranks_within(lists["query"]), lists["score"])
        table = table.append_column("keep", pa.array(lists["reason"] == 0))
        reasons = pa.array([None, *CODES, *(rule.reason for rule in self.rules)], pa.string())
        table = table.append_column("reason", reasons.take(pa.array(lists["reason"])))
        negatives = Negatives(table, made or {})
        if self.scorer is not None:
            negatives = negatives.with_columns({self.scorer.column: lists["scale"]})
        recaptured = self._recaptured(lists["in_window"], query_rows, int(negatives.keep.sum()), plant)
        return Mined.of(
            negatives.with_provenance(recaptured),
            title=f"{name} negatives of {collection.name} ({split})",
            collection=collection,
            split=split,
            source=name,
            top=self.top,
            queries=len(query_rows),
            positives_left_out=int(lists["positives"].sum()),
            copies_left_out=int(lists["copies"].sum()),
            short=dict(Counter(lists["short"].tolist())),
        )

    def _recaptured(self, in_window: Rows, query_rows: Rows, kept: int, plant: int) -> Provenance:
        """What provenance says of the labelled positives that this mining would return, were they not known.

        They are counted in a plain window, whose `in_window` are the queries of those that it
        holds. Elsewhere they are planted; nothing is said where a part compares with positives and
        no query has two.
        """
        known = self.collection.known_positives
        parts: list[Any] = [self.retriever, self.draw, *self.rules]
        labels = known.counts_of(query_rows)
        if not labels.any():
            return {}
        if not (self.rules or self.draw is not None or reads_judgements(self.retriever)):
            has_label = labels > 0
            returned = np.bincount(in_window, minlength=int(query_rows.max()) + 1)[query_rows][has_label]
            weights, way = labels[has_label], "counted"
        else:
            least, way = 2 if any(map(reads_judgements, parts[1:])) else 1, "planted"
            queries, documents = drawn_positives(known, query_rows, least=least, most=plant, seed=self.seed)
            if not len(queries):
                return {}
            judged = without_labels(self.collection, queries, documents)
            judging = (part.with_judgements(judged) if reads_judgements(part) else part for part in parts)
            retriever, draw, *rules = judging
            other = replace(self, collection=judged, retriever=retriever, rules=rules, draw=draw, keep_positives=False)
            lists = other.searched(queries, f"planting positives for {self.retriever.name}")
            mined = (lists[name][lists["reason"] == 0] for name in ("query", "document"))
            weights = known.counts_of(queries)
            returned = weights * PairIndex(*mined).contain(queries, documents)
        recapture = Recapture.estimated(returned, weights, labelled=int(labels.sum()), kept=kept, way=way)
        return {"recapture": asdict(recapture)}

    @cached_property
    def _looks(self) -> LookAlikes:
        return LookAlikes(self.collection.known_positives, DocumentSets(self.collection), self.near_duplicate)

    def searched(self, query_rows: Rows, task: str, kept: Path | None = None) -> Lists:
        """Return all queries' candidates, block by block, in other processes where they may be sent there.

        Args:
            query_rows: the queries.
            task: what the progress says.
            kept: folder that has each block from when it is done until all are, so that a kill
                costs a block; None: nothing is kept.
        """
        blocks = np.split(query_rows, range(QUERIES, len(query_rows), QUERIES))
        portable = self.scorer is None and getattr(self.retriever, "portable", False)
        work = partial(self._block, kept)
        with progress.task(task, total=len(query_rows), unit="queries") as advance:
            parts: list[Lists] = []
            for part in map_shards(work, enumerate(blocks)) if portable else map(work, enumerate(blocks)):
                advance(len(blocks[len(parts)]))
                parts.append(part)
        lists = _joined(parts)
        if kept is not None:
            shutil.rmtree(kept, ignore_errors=True)
        return lists

    def _block(self, kept: Path | None, block: tuple[int, Rows]) -> Lists:
        """The candidates of one block, read where they were kept."""
        number, query_rows = block
        if kept is None:
            return self._searched(query_rows)
        return kept_arrays(kept / str(number), "mined block", partial(self._searched, query_rows))

    def _searched(self, query_rows: Rows) -> Lists:
        """Search ever deeper, for the queries whose list is still short, until each is full or ends."""
        documents, (first, end) = len(self.collection.documents), self.ranks
        if end is None and self.rules and self.draw is None:
            end = first + DEPTH * self.top
        positives = int(self._looks.known.counts.max(initial=0))  # of a query at most
        most, depth = documents, first + self.top + SPARE
        if self.depth is not None:
            most = min(documents, self.depth)
        elif end is not None and self.rank_rejected:
            most = min(documents, end + positives)
        if end is not None and (self.draw is not None or (self.rules and self.scorer is None)):
            depth = end + positives  # the whole window where it is drawn from, or rules reject much of it
        pending, depth, parts = query_rows, min(most, depth), list[Lists]()
        while len(pending):
            final, part = self._taken(pending, depth, most, (first, end or documents + 1))
            parts.append(part)
            pending, depth = pending[~final], min(most, depth * 4)
        lists = _joined(parts)
        position = np.empty(int(query_rows.max()) + 1, np.int64)
        position[query_rows] = np.arange(len(query_rows))
        order = np.argsort(position[lists["query"]], kind="stable")
        return {**lists, **{name: lists[name][order] for name in CANDIDATE}}

    def _taken(self, query_rows: Rows, depth: int, most: int, window: tuple[int, int]) -> tuple[Marks, Lists]:
        """Search so deep; return which queries' lists are then final, and the candidates of these."""
        first, end = window
        rows, scores = self.retriever.search(query_rows, depth)
        queries = np.broadcast_to(query_rows[:, None], rows.shape)
        positive = self._looks.known.contain(queries.ravel(), rows.ravel()).reshape(rows.shape)
        unlabelled = (rows >= 0) & ~positive
        reasons, scale = self._judged(queries, rows, scores, positive)

        # 1. Ranks: of all unlabelled documents, or of those alone that no rule rejects.
        ranked = unlabelled if self.rank_rejected else unlabelled & (reasons == 0)
        rank = _count_before(ranked)
        in_window = unlabelled & (rank >= first) & (rank < end)
        reasons[unlabelled & (rank < first) & (reasons == 0)] = CODES[BEFORE]

        # 2. Copies of positives, looked for only as far down as the list needs.
        self._look(queries, rows, reasons, in_window)
        negatives = in_window & (reasons == 0)

        # 3. A list is final when it is full, or when a deeper search could add nothing to it.
        exhausted = (rows < 0).any(axis=1)
        past_window = ranked.sum(axis=1) >= end
        final: Marks = exhausted | past_window | (depth == most)
        if self.draw is None:
            final |= negatives.sum(axis=1) >= self.top

        # 4. It ends with its last negative, or with the window; a draw chooses from the whole window.
        listed = (rank < end) & final[:, None]
        if self.draw is None:
            listed &= _count_before(negatives) < self.top
        else:
            among = in_window & (reasons == 0) & final[:, None]
            pairs = TextPairs(self.collection, queries[among], rows[among], scale[among])
            negatives = self._drawn(query_rows, in_window, among, self.draw.log_weights(pairs), final)
            reasons[in_window & (reasons == 0) & ~negatives] = CODES[NOT_DRAWN]
        labelled = positive & listed & (rank >= first)
        copies = listed & unlabelled & np.isin(reasons, (CODES[EQUAL], CODES[NEAR]))
        surplus = copies & (_count_before(copies) >= COPIES)
        shown = listed & unlabelled & ~surplus
        if self.keep_positives:
            shown |= labelled

        # 5. Why lists are short.
        ended = WHOLE if most == len(self.collection.documents) else f"too few left of the first {most} documents"
        why = np.where(exhausted, self.retriever.short, ended)
        why = np.where(past_window, f"too few left of ranks {first}–{end}", why)
        candidates: tuple[npt.NDArray[Any], ...] = (queries, rows, scores, scale, reasons)
        return final, {
            **{name: each[shown] for name, each in zip(CANDIDATE, candidates, strict=True)},
            "in_window": queries[labelled],
            "positives": np.array([(positive & listed & ~shown).sum()]),
            "copies": np.array([surplus.sum()]),
            "short": why[final & (negatives.sum(axis=1) < self.top)],
        }

    def _judged(self, queries: Rows, rows: Rows, scores: Scores, positive: Marks) -> tuple[Codes, Scores]:
        """Return why candidates are rejected, and what rules see of their scores; each is (n, depth)."""
        reasons = np.where(positive & self.keep_positives, CODES[TO_RATE], 0).astype(np.uint8)
        looked, scale = (rows >= 0) & (self.keep_positives | ~positive), scores.astype(np.float64)
        pairs = TextPairs(self.collection, queries[looked], rows[looked], scale[looked])
        if self.scorer is not None:
            pairs = replace(pairs, scores=self.scorer.score(pairs))
            scale[looked] = pairs.scores
        codes = reasons[looked]
        codes[(self.collection.identical[pairs.query_rows] == pairs.doc_rows) & (codes == 0)] = CODES[IDENTICAL]
        for code, rule in enumerate(self.rules, 1 + len(CODES)):
            codes[rule.marks(pairs) & (codes == 0)] = code
        reasons[looked] = codes
        return reasons, scale

    def _look(self, queries: Rows, rows: Rows, reasons: Codes, window: Marks) -> None:
        """Mark copies of positives among the candidates of the window that no rule rejected.

        Looking is what takes long: it goes by rank, and ends where a query has enough negatives; a draw
        needs all. Without a threshold nothing is a copy.
        """
        looked, spare = np.zeros(rows.shape, bool), SPARE
        while self.near_duplicate is not None:
            free = window & (reasons == 0) & ~looked
            if self.draw is None:
                lacking = self.top - (looked & (reasons == 0)).sum(axis=1)
                free &= np.cumsum(free, axis=1) <= np.where(lacking > 0, lacking + spare, 0)[:, None]
                spare *= 2  # where copies abound, a thousand steps of a few candidates would take long
            if not free.any():
                return
            equal, near = self._looks.marks(queries[free], rows[free])
            reasons[free] = np.where(equal, CODES[EQUAL], np.where(near, CODES[NEAR], 0))
            looked |= free

    def _drawn(self, query_rows: Rows, inside: Marks, among: Marks, log_weights: Scores, final: Marks) -> Marks:
        """Return what is drawn of `among`, by the largest log weight + Gumbel noise, for the final queries."""
        keys = np.full(inside.shape, -np.inf)
        keys[among] = log_weights
        place: Rows = np.maximum(np.cumsum(inside, axis=1) - 1, 0)
        for row in np.flatnonzero(final):
            rng = np.random.default_rng([self.seed, int(query_rows[row]), seeds.WINDOW])
            keys[row] += rng.gumbel(size=int(place[row, -1]) + 1)[place[row]]
        order = np.argsort(-keys, axis=1, kind="stable")[:, : self.top]
        drawn = np.zeros(inside.shape, bool)
        np.put_along_axis(drawn, order, True, axis=1)
        return np.asarray(drawn & np.isfinite(keys))


def _count_before(marks: Marks) -> Rows:
    """Return how many of a row's marks stand before each place, (n, depth)."""
    return np.asarray(np.cumsum(marks, axis=1) - marks, np.int64)


def drawn_positives(known: Positives, query_rows: Rows, *, least: int, most: int, seed: int) -> tuple[Rows, Rows]:
    """Draw at most `most` of the queries with at least `least` positives, and a positive of each.

    Which positive is drawn depends on the seed and on the query's place among those that are given
    alone, so that samples of the same seed have the same positives of the same queries.

    Returns:
        (n,) rows of the queries, and of the documents.
    """
    rng = np.random.default_rng([seed, seeds.PLANTED])
    chance, order = rng.random(len(query_rows)), rng.permutation(len(query_rows))
    counts = known.counts_of(query_rows)
    chosen = np.sort(order[counts[order] >= max(least, 1)][:most])
    rows, counts = query_rows[chosen], counts[chosen]
    nth = np.minimum((chance[chosen] * counts).astype(np.int64), counts - 1)
    return rows, known.doc_rows[known.offsets[known.places(rows)] + nth]


def without_labels(collection: Collection, queries: Rows, documents: Rows) -> Collection:
    """Return the collection without the labels of these pairs, in any split."""
    pairs = PairIndex(queries, documents)

    def remaining(table: pa.Table) -> pa.Table:
        rows = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
        return table.filter(pa.array(~pairs.contain(*rows)))

    return replace(collection, qrels={split: remaining(table) for split, table in collection.qrels.items()})
