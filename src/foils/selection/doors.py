"""The doors of selection: by a rule on ratings, and by composing one source of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from foils.data.resolve import CollectionLike, CollectionSettings, SourceLike, SourcesLike, as_sources, as_table
from foils.data.store import provenance
from foils.encode.opening import AT_128, EncodingSettings, description
from foils.mining.fusion import fuse_sources
from foils.runtime.doors import door
from foils.runtime.keyed import settings_option
from foils.runtime.options import Option, refuse, spelled
from foils.runtime.surroundings import ScaleSettings
from foils.scoring import compose as composition
from foils.scoring import composed, measure, prepare
from foils.scoring.gates import WEIGHTINGS
from foils.selection.results import Composed, Selected
from foils.selection.stage import RULES, draws, select_negatives


@door
def select(
    rated: Annotated[SourceLike, Option(metavar="RATED")],
    *,
    by: Annotated[str, Option(names=RULES)] = "table",
    settings: Annotated[Mapping[str, Any] | None, settings_option()] = None,
    collection: Annotated[CollectionLike | None, Option(metavar="COLLECTION")] = None,
    split: str = "train",
    seed: Annotated[int, Option(least=0)] = 0,
    reading: CollectionSettings,
) -> Selected:
    """Select the negatives to train on, by a rule on their ratings: add keep, reason, weight and tier.

    No row is dropped. Several sources without ratings are made one by foils compose.

    Args:
        rated: A table of rated negatives, as foils rate writes it.
        by: Rule on ratings that selects.
        settings: A setting of the rule, as margin=0.1; may be given several times. In Python a dictionary.
        collection: Collection that was rated; the page and exports need its texts.
        split: Split of the judgements whose positives the page and exports show.
        seed: Seed of rules that draw, and of the page's examples; the same seed gives the same bytes.

    Raises:
        InputError: a table without ratings, options that have no effect together, or a setting out of range.
        UnknownNameError: no such rule, or no such setting of it.
    """
    if collection is None:
        without = f"without {spelled('collection')}, of whose texts page and exports are made; give it, or leave it out"
        refuse({"split": None if split == "train" else split, **reading.changed()}, without)
        refuse_seed(by, seed)
    loaded = None if collection is None else reading.open(collection)
    table = as_table(rated)
    return select_negatives(
        table.negatives, by=by, settings=settings, seed=seed, name=table.name, digest=table.digest, collection=loaded,
        split=split,
    )  # fmt: skip


def refuse_seed(by: str, seed: int) -> None:
    """Raise an InputError where a seed is given and nothing is drawn: neither by the rule nor for a page."""
    if by in RULES and not draws(by):
        flag, drawing = spelled("by"), " and ".join(filter(draws, RULES))
        refuse({"seed": seed or None}, f"with {flag} {by}, which draws nothing, as {flag} {drawing} do; leave it out")


@door
def compose(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    top: Annotated[int, Option(least=1)] = 10,
    regularization: Annotated[float, Option(flag="--lambda", above=0)] = 0.1,
    weight: Annotated[str, Option(names=WEIGHTINGS)] = "gated",
    temperature: Annotated[float, Option(above=0)] = 0.05,
    split: str = "train",
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Composed:
    """Compose one source of several: for each query the negatives that together are most informative.

    The sources are united, and negatives are chosen greedily by log det (ECI_sem eq. 26–27). The rows that are not
    chosen stay, rejected.

    Args:
        top: Negatives per query.
        regularization: λ of log det(Id + I/λ); the smaller it is, the more diversity counts.
        weight: Weight of a negative. The gates prefer easy negatives; gradient_weighted prefers hard ones.
        temperature: Temperature τ, which divides similarities.
        split: Split of the judgements whose positives are used.

    Raises:
        InputError: a collection or source that cannot be read, or no record of the split has a negative.
        UnknownNameError: an unknown split or weight.
    """
    loaded = reading.open(collection)
    parts = as_sources(sources, loaded)
    encoder, store = encoding.open(loaded)
    united = fuse_sources({each.name: each.negatives for each in parts}) if len(parts) > 1 else parts[0].negatives
    prepared = prepare(loaded, {"union": united}, split=split, control=False)
    measured = measure(prepared, encoder, store, temperature)
    weights = WEIGHTINGS[weight](measured.similarities, temperature)
    chosen = composition(measured.geometry, weights, count=top, regularization=regularization)
    used = {"top": top, "lambda": regularization, "weight": weight, "split": split,
            "temperature": temperature, "encoder": description(encoder)}  # fmt: skip
    return Composed.of(
        composed(united, measured.records, chosen, weights),
        provenance=provenance("compose", used, inputs={each.name: each.digest for each in parts}),
        title=f"composition of {len(parts)} sources",
        settings=used,
        queries=len(measured.records),
        collection=loaded,
        split=split,
    )
