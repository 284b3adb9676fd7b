"""Opens a collection by what users write: pairs, a BEIR folder, a data set of a hub, a task of MTEB, pydocs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from platform import python_version
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any

from foils.data.collection import (
    LENIENT,
    Collection,
    Record,
    Source,
    build_stored,
    cache_place,
    file_facts,
    open_stored,
)
from foils.data.labels import LabelsLike, with_judgements
from foils.data.pairs import parsed_columns, read_pairs
from foils.data.records import (
    ENDINGS,
    Complaints,
    Records,
    json_objects,
    numbered_lines,
    text_field,
)
from foils.data.splitting import SHARES
from foils.runtime.errors import InputError, UnknownNameError, require
from foils.runtime.files import cache_folder, existing_file
from foils.runtime.options import Option, Settings, numbers_of, refuse, several, spelled

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


SPLITS = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}


HF_LAYOUT = (
    "expected configurations 'corpus' (_id, title, text) and 'queries' (_id, text), and the judgements (query-id, "
    "corpus-id, score) by split in 'qrels', in 'default', or in the repository {name}-qrels"
)


_SPLIT_OF = {name: split for split, names in SPLITS.items() for name in names}


def read_ir_datasets(name: str, *, lenient: bool = False) -> Collection:
    """Read a data set that `ir_datasets` knows; its Arrow form is stored in the cache.

    Where the data set has queries and judgements of its own, they are the one split, called by the last part of its
    ID (`training` is train; `validation`, `valid` and `val` are dev), otherwise test. Where it has none, the splits
    are those below it: ID/train, ID/dev, ID/test.

    Args:
        name: ID, such as `beir/scifact`. An ID stands for fixed contents: if you change a data set that you have
            registered yourself, register it under another ID.
        lenient: as `build_stored`.

    Raises:
        MissingExtraError: without the package.
        InputError: an unknown ID, no judgements in train, dev or test, or data that cannot be fetched.
        FormatError: what is wrong in the data.
    """
    ir_datasets = require("ir_datasets", "hub")
    whole = _registered(ir_datasets, name)
    if whole is None:
        raise InputError(f"ir_datasets knows no data set {name!r}; see https://ir-datasets.com for the IDs")
    splits = _ir_splits(ir_datasets, name, whole)
    stored = cache_place("ir_datasets", version("ir_datasets"), name, *LENIENT[lenient])
    documents = whole if whole.has_docs() else next(iter(splits.values()))
    if not documents.has_docs():
        raise InputError(f"ir_datasets:{name} has no documents; give the ID of a data set that has")
    return build_stored(
        name,
        stored,
        _source(f"ir_datasets:{name} (docs)", lambda: map(_ir_document, documents.docs_iter())),
        _source(f"ir_datasets:{name} (queries)", lambda: _ir_queries(splits.values())),
        {split: _source(f"ir_datasets:{name} (qrels {split})", _ir_judgements(of)) for split, of in splits.items()},
        lenient=lenient,
    )


def read_hf(name: str, *, lenient: bool = False) -> Collection:
    """Read a data set in BEIR's layout from the Hugging Face hub or a local folder; its Arrow form is in the cache.

    The configurations are `corpus` (`_id` or `id`, `title` if there is one, `text`), `queries` (`_id` or `id`,
    `text`) and `qrels` or `default` (`query-id`, `corpus-id`, `score`), the last in splits; the judgements may also
    be in the repository, or folder, NAME-qrels. The splits `validation`, `valid` and `val` are dev, `training` is
    train; others keep their names.

    Args:
        name: of the repository, such as `BeIR/scifact`, or the path of a folder.
        lenient: as `build_stored`.

    Raises:
        MissingExtraError: without the package `datasets`.
        InputError: no such data set, none that can be reached and none in the cache of `datasets`, or another layout.
        FormatError: what is wrong in the data, by row.
    """
    datasets = require("datasets", "hub")
    with fetching(f"hf:{name}"):
        corpus, queries, judged = _hf_parts(datasets, name)
    files = dict.fromkeys(file for part in (corpus, queries, judged) for file in part.files)
    stored = cache_place("hf", name, *map(file_facts, files), *LENIENT[lenient])
    return build_stored(
        Path(name).name,
        stored,
        _source(f"hf:{name} (corpus)", lambda: map(_hf_document, corpus.rows())),
        _source(f"hf:{name} (queries)", lambda: map(_hf_query, queries.rows())),
        {
            split: _source(f"hf:{name} (qrels {split})", partial(map, _hf_judgement, rows))
            for split, rows in judged.splits.items()
        },
        lenient=lenient,
    )


def hf_pairs(name: str) -> dict[str, Records] | None:
    """Return the records of a data set that is no collection in BEIR's layout, by split; None: it is one.

    Args:
        name: NAME, NAME:CONFIGURATION or NAME:CONFIGURATION:SPLIT, or NAME::SPLIT; NAME is a repository or a folder.

    Raises:
        MissingExtraError: without the package `datasets`.
        InputError: no such data set, configuration or split, or none that can be reached.
    """
    datasets = require("datasets", "hub")
    name, _, rest = name.partition(":")
    configuration, _, split = rest.partition(":")
    with fetching(f"hf:{name}"):
        configurations = datasets.get_dataset_config_names(name)
        if not rest and {"corpus", "queries"} <= set(configurations):
            return None
        if configuration and configuration not in configurations:
            raise UnknownNameError(f"configuration of hf:{name}", configuration, configurations)
        if not configuration and len(configurations) > 1:
            raise InputError(f"hf:{name} has several configurations; say which: hf:{name}:{configurations[0]}, …")
        part = _hf_configuration(datasets, name, configuration or configurations[0])
        if split and split not in part.splits:
            raise UnknownNameError(f"split of hf:{name}", split, part.splits)
        chosen = {split: part.splits[split]} if split else dict(part.splits)
        return {
            split: Records(f"hf:{name} ({split})", _columns(rows), partial(_hf_records, rows), tuple(part.files))
            for split, rows in chosen.items()
        }


def _columns(rows: Iterable[Mapping[str, Any]]) -> tuple[str, ...]:
    return tuple(next(iter(rows), {}))


def _hf_records(rows: Iterable[Mapping[str, Any]], _: Complaints) -> Iterator[tuple[int, Mapping[str, Any]]]:
    return enumerate(rows, start=1)


def _source(where: str, fields: Callable[[], Iterable[tuple[Any, ...]]]) -> Source:
    """A source whose records count from 1 and whose failures to fetch are the user's to know."""

    def records(_: Complaints) -> Iterator[Record]:
        with fetching(where):
            yield from enumerate(fields(), start=1)

    return Source(where, records)


@contextmanager
def fetching(where: str, but: type[Exception] = InputError) -> Iterator[None]:
    """Turn what the libraries raise when they cannot fetch or parse a data set into an InputError, `but` one kind."""
    try:
        yield
    except (InputError, but):
        raise
    except (OSError, EOFError, RuntimeError, ValueError, KeyError) as error:
        said = str(error).strip().partition("\n")[0][:300]
        raise InputError(
            f"cannot read {where} ({type(error).__name__}: {said}); check the name, and the network (HF_HUB_OFFLINE "
            "lets nothing be fetched)"
        ) from error


def _registered(ir_datasets: ModuleType, name: str) -> Any:
    try:
        return ir_datasets.registry[name]
    except KeyError:
        return None


def _ir_splits(ir_datasets: ModuleType, name: str, whole: Any) -> dict[str, Any]:
    if whole.has_queries() and whole.has_qrels():
        return {_SPLIT_OF.get(name.rpartition("/")[2], "test"): whole}
    splits = {}
    for split, names in SPLITS.items():
        below = (_registered(ir_datasets, f"{name}/{last}") for last in names)
        found = next((part for part in below if part and part.has_queries() and part.has_qrels()), None)
        if found:
            splits[split] = found
    if not splits:
        judged = [
            known
            for known in ir_datasets.registry
            if known.startswith(f"{name}/") and _registered(ir_datasets, known).has_qrels()
        ]
        listed = f"; those below it that have: {', '.join(judged)}" if judged else ""
        raise InputError(f"ir_datasets:{name} has no queries with judgements, nor has its train, dev or test{listed}")
    return splits


def _ir_document(document: Any) -> tuple[Any, ...]:
    """Id, title and text; the title apart where the type has one and its default text begins with it."""
    text, title = _default_text(document), getattr(document, "title", None)
    if isinstance(title, str) and isinstance(text, str) and text.startswith(title):
        return document.doc_id, title, text[len(title) :].strip()
    return document.doc_id, "", text


def _default_text(record: Any) -> Any:
    """What the type calls its text; a type registered by a user may have the attribute `text` alone."""
    return record.default_text() if hasattr(record, "default_text") else getattr(record, "text", None)


def _ir_queries(parts: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """The queries of all splits; one that is in two of them, with one text, once."""
    texts: dict[str, Any] = {}
    for part in parts:
        for query in part.queries_iter():
            text = _default_text(query)
            if texts.get(query.query_id) != text:
                texts[query.query_id] = text
                yield query.query_id, text


def _ir_judgements(part: Any) -> Callable[[], Iterator[tuple[Any, ...]]]:
    return lambda: ((of.query_id, of.doc_id, getattr(of, "relevance", None)) for of in part.qrels_iter())


@dataclass(frozen=True)
class _Configuration:
    """Rows by split, and the files that they lie in."""

    splits: Mapping[str, Iterable[Mapping[str, Any]]]
    files: list[Path]

    def rows(self) -> Iterator[Mapping[str, Any]]:
        return chain.from_iterable(self.splits.values())


def _hf_configuration(datasets: ModuleType, name: str, configuration: str | None) -> _Configuration:
    """Load one configuration; None: the only one.

    A folder is streamed: what `datasets` would keep of it is found again by the folder's last name and README alone,
    so that it would give old contents, or another folder's.
    """
    if Path(name).is_dir():
        splits = datasets.load_dataset(name, configuration, streaming=True)
        return _Configuration(splits, sorted(path for path in Path(name).rglob("*") if path.is_file()))
    splits = datasets.load_dataset(name, configuration)
    return _Configuration(splits, [Path(file["filename"]) for rows in splits.values() for file in rows.cache_files])


def _hf_parts(datasets: ModuleType, name: str) -> tuple[_Configuration, _Configuration, _Configuration]:
    """The corpus, the queries, and the judgements, whose splits have our names."""
    configurations = datasets.get_dataset_config_names(name)
    if missing := [each for each in ("corpus", "queries") if each not in configurations]:
        raise InputError(
            f"hf:{name} has no configuration {' nor '.join(missing)}, only {', '.join(configurations)}; "
            f"{HF_LAYOUT.format(name=name)}. Pairs are read without lenient: before the name"
        )
    corpus, queries = (_hf_configuration(datasets, name, each) for each in ("corpus", "queries"))
    place = next(((name, each) for each in ("qrels", "default") if each in configurations), (f"{name}-qrels", None))
    try:
        judged = _hf_configuration(datasets, *place)
    except (OSError, ValueError) as error:
        raise InputError(
            f"hf:{name} has no judgements that can be reached ({error}); {HF_LAYOUT.format(name=name)}"
        ) from error
    names = {split: _SPLIT_OF.get(split, split) for split in judged.splits}
    if len(set(names.values())) < len(names):  # dev and validation, say: each keeps its own name
        names = {split: split for split in judged.splits}
    return corpus, queries, replace(judged, splits={names[split]: rows for split, rows in judged.splits.items()})


def _hf_document(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row.get("_id", row.get("id")), row.get("title") or "", row.get("text")


def _hf_query(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row.get("_id", row.get("id")), row.get("text")


def _hf_judgement(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row.get("query-id"), row.get("corpus-id"), row.get("score")


TABLE = "negatives.parquet"  # of a repository that holds a table of negatives


def fetched_table(name: str | Path) -> Path:
    """Return the file of a table of negatives: fetched from the hub for `hf:NAME`, and any other path as it is.

    Raises:
        InputError: no such repository, none that holds a table of negatives, or none that can be reached.
    """
    if not str(name).startswith("hf:"):
        return Path(name)
    with fetching(f"{name}, as {TABLE} of a data set"):
        return _fetched(str(name).removeprefix("hf:"))


def fetched_source(path: Path) -> Path | Mapping[str, Records]:
    """Return the file of a source; of `hf:` a table of negatives, or else the records of pairs, by split.

    Args:
        path: of a file, or `hf:NAME`, or of pairs also `hf:NAME:CONFIGURATION[:SPLIT]` (see `hf_pairs`).

    Raises:
        MissingExtraError: pairs without the package `datasets`.
        InputError: no such repository, none of these in it, or none that can be reached.
    """
    name = str(path).removeprefix("hf:")
    if name == str(path):
        return path
    from huggingface_hub.errors import EntryNotFoundError

    if ":" not in name:
        try:
            with fetching(f"{path}, as {TABLE} of a data set", but=EntryNotFoundError):
                return _fetched(name)
        except EntryNotFoundError:
            pass
    if (pairs := hf_pairs(name)) is None:
        raise InputError(f"{path} is a collection in BEIR's layout; a source is {TABLE}, or has a column of negatives")
    return pairs


def _fetched(name: str) -> Path:
    """The file of a repository or a folder."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    if not Path(name).is_dir():
        return Path(hf_hub_download(name, TABLE, repo_type="dataset"))
    if not (path := Path(name, TABLE)).is_file():
        raise LocalEntryNotFoundError(f"no {TABLE} in the folder")
    return path


WHOLE = "default"
"""mteb's name for the data of a task that is not in several languages."""


def read_mteb(name: str) -> Collection:
    """Read a retrieval task by its name, as mteb fetches and keeps it.

    Raises:
        MissingExtraError: without the package mteb.
        InputError: no such task, none of retrieval, or data that cannot be fetched.
    """
    mteb = require("mteb", "mteb")
    try:
        return collection_from_mteb(mteb.get_task(name))
    except InputError:
        raise
    except (KeyError, OSError, RuntimeError, ValueError) as error:
        said = str(error).strip().partition("\n")[0][:300]
        raise InputError(f"cannot read mteb:{name} ({said}); check the name, and the network") from error


def collection_from_mteb(task: Any, *, splits: Sequence[str] | None = None, subset: str = WHOLE) -> Collection:
    """Return a retrieval task of mteb as a collection; the task loads its data if it has not.

    Args:
        task: of `mteb.get_task`, of text, without instructions.
        splits: of the task; None: all that it loads, which are those that it evaluates.
        subset: language, of a task in several.

    Raises:
        MissingExtraError: without the package mteb.
        InputError: no retrieval task, no such split or subset, no texts, or an id with two texts.
    """
    retrieval = require("mteb", "mteb").abstasks.AbsTaskRetrieval
    if not isinstance(task, retrieval):
        raise InputError(f"{type(task).__name__} is no retrieval task of mteb; give one, as of mteb.get_task")
    name = task.metadata.name
    task.load_data()
    task.convert_v1_dataset_format_to_v2(num_proc=None)
    if subset not in task.dataset:
        raise InputError(f"{name} has no subset {subset!r}, only {', '.join(task.dataset)}")
    parts = task.dataset[subset]
    if missing := [split for split in splits or () if split not in parts]:
        raise InputError(f"{name} has loaded no split {', '.join(missing)}, only {', '.join(parts)}")
    documents: dict[str, tuple[str, str]] = {}
    queries: dict[str, str] = {}
    for split in splits or parts:
        part = parts[split]
        if "instruction" in part["queries"].column_names:
            raise InputError(f"the queries of {name} have instructions, which a collection has no place for")
        _mteb_add(documents, _mteb_rows(part["corpus"], name), f"documents of {name}")
        _mteb_add(queries, ((key, text) for key, (_, text) in _mteb_rows(part["queries"], name)), f"queries of {name}")
    return Collection.from_dicts(name, documents, queries, {s: parts[s]["relevant_docs"] for s in splits or parts})


def _mteb_rows(dataset: Any, name: str) -> Iterable[tuple[str, tuple[str, str]]]:
    for row in dataset:
        if not isinstance(row.get("text"), str):
            raise InputError(f"{name} has {', '.join(row)}; a collection is of texts")
        yield row["id"], (row.get("title") or "", row["text"])


def _mteb_add(to: dict[str, Any], rows: Iterable[tuple[str, Any]], what: str) -> None:
    changed = [key for key, value in rows if to.setdefault(key, value) != value]
    if changed:
        raise InputError(f"{len(changed)} {what} have two texts in its splits, {changed[0]!r} first; take one split")


PREFIX = "lenient:"


def load_collection(
    given: CollectionLike,
    *,
    keep_identical_ids: bool = False,
    columns: Mapping[str, str] | None = None,
    corpus: Any = None,
    shares: Sequence[float] | None = None,
) -> Collection:
    """Open a collection.

    Args:
        given: a BEIR folder; a table of pairs, as a file (CSV, TSV, JSON, JSONL, Parquet) or in memory (see
            `foils.data.pairs.read_pairs`); `ir_datasets:ID`; `hf:NAME` (a hub name or a local folder); `mteb:TASK`; or
            `pydocs`, or `pydocs:PACKAGE,PACKAGE` of packages that are named as they are imported. `lenient:` before a
            name leaves out documents and queries without a text, and judgements of what is not there, which are
            complaints without; the collection's name then tells how many.
        keep_identical_ids: let a document whose id is a query's own be a negative of the query and an answer to it
            (`Collection.identical`).
        columns: of pairs: what a column is -> its name, as {"query": "a", "positive": "b"}.
        corpus: of pairs: more documents, a file or a table.
        shares: of pairs without splits: shares of the queries in train, dev and test. Default: 0.8, 0.1, 0.1.

    Raises:
        InputError: there is no such collection, it is not well-formed, or it is not made of pairs.
        MissingExtraError: `ir_datasets:` or `hf:` without the extra `hub`, `mteb:` without `mteb`.
    """
    pairs = None if isinstance(given, Collection) else _pairs(given)
    if pairs is not None:
        name = str(given).removeprefix("hf:") if isinstance(given, str) and given.startswith("hf:") else ""
        made = read_pairs(pairs, columns=columns, corpus=corpus, shares=shares or SHARES, name=name)
        return replace(made, keep_identical_ids=keep_identical_ids, columns=dict(columns or {}))
    collection = given if isinstance(given, Collection) else _load(given)
    refuse(
        {"columns": columns, "corpus": corpus, "split_shares": shares},
        f"with {collection.name}, which is not made of pairs",
    )
    return replace(collection, keep_identical_ids=True) if keep_identical_ids else collection


def is_pairs(given: Any) -> bool:
    """Tell whether `load_collection` reads this as a table of pairs."""
    return not isinstance(given, Collection) and _pairs(given) is not None


def _pairs(given: Any) -> Any:
    """What `read_pairs` takes, where this names, or is, a table of pairs; otherwise None."""
    if given is None:
        raise InputError("None is no collection; expected a file, a folder, a table or a name")
    if not isinstance(given, (str, Path)):
        return given
    if str(given).startswith(PREFIX):
        return None
    if str(given).startswith("hf:"):
        return hf_pairs(str(given).removeprefix("hf:"))
    if str(given) == "-":
        raise InputError("-: pairs are read more than once, standard input only once; write them to a file first")
    if is_file(given):
        return given
    if _is_table(given) or _is_no_folder(given):
        existing_file(given)
    return None


def _is_no_folder(name: str | Path) -> bool:
    try:
        return Path(name).exists() and not Path(name).is_dir()
    except (OSError, ValueError):  # a name that is too long, or no name
        return False


def _is_table(name: str | Path) -> bool:
    return str(name).lower().removesuffix(".gz").endswith(ENDINGS)


def is_file(name: str | Path) -> bool:
    """Tell whether a name is that of a file."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a name that is too long, or no name
        return False


def _load(name: str | Path) -> Collection:
    lenient = str(name).startswith(PREFIX)
    name = str(name).removeprefix(PREFIX) if lenient else name
    kind, colon, rest = str(name).partition(":")
    if lenient and (kind in ("mteb", "pydocs") or is_file(name) or _is_table(name)):
        raise InputError(
            f"{PREFIX}{name}: lenient: leaves out records without a text, and judgements of what is not there, of a "
            f"BEIR folder, ir_datasets:ID, or hf:NAME in BEIR's layout; write {name}"
        )
    if colon and kind == "ir_datasets":
        return read_ir_datasets(rest, lenient=lenient)
    if colon and kind == "hf":
        return read_hf(rest, lenient=lenient)
    if colon and kind == "mteb":
        return read_mteb(rest)
    if str(name) == "pydocs":
        return _pydocs()
    if colon and kind == "pydocs":
        return _pydocs([package.strip() for package in rest.split(",")])
    return read_beir(name, lenient=lenient)


def _pydocs(packages: Sequence[str] | None = None) -> Collection:
    """The documentation of installed packages, kept in the cache for as long as their versions stay."""
    from foils.data.pydocs import pydocs_versions, read_pydocs

    facts = (version("foils"), python_version(), sorted(pydocs_versions(packages).items()))
    key = hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()
    stored = cache_folder() / "collections" / f"pydocs-{key}"
    if (stored / "meta.json").is_file():
        return open_stored(stored)
    found = read_pydocs(packages)

    def source(kind: str, rows: list[tuple[Any, ...]]) -> Source:
        return Source(f"pydocs {kind}", lambda _: ((0, row) for row in rows))

    def judged(split: str) -> Source:
        rows = [(f"q:{each.name}", each.name, 1) for each in found if each.split == split]
        return source(f"qrels {split}", rows)

    return build_stored(
        "pydocs",
        stored,
        source("documents", [(each.name, "", each.text) for each in found]),
        source("queries", [(f"q:{each.name}", each.summary) for each in found]),
        {split: judged(split) for split in ("train", "dev", "test")},
    )


A_COLLECTION = (
    "A file of pairs (CSV, TSV, JSON, JSONL, Parquet), a BEIR folder, ir_datasets:ID, hf:NAME, mteb:TASK, or "
    "pydocs[:PACKAGE,…]. "
    "In Python also a `Collection`, a DataFrame, an Arrow table, a data set of `datasets`, or a dictionary of splits."
)


COLLECTION_ARGS = "collection_args"  # the program's option that takes rarely used settings as its keys


if TYPE_CHECKING:
    TableLike = str | Path | Any  # Any: a DataFrame of pandas or polars, an Arrow table, a data set of `datasets`
    CollectionLike = str | Path | Collection | Any  # Any: a table of pairs, or a dictionary of splits
    AddedLike = LabelsLike | Sequence[LabelsLike]
else:
    TableLike = str
    AddedLike = list[str]
    CollectionLike = Annotated[str, Option(metavar="COLLECTION", help=A_COLLECTION)]


_parsed_shares = partial(numbers_of, float, "split_shares", "three numbers, as 0.8,0.1,0.1")


@dataclass(frozen=True)
class CollectionSettings(Settings):
    """How a collection is read.

    Attributes:
        columns: For pairs: which column is what, as query=QUESTION,positive=ANSWER; the other roles are query_id,
            doc_id, title, negative, score and split. A source with all of these columns is read by the same names.
            Default: what the columns' names say.
        corpus: For pairs: more documents to search, a file (CSV, TSV, JSON, JSONL or Parquet) with a column of texts.
        add_judgements: File of labels whose relevant pairs become positives of train; may be given several times. In
            Python also labels or a DataFrame.
        split_shares: For pairs without splits: shares of the queries in train, dev and test, 0.8,0.1,0.1 by default.
        keep_identical_ids: Treat a document whose id is the query's as any other document. Default: no query is a
            negative of itself, or an answer to itself.
    """

    heading = "Collection"

    columns: Annotated[Mapping[str, str] | None, Option(parse=parsed_columns, metavar="ROLE=COLUMN,…")] = None
    corpus: Annotated[TableLike | None, Option(metavar="FILE")] = None
    add_judgements: Annotated[AddedLike, Option(metavar="FILE", parse=list, repeated=True)] = ()
    split_shares: Annotated[Sequence[float] | None, Option(parse=_parsed_shares, within=COLLECTION_ARGS)] = None
    keep_identical_ids: Annotated[bool, Option(within=COLLECTION_ARGS)] = False

    def open(self, given: CollectionLike) -> Collection:
        """Return a collection as it is, or the one of this name, path or table (see `load_collection`).

        Judgements that are given besides are added to it (see `with_judgements`).
        """
        loaded = load_collection(
            given,
            keep_identical_ids=self.keep_identical_ids,
            columns=self.columns,
            corpus=self.corpus,
            shares=self.split_shares,
        )
        more = several(self.add_judgements)
        return with_judgements(loaded, more) if more else loaded


def identical_ids_caption(queries: int) -> str:
    """Return the remark on this many queries whose own document is left out; empty where there are none."""
    option = spelled("keep_identical_ids", "true")
    return f"{queries:,} queries: the document with the query's own id is left out ({option})" if queries else ""
