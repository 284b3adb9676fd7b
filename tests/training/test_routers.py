"""Asymmetric models (Router): queries take one route and documents another, in training, saved, and measured."""

import copy

import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Router, StaticEmbedding

import foils
from foils.encode.models import is_routed, load_model
from foils.training.fit import train_model
from foils.training.settings import TrainSettings
from refusals import refused
from train_models import bert_model, made_up, rows_of, static_model, table, words_tokenizer

STEPS = TrainSettings(batch_size=8, epochs=2, learning_rate=0.01, max_length=16)
WAYS = [
    {},
    {"batches": "hobit"},
    {"mini_batch_size": 3},
    {"loss": "weighted"},
    {"matryoshka": (16, 8)},
]


def words(seed):
    torch.manual_seed(seed)
    return [StaticEmbedding(words_tokenizer(), embedding_dim=16)]


def layers(place, length=64):
    model = bert_model(place)
    model.max_seq_length = length
    return list(model)


ROUTES = {
    "two tables": lambda place: (words(0), words(1)),
    "a table and a transformer": lambda place: (words(0), layers(place / "b")),
    "two transformers": lambda place: (layers(place / "a", 12), layers(place / "b", 24)),
}


def routed(query, document):
    return SentenceTransformer(modules=[Router.for_query_document(query, document)], device="cpu")


@pytest.mark.parametrize("how", WAYS, ids=str)
@pytest.mark.parametrize("kind", ROUTES)
def test_each_column_takes_its_own_route_and_both_learn(kind, how, tmp_path):
    collection, model = made_up(), routed(*ROUTES[kind](tmp_path))
    before, seen = copy.deepcopy(model.state_dict()), {"query": set(), "document": set()}
    preprocess = Router.preprocess

    def noted(self, inputs, prompt=None, task=None, **more):
        if inputs != ["text"]:
            seen[task].update(inputs)
        return preprocess(self, inputs, prompt=prompt, task=task, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Router, "preprocess", noted)
        trained = foils.train(
            collection, table(collection), model=model, output=tmp_path / "out", device="cpu", batch_size=8,
            learning_rate=0.01, **how,
        )  # fmt: skip
    texts = {name: set(getattr(collection, f"{name}s")["text"].to_pylist()) for name in ("document",)}
    assert seen["query"]
    assert seen["document"]
    assert seen["document"] <= texts["document"]
    assert not seen["query"] & texts["document"]
    changed = {name for name, value in trained.model.state_dict().items() if not torch.equal(value, before[name])}
    for route in ("query", "document"):
        assert any(f"sub_modules.{route}." in name for name in changed), route
    again = load_model(tmp_path / "out", device="cpu")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in trained.model.state_dict().items())
    lengths = [route[0].max_seq_length for route in again[0].sub_modules.values()]
    assert lengths == [route[0].max_seq_length for route in model[0].sub_modules.values()]
    in_memory, written = (
        foils.evaluate(collection, [each], precision="float32").systems[0].means for each in (model, tmp_path / "out")
    )
    assert in_memory == written


def test_one_module_on_both_routes_is_trained_as_the_model_without_a_router(tmp_path):
    plain, shared = static_model(), static_model()[0]
    both = SentenceTransformer(modules=[Router.for_query_document([shared], [shared])], device="cpu")
    for name, model in (("plain", plain), ("both", both)):
        train_model(model, rows_of(), tmp_path / name, settings=STEPS)
    assert torch.equal(plain[0].embedding.weight, shared.embedding.weight)
    assert not torch.equal(plain[0].embedding.weight, static_model()[0].embedding.weight)


def test_what_a_router_cannot_do_is_refused(tmp_path):
    lone = SentenceTransformer(modules=[Router({"query": words(0), "other": words(1)})], device="cpu")
    refused("no route for a document", train_model, lone, rows_of(), tmp_path / "lone", settings=STEPS)
    pair = routed(*ROUTES["two transformers"](tmp_path))
    assert is_routed(pair)
    assert not is_routed(static_model())
    lora = TrainSettings(batch_size=8, lora=2)
    refused("is a Router", train_model, pair, rows_of(), tmp_path / "lora", settings=lora)
