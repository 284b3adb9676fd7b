"""Loading cross-encoders, telling them apart, asking them."""

from __future__ import annotations

import numpy as np
import pytest

from foils.encode.cross_encoders import cross_encoder_digest, load_cross_encoder, logits
from foils.errors import InputError
from tiny_models import tiny_cross_encoder

PAIRS = [("a boat", "a boat in the wind"), ("a boat", "bread"), ("bread", "bread of wheat in the wind")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_cross_encoder(tmp_path_factory.mktemp("cross"), [text for pair in PAIRS for text in pair])


def test_logits_come_before_the_activation(folder):
    import torch

    model = load_cross_encoder(folder)
    found = logits(model, PAIRS)
    assert found.dtype == np.float32
    assert 1 / (1 + np.exp(-found)) == pytest.approx(model.predict(PAIRS, activation_fn=torch.nn.Sigmoid()), abs=1e-6)
    assert logits(model, PAIRS, batch_size=1) == pytest.approx(found, abs=1e-6)
    assert logits(model, []).shape == (0,)


def test_the_digest_is_of_weights_and_length(folder):
    import torch

    model = load_cross_encoder(folder)
    found = cross_encoder_digest(model)
    assert cross_encoder_digest(load_cross_encoder(folder)) == found
    assert cross_encoder_digest(load_cross_encoder(folder, max_length=8)) != found
    with torch.no_grad():
        next(model.parameters()).add_(0.25)
    assert cross_encoder_digest(model) != found


def test_refusals(folder, tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        load_cross_encoder(tmp_path / "none")
    with pytest.raises(InputError, match="cannot load the cross-encoder"):
        load_cross_encoder(tmp_path)
    several = tiny_cross_encoder(tmp_path, ["a"], outputs=3)
    with pytest.raises(InputError, match="has 3 outputs"):
        load_cross_encoder(several)
