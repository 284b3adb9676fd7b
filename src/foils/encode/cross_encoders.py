"""Cross-encoders: loading them, the digest of everything that decides a score, and their numbers for pairs."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from foils.encode.encoder import model_outputs, pads_texts, weights_digest
from foils.encode.models import ADVICE, CROSS_ENCODER, STATIC, check_hub, find_model, loaded, set_length
from foils.runtime.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


def load_cross_encoder(
    name: str | Path,
    *,
    max_length: int | None = None,
    device: str | None = None,
    new_head: bool = False,
    seed: int = 0,
    trust_remote_code: bool = False,
) -> CrossEncoder:
    """Load a sentence-transformers cross-encoder (safetensors weights) with one output, by folder or hub name.

    An adapter is merged into its base (`merge_adapters`).

    Args:
        name: a folder, or a hub's owner/name.
        max_length: in tokens, of query and document together; None: the model's own.
        device: torch device; None: the first one available.
        new_head: for training: a model without one output gets it.
        seed: of weights that the files do not have.
        trust_remote_code: run code that the model brings along.

    Raises:
        InputError: there is no such model, it cannot be loaded, it has several outputs, its files lack weights or have
            others, or it is a model of another kind, as a word table.
    """
    if str(name).startswith(STATIC):
        word_table = "is a word table, which gives each text a vector by itself and reads no pairs"
        raise InputError(f"{name} {word_table}; {ADVICE[CROSS_ENCODER]}")
    check_hub(find_model(name), "cross-encoder")
    model: CrossEncoder = loaded(
        CROSS_ENCODER, "cross-encoder", name, device=device, trust_remote_code=trust_remote_code, new_head=new_head,
        seed=seed, num_labels=1 if new_head else None,
    )  # fmt: skip
    set_length(model, max_length)
    check_one_output(model, Path(str(find_model(name))).name)
    return model


def check_one_output(model: CrossEncoder, name: str) -> None:
    """Refuse a cross-encoder that does not give one number for a pair of texts.

    Raises:
        InputError: it has several outputs.
    """
    if model.num_labels != 1:
        raise InputError(f"{name} has {model.num_labels} outputs; expected a cross-encoder with one score per pair")


def cross_encoder_digest(model: CrossEncoder) -> str:
    """Return a digest of everything that decides a logit: weights, tokenizer, maximum length, prompts, modules."""
    length = getattr(model, "max_seq_length", None) or model.max_length  # the older name warns in newer versions
    prompts = (getattr(model, "default_prompt_name", None), sorted((getattr(model, "prompts", None) or {}).items()))
    return hashlib.blake2b(repr((weights_digest(model), length, prompts)).encode(), digest_size=16).hexdigest()


def logits(
    model: CrossEncoder, pairs: Sequence[tuple[str, str]], *, batch_size: int | None = None
) -> npt.NDArray[np.float32]:
    """Return (n,) the model's numbers for (query, document) pairs, before any activation; NaN stays NaN.

    Args:
        model: with one output.
        pairs: n.
        batch_size: pairs at once; None: as many as its tokens allow.
    """
    import torch
    from sentence_transformers import CrossEncoder

    if not len(pairs):
        return np.zeros(0, np.float32)
    plain = getattr(model.predict, "__func__", None) is CrossEncoder.predict and pads_texts(model)
    if plain:
        prompt = (model.prompts or {}).get(str(model.default_prompt_name), "")
        return model_outputs(model, pairs, 1, output="scores", prompt=prompt, size=batch_size)[:, 0]
    found = model.predict(
        list(pairs), batch_size=batch_size or 32, show_progress_bar=False, activation_fn=torch.nn.Identity()
    )
    return np.asarray(found, np.float32).reshape(len(pairs))


def activated(model: CrossEncoder, values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return what `model.predict` makes of logits, of any shape: by the model's own activation, often the sigmoid."""
    import torch

    return np.asarray(model.activation_fn(torch.as_tensor(np.asarray(values, np.float32))), np.float64)
