"""Which pairs are drawn to be judged, their sheet with answers, who judges, and `foils label`."""

from __future__ import annotations

import csv
import logging
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from shutil import get_terminal_size
from typing import IO, Annotated, Any, cast

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection, pair_keys
from foils.data.labels import BETWEEN, CHECKS, LABEL_COLUMNS, PERSON, Labels, cell_of
from foils.data.negatives import Negatives
from foils.data.read import AddedLike, CollectionLike, CollectionSettings
from foils.data.records import DELIMITERS
from foils.data.sources import SourcesLike, as_sources
from foils.data.tables import Provenance, codes, column_or_nulls, provenance
from foils.encode.vectors import AT_128, EncodingSettings
from foils.llm import LLMSettings, Purse, Usage, announce
from foils.pages import shortened
from foils.rating import Candidates, Judge, Pairs, PointwiseJudge, QuestionSettings, ask
from foils.rating.judges import HEEDED, RELEVANCE, JudgeSettings, Opening, questions_of
from foils.rating.judges import open_judge as open_compared
from foils.runtime.errors import InputError, check_names
from foils.runtime.files import LABEL_FILES, one_at_a_time, without_nan, write_whole
from foils.runtime.options import Option, Settings, door, several, spelled
from foils.runtime.results import Result, Table, counted, number
from foils.statistics.survey import Drawn, Rows, Share, draw, estimate_share, importance, permanent_numbers

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PairPool:
    """The pairs that sources hold, each once.

    Attributes:
        table: (N,) rows of `query_id, doc_id, text, rank`; `text` is null for documents of the
            collection, and `rank` the smallest that a source has the pair at, from 0.
        members: source -> rows of the pairs that it holds.
    """

    table: pa.Table
    members: Mapping[str, Rows]

    def __len__(self) -> int:
        return int(self.table.num_rows)

    @cached_property
    def keys(self) -> list[str]:
        """(N,) one text for each pair (see `foils.data.collection.pair_keys`)."""
        return list(pair_keys(self.table).to_pylist())

    def draw(self, n: int, *, seed: int = 0) -> Drawn:
        """Draw n pairs with probability proportional to `importance`; a larger n keeps what a smaller n drew.

        They come in a random order, so that the first of them, where not all are judged, stand for
        the others.

        Args:
            n: how many, at least 1; all, where there are fewer.
            seed: of the pairs' permanent random numbers.
        """
        sizes = importance(list(self.members.values()), len(self))
        drawn = draw(sizes, permanent_numbers(self.keys, seed=seed), n)
        turn = permanent_numbers([f"{self.keys[row]}\0turn" for row in drawn.rows.tolist()], seed=seed)
        order = np.argsort(turn, kind="stable")
        return Drawn(drawn.rows[order], drawn.probability[order])

    def holders(self, rows: Rows) -> list[str]:
        """Return (k,) the names of the sources that hold each of these pairs, joined by `|`."""
        inside = {name: np.isin(rows, members) for name, members in self.members.items()}
        return [BETWEEN.join(name for name in inside if inside[name][place]) for place in range(len(rows))]


def pairs_in(table: pa.Table) -> pa.Table:
    """Return query_id, doc_id and text of a table's rows; a text is null for a document of the collection."""
    text = column_or_nulls(table, "text", pa.large_string())
    return table.select(["query_id", "doc_id"]).append_column("text", text)


def pairs_of(sources: Mapping[str, Negatives]) -> PairPool:
    """Return the pairs that sources hold, those of kept rows, in the order in which they are first seen.

    Args:
        sources: name -> negatives.

    Raises:
        InputError: none of them keeps a row.
    """
    tables = [pairs_in(negatives.kept()) for negatives in sources.values()]
    joined = pa.concat_tables(tables)
    if not len(joined):
        raise InputError("the sources keep no negative; there is nothing to label")
    indices = codes(pair_keys(joined))  # numbers count up as they are met
    first = np.unique(indices, return_index=True)[1]
    ends = np.cumsum([len(table) for table in tables])[:-1]
    members = {name: np.unique(part) for name, part in zip(sources, np.split(indices, ends), strict=True)}
    ranks = np.concatenate([negatives.kept()["rank"].to_numpy() for negatives in sources.values()])
    smallest = np.full(len(first), np.iinfo(ranks.dtype).max, ranks.dtype)
    np.minimum.at(smallest, indices, ranks)
    return PairPool(joined.take(pa.array(first)).append_column("rank", pa.array(smallest)), members)


@dataclass(frozen=True)
class Pair:
    """A pair as it is shown: the query, a document labelled relevant ("": none), and the document."""

    query: str
    positive: str
    document: str


@dataclass
class LabelSheet:
    """The drawn pairs and their answers.

    Attributes:
        path: of the file of labels; None: the answers are kept in memory alone.
        collection: of the pairs.
        keys: (n,) of the drawn pairs, in the order in which they are asked about.
        shown: (n,) their texts.
        pairs: key -> columns in the file, less answer and judge: of the drawn pairs, then of others
            that are labelled.
        provenance: of the file.
        answers: (key, judge) -> 1, 0, or None for a pair that was skipped.
    """

    path: Path | None
    collection: Collection
    keys: Sequence[str]
    shown: Sequence[Pair]
    pairs: dict[str, dict[str, Any]]
    provenance: Provenance = field(default_factory=dict)
    answers: dict[tuple[str, str], int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path | None, collection: Collection, universe: PairPool, drawn: Drawn, **more: Any) -> LabelSheet:
        """Return the sheet of drawn pairs, with the answers that the file has, where it is there."""
        pairs = universe.table.take(pa.array(drawn.rows)).to_pylist()
        keys = [universe.keys[row] for row in drawn.rows.tolist()]
        columns = zip(keys, pairs, drawn.probability.tolist(), universe.holders(drawn.rows), strict=True)
        of_key = {key: {**pair, "probability": p, "sources": names} for key, pair, p, names in columns}
        sheet = cls(path, collection, keys, shown_of(collection, pairs), of_key, **more)
        sheet._read()
        return sheet

    def _read(self) -> None:
        """Take in what the file holds, as another person's answers meanwhile; those that are here count."""
        if self.path is not None and self.path.exists():
            here, self.answers = self.answers, {}
            self.add(Labels.of(self.path, self.collection))
            self.answers |= here

    def add(self, labels: Labels, *, person: str = PERSON) -> int:
        """Add answers, and return how many are about pairs that were not drawn.

        One judge's later answer takes the place of an earlier one.

        Args:
            labels: the answers.
            person: whose they are, where the labels do not say it.
        """
        drawn, keys, others = set(self.keys), pair_keys(labels.table).to_pylist(), 0
        for key, row in zip(keys, labels.table.to_pylist(), strict=True):
            if row["judge"] is None:
                continue
            self.answers[key, person if row["judge"] == PERSON else row["judge"]] = row["relevant"]
            sources = row["sources"] if row["sources"] in CHECKS else None
            self.pairs.setdefault(key, {**row, "probability": None, "sources": sources})
            others += key not in drawn and sources is None
        return others

    def judged(self) -> dict[str, dict[str | None, int | None]]:
        """Return key -> judge -> 1, 0 or None, of every pair."""
        judged: dict[str, dict[str | None, int | None]] = {key: {} for key in self.pairs}
        for (key, judge), answer in self.answers.items():
            judged[key][judge] = answer
        return judged

    def open(self, judge: str) -> list[int]:
        """Return the places of the drawn pairs that a judge has neither judged nor skipped."""
        return [place for place, key in enumerate(self.keys) if (key, judge) not in self.answers]

    def record(self, place: int, judge: str, relevant: int | None) -> None:
        """Keep an answer, None for a pair that is skipped."""
        self.answers[self.keys[place], judge] = relevant

    def labels(self) -> Labels:
        """Return the drawn pairs with answers, a row for each judge, and after them the answers to others."""
        judged = self.judged()
        for key in self.keys:
            judged[key] = judged[key] or {None: None}
        rows = [
            {**self.pairs[key], "judge": judge, "relevant": relevant}
            for key, answers in judged.items()
            for judge, relevant in answers.items()
        ]
        return Labels(pa.Table.from_pylist(rows, LABEL_COLUMNS), self.provenance)

    def write(self) -> None:
        """Write the labels, with what others wrote meanwhile: the file is locked, read again, written."""
        if self.path is None:
            return
        with one_at_a_time(self.path):
            self._read()
            self.labels().write(self.path)


SHEET = ("query_id", "doc_id", "query", "positive", "document", "rank", "source", "answer")
CELL = 32_000  # characters of a cell; Excel takes 32,767
BREAKS = re.compile(r"[\x00-\x20\x7f-\xa0\u2028\u2029]+")  # line ends, other control characters, blanks


def write_sheet(path: Path, sheet: LabelSheet, places: Sequence[int]) -> None:
    """Write pairs for somebody with a spreadsheet, a row for each, whose column `answer` is empty.

    Columns are query_id, doc_id, the three texts, rank (the best, from 1), source (all that hold
    the pair) and answer. Each row is one line; texts are cut at 32,000 characters, and a cell that
    a spreadsheet would take for a formula, or an id that it would rewrite, has a ' before it.
    `Labels.of` reads the file back by its ids and answers.

    Args:
        path: of the file, .csv or .tsv: UTF-8 with a byte order mark, by which Excel knows it.
        sheet: of the drawn pairs.
        places: of the pairs in the sheet.

    Raises:
        InputError: the file holds answers.
        FailureError: the file cannot be written.
    """
    if path.exists() and _has_answers(path):
        raise InputError(f"{path} holds answers, or is no sheet; read it with --answers or give another name")
    with write_whole(path) as aside, aside.open("w", encoding="utf-8-sig", newline="") as opened:
        writer = csv.writer(opened, delimiter=DELIMITERS[path.suffix.lower()], lineterminator="\r\n")
        writer.writerow(SHEET)
        for place in places:
            pair = sheet.pairs[sheet.keys[place]]
            ids = [cell_of(pair[name], identifier=True) for name in ("query_id", "doc_id")]
            texts = [shortened(BREAKS.sub(" ", text).strip(), CELL) for text in vars(sheet.shown[place]).values()]
            writer.writerow([*ids, *map(cell_of, texts), pair["rank"] + 1, cell_of(pair["sources"]), ""])


def _has_answers(path: Path) -> bool:
    try:
        return bool(Labels.of(path).table["relevant"].is_valid().to_numpy().any())
    except InputError:
        return True


def shown_of(collection: Collection, pairs: Sequence[dict[str, Any]]) -> list[Pair]:
    """The texts of pairs: queries, their first labelled positives, documents."""
    known = collection.known_positives
    first = dict(zip(known.query_rows.tolist(), known.first.tolist(), strict=True))
    query_rows = collection.query_rows(pa.array([pair["query_id"] for pair in pairs], pa.string()))
    doc_rows = collection.document_rows(pa.array([pair["doc_id"] for pair in pairs], pa.string()))
    positives = np.array([first.get(row, -1) for row in query_rows.tolist()], np.int64)
    queries = collection.query_texts(query_rows)
    texts = [collection.document_texts(np.maximum(rows, 0)) for rows in (positives, doc_rows)]
    return [
        Pair(query, positive if row >= 0 else "", text if pair.get("text") is None else pair["text"])
        for pair, query, row, positive, text in zip(pairs, queries, positives.tolist(), *texts, strict=True)
    ]


QUESTION = "Is the document relevant, too?   y yes   n no   s skip   q quit   (then Enter)"
LONGEST = 1_500  # characters of a text that are shown
_RELEVANT = {"y": 1, "n": 0, "s": None}


def go_through(sheet: LabelSheet, judge: str, read: Callable[[], str], *, out: IO[str], width: int = 100) -> None:
    """Ask until no pair is open, or the person quits; every answer is written before the next question.

    Args:
        sheet: of the drawn pairs.
        judge: name of the person.
        read: returns the line that was typed, "" at the end of the input, which means to quit.
        out: where the texts are shown.
        width: of a line, in characters.
    """
    places = sheet.open(judge)
    done = len(sheet.keys) - len(places)
    for place in places:
        print(f"\n─── {done + 1} of {len(sheet.keys)} " + "─" * 40, file=out)
        for name, text in vars(sheet.shown[place]).items():
            harmless = "".join(each if each.isprintable() else " " for each in shortened(text, LONGEST))
            if text:
                head, rest = f"{name:<10}", " " * 10
                print(textwrap.fill(harmless, width, initial_indent=head, subsequent_indent=rest), file=out)
        answer = ""
        while answer not in (*_RELEVANT, "q"):
            print(QUESTION, file=out, flush=True)
            answer = (read() or "q").strip().lower()[:1]
        if answer == "q":
            break
        sheet.record(place, judge, _RELEVANT[answer])
        sheet.write()
        done += 1
    print(f"{done} of {len(sheet.keys)} pairs; the answers are in {sheet.path}", file=out, flush=True)


# Who judges


Answer = Callable[[str, str, str], bool | None]
"""A function of query, labelled positive and document that says if the latter is relevant; None: skip."""
TERMINAL = "terminal"
SCORING = ("bi-encoder", "cross-encoder")


def open_program(who: Any, collection: Collection, llm: LLMSettings, encoding: EncodingSettings) -> tuple[str, Judge]:
    """Return a judge's name, with a colon in it, and the judge: `KIND:MODEL` as for `foils rate`, or its object.

    A language model is asked how likely one document is an answer.

    Raises:
        InputError: no model.
    """
    if not isinstance(who, str):
        return f"judge:{who.name}", who
    question = QuestionSettings(answer=RELEVANCE)
    opening = Opening(JudgeSettings(judge=[who]), encoding, llm, question, Purse(llm.max_cost))
    judge = open_compared(who, opening, collection)
    return f"{who.partition(':')[0]}:{judge.name}", judge


def _compared(judge: Judge, pairs: Sequence[Pair]) -> tuple[Candidates, Rows, Rows]:
    """Candidates, and which documents are compared with which: with the labelled positive, where there is one.

    A judge of single documents has each stand for both.
    """
    lists = [[("positive", pair.positive), ("document", pair.document)] for pair in pairs]
    candidates = Candidates.of_lists([str(at) for at in range(len(pairs))], [pair.query for pair in pairs], lists)
    documents = 2 * np.arange(len(pairs)) + 1
    if isinstance(judge, PointwiseJudge):
        return candidates, documents, documents
    documents = documents[np.array([bool(pair.positive) for pair in pairs], bool)]
    return candidates, documents, documents - 1


def judged_by(judge: Judge, pairs: Sequence[Pair]) -> list[bool | None]:
    """Return for each pair whether its document is relevant; None where there is no answer.

    It is where P(document ≻ positive) ≥ ½, in both orders if need be, so that a pair without a
    positive has no answer; for a judge of single documents, where they are with probability ½ at
    least.
    """
    candidates, documents, others = _compared(judge, pairs)
    lead = np.full(len(pairs), np.nan)
    if isinstance(judge, PointwiseJudge):
        lead = judge.score(candidates, documents)
    else:
        lead[documents // 2] = ask(judge, candidates, Pairs(candidates.offsets, documents, others)).preference - 0.5
    return [None if np.isnan(each) else each >= 0 for each in lead.tolist()]


def known_pairs(
    collection: Collection, query_ids: pa.ChunkedArray, n: int, *, others: bool, seed: int
) -> dict[str, dict[str, Any]]:
    """Return key -> columns of pairs of known truth, by which a program's errors are estimated.

    Labelled positives are relevant; documents drawn at random are taken as not relevant. Both are
    easier to judge than the negatives that were mined.

    Args:
        collection: of the judgements.
        query_ids: queries to take, those without a labelled positive are left out.
        n: how many of each kind, at most.
        others: whether a positive needs another one of its query beside it, to be compared with.
        seed: of the draws.
    """
    truth, rng = collection.known_positives, np.random.default_rng(seed)
    inside = np.flatnonzero(np.isin(truth.query_rows, collection.query_rows(query_ids.unique())))
    places = rng.permutation(inside).tolist()
    positives = [(place, truth.of(place)[-1]) for place in places if len(truth.of(place)) > others][:n]
    drawn = zip(places, rng.integers(len(collection.documents), size=min(n, len(places))).tolist(), strict=False)
    random = [(place, row) for place, row in drawn if row not in truth.of(place)]
    queries, documents = np.array([*positives, *random], np.int64).reshape(-1, 2).T
    table = pa.table(
        {
            "query_id": collection.queries["query_id"].take(pa.array(truth.query_rows[queries])),
            "doc_id": collection.documents["doc_id"].take(pa.array(documents)),
            "sources": [CHECKS[0]] * len(positives) + [CHECKS[1]] * len(random),
        }
    )
    return dict(zip(pair_keys(table).to_pylist(), table.to_pylist(), strict=True))


PEOPLE = "people"
AskLike = str | Judge | Answer


def by_person(who: Any) -> bool:
    """Tell whether a person answers, or a function in their place."""
    return who == TERMINAL if isinstance(who, str) else not hasattr(who, "judge")


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
            check_names("judge", [self.ask.partition(":")[0]], (TERMINAL, *HEEDED))
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
        sheet: `sheet`, the file with the pairs that nobody has answered, and `in_sheet`, how many
            these are; empty: none was asked for.
    """

    labels: Labels
    universe: PairPool = field(repr=False)
    drawn: Rows = field(repr=False)
    models: Mapping[str, Usage]
    facts: Mapping[str, Any]
    output: Path | None
    sheet: Mapping[str, Any] = field(default_factory=dict)

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
        if self.sheet:
            pairs = f"{counted(self.sheet['in_sheet'], 'pairs')} in {self.sheet['sheet']}"
            caption = f"{pairs}: put yes or no in column answer; {spelled('answers')} reads it.\n{caption}".rstrip()
        return [Table(title, columns, rows, caption), *used]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, and each source's counts and shares."""
        sources = [each.to_json() for each in self.shares]
        more = {name: use.to_json() for name, use in self.models.items()}
        facts = {**self.facts, "pairs": len(self.drawn), "sources": sources, **self.sheet}
        return dict(without_nan({**facts, **({"language_models": more} if more else {})}))


def ask_program(
    judge: Judge, name: str, sheet: LabelSheet, query_ids: pa.ChunkedArray, *, checks: int, seed: int
) -> dict[str, Usage]:
    """Have a program judge open pairs, and pairs of known truth; return what a language model used by name.

    Args:
        judge: the program.
        name: under which its answers are kept.
        sheet: of the drawn pairs.
        query_ids: queries whose labelled positives are judged, too.
        checks: how many of these, and of random documents.
        seed: of the draw of these.
    """
    known = known_pairs(sheet.collection, query_ids, checks, others=not isinstance(judge, PointwiseJudge), seed=seed)
    sheet.pairs = {**sheet.pairs, **{key: known[key] for key in known if key not in sheet.pairs}}
    keys, questions = [*dict.fromkeys([*sheet.keys, *known])], questions_of([judge])
    shown = dict(zip(keys, shown_of(sheet.collection, [sheet.pairs[key] for key in keys]), strict=True))
    if hasattr(judge, "cost"):
        announce([(questions[0].llm, judge.cost(*_compared(judge, [*shown.values()])))])
    missing = [key for key in keys if (key, name) not in sheet.answers]
    for key, answer in zip(missing, judged_by(judge, [shown[key] for key in missing]), strict=True):
        if answer is not None:
            sheet.answers[key, name] = int(answer)
    sheet.write()
    return {name: questions[0].asked} if questions else {}


def ask_function(function: Answer, sheet: LabelSheet, name: str) -> None:
    """Have a function judge open pairs under a person's name; what was answered is kept, should it fail.

    Raises:
        InputError: it answers something else than True, False, or None to skip.
    """
    try:
        for place in sheet.open(name):
            pair = sheet.shown[place]
            answer: Any = function(pair.query, pair.positive, pair.document)
            if answer is not None and not isinstance(answer, (bool, np.bool_)) and answer not in (0, 1):
                raise InputError(f"the function answered {answer!r}; expected True, False, or None to skip")
            sheet.record(place, name, None if answer is None else int(answer))
    finally:
        sheet.write()


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
    written = universe.table.filter(universe.table["text"].is_valid())["doc_id"].to_pylist()
    for answers in several(labelling.answers):
        elsewhere = sheet.add(Labels.of(answers, loaded, written=written), person=labelling.labeller)
        if elsewhere:
            message = "%d answers are about other pairs than the %d that these sources, -n and seed draw:"
            log.warning(f"{message} they are kept, and no share counts them", elsewhere, len(drawn.rows))
    sheet.write()
    facts = {"collection": loaded.name, "seed": labelling.seed, "settings": settings}
    of_sheet = dict[str, Any]()
    if labelling.sheet is not None:
        judged = sheet.judged()
        unanswered = [place for place, key in enumerate(sheet.keys) if not judged[key]]
        write_sheet(Path(labelling.sheet), sheet, unanswered)
        of_sheet = {"sheet": str(labelling.sheet), "in_sheet": len(unanswered)}
    elif who == TERMINAL or (who is None and not labelling.answers):
        width = min(get_terminal_size().columns, 120)
        go_through(sheet, labelling.labeller, sys.stdin.readline, out=sys.stderr, width=width)
    elif by_program(who):
        program, judge = open_program(who, loaded, llm, encoding)
        query_ids = universe.table["query_id"]
        models = ask_program(judge, program, sheet, query_ids, checks=labelling.checks, seed=labelling.seed)
    elif who is not None:
        ask_function(cast("Answer", who), sheet, labelling.labeller)
    return Labelled(
        labels=sheet.labels(),
        universe=universe,
        drawn=drawn.rows,
        models=models,
        facts=facts,
        output=output,
        sheet=of_sheet,
    )
