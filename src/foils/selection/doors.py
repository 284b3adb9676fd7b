"""The door of selection."""

from __future__ import annotations

from typing import Annotated

from foils.data.resolve import CollectionLike, CollectionSettings, SourceLike, as_sources, as_table
from foils.encode.opening import AT_128, EncodingSettings
from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.options import Option, refuse, spelled
from foils.runtime.surroundings import ScaleSettings
from foils.selection.composition import compose_sources
from foils.selection.results import Composed, Selected
from foils.selection.settings import COMPOSITION, CompositionSettings, RuleSettings
from foils.selection.stage import RULES, draws, select_negatives


@door
def select(
    rated: Annotated[SourceLike | None, Option(metavar="RATED")] = None,
    *,
    rule: RuleSettings,
    collection: Annotated[CollectionLike | None, Option(metavar="COLLECTION")] = None,
    split: str = "train",
    seed: Annotated[int, Option(least=0)] = 0,
    composition: CompositionSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Selected | Composed:
    """Select the negatives to train on: add keep, reason, weight and tier; no row is dropped.

    By a rule on their ratings, or by composition: for each query the negatives of several sources that together are
    most informative, greedily by log det, as in: foils select --by composition --collection scifact/ --source
    a.parquet --source b.parquet -o train.parquet

    Args:
        rated: A table of rated negatives, as foils rate writes it. Composition takes sources instead.
        collection: Collection that the table or the sources were made from; the page, exports and composition need its
            texts.
        split: Split of the judgements whose positives are used.
        seed: Seed of rules that draw, and of the page's examples; the same seed gives the same bytes.

    Raises:
        InputError: a table without ratings, options that have no effect together, or a setting out of range.
        UnknownNameError: no such rule, or no such setting of it.
    """
    if rule.by == COMPOSITION:
        _check_composition(rated, rule, composition, seed)
        if collection is None:
            raise InputError(f"composition embeds texts; name the {spelled('collection')} of the sources")
        composing = reading.open(collection)
        sources = as_sources(composition.sources, composing)
        return compose_sources(composing, sources, *encoding.open(composing), composition, split=split)
    machine = {**encoding.changed(base=AT_128), **scale.changed()}
    _check_rule(rated, rule.by, {**composition.changed("sources"), **machine, **composition.changed()})
    if collection is None:
        without = f"without {spelled('collection')}, of whose texts page and exports are made; give it, or leave it out"
        refuse({"split": None if split == "train" else split, **reading.changed()}, without)
        refuse_seed(rule.by, seed)
    loaded = None if collection is None else reading.open(collection)
    table = as_table(rated)
    return select_negatives(
        table.negatives,
        by=rule.by,
        settings=rule.settings,
        seed=seed,
        name=table.name,
        digest=table.digest,
        collection=loaded,
        split=split,
    )


def refuse_seed(by: str, seed: int) -> None:
    """Raise an InputError where a seed is given and nothing is drawn: neither by the rule nor for a page."""
    if by in RULES and not draws(by):
        flag, drawing = spelled("by"), " and ".join(filter(draws, RULES))
        refuse({"seed": seed or None}, f"with {flag} {by}, which draws nothing, as {flag} {drawing} do; leave it out")


def _check_composition(rated: object, rule: RuleSettings, composition: CompositionSettings, seed: int) -> None:
    by = f"{spelled('by')} {COMPOSITION}"
    if rated is not None or not composition.sources:
        raise InputError(f"{by} takes {spelled('collection')} and {spelled('sources')}, and no table of ratings")
    refuse(rule.changed("settings"), f"with {by}, which is no rule on ratings; leave it out")
    refuse({"seed": seed or None}, f"with {by}, which draws nothing; leave it out")


def _check_rule(rated: object, by: str, idle: dict[str, object]) -> None:
    flag = spelled("by")
    refuse(
        idle,
        f"with {flag} {by}, which goes by ratings and embeds no text; leave it out, or give {flag} {COMPOSITION}",
    )
    if rated is None:
        raise InputError(f"{flag} {by} takes a table of ratings, as foils rate writes it")
