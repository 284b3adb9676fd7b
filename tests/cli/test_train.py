"""The program trains; and what the demo needs."""

from dataclasses import replace

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

import foils as library
from foils.data import load_collection
from foils.data.read import OPENERS
from foils.experiments.doors import PACKAGES, demo
from foils.runtime.errors import InputError
from train_models import cross_encoder, made_up_folder, static_model, table

STEPS = {"epochs": 2, "batch_size": 8, "learning_rate": 0.05, "seed": 3}


@pytest.fixture
def world(beir_folder, tmp_path):
    """A collection, and the place of its rated negatives."""
    collection = load_collection(made_up_folder(beir_folder))
    table(collection, rated=True).write(tmp_path / "rated.parquet")
    return collection, tmp_path / "rated.parquet"


def test_a_model_in_memory_is_trained(world, tmp_path):
    model = static_model()
    trained = library.train(*world, model=model, output=tmp_path / "out", **STEPS)
    assert trained.model is model
    again = SentenceTransformer(str(tmp_path / "out"), device="cpu")
    assert np.array_equal(again.encode("ba be"), model.encode("ba be"))
    reranker = cross_encoder(tmp_path / "cross")
    with pytest.raises(InputError, match="CrossEncoder"):
        library.train(*world, model=reranker, output=tmp_path / "other")
    given = {"reranker": True, "output": tmp_path / "other", "batch_size": 8}
    assert library.train(*world, model=reranker, **given).model is reranker


@pytest.mark.slow
def test_the_demo_decides_and_tunes(foils, tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    from train_models import made_up, static_model

    collection = replace(made_up(queries=240, documents=400), name="pydocs", digest="made up")
    monkeypatch.setitem(OPENERS, "pydocs", lambda _: collection)
    static = str(tmp_path / "static")
    static_model().save_pretrained(static)
    ended = foils("demo", "-o", tmp_path / "out", "--model", static, "--encoder", static)
    assert ended.status == 0, ended.err
    shown = demo(tmp_path / "out", model=static, encoder=static)
    assert list(shown.tuned.means)[:2] == ["base", "tuned"]
    assert shown.tuned.sentence.startswith("Deploy ")
    assert str(shown).split() == ended.out.split()
    assert (tmp_path / "out" / "tuned" / "report.html").is_file()
    assert shown.to_json()["tuned"] == shown.tuned.to_json()
    named = shown.tuned.plan["given"]["collection"]
    assert named == f"pydocs:{','.join(PACKAGES)}", "the next command would measure on other queries"
