"""What a model must not forget: another collection, measured before and after, and the merge that keeps more of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foils.data import Collection, Run
from foils.data.load import load_collection
from foils.data.parts import with_three_splits
from foils.data.splitting import SHARES
from foils.data.store import fill_folder
from foils.encode import EncoderSettings, SentenceEncoder, VectorStore
from foils.evaluation import dense_run, evaluate_runs
from foils.evaluation.measuring import encoder_score
from foils.evaluation.systems import Evaluation
from foils.tuning.kept import Kept
from foils.tuning.parts import dev_part, fitting
from foils.tuning.plan import Section
from foils.tuning.results import BASE, TUNED
from foils.tuning.settings import MEASURE, MEASURES
from foils.tuning.trials import Trainings, Trial

ALPHAS = (0.25, 0.5, 0.75)
"""Shares of the tuned weights that are tried beside 1."""
DOCUMENTS = 2_000  # of the other collection that are searched, about
DEPTH = 100


@dataclass(frozen=True)
class Final:
    """The model that is tested.

    Attributes:
        key: what it depends on. `folder`: gives its folder, made where it is gone. `settings`: how it encodes.
    """

    key: Section
    folder: Callable[[], Path]
    settings: EncoderSettings

    def encoder(self) -> SentenceEncoder:
        """Load it."""
        from foils.encode.models import load_model

        return SentenceEncoder(load_model(self.folder(), device=self.settings.device), self.settings, name=TUNED)


@dataclass(frozen=True)
class Keeping:
    """The other collection.

    Attributes:
        part: of it, which is searched; with three splits. `dev`: of its dev, by which the merge is chosen.
        kept: where steps are kept.
    """

    part: Collection
    dev: Collection
    kept: Kept

    @classmethod
    def of(cls, given: str, kept: Kept, seed: int) -> Keeping:
        """Open a collection, and take a part of it that is measured in little time."""
        whole = with_three_splits(load_collection(given), SHARES)
        part = fitting(whole, documents=DOCUMENTS, queries=len(whole.positives("train")), seed=seed)
        return cls(part, dev_part(part, DOCUMENTS // 2, seed), kept)

    def chosen(self, trainings: Trainings, trial: Trial) -> Section:
        """Try merges of the base with the tuned model; return the one to take.

        A merge is taken where it is no worse than the tuned model on dev, and better on dev of the other collection; of
        several, the one with the largest sum of both.
        """
        rows = [self._measured(trainings, trial, alpha) for alpha in (0.0, *ALPHAS, 1.0)]
        best = best_merge(rows)
        shown = ", ".join(f"{each['alpha']:g}: {each['dev']:.4f} and {each['keep']:.4f}" for each in rows)
        reason = "no merge with the base is at least as good on dev and keeps more"
        if best < 1:
            reason = "this merge with the base is at least as good on dev, and keeps more"
        return {
            "collection": self.part.name,
            "alpha": best,
            "reason": f"{reason} (on dev, and on dev of {self.part.name}, by the share of tuned weights: {shown})",
        }

    def folder(self, trainings: Trainings, trial: Trial, alpha: float) -> Path:
        """Return the folder of a merged model; that of the trained one where α is 1."""
        if alpha == 1:
            return trainings.folder(trial)
        path = self.kept.passing("merged", self._key(trainings, trial, alpha))
        with fill_folder(path) as aside:
            shutil.copytree(trainings.folder(trial), aside, dirs_exist_ok=True)
            card = (aside / "README.md").read_bytes()
            self._merged(trainings, trial, alpha).save_pretrained(str(aside))
            (aside / "README.md").write_bytes(card)
        return path

    def evaluated(self, base: SentenceEncoder, final: Final, store: VectorStore, own: VectorStore) -> Evaluation:
        """Measure the base and the tuned model on test of the other collection.

        Args:
            base: the model as it is.
            final: the tuned one.
            store: of the base's vectors.
            own: of the tuned model's.
        """
        of = {"collection": self.part.digest, "base": base.fingerprint}
        before = self.kept.run(f"keep-{BASE}", of, lambda: self._searched(base, store))
        after = self.kept.run(f"keep-{TUNED}", {**of, **final.key}, lambda: self._searched(final.encoder(), own))
        runs = [replace(before, name=BASE), replace(after, name=TUNED)]
        return evaluate_runs(self.part, runs, rng=np.random.default_rng(0), measures=MEASURES, against=[BASE])

    def _searched(self, encoder: SentenceEncoder, store: VectorStore) -> Run:
        return dense_run(encoder, self.part, "test", depth=DEPTH, store=store)

    def _measured(self, trainings: Trainings, trial: Trial, alpha: float) -> dict[str, Any]:
        def measured() -> dict[str, Any]:
            model = self._merged(trainings, trial, alpha)
            parts = {"dev": trainings.dev, "keep": self.dev}
            return {"alpha": alpha, **{name: encoder_score(of, "dev", MEASURE)(model) for name, of in parts.items()}}

        return self.kept.facts("merge", self._key(trainings, trial, alpha), measured)

    def _merged(self, trainings: Trainings, trial: Trial, alpha: float) -> Any:
        from foils.encode.models import load_model
        from foils.training.merging import merged

        tuned = load_model(trainings.folder(trial), device=trainings.device)
        return merged(trainings.loaded(), tuned, alpha)

    def _key(self, trainings: Trainings, trial: Trial, alpha: float) -> dict[str, Any]:
        return {"training": trainings.key(trial), "keep": self.dev.digest, "alpha": alpha}


def best_merge(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the α to take.

    Args:
        rows: `alpha`, `dev`, `keep` of each; the last is the tuned model, α = 1.
    """
    tuned = rows[-1]
    better = [each for each in rows[1:-1] if each["dev"] >= tuned["dev"] and each["keep"] > tuned["keep"]]
    return float(max(better, key=lambda each: each["dev"] + each["keep"])["alpha"]) if better else 1.0
