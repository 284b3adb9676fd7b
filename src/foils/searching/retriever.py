"""BM25 and an encoder together: the retriever that `foils tune` found, in a small file beside the model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foils.data.fusion import NORMALISATIONS, fuse_runs
from foils.data.records import whole_json
from foils.data.run import Run
from foils.runtime.errors import FormatError
from foils.runtime.files import write_json

RETRIEVER = "retriever.json"
RANKS = "rrf"  # in the place of a normalisation: by reciprocal ranks
MODEL = "model"
DEPLOYED = ("both", MODEL, "bm25")


@dataclass(frozen=True)
class Retriever:
    """How BM25's scores and a model's are put together.

    Attributes:
        normalisation: of the scores, as `foils.data.fusion.weighted_sum` takes it; rrf: by reciprocal ranks.
        weight: of the model's, in [0, 1]; BM25's is 1 less it.
        deploys: what was best: both, the model alone, or bm25 alone.
    """

    normalisation: str
    weight: float
    deploys: str = "both"

    def fused(self, bm25: Run, model: Run) -> Run:
        """Return the run of both."""
        if self.normalisation == RANKS:
            return fuse_runs([bm25, model])
        weights = (1 - self.weight, self.weight)
        return fuse_runs([bm25, model], method="weighted", weights=weights, normalisation=self.normalisation)

    def write(self, path: str | Path) -> None:
        """Write the file."""
        write_json(path, vars(self))

    @classmethod
    def of(cls, folder: Any) -> Retriever | None:
        """Read the retriever of a folder that `foils tune` wrote; None: it is something else.

        Raises:
            FormatError: the file is damaged.
        """
        if not isinstance(folder, (str, Path)) or not (path := Path(folder) / RETRIEVER).is_file():
            return None
        try:
            read = whole_json(path)
            made = cls(str(read["normalisation"]), float(read["weight"]), str(read["deploys"]))
            known = made.normalisation in (*NORMALISATIONS, RANKS) and made.deploys in DEPLOYED
            if known and 0 <= made.weight <= 1:
                return made
            raise ValueError("another normalisation, weight or name")
        except (KeyError, TypeError, ValueError) as error:
            raise FormatError("no retriever as foils tune writes it; tune again", path) from error
