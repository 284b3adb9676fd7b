"""Small judges that the answers of others are distilled into: cross-encoders that score each document."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import xlogy

from foils.encode.models import load_cross_encoder, seal_weights
from foils.rating.estimators import checked_preference
from foils.rating.judges import CrossEncoderJudge
from foils.rating.pairs import Candidates, Pairs, texts_of
from foils.rating.session import ask
from foils.runtime.errors import InputError, require
from foils.runtime.files import fill_folder


def save_judge(judge: CrossEncoderJudge, folder: str | Path) -> None:
    """Write a distilled judge's model (safetensors) and tokenizer to a folder: a cross-encoder like any other."""
    with fill_folder(folder) as aside:
        judge.model.save_pretrained(str(aside), create_model_card=False, safe_serialization=True)
        seal_weights(aside)


@dataclass(frozen=True)
class Distilled:
    """A trained judge, and how it does on queries that it was not trained on.

    Attributes:
        judge: ready to be asked, or saved.
        trained: judgements trained on.
        held_out: judgements of the queries held out.
        loss: mean of −w log p − (1 − w) log(1 − p) over them, p the distilled judge's answer, w its
            teacher's.
        agreement: share of them in which both prefer the same document, of those where the teacher
            prefers one.

    The last two are NaN where nothing was held out.
    """

    judge: CrossEncoderJudge
    trained: int
    held_out: int
    loss: float
    agreement: float

    def to_json(self) -> dict[str, Any]:
        """Return everything but the judge."""
        return {name: value for name, value in vars(self).items() if name != "judge"}


def distil(
    base: str | Path,
    candidates: Candidates,
    pairs: Pairs,
    preference: npt.ArrayLike,
    *,
    epochs: int = 1,
    learning_rate: float = 5e-5,
    max_length: int = 256,
    held_out: float = 0.1,
    seed: int = 0,
    device: str | None = None,
    name: str = "distilled",
) -> Distilled:
    """Train a cross-encoder on recorded judgements w = P(i ≻ j), by −w log σ(z) − (1 − w) log(1 − σ(z)).

    z = s(q, d_i) − s(q, d_j), s the model's logits (Burges et al. 2005, RankNet, with soft labels;
    Bradley–Terry, ANMI 2.0 eq. 22, with scores for ratings): the loss listnet of a list of both,
    whose shares are w and 1 − w. A base with one output keeps its head. Labels stay soft, so that
    it learns how sure its teachers are. A step has 32 pairs.

    Args:
        base: the model to begin with: a folder or hub name.
        candidates: queries and documents.
        pairs: that were judged.
        preference: (m,) w in [0, 1], as an ensemble's mean; NaN: missing, left out.
        epochs: passes, at least 1.
        learning_rate: the peak; linear decay after a tenth of the steps.
        max_length: tokens of query and document.
        held_out: share of the queries to measure on, in [0, 1).
        seed: of the model's new head, of what is held out, and of the order of examples.
        device: of torch; None: the first one available.
        name: of the judge.

    Raises:
        InputError: settings out of range, a model that cannot be loaded, or no judgement left to train on.
        FailureError: the loss is no finite number.
        MissingExtraError: datasets is not installed.

    Source: ANMI 2.0 section 7.2, stage 2: the pairwise model is distilled from an ensemble.
    """
    datasets = require("datasets", "train")
    from foils.training.fit import fit
    from foils.training.reranker import RERANKER_LOSSES
    from foils.training.settings import TrainSettings

    candidates.check(pairs)
    w = checked_preference(pairs, preference)
    if not 0 <= held_out < 1:
        raise InputError(f"held_out {held_out}; expected in [0, 1)")
    settings = TrainSettings(epochs=epochs, batch_size=32, learning_rate=learning_rate, max_length=None, seed=seed)
    aside = np.random.default_rng(seed).random(pairs.queries) < held_out
    known, apart = np.isfinite(w), aside[pairs.query]
    shown, held, answers = pairs.where(known & ~apart), pairs.where(known & apart), w[known & apart]
    if not len(shown):
        raise InputError(f"{int(known.sum())} judgements, none of a query to train on; give more, or hold out less")
    model = load_cross_encoder(base, max_length=max_length, device=device, new_head=True, seed=seed)

    def looked_up(rows: dict[str, Any]) -> dict[str, Any]:
        queries, first, second = texts_of(candidates, np.array(rows["first"]), np.array(rows["second"]))
        shares = np.stack([rows["w"], 1 - np.array(rows["w"])], 1)
        with np.errstate(divide="ignore"):
            labels = np.stack([np.log(shares), np.ones_like(shares), np.full_like(shares, np.nan)], 1)
        return {"query": queries, "documents": list(zip(first, second, strict=True)), "label": labels.tolist()}

    judged = datasets.Dataset(pa.table({"first": shown.first, "second": shown.second, "w": w[known & ~apart]}))
    loss = RERANKER_LOSSES["listnet"].make(model)
    with tempfile.TemporaryDirectory() as folder:
        fit(model, Path(folder), dataset=judged.with_transform(looked_up), loss=loss, settings=settings,
            save_strategy="no")  # fmt: skip
    judge = CrossEncoderJudge(model, name=name)
    if not len(held):
        return Distilled(judge, len(shown), 0, float("nan"), float("nan"))
    p, sided = np.clip(ask(judge, candidates, held).preference, 1e-12, 1 - 1e-12), answers != 0.5
    agreement = float(((p > 0.5) == (answers > 0.5))[sided].mean()) if sided.any() else float("nan")
    return Distilled(
        judge, len(shown), len(held), float(-(xlogy(answers, p) + xlogy(1 - answers, 1 - p)).mean()), agreement
    )
