"""Which pairs are drawn to be judged, their sheet with answers, the terminal's dialogue, spreadsheets."""

from __future__ import annotations

import csv
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.labels import (
    BETWEEN,
    CHECKS,
    LABEL_COLUMNS,
    PERSON,
    Labels,
    LabelsLike,
    cell_of,
    pair_keys,
    pair_rows,
    text_of,
)
from foils.data.negatives import Negatives
from foils.data.records import DELIMITERS, Complaints, records_of
from foils.data.tables import Provenance, codes, column_or_nulls
from foils.pages import shortened
from foils.runtime.errors import InputError
from foils.runtime.files import one_at_a_time, write_whole
from foils.statistics.survey import Drawn, Rows, draw, importance, permanent_numbers


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
        """(N,) one text for each pair (see `foils.data.labels.pair_keys`)."""
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
    indices = codes(pair_keys(joined))
    # Numbers count up as they are met.
    first = np.flatnonzero(np.diff(np.maximum.accumulate(indices), prepend=-1))
    ends = np.cumsum([len(table) for table in tables])[:-1]
    members = {}
    for name, part in zip(sources, np.split(indices, ends), strict=True):
        inside = np.zeros(len(first), bool)
        inside[part] = True
        members[name] = np.flatnonzero(inside)
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


GONE: Any = object()  # an answer that was taken back


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
        answers: key -> judge -> 1, 0, or None for a pair that was skipped.
        changed: (key, judge) -> the answers that were given or taken back here.
    """

    path: Path | None
    collection: Collection
    keys: Sequence[str]
    shown: Sequence[Pair]
    pairs: dict[str, dict[str, Any]]
    provenance: Provenance = field(default_factory=dict)
    answers: dict[str, dict[str, int | None]] = field(default_factory=dict)
    changed: dict[tuple[str, str], Any] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path | None, collection: Collection, universe: PairPool, drawn: Drawn, **more: Any) -> LabelSheet:
        """Return the sheet of drawn pairs, with the answers that the file has, where it is there."""
        pairs = universe.table.take(pa.array(drawn.rows)).to_pylist()
        keys = [universe.keys[row] for row in drawn.rows.tolist()]
        columns = zip(keys, pairs, drawn.probability.tolist(), universe.holders(drawn.rows), strict=True)
        of_key = {key: {**pair, "probability": p, "sources": names} for key, pair, p, names in columns}
        sheet = cls(path, collection, keys, shown_of(collection, pairs), of_key, **more)
        sheet._take_in()
        return sheet

    def _take_in(self) -> None:
        """Add the answers that the file has and that were not changed here, as another person's meanwhile."""
        if self.path is None or not self.path.exists():
            return
        changed, self.changed = self.changed, {}
        self.add(Labels.of(self.path, self.collection))
        self.changed = {}
        for (key, judge), answer in changed.items():
            self._set(key, judge, answer)

    def add(self, labels: Labels, *, person: str = PERSON) -> int:
        """Add answers, and return how many are about pairs that were not drawn.

        One judge's later answer takes the place of an earlier one.

        Args:
            labels: the answers.
            person: whose they are, where the labels do not say it.
        """
        drawn = pa.Table.from_pylist([self.pairs[key] for key in self.keys], LABEL_COLUMNS)
        places, keys, others = pair_rows(labels.table, drawn).tolist(), pair_keys(labels.table).to_pylist(), 0
        for place, key, row in zip(places, keys, labels.table.to_pylist(), strict=True):
            if row["judge"] is None:
                continue
            key = self.keys[place] if place >= 0 else key
            self._set(key, person if row["judge"] == PERSON else row["judge"], row["relevant"])
            sources = row["sources"] if row["sources"] in CHECKS else None
            self.pairs.setdefault(key, {**row, "probability": None, "sources": sources})
            others += place < 0 and sources is None
        return others

    def unanswered(self) -> list[int]:
        """Return the places of the drawn pairs that nobody has judged or skipped."""
        return [place for place, key in enumerate(self.keys) if not self.answers.get(key)]

    def _set(self, key: str, judge: str, answer: Any) -> None:
        self.changed[key, judge] = self.answers.setdefault(key, {})[judge] = answer
        if answer is GONE:
            del self.answers[key][judge]

    def open(self, judge: str) -> list[int]:
        """Return the places of the drawn pairs that a judge has neither judged nor skipped."""
        return [place for place, key in enumerate(self.keys) if not self.has(key, judge)]

    def has(self, key: str, judge: str) -> bool:
        """Tell whether a judge has judged or skipped a pair."""
        return judge in self.answers.get(key, {})

    def record(self, place: int, judge: str, relevant: Any) -> None:
        """Keep an answer, None for a pair that is skipped; `GONE` takes one back, where there is one."""
        self._set(self.keys[place], judge, relevant)

    def labels(self) -> Labels:
        """Return the drawn pairs with answers, a row for each judge, and after them the answers to others."""
        unjudged = {key: {None: None} for key in self.keys}
        rows = [
            {**columns, "judge": judge, "relevant": relevant}
            for key, columns in self.pairs.items()
            for judge, relevant in (self.answers.get(key) or unjudged.get(key, {})).items()
        ]
        return Labels(pa.Table.from_pylist(rows, LABEL_COLUMNS), self.provenance)

    def write(self) -> None:
        """Write the labels, with what others wrote meanwhile: the file is locked, read again, written."""
        if self.path is None:
            return
        with one_at_a_time(self.path):
            self._take_in()
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


def read_answers(answers: LabelsLike, collection: Collection, pool: PairPool) -> Labels:
    """Return labels as `Labels.of` reads them; of a sheet the texts have to be those of the ids beside them.

    Compared are the first 40 letters, since spreadsheets and readers change numbers, signs and blanks.

    Args:
        answers: a sheet that was filled in, or labels.
        collection: whose ids and texts they name.
        pool: of the pairs that can be drawn, among them those with texts of a language model.

    Raises:
        InputError: what `Labels.of` refuses.
        FormatError: a text that stands beside another id, as where one column was sorted by itself; by line.
    """
    written = pool.table.filter(pool.table["text"].is_valid())["doc_id"].to_pylist()
    labels = Labels.of(answers, collection, written=written)
    if isinstance(answers, Labels):
        return labels
    records = records_of(answers)
    if not {*SHEET} - {"positive", "rank", "source"} <= {*records.columns}:
        return labels
    complaints = Complaints(records.where)
    for line, fields in records.read(complaints):
        for name, text, rows_of, texts_of in (
            ("query_id", "query", collection.query_rows, collection.query_texts),
            ("doc_id", "document", collection.document_rows, collection.document_texts),
        ):
            identifier = text_of(str(fields[name] or ""))
            row = rows_of(pa.array([identifier]))
            if row[0] >= 0 and fields[text] and _letters(fields[text]) != _letters(texts_of(row)[0]):
                problem = f"the text in column {text} is not that of {name} {identifier!r}"
                complaints.add(f"{problem}; sort and move whole rows, not one column alone", line)
    complaints.raise_if_any()
    return labels


def _letters(text: Any) -> str:
    return "".join(filter(str.isalpha, str(text)[:1000].casefold()))[:40]


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
        Pair(query, positive if row >= 0 else "", text if pair["text"] is None else pair["text"])
        for pair, query, row, positive, text in zip(pairs, queries, positives.tolist(), *texts, strict=True)
    ]


QUESTION = "Is the document relevant, too?   y yes   n no   s skip   u undo   q quit"
LONGEST = 1_500  # characters of a text that are shown
_RELEVANT = {"y": 1, "n": 0, "s": None}


def go_through(sheet: LabelSheet, judge: str, key: Callable[[], str], *, out: IO[str], width: int = 100) -> None:
    """Ask until no pair is open, or the person quits; every answer is written before the next question.

    Args:
        sheet: of the drawn pairs.
        judge: name of the person.
        key: returns what was pressed or typed, "" at the end of the input, which means to quit.
        out: where the texts are shown.
        width: of a line, in characters.
    """
    places, at = sheet.open(judge), 0
    done = len(sheet.keys) - len(places)
    while at < len(places):
        print(f"\n─── {done + at + 1} of {len(sheet.keys)} " + "─" * 40, file=out)
        for name, text in vars(sheet.shown[places[at]]).items():
            harmless = "".join(each if each.isprintable() else " " for each in shortened(text, LONGEST))
            if text:
                head, rest = f"{name:<10}", " " * 10
                print(textwrap.fill(harmless, width, initial_indent=head, subsequent_indent=rest), file=out)
        answer = ""
        while answer not in (*_RELEVANT, "u", "q"):
            print(QUESTION, file=out, flush=True)
            pressed = key()
            answer = pressed.strip().lower()[:1] if pressed else "q"
        if answer == "q":
            break
        if answer == "u":
            at = max(at - 1, 0)
            sheet.record(places[at], judge, GONE)
        else:
            sheet.record(places[at], judge, _RELEVANT[answer])
            at += 1
        sheet.write()
    print(f"{done + at} of {len(sheet.keys)} pairs; the answers are in {sheet.path}", file=out, flush=True)


@contextmanager
def keys_of_terminal() -> Iterator[Callable[[], str]]:
    """Give what reads a key from this terminal, or a line where there is none that gives keys."""
    try:
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    except ImportError:  # not on Windows
        before = None
    if before is None:
        yield sys.stdin.readline
        return
    try:
        tty.setcbreak(sys.stdin)
        yield lambda: sys.stdin.read(1)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
