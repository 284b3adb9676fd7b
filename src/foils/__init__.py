"""Hard negatives for retrievers and rerankers: mine, score, rate, select, batch, train, measure.

The public names are loaded when they are first used, so that importing foils loads nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foils.batching.doors import batch
    from foils.data import Collection, Negatives, Run, load_collection
    from foils.data.doors import describe, load
    from foils.encode import EncoderSettings, VectorStore, load_encoder
    from foils.evaluation.doors import evaluate
    from foils.mining import BM25Retriever, DenseRetriever, RandomRetriever
    from foils.mining.doors import filter, fuse, generate, mine
    from foils.rating.doors import rate
    from foils.runtime.errors import FoilsError
    from foils.scoring import Scores, ScoreSettings, score_sources
    from foils.scoring.doors import score
    from foils.searching.doors import search
    from foils.selection.doors import select
    from foils.studies.doors import demo, report, study
    from foils.training.doors import train
    from foils.upkeep import cache

__all__ = [
    "BM25Retriever",
    "Collection",
    "DenseRetriever",
    "EncoderSettings",
    "FoilsError",
    "Negatives",
    "RandomRetriever",
    "Run",
    "ScoreSettings",
    "Scores",
    "VectorStore",
    "batch",
    "cache",
    "demo",
    "describe",
    "evaluate",
    "filter",
    "fuse",
    "generate",
    "load",
    "load_collection",
    "load_encoder",
    "mine",
    "rate",
    "report",
    "score",
    "score_sources",
    "search",
    "select",
    "study",
    "train",
]

_HOMES = {
    "data": ("Collection", "Negatives", "Run", "load_collection"),
    "data.doors": ("describe", "load"),
    "encode": ("EncoderSettings", "VectorStore", "load_encoder"),
    "rating.doors": ("rate",),
    "runtime.errors": ("FoilsError",),
    "batching.doors": ("batch",),
    "mining": ("BM25Retriever", "DenseRetriever", "RandomRetriever"),
    "mining.doors": ("filter", "fuse", "generate", "mine"),
    "scoring": ("ScoreSettings", "Scores", "score_sources"),
    "studies.doors": ("demo", "report", "study"),
    "scoring.doors": ("score",),
    "training.doors": ("train",),
    "selection.doors": ("select",),
    "evaluation.doors": ("evaluate",),
    "searching.doors": ("search",),
    "upkeep": ("cache",),
}
_HOME = {name: f"foils.{home}" for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'foils' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
