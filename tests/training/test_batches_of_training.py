"""Training sees the batches that a plan shows, without known positives, and negatives that are mined anew."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

pytest.importorskip("datasets")

import torch

from foils.batching.plan import batch as plan_batches
from foils.data import Collection
from foils.data.read import CollectionSettings
from foils.data.training_rows import RowSettings
from foils.encode import VectorStore
from foils.mining import BM25Retriever, mine_negatives
from foils.runtime.errors import FailureError, InputError
from foils.training.data import read_data_sets, training_set
from foils.training.losses import make_loss
from foils.training.refresh import Refresh
from foils.training.settings import MethodSettings, TrainSettings
from foils.training.train import train_model
from train_models import WORDS, made_up, resumed_exactly, static_model, table, unpaired, weights

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
        *((name, "pairs", {}) for name in ("random", "hobit", "hobit-c", "mutual", "ngame", "walks", "b3")),
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


@pytest.mark.parametrize("name", ["hobit", "no-duplicates"])
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
    assert name == "no-duplicates" or met == 0, "where there is a choice they are kept apart"


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


# Negatives that are mined anew while it trains


SETTINGS = TrainSettings(batch_size=16, epochs=4, learning_rate=0.05, trainer={"save_steps": 3})


@pytest.fixture(scope="module")
def data():
    collection = made_up()
    negatives = mine_negatives(collection, BM25Retriever(collection), split="train", top=4)
    return training_set(collection, negatives, per_query=4)


def ance(every=2, per_query=4, kind=Refresh):
    sets = read_data_sets(made_up(), None, MethodSettings(), CollectionSettings())
    return kind(sets, RowSettings(per_query=per_query).completed("triplets"), every)


def test_negatives_are_mined_anew_with_the_model_as_it_is(data, tmp_path):
    seen = []

    class Spying(Refresh):
        def mined(self, collections, model):
            seen.append(weights(model).clone())
            return super().mined(collections, model)

    train = partial(train_model, data=data, settings=SETTINGS)
    model = train(static_model(), output=tmp_path / "a", refresh=ance(kind=Spying)).model
    (at_refresh,) = seen  # after two of four epochs
    assert not torch.equal(at_refresh, weights(model))
    assert not torch.equal(at_refresh, weights(static_model()))
    assert not torch.equal(weights(model), weights(train(static_model(), output=tmp_path / "b").model))
    seen.clear()
    train(static_model(), output=tmp_path / "c", refresh=ance(every=1, kind=Spying))
    assert len(seen) == 3


def test_batches_hold_the_new_negatives(data):
    collection, refresh = made_up(), ance()
    followed = refresh.following(data, None)
    assert followed.dataset[:3] == data.dataset[:3]
    fresh = refresh.mined({"made-up": collection}, static_model(seed=5))["made-up"]
    refresh.take(fresh)
    before, after, assembled = data.dataset[:], followed.dataset[:], training_set(collection, fresh, per_query=4)
    assert (after["anchor"], after["positive"]) == (before["anchor"], before["positive"])
    assert after["negative"] == assembled.dataset[:]["negative"] != before["negative"]


@pytest.mark.parametrize(("loss", "step"), [("mnrl", 7), ("weighted", 11), ("mnrl", 16)])
def test_it_resumes_exactly_before_and_after_a_refresh(data, tmp_path, loss, step):
    def train(folder, **more):
        settings = replace(SETTINGS, loss=loss)
        return train_model(static_model(), data, folder, settings=settings, refresh=ance(), **more)

    resumed_exactly(train, tmp_path, step)


def test_a_refresh_that_gives_fewer_negatives_is_refused(data, tmp_path):
    with pytest.raises(FailureError, match="a list became shorter"):
        train_model(static_model(), data, tmp_path, settings=SETTINGS, refresh=ance(every=1, per_query=3))
