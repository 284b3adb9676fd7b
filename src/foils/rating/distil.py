"""Small judges that the answers of others are distilled into: one scores each document, another reads both."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
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
from foils.rating.judges import CrossEncoderJudge, Judge
from foils.rating.pairs import Candidates, Floats, Pairs, texts_of
from foils.rating.session import ask
from foils.runtime.errors import InputError, check_names, require
from foils.runtime.files import fill_folder, write_json
from foils.runtime.results import number

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

PARAGRAPH = "\n\n"  # separates where a tokenizer has no separator
CARD = "pairwise.json"
PAIRWISE, SCORES = "pairwise", "scores"
FORMS = {PAIRWISE: "pairwise judge 1", SCORES: "scoring judge 1"}
"""Form of a distilled judge → what its card says."""


class PairwiseJudge:
    """P(i ≻ j) = (σ(z(q, d_i, d_j)/T) + σ(−z(q, d_j, d_i)/T))/2, z a cross-encoder's logit over all three texts.

    The mean over both orders makes it antisymmetric whatever the model learned: P(i ≻ j) + P(j ≻ i) = 1. Unlike the
    difference of two scores, it can say things that no score can, and costs two passes a pair.

    Args:
        model: a CrossEncoder with one output, trained on `triples` (`distil`).
        temperature: T, above 0.
        name: what to call it.

    Source: ANMI 2.0 section 7.2, stage 2 ("a distilled pairwise model"), with both orders averaged.
    """

    antisymmetric = True

    def __init__(self, model: CrossEncoder, *, temperature: float = 1.0, name: str = PAIRWISE) -> None:
        scorer = CrossEncoderJudge(model, temperature=temperature)
        self.model, self.name, self._temperature = model, name, temperature
        self.fingerprint = f"pairwise-{int(model.max_seq_length)}-{scorer.fingerprint}"

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge:
        """Return the judge itself: it is ready."""
        return self

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return P(first ≻ second), (m,); NaN where the model's logit is no number."""
        candidates.check(pairs)
        queries, first, second = texts_of(candidates, pairs.first, pairs.second)
        shown = triples(self.model, queries, first, second) + triples(self.model, queries, second, first)
        found = logits(self.model, shown).astype(np.float64) if shown else np.zeros(0)
        there, back = np.where(np.isfinite(found), found, np.nan).reshape(2, -1) / self._temperature
        return np.asarray((expit(there) + expit(-back)) / 2)


def triples(
    model: CrossEncoder, queries: Sequence[str], first: Sequence[str], second: Sequence[str]
) -> list[tuple[str, str]]:
    """Return each query and two documents as the two texts that a cross-encoder takes: (query, "first SEP second").

    A query gets at most a quarter of the model's tokens, each document half of the rest, so that none is cut to make
    room for another. A decoder's tokenizer has no separator: there an empty line stands after the query, and between
    the documents.

    Raises:
        InputError: the model's tokenizer does not say where tokens end.
    """
    tokenizer, own, length = model.tokenizer, model.tokenizer.sep_token, int(model.max_seq_length)
    if not getattr(tokenizer, "is_fast", False):
        raise InputError("a pairwise judge needs a fast tokenizer, as BERT's; take another model")
    of_query, blank = length // 4, len(tokenizer(PARAGRAPH, add_special_tokens=False)["input_ids"])
    special = tokenizer.num_special_tokens_to_add(pair=True) + (1 if own else 2 * blank)

    def cut(texts: Sequence[str], tokens: int) -> list[str]:
        clean = [text.replace(own or PARAGRAPH, " ") for text in texts]
        at = tokenizer(clean, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
        return [text if len(of) <= tokens else text[: of[tokens - 1][1]] for text, of in zip(clean, at, strict=True)]

    if not len(queries):
        return []
    ones, others = (cut(texts, (length - of_query - special) // 2) for texts in (first, second))
    after, between = ("", f" {own} ") if own else (PARAGRAPH, PARAGRAPH)
    return [
        (f"{query}{after}", f"{one}{between}{other}")
        for query, one, other in zip(cut(queries, of_query), ones, others, strict=True)
    ]


DistilledJudge = PairwiseJudge | CrossEncoderJudge


def save_judge(judge: DistilledJudge, folder: str | Path) -> None:
    """Write a distilled judge's model (safetensors) and tokenizer to a folder, and a card that says its form.

    One that scores is a cross-encoder like any other to all programs.

    Raises:
        InputError: there is something at `folder` already.
    """
    check_free(Path(folder))
    with fill_folder(folder) as aside:
        judge.model.save_pretrained(str(aside), create_model_card=False, safe_serialization=True)
        kind = FORMS[PAIRWISE if isinstance(judge, PairwiseJudge) else SCORES]
        write_json(aside / CARD, {"kind": kind, "max_length": int(judge.model.max_seq_length)})


def load_pairwise_judge(folder: str | Path, *, temperature: float = 1.0, device: str | None = None) -> DistilledJudge:
    """Load a judge that `save_judge` wrote.

    Raises:
        InputError: the folder holds none, or one of another version.
        FormatError: its card is damaged.
    """
    folder = Path(folder)
    if not (folder / CARD).is_file():
        raise InputError(f"{folder} holds no pairwise judge ({CARD}); train one: foils rate … --distil FOLDER")
    card = whole_json(folder / CARD)
    kind = card.get("kind") if isinstance(card, dict) else card
    if kind not in FORMS.values():
        known = " or ".join(map(repr, FORMS.values()))
        raise InputError(f"{folder} is {kind!r}; expected {known}, which this version of foils reads")
    judge = PairwiseJudge if kind == FORMS[PAIRWISE] else CrossEncoderJudge
    return judge(load_cross_encoder(folder, device=device), temperature=temperature, name=folder.name)


def check_free(folder: Path) -> None:
    """Raise an InputError where something is at `folder` already."""
    if folder.exists():
        raise InputError(f"{folder} is there already; choose another folder, or remove it")


def preference_loss(model: CrossEncoder, form: str) -> Any:
    """Return the loss −w log σ(z) − (1 − w) log(1 − σ(z)) of judged pairs (query, first, second), as a module.

    - scores: z = s(q, d_i) − s(q, d_j), s the model's logits (Burges et al. 2005, RankNet, with soft labels;
      Bradley–Terry, ANMI 2.0 eq. 22, with scores for ratings).
    - pairwise: z(q, d_i, d_j) with w and z(q, d_j, d_i) with 1 − w, z the model's logits of `triples`.
    """
    import torch

    class PreferenceLoss(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self, inputs: Sequence[Sequence[str]], labels: torch.Tensor, prompt: str | None = None, task: Any = None
        ) -> torch.Tensor:
            queries, first, second = inputs
            if form == PAIRWISE:
                pairs = triples(model, queries, first, second) + triples(model, queries, second, first)
            else:
                pairs = list(zip([*queries, *queries], [*first, *second], strict=True))
            tokens = self.model.preprocess(pairs, prompt=prompt, task=task)
            tokens = {k: v.to(model.device) if isinstance(v, torch.Tensor) else v for k, v in tokens.items()}
            one, other = z = self.model(tokens)["scores"].view(2, -1).float()
            labels = labels.to(z)
            lead, w = (z, torch.stack([labels, 1 - labels])) if form == PAIRWISE else (one - other, labels)
            return torch.nn.functional.binary_cross_entropy_with_logits(lead, w)

    return PreferenceLoss()


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

    The last three are NaN where nothing was held out.
    """

    judge: DistilledJudge
    trained: int
    held_out: int
    loss: float
    least_loss: float
    agreement: float

    def rows(self) -> list[tuple[str, str]]:
        """Return it as rows of a table."""
        return [
            ("judgements trained on", f"{self.trained:,}"),
            ("judgements held out", f"{self.held_out:,}"),
            ("loss on them", number(self.loss)),
            ("the least it can be", number(self.least_loss)),
            ("prefers what its teachers do", number(self.agreement)),
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
    form: str = SCORES,
    epochs: int = 1,
    learning_rate: float = 5e-5,
    max_length: int = 256,
    held_out: float = 0.1,
    seed: int = 0,
    device: str | None = None,
    name: str = "distilled",
) -> Distilled:
    """Train a cross-encoder on recorded judgements w = P(i ≻ j), by `preference_loss`.

    One that scores can say less than one that reads both documents, learns from far fewer judgements, and answers with
    one pass a document instead of two a pair. A base with one output keeps its head. Labels stay soft, so that it
    learns how sure its teachers are. A step has 32 logits of pairs.

    Args:
        base: the model to begin with: a folder or hub name.
        candidates: queries and documents.
        pairs: that were judged.
        preference: (m,) w in [0, 1], as an ensemble's mean; NaN: missing, left out.
        form: `pairwise` or `scores`.
        epochs: passes, at least 1.
        learning_rate: the peak; linear decay after a tenth of the steps.
        max_length: tokens of query and document, or of query and both documents.
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
    datasets = require("datasets", "train")
    from foils.training.fit import fit
    from foils.training.settings import TrainSettings

    check_names("form of a distilled judge", [form], FORMS)
    candidates.check(pairs)
    w = checked_preference(pairs, preference)
    if not 0 <= held_out < 1:
        raise InputError(f"held_out {held_out}; expected in [0, 1)")
    batch = 16 if form == PAIRWISE else 32  # of the first a judgement has two logits
    settings = TrainSettings(epochs=epochs, batch_size=batch, learning_rate=learning_rate, seed=seed)
    aside = np.random.default_rng(seed).random(pairs.queries) < held_out
    known, apart = np.isfinite(w), aside[pairs.query]
    shown, held = pairs.where(known & ~apart), pairs.where(known & apart)
    if not len(shown):
        raise InputError(f"{int(known.sum())} judgements, none of a query to train on; give more, or hold out less")

    def looked_up(rows: dict[str, Any]) -> dict[str, Any]:
        queries, first, second = texts_of(candidates, np.array(rows["first"]), np.array(rows["second"]))
        return {"query": queries, "first": first, "second": second, "label": rows["label"]}

    judged = pa.table({"first": shown.first, "second": shown.second, "label": w[known & ~apart]})
    model = load_cross_encoder(base, max_length=max_length, device=device, new_head=True, seed=seed)
    with tempfile.TemporaryDirectory() as folder:
        fit(
            model, Path(folder), dataset=datasets.Dataset(judged).with_transform(looked_up),
            loss=preference_loss(model, form), settings=settings, save_strategy="no",
        )  # fmt: skip
    judge = PairwiseJudge(model, name=name) if form == PAIRWISE else CrossEncoderJudge(model, name=name)
    return Distilled(judge, len(shown), len(held), *_measure(judge, candidates, held, w[known & apart]))


def _measure(judge: DistilledJudge, candidates: Candidates, pairs: Pairs, w: Floats) -> tuple[float, float, float]:
    """Loss, least loss and agreement on these pairs."""
    if not len(pairs):
        return (float("nan"),) * 3
    p = np.clip(ask(judge, candidates, pairs).preference, 1e-12, 1 - 1e-12)
    loss = float(-(w * np.log(p) + (1 - w) * np.log1p(-p)).mean())
    least = float(-(xlogy(w, w) + xlogy(1 - w, 1 - w)).mean())
    sided = w != 0.5
    agreement = float(((p > 0.5) == (w > 0.5))[sided].mean()) if sided.any() else float("nan")
    return loss, least, agreement
