"""Collections of others: those that `ir_datasets` knows, and those on the Hugging Face hub in BEIR's layout.

Both libraries fetch and keep the files; the checks, and the Arrow form in the cache, are those of every collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Any

from foils.data.build import LENIENT, Record, Source, build_stored, cache_place, file_facts
from foils.data.collection import Collection
from foils.data.lines import Complaints
from foils.data.tables import Records
from foils.runtime.errors import InputError, UnknownNameError, require

SPLITS = {
    "train": ("train", "training"),
    "dev": ("dev", "validation", "valid", "val"),
    "test": ("test",),
}
LAYOUT = (
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
            f"{LAYOUT.format(name=name)}. Pairs are read without lenient: before the name"
        )
    corpus, queries = (_hf_configuration(datasets, name, each) for each in ("corpus", "queries"))
    place = next(((name, each) for each in ("qrels", "default") if each in configurations), (f"{name}-qrels", None))
    try:
        judged = _hf_configuration(datasets, *place)
    except (OSError, ValueError) as error:
        raise InputError(
            f"hf:{name} has no judgements that can be reached ({error}); {LAYOUT.format(name=name)}"
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
