"""The data sets of rerankers, with what they learn from, and their prompts. Needs torch and sentence-transformers.

ANMI's main target: pointwise regression on ratings is zELO's baseline; listwise losses learn the order; the hybrid does
both.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from foils.data.collection import Rows
from foils.runtime.errors import InputError, require
from foils.runtime.options import spelled
from foils.selection.rules import BOUNDS, tier_of
from foils.statistics.elo_scale import ELO_PER_LOGIT
from foils.training.data import TrainingSet
from foils.training.known_pairs import Floats
from foils.training.loss_registry import refuse_unheeded
from foils.training.reranker_losses import CHANCE, LOGIT, STANDARD, RerankerKind
from foils.training.settings import ELO, LABELS, TEACHER, ZONES

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

LEARNED = 0.98
"""Share of its first value to which the loss of a reranker that learned something falls: a guess stays above."""


def targets_of(data: TrainingSet, target: str, scale: str) -> Floats:
    """Return (N, 1 + k) what is learned of each row's documents; NaN where nothing is known.

    - labels: 1 for the positive and 0 for negatives.
    - zones: of rating gaps (ANMI Table 2), 4 for the positive and in the danger zone to 0 in the easy one.
    - elo: ratings; teacher: the numbers of `foils score-pairs`.

    As logits, the softmax of ratings is the chance to be the best (Plackett–Luce). A probability is σ((t − b)/T),
    with b and T fitted to the labels (Platt 1999); of zones a quarter of the grade.

    Raises:
        InputError: there are none, or they contradict the labels where probabilities are wanted.
    """
    if target == LABELS:
        return np.repeat(np.eye(1, data.rows.shape[1] - 1), len(data), 0)
    if target == ZONES:
        gaps = data.facts.own_gaps()
        if not np.isfinite(gaps).any():
            raise InputError("zones go by gaps of ratings, and there are none; rate the negatives first")
        grades = np.where(np.isnan(gaps), np.nan, len(BOUNDS) - tier_of(gaps.ravel()).reshape(gaps.shape))
        values = np.concatenate([np.full((len(data), 1), float(len(BOUNDS))), grades], 1)
        if scale == CHANCE:
            return values / len(BOUNDS)
    elif target == ELO:
        values = data.facts.ratings
        if not np.isfinite(values).any():
            raise InputError("this loss learns from ratings, and there are none; rate the negatives first, or give "
                             f"{spelled('target', LABELS)}")  # fmt: skip
    else:
        values = data.scores_of(TEACHER)
    if scale == LOGIT:
        return values * data.elo_sd / ELO_PER_LOGIT
    if scale == CHANCE or (scale == STANDARD and target != ELO):
        values = (values - np.nanmean(values)) / (np.nanstd(values) or 1.0)
    return _chances(values, target) if scale == CHANCE else values


def _chances(values: Floats, target: str) -> Floats:
    from sklearn.linear_model import LogisticRegression

    known = np.isfinite(values)
    positive = np.broadcast_to(np.arange(values.shape[1]) == 0, values.shape)[known]
    if positive.all() or not positive.any():
        raise InputError(f"probabilities by {target} are fitted to the labels: give numbers of positives and negatives")
    fitted = LogisticRegression().fit(values[known][:, None], positive)
    if not fitted.coef_[0, 0] > 0:
        raise InputError(f"{spelled('target', target)} is no higher for positives than for negatives: it contradicts "
                         "the labels")  # fmt: skip
    chances = np.full(values.shape, np.nan)
    chances[known] = fitted.predict_proba(values[known][:, None])[:, 1]
    return chances


def reranker_set(data: TrainingSet, loss: RerankerKind) -> Dataset:
    """Return the rows of a data set of lists in the form that a reranker's loss takes; absent documents left out.

    Like the given set it holds row numbers, and looks texts up when a batch is read.

    Pointwise: query, document, label, each pair once. Listwise: query, documents, label. Labels are (3, n): targets,
    weights and rating gaps; of sentence-transformers' losses targets alone. Documents without a target are left out,
    but of contrasts, and lists that are left with fewer than two.

    Raises:
        InputError: targets or gaps are wanted and there are none, or there are weights that the loss cannot heed.
    """
    datasets, ours = require("datasets", "train"), loss.settings is not None
    target, gaps = targets_of(data, loss.target, loss.scales[loss.target]), data.facts.own_gaps()
    if (
        loss.pointwise
        and loss.target == ELO
        and (data.negatives is not None and "offset" not in data.negatives.table.column_names)
    ):
        log.warning(
            "the ratings have the mean 1500 in each query, whatever its candidates are worth, and a regression learns "
            "them so; rate with comparisons between queries (foils rate --rating-args between=6), or train with "
            "listnet and the target elo, which compares documents of one query alone"
        )
    if loss.curriculum and not np.isfinite(gaps).any():
        raise InputError("a curriculum goes by gaps of ratings, and there are none; rate the negatives first")
    if not ours:
        refuse_unheeded("this loss", data, short=False)
    there = data.rows[:, 1:] >= 0
    if not loss.whole:
        there &= np.isfinite(target)
    rows: NDArray[np.bool_] = there.sum(1) > (0 if loss.pointwise else 1)
    if not (loss.pointwise or rows.all()):
        log.warning("%d of %d lists have fewer than two rated documents, and are left out", (~rows).sum(), len(rows))
        there &= rows[:, None]
    queries, documents, lengths = data.rows[rows, 0], data.rows[:, 1:][there], there.sum(1)[rows]
    weights = np.exp(data.facts.own_log_weights())
    facts = np.stack([target, weights, np.insert(gaps, 0, np.nan, 1)] if ours else [target], 1)
    columns: dict[str, Any]
    if loss.pointwise:
        query = np.repeat(queries, lengths)  # a negative stands once, however many positives its query has
        first = np.sort(np.unique(np.stack([query, documents]), axis=1, return_index=True)[1])
        own = facts.swapaxes(1, 2)[there][first]
        columns = {"query": query[first], "document": documents[first], "label": own[:, 0]}
        values, lengths = own.ravel(), np.ones(len(first), np.int64)
    else:
        columns = {"query": queries, "documents": _lists(documents, lengths), "label": _lists(target[there], lengths)}
        values = facts[np.repeat(there[:, None], facts.shape[1], 1)]
    if ours:
        columns["label"] = _lists(_lists(values, np.repeat(lengths, 3)), np.full(len(lengths), 3))
    texts = replace(data.texts, documents=frozenset({"document", "documents"}))
    return datasets.Dataset(pa.table(columns)).with_transform(texts)


def _lists(values: Any, lengths: Rows) -> pa.ListArray:
    """Return consecutive values as lists of these lengths."""
    return pa.ListArray.from_arrays(pa.array(np.append(0, np.cumsum(lengths)), pa.int32()), values)


def warn_of_nothing_learned(history: Sequence[Mapping[str, float]]) -> None:
    """Say so where the loss hardly fell: the last tenth of its entries against the first one."""
    losses = [entry["loss"] for entry in history if "loss" in entry]
    last = losses[-max(1, len(losses) // 10) :]
    if len(losses) > 1 and losses[0] > 0 and sum(last) / len(last) > LEARNED * losses[0]:
        log.warning(
            "the loss hardly fell, from %.3f to %.3f: the reranker learned next to nothing; train for more steps, at "
            "a higher learning rate, or from a model that knows more",
            losses[0], sum(last) / len(last),
        )  # fmt: skip
