"""Opens a collection by what users write on the command line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import TYPE_CHECKING, Any

from foils.data.beir import read_beir
from foils.data.build import Source, build_stored, open_stored
from foils.data.collection import Collection
from foils.data.pairs import read_pairs
from foils.data.splitting import SHARES
from foils.data.store import cache_folder, existing_file
from foils.data.tables import ENDINGS
from foils.runtime.errors import InputError
from foils.runtime.options import refuse

if TYPE_CHECKING:
    from foils.data.resolve import CollectionLike

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
        from foils.data.hub import hf_pairs

        return hf_pairs(str(given).removeprefix("hf:"))
    if str(given) == "-":
        raise InputError("-: pairs are read more than once, standard input only once; write them to a file first")
    if _is_file(given):
        return given
    if _is_table(given) or _is_special(given):
        existing_file(given)
    return None


def _is_special(name: str | Path) -> bool:
    try:
        return Path(name).exists() and not Path(name).is_dir()
    except (OSError, ValueError):  # a name that is too long, or no name
        return False


def _is_table(name: str | Path) -> bool:
    return str(name).lower().removesuffix(".gz").endswith(ENDINGS)


def _is_file(name: str | Path) -> bool:
    try:
        return Path(name).is_file()
    except (OSError, ValueError):  # a name that is too long, or no name
        return False


def _load(name: str | Path) -> Collection:
    lenient = str(name).startswith(PREFIX)
    name = str(name).removeprefix(PREFIX) if lenient else name
    kind, colon, rest = str(name).partition(":")
    if lenient and (kind in ("mteb", "pydocs") or _is_file(name) or _is_table(name)):
        raise InputError(
            f"{PREFIX}{name}: lenient: leaves out records without a text, and judgements of what is not there, of a "
            f"BEIR folder, ir_datasets:ID, or hf:NAME in BEIR's layout; write {name}"
        )
    if colon and kind == "ir_datasets":
        from foils.data.hub import read_ir_datasets

        return read_ir_datasets(rest, lenient=lenient)
    if colon and kind == "hf":
        from foils.data.hub import read_hf

        return read_hf(rest, lenient=lenient)
    if colon and kind == "mteb":
        from foils.data.mteb import read_mteb

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
    data = read_pydocs(packages)

    def source(kind: str, *columns: Iterable[Any]) -> Source:
        return Source(f"pydocs {kind}", lambda _: ((0, row) for row in zip(*columns, strict=True)))

    return build_stored(
        "pydocs",
        stored,
        source("documents", data.doc_ids, [""] * len(data.doc_ids), data.texts),
        source("queries", data.query_ids, data.queries),
        {split: source(f"qrels {split}", *zip(*triples, strict=True)) for split, triples in data.qrels.items()},
    )
