"""Small judges that an ensemble's judgements are distilled into: one reads both documents, another scores each."""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import expit, xlogy

from foils.data.records import whole_json
from foils.encode.cross_encoders import load_cross_encoder, logits
from foils.rating.estimators import checked_preference
from foils.rating.judges import CrossEncoderJudge, Judge, load_cross_encoder_judge
from foils.rating.pairs import Candidates, Floats, Pairs, parts_by_query, texts_of
from foils.runtime import progress
from foils.runtime.errors import FailureError, FormatError, InputError, check_names, require
from foils.runtime.results import number

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder


PARAGRAPH = "\n\n"  # separates where a tokenizer has no separator
CARD = "pairwise.json"
PAIRWISE, SCORES = "pairwise", "scores"
KINDS = {PAIRWISE: "pairwise judge 1", SCORES: "scoring judge 1"}
"""Form of a distilled judge → what its card says."""


class PairwiseJudge:
    """P(i ≻ j) = (σ(z(q, d_i, d_j)/T) + σ(−z(q, d_j, d_i)/T))/2, z a cross-encoder's logit over all three texts.

    The mean over both orders makes it antisymmetric whatever the model learned: P(i ≻ j) + P(j ≻ i) = 1. Unlike the
    difference of two scores, it can say things that no score can, and costs two passes a pair.

    The model sees (query, document, separator, document). A query gets at most a quarter of the length, each document
    half of the rest, so that none is cut to make room for the other.

    Args:
        model: a CrossEncoder with one output and a fast tokenizer, trained on such triples (`distil`).
        max_length: tokens of a triple.
        temperature: T, above 0.
        batch_size: triples at once; changes speed, not answers beyond rounding.
        name: what to call it.

    Raises:
        InputError: several outputs, a slow tokenizer, or a setting out of range.

    Source: ANMI 2.0 section 7.2, stage 2 ("a distilled pairwise model"), with both orders averaged.
    """

    antisymmetric = True

    def __init__(
        self,
        model: CrossEncoder,
        *,
        max_length: int = 256,
        temperature: float = 1.0,
        batch_size: int = 32,
        name: str = "pairwise",
    ) -> None:
        self._triples = Triples(model.tokenizer, max_length)
        scorer = CrossEncoderJudge(model, temperature=temperature)
        self.model, self._temperature, self._batch_size = model, temperature, batch_size
        self.max_length, self.name = max_length, name
        self.fingerprint = f"pairwise-{max_length}-{scorer.fingerprint}"

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge:
        """Return the judge itself: it is ready."""
        return self

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return P(first ≻ second), (m,); NaN where the model's logit is no number."""
        there, back = self.both_orders(candidates, pairs)
        return np.asarray((expit(there / self._temperature) + expit(-back / self._temperature)) / 2)

    def both_orders(self, candidates: Candidates, pairs: Pairs) -> tuple[Floats, Floats]:
        """Return z(query, first, second) and z(query, second, first), (m,) each."""
        candidates.check(pairs)
        if not len(pairs):
            return np.zeros(0), np.zeros(0)
        queries, first, second = texts_of(candidates, pairs.first, pairs.second)
        return self.logits(queries, first, second), self.logits(queries, second, first)

    def logits(self, queries: Sequence[str], first: Sequence[str], second: Sequence[str]) -> Floats:
        """Return z(query, first, second), (n,), of one order alone; NaN where it is no finite number."""
        found = logits(self.model, self._triples.of(queries, first, second), batch_size=self._batch_size)
        return np.where(np.isfinite(found), found, np.nan).astype(np.float64)


DistilledJudge = PairwiseJudge | CrossEncoderJudge


def judge_of(
    form: str, model: CrossEncoder, *, max_length: int, temperature: float = 1.0, name: str = "pairwise"
) -> DistilledJudge:
    """Return the judge of a form, `pairwise` or `scores`, with this model."""
    if form == PAIRWISE:
        return PairwiseJudge(model, max_length=max_length, temperature=temperature, name=name)
    return CrossEncoderJudge(model, temperature=temperature, name=name)


def save_judge(judge: DistilledJudge, folder: str | Path) -> None:
    """Write a distilled judge's model (safetensors), tokenizer and card to a folder, whole or not at all.

    One that scores is a cross-encoder like any other to all other programs.

    Raises:
        InputError: there is something at `folder` already.
    """
    folder = Path(folder)
    check_free(folder)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}-") as place:
        model = Path(place) / "model"
        judge.model.save_pretrained(str(model), create_model_card=False, safe_serialization=True)
        kind = PAIRWISE if isinstance(judge, PairwiseJudge) else SCORES
        card = {"kind": KINDS[kind], "max_length": judge.max_length}
        (model / CARD).write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
        model.replace(folder)


def load_pairwise_judge(folder: str | Path, *, temperature: float = 1.0, device: str | None = None) -> DistilledJudge:
    """Load a judge that `save_judge` wrote.

    Raises:
        InputError: the folder holds none, or one of another version.
        FormatError: its card is damaged.
    """
    folder = Path(folder)
    if not (folder / CARD).is_file():
        raise InputError(f"{folder} holds no pairwise judge ({CARD}); train one: foils rate … --distil FOLDER")
    try:
        card: Any = whole_json(folder / CARD)
        kind, max_length = card["kind"], int(card["max_length"])
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        raise FormatError("expected kind and max_length of a pairwise judge", folder / CARD) from error
    form = next((form for form, known in KINDS.items() if known == kind), None)
    if form is None:
        known = " or ".join(map(repr, KINDS.values()))
        raise InputError(f"{folder} is {kind!r}; expected {known}, which this version of foils reads")
    if form == SCORES:
        return load_cross_encoder_judge(folder, temperature=temperature, max_length=max_length, device=device)
    model = load_cross_encoder(folder, max_length=max_length, device=device, new_head=True)
    return PairwiseJudge(model, max_length=max_length, temperature=temperature, name=folder.name)


def check_free(folder: Path) -> None:
    """Raise an InputError where something is at `folder` already."""
    if folder.exists():
        raise InputError(f"{folder} is there already; choose another folder, or remove it")


class Triples:
    """Puts a query and two documents into the two texts that a cross-encoder takes: (query, "first SEP second").

    A decoder's tokenizer has no separator: there an empty line stands after the query, and between the documents.

    Args:
        tokenizer: a fast one: it says where tokens end.
        max_length: tokens of a triple, at least 16.

    Raises:
        InputError: another tokenizer, or a shorter length.
    """

    def __init__(self, tokenizer: Any, max_length: int) -> None:
        if max_length < 16:
            raise InputError(f"max_length {max_length}; a query and two documents need at least 16 tokens")
        if not getattr(tokenizer, "is_fast", False):
            raise InputError("a pairwise judge needs a fast tokenizer, as BERT's; take another model")
        own = tokenizer.sep_token
        self._tokenizer, self._separator, self._after_query = tokenizer, own or PARAGRAPH, "" if own else PARAGRAPH
        self._between = f" {own} " if own else PARAGRAPH
        blank = len(tokenizer(PARAGRAPH, add_special_tokens=False)["input_ids"])
        special = tokenizer.num_special_tokens_to_add(pair=True) + (1 if own else 2 * blank)
        self._of_query = max_length // 4
        self._of_document = (max_length - self._of_query - special) // 2

    def of(self, queries: Sequence[str], first: Sequence[str], second: Sequence[str]) -> list[tuple[str, str]]:
        """Return the two texts of each triple."""
        query, document = self._cut(queries, self._of_query), self._cut([*first, *second], self._of_document)
        return [
            (f"{query[q]}{self._after_query}", f"{document[a]}{self._between}{document[b]}")
            for q, a, b in zip(queries, first, second, strict=True)
        ]

    def _cut(self, texts: Sequence[str], tokens: int) -> dict[str, str]:
        """Each text, without separators of its own, cut after so many tokens."""
        known = list(dict.fromkeys(texts))
        clean = [text.replace(self._separator, " ") for text in known]
        encoded = self._tokenizer(clean, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        ends = [at[tokens - 1][1] if len(at) > tokens else None for at in encoded["offset_mapping"]]
        return {text: short[:end] for text, short, end in zip(known, clean, ends, strict=True)}


def examples(candidates: Candidates, pairs: Pairs, w: Floats, triples: Triples) -> Dataset:
    """Return both orders of each judged pair, with labels w and 1 − w, as a data set to train on.

    It holds numbers of candidates; texts are looked up when a batch is read.
    """

    def looked_up(batch: dict[str, Any]) -> dict[str, Any]:
        texts = triples.of(*texts_of(candidates, np.array(batch["first"]), np.array(batch["second"])))
        return {"query": [q for q, _ in texts], "documents": [d for _, d in texts], "label": batch["label"]}

    first, second = np.append(pairs.first, pairs.second), np.append(pairs.second, pairs.first)
    columns = {"first": first, "second": second, "label": np.append(w, 1 - w)}
    return require("datasets", "train").Dataset(pa.table(columns)).with_transform(looked_up)


def differences(candidates: Candidates, pairs: Pairs, w: Floats) -> Dataset:
    """Return each judged pair once, with label w, as a data set to train on; texts as `examples` looks them up."""

    def looked_up(batch: dict[str, Any]) -> dict[str, Any]:
        queries, first, second = texts_of(candidates, np.array(batch["first"]), np.array(batch["second"]))
        return {"query": queries, "first": first, "second": second, "label": batch["label"]}

    columns = {"first": pairs.first, "second": pairs.second, "label": w}
    return require("datasets", "train").Dataset(pa.table(columns)).with_transform(looked_up)


def difference_loss(model: CrossEncoder) -> Any:
    """Return the loss −w log σ(s_i − s_j) − (1 − w) log(1 − σ(s_i − s_j)), s the model's logits, as a module.

    Source: Burges et al. 2005 (RankNet), with soft labels; Bradley–Terry (ANMI 2.0 eq. 22) with scores for ratings.
    """
    import torch

    class DifferenceLoss(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self,
            inputs: Sequence[Sequence[str]],
            labels: torch.Tensor,
            prompt: str | None = None,
            task: str | None = None,
        ) -> torch.Tensor:
            queries, first, second = inputs
            pairs = list(zip([*queries, *queries], [*first, *second], strict=True))
            tokens = self.model.preprocess(pairs, prompt=prompt, task=task)
            tokens = {k: v.to(model.device) if isinstance(v, torch.Tensor) else v for k, v in tokens.items()}
            one, other = self.model(tokens)["scores"].view(2, -1).float()
            return torch.nn.functional.binary_cross_entropy_with_logits(one - other, labels.to(one))

    return DifferenceLoss()


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
