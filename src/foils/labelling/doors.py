"""The doors of labelling: a sample of labels, and every row called by a cascade of judges."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.labels import Labels, is_program
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, SourcesLike, as_source, as_sources
from foils.data.tables import provenance
from foils.encode.opening import AT_128, EncodingSettings
from foils.labelling.dialogue import label_page, on_terminal
from foils.labelling.evidence import evidence_of, prior_before_labels
from foils.labelling.judging import (
    PAGE,
    SCORING,
    TERMINAL,
    UNCERTAIN,
    Answer,
    ByFunction,
    JudgeErrors,
    LabelSettings,
    PairJudge,
    RelevanceJudge,
    ask_checks,
    by_program,
    errors_by_people,
    errors_on_known,
    open_judge,
)
from foils.labelling.relabelling import (
    REJECT,
    Cascade,
    Relabelled,
    RelabelSettings,
    marked,
)
from foils.labelling.sheet import LabelSheet, PairPool, pairs_in, pairs_of
from foils.llm import LLMSettings, ModelUse
from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan, write_text
from foils.runtime.options import several, spelled
from foils.runtime.results import Result, Table, number
from foils.statistics.survey import Floats, Rows, Share, estimate_share

PEOPLE = "people"


@dataclass(frozen=True)
class SourceShare:
    """What the labels of some judges say of a source.

    Attributes:
        source: its name.
        judge: `people`, or the name of a program.
        negatives: how many pairs the source holds.
        drawn: how many of them were drawn.
        relevant: how many of these were judged relevant.
        share: of the source's negatives that are relevant, as judged.
        corrected: the same, the program's errors taken into account; None: they are not known.
    """

    source: str
    judge: str
    negatives: int
    drawn: int
    relevant: int
    share: Share
    corrected: Share | None = None

    @property
    def best(self) -> Share:
        """The corrected share, where there is one."""
        return self.corrected or self.share

    def to_json(self) -> dict[str, Any]:
        """Return the counts and shares."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in ("source", "judge", "negatives", "drawn")}
        corrected = None if self.corrected is None else self.corrected.to_json()
        return {**facts, "relevant": self.relevant, **self.share.to_json(), "corrected": corrected}


@dataclass(frozen=True)
class Labelled(Result):
    """Labels of negatives that were drawn from sources.

    Attributes:
        labels: of the drawn pairs, and what the file held beside them.
        universe: the pairs that they were drawn from.
        drawn: (k,) rows of the universe that were drawn.
        errors: program -> how often it is right.
        models: name -> use, of a language model that judged.
        facts: settings, seed and collection, for JSON.
        output: the file of the labels.
        belief: (N,) of the universe's pairs, that the draw and the shares make use of; None: equal for all.
        notes: what to do next, in words.
    """

    labels: Labels
    universe: PairPool = field(repr=False)
    drawn: Rows = field(repr=False)
    errors: Mapping[str, JudgeErrors]
    models: Mapping[str, ModelUse]
    facts: Mapping[str, Any]
    output: Path
    belief: Floats | None = field(default=None, repr=False)
    notes: Sequence[str] = ()

    @cached_property
    def shares(self) -> list[SourceShare]:
        """The share of false negatives of each source, by people, and by each program that judged."""
        names = [name for name in self.labels.table["judge"].unique().to_pylist() if name is not None]
        programs = [name for name in names if is_program(name)]
        judges = [*([None] if len(names) > len(programs) or not names else []), *programs]
        return [share for judge in judges for share in self._by(judge)]

    def tables(self) -> list[Table]:
        """Return for each source how many pairs were drawn and judged, and the share of false negatives."""
        columns = ("source", "negatives", "judged", "relevant", "false negatives", "95 % interval")
        rows = [
            (
                each.source if each.judge == PEOPLE else f"{each.source}, by {each.judge}",
                f"{each.negatives:,}", f"{each.share.judged} of {each.drawn}", each.relevant,
                number(each.best.share), f"{number(each.best.low)}–{number(each.best.high)}",
            )
            for each in self.shares
        ]  # fmt: skip
        caption = "\n".join([*self._remarks(), *self.notes])
        used = [Table(name, ("", "value"), use.rows(name)) for name, use in self.models.items()]
        return [Table(f"Labels → {self.output}", columns, rows, caption), *used]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, each source's counts and shares, and the errors of programs."""
        errors = {name: each.to_json() for name, each in self.errors.items()}
        sources = [each.to_json() for each in self.shares]
        more = {name: use.to_json() for name, use in self.models.items()}
        facts = {**self.facts, "pairs": len(self.drawn), "sources": sources, "judges": errors}
        return dict(without_nan({**facts, **({"language_models": more} if more else {})}))

    def _by(self, judge: str | None) -> list[SourceShare]:
        relevant, probability = self.labels.match(self.universe.table, judge=judge)
        judged, errors = np.isfinite(relevant) & np.isfinite(probability), self.errors.get(judge or "")
        shares = []
        for name, rows in self.universe.members.items():
            here = rows[judged[rows]]
            belief, everyone = (None, None) if self.belief is None else (self.belief[here], self.belief[rows])
            share = estimate_share(relevant[here], probability[here], belief=belief, population=everyone)
            corrected = None if errors is None else errors.corrected(share, seed=int(self.facts["seed"]))
            counts = (len(rows), int(np.isin(rows, self.drawn).sum()), int(relevant[here].sum()))
            shares.append(SourceShare(name, judge or PEOPLE, *counts, share, corrected))
        return shares

    def _remarks(self) -> list[str]:
        """What is said of programs: their errors, or that these are not known."""
        remarks = []
        for name in dict.fromkeys(each.judge for each in self.shares if each.judge != PEOPLE):
            errors = self.errors.get(name)
            if errors is None or not errors.known:
                remarks.append(f"{name}: its errors are not known, and not corrected for; judge some pairs yourself")
                continue
            (hits, of), (passed, others) = errors.sensitivity, errors.specificity
            remarks.append(
                f"{name}: corrected by its errors on {errors.basis}: {hits} of {of} relevant ones and {passed} of "
                f"{others} others judged rightly"
            )
            if errors.bounds:
                remarks.append(
                    "Negatives are harder to judge than documents drawn at random, so that these are upper bounds; "
                    "judge some pairs yourself for more"
                )
        return remarks


log = logging.getLogger(__name__)


def _judged(judge: PairJudge, sheet: LabelSheet, name: str, *, skips: bool = False) -> None:
    """Have the open pairs judged under a name; what was answered is kept, should it fail."""
    places, missing = sheet.open(name), 0
    try:
        for place, answer in zip(places, judge.judge([sheet.shown[place] for place in places]), strict=True):
            missing += answer is None
            if answer is not None or skips:
                sheet.record(place, name, None if answer is None else int(answer))
    finally:
        sheet.write()
    if missing and not skips:
        log.info("%s gave no answer on %d of %d pairs; they are asked about again", name, missing, len(places))


def errors_of(
    labelling: LabelSettings, sheet: LabelSheet, collection: Collection, universe: PairPool, program: PairJudge | None
) -> dict[str, JudgeErrors]:
    """How often each program is right: on pairs that people judged, or on known positives and random documents."""
    labels = sheet.labels()
    errors = {name: errors_by_people(labels, universe, name) for name in labels.programs()}
    if program is not None and labelling.checks and program.name in errors and not errors[program.name].known:
        judged = ask_checks(
            program, collection, universe.table["query_id"], pairs=labelling.checks, seed=labelling.seed,
            known=lambda key: sheet.has(key, program.name),
        )  # fmt: skip
        if judged:
            sheet.add(Labels(pa.Table.from_pylist(judged)))
            sheet.write()
            labels = sheet.labels()
    unknown = [name for name, each in errors.items() if not each.known]
    return {**errors, **{name: errors_on_known(labels, name) for name in unknown if labels.checks(name)[0][1]}}


RECORDED = ("budgets", "checks", "positive_precision", "negative_precision", "unsure", "split")


def _check_labelling(labelling: LabelSettings) -> None:
    """Refuse a question without anybody who answers it."""
    if labelling.ask is None and not labelling.answers and not sys.stdin.isatty():
        ways = ", ".join(spelled("ask", way) for way in (PAGE, "llm:MODEL"))
        raise InputError(f"nobody is there to judge: there is no terminal; give one of {ways}")


@door(
    check=_check_labelling,
    needs={
        "llm": {"ask": "llm"},
        "encoding": [{"draw": UNCERTAIN}, {"ask": SCORING}],
    },
)
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
    who, program, notes = labelling.ask, None, list[str]()
    name = who if isinstance(who, str | None) else getattr(who, "name", type(who).__name__)
    settings = {"n": labelling.n, "with": name, "checks": labelling.checks, "as": labelling.labeller}
    if labelling.draw == UNCERTAIN:
        encoder, store = encoding.open(loaded)
        settings |= {"draw": labelling.draw, "split": labelling.split, "encoder": encoder.fingerprint}
        belief = prior_before_labels(
            universe, loaded, negatives, encoder, store, split=labelling.split, seed=labelling.seed
        )
    drawn = universe.draw(labelling.n, seed=labelling.seed, belief=belief)
    digests = {"collection": loaded.digest, **{source.name: source.digest for source in named}}
    made = provenance("label", settings, inputs=digests, seed=labelling.seed)
    sheet = LabelSheet.of(Path(labelling.output), loaded, universe, drawn, provenance=made)
    for given in several(labelling.answers):
        sheet.add(Labels.of(given, loaded), person=labelling.labeller)
    sheet.write()
    facts = {"collection": loaded.name, "seed": labelling.seed, "settings": settings}
    if who == TERMINAL or (who is None and not labelling.answers):
        with on_terminal() as dialogue:
            dialogue.go_through(sheet, labelling.labeller)
    elif who == PAGE:
        path, add = sheet.path.with_suffix(".html"), spelled("answers", "FILE")
        write_text(path, label_page(sheet, labelling.labeller, title=", ".join(universe.members)))
        notes = [f"Open {path} in a browser, judge, download the answers, and add them with {add}."]
    elif by_program(who):
        program = open_judge(cast("Any", who), loaded, encoding=encoding, llm=llm, question=labelling.question)
        _judged(program, sheet, program.name)
    elif who is not None:
        _judged(ByFunction(cast("Answer", who)), sheet, labelling.labeller, skips=True)
    errors = errors_of(labelling, sheet, loaded, universe, program)
    models = {program.name: program.questions.asked} if isinstance(program, RelevanceJudge) else {}
    return Labelled(sheet.labels(), universe, drawn.rows, errors, models, facts, sheet.path, belief, notes)


@door(needs={"llm": {"judge": "llm"}})
def relabel(
    collection: CollectionLike,
    source: SourceLike,
    *,
    relabelling: RelabelSettings,
    reading: CollectionSettings,
    llm: LLMSettings,
    encoding: EncodingSettings = AT_128,
) -> Relabelled:
    """Relabel negatives: say of each row whether it is an answer after all, by a cascade of judges within a budget.

    The table gains `relevance`, a probability, and `verdict`: positive, negative or unsure. Rows that are called
    positive are no longer trained on as negatives, and can join the judgements: --promoted FILE here, and
    --add-judgements FILE wherever the collection is used. Rejected rows are judged, too, and stay rejected.

    Raises:
        InputError: a collection, source, judge or labels that cannot be read, or no row of a judged query.
        FailureError: a judge failed; what a language model answered is kept, and the same command goes on.
    """
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    encoder, store = encoding.open(loaded)
    taken = [name for name in ("relevance", "verdict") if name in named.negatives.table.column_names]
    if taken:
        raise InputError(f"{named.name} has {' and '.join(taken)} already; relabel the table it was made from")
    labels = [Labels.of(each, loaded) for each in several(relabelling.labels)]
    known = Labels(pa.concat_tables(each.table for each in labels)) if labels else None
    how: dict[str, Any] = {"encoding": encoding, "llm": llm, "question": relabelling.question}
    judges = [open_judge(each, loaded, **how) for each in relabelling.judges]
    evidence = evidence_of(loaded, named.negatives, encoder, store, split=relabelling.split, seed=relabelling.seed)
    cascade = Cascade(
        loaded, pairs_in(named.negatives.table.take(pa.array(evidence.rows))), evidence, seed=relabelling.seed
    )
    if known is not None:
        cascade.take(known)
    for judge, count in zip(judges, relabelling.questions(len(evidence.rows)), strict=True):
        cascade.ask(judge, count, checks=relabelling.checks)
    verdict, high, low = cascade.verdicts(relabelling.positive_precision, relabelling.negative_precision)
    settings = {
        "judges": [each.name for each in judges],
        **{name: getattr(relabelling, name) for name in RECORDED},
        "labels": [len(each) for each in labels],
        "encoder": encoder.fingerprint,
    }
    digests = {"collection": loaded.digest, named.name: named.digest}
    table = marked(named.negatives, evidence.rows, cascade.crowd.posterior, verdict, relabelling.unsure == REJECT)
    made = provenance("relabel", settings, inputs=digests, seed=relabelling.seed)
    return Relabelled.of(
        table.with_provenance(made),
        title=f"{named.name}, relabelled",
        collection=loaded,
        split=relabelling.split,
        judges=tuple(cascade.use(judge.name) for judge in judges),
        evidence=dict(zip(("constant", *evidence.names), cascade.crowd.weights.tolist(), strict=True)),
        high=high,
        low=low,
        answers=cascade.labels(),
        models={judge.name: judge.questions.asked for judge in judges if isinstance(judge, RelevanceJudge)},
    )
