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
from foils.experiments.doors import PAGE, tune
from foils.experiments.tuned import Tuned
from foils.runtime.doors import door
from foils.runtime.files import write_json
from foils.runtime.options import Option
from foils.runtime.results import Result, Table

PACKAGES = "joblib", "networkx", "numpy", "scipy", "sentence_transformers", "sklearn"
"""Whose documentation is read: a part of pydocs that two cores embed in a minute."""

MINUTES = 0.5

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Demo(Result):
    """What the demo shows: two verdicts about one model.

    Attributes:
        scores: of random, BM25 and dense negatives, and which of them to train on.
        tuned: the model before and after tuning.
    """

    scores: Scored
    tuned: Tuned

    def tables(self) -> list[Table]:
        """Return the tables of the scores, and the proof."""
        return [*self.scores.tables(), self.tuned.tables()[0]]

    def to_json(self) -> dict[str, Any]:
        """Return both."""
        return {"scores": self.scores.to_json(), "tuned": self.tuned.to_json()}


@door
def demo(
    output: Annotated[Path, Option(flag="--output", short="-o", metavar="FOLDER")] = Path("foils-demo"),
    *,
    model: Annotated[str, Option(metavar="MODEL")] = f"{STATIC}{DEFAULT_MODEL}",
    seed: Annotated[int, Option(least=0)] = 0,
) -> Demo:
    """Mine negatives from the documentation of six packages, decide which to train a model on, and tune it.

    It needs no network and no data: the texts are read from the installed packages, and the encoder comes with one.

    Args:
        output: Folder for the tables of negatives, scores.json, report.html and, in tuned/, what foils tune writes.
        model: Model that the decision is made for and that is tuned. Default: a static embedding, the word table of
            all-MiniLM-L6-v2, which trains in seconds.
        seed: Seed of random negatives, of the scores and of training; the same seed gives the same bytes.
    """
    read, folder = f"pydocs:{','.join(PACKAGES)}", Path(output)
    collection = load_collection(read)
    options: dict[str, dict[str, Any]] = {"random": {"seed": seed}, "bm25": {}, "dense": {"encoder": model}}
    sources = {method: mine(collection, method, **more) for method, more in options.items()}
    for method, negatives in sources.items():
        negatives.write(folder / f"{method}.parquet")
    scores: Scored = score(collection, sources, encoder=model, seed=seed)
    write_json(folder / "scores.json", scores.to_json())
    scores.report(folder / PAGE)
    log.info("report: %s", folder / PAGE)
    tuned = tune(read, model=model, output=folder / "tuned", minutes=MINUTES, seed=seed)
    return Demo(scores, cast("Tuned", tuned))
