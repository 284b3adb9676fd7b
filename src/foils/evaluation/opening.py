"""What users give as systems (encoders, BM25, runs and rerankers, by name or as objects) becomes runs."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from foils.data import Collection, Run
from foils.encode import EmbeddingSettings
from foils.encode.cross_encoders import logits
from foils.encode.models import own_kind
from foils.evaluation.measuring import bm25_run, dense_run
from foils.evaluation.rerank import rerank_run
from foils.runtime.errors import InputError
from foils.runtime.options import spelled
from foils.searching.own import own_run

if TYPE_CHECKING:
    SystemLike = str | Path | Run | Any  # Any: an Encoder, a SentenceTransformer, a CrossEncoder
    SystemsLike = Mapping[str, SystemLike] | Sequence[SystemLike] | SystemLike
else:
    SystemsLike = list[str]

BM25: Literal["bm25"] = "bm25"
Kind = Literal["encoder", "bm25", "run", "reranker"]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NamedSystem:
    """One system to evaluate.

    Attributes:
        kind: `encoder`, `bm25`, `run` or `reranker`.
        what: a name, a path or an object.
        name: what it is called; empty: it is called by what it is.
    """

    kind: Kind
    what: SystemLike
    name: str = ""


def named_systems(systems: SystemsLike | None, kind: Kind | None = None) -> list[NamedSystem]:
    """Return systems with their names.

    Args:
        systems: name → system, systems, or one; a text is [NAME=]MODEL or [NAME=]FILE.
        kind: of all of them; None: runs are `Run` objects and files, rerankers are cross-encoders that are loaded,
            `bm25` is BM25 (a folder of this name is `./bm25`), and the others are encoders.
    """
    if systems is None:
        return []
    if isinstance(systems, Mapping):
        pairs = list(systems.items())
    else:
        if isinstance(systems, str) or not isinstance(systems, Sequence):
            systems = [systems]
        pairs = [_parted(each) if isinstance(each, str) else ("", each) for each in systems]
    return [NamedSystem(kind or _kind(each), each, name) for name, each in pairs]


def runs_of(
    systems: Sequence[NamedSystem],
    collection: Collection,
    embedding: EmbeddingSettings,
    *,
    split: str,
    top: int,
    rerank_depth: int,
) -> list[Run]:
    """Return the run of each system, in their order: an encoder's exact search, BM25's, a run, a reranked run.

    Args:
        systems: rerankers score the documents of the first run or, where there is none, of the first encoder or BM25.
        collection: what encoders search.
        embedding: how encoders and cross-encoders are loaded, and where vectors are kept.
        split: whose queries encoders and BM25 search for.
        top: documents that they return for each query.
        rerank_depth: documents of each query that a reranker scores.

    Raises:
        InputError: there is no encoder and no run, or one that cannot be read.
    """
    if all(system.kind == "reranker" for system in systems):
        raise InputError(
            f"nothing to evaluate; give an encoder ({spelled('systems')} MODEL) or a run ({spelled('run')} FILE)"
        )
    store = embedding.open_store()
    runs: dict[int, Run] = {}
    for place, system in enumerate(systems):
        if system.kind == "encoder" and own_kind(system.what):
            own = embedding.open_own(system.what)
            runs[place] = own_run(own, collection, split, depth=top, name=system.name)
        elif system.kind == "encoder":
            encoder = embedding.open_encoder(system.what, collection)
            if (length := getattr(encoder, "max_length", None)) is not None:
                log.info("%s: texts cut after %s tokens", encoder.name, length)
            runs[place] = dense_run(encoder, collection, split, depth=top, store=store, name=system.name)
        elif system.kind == BM25:
            runs[place] = bm25_run(collection, split, depth=top, name=system.name or BM25)
        elif system.kind == "run":
            runs[place] = _read(system)
    first = next((runs[place] for place in runs if systems[place].kind == "run"), next(iter(runs.values())))
    for place, system in enumerate(systems):
        if system.kind == "reranker":
            scorer = partial(logits, embedding.open_cross_encoder(system.what))
            name = system.name or f"{first.name} + {_file_name(system.what) or 'reranker'}"
            runs[place] = rerank_run(first, collection, scorer, depth=rerank_depth, name=name)
    return [runs[place] for place in sorted(runs)]


def _read(system: NamedSystem) -> Run:
    if isinstance(system.what, Run):
        return Run(system.what.table, system.name or system.what.name)
    return Run(Run.read(system.what).table, system.name or _file_name(system.what).partition(".")[0])


def _kind(system: SystemLike) -> Kind:
    if isinstance(system, Run) or (isinstance(system, (str, Path)) and Path(system).is_file()):
        return "run"
    if system == BM25:
        return BM25
    return "reranker" if hasattr(system, "predict") and not hasattr(system, "encode") else "encoder"


def _parted(text: str) -> tuple[str, str]:
    """The name and the rest of [NAME=]REST; a file's own name may have an equals sign."""
    name, equals, path = text.partition("=")
    return (name, path) if equals and name and not Path(text).exists() else ("", text)


def _file_name(system: SystemLike) -> str:
    return Path(system).name if isinstance(system, (str, Path)) else ""
