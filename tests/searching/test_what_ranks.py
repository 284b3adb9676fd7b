"""What ranks where a model is named (BM25, vectors or both) is said, and options that it has no use for are refused."""

import json

import pytest

import foils
from fakes import HashingEncoder
from foils.cli.app import run as program
from foils.data.run import Fusion, fuse_runs
from foils.evaluation import bm25_run
from refusals import refused
from train_models import static_model

IDLE = {  # whatever chooses, weighs, compares or computes vectors
    "dimensions": "rocchio",
    "weight": 0.5,
    "k_plus": 3,
    "scaled": False,
    "feedback_depth": 50,
    "tune": "dev",
    "measure": "AP",
    "answers": {"q0": "text"},
    "ray": "local",
    "max_length": 64,
    "query_prompt": "query: ",
    "document_prompt": "passage: ",
    "similarity": "dot",
    "precision": "bfloat16",
    "device": "cpu",
}


NEEDS = {"measure": "without tune"} | dict.fromkeys(
    ("weight", "k_plus", "scaled", "feedback_depth", "tune"), "without dimensions"
)


@pytest.fixture
def folder(tmp_path):
    """A folder of `foils tune` whose retriever ranks in a way."""

    def made(deploys):
        if not (tmp_path / "model").exists():
            static_model().save_pretrained(str(tmp_path / "model"))
        Fusion("z", 0.6, deploys).write(tmp_path / "retriever.json")
        return str(tmp_path)

    return made


@pytest.fixture
def no_model(monkeypatch):
    def loads(*_, **__):
        raise AssertionError("a model was loaded")

    monkeypatch.setattr("foils.encode.vectors.load_encoder", loads)


@pytest.mark.parametrize("name", IDLE)
def test_bm25_refuses_every_option_of_vectors(small, folder, no_model, name):
    for model in ("bm25", folder("bm25")):
        why = NEEDS.get(name, f"with model {model}")
        said = f"{name}.*: no effect {why}"
        refused(said, foils.search, small, model=model, split="test", **{name: IDLE[name]})


@pytest.mark.parametrize("deploys", ["model", "both"])
def test_where_vectors_rank_the_same_options_are_taken(small, folder, deploys):
    names = ("feedback_depth", "k_plus", "similarity", "document_prompt", "device")
    options = {name: IDLE[name] for name in names}
    assert len(foils.search(small, model=folder(deploys), split="test", dimensions="rocchio", **options).run.table)
    assert len(foils.search(small, model=folder(deploys), split="test", dimensions="rdime", scaled=False).run.table)


def test_the_program_says_which_option_of_a_folder_of_bm25_has_no_effect(beir_folder, folder, capsys):
    beir_folder("scifact")
    for verb, *more in (
        ("search", "--weight", "0.4", "--dimensions", "rocchio"),
        ("search", "--feedback-depth", "9"),
        ("search", "--query-prompt", "query: "),
        ("evaluate", "--query-prompt", "query: "),
        ("evaluate", "--precision", "float32"),
    ):
        assert program([verb, "scifact/", "--model", folder("bm25"), *more]) == 2
        said = capsys.readouterr().err
        assert f"{more[0]} {more[1]}" in said
        assert "no effect" in said
        assert "Traceback" not in said


def test_bm25_alone_embeds_nothing_and_is_named(small, folder, no_model, tmp_path):
    for model in ("bm25", folder("bm25")):
        searched = foils.search(small, model=model, split="test", top=2, run=tmp_path / "run.trec")
        assert searched.run.table.equals(bm25_run(small, "test", depth=2).table)
        facts = searched.to_json()
        assert (facts["encoder"], facts["top"], "settings" in facts) == (None, 2, False)
        assert json.loads(json.dumps(facts, allow_nan=False)) == facts
        assert "BM25 search of" in str(searched)
    assert (tmp_path / "run.trec").read_text().split()[-1] == "bm25"


def test_what_ran_is_named(small, folder):
    def title(model, **more):
        return foils.search(small, model=model, split="test", top=3, **more).tables()[0].title.partition(" search")[0]

    assert title(HashingEncoder()) == "dense"
    assert title(folder("model")) == "dense"
    assert title(folder("both")) == "BM25 + dense"
    assert title(folder("both"), dimensions="rocchio", weight=0.9) == "BM25 + rocchio"


def test_dimensions_are_those_of_the_half_that_embeds(small, folder):
    """What is put together with BM25 is the search with the sharpened queries."""
    both = foils.search(small, model=folder("both"), split="test", dimensions="rocchio", weight=2.0, k_plus=1)
    alone = foils.search(small, model=folder("model"), split="test", dimensions="rocchio", weight=2.0, k_plus=1)
    expected = fuse_runs([bm25_run(small, "test", depth=1000), alone.run], **Fusion("z", 0.6).how)
    assert both.run.table.equals(expected.table)
    assert not both.run.table.equals(foils.search(small, model=folder("both"), split="test").run.table)


def test_evaluate_takes_a_folder_for_what_ranks_in_it(small, folder, no_model):
    for idle in ("query_prompt", "max_length", "ray"):
        refused("no effect with systems", foils.evaluate, small, {"mine": folder("bm25")}, **{idle: IDLE[idle]})
    measured = foils.evaluate(small, {"mine": folder("bm25")}, top=2)
    assert measured.runs[0].name == "mine"
    assert measured.runs[0].table.equals(bm25_run(small, "test", depth=2).table)


@pytest.mark.parametrize("deploys", ["bm25", "model", "both"])
def test_evaluate_gives_as_many_documents_as_are_asked_for(small, folder, deploys):
    runs = [foils.evaluate(small, folder(deploys), top=top, measures=["RR@1"]).runs[0].table for top in (1, 3)]
    assert max(runs[0]["rank"].to_pylist()) == 0 < max(runs[1]["rank"].to_pylist())
