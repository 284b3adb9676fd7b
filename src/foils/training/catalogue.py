"""The bi-encoder's losses by name. Needs torch and sentence-transformers."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from foils.encode import EmbeddingSettings
from foils.runtime.errors import InputError, check_names
from foils.runtime.options import spelled
from foils.selection.curriculum import least_gap
from foils.training.cached import CachedContrastiveLoss
from foils.training.data import TrainingSet
from foils.training.embed_distil import vector_distillation
from foils.training.losses import ContrastiveLoss, Objective
from foils.training.masks import FalseNegativeMask
from foils.training.mixing import make_mixing
from foils.training.objectives import (
    check_debiasing,
    debiased_infonce,
    list_distillation,
    margin_mse,
    weighted_infonce,
)
from foils.training.settings import EMBED_DISTIL, ST
from foils.training.st_losses import st_loss
from foils.training.temperatures import make_temperature

log = logging.getLogger(__name__)

_WEIGHTED = {"temperature": 0.05, "learn_temperature": False, "curriculum": False}
_DEBIASED = {**_WEIGHTED, "prior": 0.1, "concentration": 0.0}

LOSSES: dict[str, dict[str, Any]] = {
    "mnrl": {"temperature": 0.05},
    "weighted": _WEIGHTED,
    "debiased": _DEBIASED,
    "hard-weighted": {**_DEBIASED, "concentration": 1.0},
    "hybrid": {**_DEBIASED, "prior": 0.0, "mixing": "fixed", "alpha": 0.5},
}
"""Loss → its settings and their defaults; all of them leave known positives out.

- mnrl: the multiple-negatives ranking loss (ECI_sem eq. 13). Where no known positive of a query is among the other
  documents of the batch and all weights are 1, value and gradients are those of sentence-transformers'
  (Cached)MultipleNegativesRankingLoss, which knows neither.
- weighted: weighted InfoNCE (ANMI 2.0 eq. 38). With a curriculum, here and in those below, harder negatives are let in
  by epoch, by their rating gaps (Table 3).
- debiased: the debiased loss (Chuang et al. 2020), with concentration > 0 hard-negative-weighted.
- hard-weighted: the hard-negative-weighted debiased loss (Robinson et al. 2021).
- hybrid: α·(debiased, weighted) InfoNCE + (1 − α)·regression on ratings (ANMI 2.0 eq. 37)."""


_OF_TEACHERS = {"temperature": 0.05, "teacher_temperature": 1.0, "scores": "teacher", "alpha": 0.0}
_REGRESSIONS = {"margin-mse": margin_mse, "distil": list_distillation}

TEACHER_LOSSES: dict[str, dict[str, Any]] = dict.fromkeys(_REGRESSIONS, _OF_TEACHERS)
"""Losses that learn from a teacher's scores of a row's own documents, their settings and defaults.

α·weighted InfoNCE + (1 − α)·the teacher's loss. `scores` is the table's column, `temperature` divides similarities in
both, `teacher_temperature` the scores. Rows without scores of positive and negatives have the contrast alone.

- margin-mse: margins between positive and negatives (Hofstätter et al. 2020).
- distil: the Kullback–Leibler divergence of the two softmaxes over the list (Hinton et al. 2015)."""

VECTOR_LOSSES: dict[str, dict[str, Any]] = {EMBED_DISTIL: {"teacher": "", "distance": "cosine"}}
"""Losses that learn a teacher's vectors of the texts, their settings and defaults.

- embed-distil: the distance between the model's vector of each text and the teacher's (Kim et al. 2023)."""


def make_loss(
    name: str,
    model: Any,
    data: TrainingSet,
    *,
    mini_batch_size: int | None = None,
    mask: FalseNegativeMask | None = None,
    embedding: EmbeddingSettings | None = None,
    settings: Mapping[str, Any],
) -> Any:
    """Return a loss by name, cached where `mini_batch_size` is given, with a mask where there is one.

    It is a `ContrastiveLoss`, a `VectorDistillation`, or with `st:NAME` one of sentence-transformers
    (`foils.training.st_losses.st_loss`). `embedding` says how a teacher of vectors is used, and where these are kept;
    None: its own maximum length, and the cache.

    Raises:
        UnknownNameError: no such loss, or no such setting of it.
        InputError: a setting out of range or of another type, or one that needs ratings where there are none.
    """
    if name.startswith(ST):
        return st_loss(name, model, data, mini_batch_size=mini_batch_size, settings=settings)
    known = {**LOSSES, **TEACHER_LOSSES, **VECTOR_LOSSES}
    check_names("loss", [name], known)
    check_names(f"setting of the loss {name}", settings, known[name])
    wrong = [f"{key}={value!r}" for key, value in settings.items() if not _fits(value, known[name][key])]
    if wrong:
        raise InputError(f"settings of the loss {name} of another type than its defaults: {', '.join(wrong)}")
    chosen = {**known[name], **settings}
    if name in VECTOR_LOSSES:
        return vector_distillation(name, model, data, embedding=embedding or EmbeddingSettings(), **chosen)
    temperature = make_temperature(chosen["temperature"], learned=chosen.get("learn_temperature", False))
    parts: dict[str, Any] = {
        "objective": _objective(name, chosen.get("prior", 0.0), chosen.get("concentration", 0.0)),
        "temperature": temperature,
        "facts": data.facts,
        "least_gap": least_gap if chosen.get("curriculum") else None,
        "mixing": make_mixing(chosen["mixing"], chosen["alpha"]) if "mixing" in chosen else None,
        "mask": mask,
    }
    if name in TEACHER_LOSSES:
        parts |= _of_teacher(name, data, mask, **chosen)
    if mini_batch_size is None:
        return ContrastiveLoss(model, **parts)
    return CachedContrastiveLoss(model, mini_batch_size=mini_batch_size, **parts)


def _fits(value: Any, default: Any) -> bool:
    """Whether a value is of a default's type: a number where that is one."""
    if isinstance(default, float):
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, type(default))


def _of_teacher(
    name: str,
    data: TrainingSet,
    mask: FalseNegativeMask | None,
    *,
    temperature: float,
    teacher_temperature: float,
    scores: str,
    alpha: float,
) -> dict[str, Any]:
    """Return what makes a contrastive loss one of a teacher: its scores in the place of ratings."""
    if not teacher_temperature > 0:
        raise InputError(f"teacher_temperature {teacher_temperature}; expected above 0")
    if alpha == 0 and (data.weighed()[0].any() or mask is not None):
        idle = spelled("mask") if mask is not None else "weights other than 1"
        raise InputError(
            f"{idle}: no effect on {name} with alpha=0, which has no contrast; set alpha, or leave them out"
        )
    teacher = data.scores_of(scores)
    unknown = int(np.isnan(teacher[:, 0]).sum())
    if unknown:
        log.warning("%d of %d rows have no scores in %s to learn from", unknown, len(data), scores)
    temperatures = {"temperature": temperature, "teacher_temperature": teacher_temperature}
    return {
        "facts": replace(data.facts, ratings=teacher),
        "mixing": make_mixing("fixed", alpha),
        "regression": partial(_REGRESSIONS[name], **temperatures),
    }


def _objective(name: str, prior: float, concentration: float) -> Objective:
    check_debiasing(prior, concentration)
    if name not in ("debiased", "hard-weighted") and not (prior or concentration):
        return weighted_infonce
    return partial(debiased_infonce, prior=prior, concentration=concentration)
