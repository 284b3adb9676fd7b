"""Small judges that the answers of others are distilled into: one scores each document, another reads both."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy.special import expit, xlogy

from foils.data.records import whole_json
from foils.encode.encoder import logits
from foils.encode.models import load_cross_encoder, seal_weights
from foils.rating.estimators import checked_preference
from foils.rating.judges import CrossEncoderJudge, Judge
from foils.rating.pairs import Candidates, Floats, Pairs, texts_of
from foils.rating.session import ask
from foils.runtime.errors import InputError, check_names, require
from foils.runtime.files import fill_folder, write_json

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

PARAGRAPH = "\n\n"  # separates where a tokenizer has no separator
CARD = "pairwise.json"
PAIRWISE, SCORES = "pairwise", "scores"
FORMS = (PAIRWISE, SCORES)
KIND = "pairwise judge 1"  # what the card of one that reads both documents says


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
        queries, first, second = texts_of(candidates, pairs.first, pairs.second)
        shown = triples(self.model, queries, first, second) + triples(self.model, queries, second, first)
        scores = logits(self.model, shown).astype(np.float64) if shown else np.zeros(0)
        forward, backward = np.where(np.isfinite(scores), scores, np.nan).reshape(2, -1) / self._temperature
        return np.asarray((expit(forward) + expit(-backward)) / 2)


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
    tokenizer, separator, length = model.tokenizer, model.tokenizer.sep_token, int(model.max_seq_length)
    if not getattr(tokenizer, "is_fast", False):
        raise InputError("a pairwise judge needs a fast tokenizer, as BERT's; take another model")
    of_query, blank = length // 4, len(tokenizer(PARAGRAPH, add_special_tokens=False)["input_ids"])
    special = tokenizer.num_special_tokens_to_add(pair=True) + (1 if separator else 2 * blank)

    def cut(texts: Sequence[str], tokens: int) -> list[str]:
        clean = [text.replace(separator or PARAGRAPH, " ") for text in texts]
        at = tokenizer(clean, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
        return [text if len(of) <= tokens else text[: of[tokens - 1][1]] for text, of in zip(clean, at, strict=True)]

    if not len(queries):
        return []
    ones, others = (cut(texts, (length - of_query - special) // 2) for texts in (first, second))
    after, between = ("", f" {separator} ") if separator else (PARAGRAPH, PARAGRAPH)
    return [
        (f"{query}{after}", f"{one}{between}{other}")
        for query, one, other in zip(cut(queries, of_query), ones, others, strict=True)
    ]


DistilledJudge = PairwiseJudge | CrossEncoderJudge


def save_judge(judge: DistilledJudge, folder: str | Path) -> None:
    """Write a distilled judge's model (safetensors) and tokenizer to a folder, with a card where it reads both texts.

    One that scores is a cross-encoder like any other.

    Raises:
        InputError: there is something at `folder` already.
    """
    check_free(Path(folder))
    with fill_folder(folder) as aside:
        judge.model.save_pretrained(str(aside), create_model_card=False, safe_serialization=True)
        if isinstance(judge, PairwiseJudge):
            write_json(aside / CARD, {"kind": KIND})
        seal_weights(aside)


def load_pairwise_judge(folder: str | Path, *, temperature: float = 1.0, device: str | None = None) -> DistilledJudge:
    """Load a judge that `save_judge` wrote, or another cross-encoder as one that scores.

    Raises:
        InputError: the folder holds no cross-encoder.
        FormatError: its card is damaged.
    """
    folder = Path(folder)
    card = whole_json(folder / CARD) if (folder / CARD).is_file() else {}
    judge = PairwiseJudge if card.get("kind") == KIND else CrossEncoderJudge
    return judge(load_cross_encoder(folder, device=device), temperature=temperature, name=folder.name)


def check_free(folder: Path) -> None:
    """Raise an InputError where something is at `folder` already."""
    if folder.exists():
        raise InputError(f"{folder} is there already; choose another folder, or remove it")


@dataclass(frozen=True)
class Distilled:
    """A trained judge, and how it does on queries that it was not trained on.

    Attributes:
        judge: ready to be asked, or saved.
        trained: judgements trained on.
        held_out: judgements of the queries held out.
        loss: mean of −w log p − (1 − w) log(1 − p) over them, p the distilled judge's answer, w its teacher's.
        agreement: share of them in which both prefer the same document, of those where the teacher prefers one.

    The last two are NaN where nothing was held out.
    """

    judge: DistilledJudge
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
    form: str = SCORES,
    epochs: int = 1,
    learning_rate: float = 5e-5,
    max_length: int = 256,
    held_out: float = 0.1,
    seed: int = 0,
    device: str | None = None,
    name: str = "distilled",
) -> Distilled:
    """Train a cross-encoder on recorded judgements w = P(i ≻ j), by −w log σ(z) − (1 − w) log(1 − σ(z)).

    - scores: z = s(q, d_i) − s(q, d_j), s the model's logits (Burges et al. 2005, RankNet, with soft labels;
      Bradley–Terry, ANMI 2.0 eq. 22, with scores for ratings): the loss listnet of a list of both, whose shares are w
      and 1 − w.
    - pairwise: z(q, d_i, d_j) with w and z(q, d_j, d_i) with 1 − w, z the model's logits of `triples`: the loss binary.

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
    from foils.training.reranker import RERANKER_LOSSES
    from foils.training.settings import TrainSettings

    check_names("form of a distilled judge", [form], FORMS)
    candidates.check(pairs)
    w = checked_preference(pairs, preference)
    if not 0 <= held_out < 1:
        raise InputError(f"held_out {held_out}; expected in [0, 1)")
    batch = 16 if form == PAIRWISE else 32  # of the first a judgement has two logits
    settings = TrainSettings(epochs=epochs, batch_size=batch, learning_rate=learning_rate, max_length=None, seed=seed)
    aside = np.random.default_rng(seed).random(pairs.queries) < held_out
    known, apart = np.isfinite(w), aside[pairs.query]
    shown, held, answers = pairs.where(known & ~apart), pairs.where(known & apart), w[known & apart]
    if not len(shown):
        raise InputError(f"{int(known.sum())} judgements, none of a query to train on; give more, or hold out less")
    model = load_cross_encoder(base, max_length=max_length, device=device, new_head=True, seed=seed)

    def looked_up(rows: dict[str, Any]) -> dict[str, Any]:
        queries, first, second = texts_of(candidates, np.array(rows["first"]), np.array(rows["second"]))
        lists: Any = list(zip(first, second, strict=True))
        if form == PAIRWISE:
            forward, backward = triples(model, queries, first, second), triples(model, queries, second, first)
            queries = [q for q, _ in forward]
            lists = [[one, other] for (_, one), (_, other) in zip(forward, backward, strict=True)]
        shares = np.stack([rows["w"], 1 - np.array(rows["w"])], 1)
        with np.errstate(divide="ignore"):
            targets = shares if form == PAIRWISE else np.log(shares)
        labels = np.stack([targets, np.ones_like(shares), np.full_like(shares, np.nan)], 1)
        return {"query": queries, "documents": lists, "label": labels.tolist()}

    judged = datasets.Dataset(pa.table({"first": shown.first, "second": shown.second, "w": w[known & ~apart]}))
    loss = RERANKER_LOSSES["binary" if form == PAIRWISE else "listnet"].make(model)
    with tempfile.TemporaryDirectory() as folder:
        fit(model, Path(folder), dataset=judged.with_transform(looked_up), loss=loss, settings=settings,
            save_strategy="no")  # fmt: skip
    judge = PairwiseJudge(model, name=name) if form == PAIRWISE else CrossEncoderJudge(model, name=name)
    if not len(held):
        return Distilled(judge, len(shown), 0, float("nan"), float("nan"))
    p, sided = np.clip(ask(judge, candidates, held).preference, 1e-12, 1 - 1e-12), answers != 0.5
    agreement = float(((p > 0.5) == (answers > 0.5))[sided].mean()) if sided.any() else float("nan")
    return Distilled(
        judge, len(shown), len(held), float(-(xlogy(answers, p) + xlogy(1 - answers, 1 - p)).mean()), agreement
    )
