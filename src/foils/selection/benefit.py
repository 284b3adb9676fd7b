"""Keeping the negatives that are worth most for the training, of one source or of several.

A list S of a query is worth log(1 + X/Z)·Y/X, X = Σ x_j, Y = Σ x_j·ℓ_j·E[1 − (1 + κ)·π_j] over its
negatives: the expected benefit (`foils.deciding.benefit`), which is linear in π, so that the mean
over the belief is that of each π_j. Negatives that are expected to do harm are left out: without
one X falls and Y rises. Of the others up to K are chosen greedily; where a source's own first K
without the harmful ones are worth more together, they are taken instead. So no source with at most
K negatives a query has a larger expected benefit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.run import grouped, ranks_within
from foils.data.tables import provenance
from foils.deciding import BeliefSettings, Decision, decide
from foils.deciding.benefit import HARM
from foils.encode.encoder import Encoder
from foils.encode.opening import description
from foils.encode.vectors import VectorStore
from foils.mining.methods import fuse_sources
from foils.runtime import progress
from foils.runtime.options import Option
from foils.runtime.results import Table, number
from foils.scoring.triplets import triplets_of_rows
from foils.selection.rules import Floats, Marks

BENEFIT = "benefit"
HARMFUL = "expected to do more harm than good"
NOT_CHOSEN = "not among the most useful"
NOT_SCORED = "not scored"

TOP = 10  # negatives of a query


@dataclass(frozen=True)
class Candidates:
    """Distinct negatives of some queries.

    Attributes:
        triplets: (k,) of the decision. `record`: (k,) the query of each, ascending.
        pull: (k,) log x_j/Z of each.
        gain: (k,) ℓ_j·E[1 − (1 + κ)·π_j] of each, at most 1.
        lists: for each source the places of its negatives, (k,) marks.
    """

    triplets: Rows
    record: Rows
    pull: Floats
    gain: Floats
    lists: tuple[Marks, ...]


@dataclass(frozen=True, kw_only=True)
class ByBenefit(Negatives):
    """The rows of one source or several; kept are those whose lists have the largest expected benefit.

    Attributes:
        queries: that have candidates.
        benefit: expected, mean over all queries; a query without a kept negative counts as 0.
        of_sources: the same of each source as it is, by the same probabilities of its negatives.
        decision: between the sources as they are.
    """

    queries: int
    benefit: float
    of_sources: Mapping[str, float]
    decision: Decision

    def rows(self) -> list[tuple[str, str]]:
        """Return the counts, and what the chosen negatives and each source are worth."""
        counts = {"queries": self.queries, "candidates": len(self), "chosen": int(self.keep.sum())}
        worths = {"expected benefit": self.benefit, **{f"that of {name}": v for name, v in self.of_sources.items()}}
        return [
            *((name, f"{count:,}") for name, count in counts.items()),
            *self.rejected_rows(),
            *((name, number(value)) for name, value in worths.items()),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, the counts and the benefits."""
        return {
            "settings": self.provenance["settings"],
            "queries": self.queries,
            "candidates": len(self),
            "kept": int(self.keep.sum()),
            "rejected": self.rejected(),
            "benefit": self.benefit,
            "of_sources": dict(self.of_sources),
            "decision": self.decision.to_json(),
        }

    def tables(self) -> list[Table]:
        """Return the counts, and the decision between the sources as they are."""
        return [*super().tables(), self.decision.table()]


def list_benefit(pull: Floats, gain: Floats) -> float:
    """Return log(1 + X)·Y/X of a list, X = Σ e^pull and Y = Σ e^pull·gain; 0 for an empty one."""
    if not len(pull):
        return 0.0
    top = float(pull.max())
    spread = np.exp(pull - top)
    total = float(spread.sum())
    return float(np.logaddexp(0.0, top + np.log(total)) * (spread @ gain) / total)


def mean_benefit(candidates: Candidates, places: Rows, queries: int) -> float:
    """Return the mean over queries of the benefit of the lists at these places, which are ascending."""
    lists = [places[group] for group in grouped(candidates.record[places])]
    return sum(list_benefit(candidates.pull[each], candidates.gain[each]) for each in lists) / max(queries, 1)


def most_useful(candidates: Candidates, top: int) -> Rows:
    """Return the places of the chosen negatives, ascending.

    Args:
        candidates: the negatives.
        top: K, at least 1.
    """
    starts = np.searchsorted(candidates.record, np.arange(int(candidates.record.max(initial=-1)) + 2))
    chosen: list[Rows] = []
    with progress.task("choosing negatives", total=len(starts) - 1, unit="queries") as advance:
        for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            useful = np.arange(first, end)[candidates.gain[first:end] > 0]
            ways = [_greedy(candidates, useful, top)]
            for has in candidates.lists:
                listed = useful[has[useful]]
                # In a list of one.
                single = np.logaddexp(0.0, candidates.pull[listed]) * candidates.gain[listed]
                ways.append(listed[np.argsort(-single, kind="stable")[:top]])
            worth = [list_benefit(candidates.pull[way], candidates.gain[way]) for way in ways]
            chosen.append(np.sort(ways[int(np.argmax(worth))]))
            advance(1)
    return np.concatenate([np.zeros(0, np.int64), *chosen])


def _greedy(candidates: Candidates, places: Rows, top: int) -> Rows:
    """Add what raises the list's benefit most, until nothing does or the list is full."""
    pull, gain = candidates.pull[places], candidates.gain[places]
    if not len(places):
        return places
    spread = np.exp(pull - pull.max())
    scale, free = float(pull.max()), np.ones(len(places), bool)
    total = useful = worth = 0.0
    for _ in range(min(top, len(places))):
        totals, sums = total + spread, useful + spread * gain
        with np.errstate(divide="ignore", invalid="ignore"):
            values = np.where(free & (totals > 0), np.logaddexp(0.0, scale + np.log(totals)) * sums / totals, -np.inf)
        best = int(np.argmax(values))
        if values[best] <= worth:
            break
        free[best], worth, total, useful = False, float(values[best]), float(totals[best]), float(sums[best])
    return places[~free]


def select_by_benefit(
    collection: Collection,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    belief: BeliefSettings,
    *,
    top: int = TOP,
    temperature: float = 0.05,
    split: str = "train",
    seed: int = 0,
    digests: Mapping[str, str] | None = None,
) -> ByBenefit:
    """Keep each query's negatives, of all sources together, whose list has the largest expected benefit.

    Args:
        collection: documents, queries, judgements.
        sources: name -> negatives.
        encoder: that the training starts from.
        store: of vectors.
        belief: labels, what the training starts from, and in-batch negatives.
        top: negatives of a query, at most.
        temperature: τ of the training.
        split: whose queries.
        seed: of the belief.
        digests: of the sources' files, for provenance.

    Raises:
        InputError: no negatives, fewer than two queries, labels that cannot be read, settings out of range.
    """
    Option(least=1).check("top", top)
    decision = decide(
        collection, sources, encoder, store, belief, split=split, temperature=temperature, seed=seed, records=None
    )
    candidates = _candidates(decision, list(sources), temperature)
    chosen = most_useful(candidates, top)
    settings = {"by": BENEFIT, "top": top, "temperature": temperature, "split": split,
                "starts": belief.starts, "in_batch": belief.in_batch, "recurrence": decision.recurrence,
                "labels": decision.labels, "encoder": description(encoder)}  # fmt: skip
    inputs = dict(digests or {name: table.digest for name, table in sources.items()})
    count = len(decision.basis.measured.records)
    union = fuse_sources(sources) if len(sources) > 1 else next(iter(sources.values()))
    return ByBenefit.of(
        _marked(union, decision, candidates, chosen),
        provenance=provenance("select", settings, inputs=inputs, seed=seed),
        title=f"{', '.join(sources)} by benefit",
        queries=count,
        benefit=mean_benefit(candidates, chosen, count),
        of_sources={
            name: mean_benefit(candidates, np.flatnonzero(has), count)
            for name, has in zip(sources, candidates.lists, strict=True)
        },
        decision=decision,
        collection=collection,
        split=split,
    )


def _candidates(decision: Decision, sources: Sequence[str], temperature: float) -> Candidates:
    """The negatives of these sources: random ones that the decision drew beside them are left out."""
    basis, records = decision.basis, decision.basis.measured.records
    bits = [records.names.index(name) for name in sources]
    triplets = np.flatnonzero(records.members & sum(1 << bit for bit in bits))
    record = records.record[triplets]
    gain = (1 - (1 + HARM) * basis.expected[triplets]) * basis.learnabilities(triplets)
    s_n, s_p = basis.similarities(triplets)
    pull = (s_n - s_p[record]) / temperature - np.logaddexp(0.0, basis.in_batch[record])
    lists = tuple((records.members[triplets] >> bit & 1) == 1 for bit in bits)
    return Candidates(triplets, record, pull, gain, lists)


def _marked(union: Negatives, decision: Decision, candidates: Candidates, chosen: Rows) -> Negatives:
    """The rows of all sources with what is believed of them; those that are not chosen are rejected.

    The weight of a chosen one is the share of its pull that is expected to help, ℓ_j·E[1 − (1 + κ)·π_j].
    """
    measured, triplets = decision.basis.measured, candidates.triplets
    count = len(measured.records.record)
    known, kept = np.zeros(count, bool), np.zeros(count, bool)
    known[triplets], kept[triplets[chosen]] = True, True
    useful = np.full(count, np.nan)
    useful[triplets] = candidates.gain
    triplet = triplets_of_rows(union, measured.records)
    scored = (triplet >= 0) & known[triplet]
    keep = scored & kept[triplet] & ~_repeats(triplet)
    weight = np.where(scored, useful[triplet], 0.0)
    probability = pa.array(decision.basis.expected[triplet], mask=~scored)
    table = union.with_columns({"false_probability": probability, "weight": np.where(keep, weight, 0.0)})
    table = table.reject(scored & (weight <= 0), HARMFUL)
    return table.reject(~scored, NOT_SCORED).reject(~keep, NOT_CHOSEN)


def _repeats(triplet: Rows) -> Marks:
    """Return which rows are of a triplet that an earlier row has already; −1 is none."""
    order = np.argsort(triplet, kind="stable")
    repeated = np.zeros(len(triplet), bool)
    repeated[order] = (ranks_within(triplet[order]) > 0) & (triplet[order] >= 0)
    return repeated
