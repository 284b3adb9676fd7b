"""Collections in BEIR's folder form: corpus.jsonl, queries.jsonl, qrels/{split}.tsv, plain or gzipped."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from foils.data.build import LENIENT, Record, Source, build_stored, cache_place, file_facts
from foils.data.collection import Collection
from foils.data.lines import Complaints, json_objects, numbered_lines, text_field
from foils.runtime.errors import InputError

LAYOUT = "a BEIR folder holds corpus.jsonl, queries.jsonl and qrels/{train,dev,test}.tsv, each plain or .gz"


def read_beir(folder: str | Path, *, lenient: bool = False) -> Collection:
    """Read a BEIR folder; the Arrow form is stored in the cache and used again while the files stay as they are.

    A folder without `qrels` is a collection without judgements.

    Args:
        folder: as BEIR lays it out.
        lenient: as `build_stored`.

    Raises:
        InputError: the folder or one of its files is missing.
        FormatError: what is wrong in a file, with lines.
    """
    folder = Path(folder)
    if not _is_folder(folder):
        raise InputError(f"{folder}: no such folder; {LAYOUT}")
    corpus, queries = _find(folder, "corpus.jsonl"), _find(folder, "queries.jsonl")
    splits = _splits(folder / "qrels")
    missing = [name for name, path in (("corpus.jsonl", corpus), ("queries.jsonl", queries)) if path is None]
    if not splits and (missing or (folder / "qrels").exists()):
        missing.append("qrels/*.tsv")
    if corpus is None or queries is None or missing:
        raise InputError(f"{folder}: no {', no '.join(missing)}; {LAYOUT}")
    stored = cache_place(*map(file_facts, (corpus, queries, *splits.values())), *LENIENT[lenient])
    return build_stored(
        folder.resolve().name,
        stored,
        Source(str(corpus), lambda complaints: _documents(corpus, complaints)),
        Source(str(queries), lambda complaints: _queries(queries, complaints)),
        {split: _qrels_source(path) for split, path in splits.items()},
        lenient=lenient,
    )


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:  # a name that is too long, a folder that may not be entered
        return False


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)


def _splits(folder: Path) -> dict[str, Path]:
    """Files of judgements by split; a plain file goes before its .gz."""
    found = [*sorted(folder.glob("[!.]*.tsv.gz")), *sorted(folder.glob("[!.]*.tsv"))]
    by_split = {path.name.removesuffix(".gz").removesuffix(".tsv"): path for path in found if path.is_file()}
    return dict(sorted(by_split.items()))


def _documents(path: Path, complaints: Complaints) -> Iterator[Record]:
    for line, record in json_objects(path, complaints):
        identifier, text = text_field(record.get("_id")), text_field(record.get("text"))
        title = "" if record.get("title") is None else text_field(record["title"])
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
            if line == 1 and len(fields) == 3 and fields[-1].strip() == "score":
                continue
            grade = _integer(fields[-1])
            if len(fields) != 3 or grade is None:
                complaints.add("expected query-id<TAB>corpus-id<TAB>score, the score a whole number", line)
            else:
                yield line, (fields[0], fields[1], grade)

    return Source(str(path), records)


def _integer(text: str) -> int | None:
    written = text.strip()
    return int(written) if re.fullmatch(r"[+-]?[0-9]{1,10}", written) else None
