"""Distilled judges learn a planted order, and come back as they were saved."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit, log_expit

from foils.encode.models import load_cross_encoder
from foils.rating import (
    Candidates,
    CrossEncoderJudge,
    Pairs,
    all_pairs,
    distil,
    regular_pairs,
    save_judge,
    thurstone,
)
from foils.training import fit as training_fit
from judging import NumberJudge, letters
from refusals import refused
from tiny_models import tiny_cross_encoder

WORDS = [f"w{i}" for i in range(12)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random BERT over the words, with weights small enough to train."""
    from transformers import BertConfig, BertForSequenceClassification

    place = tiny_cross_encoder(tmp_path_factory.mktemp("base"), [" ".join(WORDS), "query"])
    torch.manual_seed(0)
    config = BertConfig.from_pretrained(place)
    config.initializer_range, config.hidden_dropout_prob, config.attention_probs_dropout_prob = 0.1, 0.0, 0.0
    BertForSequenceClassification(config).save_pretrained(place)
    return place


def planted(queries: int = 60, each: int = 8, seed: int = 0) -> tuple[Candidates, Pairs, np.ndarray]:
    """Documents of one word each; w11 is the best, w0 the worst; P(i ≻ j) = σ(i − j)."""
    rng = np.random.default_rng(seed)
    levels = [rng.choice(12, each, replace=False) for _ in range(queries)]
    documents = [[(f"w{level}", f"w{level}") for level in of] for of in levels]
    candidates = Candidates.of_lists([f"q{i}" for i in range(queries)], ["query"] * queries, documents)
    pairs = regular_pairs([each] * queries, degree=4, keys=rng)
    level = np.concatenate(levels).astype(float)
    return candidates, pairs, expit(level[pairs.first] - level[pairs.second])


@pytest.fixture(scope="module")
def learned(base):
    settings = {"epochs": 12, "learning_rate": 3e-3, "max_length": 32, "held_out": 0.2, "device": "cpu"}
    return distil(base, *planted(), **settings)


def fresh(base):
    return load_cross_encoder(base, max_length=32, device="cpu", new_head=True).eval()


def logits(model, texts):
    return model.predict(texts, activation_fn=torch.nn.Identity()).astype(float)


def test_they_learn_a_planted_order_and_how_sure_their_teachers_are(learned):
    assert learned.trained + learned.held_out == 60 * 8 * 2
    assert 0 < learned.held_out < learned.trained
    assert learned.agreement > 0.9
    assert 0 < learned.loss < 0.7 * np.log(2)
    candidates = Candidates.of_lists(["new"], ["query"], [[(word, word) for word in WORDS]])
    pairs = all_pairs([12])
    found = learned.judge.judge(candidates, pairs)
    rating = thurstone(pairs, found).rating
    assert np.corrcoef(rating, np.arange(12))[0, 1] > 0.9
    near = np.abs(pairs.first - pairs.second) == 1
    far = np.abs(pairs.first - pairs.second) > 6
    assert np.abs(found - 0.5)[near].mean() < np.abs(found - 0.5)[far].mean() - 0.1


def test_saved_and_loaded_they_say_the_same(learned, tmp_path):
    folder = tmp_path / "deep" / "judge"
    save_judge(learned.judge, folder)
    assert (folder / "model.safetensors").is_file()
    assert [path.name for path in folder.parent.iterdir()] == ["judge"], "nothing half-made is left"
    loaded = CrossEncoderJudge(load_cross_encoder(folder, device="cpu"), name="judge")
    candidates, pairs, _ = planted(6, seed=3)
    np.testing.assert_array_equal(loaded.judge(candidates, pairs), learned.judge.judge(candidates, pairs))
    assert (loaded.name, loaded.fingerprint) == ("judge", learned.judge.fingerprint)


def test_the_first_loss_is_the_plain_sum(base, monkeypatch):
    """One step over all judgements, of which some are sure: −w log σ(z) − (1 − w) log(1 − σ(z))."""
    candidates, pairs, w = planted(2, 4)
    w, runs, fit = np.round(w, 1), [], training_fit.fit
    monkeypatch.setattr(training_fit, "fit", lambda *given, **more: runs.append(fit(*given, **more)))
    distil(base, candidates, pairs, w, max_length=32, held_out=0.0, device="cpu")
    model, queries = fresh(base), ["query"] * len(pairs)
    first, second = candidates.texts(pairs.first), candidates.texts(pairs.second)
    one, other = (logits(model, list(zip(queries, texts, strict=True))) for texts in (first, second))
    lead = one - other
    expected = -(w * log_expit(lead) + (1 - w) * log_expit(-lead)).mean()
    assert runs[0].history[0]["loss"] == pytest.approx(expected, abs=1e-5)


def test_texts_are_looked_up_when_a_batch_is_read(base):
    candidates, pairs, w = planted(10)
    at_once = []

    def texts(rows):
        at_once.append(len(rows))
        return candidates.texts(rows)

    lazy = replace(candidates, texts=texts)
    distil(base, lazy, pairs, w, max_length=32, held_out=0.0, device="cpu")
    assert len(at_once) >= len(pairs) / 32
    assert max(at_once) <= 2 * 32 < len(candidates.doc_ids), "of a batch, never of the whole set"


def test_missing_answers_are_left_out(base):
    candidates, pairs, w = planted(6)
    known = np.where(np.arange(len(w)) < 3, w, np.nan)
    found = distil(base, candidates, pairs, known, max_length=32, held_out=0.0, device="cpu")
    assert (found.trained, found.held_out) == (3, 0)
    assert np.isnan(found.loss)


def test_without_judgements_or_model_it_says_so(base, tmp_path):
    candidates, pairs = letters((3,)), all_pairs([3])
    refused("none of a query to train on", distil, base, candidates, pairs, [np.nan] * 3)
    w = NumberJudge().judge(candidates, pairs)
    refused("cannot load", distil, tmp_path, candidates, pairs, w, held_out=0.0)
