"""Models to train: learning rates by kind, low-rank adapters (LoRA), and merged weights.

With adapters a layer's weights W stay as they are; W + (α/r)·BA is used, and B (out × r) and A (r ×
in) are trained. So gradients and the optimizer's state are those of a few weights, and a checkpoint
holds these alone. Needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foils.encode.encoder import PROMPT_NAMES, Kind, prompt_of
from foils.encode.models import is_routed, is_static, length_of, load_model, merge_adapters, similarity_of
from foils.encode.tokens import Text, plain_tokenizer
from foils.runtime.errors import FormatError, InputError, require
from foils.runtime.options import Option, spelled
from foils.training.settings import OPEN, TrainSettings

LEARNING_RATES = {
    "static embedding": (3e-3, None),
    "language model": (3e-4, 128),
    "encoder": (2e-5, None),
    "reranker": (1e-4, 128),
}
"""Kind of model → peak learning rate where none is given, and the width (hidden size) of the
transformer that it was chosen on (None: the same for every width), by a grid on held-out training
queries that is no longer in benchmarks."""
PLAIN_BATCHES = {"static embedding": 128, "language model": 64, "encoder": 64, "reranker": 16}
"""Kind of model → rows of a batch of the plain recipe; of a reranker lists."""
PAIRS = 64
"""Pairs of a batch of the plain recipe, of a reranker that learns from pairs."""
FEWEST_STEPS = 200
"""Steps of the plain recipe where an epoch has fewer."""
MOST_EPOCHS = 40
"""Epochs of the plain recipe at most."""
QUICK, QUICK_STEPS = 3.0, 600
"""In few steps an encoder learns better at a higher rate: its usual one times 600 / steps, 3 at most."""
LENGTHS = (64, 128, 256, 512)
"""Tokens at which training cuts texts, where that is short enough; else at the model's own length."""
CUT_SHARE = 0.05
"""Share of the documents' tokens that may be cut."""
OF_ADAPTERS = 10
"""Adapters' learning rate, times that of the weights (Schulman et al. 2025, "LoRA without regret")."""


def kind_of(model: Any) -> str:
    """Return which of `LEARNING_RATES` a loaded model is.

    - static embedding: its input module looks up word vectors (StaticEmbedding).
    - encoder: it was saved as an embedding model, with its modules; it is trained further.
    - language model: a transformer that was loaded without modules of its own (or put together by
      hand), whose vectors nobody trained yet.
    - reranker: a CrossEncoder.

    Args:
        model: a SentenceTransformer or a CrossEncoder.
    """
    from sentence_transformers import CrossEncoder

    if isinstance(model, CrossEncoder):
        return "reranker"
    if is_static(model):
        return "static embedding"
    return "encoder" if model.module_kwargs else "language model"


def learning_rate_of(model: Any, *, lora: bool = False) -> float:
    """Return a model's default peak learning rate: its kind's, in inverse proportion to a larger width.

    rate · min(1, measured width / width). Adam's best learning rate falls with the width of a
    transformer's layers (Yang et al. 2022, Tensor Programs V): what suits a model of width 128
    breaks one of width 768.

    Args:
        model: a SentenceTransformer or a CrossEncoder.
        lora: whether adapters are trained, which take ten times the rate of the weights themselves.
    """
    rate, measured = LEARNING_RATES[kind_of(model)]
    rate *= OF_ADAPTERS if lora else 1
    width = getattr(getattr(model.transformers_model, "config", None), "hidden_size", None)
    return rate if measured is None or not isinstance(width, int) else rate * min(1.0, measured / width)


def plain_recipe(rows: int, model: Any, asked: TrainSettings = OPEN, *, pointwise: bool = False) -> TrainSettings:
    """Return the settings of a plain training: what `foils train` does where nothing else is said.

    - Batches of 64 rows (of a word table 128, of a reranker 16 lists or 64 pairs), or fewer where
      there are not four.
    - One epoch, or 200 steps where it has fewer, but 40 epochs at most: little data is gone over
      several times.
    - The learning rate of `learning_rate_of`; of an encoder times 600 / steps, at least 1 and at most 3.
    - The rate rises over the first tenth of the steps, and falls linearly to 0, as in every training.

    Args:
        rows: rows to train on, at least 1.
        model: a SentenceTransformer or a CrossEncoder.
        asked: settings that hold where they are not None; the others suit them.
        pointwise: whether the rows are a reranker's pairs, not its lists.
    """
    kind, size = kind_of(model), asked.batch_size
    if size is None:
        size = PAIRS if pointwise else PLAIN_BATCHES[kind]
        while size > 16 and 4 * size > rows:
            size //= 2
    chosen = {name: value for name, value in vars(asked).items() if value is not None}
    settings = TrainSettings(**{**chosen, "batch_size": size})
    one_epoch = settings.steps_of(rows)
    if asked.steps is None and asked.epochs is None:
        settings = replace(settings, steps=max(one_epoch, min(FEWEST_STEPS, MOST_EPOCHS * one_epoch)))
    settings = with_defaults(settings, model)
    if kind == "encoder" and asked.lora is None and asked.learning_rate is None:
        quicker = min(QUICK, max(1.0, QUICK_STEPS / settings.steps_of(rows)))
        settings = replace(settings, learning_rate=quicker * learning_rate_of(model))
    return settings


@dataclass(frozen=True)
class TrainingLength:
    """Where training cuts texts.

    Attributes:
        tokens: after how many tokens; None: nowhere.
        cut: share of the documents' tokens that are cut there.
    """

    tokens: int | None
    cut: float


def training_length(model: Any, documents: Sequence[Text], *, tokens: int | None = None) -> TrainingLength:
    """Return the shortest of 64, 128, 256, 512 tokens that cuts fewer than 5 % of the documents' tokens.

    It is the model's own length where that is shorter, or where all of them cut more.

    Args:
        model: a SentenceTransformer or a CrossEncoder.
        documents: a sample of them; for a CrossEncoder pairs of a query and a document.
        tokens: the length, where it is chosen already, and only what it cuts is asked for.
    """
    model_length = length_of(model)
    if is_static(model) or not len(documents):
        return TrainingLength(None, 0.0)
    tokenizer = plain_tokenizer(model, pairs=not isinstance(documents[0], str))
    if tokenizer is None:  # of a model whose preprocessing is its own: nobody knows what is cut
        return TrainingLength(model_length if tokens is None else tokens, math.nan)
    lengths = tokenizer.uncut()(documents).lengths

    def cut(length: int) -> float:
        return float(np.maximum(lengths - length, 0).sum() / lengths.sum())

    longest = int(lengths.max()) if model_length is None else model_length
    if tokens is None:
        short = (length for length in LENGTHS if length < longest and cut(length) < CUT_SHARE)
        tokens = next(short, model_length)
    return TrainingLength(tokens, 0.0 if tokens is None else cut(min(tokens, longest)))


def with_defaults(settings: TrainSettings, model: Any) -> TrainSettings:
    """Return the settings with the loss and the learning rate that suit the model where they have none.

    Encoders have mnrl, rerankers listnet, and the rate is that of `learning_rate_of`.
    """
    usual: dict[str, Any] = {"loss": "listnet" if kind_of(model) == "reranker" else "mnrl"}
    usual |= {"learning_rate": learning_rate_of(model, lora=settings.lora is not None)}
    missing = {name: value for name, value in usual.items() if getattr(settings, name) is None}
    return replace(settings, **missing) if missing else settings


def load_trainable(
    model: str | Path | Any,
    *,
    reranker: bool = False,
    seed: int = 0,
    device: str | None = None,
    similarity: str | None = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    trust_remote_code: bool = False,
) -> Any:
    """Return a SentenceTransformer or a CrossEncoder to train.

    Args:
        model: a folder, a hub name, the embedded all-MiniLM-L6-v2, or `static:` before one of them,
            which trains in seconds; or a loaded model, to which the similarity and the prompts
            apply.
        reranker: whether it is a CrossEncoder.
        seed: of a CrossEncoder's head that its files lack.
        device: torch device; None: the first one available.
        similarity: cosine or dot: how it compares vectors from now on, in loss, measure and the
            saved model; None: its own.
        query_prompt: the model's prompt for queries from now on, of a CrossEncoder for pairs, as
            `foils.encode.encoder.prompt_of` takes it.
        document_prompt: its prompt for documents, likewise.
        trust_remote_code: run code that comes with the model.

    Raises:
        InputError: there is no such model, it has no word table, or the similarity is neither cosine nor dot.
        UnknownNameError: a prompt `@NAME` that the model does not have.
    """
    if isinstance(model, (str, Path)):
        from foils.encode.models import load_cross_encoder

        options: dict[str, Any] = {"device": device, "new_head": True, "trust_remote_code": trust_remote_code}
        model = load_cross_encoder(model, seed=seed, **options) if reranker else load_model(model, **options)
    if similarity is not None:
        model.similarity_fn_name = similarity_of(model, similarity)
    asked: dict[Kind, str | None] = {"query": query_prompt, "document": document_prompt}
    for kind, prompt in asked.items():
        if prompt is not None:
            names, text = PROMPT_NAMES[kind], prompt_of(model, kind, prompt)
            others = {name: other for name, other in (model.prompts or {}).items() if name not in names}
            model.prompts = {**others, names[0]: text}
            if reranker:
                model.default_prompt_name = names[0]
    return model


def types_of(model: Any) -> dict[str, torch.dtype]:
    """Return the type of each of a model's floating-point tensors, by name."""
    return {name: each.dtype for name, each in model.state_dict().items() if each.is_floating_point()}


def cast(model: Any, types: Mapping[str, torch.dtype]) -> None:
    """Give a model's tensors these types, as `types_of` returned them; others stay as they are."""
    tensors = dict(chain(model.named_parameters(), model.named_buffers()))
    for name, dtype in types.items():
        if name in tensors:
            tensors[name].data = tensors[name].data.to(dtype)


ALPHA, DROPOUT = 2, 0.05  # α of a rank, and the share of an adapter's inputs that is dropped
WEIGHTS = "foils_adapter.safetensors"


def add_adapters(model: Any, rank: int, *, seed: int) -> None:
    """Give every linear layer of a model's transformer a low-rank adapter, and freeze all other weights.

    Adapters that it has already are merged first. The output layer of a language model has none. α
    is twice the rank, dropout 0.05; B begins with zeros, so that the model is what it was. Adapters
    are of float32, whatever the model is.

    Args:
        model: a SentenceTransformer or a CrossEncoder; it is changed.
        rank: r, at least 1.
        seed: of A.

    Raises:
        InputError: a model without a transformer, as a static embedding, or with several, as a Router.
        MissingExtraError: peft is not installed.

    Source: Hu et al. 2022, "LoRA"; all linear layers as in Dettmers et al. 2023, "QLoRA".
    """
    inner = transformer_of(model, "lora")
    if is_routed(model):
        raise InputError(f"{spelled('lora')}: the model is a Router, whose routes are trained whole; leave it out")
    peft = require("peft", "lora")
    merge_adapters(model)
    model.requires_grad_(False)
    config = peft.LoraConfig(r=rank, lora_alpha=ALPHA * rank, lora_dropout=DROPOUT, target_modules="all-linear")
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        inner.add_adapter(config)
    for each in model.parameters():
        if each.requires_grad:
            each.data = each.data.float()


def restore(tensors: Mapping[str, torch.Tensor], path: Path, what: str) -> None:
    """Fill tensors with what a checkpoint saved under their names.

    Raises:
        FormatError: the file is damaged, or of tensors with other names or shapes.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        saved = load_file(path)
    except (SafetensorError, OSError) as error:
        raise FormatError(f"damaged {what} ({error}); remove its checkpoint", path) from error
    if {name: value.shape for name, value in saved.items()} != {name: value.shape for name, value in tensors.items()}:
        raise FormatError(f"{sorted(saved)[:3]} of another training, which has {sorted(tensors)[:3]}; start anew", path)
    with torch.no_grad():
        for name, value in tensors.items():
            value.copy_(saved[name])


class AdapterCheckpoints:
    """Put before a trainer of sentence-transformers: its checkpoints hold the trained weights alone."""

    model: Any

    def _save(self, output_dir: str, state_dict: Any = None) -> None:
        from safetensors.torch import save_file

        Path(output_dir).mkdir(parents=True, exist_ok=True)
        save_file(self._trained(), Path(output_dir) / WEIGHTS)

    def _trained(self) -> dict[str, torch.Tensor]:
        return {name: each.detach() for name, each in self.model.named_parameters() if each.requires_grad}

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        restore(self._trained(), Path(checkpoint_path) / WEIGHTS, "adapters")


def transformer_of(model: Any, setting: str) -> Any:
    """Return the model's transformer, which a setting of this name needs.

    Raises:
        InputError: it has none.
    """
    inner = getattr(model, "transformers_model", None)
    if inner is None:
        raise InputError(f"{spelled(setting)}: the model has no transformer, as a static embedding has none, "
                         "whose training takes little memory; leave it out")  # fmt: skip
    return inner


def switch_off_dropout(model: torch.nn.Module) -> None:
    """Let a model drop nothing while it is trained, for more steps in the same time; its settings stay."""
    for each in model.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0


def merged(base: Any, tuned: Any, alpha: float) -> Any:
    """Return `tuned`, its weights changed to (1 − α)·base + α·tuned.

    Sums are made in float64 and kept in the tuned model's precision. Tensors of whole numbers stay
    the tuned model's.

    Args:
        base: a SentenceTransformer; it stays as it is.
        tuned: one of the same architecture; it is changed.
        alpha: α in [0, 1]; 0 gives the base's weights, 1 the tuned model's.

    Raises:
        InputError: α out of range, or models whose weights are not of the same names and shapes.

    Source: Wortsman et al. 2022 (WiSE-FT), eq. 1.
    """
    Option(least=0, most=1).check("alpha", alpha)
    first, second = base.state_dict(), tuned.state_dict()
    shapes, others = ({name: value.shape for name, value in state.items()} for state in (first, second))
    apart = sorted(name for name in {**first, **second} if shapes.get(name) != others.get(name))
    if apart:
        raise InputError(
            f"{len(apart)} weights are not of the same names and shapes (first: {apart[0]}); only a model "
            "and what was trained from it can be merged"
        )
    with torch.no_grad():
        for name, value in second.items():
            if value.is_floating_point():
                between = (1 - alpha) * first[name].double().to(value.device) + alpha * value.double()
                value.copy_(between)
    return tuned
