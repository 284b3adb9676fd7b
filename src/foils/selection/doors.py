"""The doors of selection: by a rule on ratings, and by composing one source of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourcesLike, as_sources, as_table
from foils.data.tables import provenance
from foils.deciding import BeliefSettings
from foils.encode.opening import AT_128, EncodingSettings, description
from foils.mining.fusion import fuse_sources
from foils.runtime.doors import door
from foils.runtime.errors import InputError, check_names
from foils.runtime.keyed import settings_option
from foils.runtime.options import Option, refuse, spelled
from foils.runtime.surroundings import ScaleSettings
from foils.scoring import compose as composition
from foils.scoring import composed, make_records, measure
from foils.scoring.gates import WEIGHTINGS
from foils.scoring.lexical import Lexicon
from foils.selection.benefit import BENEFIT, select_by_benefit
from foils.selection.results import ByBenefit, Composed, Selected
from foils.selection.stage import RULES, draws, select_negatives

TEMPERATURE = 0.05


def _check_selecting(
    by: str,
    collection: CollectionLike | None,
    split: str,
    seed: int,
    temperature: float,
    belief: BeliefSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings,
) -> None:
    """Refuse options that do nothing with the rule, and the benefit without a collection."""
    flag = spelled("by")
    if by == BENEFIT:
        if collection is None:
            raise InputError(f"{flag} {by} measures texts; give the {spelled('collection')} of the negatives")
        return
    idle = {**belief.changed(), **encoding.changed(base=AT_128), **scale.changed()}
    idle |= {"temperature": temperature} if temperature != TEMPERATURE else {}
    refuse(idle, f"with {flag} {by}, which goes by ratings; leave it out, or give {flag} {BENEFIT}")
    if collection is None:
        without = f"without {spelled('collection')}, of whose texts page and exports are made; give it, or leave it out"
        refuse({"split": None if split == "train" else split, **reading.changed()}, without)
        refuse_seed(by, seed)


@door(check=_check_selecting)
def select(
    rated: Annotated[SourcesLike, Option(metavar="RATED")],
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
    """Select the negatives to train on, by a rule on their ratings or by benefit: add keep, reason and weight.

    No row is dropped. By benefit, the negatives of one source or of several are weighed by what they would add to the
    training, given how likely each is false, and the most useful of each query are kept.

    Args:
        rated: A table of rated negatives, as foils rate writes it; for the benefit any sources of negatives.
        by: Rule on ratings that selects; or benefit.
        settings: A setting of the rule, as margin=0.1 (of the benefit: top=10, weigh=false); may be given several
            times. In Python a dictionary.
        collection: Collection of the negatives; the benefit, the page and exports need its texts.
        split: Split of the judgements whose positives the benefit, the page and exports take.
        seed: Seed of rules that draw, of the benefit, and of the page's examples; the same seed gives the same bytes.
        temperature: Temperature τ of the training, for the benefit.

    Raises:
        InputError: a table without ratings, options that have no effect together, or a setting out of range.
        UnknownNameError: no such rule, or no such setting of it.
    """
    loaded = None if collection is None else reading.open(collection)
    if by == BENEFIT and loaded is not None:
        chosen = dict(settings or {})
        check_names(f"setting of {by}", chosen, ("top", "weigh"))
        parts = as_sources(rated, loaded)
        return select_by_benefit(
            loaded, {each.name: each.negatives for each in parts}, *encoding.open(loaded), belief, **chosen,
            temperature=temperature, split=split, seed=seed, digests={each.name: each.digest for each in parts},
        )  # fmt: skip
    if isinstance(rated, (list, tuple)):
        if len(rated) != 1:
            raise InputError(
                f"{len(rated)} tables; a rule on ratings takes one; give {spelled('by', BENEFIT)} to join them"
            )
        rated = rated[0]
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
    records = make_records(loaded, {"union": united}, split=split, control=False)
    lexicon = Lexicon.of(records)
    measured = measure(records, encoder, store, temperature, lexicon.coverage(records, lexicon.idf(records)[0]))
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
