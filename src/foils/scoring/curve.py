"""Which part of a source is worth most: the benefit of equally many negatives a query, by rank and by margin.

Each part is decided about as a source of its own, with the evidence of its false negatives that it would have had it
been mined so (`foils.scoring.part_recapture`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Rows
from foils.data.negatives import Negatives
from foils.data.run import ranks_within
from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.options import spelled
from foils.scoring.compose import triplets_of_rows
from foils.scoring.deciding import Decided, decide_on
from foils.scoring.decision import Decision
from foils.scoring.gates import Float64s
from foils.scoring.measure import pair_similarities
from foils.scoring.part_recapture import Recaptured
from foils.scoring.prepared import Measured
from foils.scoring.records import Marks
from foils.scoring.results import Scores
from foils.scoring.uniting import MAX_SOURCES
from foils.scoring.worth import SourceWorth

Parts = Mapping[tuple[float, int | None], Rows]

SIZE = 10  # negatives of a query
MARGINS = (0.0, 0.02, 0.05, 0.1, 0.2)  # shares of the positive's similarity
DENSE_WINDOWS = 10  # windows without a gap between them; deeper ones lie a fifth of their rank apart


@dataclass(frozen=True)
class Part:
    """Negatives of a source that would be a source of their own.

    Attributes:
        first: rank of its first negatives, 0-based, or the margin below the positive, as a share of its similarity.
        end: the rank after the last; None for a margin.
        negatives_per_query: on average.
        worth: what is believed of it.
    """

    first: float
    end: int | None
    negatives_per_query: float
    worth: SourceWorth

    @property
    def name(self) -> str:
        """Its ranks or its margin in words."""
        return f"margin {100 * self.first:g} %" if self.end is None else f"{self.first:.0f}–{self.end}"

    def to_json(self) -> dict[str, Any]:
        """Return it as scores.json holds it."""
        place = {"margin": self.first} if self.end is None else {"ranks": [int(self.first), self.end]}
        return {**place, "negatives_per_query": self.negatives_per_query, **_facts(self.worth)}


@dataclass(frozen=True)
class Curve:
    """What the parts of a source are worth.

    Attributes:
        source: its name. `by`: rank or margin. `size`: negatives of a query in each part, at most.
        parts: by rising rank or margin.
        best: the part with the least expected regret; None: none is worth more than no mined negatives.
        drawn: what as many negatives, drawn evenly from all ranks of the source, are worth.
        whole: what all its negatives together are worth.
        decision: between the parts.
    """

    source: str
    by: str
    size: int
    parts: tuple[Part, ...]
    best: Part | None
    drawn: SourceWorth
    whole: SourceWorth
    decision: Decision

    def to_json(self) -> dict[str, Any]:
        """Return the curve as scores.json holds it."""
        from foils.scoring.curve_shown import sentence

        known = {**self.decision.to_json(), **(self.best.to_json() if self.best else {})}
        shown = ("ranks", "margin", "best_with_probability", "benefit", "benefit_low", "benefit_high", "matters",
                 "label_next")  # fmt: skip
        return {
            "source": self.source,
            "by": self.by,
            "negatives_per_query": self.size,
            "parts": [part.to_json() for part in self.parts],
            "drawn": _facts(self.drawn),
            "whole": _facts(self.whole),
            "best": {name: known[name] for name in shown if name in known} if self.best else None,
            "sentence": sentence(self),
        }


def sized(text: str, sources: Collection[str]) -> tuple[str, int]:
    """Read NAME or NAME:K, the name of a source and how many negatives of a query each part has.

    Raises:
        UnknownNameError: no such source.
        InputError: K is no number, or below 1.
    """
    name, colon, number = (text, "", "") if text in sources else text.rpartition(":")
    name = name if colon or name else number
    if name not in sources:
        raise UnknownNameError(spelled("curve"), name, sources)
    if colon and not (number.isdecimal() and int(number)):
        raise InputError(f"{spelled('curve', text)}; expected SOURCE or SOURCE:K, as {name}:5, K at least 1")
    return name, int(number) if colon else SIZE


def checked_windows(source: str, ranks: Rows, size: int) -> list[tuple[int, int]]:
    """Return the windows of ranks that a source's curve compares: first rank, and the one after the last.

    Raises:
        InputError: it has no two windows.
    """
    windows = _windows(ranks, size)
    if len(windows) < 2:
        count = int(np.ptp(ranks)) + 1 if len(ranks) else 0
        smaller = f", or compare smaller windows, as {source}:{count // 2} does" if count > 1 else ""
        raise InputError(
            f"{source} has {count} ranks; a curve of {size} negatives a query compares two windows of ranks at least, "
            f"{2 * size} ranks; mine it deeper, as foils mine --top {10 * size} does{smaller}"
        )
    return windows


def curves(
    scores: Scores,
    sources: Mapping[str, Negatives],
    source: str,
    *,
    size: int = SIZE,
    by: Sequence[str] = ("rank", "margin"),
) -> tuple[Curve, ...]:
    """Return what the parts of a source are worth, by rank, and by margin where some clear one.

    Args:
        scores: with a decision, whose survey and labels count here, too.
        sources: that were scored: name -> the table.
        source: name of one of them, mined in depth: at least twice as deep as `size`.
        size: negatives of a query in each part.
        by: which of them.

    Raises:
        InputError: nothing was decided; the source is not deep enough; too many sources beside it.
        UnknownNameError: no such source.
    """
    decided = scores.decided
    if decided is None:
        raise InputError("a curve shows what a decision believes; leave the ranking by a published score out")
    if source not in sources:
        raise UnknownNameError("curve", source, sources)
    ranked = _Ranked.of(sources[source], scores, decided)
    windows = checked_windows(source, ranked.rank[ranked.triplets], size)
    drawn = _drawn(ranked, size, scores.settings.seed)
    lowest = _lowest_positive(scores.measured)
    ways: dict[str, Parts] = {
        "rank": {(first, end): ranked.within(first, end) for first, end in windows},
        "margin": {(margin, None): ranked.below(lowest, margin, size, scores.measured) for margin in MARGINS},
    }
    made = []
    for stream, (way, parts) in enumerate(ways.items()):
        with_pairs = {place: rows for place, rows in parts.items() if len(rows)}
        if way in by and with_pairs:
            made.append(_curve(ranked, sources, source, way, size, with_pairs, drawn, stream))
    return tuple(made)


@dataclass(frozen=True)
class _Ranked:
    """A source's triplets among those that are looked at, by record and rank.

    `rank` and `row` are of every triplet of the scoring: its rank in the table, and its row; −1 where it is not there.
    """

    negatives: Negatives
    scores: Scores
    decided: Decided
    triplets: Rows
    record: Rows
    rank: Rows
    row: Rows
    queries: int

    @classmethod
    def of(cls, negatives: Negatives, scores: Scores, decided: Decided) -> _Ranked:
        records = scores.measured.records
        triplet, ranks = triplets_of_rows(negatives, records), np.asarray(negatives.table["rank"].to_numpy(), np.int64)
        order = np.argsort(-ranks, kind="stable")  # of equal texts the best-ranked is written last
        order = order[triplet[order] >= 0]
        rank, row = np.full((2, len(records.record)), -1, np.int64)
        rank[triplet[order]], row[triplet[order]] = ranks[order], order
        looked_at = decided.ground.triplets
        own = looked_at[row[looked_at] >= 0]
        own = own[np.lexsort((rank[own], records.record[own]))]
        record = records.record[own]
        return cls(negatives, scores, decided, own, record, rank, row, len(np.unique(record)))

    def within(self, first: int, end: int) -> Rows:
        rank = self.rank[self.triplets]
        return self.triplets[(rank >= first) & (rank < end)]

    def below(self, lowest: Float64s, margin: float, size: int, measured: Measured) -> Rows:
        """The first of each record that lie below its lowest positive by a margin."""
        limit = lowest - margin * np.abs(lowest)
        clear = measured.similarities.s_n[self.triplets] <= limit[self.record]
        return self.triplets[clear][ranks_within(self.record[clear]) < size]

    def table(self, triplets: Rows) -> Negatives:
        """The rows of some triplets, without what the table says of all."""
        return Negatives(self.negatives.table.take(pa.array(np.sort(self.row[triplets]))))


def _windows(ranks: Rows, size: int) -> list[tuple[int, int]]:
    """Windows of `size` ranks, without gaps at first, then a fifth of their rank apart."""
    start, deep = (int(ranks.min()), int(ranks.max()) + 1) if len(ranks) else (0, 0)
    windows, at = [], 0
    while start + (at + 1) * size <= deep:
        windows.append((start + at * size, start + (at + 1) * size))
        at += max(1, 2 * at // DENSE_WINDOWS)
    return windows


def _drawn(ranked: _Ranked, size: int, seed: int) -> Rows:
    """As many negatives of each record, drawn evenly from all its ranks."""
    chance = np.random.default_rng([seed, 11]).random(len(ranked.triplets))
    order = np.lexsort((chance, ranked.record))
    return np.sort(ranked.triplets[order][ranks_within(ranked.record[order]) < size])


def _lowest_positive(measured: Measured) -> Float64s:
    """(T,) similarity of each record's query and its lowest positive."""
    records, geometry = measured.records, measured.geometry
    every = pair_similarities(geometry.queries, records.positive_record, geometry.documents, records.all_positives)
    lowest = np.full(len(records), np.inf)
    np.minimum.at(lowest, records.positive_record, every)
    return lowest


def _curve(
    ranked: _Ranked,
    sources: Mapping[str, Negatives],
    source: str,
    by: str,
    size: int,
    parts: Parts,
    drawn: Rows,
    stream: int,
) -> Curve:
    """Decide between parts, with the other sources beside them, whose labels count."""
    scores, whole = ranked.scores, ranked.decided.decision.worths[source]
    ground = replace(ranked.decided.ground, counted=np.unique(ranked.record))
    names = {f"{source} {Part(*place, 0.0, whole).name}": place for place in parts}
    of_drawn = f"{source} drawn"
    members = {name: parts[place] for name, place in names.items()} | {of_drawn: drawn}
    rest = np.setdiff1d(ranked.triplets, np.concatenate(list(members.values())))
    members |= {f"{source} rest": rest} if len(rest) else {}  # which may have labels
    tables = {name: ranked.table(triplets) for name, triplets in members.items()}
    recaptured = Recaptured.of(ranked.negatives, scores.measured.records.collection)
    if recaptured is not None:
        ratios = np.exp(ground.logs)
        likely = ratios[ranked.triplets].mean()
        for name, (first, end) in names.items():
            if end is not None:
                tables[name] = recaptured.window(int(first), end, float(ratios[members[name]].mean() / likely))
        tables[of_drawn] = recaptured.draw(tables[of_drawn])
    others = {name: table for name, table in sources.items() if name != source}
    rng = np.random.default_rng([scores.settings.seed, 12, stream])
    decided = decide_on(
        ground, _with_parts(scores, members, list(others)), {**others, **tables}, rng, rivals=list(names)
    )
    worths = decided.decision.worths
    every = [Part(*place, len(parts[place]) / max(1, ranked.queries), worths[name]) for name, place in names.items()]
    best = next((part for part in every if part.worth.name == decided.decision.source), None)
    return Curve(source, by, size, tuple(every), best, worths[of_drawn], whole, decided.decision)


def _with_parts(scores: Scores, parts: Mapping[str, Rows], others: Sequence[str]) -> Scores:
    """The scores with parts of a source as sources, instead of it."""
    records = scores.measured.records
    names = [*others, *parts]
    if len(names) > MAX_SOURCES:
        raise InputError(
            f"{len(others) + 1} sources and {len(parts)} parts of one; with a curve score at most "
            f"{MAX_SOURCES - len(parts) + 1} sources"
        )
    members = np.zeros(len(records.record), np.int64)
    for bit, name in enumerate(names):
        has: Marks | Rows = parts[name] if name in parts else (records.members >> records.names.index(name) & 1) == 1
        members[has] |= 1 << bit
    with_parts = replace(records, names=tuple(names), members=members)
    return replace(scores, measured=replace(scores.measured, records=with_parts))


def _facts(worth: SourceWorth) -> dict[str, Any]:
    known = {name: value for name, value in asdict(worth).items() if name != "name"}
    return {
        name: None if isinstance(value, float) and math.isnan(value) else value for name, value in known.items()
    }  # NaN: not known
