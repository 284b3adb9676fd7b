"""The door of labelling: a sample of labels, and what it says of the sources that it was drawn from."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import numpy as np

from foils.data.labels import PERSON, Labels, check_ending
from foils.data.read import AddedLike, CollectionLike, CollectionSettings
from foils.data.sources import SourcesLike, as_sources
from foils.data.tables import provenance
from foils.encode.opening import AT_128, EncodingSettings
from foils.labelling.dialogue import label_page, on_terminal
from foils.labelling.evidence import prior_before_labels
from foils.labelling.judging import (
    BY_PEOPLE,
    PAGE,
    SCORING,
    TERMINAL,
    Answer,
    ByFunction,
    JudgeErrors,
    PairJudge,
    RelevanceJudge,
    is_judge,
    judge_errors,
    judge_known,
    kind_of,
    open_judge,
)
from foils.labelling.sheet import LabelSheet, PairPool, pairs_of
from foils.llm import LLMSettings, ModelUse
from foils.llm.prompts import TemplateLike
from foils.rating import Judge
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan, write_text
from foils.runtime.options import Option, Settings, door, several, spelled
from foils.runtime.results import Result, Table, number
from foils.statistics.survey import Floats, Rows, Share, estimate_share

log = logging.getLogger(__name__)

PEOPLE = "people"
EQUAL, UNCERTAIN = "equal", "uncertain"

if TYPE_CHECKING:
    AskLike = str | Judge | Answer
else:
    AskLike = str


def by_person(who: Any) -> bool:
    """Tell whether a person answers, or a function in their place."""
    return who in BY_PEOPLE if isinstance(who, str) else not is_judge(who)


def by_program(who: Any) -> bool:
    """Tell whether a program answers."""
    return not by_person(who)


@dataclass(frozen=True, kw_only=True)
class LabelSettings(Settings):
    """How pairs are labelled.

    Attributes:
        n: Number of pairs to label. A larger number keeps all pairs of a smaller one.
        ask: Who judges: terminal asks you here, page writes an HTML page beside the labels, or a program:
            bi-encoder[:MODEL], cross-encoder:MODEL, pairwise:FOLDER or llm[:MODEL]. Default: terminal, where there is
            one and no --answers are given. In Python also a judge of `foils.rate`, or a function of query, positive and
            document that returns True, False or None.
        draw: Which pairs come first: equal gives all pairs of a source the same probability; uncertain prefers those
            that the encoder cannot tell, by what `foils score` believes of each pair before any label. Give the options
            of the encoder that scores.
        split: Split of the judgements that uncertain learns from.
        output: File of the labels: .tsv, .csv, .jsonl or .parquet. What it holds already is kept, and is not asked
            again.
        answers: File with answers to add, as the page gives it. May be given several times. In Python
            also labels or a DataFrame.
        labeller: Name under which a person's answers are kept.
        checks: Number of labelled positives, and of documents drawn at random, that a program also judges, so that its
            errors can be estimated; 0 for none.
        question: Prompt of your own for a language model: a text file with {query} and {document}, and optionally
            {answer}. In Python also a `Template`. Without {answer}, the form of the answer is explained at the end.
        seed: Seed of the draw; the same seed draws the same pairs.
    """

    heading = "Labels"

    n: Annotated[int, Option(flag="--number", short="-n", least=1)] = 60
    ask: Annotated[AskLike | None, Option(flag="--with", metavar="WHO")] = None
    draw: Annotated[str, Option(names=(EQUAL, UNCERTAIN))] = EQUAL
    split: Annotated[str, Option(needs={"draw": UNCERTAIN})] = "train"
    output: Annotated[str | Path, Option(short="-o", metavar="FILE")]
    answers: Annotated[AddedLike, Option(metavar="FILE", parse=list, repeated=True)] = ()
    labeller: Annotated[str, Option(flag="--as", metavar="NAME", needs={"ask": by_person})] = PERSON
    checks: Annotated[int, Option(least=0, needs={"ask": by_program})] = 100
    question: Annotated[TemplateLike | None, Option(metavar="FILE", needs={"ask": "llm"})] = None
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ending(self.output)
        if isinstance(self.ask, str) and self.ask not in BY_PEOPLE:
            kind_of(self.ask)
        if not self.labeller.strip() or ":" in self.labeller:
            raise InputError(f"{spelled('labeller', self.labeller)}: expected a person's name, without a colon")


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
        return {**vars(self), **self.share.to_json(), "corrected": self.corrected and self.corrected.to_json()}


@dataclass(frozen=True)
class Labelled(Result):
    """Labels of negatives that were drawn from sources.

    Attributes:
        labels: of the drawn pairs, and what the file held beside them.
        universe: the pairs that they were drawn from.
        drawn: (k,) rows of the universe that were drawn.
        models: name -> use, of a language model that judged.
        facts: settings, seed and collection, for JSON.
        output: the file of the labels.
        belief: (N,) of the universe's pairs, that the draw and the shares make use of; None: equal for all.
        notes: what to do next, in words.
    """

    labels: Labels
    universe: PairPool = field(repr=False)
    drawn: Rows = field(repr=False)
    models: Mapping[str, ModelUse]
    facts: Mapping[str, Any]
    output: Path
    belief: Floats | None = field(default=None, repr=False)
    notes: Sequence[str] = ()

    @cached_property
    def errors(self) -> dict[str, JudgeErrors]:
        """How often each program is right."""
        return {name: judge_errors(self.labels, self.universe, name) for name in self.labels.programs()}

    @cached_property
    def shares(self) -> list[SourceShare]:
        """The share of false negatives of each source, by people, and by each program that judged."""
        programs, names = self.labels.programs(), self.labels.table["judge"].unique().drop_null()
        people = [None] if len(names) > len(programs) or not programs else []
        return [share for judge in (*people, *programs) for share in self._by(judge)]

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
            errors = self.errors[name]
            if not errors.known:
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


def _check_labelling(labelling: LabelSettings) -> None:
    """Refuse a question without anybody who answers it."""
    if labelling.ask is None and not labelling.answers and not sys.stdin.isatty():
        ways = ", ".join(spelled("ask", way) for way in (PAGE, "llm:MODEL"))
        raise InputError(f"nobody is there to judge: there is no terminal; give one of {ways}")


@door(check=_check_labelling, needs={"llm": {"ask": "llm"}, "encoding": [{"draw": UNCERTAIN}, {"ask": SCORING}]})
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
    who, notes = labelling.ask, list[str]()
    belief: Floats | None = None
    models: dict[str, ModelUse] = {}
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
        errors = judge_errors(sheet.labels(), universe, program.name)
        if labelling.checks and (errors.bounds or not errors.known):
            judged = judge_known(
                program, loaded, universe.table["query_id"], pairs=labelling.checks, seed=labelling.seed,
                known=lambda key: sheet.has(key, program.name),
            )  # fmt: skip
            sheet.add(judged)
            sheet.write()
        models = {program.name: program.questions.asked} if isinstance(program, RelevanceJudge) else {}
    elif who is not None:
        _judged(ByFunction(cast("Answer", who)), sheet, labelling.labeller, skips=True)
    return Labelled(sheet.labels(), universe, drawn.rows, models, facts, sheet.path, belief, notes)
