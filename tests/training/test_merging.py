"""Weights between two models', by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("sentence_transformers")

import torch

from foils.runtime.errors import InputError
from foils.training.models import merged
from train_models import bert_model, static_model


@pytest.mark.parametrize("alpha", [0.0, 0.25, 1.0])
def test_every_weight_lies_between(alpha: float) -> None:
    base, tuned = static_model(0), static_model(1)
    first, second = (next(iter(model.state_dict().values())).clone() for model in (base, tuned))
    between = next(iter(merged(base, tuned, alpha).state_dict().values()))
    torch.testing.assert_close(between, (1 - alpha) * first + alpha * second)
    torch.testing.assert_close(next(iter(base.state_dict().values())), first, rtol=0, atol=0)
    for end, weights in ((0.0, first), (1.0, second)):
        if alpha == end:
            torch.testing.assert_close(between, weights, rtol=0, atol=0)


def test_a_transformer_merged_with_itself_is_itself(tmp_path: Path) -> None:
    base, same = bert_model(tmp_path), bert_model(tmp_path)
    before = base.encode(["ba be"])
    assert merged(base, same, 0.5).encode(["ba be"]) == pytest.approx(before)


def test_what_cannot_be_merged(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"alpha 1\.5; expected a number from 0 to 1"):
        merged(static_model(), static_model(), 1.5)
    with pytest.raises(InputError, match="1 weights are not of the same names and shapes"):
        merged(static_model(), static_model(dimension=8), 0.5)
