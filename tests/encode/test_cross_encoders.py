"""Loading cross-encoders, telling them apart, asking them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foils.encode.cross_encoders import cross_encoder_digest, load_cross_encoder, logits
from foils.runtime.errors import InputError
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
    assert logits(model, PAIRS, batch_size=1) == pytest.approx(found, rel=1e-5, abs=1e-5)
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


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A masked language model: neither a pooler nor a classifier is in its file."""
    from transformers import BertConfig, BertForMaskedLM

    place = tiny_cross_encoder(tmp_path_factory.mktemp("language"), [text for pair in PAIRS for text in pair])
    BertForMaskedLM(BertConfig.from_pretrained(place)).save_pretrained(place)
    return place


def test_weights_that_no_file_has_are_those_of_their_seed(language_model):
    import torch

    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, two, other = (load_cross_encoder(language_model, new_head=True, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected), "the global generator is left alone"
    assert cross_encoder_digest(one) == cross_encoder_digest(two)
    weights = [model.model.classifier.weight for model in (one, two, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_an_encoder_of_a_checkpoint_without_a_pooler_is_the_same_in_every_loading(language_model):
    from foils.encode import load_encoder
    from foils.training.models import load_trainable

    assert load_encoder(language_model).fingerprint == load_encoder(language_model).fingerprint
    one, two = (load_trainable(str(language_model)).state_dict() for _ in range(2))
    assert all((one[name] == two[name]).all() for name in one)


def test_another_prompt_or_token_is_another_model(tmp_path: Path) -> None:
    """A LogitScore reads the logits of the tokens in its settings; a default prompt goes before every pair."""
    from sentence_transformers.cross_encoder.modules import LogitScore

    model = load_cross_encoder(tiny_cross_encoder(tmp_path, ["wind and boats"]))
    digests = {cross_encoder_digest(model)}
    for prompt in ("judge: ", "grade: "):
        model.prompts, model.default_prompt_name = {"query": prompt}, "query"
        digests.add(cross_encoder_digest(model))
    for token in (3, 4):
        model.append(LogitScore(token)) if token == 3 else setattr(model[-1], "true_token_id", token)
        digests.add(cross_encoder_digest(model))
    assert len(digests) == 5
