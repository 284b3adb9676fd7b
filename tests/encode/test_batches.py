"""Batches of texts by length, and cross-encoders, which score pairs in them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sentence_transformers.cross_encoder.modules import LogitScore
from transformers import BertConfig, BertForMaskedLM

from foils.encode import EncoderSettings, SentenceEncoder, load_encoder
from foils.encode import forward as forward_module
from foils.encode.cross_encoders import cross_encoder_digest, load_cross_encoder, logits
from foils.encode.forward import side_by_side, token_batches, tokens_on
from foils.training.models import load_trainable
from refusals import refused
from tiny_models import tiny_cross_encoder
from train_models import WORDS, bert_model, decoder

TEXTS = [" ".join(WORDS[(3 * row + at) % len(WORDS)] for at in range(row * 7 % 29)) for row in range(1, 31)]


def left_decoder(folder: Path) -> Any:
    """A decoder whose vector is that of the last token, its texts padded on the left."""
    model = decoder(folder)
    model.tokenizer.padding_side = "left"
    return model


def by_words(left: bool) -> Callable[[list[str]], dict[str, Any]]:
    """Return a tokenizer whose tokens are words, each of them the number of its text."""

    def preprocess(texts: list[str]) -> dict[str, Any]:
        lengths = [len(text.split()) for text in texts]
        mask = torch.zeros((len(texts), max([*lengths, 1])), dtype=torch.long)
        for row, length in enumerate(lengths):
            mask[row, mask.shape[1] - length if left else 0 :][: length or None] = int(length > 0)
        ids = mask * torch.tensor([int(text.split()[0]) if text else 0 for text in texts])[:, None]
        return {"input_ids": ids, "attention_mask": mask, "modality": "text"}

    return preprocess


@given(
    st.lists(st.integers(0, 40), max_size=80), st.integers(1, 90), st.integers(1, 90), st.none() | st.integers(1, 9),
    st.booleans(),
)  # fmt: skip
def test_batches_hold_each_text_once_and_no_more_tokens_than_allowed(lengths, tokens, window, size, left):
    texts = [" ".join([str(row + 1)] * length) for row, length in enumerate(lengths)]
    rows = []
    for chosen, features in token_batches(texts, by_words(left), tokens=tokens, window=window, size=size):
        rows += chosen.tolist()
        ids, mask = features["input_ids"], features["attention_mask"]
        assert features["modality"] == "text"
        assert mask.sum(1).tolist() == [lengths[row] for row in chosen]
        assert ids.sum(1).tolist() == [lengths[row] * (row + 1) for row in chosen]
        assert ids.shape[1] == max(1, *(lengths[row] for row in chosen), 1)
        assert len(chosen) <= size if size else len(chosen) == 1 or ids.numel() <= tokens
    assert sorted(rows) == list(range(len(texts)))


def test_a_larger_window_pads_less():
    texts = [" ".join(["1"] * int(length)) for length in np.random.default_rng(0).integers(1, 60, 400)]
    words = sum(len(text.split()) for text in texts)
    padded = []
    for window in (8, 400):
        batches = token_batches(texts, by_words(False), tokens=300, window=window)
        padded.append(sum(features["input_ids"].numel() for _, features in batches) / words)
    assert padded[1] < 1.06 < padded[0] + 0.06


@pytest.mark.parametrize("make", [bert_model, left_decoder])
def test_vectors_are_the_models_own_however_texts_are_cut(make, tmp_path, monkeypatch):
    model = make(tmp_path / "model")
    assert model.tokenizer.padding_side == ("left" if make is left_decoder else "right")
    expected = {
        kind: getattr(model, f"encode_{kind}")(TEXTS, prompt="ba be ", normalize_embeddings=True)
        for kind in ("query", "document")
    }
    prompts = {"query_prompt": "ba be ", "document_prompt": "ba be "}
    encoders = [SentenceEncoder(model, EncoderSettings(**prompts, encode_batch=size)) for size in (None, 7)]
    for tokens, window, threads in ((1024, 1024, 1), (64, 9, 3)):
        cut = lambda *given, tokens=tokens, window=window, size: token_batches(  # noqa: E731
            *given, tokens=tokens, window=window, size=size
        )
        monkeypatch.setattr(forward_module, "token_batches", lambda *given, size, cut=cut, **_: cut(*given, size=size))
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        for encoder in encoders:
            for kind in ("query", "document"):
                np.testing.assert_allclose(encoder.encode(TEXTS, kind), expected[kind], atol=2e-6)  # type: ignore[arg-type]
    assert len({encoder.fingerprint for encoder in encoders}) == 1


def test_batches_run_side_by_side_and_leave_torch_its_threads():
    before, seen = torch.get_num_threads(), []

    def work(batch: Any) -> None:
        seen.append((batch[0], torch.get_num_threads()))

    for count, threads in ((20, 3), (2, 3), (5, 1), (0, 3)):
        seen.clear()
        side_by_side(work, iter([(row, {}) for row in range(count)]), threads=threads)  # type: ignore[misc]
        assert sorted(row for row, _ in seen) == list(range(count))
        assert {each for _, each in seen} <= ({1} if count >= threads > 1 else {before})
        assert torch.get_num_threads() == before


def test_a_batch_that_fails_ends_the_work():
    def work(batch: Any) -> None:
        if batch[0] == 3:
            raise ValueError("batch 3")

    with pytest.raises(ValueError, match="batch 3"):
        side_by_side(work, iter([(row, {}) for row in range(9)]), threads=2)  # type: ignore[misc]
    assert tokens_on("cpu") < tokens_on("cuda") == tokens_on("mps")


PAIRS = [("a boat", "a boat in the wind"), ("a boat", "bread"), ("bread", "bread of wheat in the wind")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_cross_encoder(tmp_path_factory.mktemp("cross"), [text for pair in PAIRS for text in pair])


def test_logits_come_before_the_activation(folder):
    model = load_cross_encoder(folder)
    found = logits(model, PAIRS)
    assert found.dtype == np.float32
    assert 1 / (1 + np.exp(-found)) == pytest.approx(model.predict(PAIRS, activation_fn=torch.nn.Sigmoid()), abs=1e-6)
    assert logits(model, PAIRS, batch_size=1) == pytest.approx(found, rel=1e-5, abs=1e-5)
    assert logits(model, []).shape == (0,)


def test_the_digest_is_of_weights_and_length(folder):
    model = load_cross_encoder(folder)
    found = cross_encoder_digest(model)
    assert cross_encoder_digest(load_cross_encoder(folder)) == found
    assert cross_encoder_digest(load_cross_encoder(folder, max_length=8)) != found
    with torch.no_grad():
        next(model.parameters()).add_(0.25)
    assert cross_encoder_digest(model) != found


def test_refusals(folder, tmp_path):
    refused("no such folder", load_cross_encoder, tmp_path / "none")
    refused("cannot load the cross-encoder", load_cross_encoder, tmp_path)
    several = tiny_cross_encoder(tmp_path, ["a"], outputs=3)
    refused("has 3 outputs", load_cross_encoder, several)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A masked language model: neither a pooler nor a classifier is in its file."""
    place = tiny_cross_encoder(tmp_path_factory.mktemp("language"), [text for pair in PAIRS for text in pair])
    BertForMaskedLM(BertConfig.from_pretrained(place)).save_pretrained(place)
    return place


def test_weights_that_no_file_has_are_those_of_their_seed(language_model):
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
    assert load_encoder(language_model).fingerprint == load_encoder(language_model).fingerprint
    one, two = (load_trainable(str(language_model)).state_dict() for _ in range(2))
    assert all((one[name] == two[name]).all() for name in one)


def test_another_prompt_or_token_is_another_model(tmp_path):
    """A LogitScore reads the logits of the tokens in its settings; a default prompt goes before every pair."""
    model = load_cross_encoder(tiny_cross_encoder(tmp_path, ["wind and boats"]))
    digests = {cross_encoder_digest(model)}
    for prompt in ("judge: ", "grade: "):
        model.prompts, model.default_prompt_name = {"query": prompt}, "query"
        digests.add(cross_encoder_digest(model))
    for token in (3, 4):
        model.append(LogitScore(token)) if token == 3 else setattr(model[-1], "true_token_id", token)
        digests.add(cross_encoder_digest(model))
    assert len(digests) == 5
