"""The demo: the main job on the documentation of installed packages, from mining to a tuned model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from foils.data import load_collection
from foils.deciding.doors import Scored, score
from foils.deciding.mine import mine
from foils.encode.models import DEFAULT_MODEL, STATIC
from foils.encode.opening import AT_128, EncodingSettings
from foils.runtime.doors import door
from foils.runtime.files import write_json
from foils.runtime.options import Option
from foils.runtime.results import Result, Table
from foils.runtime.surroundings import ScaleSettings
from foils.tuning.doors import PAGE, tune
from foils.tuning.results import Tuned
from foils.tuning.settings import NONE, PYDOCS

PACKAGES = "joblib", "networkx", "numpy", "scipy", "sentence_transformers", "sklearn"
"""Whose documentation is read: a part of pydocs that two cores embed in a minute."""

MINUTES = 0.5  # for choosing and training; mining, deciding and the proof come on top

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Demo(Result):
    """What the demo shows.

    Attributes:
        scores: of random, BM25 and dense negatives, and which of them to train on.
        tuned: a model before and after tuning; None where none was tuned.
    """

    scores: Scored
    tuned: Tuned | None

    def tables(self) -> list[Table]:
        """Return the tables of the scores, and before and after."""
        return [*self.scores.tables(), *([self.tuned.tables()[0]] if self.tuned else [])]

    def to_json(self) -> dict[str, Any]:
        """Return both."""
        return {"scores": self.scores.to_json(), "tuned": self.tuned.to_json() if self.tuned else None}


@door
def demo(
    output: Annotated[Path, Option(flag="--output", short="-o", metavar="FOLDER")] = Path("foils-demo"),
    *,
    top: Annotated[int, Option(least=1)] = 10,
    sample: Annotated[int | None, Option(least=1)] = None,
    tuned: Annotated[str, Option(flag="--tune", metavar="MODEL")] = f"{STATIC}{DEFAULT_MODEL}",
    seed: Annotated[int, Option(least=0)] = 0,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Demo:
    """Mine negatives from the documentation of six packages, decide which to train on, and tune a small model.

    It needs no network and no data: the texts are read from the installed packages, and the encoder comes with one.

    Args:
        output: Folder for the tables of negatives, scores.json, report.html and, in tuned/, what foils tune writes.
        top: Negatives per query.
        sample: Score a seeded sample of this many records. Default: all records.
        tuned: Model that is tuned at the end, or none. Default: a static embedding, the word table of all-MiniLM-L6-v2.
        seed: Seed of random negatives, of the scores and of training; the same seed gives the same bytes.
    """
    collection, folder = load_collection(f"{PYDOCS}:{','.join(PACKAGES)}"), Path(output)
    documents, queries = len(collection.documents), len(collection.queries)
    log.info("pydocs: %s documents, %s queries, from the documentation of installed packages",
             f"{documents:,}", f"{queries:,}")  # fmt: skip
    encoder, store = encoding.open(collection)
    options: dict[str, dict[str, Any]] = {
        "random": {"seed": seed},
        "bm25": {},
        "dense": {"encoder": encoder, "vectors": store},
    }
    sources = {method: mine(collection, method, top=top, **more) for method, more in options.items()}
    for method, negatives in sources.items():
        negatives.write(folder / f"{method}.parquet")
    scores: Scored = score(collection, sources, encoder=encoder, vectors=store, sample=sample, seed=seed)
    write_json(folder / "scores.json", scores.to_json())
    scores.report(folder / PAGE)
    log.info("report: %s", folder / PAGE)
    if tuned == NONE:
        return Demo(scores, None)
    found = tune(collection, model=tuned, output=folder / "tuned", minutes=MINUTES, keep=NONE, seed=seed, vectors=store)
    return Demo(scores, cast("Tuned", found))
