"""Losses of sentence-transformers by name, `st:NAME`: those that learn from a query, its positive and its negatives.

They know neither the table's weights and ratings, nor known positives, nor masks: what they would ignore is refused.
Needs torch and sentence-transformers.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from sentence_transformers.cross_encoder import losses as of_rerankers
from sentence_transformers.sentence_transformer import losses as of_encoders
from sentence_transformers.util import cos_sim, dot_score

from foils.batching.vectors import processes_to_come
from foils.data.training_rows import ABSENT
from foils.encode.models import load_model
from foils.encode.similarity import similarity_of
from foils.runtime.errors import InputError, check_names
from foils.runtime.options import spelled
from foils.training.data import TrainingSet
from foils.training.settings import ST


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
