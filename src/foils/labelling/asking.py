"""How the pairs of a sheet get their answers, from people and programs, and how often the programs err."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import cast

import pyarrow as pa

from foils.data.collection import Collection
from foils.data.labels import Labels, pair_keys
from foils.labelling.drawing import Universe
from foils.labelling.errors import JudgeErrors, checks_of, errors_by_people, errors_on_known
from foils.labelling.judging import PairJudge, checked_answer, is_judge
from foils.labelling.page import label_page
from foils.labelling.settings import PAGE, TABLE, TERMINAL, Answer, LabelSettings
from foils.labelling.sheet import Sheet, Shown
from foils.labelling.terminal import on_terminal
from foils.runtime.files import write_text
from foils.runtime.options import spelled

log = logging.getLogger(__name__)


def ask_open(
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


def errors_of(
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
