"""Training a small pairwise judge on judgements that others gave."""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit, xlogy

from foils.encode.cross_encoders import load_cross_encoder
from foils.rating.candidates import Candidates
from foils.rating.distil_forms import difference_loss, differences, examples
from foils.rating.elo import checked_preference
from foils.rating.pairs import Floats, Pairs, parts_by_query
from foils.rating.pairwise import PAIRWISE, SCORES, DistilledJudge, PairwiseJudge, Triples, judge_of
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError, check_names
from foils.runtime.results import number

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder

AT_ONCE = 2048
"""Held-out pairs whose texts are read together, at least."""


@dataclass(frozen=True)
class Distilled:
    """A trained judge, and how it does on queries that it was not trained on.

    Attributes:
        judge: ready to be asked, or saved.
        trained: judgements trained on.
        held_out: judgements of the queries held out.
        loss: mean of −w log p − (1 − w) log(1 − p) over them, p the distilled judge's answer, w its teacher's.
        least_loss: the same with p = w: what no judge falls below.
        agreement: share of them in which both prefer the same document, of those where the teacher prefers one.
        order_effect: mean of |σ(z_ij) − σ(−z_ji)|: how much the order mattered before both were averaged; 0 of scores.

    The last four are NaN where nothing was held out.
    """

    judge: DistilledJudge
    trained: int
    held_out: int
    loss: float
    least_loss: float
    agreement: float
    order_effect: float

    def rows(self) -> list[tuple[str, str]]:
        """Return it as rows of a table."""
        return [
            ("judgements trained on", f"{self.trained:,}"),
            ("judgements held out", f"{self.held_out:,}"),
            ("loss on them", number(self.loss)),
            ("the least it can be", number(self.least_loss)),
            ("prefers what its teachers do", number(self.agreement)),
            ("effect of the order, before averaging", number(self.order_effect)),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything but the judge."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "judge"}


def distil(
    base: str | Path,
    candidates: Candidates,
    pairs: Pairs,
    preference: npt.ArrayLike,
    *,
    form: str = PAIRWISE,
    epochs: int = 1,
    batch_size: int = 32,
    learning_rate: float = 5e-5,
    warmup: float = 0.1,
    max_length: int = 256,
    held_out: float = 0.1,
    seed: int = 0,
    device: str | None = None,
    name: str = "pairwise",
) -> Distilled:
    """Train a cross-encoder on recorded judgements w = P(i ≻ j), by the loss −w log σ(z) − (1 − w) log σ(−z).

    - form pairwise: over (query, document, document). Each judgement is two examples, z(q, d_i, d_j) with label w and
      z(q, d_j, d_i) with label 1 − w.
    - form scores: over (query, document), z = s(q, d_i) − s(q, d_j). It can say less, learns from far fewer judgements,
      and answers with one pass a document instead of two a pair. A base with one output keeps its head.

    Labels stay soft, so that it learns how sure its teachers are. Trained by sentence-transformers' trainer.
    Generators that this seeds are put back as they were.

    Args:
        base: the model to begin with: a folder or hub name.
        candidates: queries and documents.
        pairs: that were judged.
        preference: (m,) w in [0, 1], as an ensemble's mean; NaN: missing, left out.
        form: `pairwise` or `scores`.
        epochs: passes, at least 1.
        batch_size: examples in a step: of the form pairwise two a judgement, of scores one.
        learning_rate: the peak; linear decay after the warm-up.
        warmup: share of the steps, in [0, 1).
        max_length: tokens of a triple, or of query and document.
        held_out: share of the queries to measure on, in [0, 1).
        seed: of the model's new head, of what is held out, and of the order of examples.
        device: of torch; None: the first one available.
        name: of the judge.

    Raises:
        InputError: settings out of range, a model that cannot be loaded, or no judgement left to train on.
        UnknownNameError: no such form.
        FailureError: the loss is no finite number.
        MissingExtraError: datasets is not installed.

    Source: ANMI 2.0 section 7.2, stage 2: the pairwise model is distilled from an ensemble.
    """
    check_names("form of a distilled judge", [form], (PAIRWISE, SCORES))
    candidates.check(pairs)
    w = checked_preference(pairs, preference)
    _check(epochs, batch_size, learning_rate, warmup, held_out)
    aside = np.random.default_rng(seed).random(pairs.queries) < held_out
    known, apart = np.isfinite(w), aside[pairs.query]
    if not (known & ~apart).any():
        raise InputError(f"{int(known.sum())} judgements, none of a query to train on; give more, or hold out less")
    with _generators_kept(seed):
        model = load_cross_encoder(base, max_length=max_length, device=device, new_head=True, seed=seed)
        shown, labels = pairs.where(known & ~apart), w[known & ~apart]
        dataset, loss = _learned(form, model, candidates, shown, labels, max_length)
        _train(model, dataset, loss, epochs, batch_size, learning_rate, warmup, seed)
    judge = judge_of(form, model, max_length=max_length, name=name)
    facts = _measure(judge, candidates, pairs.where(known & apart), w[known & apart])
    return Distilled(judge, len(shown), int((known & apart).sum()), *facts)


def _check(epochs: int, batch_size: int, learning_rate: float, warmup: float, held_out: float) -> None:
    if epochs < 1 or batch_size < 1 or not learning_rate > 0 or not 0 <= warmup < 1 or not 0 <= held_out < 1:
        raise InputError(
            f"epochs {epochs}, batch_size {batch_size}, learning_rate {learning_rate}, warmup {warmup}, held_out "
            f"{held_out}; expected at least 1, at least 1, above 0, in [0, 1), in [0, 1)"
        )


def _learned(
    form: str, model: CrossEncoder, candidates: Candidates, pairs: Pairs, w: Floats, max_length: int
) -> tuple[Dataset, Any]:
    """What a judge of this form is trained on, and its loss."""
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    if form == SCORES:
        return differences(candidates, pairs, w), difference_loss(model)
    return examples(candidates, pairs, w, Triples(model.tokenizer, max_length)), BinaryCrossEntropyLoss(model)


def _train(
    model: CrossEncoder,
    dataset: Dataset,
    loss: Any,
    epochs: int,
    batch_size: int,
    learning_rate: float,
    warmup: float,
    seed: int,
) -> None:
    from sentence_transformers.cross_encoder.trainer import CrossEncoderTrainer
    from sentence_transformers.cross_encoder.training_args import CrossEncoderTrainingArguments
    from transformers import PrinterCallback

    steps = math.ceil(len(dataset) / batch_size) * epochs
    with tempfile.TemporaryDirectory() as folder, progress.task("distilling", steps, "batches") as advance:
        args = CrossEncoderTrainingArguments(
            output_dir=folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=batch_size,
            learning_rate=learning_rate,
            warmup_steps=math.ceil(warmup * steps),
            seed=seed,
            save_strategy="no",
            logging_steps=max(1, steps // 20),
            logging_nan_inf_filter=False,
            report_to="none",
            disable_tqdm=True,
            use_cpu=model.device.type == "cpu",
        )
        trainer = CrossEncoderTrainer(
            model=model,
            args=args,
            train_dataset=dataset,
            loss=loss,
            callbacks=[_watch(advance)],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    if not np.isfinite(losses).all():
        raise FailureError("the loss of the distillation is no finite number; take a smaller learning rate")
    model.eval()


def _watch(advance: progress.Advance) -> Any:
    from transformers import TrainerCallback

    class Steps(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            advance(1)

    return Steps()


def _measure(
    judge: DistilledJudge, candidates: Candidates, pairs: Pairs, w: Floats
) -> tuple[float, float, float, float]:
    """Loss, least loss, agreement and order effect on these pairs."""
    if not len(pairs):
        return (float("nan"),) * 4
    p, effect = np.empty(len(pairs)), np.zeros(len(pairs))
    for rows in parts_by_query(np.arange(len(pairs)), pairs.query, AT_ONCE):
        part = Pairs(candidates.offsets, pairs.first[rows], pairs.second[rows])
        if isinstance(judge, PairwiseJudge):
            there, back = (expit(z) for z in judge.both_orders(candidates, part))
            p[rows], effect[rows] = (there + 1 - back) / 2, np.abs(there + back - 1)
        else:
            p[rows] = judge.judge(candidates, part)
    p = np.clip(p, 1e-12, 1 - 1e-12)
    loss = float(-(w * np.log(p) + (1 - w) * np.log1p(-p)).mean())
    least = float(-(xlogy(w, w) + xlogy(1 - w, 1 - w)).mean())
    sided = w != 0.5
    agreement = float(((p > 0.5) == (w > 0.5))[sided].mean()) if sided.any() else float("nan")
    return loss, least, agreement, float(effect.mean())


@contextmanager
def _generators_kept(seed: int) -> Iterator[None]:
    """Seed the global generators that the trainer draws from, and put them back."""
    import torch

    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002  (the trainer seeds the global one)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)
