"""Who judges pairs of a query and a document, how often a program is right, and the door of labelling."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shutil import get_terminal_size
from typing import Annotated, Any, TypeGuard, cast

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.labels import CHECKS, LABEL_COLUMNS, PERSON, Labels, pair_keys
from foils.data.read import AddedLike, CollectionLike, CollectionSettings
from foils.data.sources import SourcesLike, as_sources
from foils.data.tables import provenance
from foils.encode.opening import AT_128, EncodingSettings
from foils.labelling.sheet import (
    LabelSheet,
    Pair,
    PairPool,
    go_through,
    keys_of_terminal,
    pairs_of,
    read_answers,
    shown_of,
    write_sheet,
)
from foils.llm import LLMSettings, Questions, RelevanceQuestions, Usage
from foils.rating import Candidates, Judge, Pairs, PointwiseJudge, QuestionSettings, ask
from foils.rating.judges import RELEVANCE
from foils.rating.session import JudgeSettings, Opening
from foils.rating.session import open_judge as open_compared
from foils.runtime.errors import InputError, check_names
from foils.runtime.files import LABEL_FILES, without_nan
from foils.runtime.options import Option, Settings, door, several, spelled
from foils.runtime.results import Result, Table, counted, number
from foils.statistics.survey import Rows, Share, estimate_share

log = logging.getLogger(__name__)

Answer = Callable[[str, str, str], bool | None]
"""A function of query, labelled positive and document that says if the latter is relevant; None: skip."""
TERMINAL = "terminal"
SCORING = ("bi-encoder", "cross-encoder")
JUDGES = (*SCORING, "llm")


def is_judge(who: Any) -> TypeGuard[Judge]:
    """Tell whether an object is a judge of `foils rate`."""
    return hasattr(who, "judge")


@dataclass(frozen=True)
class PairJudge:
    """Judges pairs one by one.

    Attributes:
        name: what to call it; there is a colon in it.
        judge: returns for each pair whether its document is relevant; None where there is no answer.
        compares: whether it compares the document with the labelled positive, and has no answer without one.
        questions: of a language model, which count what they take.
        recount: counts what the kept answers about pairs took.
    """

    name: str
    judge: Callable[[Sequence[Pair]], Iterable[bool | None]]
    compares: bool = False
    questions: Questions | None = None
    recount: Callable[[Sequence[Pair]], object] | None = None


def against_positive(name: str, compared: Judge) -> PairJudge:
    """Return a judge of `foils rate`: it compares document and labelled positive, in both orders if need be.

    A document is relevant where P(document ≻ positive) ≥ ½. A pair without a positive has no answer.
    """

    def judge(pairs: Sequence[Pair]) -> list[bool | None]:
        known = [pair for pair in pairs if pair.positive]
        lists = [[("positive", pair.positive), ("document", pair.document)] for pair in known]
        ids, queries = [str(place) for place in range(len(known))], [pair.query for pair in known]
        candidates, first = Candidates.of_lists(ids, queries, lists), np.arange(len(known)) * 2
        preference = ask(compared, candidates, Pairs(candidates.offsets, first + 1, first)).preference
        answers = iter([None if np.isnan(p) else p >= 0.5 for p in preference.tolist()])
        return [next(answers) if pair.positive else None for pair in pairs]

    return PairJudge(name, judge, compares=True)


def by_function(function: Answer) -> PairJudge:
    """Return a judge of a function that answers True, False, or None to skip; else an InputError."""

    def judge(pairs: Sequence[Pair]) -> Iterator[bool | None]:
        for pair in pairs:
            answer: Any = function(pair.query, pair.positive, pair.document)
            if answer is not None and not isinstance(answer, (bool, np.bool_)) and answer not in (0, 1):
                raise InputError(f"the function answered {answer!r}; expected True, False, or None to skip")
            yield None if answer is None else bool(answer)

    return PairJudge(f"function:{getattr(function, '__name__', type(function).__name__)}", judge)


def by_language_model(questions: RelevanceQuestions) -> PairJudge:
    """Return a language model that is asked about each pair: relevant from a probability of ½ on."""

    def prompts(pairs: Sequence[Pair]) -> list[str]:
        return questions.prompts([pair.query for pair in pairs], [pair.document for pair in pairs])

    def judge(pairs: Sequence[Pair]) -> list[bool | None]:
        return [None if p is None else p >= 0.5 for p in questions.ask(prompts(pairs))]

    return PairJudge(
        f"llm:{questions.client.model}", judge, questions=questions,
        recount=lambda pairs: questions.recalled(prompts(pairs)),
    )  # fmt: skip


def open_judge(who: Any, collection: Collection, llm: LLMSettings, encoding: EncodingSettings) -> PairJudge:
    """Return the judge of pairs: by name (`KIND:MODEL` as for `foils rate`), its object, or a function.

    A language model is asked how likely one document is an answer.

    Raises:
        InputError: no model.
    """
    if not isinstance(who, str):
        return against_positive(f"judge:{who.name}", who) if is_judge(who) else by_function(who)
    question = QuestionSettings(answer=RELEVANCE)
    opening = Opening(JudgeSettings(judge=[who]), encoding, llm, question, llm.purse())
    opened = open_compared(who, opening, collection)
    if isinstance(opened, PointwiseJudge):
        return by_language_model(opened.questions)
    return against_positive(f"{who.partition(':')[0]}:{opened.name}", opened)


def judge_known(judge: PairJudge, sheet: LabelSheet, query_ids: pa.ChunkedArray, *, pairs: int, seed: int) -> Labels:
    """Have a judge judge pairs of known truth that the sheet does not answer yet; return its answers.

    A labelled positive is shown beside another one of its query; a judge who compares with the
    positive judges those of queries with two or more. Documents drawn at random are taken as not
    relevant. Both are easier to judge than the negatives that were mined.

    Args:
        judge: whom to ask.
        sheet: of the collection, and of what the judge has answered.
        query_ids: queries to take, those without a labelled positive are left out.
        pairs: how many of each kind, at most.
        seed: of the draws.
    """
    collection = sheet.collection
    truth, rng = collection.known_positives, np.random.default_rng(seed)
    inside = np.flatnonzero(np.isin(truth.query_rows, collection.query_rows(query_ids.unique())))
    places = rng.permutation(inside).tolist()
    positives = [(place, truth.of(place)[-1]) for place in places if len(truth.of(place)) > judge.compares][:pairs]
    drawn = zip(places, rng.integers(len(collection.documents), size=min(pairs, len(places))).tolist(), strict=False)
    random = [(place, row) for place, row in drawn if row not in truth.of(place)]
    queries, documents = np.array([*positives, *random], np.int64).reshape(-1, 2).T
    table = pa.table(
        {
            "query_id": collection.queries["query_id"].take(pa.array(truth.query_rows[queries])),
            "doc_id": collection.documents["doc_id"].take(pa.array(documents)),
            "text": pa.nulls(len(documents), pa.large_string()),
            "sources": [CHECKS[0]] * len(positives) + [CHECKS[1]] * len(random),
        }
    )
    keyed = zip(table.to_pylist(), pair_keys(table).to_pylist(), strict=True)
    open_rows = [row for row, key in keyed if not sheet.has(key, judge.name)]
    answers = zip(open_rows, judge.judge(shown_of(collection, open_rows)), strict=True)
    rows = [{**row, "relevant": int(answer), "judge": judge.name} for row, answer in answers if answer is not None]
    return Labels(pa.Table.from_pylist(rows, LABEL_COLUMNS))


PEOPLE = "people"
AskLike = str | Judge | Answer


def by_person(who: Any) -> bool:
    """Tell whether a person answers, or a function in their place."""
    return who == TERMINAL if isinstance(who, str) else not is_judge(who)


def by_program(who: Any) -> bool:
    """Tell whether a program answers."""
    return not by_person(who)


@dataclass(frozen=True, kw_only=True)
class LabelSettings(Settings):
    """How pairs are labelled.

    Attributes:
        n: Number of pairs to label. A larger number keeps all pairs of a smaller one.
        ask: Who judges: terminal asks you here; programs are bi-encoder[:MODEL],
            cross-encoder:MODEL and llm[:MODEL]. Default: terminal, where there is one and neither
            --answers nor --sheet is given. In Python also a judge of `foils.rate`, or a function of
            query, positive and document that returns True, False or None.
        output: File of the labels: .tsv, .csv, .jsonl or .parquet. What it holds already is kept,
            and is not asked again. Needed where somebody is asked.
        sheet: Write the pairs that nobody has answered to this file, .csv or .tsv, for somebody
            with a spreadsheet, who fills in its column answer with yes or no. --answers reads it
            back.
        answers: File with answers to add: a sheet that was filled in, or labels of foils label. May
            be given several times. In Python also labels or a DataFrame.
        labeller: Name under which a person's answers are kept.
        checks: Number of labelled positives, and of documents drawn at random, that a program also
            judges, so that its errors can be estimated; 0 for none.
        seed: Seed of the draw; the same seed draws the same pairs.
    """

    heading = "Labels"

    n: Annotated[int, Option(flag="--number", short="-n", least=1)] = 60
    ask: Annotated[AskLike | None, Option(flag="--with", metavar="WHO")] = None
    output: Annotated[str | Path | None, Option(short="-o", metavar="FILE", writes=LABEL_FILES)] = None
    sheet: Annotated[str | Path | None, Option(metavar="FILE", writes=(".csv", ".tsv"), needs={"ask": False})] = None
    answers: Annotated[AddedLike, Option(metavar="FILE", parse=list, repeated=True)] = ()
    labeller: Annotated[str, Option(flag="--as", metavar="NAME", needs={"ask": by_person})] = PERSON
    checks: Annotated[int, Option(least=0, needs={"ask": by_program})] = 100
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.ask, str):
            check_names("judge", [self.ask.partition(":")[0]], (TERMINAL, *JUDGES))
        if not self.labeller.strip() or ":" in self.labeller:
            raise InputError(f"{spelled('labeller', self.labeller)}: expected a person's name, without colon")


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
    """

    source: str
    judge: str
    negatives: int
    drawn: int
    relevant: int
    share: Share

    def to_json(self) -> dict[str, Any]:
        """Return the counts and the share."""
        return {**vars(self), **self.share.to_json()}


@dataclass(frozen=True)
class Labelled(Result):
    """Labels of negatives that were drawn from sources.

    Attributes:
        labels: of the drawn pairs, and what the file held beside them.
        universe: the pairs that they were drawn from.
        drawn: (k,) rows of the universe that were drawn.
        models: name -> use, of a language model that judged.
        facts: settings, seed and collection, for JSON.
        output: the file of the labels; None: they were not written.
        sheet: the file with the pairs that nobody has answered; None: none was asked for.
        in_sheet: how many these are.
    """

    labels: Labels
    universe: PairPool = field(repr=False)
    drawn: Rows = field(repr=False)
    models: Mapping[str, Usage]
    facts: Mapping[str, Any]
    output: Path | None
    sheet: Path | None = None
    in_sheet: int = 0

    @cached_property
    def shares(self) -> list[SourceShare]:
        """The share of false negatives of each source, by people, and by each program that judged."""
        programs, names = self.labels.programs(), self.labels.table["judge"].unique().drop_null()
        people, shares = [None] if len(names) > len(programs) or not programs else [], []
        for judge in (*people, *programs):
            relevant, probability = self.labels.match(self.universe.table, judge=judge)
            judged = np.isfinite(relevant) & np.isfinite(probability)
            for name, rows in self.universe.members.items():
                of_source = rows[judged[rows]]
                shares.append(
                    SourceShare(
                        source=name,
                        judge=judge or PEOPLE,
                        negatives=len(rows),
                        drawn=int(np.isin(rows, self.drawn).sum()),
                        relevant=int(relevant[of_source].sum()),
                        share=estimate_share(relevant[of_source], probability[of_source]),
                    )
                )
        return shares

    def tables(self) -> list[Table]:
        """Return for each source how many pairs were drawn and judged, and the share of false negatives."""
        columns = ("source", "negatives", "judged", "relevant", "false negatives", "95 % interval")
        rows = [
            (
                each.source if each.judge == PEOPLE else f"{each.source}, by {each.judge}",
                f"{each.negatives:,}", f"{each.share.judged} of {each.drawn}", each.relevant,
                number(each.share.share), f"{number(each.share.low)}–{number(each.share.high)}",
            )
            for each in self.shares
        ]  # fmt: skip
        programs = ", ".join(self.labels.programs())
        caption = f"{programs}: as judged; foils score --labels takes its errors off." if programs else ""
        used = [Table(name, ("", "value"), use.rows(name)) for name, use in self.models.items()]
        title = f"Labels → {self.output}" if self.output else "Labels"
        if self.sheet is not None:
            pairs = counted(self.in_sheet, "pairs")
            note = f"{pairs} in {self.sheet}: put yes or no in column answer; {spelled('answers')} reads it."
            caption = f"{note}\n{caption}".rstrip()
        return [Table(title, columns, rows, caption), *used]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, and each source's counts and shares."""
        sources = [each.to_json() for each in self.shares]
        more = {name: use.to_json() for name, use in self.models.items()}
        facts = {**self.facts, "pairs": len(self.drawn), "sources": sources}
        if self.sheet is not None:
            facts |= {"sheet": str(self.sheet), "in_sheet": self.in_sheet}
        return dict(without_nan({**facts, **({"language_models": more} if more else {})}))


def ask_program(
    program: PairJudge, sheet: LabelSheet, query_ids: pa.ChunkedArray, *, checks: int, seed: int
) -> dict[str, Usage]:
    """Have a program judge open pairs, and pairs of known truth; return what a language model used by name.

    Args:
        program: the judge.
        sheet: of the drawn pairs.
        query_ids: queries whose labelled positives are judged, too.
        checks: how many of these, and of random documents.
        seed: of the draw of these.
    """
    _ask(program, sheet, program.name)
    if checks:
        known = judge_known(program, sheet, query_ids, pairs=checks, seed=seed)
        sheet.add(known)
        sheet.write()
    return {program.name: program.questions.asked} if program.questions else {}


def _ask(judge: PairJudge, sheet: LabelSheet, name: str, *, skips: bool = False) -> None:
    """Have the open pairs judged under a name; what was answered is kept, should it fail."""
    places, missing = sheet.open(name), 0
    unjudged = set(places)
    if judge.recount is not None:
        judge.recount([pair for place, pair in enumerate(sheet.shown) if place not in unjudged])
    try:
        for place, answer in zip(places, judge.judge([sheet.shown[place] for place in places]), strict=True):
            missing += answer is None
            if answer is not None or skips:
                sheet.record(place, name, None if answer is None else int(answer))
    finally:
        sheet.write()
    if missing and not skips:
        log.info("%s did not answer %d of %d pairs; they are asked about again", name, missing, len(places))


def _check_labelling(labelling: LabelSettings) -> None:
    """Refuse a question without anybody who answers it, and answers that would be lost."""
    asks = labelling.ask is not None or not (labelling.answers or labelling.sheet)
    if labelling.ask is None and asks and not sys.stdin.isatty():
        raise InputError(
            f"nobody is there to judge (no terminal); give {spelled('sheet', 'sixty.csv')}, a sheet to fill "
            f"(then {spelled('answers', 'sixty.csv')}), {spelled('ask', 'llm:MODEL')}, or a Python function"
        )
    if asks and labelling.output is None:
        raise InputError(f"{spelled('output', 'FILE')} is missing: it keeps the answers, as labels.tsv")


@door(check=_check_labelling, needs={"llm": {"ask": "llm"}, "encoding": {"ask": SCORING}})
def label(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    labelling: LabelSettings,
    reading: CollectionSettings,
    llm: LLMSettings,
    encoding: EncodingSettings = AT_128,
) -> Labelled:
    """Label a sample of negatives: which are relevant after all, and what share of each source that makes.

    All pairs of a source are drawn with the same known probability. Every answer is kept at once:
    the same command goes on where it stopped, and a larger -n adds to what is there.

    Raises:
        InputError: a collection, source, judge or file of answers that cannot be read, or nobody to judge.
        FailureError: a judge failed, or the labels cannot be written; what was answered is kept.

    Example:
        foils label scifact/ bm25.parquet dense.parquet -n 60 -o labels.tsv
        foils label scifact/ bm25.parquet dense.parquet -n 60 --sheet sixty.csv
    """
    loaded = reading.open(collection)
    named = as_sources(sources, loaded)
    universe = pairs_of({source.name: source.negatives for source in named})
    who, models = labelling.ask, dict[str, Usage]()
    name = who if isinstance(who, str | None) else getattr(who, "name", type(who).__name__)
    settings = {"n": labelling.n, "with": name, "checks": labelling.checks, "as": labelling.labeller}
    drawn = universe.draw(labelling.n, seed=labelling.seed)
    digests = {"collection": loaded.digest, **{source.name: source.digest for source in named}}
    history = provenance("label", settings, inputs=digests, seed=labelling.seed)
    output = None if labelling.output is None else Path(labelling.output)
    sheet = LabelSheet.of(output, loaded, universe, drawn, provenance=history)
    for answers in several(labelling.answers):
        elsewhere = sheet.add(read_answers(answers, loaded, universe), person=labelling.labeller)
        if elsewhere:
            message = "%d answers are about other pairs than the %d that these sources, -n and seed draw:"
            log.warning(f"{message} they are kept, and no share counts them", elsewhere, len(drawn.rows))
    sheet.write()
    facts = {"collection": loaded.name, "seed": labelling.seed, "settings": settings}
    unanswered: list[int] = []
    if labelling.sheet is not None:
        unanswered = sheet.unanswered()
        write_sheet(Path(labelling.sheet), sheet, unanswered)
    elif who == TERMINAL or (who is None and not labelling.answers):
        width = min(get_terminal_size().columns, 120)
        with keys_of_terminal() as key:
            go_through(sheet, labelling.labeller, key, out=sys.stderr, width=width)
    elif by_program(who):
        program = open_judge(who, loaded, llm, encoding)
        models = ask_program(program, sheet, universe.table["query_id"], checks=labelling.checks, seed=labelling.seed)
    elif who is not None:
        _ask(by_function(cast("Answer", who)), sheet, labelling.labeller, skips=True)
    return Labelled(
        labels=sheet.labels(),
        universe=universe,
        drawn=drawn.rows,
        models=models,
        facts=facts,
        output=output,
        sheet=None if labelling.sheet is None else Path(labelling.sheet),
        in_sheet=len(unanswered),
    )
