"""Collections in BEIR's folder form: corpus.jsonl, queries.jsonl, qrels/{split}.tsv, plain or gzipped."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from foils.data.build import Record, Source, build_stored, open_stored
from foils.data.collection import Collection
from foils.data.lines import Complaints, json_objects, numbered_lines, text_field
from foils.data.store import cache_folder
from foils.errors import InputError

LAYOUT = "a BEIR folder holds corpus.jsonl, queries.jsonl and qrels/{train,dev,test}.tsv, each plain or .gz"
_FORMAT = 1  # of the stored Arrow files


def read_beir(folder: str | Path) -> Collection:
    """Read a BEIR folder; the Arrow form is stored in the cache and used again while the files stay as they are.

    Raises:
        InputError: the folder or one of its files is missing.
        FormatError: what is wrong in a file, with lines.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; {LAYOUT}")
    corpus, queries = _find(folder, "corpus.jsonl"), _find(folder, "queries.jsonl")
    splits = {path.name.partition(".")[0]: path for path in sorted((folder / "qrels").glob("*.tsv*")) if path.is_file()}
    missing = [name for name, path in (("corpus.jsonl", corpus), ("queries.jsonl", queries)) if path is None]
    if not splits:
        missing.append("qrels/*.tsv")
    if corpus is None or queries is None or missing:
        raise InputError(f"{folder}: no {', no '.join(missing)}; {LAYOUT}")
    stored = cache_folder() / "collections" / _state([corpus, queries, *splits.values()])
    if (stored / "meta.json").is_file():
        return open_stored(stored)
    return build_stored(
        folder.resolve().name,
        stored,
        Source(str(corpus), lambda complaints: _documents(corpus, complaints)),
        Source(str(queries), lambda complaints: _queries(queries, complaints)),
        {split: _qrels_source(path) for split, path in splits.items()},
    )


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _state(paths: list[Path]) -> str:
    """A digest of which files these are and when each was last written."""
    facts = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return hashlib.blake2b(repr((_FORMAT, facts)).encode(), digest_size=16).hexdigest()


def _documents(path: Path, complaints: Complaints) -> Iterator[Record]:
    for line, record in json_objects(path, complaints):
        identifier, text = text_field(record.get("_id")), text_field(record.get("text"))
        title = text_field(record.get("title") or "")
        if identifier is None or text is None or title is None:
            complaints.add('expected {"_id": string, "title": string, "text": string} in valid Unicode', line)
        else:
            yield line, (identifier, title, text)


def _queries(path: Path, complaints: Complaints) -> Iterator[Record]:
    for line, record in json_objects(path, complaints):
        identifier, text = text_field(record.get("_id")), text_field(record.get("text"))
        if identifier is None or text is None:
            complaints.add('expected {"_id": string, "text": string} in valid Unicode', line)
        else:
            yield line, (identifier, text)


def _qrels_source(path: Path) -> Source:
    def records(complaints: Complaints) -> Iterator[Record]:
        for line, text in numbered_lines(path, complaints):
            fields = text.split("\t")
            if line == 1 and fields[-1].strip() == "score":
                continue
            grade = _integer(fields[-1])
            if len(fields) != 3 or grade is None:
                complaints.add("expected query-id<TAB>corpus-id<TAB>score, the score a whole number", line)
            else:
                yield line, (fields[0], fields[1], grade)

    return Source(str(path), records)


def _integer(text: str) -> int | None:
    try:
        value = int(text)
    except ValueError:
        return None
    return value if -(2**31) <= value < 2**31 else None
