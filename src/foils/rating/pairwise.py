"""Small judges that an ensemble's judgements are distilled into: one reads both documents, another scores each."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import expit

from foils.data.records import whole_json
from foils.encode.cross_encoders import load_cross_encoder, logits
from foils.rating.candidates import Candidates
from foils.rating.judges import Judge
from foils.rating.pairs import Floats, Pairs, Rows
from foils.rating.score_judges import CrossEncoderJudge, load_cross_encoder_judge
from foils.runtime.errors import FormatError, InputError

if TYPE_CHECKING:
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


def texts_of(candidates: Candidates, first: Rows, second: Rows) -> tuple[list[str], list[str], list[str]]:
    """Return the query's, first and second text of pairs of candidates; each text is looked up once."""
    rows, place = np.unique(np.concatenate([first, second]), return_inverse=True)
    texts = candidates.texts(rows)
    queries = [candidates.queries[row] for row in candidates.query_of(first)]
    return queries, [texts[row] for row in place[: len(first)]], [texts[row] for row in place[len(first) :]]


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
