"""Training on several data sets: negatives local to their source, in the plan and in the loss; the door; resuming."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("datasets")
import torch

import foils
from foils.cli.app import run
from foils.data import Collection
from foils.data.read import CollectionSettings
from foils.data.splitting import distinct_names, joined_collections, joined_negatives
from foils.evaluation import measure_encoder
from foils.training.data import read_data_sets
from foils.training.losses import make_loss
from foils.training.settings import MethodSettings, TrainSettings, parsed_data_sets
from foils.training.train import train_model
from refusals import refused
from train_models import (
    WORDS,
    bert_model,
    features,
    made_up,
    made_up_folder,
    resumed_exactly,
    static_model,
    table,
    unpaired,
)

SETTINGS = TrainSettings(batch_size=12, epochs=3, learning_rate=0.05, seed=2)
SCHEDULED = {
    "random": {},
    "hobit": {"seeds": 2, "warmup": 1, "anneal": 2},
    "hobit-c": {"seeds": 2, "candidates": 12},
    "mutual": {"refresh": 2},
    "ngame": {"warmup": 1},
    "walks": {"candidates": 10, "neighbours": 4},
    "b3": {"skip": 1, "ranks": 5, "community_size": 5},
}


def other(name="other", queries=36, seed=7):
    """A collection with the same ids as `made_up`, and other texts."""
    collection = made_up(queries=queries, seed=seed)
    return Collection(name, collection.documents, collection.queries, collection.qrels, f"{name}{seed}")


def sets(also=None, first=None, source=None, **how):
    settings = MethodSettings(also=[other()] if also is None else also, **how)
    return read_data_sets(first or made_up(), source, settings, CollectionSettings())


def mixed_set(**how):
    return sets(mixture=(2, 1), **how).training_set(None, form="pairs")


def test_joined_collections_keep_every_text_and_judgement():
    parts = {"a": made_up(), "b": other()}
    whole = joined_collections(parts)
    assert len(whole.documents) == 160
    assert whole.name == "a + b"
    for split in ("train", "dev", "test"):
        judged = {(row["query_id"], row["doc_id"]) for row in whole.qrels[split].to_pylist()}
        expected = {
            (f"{name}/{row['query_id']}", f"{name}/{row['doc_id']}")
            for name, part in parts.items()
            for row in part.qrels[split].to_pylist()
        }
        assert judged == expected
    texts = dict(zip(whole.documents["doc_id"].to_pylist(), whole.document_texts(range(160)), strict=True))
    assert texts["b/d5"] == parts["b"].document_texts([5])[0] != texts["a/d5"]
    assert whole.digest != joined_collections({"a": made_up(), "b": other(seed=8)}).digest


def test_joined_negatives_keep_what_each_says():
    first, second = table(made_up(), per_query=2), table(other(), per_query=1)
    weight = np.full(len(first), 0.5)
    rejected = np.arange(len(second)) == 3
    whole = joined_negatives({"a": first.with_columns({"weight": weight}), "b": second.reject(rejected, "odd")})
    assert len(whole) == len(first) + len(second)
    assert whole.table["weight"].to_pylist() == [0.5] * len(first) + [1.0] * len(second)
    assert whole.keep.tolist() == [True] * len(first) + (~rejected).tolist()
    assert whole.table["query_id"][len(first)].as_py().startswith("b/")


def test_names_are_told_apart():
    assert distinct_names(["nq", "nq", "nq 2", "nq"]) == ["nq", "nq 2", "nq 2 2", "nq 3"]


def test_what_the_program_names_is_a_collection_or_a_pair(tmp_path):
    (tmp_path / "a,b.csv").write_text("")
    path = str(tmp_path / "a,b.csv")
    assert parsed_data_sets(["nq/", "nq/,s=nq.parquet", path]) == ["nq/", ("nq/", "s=nq.parquet"), path]


@pytest.mark.parametrize("mini_batch_size", [None, 4])
@pytest.mark.parametrize("form", ["pairs", "triplets", "lists"])
def test_the_loss_is_that_of_each_data_set_apart(form, mini_batch_size, tmp_path):
    """By plain loops: every query against the documents of its own data set alone."""
    both = sets(source=table(made_up()), also=[(other(), table(other(), per_query=3))])
    tables = both.joined({name: each.negatives for name, each in both.sources.items()})
    data = both.training_set(tables, form=form, per_query=None if form == "pairs" else 2)
    source_of, model = data.mixture.source_of, bert_model(tmp_path)
    rows = np.concatenate([np.flatnonzero(source_of == k)[:5] for k in (0, 1)])[[0, 5, 1, 6, 7, 2, 8, 3, 4, 9]]
    batch = data.dataset[rows.tolist()]
    names = [name for name in data.dataset.column_names if name != "label"]
    loss = make_loss("mnrl", model, data, mini_batch_size=mini_batch_size, settings={"temperature": 0.2})
    value = loss(features(model, batch), torch.tensor(batch["label"]))
    left_out = unpaired(data.facts, rows)
    queries, *documents = (model.encode(batch[name], normalize_embeddings=True) for name in names)
    logits = queries @ np.concatenate(documents).T / 0.2
    of_candidate = np.tile(source_of[rows], len(documents))
    expected = []
    for i in range(10):
        mine = [j for j in range(len(of_candidate)) if of_candidate[j] == source_of[rows[i]] and not left_out[i, j]]
        assert left_out[i, of_candidate != source_of[rows[i]]].all()
        assert len(mine) > 3
        expected.append(np.log(np.exp(logits[i, mine]).sum()) - logits[i, i])
    assert value.item() == pytest.approx(np.mean(expected), rel=1e-4)


@pytest.mark.parametrize("name", SCHEDULED)
def test_training_draws_shares_inside_their_source_and_resumes_exactly(name, tmp_path, seen):
    data = mixed_set()

    def train(folder, **more):
        settings = replace(SETTINGS, trainer={"save_steps": 4})
        how = {"settings": settings, "batches": name, "batch_settings": SCHEDULED[name]}
        return train_model(static_model(), data, folder, **how, **more)

    assert data.mixture.counts.tolist() == [20, 10]
    assert resumed_exactly(train, tmp_path, 5).steps == 9  # of 30 rows an epoch
    for epoch in range(3):
        batches = list(map(np.array, seen[3 * epoch : 3 * epoch + 3]))
        np.testing.assert_array_equal(np.bincount(data.mixture.source_of[np.concatenate(batches)]), [20, 10])
        pieces = [piece for batch in batches[:2] for piece in batch.reshape(2, 6)]
        assert all(len(set(data.mixture.source_of[piece])) == 1 for piece in pieces)


@pytest.fixture
def world(tmp_path, beir_folder):
    """Two folders, a table of negatives for each, and a static model."""
    folders, tables = [], []
    for name, collection in (("first", made_up()), ("second", other())):
        folders.append(str(made_up_folder(beir_folder, collection, name)))
        tables.append(str(tmp_path / f"{name}.parquet"))
        table(collection, per_query=2).write(tables[-1])
    static_model().save_pretrained(str(tmp_path / "static"))
    common = ["--model", str(tmp_path / "static"), "--learning-rate", "0.05", "--batch-size", "12"]
    return tmp_path, folders, tables, common


def test_the_program_and_python_train_the_same(world, capsys):
    folder, (a, b), (first, second), common = world
    shares = ["--mixture", "2,1"]
    own = ["--batches", "hobit", "--set-batches", "seeds=2", *common, "--dev", "dev", "-o", str(folder / "out")]
    assert run(["train", a, first, "--also", f"{b},{second}", *shares, *own, "--json", str(folder / "out.json")]) == 0
    shown = capsys.readouterr().out
    assert "rows of second in an epoch: 20" in shown
    found = json.loads((folder / "out.json").read_text())
    assert found["counts"]["rows of first in an epoch"] == 40
    assert found["provenance"]["settings"]["mixture"] == [2.0, 1.0]
    assert {"first", "second"} <= set(found["provenance"]["inputs"])
    trained = foils.train(
        a, first, also=[(b, second)], mixture=(2, 1), batches="hobit",
        batch_settings={"seeds": 2}, model=str(folder / "static"), learning_rate=0.05, batch_size=12, dev="dev",
        output=folder / "again",
    )  # fmt: skip
    assert trained.to_json()["history"] == found["history"]
    model = trained.model
    each = [
        measure_encoder(model, collection, "dev", ["nDCG@10"]).means["nDCG@10"] for collection in (made_up(), other())
    ]
    assert trained.scores["nDCG@10 on dev after"] == pytest.approx(np.mean(each))


def test_negatives_are_mined_anew_in_their_own_data_set(world):
    folder, (a, b), _, common = world
    more = ["--also", b, "--refresh", "1", "--epochs", "2", "--per-query", "2"]
    assert run(["train", a, *more, *common, "-o", str(folder / "out"), "--json", str(folder / "out.json")]) == 0
    assert json.loads((folder / "out.json").read_text())["counts"]["rows of second"] == 36


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--mixture", "2,1"], "--mixture 2.0 1.0: no effect without --also"),
        (["--also", "B", "--mixture", "2,1,1"], "shares 2, 1, 1 of 2 data sets"),
        (["--also", "B", "--mixture", "2,x"], "expected a number for each data set, as 2,1"),
        (["--also", "B", "--mixture", "2,0"], "above 0"),
        (["--also", "B,SOURCE"], "no negatives for first"),
        (["--also", "B", "--reranker"], "of one data set"),
        (["--also", "B", "--batches", "no-duplicates"], "takes one data set"),
        (["--also", "nowhere/"], "nowhere"),
        (["--also", "B", "--dev", "none"], "none"),
    ],
)
def test_what_does_not_go_together_is_refused(more, said, world, capsys):
    folder, (a, b), (_, second), common = world
    more = [each.replace("SOURCE", second).replace("B", b) if each[0] == "B" else each for each in more]
    assert run(["train", a, *more, *common, "-o", str(folder / "out")]) == 2
    assert said in capsys.readouterr().err


def test_a_data_set_without_rows_is_named():
    documents = {"d": " ".join(WORDS[:5])}
    empty = Collection.from_dicts("empty", documents, {"q": "ba"}, {"test": {"q": {"d": 1}}})
    refused("no rows to train on in empty", sets(also=[empty]).training_set, None, form="pairs")
    refused("rows of a mixture cannot be left out", mixed_set().without, np.zeros(38, bool), reason="any")
