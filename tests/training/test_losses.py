from __future__ import annotations

import copy
from functools import partial

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    MultipleNegativesRankingLoss,
)

from foils.runtime.errors import InputError
from foils.training.data import training_set
from foils.training.known_pairs import PairFacts
from foils.training.loss_weighting import MIXINGS, Temperature
from foils.training.losses import CachedContrastiveLoss, ContrastiveLoss
from foils.training.objectives import debiased_infonce, weighted_infonce
from train_models import WORDS, bert_model, made_up, static_model, table, unpaired


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return bert_model(tmp_path_factory.mktemp("bert"))


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """With dropout, so that the second embedding of a cached loss must repeat the first's draws."""
    return bert_model(tmp_path_factory.mktemp("noisy"), dropout=0.2)


def features(model, batch):
    names = [name for name in batch if name != "label"]
    return [model.preprocess(batch[name]) for name in names]


def texts(count, seed=0, columns=3):
    rng = np.random.default_rng(seed)
    return {f"c{j}": [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(count)] for j in range(columns)}


def gradients(loss, batch, labels=None, scale=1.0, seed=0):
    """Value and gradients of model and loss, on copies, so that nothing is left behind."""
    loss = copy.deepcopy(loss).train()
    torch.manual_seed(seed)
    value = loss(features(loss.model, batch), labels)
    (value * scale).backward()
    return value.item(), {n: p.grad for n, p in loss.named_parameters() if p.grad is not None}


def same(a, b, atol=5e-5):
    """Alike up to float32: cosines are off by 1e-7, twenty times that over a temperature of 0.05, added up by texts."""
    assert a[0] == pytest.approx(b[0], rel=1e-5, abs=1e-5)
    assert {k.split("model.")[-1] for k in a[1]} == {k.split("model.")[-1] for k in b[1]}
    theirs = {k.split("model.")[-1]: g for k, g in b[1].items()}
    for name, gradient in a[1].items():
        assert torch.allclose(gradient, theirs[name.split("model.")[-1]], atol=atol), name


def test_plain_is_sentence_transformers_loss(model):
    batch = texts(9)
    same(gradients(ContrastiveLoss(model), batch), gradients(MultipleNegativesRankingLoss(model), batch))
    theirs = CachedMultipleNegativesRankingLoss(model, mini_batch_size=4)
    same(gradients(CachedContrastiveLoss(model, mini_batch_size=4), batch), gradients(theirs, batch))


@pytest.fixture(scope="module")
def rated():
    collection = made_up()
    return training_set(collection, table(collection, rated=True), form="lists")


def batch_of(rows, chosen):
    batch = rows.dataset[chosen]
    return batch, torch.tensor(batch["label"])


OBJECTIVES = {
    "weighted": weighted_infonce,
    "debiased": partial(debiased_infonce, prior=0.05),
    "hard": partial(debiased_infonce, prior=0.05, concentration=0.5),
}


@pytest.mark.parametrize(
    ("objective", "mixing", "size"),
    [
        *((name, None, 4) for name in OBJECTIVES),
        *(("weighted", name, 3) for name in MIXINGS),
        ("hard", "gradnorm", 100),
    ],
)
def test_cached_equals_uncached(noisy, rated, objective, mixing, size):
    batch, labels = batch_of(rated, [3, 0, 7, 11, 5, 2, 9])
    settings = {"objective": OBJECTIVES[objective], "facts": rated.facts}
    plain = ContrastiveLoss(
        noisy.eval(),
        **settings,
        temperature=Temperature(0.1, learned=True),
        mixing=MIXINGS[mixing]() if mixing else None,
    )
    cached = CachedContrastiveLoss(
        noisy,
        mini_batch_size=size,
        **settings,
        temperature=Temperature(0.1, learned=True),
        mixing=MIXINGS[mixing]() if mixing else None,
    )
    a, b = gradients_still(plain, batch, labels), gradients_still(cached, batch, labels)
    assert torch.isfinite(a[1]["temperature.log_scale"])
    same(a, b)


def gradients_still(loss, batch, labels, scale=1.0):
    """As `gradients`, without dropout in the model: pieces of other sizes draw other noise."""
    loss = copy.deepcopy(loss).train()
    loss.model.eval()
    value = loss(features(loss.model, batch), labels)
    (value * scale).backward()
    if loss.mixing is not None and loss.mixing.needs_norms:
        assert loss.mixing.shares() != (1, 1)
    return value.item(), {n: p.grad for n, p in loss.named_parameters() if p.grad is not None}


def test_cached_replays_dropout_as_sentence_transformers_does(noisy):
    batch = texts(9, seed=1)
    theirs = CachedMultipleNegativesRankingLoss(noisy, mini_batch_size=4)
    same(gradients(CachedContrastiveLoss(noisy, mini_batch_size=4), batch, seed=5), gradients(theirs, batch, seed=5))
    other = gradients(theirs, batch, seed=6)
    assert other[0] != pytest.approx(gradients(theirs, batch, seed=5)[0], abs=1e-6)


def test_the_scale_of_the_backward_pass_reaches_everything_learned(model, rated):
    batch, labels = batch_of(rated, [0, 1, 2, 3])
    loss = CachedContrastiveLoss(
        model,
        mini_batch_size=2,
        facts=rated.facts,
        temperature=Temperature(0.07, learned=True),
        mixing=MIXINGS["uncertainty"](),
    )
    once, half = gradients_still(loss, batch, labels), gradients_still(loss, batch, labels, scale=0.5)
    assert set(once[1]) >= {"gain", "offset", "temperature.log_scale", "mixing.log_variances"}
    for name, gradient in once[1].items():
        assert torch.allclose(half[1][name], 0.5 * gradient, atol=1e-7), name


def test_gradients_add_up_over_batches(model, rated):
    batch, labels = batch_of(rated, [0, 1, 2, 3])
    loss = CachedContrastiveLoss(
        model, mini_batch_size=3, facts=rated.facts, temperature=Temperature(0.07, learned=True)
    )
    single = gradients_still(loss, batch, labels)[1]["temperature.log_scale"]
    loss = copy.deepcopy(loss)
    loss.model.eval()
    for _ in range(2):
        loss(features(loss.model, batch), labels).backward()
    assert loss.temperature.log_scale.grad.item() == pytest.approx(2 * single.item(), rel=1e-5)


def test_weights_equal_plain_loops(model, rated):
    rows = [0, 4, 8]
    batch, labels = batch_of(rated, rows)
    model.eval()
    value = ContrastiveLoss(model, facts=rated.facts, temperature=0.1)(features(model, batch), labels).item()
    vectors = {name: model.encode(batch[name], normalize_embeddings=True) for name in batch if name != "label"}
    columns = list(vectors)[1:]
    weights = {}
    for query, document, weight in zip(
        rated.facts.known_query, rated.facts.known_document, np.exp(rated.facts.known_log_weight), strict=True
    ):
        weights[query, document] = weight
    losses = []
    for i, row in enumerate(rows):
        total = own = np.exp(vectors["anchor"][i] @ vectors["positive"][i] / 0.1)
        for c, name in enumerate(columns):
            for j, other in enumerate(rows):
                if (c, j) != (0, i):
                    key = rated.facts.queries[row], rated.facts.documents[other, c]
                    total += weights.get(key, 1.0) * np.exp(vectors["anchor"][i] @ vectors[name][j] / 0.1)
        losses.append(-np.log(own / total))
    assert value == pytest.approx(np.mean(losses), abs=1e-5)
    unweighted = ContrastiveLoss(model, temperature=0.1)(features(model, batch)).item()
    assert abs(unweighted - value) > 1e-3


def facts(queries, documents, known=(), gaps=None):
    documents = np.asarray(documents)
    asked, answers, weights = (np.array(x) for x in zip(*known, strict=True)) if known else (np.zeros(0, int),) * 3
    with np.errstate(divide="ignore"):
        logs = np.log(weights.astype(float))
    gaps = np.full(len(asked), np.nan) if gaps is None else np.asarray(gaps, float)
    ratings = np.full(documents.shape, np.nan)
    return PairFacts(np.asarray(queries), documents, ratings, asked, answers, logs, gaps)


def test_known_positives_are_left_out_and_own_ones_are_not():
    known = facts([0, 1, 0], [[5, 7], [6, 8], [9, -1]], [(0, 5, 0), (0, 9, 0), (1, 6, 0), (1, 7, 0.5)])
    mask = unpaired(known, np.array([0, 1, 2]))
    # candidates: 5 6 9 | 7 8 absent; rows 0 and 2 share a query whose positives are 5 and 9
    expected = [[0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 1]]
    assert mask.astype(int).tolist() == expected
    block = known.batch(np.array([0, 1, 2])).block(0, 3)
    assert block[1].tolist() == pytest.approx([0, 0, 0, np.log(0.5), 0, -np.inf])


def test_one_query_with_two_weights_for_a_pair_takes_the_smaller():
    known = facts([0, 1], [[5], [7]], [(0, 7, 0.5), (0, 7, 0.2)])
    assert known.batch(np.array([0, 1])).log_weights.tolist() == pytest.approx([np.log(0.2)])


def test_a_curriculum_lets_harder_negatives_in_later():
    known = facts([0, 1], [[5, 7], [6, 8]], [(0, 7, 1.0), (1, 8, 0.5)], gaps=[250, 500])
    assert np.isneginf(known.batch(np.array([0, 1]), least_gap=300).log_weights).tolist() == [True, False]
    assert known.batch(np.array([0, 1]), least_gap=200).log_weights.tolist() == pytest.approx([np.log(0.5)])


def test_the_loss_follows_the_curriculum_by_epoch(model, rated):
    batch, labels = batch_of(rated, list(range(8)))
    model.eval()
    loss = ContrastiveLoss(model, facts=rated.facts, least_gap={1: 400.0, 2: 100.0}.__getitem__)
    early = loss(features(model, batch), labels).item()
    loss.set_epoch(2)
    assert loss(features(model, batch), labels).item() > early  # more negatives, more loss


def test_blocks_do_not_change_the_facts(rated):
    found = rated.facts.batch(np.arange(10))
    whole = found.block(0, 10)
    assert np.array_equal(np.concatenate([found.block(a, min(a + 3, 10)) for a in range(0, 10, 3)]), whole)


def test_the_learnable_temperature_is_bounded():
    temperature = Temperature(0.07, learned=True)
    assert temperature().item() == pytest.approx(0.07)
    with torch.no_grad():
        temperature.log_scale.fill_(50.0)
    assert temperature().item() == pytest.approx(0.01)
    temperature().backward()
    assert temperature.log_scale.grad.item() == pytest.approx(-0.01)  # it can come back
    with pytest.raises(InputError, match="above 0"):
        Temperature(0.0)


def test_a_static_embedding_needs_no_cache():
    model = static_model()
    batch = texts(5)
    same(gradients(ContrastiveLoss(model), batch), gradients(MultipleNegativesRankingLoss(model), batch))
    with pytest.raises(InputError, match="static"):
        CachedContrastiveLoss(model)


def test_what_cannot_work_is_refused(model, rated):
    batch, labels = batch_of(rated, [0, 1])
    loss = ContrastiveLoss(model, facts=rated.facts)
    with pytest.raises(InputError, match="number"):
        loss(features(model, batch), None)
    with pytest.raises(InputError, match="negatives a row"):
        loss(features(model, batch)[:2], labels)
    with pytest.raises(InputError, match="rows"):
        loss(features(model, batch), torch.tensor([0, 9999]))
    with pytest.raises(InputError, match="anchors"):
        ContrastiveLoss(model)(features(model, batch)[:1])
    with pytest.raises(InputError, match="temperature"):
        ContrastiveLoss(model, temperature=0.0)
    with pytest.raises(InputError, match="mini-batches"):
        CachedContrastiveLoss(model, mini_batch_size=0)
    collection = made_up()
    unrated = training_set(collection, table(collection)).facts
    for settings in ({"mixing": MIXINGS["fixed"]()}, {"least_gap": lambda epoch: 1.0}):
        with pytest.raises(InputError, match="rate the negatives"):
            ContrastiveLoss(model, facts=unrated, **settings)


def test_the_settings_are_told(model, rated):
    loss = ContrastiveLoss(
        model, objective=OBJECTIVES["hard"], facts=rated.facts, mixing=MIXINGS["fixed"](0.7), temperature=0.02
    )
    told = loss.get_config_dict()
    assert told["objective"] == "debiased_infonce"
    assert (told["prior"], told["concentration"], told["temperature"], told["mixing"]) == (0.05, 0.5, 0.02, "fixed")
