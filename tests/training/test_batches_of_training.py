"""Training sees the batches that a plan shows, and several data sets, each by itself."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("datasets")

import json

import pytest
import torch

from foils.batching.plan import batch as plan_batches
from foils.data import Collection
from foils.data.read import CollectionSettings
from foils.encode import VectorStore
from foils.runtime.errors import InputError
from foils.training.data import read_data_sets, training_set
from foils.training.fit import train_model
from foils.training.losses import make_loss
from foils.training.settings import MethodSettings, TrainSettings
from train_models import WORDS, made_up, resumed_exactly, static_model, table, unpaired

pytest.importorskip("datasets")

import foils
from foils.cli.app import run
from foils.data.description import distinct_names, joined_collections, joined_negatives
from foils.evaluation import measure_encoder
from foils.training.settings import parsed_data_sets
from refusals import refused
from train_models import (
    bert_model,
    features,
    made_up_folder,
)

SIZE = 16
STILL = TrainSettings(batch_size=SIZE, epochs=1, learning_rate=1e-12, seed=3)
OWN = {"hobit": {"seeds": 2, "candidates": 16}, "walks": {"candidates": 30, "neighbours": 5}, "b3": {"skip": 1}}
OWN["hobit-c"] = OWN["hobit"]


@pytest.fixture(scope="module")
def collection():
    """64 queries with 2 positives each, which neighbours share; a third answers some of them in the test split."""
    rng = np.random.default_rng(0)
    texts = {f"d{i}": " ".join(rng.choice(WORDS, 6)) for i in range(66)}
    texts["d65"] = texts["d3"]
    queries = {f"q{i}": " ".join(texts[f"d{i}"].split()[:2] + texts[f"d{i + 1}"].split()[:2]) for i in range(64)}
    queries["again"] = queries["q5"]
    train = {f"q{i}": {f"d{i}": 1, f"d{i + 1}": 1} for i in range(64)}
    test = {"q9": {"d20": 1}, "again": {"d40": 1}, "q12": {"d65": 1}}
    return Collection.from_dicts("neighbours", texts, queries, {"train": train, "test": test})


def relevant(collection):
    """(query text, document text) of every positive, by plain loops."""
    asked = dict(zip(*(collection.queries[c].to_pylist() for c in ("query_id", "text")), strict=True))
    ids = collection.documents["doc_id"].to_pylist()
    texts = dict(zip(ids, collection.document_texts(range(len(ids))), strict=True))
    judged = [row for split in collection.qrels.values() for row in split.to_pylist()]
    return {(asked[row["query_id"]], texts[row["doc_id"]]) for row in judged if row["relevance"] > 0}


def planned_batches(collection, folder, name, source=None, encoder=None, **more):
    how = {"vectors": VectorStore(folder / "vectors"), "batch_size": SIZE, "seed": STILL.seed, **more}
    planned = plan_batches(collection, name, source, encoder=encoder or static_model(), **how)
    return planned, [rows.tolist() for rows in planned.batches]


@pytest.fixture
def trained_on(seen):
    """Return a function that trains, and returns the batches of the training by the numbers of their rows."""

    def run(data, folder, name, own=None, settings=STILL):
        seen.clear()
        own = OWN.get(name) if own is None else own
        train_model(static_model(), data, folder, settings=settings, batches=name, batch_settings=own)
        return list(seen)

    return run


@pytest.mark.parametrize(
    ("name", "form", "shape"),
    [
        *((name, "pairs", {}) for name in ("random", "hobit", "hobit-c", "ngame", "walks", "b3")),
        ("hobit", "triplets", {"per_query": 2}),
        ("hobit", "lists", {"max_positives": 1}),
    ],
)
def test_training_sees_the_batches_that_the_plan_shows(name, form, shape, collection, tmp_path, trained_on):
    source = None if form == "pairs" else table(collection)
    shape = {"form": form, **shape}
    planned, expected = planned_batches(collection, tmp_path, name, source, settings=OWN.get(name), **shape)
    data = training_set(collection, source, **shape)
    np.testing.assert_array_equal(data.rows[:, 0], planned.rows.query_rows)
    np.testing.assert_array_equal(data.rows[:, 1], planned.rows.doc_rows)
    assert trained_on(data, tmp_path / "out", name) == expected
    shown = planned.table().to_pylist()[:SIZE]
    first = data.dataset[expected[0]]
    text = dict(zip(collection.documents["doc_id"].to_pylist(), collection.document_texts(range(66)), strict=True))
    assert [text[row["doc_id"]] for row in shown] == first["positive"]
    if form == "triplets":
        assert [text[row["negative_id"]] for row in shown] == first["negative"]


def test_hobit_s_temperature_is_the_loss_s_unless_it_is_set(collection, tmp_path, trained_on):
    data, warm = training_set(collection), replace(STILL, loss_settings={"temperature": 0.5})
    of_tau = {}
    for tau in (0.5, 0.05):
        settings = {**OWN["hobit"], "tau": tau}
        of_tau[tau] = planned_batches(collection, tmp_path, "hobit", settings=settings)[1]
    assert of_tau[0.5] != of_tau[0.05]
    assert trained_on(data, tmp_path / "as the loss", "hobit", settings=warm) == of_tau[0.5]
    own = {**OWN["hobit"], "tau": 0.05}
    assert trained_on(data, tmp_path / "its own", "hobit", own, settings=warm) == of_tau[0.05]


@pytest.mark.parametrize("name", ["hobit", "random"])
@pytest.mark.parametrize("shape", [{"form": "pairs"}, {"per_query": 2}])
def test_known_positives_do_not_meet_or_are_masked(name, shape, collection, tmp_path, trained_on):
    data = training_set(collection, table(collection, per_query=4), **shape)
    known, columns = relevant(collection), [c for c in data.dataset.column_names if c not in ("anchor", "label")]
    losses = {loss: make_loss(loss, static_model(), data, settings={}) for loss in ("mnrl", "weighted", "debiased")}
    met = 0
    for batch in trained_on(data, tmp_path, name):
        rows = data.dataset[batch]
        wrong = np.array(
            [
                [(asked, text) in known and (column, j) != ("positive", i) for column in columns for j, text in
                 enumerate(rows[column])]
                for i, asked in enumerate(rows["anchor"])
            ]
        )  # fmt: skip
        met += wrong[:, : len(batch)].sum()
        for loss in losses.values():
            assert unpaired(loss.facts, np.array(batch))[wrong].all()
    assert met == 0, "where there is a choice they are kept apart"


def test_b3_may_have_a_teacher(collection, tmp_path, trained_on):
    teacher = static_model(seed=9)
    teacher.save_pretrained(str(tmp_path / "teacher"))
    data, own = training_set(collection, table(collection), per_query=1), {"skip": 1, "ranks": 4, "community_size": 8}
    named = trained_on(data, tmp_path / "named", "b3", {**own, "teacher": str(tmp_path / "teacher")})
    alone = trained_on(data, tmp_path / "alone", "b3", own)
    how = {"settings": own, "per_query": 1}
    assert named == planned_batches(collection, tmp_path, "b3", table(collection), teacher, **how)[1] != alone


@pytest.mark.parametrize(
    ("name", "own", "said"),
    [
        ("hobit", {"teacher": "x"}, "unknown setting of hobit"),
        ("b3", {"teacher": "no/such-model"}, "no/such-model"),
    ],
)
def test_settings_that_a_training_cannot_heed_are_refused(name, own, said, collection, tmp_path):
    with pytest.raises(InputError, match=said):
        train_model(
            static_model(), training_set(collection), tmp_path, settings=STILL, batches=name, batch_settings=own
        )


# Several data sets


MIXED = TrainSettings(batch_size=12, epochs=3, learning_rate=0.05, seed=2)
SCHEDULED = {
    "random": {},
    "hobit": {"seeds": 2, "warmup": 1, "anneal": 2},
    "hobit-c": {"seeds": 2, "candidates": 12},
    "ngame": {"warmup": 1},
    "walks": {"candidates": 10, "neighbours": 4},
    "b3": {"skip": 1, "ranks": 5, "community_size": 5},
}


def other(name="other", queries=36, seed=7):
    """A collection with the same ids as `made_up`, and other texts."""
    collection = made_up(queries=queries, seed=seed)
    return Collection(name, collection.documents, collection.queries, collection.qrels, f"{name}{seed}")


def joined_set(also=None, first=None, source=None, **rows):
    settings = MethodSettings(also=[other()] if also is None else also)
    return read_data_sets(first or made_up(), source, settings, CollectionSettings(), **rows)[0]


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
    tables = {"source": table(made_up()), "also": [(other(), table(other(), per_query=3))]}
    data = joined_set(**tables, form=form, per_query=None if form == "pairs" else 2)
    source_of, model = data.facts.sources, bert_model(tmp_path)
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
def test_training_builds_pieces_inside_each_data_set_and_resumes_exactly(name, tmp_path, seen):
    data = joined_set(form="pairs")

    def train(folder, **more):
        settings = replace(MIXED, trainer={"save_steps": 4})
        how = {"settings": settings, "batches": name, "batch_settings": SCHEDULED[name]}
        return train_model(static_model(), data, folder, **how, **more)

    assert np.bincount(data.facts.sources).tolist() == [20, 18]
    assert resumed_exactly(train, tmp_path, 5).steps == 12  # of 38 rows an epoch
    for epoch in range(3):
        batches = list(map(np.array, seen[4 * epoch : 4 * epoch + 4]))
        assert sorted(np.concatenate(batches).tolist()) == list(range(38))
        pieces = [piece for batch in batches[:2] for piece in batch.reshape(2, 6)]
        assert all(len(set(data.facts.sources[piece])) == 1 for piece in pieces)


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
    own = ["--batches", "hobit", "--set-batches", "seeds=2", *common, "--dev", "dev", "-o", str(folder / "out")]
    assert run(["train", a, first, "--also", f"{b},{second}", *own, "--json", str(folder / "out.json")]) == 0
    shown = capsys.readouterr().out
    assert "rows of second: 36" in shown
    found = json.loads((folder / "out.json").read_text())
    assert found["counts"]["rows of first"] == 40
    assert {"first", "second"} <= set(found["provenance"]["inputs"])
    trained = foils.train(
        a, first, also=[(b, second)], batches="hobit",
        batch_settings={"seeds": 2}, model=str(folder / "static"), learning_rate=0.05, batch_size=12, dev="dev",
        output=folder / "again",
    )  # fmt: skip
    assert trained.to_json()["history"] == found["history"]
    model = trained.model
    each = [
        measure_encoder(model, collection, "dev", ["nDCG@10"]).means["nDCG@10"] for collection in (made_up(), other())
    ]
    assert trained.scores["nDCG@10 on dev after"] == pytest.approx(np.mean(each))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--also", "B,SOURCE"], "no rows of first"),
        (["--also", "B", "--reranker"], "no effect with --reranker"),
        (["--also", "B", "--batches", "progress"], "no effect with --batches progress"),
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
    refused("no rows of empty", joined_set, also=[empty], form="pairs")
