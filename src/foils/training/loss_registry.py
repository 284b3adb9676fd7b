"""The losses of encoders by name: ours, a teacher's, and `st:NAME` of sentence-transformers, each as it can be trained.

Losses of sentence-transformers know neither the table's weights and ratings, nor known positives, nor masks: what they
would ignore is refused. Needs torch and sentence-transformers.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.losses.gradcache import uses_gradient_cache
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.sentence_transformer import losses as of_encoders
from sentence_transformers.util import cos_sim, dot_score
from torch import Tensor, nn

from foils.batching.vectors import processes_to_come
from foils.encode import EmbeddingSettings
from foils.encode.models import similarity_of
from foils.runtime.errors import InputError, check_names
from foils.runtime.options import spelled
from foils.selection.curriculum import least_gap
from foils.training.data import TrainingSet
from foils.training.losses import CachedContrastiveLoss, ContrastiveLoss
from foils.training.masks import FalseNegativeMask, guide_vectors
from foils.training.objectives import (
    Temperature,
    check_debiasing,
    debiased_infonce,
    list_distillation,
    make_mixing,
    margin_mse,
    weighted_infonce,
)
from foils.training.settings import EMBED_DISTIL, ST

log = logging.getLogger(__name__)

_WEIGHTED = {"temperature": 0.05, "learn_temperature": False, "curriculum": False}
_DEBIASED = {**_WEIGHTED, "prior": 0.1, "concentration": 0.0}
_OF_TEACHERS = {"temperature": 0.05, "teacher_temperature": 1.0, "alpha": 0.0}
TEACHER_LOSSES = {"margin-mse": margin_mse, "distil": list_distillation}

LOSSES: dict[str, dict[str, Any]] = {
    "mnrl": {"temperature": 0.05},
    "weighted": _WEIGHTED,
    "debiased": _DEBIASED,
    "hard-weighted": {**_DEBIASED, "concentration": 1.0},
    "hybrid": {**_DEBIASED, "prior": 0.0, "mixing": "fixed", "alpha": 0.5},
    **dict.fromkeys(TEACHER_LOSSES, _OF_TEACHERS),
    EMBED_DISTIL: {"teacher": "", "distance": "cosine"},
}
"""Loss → its settings and their defaults; all but the last leave known positives out.

- mnrl: the multiple-negatives ranking loss (ECI_sem eq. 13). Where no known positive of a query is among the other
  documents of the batch and all weights are 1, value and gradients are those of sentence-transformers'
  (Cached)MultipleNegativesRankingLoss, which knows neither.
- weighted: weighted InfoNCE (ANMI 2.0 eq. 38). With a curriculum, here and in those below, harder negatives are let in
  by epoch, by their rating gaps (Table 3).
- debiased: the debiased loss (Chuang et al. 2020), with concentration > 0 hard-negative-weighted.
- hard-weighted: the hard-negative-weighted debiased loss (Robinson et al. 2021).
- hybrid: α·(debiased, weighted) InfoNCE + (1 − α)·regression on ratings (ANMI 2.0 eq. 37).
- margin-mse: α·weighted InfoNCE + (1 − α)·the error of margins to a teacher's (Hofstätter et al. 2020), the table's
  column teacher; `temperature` divides similarities in both, `teacher_temperature` the scores. Rows without scores of
  positive and negatives have the contrast alone.
- distil: likewise, with the Kullback–Leibler divergence of the two softmaxes over the list (Hinton et al. 2015).
- embed-distil: the distance between the model's vector of each text and the teacher's (Kim et al. 2023)."""

ST_LOSSES = ("MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss", "TripletLoss")
"""Losses of sentence-transformers for encoders that learn from pairs, triplets or lists without labels."""
MINI_BATCH, GATHER, DISTANCE = "mini_batch_size", "gather_across_devices", "distance_metric"


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

    It is a `ContrastiveLoss`, a `VectorDistillation`, or with `st:NAME` one of sentence-transformers. `embedding` says
    how a teacher of vectors is used, and where these are kept; None: its own maximum length, and the cache.

    Raises:
        UnknownNameError: no such loss, or no such setting of it.
        InputError: a setting out of range or of another type, one that needs ratings where there are none, or of
            sentence-transformers' losses rows of another form than they take, and what they would ignore: weights,
            short lists, a mini-batch size.
    """
    if mask is not None and (name.startswith(ST) or name == EMBED_DISTIL):
        raise InputError(f"{spelled('mask')}: no effect with {name}, which has no masks; take another loss of foils")
    if name.startswith(ST):
        return _of_st(name, model, data, mini_batch_size, settings)
    check_names("loss", [name], LOSSES)
    chosen = settings_checked(name, LOSSES[name], settings)
    if name == EMBED_DISTIL:
        if not chosen["teacher"]:
            raise InputError(f"{spelled('loss', name)} learns the vectors of a teacher: set teacher=MODEL")
        refuse_unheeded(name, data, positives=False, short=False)
        return VectorDistillation(model, data, **chosen, embedding=embedding or EmbeddingSettings())
    prior, concentration = chosen.get("prior", 0.0), chosen.get("concentration", 0.0)
    check_debiasing(prior, concentration)
    debiased = partial(debiased_infonce, prior=prior, concentration=concentration)
    parts: dict[str, Any] = {
        "objective": debiased if name in ("debiased", "hard-weighted") or prior or concentration else weighted_infonce,
        "temperature": Temperature(chosen["temperature"], learned=chosen.get("learn_temperature", False)),
        "facts": data.facts,
        "least_gap": least_gap if chosen.get("curriculum") else None,
        "mixing": make_mixing(chosen["mixing"], chosen["alpha"]) if "mixing" in chosen else None,
        "mask": mask,
    }
    if name in TEACHER_LOSSES:
        alpha, softened = chosen["alpha"], chosen["teacher_temperature"]
        if not softened > 0:
            raise InputError(f"teacher_temperature {softened}; expected above 0")
        if alpha == 0 and (data.weighed()[0].any() or mask is not None):
            idle = spelled("mask") if mask is not None else "weights other than 1"
            raise InputError(
                f"{idle}: no effect on {name} with alpha=0, which has no contrast; set alpha, or leave them out"
            )
        scores = data.teacher_scores()
        if unknown := int(np.isnan(scores[:, 0]).sum()):
            log.warning("%d of %d rows have no teacher's scores to learn from", unknown, len(data))
        parts |= {"facts": replace(data.facts, ratings=scores), "mixing": make_mixing("fixed", alpha)}
        how = {"temperature": chosen["temperature"], "teacher_temperature": softened}
        parts["regression"] = partial(TEACHER_LOSSES[name], **how)
    if mini_batch_size is None:
        return ContrastiveLoss(model, **parts)
    return CachedContrastiveLoss(model, mini_batch_size=mini_batch_size, **parts)


def settings_checked(name: str, known: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a loss, its defaults where none are given.

    Raises:
        UnknownNameError: no such setting of it.
        InputError: one of another type than its default.
    """
    check_names(f"setting of the loss {name}", settings, known)
    kinds = {key: (int, float) if isinstance(default, float) else type(default) for key, default in known.items()}
    wrong = [
        f"{key}={value!r}"
        for key, value in settings.items()
        if not isinstance(value, kinds[key]) or isinstance(value, bool) != isinstance(known[key], bool)
    ]
    if wrong:
        raise InputError(f"settings of the loss {name} of another type than its defaults: {', '.join(wrong)}")
    return {**known, **settings}


def _of_st(name: str, model: Any, data: TrainingSet, mini_batch_size: int | None, settings: Mapping[str, Any]) -> Any:
    """Return a loss of sentence-transformers, which compares vectors as the model does and heeds all that it is given.

    Of `settings`, `distance_metric` is cosine, euclidean or manhattan.
    """
    kind, chosen = st_kind(name, of_encoders, ST_LOSSES, settings), dict(settings)
    refuse_unheeded(name, data)
    known = inspect.signature(kind).parameters
    if DISTANCE in known:
        if data.rows.shape[1] != 3:
            raise InputError(f"{name} takes triplets; give {spelled('form')} triplets")
        if DISTANCE in chosen:
            check_names(DISTANCE, [chosen[DISTANCE]], ("cosine", "euclidean", "manhattan"))
            chosen[DISTANCE] = getattr(of_encoders.TripletDistanceMetric, chosen[DISTANCE].upper())
    else:
        if data.mixture is not None:
            raise InputError(
                f"{name} takes documents of other data sets as negatives, which the losses of foils leave out; take "
                "one of these, or one data set"
            )
        log.warning(
            "%s takes documents of other rows as negatives, and does not know which of them are known positives of a "
            "query or rejected in the table; the losses of foils leave these out", name,
        )  # fmt: skip
        chosen["similarity_fct"] = {"cosine": cos_sim, "dot": dot_score}[similarity_of(model)]
        chosen[GATHER] = processes_to_come() > 1
    if mini_batch_size is not None:
        if MINI_BATCH not in known:
            raise InputError(f"{spelled('mini_batch_size')} {mini_batch_size}: no effect with {name}, which embeds a "
                             "batch at once; leave it out, or take a loss whose name begins with Cached")  # fmt: skip
        chosen.setdefault(MINI_BATCH, mini_batch_size)
    return made(name, kind, model, chosen)


def st_kind(name: str, losses: Any, known: Collection[str], settings: Mapping[str, Any]) -> Any:
    """Return the class of `st:NAME`, having checked the names of its settings.

    Raises:
        UnknownNameError: no such loss, or no such setting of it.
    """
    check_names(f"loss of sentence-transformers ({ST}NAME)", [name.removeprefix(ST)], list(known))
    kind = getattr(losses, name.removeprefix(ST))
    decided = ("model", GATHER, "similarity_fct")
    own = [each for each in inspect.signature(kind).parameters if each not in decided]
    check_names(f"setting of the loss {name}", settings, own)
    return kind


def made(name: str, kind: Any, model: Any, settings: Mapping[str, Any]) -> Any:
    """Make a loss of sentence-transformers.

    Raises:
        InputError: it refuses what it is given.
    """
    try:
        return kind(model, **settings)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {error}") from error


def refuse_unheeded(name: str, data: TrainingSet, *, positives: bool = True, short: bool = True) -> None:
    """Refuse what a loss cannot heed: weights, known positives among the negatives, and lists that are short.

    Args:
        name: of the loss.
        data: what is trained on.
        positives: whether positives among the negatives are refused.
        short: whether short lists are.

    Raises:
        InputError: there are some.
    """
    weighed, known = (int(each.sum()) for each in data.weighed())
    if weighed:
        raise InputError(
            f"{weighed} negatives have a weight other than 1, which {name} cannot heed; take another loss, or "
            "negatives that are not weighted"
        )
    if positives and known:
        raise InputError(
            f"{known} negatives are labelled positives of a query with the same text, which {name} cannot leave "
            "out; take another loss, or give queries of one text one id"
        )
    if short and (count := int((data.rows < 0).any(1).sum())):
        raise InputError(
            f"{count} lists are short, and {name} would take the empty text for a negative; give "
            f"{spelled('form')} triplets, or a smaller {spelled('per_query')}"
        )


DISTANCES = ("cosine", "l2", "mse")


class VectorDistillation(nn.Module):  # type: ignore[misc]
    """Mean over the columns of a row of the distance between the model's vector of a text and the teacher's.

    The teacher's vectors were made before, by `guide_vectors`, so that no second model runs. Where the widths differ, a
    linear map of the model's vectors is learned along; it is no part of the trained model. Documents that a short list
    lacks are left out.

    Args:
        model: the SentenceTransformer that trains.
        data: whose row numbers come as labels.
        teacher: an encoder, or the name of one.
        distance: cosine (1 − cos), l2 (the Euclidean length of the difference), mse (the mean of its squares).
        embedding: how the teacher is used, and where its vectors are kept.

    Raises:
        UnknownNameError: no such distance.
        InputError: a teacher that cannot be loaded.

    Source: Kim et al. 2023 (2301.12005), eq. 7 and 8, with l2.
    """

    def __init__(
        self, model: Any, data: TrainingSet, teacher: Any, *, distance: str, embedding: EmbeddingSettings
    ) -> None:
        super().__init__()
        check_names("distance", [distance], DISTANCES)
        self.there, self.vectors = data.rows >= 0, guide_vectors(teacher, data, settings=embedding)
        width = self.vectors.queries.dimension
        projected = None if width == model.get_embedding_dimension() else width
        self.loss = of_encoders.EmbedDistillLoss(model, distance_metric=distance, projection_dim=projected)
        self.model = model

    def learn_from(self, data: TrainingSet) -> None:
        """Take another training set, whose row numbers come as labels from now on."""
        self.there, self.vectors = data.rows >= 0, self.vectors.on(data)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor) -> Tensor:
        """Return the loss of a batch.

        Args:
            sentence_features: of anchors, positives, and any number of columns of negatives.
            labels: (b,) row numbers.
        """
        columns, rows = embed_columns(self.model, list(sentence_features)), labels.cpu().numpy().astype(np.int64)
        queries, documents = self.vectors.of_rows(rows)
        wanted = torch.from_numpy(np.stack([queries, *np.split(documents, len(columns) - 1)])).to(columns[0].device)
        there = torch.from_numpy(self.there[rows].T).to(columns[0].device)
        known = [at for at in range(len(columns)) if there[at].any()]
        return self.loss.compute_loss_from_embeddings(
            [columns[at][there[at]] for at in known], [wanted[at][there[at]] for at in known]
        )

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {**self.loss.get_config_dict(), "teacher": dict(self.vectors.encoder)}


def matryoshka_loss(model: Any, loss: Any, dimensions: Sequence[int]) -> Any:
    """Return the sum of a loss of whole vectors and of those cut to their first dimensions, each made of length 1.

    It is sentence-transformers' MatryoshkaLoss, all weights 1; the whole vector is always among the dimensions.

    Args:
        model: a SentenceTransformer that compares vectors by their cosine.
        loss: of it, cached or not, ours or sentence-transformers'.
        dimensions: at which vectors are cut, each below the model's own, or it.

    Raises:
        InputError: a dimension beyond the model's, a model that compares by inner products, or a cached loss that
            learns something beside the model.

    Source: Kusupati et al. 2022, "Matryoshka representation learning", eq. 1.
    """
    whole, named = model.get_embedding_dimension(), spelled("matryoshka")
    if similarity_of(model) != "cosine":
        raise InputError(f"{named}: the model compares vectors by inner products, and parts of vectors are compared by "
                         f"cosines; give {spelled('similarity')} cosine, or leave it out")  # fmt: skip
    if beyond := [each for each in dimensions if each > whole]:
        raise InputError(f"{named} {', '.join(map(str, beyond))}: the model has {whole} dimensions; give fewer")
    if uses_gradient_cache(loss) and hasattr(loss, "own_parameters") and loss.own_parameters():
        raise InputError(f"{named} with {spelled('mini_batch_size')}, and a loss that learns beside the model: leave "
                         "one of them out")  # fmt: skip
    return of_encoders.MatryoshkaLoss(model, loss, sorted({*dimensions, whole}, reverse=True))
