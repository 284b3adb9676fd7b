"""From a rated table to the same with `keep, reason, weight, tier`, by a rule on ratings or by benefit."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast

import numpy as np
import pyarrow as pa

from foils.data.negatives import Negatives
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, SourcesLike, as_source, as_sources
from foils.data.tables import codes, provenance
from foils.deciding import BeliefSettings
from foils.encode.opening import AT_128, EncodingSettings
from foils.runtime.errors import InputError
from foils.runtime.options import Needs, Option, door, settings_checked, settings_option, spelled
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Table, number
from foils.selection.benefit import BENEFIT, TOP, ByBenefit, select_by_benefit
from foils.selection.rules import RULES, RatedRows, Rows, Selection, rated_columns


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


def _marked(negatives: Negatives, shown: Rows, selection: Selection) -> Negatives:
    """Return the table with what a rule says of the rows that it was shown."""
    weight, tier = np.zeros(len(negatives)), np.full(len(negatives), None, object)
    weight[shown], tier[shown] = selection.weight, selection.tier
    marked = negatives.reject(np.zeros(len(negatives), bool), "")  # with keep and reason, where it has none
    for reason in sorted({*selection.reason} - {None}):
        rejected = np.zeros(len(negatives), bool)
        rejected[shown[selection.reason == reason]] = True
        marked = marked.reject(rejected, reason)
    return marked.with_columns({"weight": weight, "tier": pa.array(tier.tolist(), pa.string())})


TEMPERATURE = 0.05


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
    temperature: Annotated[float, Option(above=0)] = TEMPERATURE,
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
        parts = as_sources(rated, loaded)
        return select_by_benefit(
            loaded, {each.name: each.negatives for each in parts}, *encoding.open(loaded), belief, **chosen,
            temperature=temperature, split=split, seed=seed, digests={each.name: each.digest for each in parts},
        )  # fmt: skip
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
        _marked(negatives, shown, selection),
        provenance=provenance("select", {"by": by, **chosen}, inputs={"rated": source.digest}, seed=seed,
                              before=negatives.provenance),
        title=f"{source.name} by {by}", by=by, settings=chosen, seed=seed, selection=selection,
        collection=loaded, split=split,
    )  # fmt: skip
