"""What a model must not forget: another collection, measured before and after, and the merge that keeps more of it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from foils.data import Collection
from foils.data.read import load_collection
from foils.data.splitting import SHARES, with_three_splits
from foils.encode import VectorStore
from foils.evaluation import evaluate_runs
from foils.evaluation.systems import Evaluation
from foils.runtime.files import fill_folder
from foils.tuning.budget import ALPHAS, KEEP_DOCUMENTS, KEEP_PAIRS
from foils.tuning.kept import Kept
from foils.tuning.kinds import Kind
from foils.tuning.plan import Section
from foils.tuning.settings import BASE, NONE, TUNED
from foils.tuning.trials import Trainings, Trial


@dataclass(frozen=True)
class Final:
    """The model that is tested.

    Attributes:
        key: what it depends on. `folder`: gives its folder, made where it is gone.
    """

    key: Section
    folder: Callable[[], Path]


@dataclass(frozen=True)
class Keeping:
    """The other collection.

    Attributes:
        kind: how it is measured.
        part: of it, which is searched, with queries of dev and test. `dev`: of its dev, by which the merge is chosen.
        kept: where steps are kept.
    """

    kind: Kind
    part: Collection
    dev: Collection
    kept: Kept

    @classmethod
    def of(cls, kind: Kind, trials: Section, kept: Kept) -> Keeping:
        """Open the collection, and take a part of it, of as many documents as section [trials] says."""
        kind, seed = kind.elsewhere(), int(kind.given["seed"])
        documents = int(trials.get("keep_documents") or (KEEP_PAIRS if kind.depth else KEEP_DOCUMENTS))
        part = kind.kept_part(with_three_splits(load_collection(str(kind.given["keep"])), SHARES), documents, seed)
        return cls(kind, part, kind.dev_part(part, documents // 2, seed), kept)

    def chosen(self, trainings: Trainings, trial: Trial) -> Section:
        """Try merges of the base with the tuned model; return the one to take.

        A merge is taken where it is no worse than the tuned model on dev, and better on dev of the other collection; of
        several, the one with the largest sum of both. What is worse on dev is not measured on the other one.
        """
        rows = [self._measured(trainings, trial, alpha) for alpha in (0.0, *ALPHAS, 1.0)]
        best = best_merge(rows)
        name, ends = self.part.name, f"{rows[0]['keep']:.4f} before and {rows[-1]['keep']:.4f} after training"
        merges = ", ".join(
            f"{each['alpha']:g}: {each['dev']:.4f}" + (f" and {each['keep']:.4f}" if "keep" in each else "")
            for each in rows[1:-1]
        )
        what = "no merge with the base is at least as good on dev and keeps more"
        if best < 1:
            what = "this merge with the base is at least as good on dev, and keeps more"
        reason = f"{what}; dev of {name}: {ends}; merges by their share of tuned weights, on dev and on that: {merges}"
        return {"collection": name, "alpha": best, "reason": reason}

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

    def evaluated(self, final: Final, own: VectorStore) -> Evaluation:
        """Measure the base and the tuned model on test of the other collection.

        Args:
            final: the tuned model.
            own: store of its vectors.
        """
        of = {"collection": self.part.digest, **self.kind.of()}
        before = self.kept.run(f"keep-{BASE}", of, lambda: self.kind.base_run(self.part))
        after = self.kept.run(
            f"keep-{TUNED}", {**of, **final.key}, lambda: self.kind.run(final.folder(), self.part, own)
        )
        runs, measures = [replace(before, name=BASE), replace(after, name=TUNED)], self.kind.measures
        return evaluate_runs(self.part, runs, rng=np.random.default_rng(0), measures=measures, against=[BASE])

    def _measured(self, trainings: Trainings, trial: Trial, alpha: float) -> dict[str, Any]:
        def measured() -> dict[str, Any]:
            model = self._merged(trainings, trial, alpha)
            if alpha in (0, 1):
                dev = trial.dev if alpha else trainings.base()
            elif (dev := trainings.kind.dev(model, trainings.dev)) < trial.dev:
                return {"alpha": alpha, "dev": dev}
            return {"alpha": alpha, "dev": dev, "keep": self.kind.dev(model, self.dev)}

        return self.kept.facts("merge", self._key(trainings, trial, alpha), measured)

    def _merged(self, trainings: Trainings, trial: Trial, alpha: float) -> Any:
        from foils.training.merging import merged

        return merged(self.kind.load(), self.kind.load(trainings.folder(trial)), alpha)

    def _key(self, trainings: Trainings, trial: Trial, alpha: float) -> dict[str, Any]:
        return {"training": trainings.key(trial), "keep": self.dev.digest, "alpha": alpha}


def left_out(given: Section, trials: Section, *, knows: bool = True) -> Section | None:
    """Return section [keep] where nothing is kept, with the reason; None where a collection is.

    Args:
        given: section [given]; its `keep` is the collection's name, `none` or missing.
        trials: section [trials]; its `keep_documents` are 0 where too few fit into the time.
        knows: whether there is something that the model could forget.
    """
    keep = str(given.get("keep", NONE))
    if keep == NONE:
        reason = "none is asked for"
    elif keep == given["collection"]:
        reason = "it would be the one that is tuned on"
    elif not knows:
        reason = "a head that nobody trained has nothing to forget"
    elif not trials.get("keep_documents", True):
        reason = f"there is too little time to measure {keep} before and after"
    else:
        return None
    return {"collection": NONE, "alpha": 1.0, "reason": reason}


def best_merge(rows: Sequence[Mapping[str, Any]]) -> float:
    """Return the α to take.

    Args:
        rows: `alpha`, `dev`, `keep` of each, which one that is worse on dev may lack; the last is the tuned model,
            α = 1.
    """
    tuned = rows[-1]
    better = [each for each in rows[1:-1] if each["dev"] >= tuned["dev"] and each["keep"] > tuned["keep"]]
    return float(max(better, key=lambda each: each["dev"] + each["keep"])["alpha"]) if better else 1.0
