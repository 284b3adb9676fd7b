"""Distilled judges learn a planted order, and come back as they were saved."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.special import expit, log_expit

from foils.encode.models import load_cross_encoder
from foils.rating import (
    Candidates,
    Pairs,
    PairwiseJudge,
    all_pairs,
    distil,
    load_pairwise_judge,
    regular_pairs,
    save_judge,
    thurstone,
)
from foils.rating.distilling import CARD, FORMS, triples
from foils.runtime.errors import FormatError, InputError
from foils.training import fit as training_fit
from judging import NumberJudge, letters
from refusals import refused
from tiny_models import decoder_without_separator, tiny_cross_encoder

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


@pytest.fixture(scope="module", params=FORMS)
def learned(base, request):
    settings = {"epochs": 12, "learning_rate": 3e-3, "max_length": 32, "held_out": 0.2, "device": "cpu"}
    return distil(base, *planted(), form=request.param, **settings)


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
    loaded = load_pairwise_judge(folder, device="cpu")
    candidates, pairs, _ = planted(6, seed=3)
    np.testing.assert_array_equal(loaded.judge(candidates, pairs), learned.judge.judge(candidates, pairs))
    assert (loaded.name, loaded.fingerprint) == ("judge", learned.judge.fingerprint)
    with pytest.raises(InputError, match="already"):
        save_judge(learned.judge, folder)


def test_one_that_reads_both_is_antisymmetric_though_its_model_is_not(base):
    model = fresh(base)
    candidates, pairs, _ = planted(5)
    judge = PairwiseJudge(model)
    there, back = judge.judge(candidates, pairs), judge.judge(candidates, pairs.turned)
    np.testing.assert_allclose(there + back, 1, atol=1e-6)
    queries, first, second = ["query"] * len(pairs), candidates.texts(pairs.first), candidates.texts(pairs.second)
    one, other = (
        logits(model, triples(model, queries, first, second)),
        logits(model, triples(model, queries, second, first)),
    )
    assert np.abs(expit(one) + expit(other) - 1).max() > 1e-3
    np.testing.assert_allclose(there, (expit(one) + expit(-other)) / 2, atol=1e-6)
    warm = PairwiseJudge(model, temperature=3.0)
    np.testing.assert_allclose(warm.judge(candidates, pairs), (expit(one / 3) + expit(-other / 3)) / 2, atol=1e-6)
    assert warm.fingerprint != judge.fingerprint
    assert judge.judge(candidates, pairs.at(np.zeros(0, np.int64))).shape == (0,)


@pytest.mark.parametrize("form", FORMS)
def test_the_first_loss_is_the_plain_sum(base, form, monkeypatch):
    """One step over all judgements, of which some are sure: −w log σ(z) − (1 − w) log(1 − σ(z))."""
    candidates, pairs, w = planted(2, 4)
    w, runs, fit = np.round(w, 1), [], training_fit.fit
    monkeypatch.setattr(training_fit, "fit", lambda *given, **more: runs.append(fit(*given, **more)))
    distil(base, candidates, pairs, w, form=form, max_length=32, held_out=0.0, device="cpu")
    model, queries = fresh(base), ["query"] * len(pairs)
    first, second = candidates.texts(pairs.first), candidates.texts(pairs.second)
    if form == "scores":
        lead = logits(model, list(zip(queries, first, strict=True))) - logits(
            model, list(zip(queries, second, strict=True))
        )
    else:
        lead, w = logits(model, triples(model, queries * 2, first + second, second + first)), np.append(w, 1 - w)
    expected = -(w * log_expit(lead) + (1 - w) * log_expit(-lead)).mean()
    assert runs[0].history[0]["loss"] == pytest.approx(expected, abs=1e-5)


def test_texts_are_looked_up_when_a_batch_is_read(base):
    candidates, pairs, w = planted(10)
    at_once = []

    def texts(rows):
        at_once.append(len(rows))
        return candidates.texts(rows)

    lazy = replace(candidates, texts=texts)
    distil(base, lazy, pairs, w, form="pairwise", max_length=32, held_out=0.0, device="cpu")
    assert len(at_once) >= len(pairs) / 16
    assert max(at_once) <= 2 * 16 < len(candidates.doc_ids), "of a batch, never of the whole set"


def test_missing_answers_are_left_out(base):
    candidates, pairs, w = planted(6)
    known = np.where(np.arange(len(w)) < 3, w, np.nan)
    found = distil(base, candidates, pairs, known, max_length=32, held_out=0.0, device="cpu")
    assert (found.trained, found.held_out) == (3, 0)
    assert np.isnan(found.loss)


def test_no_text_is_cut_to_make_room_for_another(base):
    model = fresh(base)
    long, short = " ".join(["w1"] * 50), "w2"
    (query, both), (_, turned) = triples(model, [long, long], [long, short], [short, long])
    first, _, second = both.partition(" [SEP] ")
    assert (len(query.split()), len(first.split()), second) == (8, 10, "w2")
    assert turned == f"w2 [SEP] {first}"
    assert len(model.tokenizer(query, both)["input_ids"]) <= 32
    assert triples(model, ["query"], ["w1 [SEP] w2"], ["w3"])[0][1].count("[SEP]") == 1, "no text adds a separator"


def test_a_decoder_without_a_separator_is_distilled(tmp_path):
    """Qwen3 of a few weights, whose tokenizer adds no special token: an empty line stands between the texts."""
    candidates, pairs, w = planted(6)
    base = decoder_without_separator(tmp_path, ["query", *WORDS])
    judge = distil(base, candidates, pairs, w, form="pairwise", max_length=32, device="cpu").judge
    assert judge.model.tokenizer.sep_token is None
    ((query, both),) = triples(judge.model, [" ".join(["w3"] * 50)], [" ".join(["w1"] * 50)], ["w2"])
    assert query.endswith("w3\n\n")
    assert both.endswith("w1\n\nw2")
    assert len(judge.model.tokenizer(query, both)["input_ids"]) <= 32
    assert np.isfinite(judge.judge(candidates, pairs)).all()


def test_without_judgements_or_model_it_says_so(base, tmp_path):
    candidates, pairs = letters((3,)), all_pairs([3])
    refused("none of a query to train on", distil, base, candidates, pairs, [np.nan] * 3)
    w = NumberJudge().judge(candidates, pairs)
    refused("cannot load", distil, tmp_path, candidates, pairs, w, held_out=0.0)
    (tmp_path / CARD).write_text("{")
    refused(CARD, load_pairwise_judge, tmp_path, error=FormatError)
