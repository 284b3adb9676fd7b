"""The distilled judge: antisymmetric whatever it learned, learns a planted order, and comes back as it was saved."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from judging import NumberJudge, letters
from scipy.special import expit

from foils.encode.cross_encoders import load_cross_encoder
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
from foils.rating.distil import CARD, Triples, difference_loss, examples
from foils.runtime.errors import FormatError, InputError, UnknownNameError
from tiny_models import decoder_without_separator, tiny_cross_encoder

WORDS = [f"w{i}" for i in range(12)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random BERT over the words, with weights small enough to train."""
    from transformers import BertConfig, BertForSequenceClassification

    place = tiny_cross_encoder(tmp_path_factory.mktemp("base"), [" ".join(WORDS), "query"])
    torch.manual_seed(0)
    config = BertConfig.from_pretrained(place)
    config.initializer_range = 0.1
    BertForSequenceClassification(config).save_pretrained(place)
    return place


def planted(queries: int = 60, each: int = 8, seed: int = 0) -> tuple[Candidates, Pairs, np.ndarray]:
    """Documents of one word each; w11 is the best, w0 the worst; P(i ≻ j) = σ(i − j)."""
    rng = np.random.default_rng(seed)
    levels = [rng.choice(12, each, replace=False) for _ in range(queries)]
    documents = [[(f"w{level}", f"w{level}") for level in of] for of in levels]
    candidates = Candidates.of_lists([f"q{i}" for i in range(queries)], ["query"] * queries, documents)
    pairs = regular_pairs([each] * queries, degree=4, rng=rng)
    level = np.concatenate(levels).astype(float)
    return candidates, pairs, expit(level[pairs.first] - level[pairs.second])


@pytest.fixture(scope="module")
def learned(base):
    candidates, pairs, w = planted()
    return distil(base, candidates, pairs, w, epochs=12, learning_rate=3e-3, max_length=32, held_out=0.2, device="cpu")


def test_an_untrained_judge_is_antisymmetric_though_its_model_is_not(base):
    judge = PairwiseJudge(load_cross_encoder(base, max_length=32, device="cpu", new_head=True), max_length=32)
    candidates, pairs, _ = planted(5)
    turned = Pairs(pairs.offsets, pairs.second, pairs.first)
    there, back = judge.judge(candidates, pairs), judge.judge(candidates, turned)
    np.testing.assert_allclose(there + back, 1, atol=1e-6)
    queries = ["query"] * len(pairs)
    first, second = candidates.texts(pairs.first), candidates.texts(pairs.second)
    one, other = judge.logits(queries, first, second), judge.logits(queries, second, first)
    assert np.abs(expit(one) + expit(other) - 1).max() > 1e-3
    np.testing.assert_allclose(there, (expit(one) + expit(-other)) / 2, atol=1e-6)
    warm = PairwiseJudge(
        load_cross_encoder(base, max_length=32, device="cpu", new_head=True), max_length=32, temperature=3.0
    )
    np.testing.assert_allclose(warm.judge(candidates, pairs), (expit(one / 3) + expit(-other / 3)) / 2, atol=1e-6)
    assert warm.fingerprint != judge.fingerprint


def test_it_learns_a_planted_order_and_how_sure_its_teachers_are(learned):
    assert learned.trained + learned.held_out == 60 * 8 * 2
    assert 0 < learned.held_out < learned.trained
    assert learned.agreement > 0.9
    assert learned.least_loss < learned.loss < 0.7 * np.log(2)
    candidates = Candidates.of_lists(["new"], ["query"], [[(word, word) for word in WORDS]])
    pairs = all_pairs([12])
    found = learned.judge.judge(candidates, pairs)
    rating = thurstone(pairs, found).rating
    assert np.corrcoef(rating, np.arange(12))[0, 1] > 0.9
    near = np.abs(pairs.first - pairs.second) == 1
    far = np.abs(pairs.first - pairs.second) > 6
    assert np.abs(found - 0.5)[near].mean() < np.abs(found - 0.5)[far].mean() - 0.1


def test_saved_and_loaded_it_says_the_same(learned, tmp_path):
    folder = tmp_path / "deep" / "judge"
    save_judge(learned.judge, folder)
    assert (folder / "model.safetensors").is_file()
    assert [path.name for path in folder.parent.iterdir()] == ["judge"], "nothing half-made is left"
    loaded = load_pairwise_judge(folder, device="cpu")
    candidates, pairs, _ = planted(6, seed=3)
    np.testing.assert_array_equal(loaded.judge(candidates, pairs), learned.judge.judge(candidates, pairs))
    assert (loaded.max_length, loaded.name, loaded.fingerprint) == (32, "judge", learned.judge.fingerprint)
    with pytest.raises(InputError, match="already"):
        save_judge(learned.judge, folder)


def test_soft_labels_come_in_both_orders(base):
    candidates = Candidates.of_lists(["q"], ["query"], [[("a", "w1"), ("b", "w2"), ("c", "w3")]])
    triples = Triples(load_cross_encoder(base, max_length=32, device="cpu", new_head=True).tokenizer, 32)
    shown = examples(candidates, Pairs.of_one(3, [0], [1]), np.array([0.8]), triples)[:]
    assert shown["label"] == pytest.approx([0.8, 0.2])
    assert shown["query"] == ["query", "query"]
    assert shown["documents"] == ["w1 [SEP] w2", "w2 [SEP] w1"]
    pairs = Pairs.of_one(3, [0, 1], [1, 2])
    found = distil(base, candidates, pairs, [0.8, np.nan], max_length=32, held_out=0.0, device="cpu")
    assert (found.trained, found.held_out) == (1, 0)
    assert np.isnan(found.loss)


def test_texts_are_looked_up_when_a_batch_is_read(base):
    candidates, pairs, w = planted(10)
    at_once = []

    def texts(rows):
        at_once.append(len(rows))
        return candidates.texts(rows)

    distil(base, replace(candidates, texts=texts), pairs, w, batch_size=8, max_length=32, held_out=0.0, device="cpu")
    assert len(at_once) >= 2 * len(pairs) / 8
    assert max(at_once) <= 2 * 8 < len(candidates.doc_ids), "of a batch, never of the whole set"


def test_the_same_seed_is_the_same_judge_and_generators_stay(base):
    candidates, pairs, w = planted(6)

    def trained(seed):
        return distil(base, candidates, pairs, w, max_length=32, seed=seed, device="cpu").judge.fingerprint

    np.random.seed(5)  # noqa: NPY002  (what the trainer might disturb)
    torch.manual_seed(5)
    before = np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()  # noqa: NPY002
    one = trained(1)
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before  # noqa: NPY002
    assert one == trained(1) != trained(2)


def test_no_text_is_cut_to_make_room_for_another(base):
    tokenizer = load_cross_encoder(base, max_length=32, device="cpu", new_head=True).tokenizer
    triples = Triples(tokenizer, 32)
    long, short = " ".join(["w1"] * 50), "w2"
    (query, both), (_, turned) = triples.of([long, long], [long, short], [short, long])
    first, _, second = both.partition(" [SEP] ")
    assert (len(query.split()), len(first.split()), second) == (8, 10, "w2")
    assert turned == f"w2 [SEP] {first}"
    assert len(tokenizer(query, both)["input_ids"]) <= 32
    assert triples.of(["query"], ["w1 [SEP] w2"], ["w3"])[0][1].count("[SEP]") == 1, "a text cannot add a separator"
    with pytest.raises(InputError, match="at least 16"):
        Triples(tokenizer, 15)


def test_a_decoder_without_a_separator_is_distilled(tmp_path):
    """Qwen3 of a few weights, whose tokenizer adds no special token: an empty line stands between the texts."""
    candidates, pairs, w = planted(6)
    model = decoder_without_separator(tmp_path, ["query", *WORDS])
    distilled = distil(model, candidates, pairs, w, max_length=32, device="cpu", batch_size=8)
    judge = distilled.judge
    tokenizer = judge.model.tokenizer
    assert tokenizer.sep_token is None
    triples = Triples(tokenizer, 32)
    ((query, both),) = triples.of([" ".join(["w3"] * 50)], [" ".join(["w1"] * 50)], ["w2"])
    assert query.endswith("w3\n\n")
    assert both.endswith("w1\n\nw2")
    assert len(tokenizer(query, both)["input_ids"]) <= 32
    answers = judge.judge(candidates, pairs)
    assert np.isfinite(answers).all()
    np.testing.assert_allclose(judge.judge(candidates, pairs.turned), 1 - answers, atol=1e-6)
    save_judge(judge, tmp_path / "judge")
    again = load_pairwise_judge(tmp_path / "judge", device="cpu")
    np.testing.assert_allclose(again.judge(candidates, pairs), answers, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "said"),
    [({"epochs": 0}, "at least 1"), ({"held_out": 1.0}, r"\[0, 1\)"), ({"learning_rate": 0.0}, "above 0")],
)
def test_settings_out_of_range_are_refused(base, settings, said):
    candidates, pairs, w = planted(3)
    with pytest.raises(InputError, match=said):
        distil(base, candidates, pairs, w, **settings)


def test_without_judgements_or_model_it_says_so(base, tmp_path):
    candidates, pairs = letters((3,)), all_pairs([3])
    with pytest.raises(InputError, match="none of a query to train on"):
        distil(base, candidates, pairs, [np.nan] * 3)
    w = NumberJudge().judge(candidates, pairs)
    with pytest.raises(InputError, match="cannot load"):
        distil(tmp_path, candidates, pairs, w, held_out=0.0)
    with pytest.raises(InputError, match="no pairwise judge"):
        load_pairwise_judge(base)
    (tmp_path / CARD).write_text(json.dumps({"kind": "x", "max_length": 9}))
    with pytest.raises(InputError, match="is 'x'; expected"):
        load_pairwise_judge(tmp_path)


@pytest.mark.parametrize(
    "text", ["", "{", "\0", "[" * 100_000, "[]", "{}", '{"kind": "x"}', *(
        f'{{"kind": "x", "max_length": {n}}}' for n in ("null", "[]", "NaN", "Infinity", '"x"', "9" * 5_000))],
)  # fmt: skip
def test_a_damaged_card_is_named(tmp_path, text):
    (tmp_path / CARD).write_text(text)
    with pytest.raises(FormatError, match=CARD):
        load_pairwise_judge(tmp_path)


@pytest.fixture(scope="module")
def scorer(base):
    candidates, pairs, w = planted()
    settings = {"epochs": 12, "learning_rate": 3e-3, "max_length": 32, "held_out": 0.2, "device": "cpu"}
    return distil(base, candidates, pairs, w, form="scores", **settings)


def test_a_judge_that_scores_learns_the_order_from_differences(scorer):
    assert scorer.agreement > 0.95
    assert scorer.least_loss < scorer.loss < 0.6 * np.log(2)
    assert scorer.order_effect == 0
    candidates = Candidates.of_lists(["new"], ["query"], [[(word, word) for word in WORDS]])
    pairs = all_pairs([12])
    scores = scorer.judge.model.predict([("query", word) for word in WORDS], activation_fn=torch.nn.Identity())
    expected = expit(scores[pairs.first].astype(float) - scores[pairs.second])
    np.testing.assert_allclose(scorer.judge.judge(candidates, pairs), expected, atol=1e-5)
    assert np.corrcoef(scores, np.arange(12))[0, 1] > 0.9


def test_the_loss_of_differences_is_the_plain_sum(base):
    model = load_cross_encoder(base, max_length=32, device="cpu", new_head=True).eval()
    first, second, w = ["w1", "w2", "w3"], ["w4", "w5", "w1"], np.array([0.2, 1.0, 0.5])

    def score(documents):
        return model.predict([("query", text) for text in documents], activation_fn=torch.nn.Identity()).astype(float)

    found = difference_loss(model)([["query"] * 3, first, second], torch.tensor(w))
    lead = score(first) - score(second)
    plain = -(w * np.log(expit(lead)) + (1 - w) * np.log(1 - expit(lead))).mean()
    assert float(found.detach()) == pytest.approx(plain, abs=1e-6)


def test_a_judge_that_scores_comes_back_and_compares_between_queries(scorer, tmp_path):
    save_judge(scorer.judge, tmp_path / "scorer")
    loaded = load_pairwise_judge(tmp_path / "scorer", device="cpu")
    candidates, pairs, _ = planted(6, seed=3)
    np.testing.assert_array_equal(loaded.judge(candidates, pairs), scorer.judge.judge(candidates, pairs))
    assert (loaded.max_length, loaded.name, loaded.fingerprint) == (32, "scorer", scorer.judge.fingerprint)
    between = loaded.between(candidates, np.array([0]), np.array([len(candidates.doc_ids) - 1]))
    assert ((between >= 0) & (between <= 1)).all()
    plain = load_cross_encoder(tmp_path / "scorer", device="cpu")  # a cross-encoder like any other
    assert plain.num_labels == 1


def test_an_unknown_form_is_refused(base):
    candidates, pairs, w = planted(3)
    with pytest.raises(UnknownNameError, match="scores"):
        distil(base, candidates, pairs, w, form="score")
