"""Training in little memory: low-rank adapters (LoRA) through PEFT, and gradient checkpointing. Needs torch.

A layer's weights W stay as they are; W + (α/r)·BA is used, and B (out × r) and A (r × in) are trained. So gradients and
the optimizer's state are those of a few weights, and a checkpoint holds these alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from foils.encode.adapters import merge_adapters
from foils.runtime.errors import FormatError, InputError, require
from foils.runtime.options import spelled

ALPHA, DROPOUT = 2, 0.05  # α of a rank, and the share of an adapter's inputs that is dropped
WEIGHTS = "foils_adapter.safetensors"


def add_adapters(model: Any, rank: int, *, seed: int) -> None:
    """Give every linear layer of a model's transformer a low-rank adapter, and freeze all other weights.

    Adapters that it has already are merged first. The output layer of a language model has none. α is twice the rank,
    dropout 0.05; B begins with zeros, so that the model is what it was. Adapters are of float32, whatever the model is.

    Args:
        model: a SentenceTransformer or a CrossEncoder; it is changed.
        rank: r, at least 1.
        seed: of A.

    Raises:
        InputError: a model without a transformer, as a static embedding.
        MissingExtraError: peft is not installed.

    Source: Hu et al. 2022, "LoRA"; all linear layers as in Dettmers et al. 2023, "QLoRA".
    """
    inner = transformer_of(model, "lora")
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
    base = config.base_model_name_or_path
    if base and Path(base).is_dir():
        config.base_model_name_or_path = str(Path(base).absolute())


def merge_trained(model: Any) -> None:
    """Make the adapters of a trained model part of its weights, none of which stays frozen."""
    merge_adapters(model)
    model.requires_grad_(True)


def trained_weights(model: Any) -> dict[str, torch.Tensor]:
    """Return the weights that are trained, by name."""
    return {name: each.detach() for name, each in model.named_parameters() if each.requires_grad}


class AdapterCheckpoints:
    """What a trainer of sentence-transformers takes before its class, for checkpoints of the trained weights alone."""

    model: Any

    def _save(self, output_dir: str, state_dict: Any = None) -> None:
        from safetensors.torch import save_file

        Path(output_dir).mkdir(parents=True, exist_ok=True)
        weights = {name: each.contiguous() for name, each in trained_weights(self.model).items()}
        save_file(weights, Path(output_dir) / WEIGHTS)

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        path, own = Path(checkpoint_path) / WEIGHTS, trained_weights(self.model)
        try:
            saved = load_file(path)
        except (SafetensorError, OSError) as error:
            raise FormatError(f"no adapters, or damaged ones ({error}); start anew", path) from error
        if {name: each.shape for name, each in saved.items()} != {name: each.shape for name, each in own.items()}:
            raise FormatError(f"adapters of another model or rank than {spelled('lora')} gives; start anew", path)
        for name, each in own.items():
            each.copy_(saved[name])


@contextmanager
def checkpointed(model: Any) -> Iterator[None]:
    """Let a model compute its activations again in the backward pass instead of keeping them: less memory, more time.

    Values and gradients are the same to rounding.

    Raises:
        InputError: a model without a transformer, as a static embedding, or one that cannot.

    Source: Chen et al. 2016, "Training deep nets with sublinear memory cost".
    """
    inner = transformer_of(model, "gradient_checkpointing")
    if not getattr(inner, "supports_gradient_checkpointing", False):
        named = spelled("gradient_checkpointing", "true")
        raise InputError(f"{named}: a model of type {type(inner).__name__} has none; leave it out")
    name = "activation" if hasattr(inner, "activation_checkpointing_enable") else "gradient"  # the older name
    getattr(inner, f"{name}_checkpointing_enable")({"use_reentrant": False})
    try:
        yield
    finally:
        getattr(inner, f"{name}_checkpointing_disable")()


def transformer_of(model: Any, setting: str) -> Any:
    """Return the model's transformer, which a setting of this name needs.

    Raises:
        InputError: it has none.
    """
    inner = getattr(model, "transformers_model", None)
    if inner is None:
        raise InputError(f"{spelled(setting)}: the model has no transformer, as a static embedding has none, whose "
                         "training takes little memory; leave it out")  # fmt: skip
    return inner
