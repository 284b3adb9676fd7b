"""Losses by name: those of sentence-transformers, given nothing that they would ignore, and those of vectors' parts."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest
import torch
from sentence_transformers import util
from sentence_transformers.cross_encoder.losses import NDCGLoss2PPScheme
from sentence_transformers.sentence_transformer import losses

import foils
from foils.data import Negatives
from foils.evaluation import measure_encoder
from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.keyed import parsed_settings
from foils.training.data import training_set
from foils.training.loss_registry import ST_LOSSES, make_loss, matryoshka_loss
from foils.training.losses import CachedContrastiveLoss, ContrastiveLoss
from foils.training.masks import FalseNegativeMask
from foils.training.objectives import Temperature
from foils.training.reranker import reranker_loss, reranker_set
from foils.training.settings import DIMENSIONS, TrainSettings
from foils.training.train import train_model
from train_models import (
    bert_model,
    cross_encoder,
    evaluated,
    features,
    made_up,
    rows_of,
    same,
    static_model,
    table,
    weights,
)

BASE = TrainSettings(batch_size=16, epochs=1, learning_rate=0.05, max_length=32)


@pytest.fixture(scope="module")
def data():
    return rows_of(rated=False)


def value_of(loss, model, data):
    batch = data.dataset[:12]
    with torch.no_grad():
        return float(loss(features(model, batch), torch.tensor(batch["label"])))


def test_each_is_the_loss_itself_with_its_settings(data, tmp_path):
    model = bert_model(tmp_path / "bert").eval()
    cases = [
        ("MultipleNegativesRankingLoss", {"scale": 7, "partition_mode": "per_direction"}, {}),
        ("CachedMultipleNegativesRankingLoss", {"scale": 7}, {}),
        ("TripletLoss", {"distance_metric": "cosine", "triplet_margin": 2},
         {"distance_metric": losses.TripletDistanceMetric.COSINE}),
    ]  # fmt: skip
    for name, settings, theirs in cases:
        ours = make_loss(f"st:{name}", model, data, settings=settings)
        wanted = getattr(losses, name)(model, **{**settings, **theirs})
        assert type(ours) is type(wanted)
        assert value_of(ours, model, data) == pytest.approx(value_of(wanted, model, data), abs=1e-6)
        plain = make_loss(f"st:{name}", model, data, settings={})
        assert value_of(plain, model, data) != pytest.approx(value_of(ours, model, data), abs=1e-6)


@pytest.mark.parametrize("name", ST_LOSSES)
def test_every_one_trains(name, data, tmp_path):
    mini = 5 if "Cached" in name else None
    settings = replace(BASE, loss=f"st:{name}", mini_batch_size=mini, learning_rate=1e-3)
    model = bert_model(tmp_path / "bert")
    before = weights(model).clone()
    found = train_model(model, data, tmp_path / "out", settings=settings)
    assert not torch.equal(before, weights(found.model))
    assert not list((tmp_path / "out").rglob("foils_loss.safetensors"))  # neither model nor guide is the loss's own


def test_settings_of_rerankers_reach_the_loss(tmp_path):
    model = cross_encoder(tmp_path)
    settings = {"weighting_scheme": "NDCGLoss2PPScheme", "k": 3}
    loss = reranker_loss("st:LambdaLoss", settings).make(model)
    assert isinstance(loss.weighting_scheme, NDCGLoss2PPScheme)
    assert loss.k == 3
    with pytest.raises(UnknownNameError, match="weighting_scheme"):
        reranker_loss("st:LambdaLoss", {"weighting_scheme": "NDCG"}).make(model)


def test_the_similarity_is_the_models(data):
    model = static_model()
    model.similarity_fn_name = "dot"
    found = make_loss("st:MultipleNegativesRankingLoss", model, data, settings={})
    wanted = losses.MultipleNegativesRankingLoss(model, similarity_fct=util.dot_score)
    assert value_of(found, model, data) == pytest.approx(value_of(wanted, model, data), rel=1e-6)


def test_known_positives_are_told_where_others_documents_are_negatives(data, caplog):
    with caplog.at_level(logging.WARNING):
        make_loss("st:TripletLoss", static_model(), data, settings={})
        assert not caplog.text
        make_loss("st:MultipleNegativesRankingLoss", static_model(), data, settings={})
    assert "known positives" in caplog.text


MNRL = "st:MultipleNegativesRankingLoss"
SHORT = training_set(made_up(), Negatives(table(made_up()).table.slice(0, 41)), form="lists")


@pytest.mark.parametrize(
    ("name", "data", "how", "said"),
    [
        (MNRL, rows_of(), {}, "80 negatives have a weight other than 1"),
        (MNRL, SHORT, {}, "1 lists are short"),
        (MNRL, None, {"mini_batch_size": 4}, f"mini_batch_size 4: no effect with {MNRL}"),
        (MNRL, None, {"settings": {"scale": -1}}, f"{MNRL}: Scale must be a positive"),
        (MNRL, None, {"settings": {"scal": 1}}, "scal"),
        ("st:CoSENTLoss", None, {}, "CoSENTLoss"),
        ("st:TripletLoss", SHORT, {}, "short|takes triplets"),
        ("st:TripletLoss", None, {"mask": FalseNegativeMask()}, "mask: no effect with st:TripletLoss"),
        ("mnrl", None, {"settings": {"temperature": "x"}}, "of another type than its defaults: temperature='x'"),
    ],
)
def test_what_a_loss_would_ignore_is_refused(name, data, how, said):
    with pytest.raises(InputError, match=said):
        make_loss(name, static_model(), data or rows_of(rated=False), **{"settings": {}, **how})


def test_the_program_takes_names_and_paths_of_models():
    texts = ["guide=./a-b/m1", "a=all-MiniLM-L6-v2", "b=/x/y_1", "c=~/m", "d=gradnorm", "e=[1,2]", "f=0.5"]
    assert parsed_settings(texts, words=True) == {
        "guide": "./a-b/m1", "a": "all-MiniLM-L6-v2", "b": "/x/y_1", "c": "~/m", "d": "gradnorm", "e": [1, 2], "f": 0.5,
    }  # fmt: skip
    for wrong in ("a=.5", "a=0,5", "a=1e", "a=[1", "a=a b"):
        with pytest.raises(InputError, match="is not a number"):
            parsed_settings([wrong], words=True)


def test_positives_of_a_query_with_the_same_text_are_no_weights(tmp_path):
    """q2 asks what q1 asks, so that its positive, mined for q1, is a positive of q1."""
    texts = {"d1": "a keel is a spine", "d2": "the spine of a boat", "d3": "oars are of ash"}
    queries, qrels = dict.fromkeys(("q1", "q2"), "what is a keel?"), {"train": {"q1": {"d1": 1}, "q2": {"d2": 1}}}
    twice = foils.Collection.from_dicts("twice", texts, queries, qrels)
    mined = foils.mine(twice, "random", top=2)
    lists = training_set(twice, mined, form="lists")
    assert lists.weighed()[1].sum() == 2
    assert not lists.weighed()[0].any()
    scored = foils.score_pairs(twice, mined, teacher=static_model(seed=3), vectors=str(tmp_path))
    make_loss("margin-mse", static_model(), training_set(twice, scored), settings={})  # the teacher says what they are
    refused = "2 negatives are labelled positives of a query with the same text"
    with pytest.raises(InputError, match=f"{refused}, which st:Multiple"):
        make_loss("st:MultipleNegativesRankingLoss", static_model(), lists, settings={})
    with pytest.raises(InputError, match=f"{refused}, which this loss"):
        reranker_set(lists, reranker_loss("st:LambdaLoss"))


TEXTS = [["ba be bi", "fo fu", "ga"], ["bi bo", "fu fa", "gi ge"], ["lo la", "ma mi", "no"]]


def test_the_loss_is_that_of_the_parts_added_up():
    model = static_model()
    columns = [torch.tensor(model.encode(texts)) for texts in TEXTS]
    wanted = 0.0
    for size in (16, 8, 3):
        queries, *others = (torch.nn.functional.normalize(each[:, :size]) for each in columns)
        wanted += torch.nn.functional.cross_entropy(queries @ torch.cat(others).T / 0.05, torch.arange(3)).item()
    features = [model.preprocess(texts) for texts in TEXTS]
    loss = matryoshka_loss(model, ContrastiveLoss(model), [3, 8])
    assert loss(features, None).item() == pytest.approx(wanted, rel=1e-5)


def test_the_cached_loss_of_parts_is_the_same(tmp_path):
    model, batch = bert_model(tmp_path), dict(enumerate(TEXTS))
    plain, cached = ContrastiveLoss(model), CachedContrastiveLoss(model, mini_batch_size=2)
    same(*(evaluated(matryoshka_loss(model, loss, [4]), batch) for loss in (plain, cached)))


@pytest.mark.parametrize("batches", ["random", "hobit-c"])
def test_vectors_that_are_cut_are_better_for_it(batches, tmp_path):
    collection = made_up(queries=80, documents=160)
    settings = TrainSettings(batch_size=16, epochs=4, learning_rate=0.05, max_length=None)
    found = []
    for dimensions in (None, (4,)):
        data = training_set(collection, table(collection))
        how = replace(settings, matryoshka=dimensions)
        folder = tmp_path / str(dimensions)
        model = train_model(static_model(), data, folder, settings=how, batches=batches).model
        model.truncate_dim = 4
        found.append(measure_encoder(model, collection, "train", ["nDCG@10"]).means["nDCG@10"])
    assert found[1] > found[0] + 0.1


def test_matryoshka_trainings_that_cannot_work_are_refused(tmp_path):
    model = static_model()
    with pytest.raises(InputError, match="matryoshka 32: the model has 16 dimensions"):
        matryoshka_loss(model, ContrastiveLoss(model), [8, 32])
    model.similarity_fn_name = "dot"
    with pytest.raises(InputError, match="compares vectors by inner products"):
        matryoshka_loss(model, ContrastiveLoss(model), [8])
    bert = bert_model(tmp_path)
    with pytest.raises(InputError, match="a loss that learns beside the model"):
        matryoshka_loss(bert, CachedContrastiveLoss(bert, temperature=Temperature(0.07, learned=True)), [8])
    with pytest.raises(InputError, match="matryoshka 8,a; expected whole numbers"):
        DIMENSIONS("8,a")
    with pytest.raises(InputError, match="matryoshka 0; expected at least 1"):
        TrainSettings(matryoshka=(0,))
