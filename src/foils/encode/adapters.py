"""Adapters of PEFT, merged into the models that they were trained for."""

from __future__ import annotations

from typing import Any, TypeVar

Model = TypeVar("Model")


def merge_adapters(model: Model) -> Model:
    """Return a model whose adapters, where it has any, are part of its weights, so that it is one like any other.

    Of LoRA a layer's weights become W + (α/r)·BA, in W's own precision.

    Args:
        model: a SentenceTransformer or a CrossEncoder; it is changed.

    Source: Hu et al. 2022, "LoRA", section 4.1.
    """
    inner: Any = getattr(model, "transformers_model", None)
    if not getattr(inner, "_hf_peft_config_loaded", False):
        return model
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [(name, layer) for name, layer in inner.named_modules() if isinstance(layer, BaseTunerLayer)]
    for name, layer in layers:
        layer.merge()
        inner.set_submodule(name, layer.get_base_layer())
    inner._hf_peft_config_loaded = False
    del inner.peft_config
    return model
