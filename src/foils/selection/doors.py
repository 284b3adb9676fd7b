"""From tables to the same with `keep, reason, weight`: by a rule on ratings, or what is worth most for the training.

By benefit, the negatives of one source or of several are weighed together. A list S of a query is
worth log(1 + X/Z)·Y/X, X = Σ x_j, Y = Σ x_j·ℓ_j·E[1 − (1 + κ)·π_j] over its negatives: the expected
benefit (`foils.deciding.benefit`), which is linear in π, so that the mean over the belief is that
of each π_j. Negatives that are expected to do harm are left out: without one X falls and Y rises.
Of the others up to K are chosen greedily; where a source's own first K without the harmful ones are
worth more together, they are taken instead. So no source with at most K negatives a query has a
larger expected benefit.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import Negatives
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.run import grouped, ranks_within
from foils.data.sources import NamedSource, SourceLike, SourcesLike, as_source, as_sources
from foils.data.tables import codes, provenance
from foils.deciding import BeliefSettings, Decision, decide
from foils.deciding.benefit import HARM
from foils.encode.vectors import AT_128, EncodingSettings, description
from foils.mining.methods import fuse_sources
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.options import Needs, Option, door, settings_checked, settings_option, spelled
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Table, number
from foils.scoring.triplets import triplets_of_rows
from foils.selection.rules import RULES, Floats, Marks, RatedRows, Rows, Selection, rated_columns

BENEFIT = "benefit"
HARMFUL = "expected to do more harm than good"
NOT_CHOSEN = "not among the most useful"
NOT_SCORED = "not scored"

TOP = 10  # negatives of a query


@dataclass(frozen=True, kw_only=True)
class Selected(Negatives):
    """A table with `keep, reason, weight, tier`, by a rule on ratings.

    Attributes:
        by: the rule.
        settings: of the rule, those that were given.
        seed: of rules that draw.
        selection: what the rule says of the rows that it was shown.
    """

    by: str
    settings: Mapping[str, Any]
    seed: int
    selection: Selection

    def tiers(self) -> dict[str, dict[str, Any]]:
        """Return by each tier's name how many rows it has, how many it keeps, and their sum of weights."""
        tier = self.selection.tier
        return {
            name: {
                "rows": int((tier == name).sum()),
                "kept": int(self.selection.keep[tier == name].sum()),
                "weight": float(self.selection.weight[tier == name].sum()),
            }
            for name in dict.fromkeys(tier.tolist())
        }

    def tables(self) -> list[Table]:
        """Return rows, kept rows and weights by tier, with the rejected rows by reason."""
        rows = [
            (tier, f"{facts['rows']:,}", f"{facts['kept']:,}", number(facts["weight"], 1))
            for tier, facts in sorted(self.tiers().items())
        ]
        notes = [*filter(None, [self.nothing_kept()])]
        notes += [f"{why}: {count:,}" for why, count in self.rejected().items()]
        if thresholds := self.selection.thresholds:
            notes.append("thresholds: " + ", ".join(f"{name} {gap:.0f}" for name, gap in thresholds.items()))
        return [Table(self.title, ("tier", "rows", "kept", "weight"), rows, "\n".join(notes))]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, and rows, kept rows and weights by tier."""
        return {
            "by": self.by,
            "settings": dict(self.settings),
            "seed": self.seed,
            "kept": int(self.keep.sum()),
            "tiers": self.tiers(),
            "rejected": self.rejected(),
            "thresholds": dict(self.selection.thresholds),
        }


def _marked_by_rule(negatives: Negatives, shown: Rows, selection: Selection) -> Negatives:
    """Return the table with what a rule says of the rows that it was shown."""
    weight, tier = np.zeros(len(negatives)), np.full(len(negatives), None, object)
    weight[shown], tier[shown] = selection.weight, selection.tier
    marked = negatives.reject(np.zeros(len(negatives), bool), "")  # with keep and reason, where it has none
    for reason in sorted({*selection.reason} - {None}):
        rejected = np.zeros(len(negatives), bool)
        rejected[shown[selection.reason == reason]] = True
        marked = marked.reject(rejected, reason)
    return marked.with_columns({"weight": weight, "tier": pa.array(tier.tolist(), pa.string())})


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
    sources: Sequence[NamedSource],
    encoding: EncodingSettings,
    belief: BeliefSettings,
    *,
    top: int,
    temperature: float,
    split: str,
    seed: int,
) -> ByBenefit:
    """Keep each query's negatives, of all sources together, whose list has the largest expected benefit.

    Args:
        collection: documents, queries, judgements.
        sources: of negatives.
        encoding: the encoder that the training starts from.
        belief: labels, what the training starts from, and in-batch negatives.
        top: negatives of a query, at most.
        temperature: τ of the training.
        split: whose queries.
        seed: of the belief.

    Raises:
        InputError: no negatives, fewer than two queries, labels that cannot be read, settings out of range.
    """
    Option(least=1).check("top", top)
    tables = {each.name: each.negatives for each in sources}
    encoder, store = encoding.open(collection)
    decision = decide(
        collection, tables, encoder, store, belief, split=split, temperature=temperature, seed=seed, records=None
    )
    candidates = _candidates(decision, list(tables), temperature)
    chosen = most_useful(candidates, top)
    settings = {"by": BENEFIT, "top": top, "temperature": temperature, "split": split,
                "starts": belief.starts, "in_batch": belief.in_batch, "recurrence": decision.recurrence,
                "labels": decision.labels, "encoder": description(encoder)}  # fmt: skip
    count = len(decision.basis.measured.records)
    lists = zip(tables, candidates.lists, strict=True)
    union = fuse_sources(tables) if len(tables) > 1 else sources[0].negatives
    return ByBenefit.of(
        _marked_by_benefit(union, decision, candidates, chosen),
        provenance=provenance("select", settings, inputs={each.name: each.digest for each in sources}, seed=seed),
        title=f"{', '.join(tables)} by benefit",
        queries=count,
        benefit=mean_benefit(candidates, chosen, count),
        of_sources={name: mean_benefit(candidates, np.flatnonzero(has), count) for name, has in lists},
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


def _marked_by_benefit(union: Negatives, decision: Decision, candidates: Candidates, chosen: Rows) -> Negatives:
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


def _check_selecting(by: str, collection: CollectionLike | None) -> None:
    """Refuse the benefit without a collection."""
    if collection is None and by == BENEFIT:
        raise InputError(f"{spelled('by', by)} measures texts; give the negatives' {spelled('collection')}")


_BY_BENEFIT: Needs = {"by": BENEFIT}
_OF_TEXTS: Needs = {"collection": True}


@door(
    check=_check_selecting,
    needs={
        **dict.fromkeys(("temperature", "belief", "scale", "encoding"), _BY_BENEFIT),
        **dict.fromkeys(("split", "reading"), _OF_TEXTS),
    },
)
def select(
    rated: Annotated[SourcesLike, Option(metavar="RATED", repeated=True)],
    *,
    by: Annotated[str, Option(names=(*RULES, BENEFIT))] = "table",
    settings: Annotated[Mapping[str, Any] | None, settings_option()] = None,
    collection: Annotated[CollectionLike | None, Option(metavar="COLLECTION")] = None,
    split: str = "train",
    seed: Annotated[int, Option(least=0)] = 0,
    temperature: Annotated[float, Option(above=0)] = 0.05,
    belief: BeliefSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Selected | ByBenefit:
    """Select negatives to train on, by a rule on their ratings or by benefit: add keep, reason and weight.

    No row is dropped: one that an earlier stage rejected keeps its reason, is not shown to the
    rule, and has weight 0 and no tier. By benefit, the negatives of one source or of several are
    weighed by what they would add to the training, given how likely each is an unlabelled answer,
    and the most useful of each query are kept.

    Args:
        rated: A table of rated negatives, as foils rate writes it; for the benefit any sources of negatives.
        by: Rule on ratings that selects; or benefit.
        settings: A setting of the rule, as margin=0.1 (of the benefit: top=10); may be given several
            times. In Python a dictionary.
        collection: Collection of the negatives, of whose texts the benefit is made. In Python also
            for `export`.
        split: Split of the judgements whose positives the benefit takes.
        seed: Seed of rules that draw, and of the benefit; the same seed gives the same bytes.
        temperature: Temperature τ of the training, for the benefit.

    Example:
        foils select rated.parquet --by mixture -o train.parquet

    Raises:
        InputError: a table without ratings, options that have no effect together, or a setting out of
            range or of another type than its default.
        UnknownNameError: no such rule, or no such setting of it.
    """
    loaded = None if collection is None else reading.open(collection)
    if by == BENEFIT and loaded is not None:
        chosen = settings_checked(by, {"top": TOP}, settings or {})
        named = as_sources(rated, loaded)
        return select_by_benefit(
            loaded, named, encoding, belief, **chosen, temperature=temperature, split=split, seed=seed
        )
    if isinstance(rated, (list, tuple)) and len(rated) != 1:
        raise InputError(
            f"{len(rated)} tables; a rule on ratings takes one; give {spelled('by', BENEFIT)} to join them"
        )
    table = rated[0] if isinstance(rated, (list, tuple)) else rated
    source, chosen = as_source(cast(SourceLike, table), None), dict(settings or {})
    known = inspect.signature(RULES[by]).parameters
    defaults = {name: each.default for name, each in known.items() if name not in ("rows", "rng")}
    settings_checked(by, defaults, chosen)
    negatives, shown = source.negatives, np.flatnonzero(source.negatives.keep)
    drawing = {"rng": np.random.default_rng(seed)} if "rng" in known else {}
    part = negatives.table.take(pa.array(shown))
    rows = RatedRows(codes(part["query_id"]), **rated_columns(part, "gap", "elo", "preference"))
    selection = RULES[by](rows, **chosen, **drawing)
    return Selected.of(
        _marked_by_rule(negatives, shown, selection),
        provenance=provenance("select", {"by": by, **chosen}, inputs={"rated": source.digest}, seed=seed,
                              before=negatives.provenance),
        title=f"{source.name} by {by}", by=by, settings=chosen, seed=seed, selection=selection,
        collection=loaded, split=split,
    )  # fmt: skip
