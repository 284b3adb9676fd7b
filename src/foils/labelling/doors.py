"""The door of labelling."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from foils.data.collection import Collection
from foils.data.labels import Labels, pair_keys
from foils.data.resolve import CollectionLike, CollectionSettings, SourcesLike, as_sources
from foils.data.store import provenance, write_text
from foils.encode.opening import AT_128, EncodingSettings
from foils.labelling.believing import belief_before_labels
from foils.labelling.drawing import Universe, pairs_of
from foils.labelling.errors import JudgeErrors, checks_of, errors_by_people, errors_on_known
from foils.labelling.judging import PairJudge, RelevanceJudge, check_settings, checked_answer, is_judge, open_judge
from foils.labelling.page import label_page
from foils.labelling.results import Labelled
from foils.labelling.settings import PAGE, TABLE, TERMINAL, UNCERTAIN, Answer, LabelSettings
from foils.labelling.sheet import Sheet, Shown
from foils.labelling.terminal import on_terminal
from foils.llm import LLMSettings
from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.options import spelled
from foils.statistics.survey import Floats

log = logging.getLogger(__name__)


def _check(labelling: LabelSettings, llm: LLMSettings, encoding: EncodingSettings) -> None:
    """Refuse options that do nothing beside the others, and a question without anybody who answers it."""
    who = labelling.ask
    if who is None and not labelling.files and not sys.stdin.isatty():
        ways = ", ".join(spelled("ask", way) for way in (PAGE, TABLE, "llm:MODEL"))
        raise InputError(f"nobody is there to judge: there is no terminal; give one of {ways}")
    check_settings(labelling, llm, encoding)


@door(check=_check)
def label(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    labelling: LabelSettings,
    reading: CollectionSettings,
    llm: LLMSettings,
    encoding: EncodingSettings = AT_128,
) -> Labelled:
    """Label a sample of negatives: which of them are relevant after all, and what share of each source that makes.

    Pairs are drawn with known probabilities: all alike, or those first that decide most (draw: uncertain). Every answer
    is kept at once: the same command goes on where it stopped, and a larger -n adds to what is there.

    Raises:
        InputError: a collection, source, judge or file of answers that cannot be read, or nobody to judge.
        FailureError: a judge failed, or the labels cannot be written; what was answered is kept.
    """
    loaded = reading.open(collection)
    named = as_sources(sources, loaded)
    negatives = {source.name: source.negatives for source in named}
    universe = pairs_of(negatives)
    belief: Floats | None = None
    settings = {"n": labelling.n, "with": _name(labelling.ask), "checks": labelling.checks, "as": labelling.labeller}
    if labelling.draw == UNCERTAIN:
        encoder, store = encoding.open(loaded)
        settings |= {"draw": labelling.draw, "split": labelling.split, "encoder": encoder.fingerprint}
        belief = belief_before_labels(
            universe, loaded, negatives, encoder, store, split=labelling.split, seed=labelling.seed
        )
    drawn = universe.draw(labelling.n, seed=labelling.seed, belief=belief)
    digests = {"collection": loaded.digest, **{source.name: source.digest for source in named}}
    made = provenance("label", settings, inputs=digests, seed=labelling.seed)
    sheet = Sheet.of(
        Path(labelling.output), loaded, universe, drawn, provenance=made, with_texts=labelling.ask == TABLE
    )
    for given in labelling.files:
        sheet.add(Labels.of(given, loaded), person=labelling.labeller)
    sheet.write()
    facts = {"collection": loaded.name, "seed": labelling.seed, "settings": settings}
    opened = partial(open_judge, collection=loaded, encoding=encoding, llm=llm)
    program, notes = _asked(labelling, sheet, universe, opened)
    errors = _errors(labelling, sheet, loaded, universe, program)
    models = {}
    if isinstance(program, RelevanceJudge):
        models[program.name] = program.asked.use(llm.price)
    return Labelled(sheet.labels(), universe, drawn.rows, sheet.shown, errors, models, facts, sheet.path, belief, notes)


def _asked(
    labelling: LabelSettings, sheet: Sheet, universe: Universe, opened: Callable[..., PairJudge]
) -> tuple[PairJudge | None, list[str]]:
    """Have the open pairs judged by whoever is to judge; return who, where it is a program, and what to do next."""
    who = labelling.ask
    if who is None and not labelling.files:
        who = TERMINAL
    if who == TERMINAL:
        with on_terminal() as dialogue:
            dialogue.go_through(sheet, labelling.labeller)
    elif who in (PAGE, TABLE):
        return None, [_handed_over(labelling, sheet, ", ".join(universe.members))]
    elif isinstance(who, str) or is_judge(who):
        program = opened(who, question=labelling.question)
        _judged(program, sheet)
        return program, []
    elif who is not None:
        _answered(cast("Answer", who), sheet, labelling.labeller)
    return None, []


def _handed_over(labelling: LabelSettings, sheet: Sheet, title: str) -> str:
    """Write the page; return what to do with it, or with the table."""
    if labelling.ask == TABLE:
        return f"Fill in the column relevant (1 or 0) of {sheet.path}, and save it in this form."
    path = sheet.path.with_suffix(".html")
    write_text(path, label_page(sheet, labelling.labeller, title=title))
    return f"Open {path} in a browser, judge, download the answers, and add them with {spelled('answers', 'FILE')}."


def _judged(program: PairJudge, sheet: Sheet) -> None:
    """Have a program judge the open pairs."""
    places = sheet.open(program.name)
    answers = program.judge([sheet.shown[place] for place in places])
    for place, answer in zip(places, answers, strict=True):
        if answer is not None:
            sheet.record(place, program.name, int(answer))
    sheet.write()
    if missing := answers.count(None):
        log.info("%s gave no answer on %d of %d pairs; they are asked about again", program.name, missing, len(places))


def _answered(answer: Answer, sheet: Sheet, judge: str) -> None:
    """Have a function judge the open pairs; what it answered is kept, should it fail."""
    try:
        for place in sheet.open(judge):
            pair = sheet.shown[place]
            relevant = checked_answer(answer(pair.query, pair.positive, pair.document))
            sheet.record(place, judge, None if relevant is None else int(relevant))
            sheet.write_soon()
    finally:
        sheet.write()


def _errors(
    labelling: LabelSettings, sheet: Sheet, collection: Collection, universe: Universe, program: PairJudge | None
) -> dict[str, JudgeErrors]:
    """How often each program is right: on pairs that people judged, or on known positives and random documents."""
    labels = sheet.labels()
    errors = {name: errors_by_people(labels, universe, name) for name in labels.programs()}
    if program is not None and labelling.checks and program.name in errors and not errors[program.name].known:
        queries = collection.query_rows(universe.table["query_id"].unique())
        pairs, shown = checks_of(program, collection, queries, pairs=labelling.checks, seed=labelling.seed)
        _checked(program, sheet, pairs, shown)
        labels = sheet.labels()
    unknown = [name for name, each in errors.items() if not each.known]
    return {**errors, **{name: errors_on_known(labels, name) for name in unknown if labels.checks(name)[0][1]}}


def _checked(program: PairJudge, sheet: Sheet, pairs: pa.Table, shown: Sequence[Shown]) -> None:
    """Have a program judge pairs whose truth is known, those that it has not judged yet."""
    places = [at for at, key in enumerate(pair_keys(pairs).to_pylist()) if not sheet.has(key, program.name)]
    answers = program.judge([shown[at] for at in places])
    rows = zip(pairs.take(pa.array(places, pa.int64())).to_pylist(), answers, strict=True)
    judged = [{**row, "relevant": int(given), "judge": program.name} for row, given in rows if given is not None]
    if judged:
        sheet.add(Labels(pa.Table.from_pylist(judged)))
        sheet.write()


def _name(who: Any) -> str | None:
    """Who judges, for provenance."""
    return who if who is None or isinstance(who, str) else getattr(who, "name", type(who).__name__)
