"""The losses by name: ours, a teacher's, and `st:NAME` of sentence-transformers, each as it can be trained here.

Losses of sentence-transformers know neither the table's weights and ratings, nor known positives, nor masks: what they
would ignore is refused. Needs torch and sentence-transformers.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from sentence_transformers.base.losses.merged_forward import embed_columns
from sentence_transformers.cross_encoder import losses as of_rerankers
from sentence_transformers.sentence_transformer import losses as of_encoders
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss
from sentence_transformers.util import cos_sim, dot_score
from torch import Tensor, nn

from foils.batching.vectors import processes_to_come
from foils.data.training_rows import ABSENT
from foils.encode import EmbeddingSettings
from foils.encode.models import load_model, similarity_of
from foils.runtime.errors import InputError, check_names
from foils.runtime.options import spelled
from foils.selection.curriculum import least_gap
from foils.training.cached import CachedContrastiveLoss
from foils.training.data import TrainingSet
from foils.training.loss_weighting import make_mixing, make_temperature
from foils.training.losses import ContrastiveLoss, Objective
from foils.training.masks import FalseNegativeMask, guide_vectors
from foils.training.objectives import (
    check_debiasing,
    debiased_infonce,
    list_distillation,
    margin_mse,
    weighted_infonce,
)
from foils.training.settings import EMBED_DISTIL, ST


@dataclass(frozen=True)
class Takes:
    """What a loss takes: columns of texts, the anchors' among them; `most` None: any number.

    `in_batch` says whether it compares queries with the documents of other rows.
    """

    least: int
    most: int | None
    in_batch: bool = True


ST_LOSSES = {
    "MultipleNegativesRankingLoss": Takes(2, None),
    "CachedMultipleNegativesRankingLoss": Takes(2, None),
    "GISTEmbedLoss": Takes(2, 3),
    "CachedGISTEmbedLoss": Takes(2, 3),
    "TripletLoss": Takes(3, 3, in_batch=False),
    "MegaBatchMarginLoss": Takes(2, 2),
}
"""Losses of encoders that learn from pairs, triplets or lists without labels."""

ST_RERANKER_LOSSES = ("ADRMSELoss", "LambdaLoss", "ListMLELoss", "ListNetLoss", "PListMLELoss", "RankNetLoss")
"""Losses of rerankers that learn from lists, where the positive has label 1 and the negatives have 0."""

SIMILARITIES = {"cosine": cos_sim, "dot": dot_score}
METRICS = ("cosine", "euclidean", "manhattan")
MINI_BATCH, SIMILARITY, GUIDE_MODEL = "mini_batch_size", "similarity_fct", "guide"
GATHER = "gather_across_devices"


def st_loss(
    name: str, model: Any, data: TrainingSet, *, mini_batch_size: int | None, settings: Mapping[str, Any]
) -> Any:
    """Return a loss of sentence-transformers for an encoder.

    Args:
        name: `st:NAME`, one of `ST_LOSSES`.
        model: a SentenceTransformer; its similarity is the loss's where the loss can have another.
        data: what is trained on.
        mini_batch_size: for the cached losses; None: their own.
        settings: arguments of the loss; `guide` is the name of a model, `similarity_fct` cosine or dot, and
            `distance_metric` cosine, euclidean or manhattan.

    Raises:
        UnknownNameError: no such loss, or no such setting of it.
        InputError: settings that the loss refuses or lacks, rows of another form than it takes, or what it would
            ignore: weights, short lists, a mini-batch size, a model that compares otherwise.
    """
    kind, known = _named(name, of_encoders, ST_LOSSES, settings)
    columns, takes = data.rows.shape[1], ST_LOSSES[name.removeprefix(ST)]
    if not takes.least <= columns <= (takes.most or columns):
        wanted = " or ".join(str(each - 1) for each in range(takes.least, (takes.most or takes.least) + 1))
        raise InputError(
            f"{name} takes {wanted} documents a row, the positive among them, and there are {columns - 1}; give "
            f"another {spelled('form')}"
        )
    _refuse_ignored(name, data)
    if takes.in_batch and data.mixture is not None:
        raise InputError(
            f"{name} takes documents of other data sets as negatives, which the losses of foils leave out; take one of "
            "these, or one data set"
        )
    chosen = dict(settings)
    if MINI_BATCH in known and mini_batch_size is not None:
        chosen.setdefault(MINI_BATCH, mini_batch_size)
    elif mini_batch_size is not None:
        raise InputError(f"{spelled('mini_batch_size')} {mini_batch_size}: no effect with {name}, which embeds a batch "
                         "at once; leave it out, or take a loss whose name begins with Cached")  # fmt: skip
    chosen.update(_compared(name, model, known, chosen))
    if GATHER in inspect.signature(kind).parameters:
        chosen[GATHER] = processes_to_come() > 1
    if GUIDE_MODEL in chosen:
        chosen[GUIDE_MODEL] = load_model(chosen[GUIDE_MODEL], kind="guide", device=str(model.device)).eval()
        chosen[GUIDE_MODEL].requires_grad_(False)
    if takes.in_batch:
        logging.getLogger(__name__).warning(
            "%s takes documents of other rows as negatives, and does not know which of them are known positives of a "
            "query or rejected in the table; the losses of foils leave these out", name,
        )  # fmt: skip
    with _refusals_of(name):
        return kind(model, **chosen)


def st_reranker_loss(name: str, settings: Mapping[str, Any]) -> Callable[..., Any]:
    """Return what makes a loss of sentence-transformers for a reranker: (model, *, mini_batch_size, **settings) → loss.

    Args:
        name: `st:NAME`, one of `ST_RERANKER_LOSSES`.
        settings: arguments of the loss; `weighting_scheme` and `lambda_weight` are names of classes.

    Raises:
        UnknownNameError: no such loss, or no such setting of it.
    """
    kind, _ = _named(name, of_rerankers, ST_RERANKER_LOSSES, settings)

    def make(model: Any, *, mini_batch_size: int | None, **settings: Any) -> Any:
        chosen = {key: _instance(key, value) for key, value in settings.items()}
        with _refusals_of(name):
            return kind(model, **{MINI_BATCH: mini_batch_size, **chosen})

    return make


def _named(name: str, losses: Any, known: Any, settings: Mapping[str, Any]) -> tuple[Any, list[str]]:
    check_names(f"loss of sentence-transformers ({ST}NAME)", [name.removeprefix(ST)], list(known))
    kind = getattr(losses, name.removeprefix(ST))
    own = [each for each in inspect.signature(kind).parameters if each not in ("model", GATHER)]
    check_names(f"setting of the loss {name}", settings, own)
    return kind, own


def refuse_weights(name: str, data: TrainingSet) -> None:
    """Refuse weights of negatives with a loss that cannot heed them.

    Raises:
        InputError: a weight other than 1.
    """
    weighed = int(data.weighed()[0].sum())
    if weighed:
        raise InputError(
            f"{weighed} negatives have a weight other than 1, which {name} cannot heed; take another loss, or "
            "negatives that are not weighted"
        )


def refuse_positives(name: str, data: TrainingSet) -> None:
    """Refuse negatives that are positives after all with a loss that cannot leave them out.

    Raises:
        InputError: there are some.
    """
    positives = int(data.weighed()[1].sum())
    if positives:
        raise InputError(
            f"{positives} negatives are labelled positives of a query with the same text, which {name} cannot leave "
            "out; take another loss, or give queries of one text one id"
        )


def _refuse_ignored(name: str, data: TrainingSet) -> None:
    refuse_weights(name, data)
    refuse_positives(name, data)
    there = data.rows[:, 1:] != ABSENT
    if not there.all():
        raise InputError(
            f"{int((~there).any(1).sum())} lists are short, and {name} would take the empty text for a negative; give "
            f"{spelled('form')} triplets, or a smaller {spelled('per_query')}"
        )


def _compared(name: str, model: Any, known: list[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the loss's similarity or distance: the model's own where the loss can have it."""
    own, chosen = similarity_of(model), settings.get(SIMILARITY)
    if "distance_metric" in settings:
        check_names("distance_metric", [settings["distance_metric"]], METRICS)
        return {"distance_metric": getattr(of_encoders.TripletDistanceMetric, settings["distance_metric"].upper())}
    if SIMILARITY in known:
        check_names(SIMILARITY, [chosen or own], SIMILARITIES)
        return {SIMILARITY: SIMILARITIES[chosen or own]}
    if own != "cosine" and "distance_metric" not in known:
        raise InputError(f"{name} compares vectors by cosines, and the model by inner products; give "
                         f"{spelled('similarity')} cosine, or another loss")  # fmt: skip
    return {}


def _instance(key: str, value: Any) -> Any:
    if key not in ("weighting_scheme", "lambda_weight") or not isinstance(value, str):
        return value
    classes = [each for each in of_rerankers.__all__ if not each.endswith("Loss")]
    check_names(key, [value], classes)
    return getattr(of_rerankers, value)()


@contextmanager
def _refusals_of(name: str) -> Iterator[None]:
    try:
        yield
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: {error}") from error


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
        self.loss = EmbedDistillLoss(model, distance_metric=distance, projection_dim=projected)
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
        columns = embed_columns(self.model, list(sentence_features))
        rows = labels.cpu().numpy().astype(np.int64)
        queries, documents = self.vectors.of_rows(rows)
        wanted = torch.from_numpy(np.stack([queries, *np.split(documents, len(columns) - 1)])).to(columns[0].device)
        there = torch.from_numpy(self.there[rows].T).to(columns[0].device)
        known = [column for column in range(len(columns)) if there[column].any()]
        return self.loss.compute_loss_from_embeddings(
            [columns[column][there[column]] for column in known], [wanted[column][there[column]] for column in known]
        )

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings, for the model card."""
        return {**self.loss.get_config_dict(), "teacher": dict(self.vectors.encoder)}


def vector_distillation(
    name: str, model: Any, data: TrainingSet, *, teacher: str, distance: str, embedding: EmbeddingSettings
) -> VectorDistillation:
    """Return the loss `name`, having refused what it would ignore.

    Raises:
        InputError: no teacher, or weights, which it cannot heed.
    """
    if not teacher:
        raise InputError(f"{spelled('loss', name)} learns the vectors of a teacher: set teacher=MODEL")
    refuse_weights(name, data)
    return VectorDistillation(model, data, teacher, distance=distance, embedding=embedding)


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
    from sentence_transformers.base.losses.gradcache import uses_gradient_cache
    from sentence_transformers.sentence_transformer.losses import MatryoshkaLoss

    whole, named = model.get_embedding_dimension(), spelled("matryoshka")
    if similarity_of(model) != "cosine":
        raise InputError(f"{named}: the model compares vectors by inner products, and parts of vectors are compared by "
                         f"cosines; give {spelled('similarity')} cosine, or leave it out")  # fmt: skip
    if beyond := [each for each in dimensions if each > whole]:
        raise InputError(f"{named} {', '.join(map(str, beyond))}: the model has {whole} dimensions; give fewer")
    if uses_gradient_cache(loss) and hasattr(loss, "own_parameters") and loss.own_parameters():
        raise InputError(f"{named} with {spelled('mini_batch_size')}, and a loss that learns beside the model: leave "
                         "one of them out")  # fmt: skip
    return MatryoshkaLoss(model, loss, sorted({*dimensions, whole}, reverse=True))


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
    (`st_loss`). `embedding` says how a teacher of vectors is used, and where these are kept;
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
