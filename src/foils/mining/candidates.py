"""From a ranking of documents per query to negatives: positives out, look-alikes of positives marked, short lists told.

A retriever ranks; what a negative is, is decided here, once, for every way of ranking.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives, negatives_table
from foils.data.run import ranks_within
from foils.data.tables import Provenance
from foils.mining.filters import with_positives
from foils.mining.look_alikes import LookAlikes
from foils.mining.marking import SPARE, Marker
from foils.mining.pairs import Draw, Marks, PairScorer, Rule, Scores
from foils.mining.planting import LISTED, Planted, Way, recaptured
from foils.mining.results import Mined
from foils.mining.window import Window
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.parallel import map_shards

QUERIES = 4_096  # ranked at once
DEPTH = 10  # times `top`: where the window ends when rules reject and no end is given


class Retriever(Protocol):
    """Ranks documents of a collection for queries of it.

    One that has an attribute `portable`, and it is true, may be sent to other processes: a ranking depends on its
    query alone, and nothing is embedded or kept on the way. One that reads judgements is `Judged`.

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


def mine_negatives(
    collection: Collection,
    retriever: Retriever,
    *,
    split: str,
    top: int,
    near_duplicate: float | None = 0.9,
    ranks: tuple[int, int | None] = (0, None),
    rank_rejected: bool = True,
    depth: int | None = None,
    leave_out_positives: bool = True,
    rules: Sequence[Rule] = (),
    scorer: PairScorer | None = None,
    fill: bool = True,
    draw: Draw | None = None,
    seed: int = 0,
    at_once: int = QUERIES,
    plant: int = 0,
    made: Provenance | None = None,
) -> Mined:
    """Take the `top` best-ranked documents that are not positives, for every query of a split that has a positive.

    Of the split `all` it is every query, with or without a positive. A document labelled relevant for the query, in any
    split, is left out; what is left is ranked 0, 1, 2, …. A document whose text equals a positive's (case-folded
    alphanumeric tokens, in order), or whose token set has a Jaccard similarity of `near_duplicate` or more to a
    positive's, stays in the table with `keep = false` and does not count towards `top`; so do one that has the query's
    own id (`Collection.identical`), those that a rule rejects, and those before the window of ranks. A list ends with
    its last negative, or with the window. The table's provenance says under `recapture` how many labelled positives
    would be among the negatives, were they not known (`Recapture`): what an estimate of false negatives needs. For a
    window without rules and draw they are counted, else planted.

    Args:
        collection: documents, queries, judgements.
        retriever: what ranks.
        split: whose queries.
        top: negatives per query, at least 1.
        near_duplicate: threshold in (0, 1]; above 1 nothing is marked but equal texts; None: nothing at all.
        ranks: the window: first rank, and the rank after the last; None: no end, or with rules 10·`top` after the
            first.
        rank_rejected: whether rejected documents count in the ranks of the window.
        depth: how many documents of a ranking are looked at, labelled ones included; None: as many as it takes.
        leave_out_positives: False: documents labelled relevant for the query stay, for a ranking of all, and the table
            says nothing of what would be returned.
        rules: reject, in their order, before the look-alikes; the first that holds gives the reason.
        scorer: its scores are what rules and draw see, and are added as a column of its name; None: the retriever's.
        fill: the next in rank takes the place of a rejected document; False: lists with rejected ones are short.
        draw: `top` candidates of the window are drawn from this distribution, without replacement; None: its first.
        seed: of the draws; a query's depends on it and on the query's row alone.
        at_once: queries that are ranked together; changes speed and memory alone.
        plant: the largest number of queries that are mined once more, for what a draw, rules, or a retriever that reads
            judgements would do with an unknown positive; 0: the table then says nothing of it.
        made: provenance of the table.

    Raises:
        InputError: `top` below 1, `near_duplicate` not above 0, a window that is empty or, with a draw, without an
            end, an unknown split, a split without positives, or as the rules say.
    """
    if near_duplicate is not None and not near_duplicate > 0:
        raise InputError(f"near-duplicate threshold {near_duplicate}; expected above 0, and above 1 for none")
    first, end = ranks
    if end is None and rules and draw is None:
        end = first + DEPTH * top
    window = Window(top, first, end, fill, draw, seed, rank_rejected, depth)
    rows = collection.queries_of(split)
    marker = Marker(collection, LookAlikes(collection, near_duplicate), rules, scorer, leave_out_positives)
    candidates = _all_searched(retriever, rows, window, marker, f"mining with {retriever.name}", at_once)
    negatives = _table(candidates.taken(), marker, retriever.name, made or {})
    kept = int(negatives.keep.sum())

    def mine(reduced: Collection, way: Way, planted: Planted) -> npt.NDArray[np.void]:
        """Mine anew for the queries of the planted documents, and return which of these are listed."""
        again = Marker(reduced, LookAlikes(reduced, near_duplicate), way.rules, scorer)
        task = f"planting positives for {retriever.name}"
        anew = replace(window, draw=way.draw)
        mined = _all_searched(way.retriever, planted.query_rows, anew, again, task, at_once).taken()
        own = planted.contain(mined["query"], mined["document"]) & ~np.isin(mined["reason"], again.passed_over)
        listed = _listed(mined[own], ranks_within(mined["query"])[own])
        listed["keep"] = _table(mined[own], again, retriever.name, {}).keep
        return listed

    way, positives = Way(retriever, rules, draw), np.concatenate(candidates.listed)
    recapture = {}
    if leave_out_positives:
        recapture = recaptured(collection, way, positives, mine, split=split, kept=kept, most=plant, seed=seed)
    return Mined.of(
        negatives.with_provenance(recapture),
        title=f"{retriever.name} negatives of {collection.name} ({split})",
        collection=collection,
        split=split,
        source=retriever.name,
        top=top,
        queries=len(rows),
        positives_left_out=candidates.positives,
        short=dict(candidates.short),
    )


@dataclass
class _Candidates:
    """Candidates so far, each query's in rank order, and the counts."""

    rows: list[npt.NDArray[np.void]] = field(default_factory=list)
    positives: int = 0
    listed: list[npt.NDArray[np.void]] = field(default_factory=list)  # labelled positives in the window
    short: Counter[str] = field(default_factory=Counter)

    def add(self, part: _Candidates) -> None:
        """Take in the candidates of the next queries."""
        self.rows += part.rows
        self.positives += part.positives
        self.listed += part.listed
        self.short += part.short

    def taken(self) -> npt.NDArray[np.void]:
        """Return the rows, and let go of them: a table that is made of them is as large."""
        rows = np.concatenate(self.rows)
        self.rows.clear()
        return rows


def _table(rows: npt.NDArray[np.void], marker: Marker, source: str, made: Provenance) -> Negatives:
    """The candidates as a table."""
    table = negatives_table(
        marker.collection.queries["query_id"].take(pa.array(rows["query"])),
        marker.collection.documents["doc_id"].take(pa.array(rows["document"])),
        source,
        ranks_within(rows["query"]),
        rows["score"],
    )
    table = table.append_column("keep", pa.array(rows["reason"] == 0))
    negatives = Negatives(table.append_column("reason", marker.in_words(rows["reason"])), made)
    if marker.scorer is not None:
        negatives = negatives.with_columns({marker.scorer.column: rows["scale"]})
    return with_positives(negatives, marker.pairs(rows), marker.rules)


def _listed(rows: npt.NDArray[np.void], ranks: npt.ArrayLike) -> npt.NDArray[np.void]:
    """Candidates as they would stand in the table, with their ranks there."""
    listed = np.ones(len(rows), LISTED)
    listed["query"], listed["document"], listed["score"] = rows["query"], rows["document"], rows["score"]
    listed["rank"] = ranks
    return listed


def _all_searched(
    retriever: Retriever, query_rows: Rows, window: Window, marker: Marker, task: str, at_once: int
) -> _Candidates:
    """Candidates of all queries, block by block, in other processes where they may be sent there."""

    def searched(block: Rows) -> _Candidates:
        return _searched(retriever, block, window, marker)

    candidates, blocks = _Candidates(), np.split(query_rows, range(at_once, len(query_rows), at_once))
    portable = marker.scorer is None and getattr(retriever, "portable", False)
    with progress.task(task, total=len(query_rows), unit="queries") as advance:
        parts = map_shards(searched, blocks) if portable else map(searched, blocks)
        for block, part in zip(blocks, parts, strict=True):
            candidates.add(part)
            advance(len(block))
    return candidates


def _searched(retriever: Retriever, query_rows: Rows, window: Window, marker: Marker) -> _Candidates:
    """Search ever deeper, for the queries whose list is still short, until each is full or ends."""
    documents, result = len(marker.collection.documents), _Candidates()
    most = window.most(documents, marker.most_positives)
    depth = min(most, window.first_depth(marker.most_positives, whole=marker.rejects_much, spare=SPARE))
    pending = query_rows
    while len(pending):
        rows, scores = retriever.search(pending, depth)
        candidates, valid, positive = marker.judged(pending, rows, scores)
        if not window.rank_rejected:
            marker.look(candidates, valid, None)
        counted = valid if window.rank_rejected else valid & (candidates["reason"] == 0)
        rank: Rows = np.cumsum(counted, axis=1) - counted
        inside = (rank >= window.first) & (rank < (window.end or documents))
        if window.rank_rejected:
            marker.look(candidates, valid & inside, None if window.draw else window.top)
        usable = valid & inside & (candidates["reason"] == 0)
        wished = np.cumsum(usable, axis=1) - usable < window.top
        over, through = (rows < 0).any(axis=1), counted.sum(axis=1) >= (window.end or documents)
        full = np.zeros(len(pending), bool) if window.draw else usable.sum(axis=1) >= window.top
        final = full | over | through | (depth == most)
        listed = (rank < (window.end or documents)) & final[:, None] & (wished | (window.draw is not None))
        candidates["reason"][valid & (rank < window.first) & (candidates["reason"] == 0)] = marker.before
        if window.draw is not None:
            usable = _drawn(marker, candidates, valid & inside, window, window.draw, final)
        result.rows.append(candidates[listed & valid])
        result.positives += int((positive & listed).sum())
        within = positive & listed & (rank >= window.first)
        result.listed.append(_listed(candidates[within], (np.cumsum(valid, axis=1) - valid)[within]))
        lacking = final & (usable.sum(axis=1) < window.top)
        for which, why in (
            (lacking & through, window.why_short),
            (lacking & ~through & over, retriever.short),
            (lacking & ~through & ~over, window.why_over(documents)),
        ):
            result.short.update({why: int(which.sum())} if which.any() else {})
        pending, depth = pending[~final], min(most, depth * 4)
    joined = np.concatenate(result.rows)
    position = np.empty(int(query_rows.max()) + 1, np.int64)
    position[query_rows] = np.arange(len(query_rows))
    result.rows = [joined[np.argsort(position[joined["query"]], kind="stable")]]
    return result


def _drawn(
    marker: Marker, candidates: npt.NDArray[np.void], inside: Marks, window: Window, draw: Draw, final: Marks
) -> Marks:
    """Draw by the largest log weight + Gumbel noise; mark what was not drawn, and return what was and may stay."""
    free = candidates["reason"] == 0
    among = inside & (free | (not window.fill)) & final[:, None]
    keys = np.full(candidates.shape, -np.inf)
    keys[among] = draw.log_weights(marker.pairs(candidates[among]))
    place: Rows = np.maximum(np.cumsum(inside, axis=1) - 1, 0)
    for row in np.flatnonzero(final):
        rng = np.random.default_rng([window.seed, int(candidates["query"][row, 0])])
        keys[row] += rng.gumbel(size=int(place[row, -1]) + 1)[place[row]]
    order = np.argsort(-keys, axis=1, kind="stable")[:, : window.top]
    drawn = np.zeros(candidates.shape, bool)
    np.put_along_axis(drawn, order, True, axis=1)
    drawn &= np.isfinite(keys)
    candidates["reason"][inside & free & ~drawn] = marker.not_drawn
    return np.asarray(drawn & free)
