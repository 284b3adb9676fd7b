"""Every form of file that is read: valid examples of it, and what must hold whatever a file says.

A check writes the bytes as a file, reads them, and returns what came of it. It raises `BrokenPromiseError` where a file
was refused without its name, or read with a record less than it holds; other errors than ours it lets pass.
"""

import gzip
import io
import json
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from foils.data import Collection, Labels, Negatives, Run, load_collection
from foils.data.sources import as_source
from foils.runtime.errors import FoilsError, InputError

LONGEST_MESSAGE = 20_000
OF_THE_WHOLE = (
    "no documents in it",
    "no queries in it",
    "the file is empty",
    "not a readable Parquet",
    "cannot be read",
    "no JSON object with keys",
    "expected a list of JSON objects",
    "maximum recursion depth",
    "could each be the",
)
DOCUMENTS = {
    "d1": ("Sailing", "A boat turns through the wind."),
    "d2": ("", "The keel keeps a boat upright."),
    "7": ("Bread", "Sourdough rises by wild yeast."),
    "07": ("", "Flour, water and salt are all it needs."),
    "é \u200f": ("Bees", "Honey bees dance; \u202etheir wings hum\u202c."),
}
QUERIES = {"q1": "how does a boat tack", "1": "what makes bread rise", "ü": "how do bees talk"}
TREC = "q1 Q0 d2 1 2.5 bm25\nq1 Q0 7 2 -1e3 bm25\n1 Q0 d1 1 0 bm25\n"
LABELS_TSV = (
    b"query_id\tdoc_id\trelevant\tjudge\tprobability\nq1\td1\t1\tanna\t0.25\nq1\t7\t\t\t0.5\n1\t07\tno\tllm:m\t1\n"
)
LABELS_CSV = b'\xef\xbb\xbfrelevant;query_id;text;doc_id\r\nyes;q1;"a;\nb";x\r\n0;1;;d1\r\n;;;\r\n'


class BrokenPromiseError(AssertionError):
    """A reader did what none may."""


@dataclass(frozen=True)
class Outcome:
    """What came of a file: refused with so many complaints (0: it was read), of so many records given."""

    records: int
    complaints: int


@dataclass(frozen=True)
class Format:
    """A form of file.

    Attributes:
        name: what to call it.
        examples: valid files, gzipped ones among them where the form allows it.
        read: reads the file at a path; returns how many records it took over, None where they cannot be counted.
        given: counts the records of a file that was read, by other means than the reader's.
        lines: whether a complaint must name a line.
        file: what the file is called.
    """

    name: str
    examples: Callable[[], list[bytes]]
    read: Callable[[Path], int | None]
    given: Callable[[bytes], int | None] = lambda _: None
    lines: bool = False
    file: str = "input"

    def check(self, data: bytes, folder: Path) -> Outcome:
        """Write, read, and see that one of the two things happened that may."""
        path = folder / self.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        try:
            taken = self.read(path)
        except FoilsError as error:
            return Outcome(0, self._complaints(error, path))
        given = self.given(data)
        if taken is not None and given is not None and taken != given:
            raise BrokenPromiseError(f"{self.name}: {given} records given, {taken} read, nothing said")
        return Outcome(taken or 0, 0)

    def _complaints(self, error: FoilsError, path: Path) -> int:
        said = str(error)
        if not isinstance(error, InputError) or path.name not in said:
            raise BrokenPromiseError(f"{self.name}: a complaint without the file's name: {said[:500]}") from error
        if len(said) > LONGEST_MESSAGE:
            raise BrokenPromiseError(f"{self.name}: a complaint of {len(said)} characters: {said[:500]}") from error
        if self.lines and getattr(error, "line", None) is None and not any(words in said for words in OF_THE_WHOLE):
            raise BrokenPromiseError(f"{self.name}: a complaint without a line: {said[:500]}") from error
        said.encode()  # what a terminal or a log can hold
        head, _, more = said.rpartition("\n(and ")
        return head.count("\n") + 1 + int(more.split()[0]) if more.endswith(" more)") else 1 + said.count("\n")


@cache
def collection() -> Collection:
    """The collection that sources are read with."""
    return Collection.from_dicts("fuzzed", DOCUMENTS, QUERIES, {"train": {"q1": {"d1": 1}, "1": {"7": 2}}})


def unpacked(data: bytes) -> bytes:
    """Return the bytes of a file that was read, unpacked where it is gzip."""
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def records(data: bytes) -> list[str]:
    """Return the lines of a file that are not blank."""
    lines = unpacked(data).decode("utf-8-sig").split("\n")
    return [line for line in lines if line.strip()]


def jsonl(*rows: Any) -> bytes:
    """Return rows as JSON lines."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def packed(*files: bytes) -> list[bytes]:
    """Return the files, and each gzipped."""
    return [*files, *(gzip.compress(file, mtime=0) for file in files)]


# BEIR folders

_CORPUS = jsonl(*({"_id": key, "title": title, "text": text} for key, (title, text) in DOCUMENTS.items()))
_QUERIES = jsonl(*({"_id": key, "text": text} for key, text in QUERIES.items()))
_QRELS = b"query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t0\n1\t7\t2\n"


def _beir(part: str) -> Callable[[Path], int]:
    """Read a folder of which one file is given, and the others are good."""

    def read(path: Path) -> int:
        folder = path.parents[1] if part == "qrels" else path.parent
        (folder / "qrels").mkdir(exist_ok=True)
        good = {"corpus.jsonl": _CORPUS, "queries.jsonl": _QUERIES, "qrels/test.tsv": b"query-id\tcorpus-id\tscore\n"}
        for name, data in good.items():
            if folder / name != path:
                (folder / name).write_bytes(data)
        read = load_collection(folder)
        kind = {"corpus": "documents", "qrels": "judgements"}.get(part, part)
        told = re.findall(rf"([\d,]+) (?:repeated )?{kind}", read.name)  # what is left out, and said
        left_out = sum(int(count.replace(",", "")) for count in told)
        if part == "qrels":
            return len(read.judgements("test")) + left_out
        texts = read.document_texts(range(len(read.documents))), read.query_texts(range(len(read.queries)))
        if not all(text.strip() for listed in texts for text in listed):
            raise BrokenPromiseError("an empty text was taken")
        return len(texts[part == "queries"]) + left_out

    return read


def _judged(data: bytes) -> int:
    lines = records(data)
    first = unpacked(data).decode("utf-8-sig").partition("\n")[0].rstrip("\r").split("\t")
    return len(lines) - (len(first) == 3 and first[-1].strip() == "score")


# Sources


def _source(path: Path) -> Negatives:
    negatives = as_source(str(path), collection()).negatives
    if not len(negatives):
        return negatives
    negatives.rows_in(collection())
    return negatives


def _counted(path: Path) -> int:
    """Rows of negatives, not of scored positives, and what was left out with a count."""
    negatives = _source(path)
    left, count = negatives.provenance["settings"], sum(of != "labels" for of in negatives.table["source"].to_pylist())
    return count + left.get("repeated", 0) + left.get("positives", 0)


def _negatives_given(data: bytes) -> int:
    """Count the negatives of records, by any of the names that they may have; one that is blank is none."""
    text, count = unpacked(data).decode("utf-8-sig"), 0
    rows = json.loads(text) if text.lstrip()[:1] == "[" else map(json.loads, records(data))
    for row in rows:
        for name, value in row.items():
            key = name.lower().replace("\ufeff", "")
            if key in ("negative_passages", "negative", "neg") or (key[:9] == "negative_" and key[9:].isdecimal()):
                given = value if isinstance(value, list) else [value]
                count += sum(each is not None and each == each and str(each).strip() != "" for each in given)
    return count


_OWN = {"docid": "new", "title": "New", "text": "A text of its own."}
_NEGATIVES = [{"docid": "d2", "title": "", "text": DOCUMENTS["d2"][1], "score": 3.5}, _OWN]
_POSITIVES = [{"docid": "d1", "title": "Sailing", "text": DOCUMENTS["d1"][1]}]
_TEVATRON = jsonl(
    {"query_id": "q1", "query": QUERIES["q1"], "positive_passages": _POSITIVES, "negative_passages": _NEGATIVES},
    {"query_id": 1, "query": QUERIES["1"], "positive_passages": [], "negative_passages": [{"docid": "07"}]},
)
_TUPLES = jsonl(
    {"query": QUERIES["q1"], "positive": DOCUMENTS["d1"][1], "negative": DOCUMENTS["d2"][1]},
    {"anchor": QUERIES["1"], "positive": "x", "negative_1": "A text of its own.", "negative_2": "Another."},
    {"query": QUERIES["ü"], "pos": ["x"], "neg": [DOCUMENTS["7"][1], "A text of its own."]},
)


def _run(path: Path) -> int:
    run = Run.read(path)
    if not np.isfinite(run.table["score"].to_numpy()).all():
        raise BrokenPromiseError("a score that is not finite was taken")
    return len(run.table)


def _labels(path: Path) -> int:
    labels = Labels.of(path, collection())
    if not set(labels.table["relevant"].to_pylist()) <= {0, 1, None}:
        raise BrokenPromiseError("an answer that is none was taken")
    return len(labels)


# Parquet


def parquet(table: pa.Table, provenance: bytes = b'{"stage": "mine"}') -> bytes:
    """Return a table as the bytes of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({b"foils": provenance}), sink, compression="zstd")
    return sink.getvalue()


NEGATIVES: dict[str, list[Any]] = {
    "query_id": ["q1", "q1", "1"],
    "doc_id": ["d2", "own", "d1"],
    "source": ["bm25", "llm", "bm25"],
    "rank": [0, 1, 0],
    "score": [2.5, float("nan"), 1.0],
    "text": [None, "A text of its own.", None],
    "keep": [True, False, True],
    "reason": [None, "near the positive", None],
    "cosine": [0.5, 0.25, None],
    "weight": [1.0, 0.0, 0.5],
}


def _parquet_rows(data: bytes) -> int:
    return int(pq.ParquetFile(io.BytesIO(data)).metadata.num_rows)


def _negatives(path: Path) -> int:
    negatives = _source(path)
    for name in ("score", "cosine", "elo", "elo_se", "gap", "weight"):
        if name in negatives.table.column_names and np.isinf(negatives.table[name].to_numpy()).any():
            raise BrokenPromiseError(f"an infinite {name} was taken")
    return len(negatives)


# What language models say, and are asked


def _answer(path: Path) -> int:
    from foils.mining.generation import Record, parse, validated

    said = path.read_bytes().decode("utf-8", "surrogateescape")
    texts = parse(said)
    record = Record("key", "q", "how does a boat tack", ("A boat turns.",), {})
    kept, away = validated(texts, record, taken=["x"], number=3)
    if len(kept) + sum(away.values()) != len(texts):
        raise BrokenPromiseError("texts of an answer are neither kept nor counted")
    "".join(kept).encode()
    return len(texts)


def _search_answers(path: Path) -> int:
    from foils.searching.doors import read_answers

    return len(read_answers(path))


FORMATS: dict[str, Format] = {
    found.name: found
    for found in (
        Format("beir-corpus", lambda: packed(_CORPUS), _beir("corpus"), lambda data: len(records(data)), True,
               "beir/corpus.jsonl"),
        Format("beir-queries", lambda: packed(_QUERIES), _beir("queries"), lambda data: len(records(data)), True,
               "beir/queries.jsonl"),
        Format("beir-qrels", lambda: packed(_QRELS), _beir("qrels"), _judged, True, "beir/qrels/test.tsv"),
        Format("tevatron", lambda: packed(_TEVATRON), _counted, _negatives_given, True, "tevatron.jsonl"),
        Format("tuples", lambda: packed(_TUPLES), _counted, _negatives_given, True, "tuples.jsonl"),
        Format("trec-source", lambda: packed(TREC.encode()), _counted, lambda data: len(records(data)), file="a.trec"),
        Format("labels-tsv", lambda: packed(LABELS_TSV), _labels, lines=True, file="l.tsv"),
        Format("labels-csv", lambda: packed(LABELS_CSV), _labels, file="l.csv"),
        Format("trec-run", lambda: packed(TREC.encode()), _run, lambda data: len(records(data)), True, "b.trec"),
        Format("answers", lambda: packed(jsonl({"query_id": "q1", "answer": "x"}, {"query_id": 1, "answer": "y"})),
               _search_answers, lambda data: len(records(data)), True, "answers.jsonl"),
        Format("negatives-parquet", lambda: [parquet(pa.table(NEGATIVES))], _negatives, _parquet_rows,
               file="a.parquet"),
        Format("llm-answer", lambda: [
            b'{"negatives": ["one text", "another \\"text\\""]}', b"<think>[1]</think>\n```json\n[\"a\", \"b\"]\n```",
            b'1. first\n2) second\n- third', b'[{"text": "a"}, {"text": "b', b'{"negatives": ["cut off", "he'],
               _answer, file="answer.txt"),
    )
}  # fmt: skip


def damaged_gzip(data: bytes) -> Iterator[bytes]:
    """Yield a gzip file cut off, with a wrong sum, and with something after its end."""
    whole = gzip.compress(data, mtime=0)
    yield from (whole[:size] for size in (3, 12, len(whole) // 2, len(whole) - 1))
    yield whole[:-8] + bytes(8)
    yield whole + b"after its end"
    yield whole[:-8] + zlib.crc32(data).to_bytes(4, "little") + (len(data) + 1).to_bytes(4, "little")
