"""Studies that are measured on other collections than they train on: the mean over them, and each collection's own."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from foils.data import Run
from foils.data.splitting import recurrence
from foils.encode import VectorStore
from foils.evaluation import measure_encoder
from foils.mining import BM25Retriever, RandomRetriever, mine_negatives
from foils.runtime.errors import FormatError, InputError
from foils.studies import StudySettings, analyse, read_cells, run_study
from foils.studies.cells import UNTRAINED, mean_of
from foils.studies.kinds import Encoders
from foils.studies.outcomes import mean_and_interval
from foils.studies.page import study_page
from foils.training.models import load_trainable
from train_models import bert_model, made_up, static_model, table

MEASURE = "nDCG@10"
SETTINGS = StudySettings(seeds=1, per_query=3, measures=(MEASURE,), training={"batch_size": 16, "learning_rate": 0.05})
OTHERS = [replace(made_up(60, 90, seed=5), name="larger"), replace(made_up(20, 50, seed=7), name="smaller")]


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    place, collection = tmp_path_factory.mktemp("elsewhere"), made_up()
    static_model().save_pretrained(str(place / "static"))
    sources = {
        "random": mine_negatives(collection, RandomRetriever(collection, seed=0), split="train", top=4),
        "bm25": mine_negatives(collection, BM25Retriever(collection), split="train", top=4),
        "made": table(collection),
    }
    given = (collection, sources, [str(place / "static")], VectorStore(place / "vectors"), SETTINGS)
    run_study(place / "study", *given, tests=OTHERS)
    return place, given


def test_every_training_is_measured_on_each_collection_and_the_mean_is_of_their_means(studied):
    place, _ = studied
    (cell,) = read_cells(place / "study")
    assert cell.sizes == [15, 5]
    own = [measure_encoder(static_model(), each, "test", [MEASURE]).means[MEASURE] for each in OTHERS]
    assert cell.means(MEASURE)[UNTRAINED] == pytest.approx([np.mean(own)])
    found = analyse([cell])
    outcomes = {each.source: each for each in found.outcomes[cell.name]}
    assert dict(outcomes[UNTRAINED].tests) == pytest.approx(dict(zip(("larger", "smaller"), own, strict=True)))
    for each in outcomes.values():
        assert each.mean == pytest.approx(np.mean(list(each.tests.values())))
    trained = [json.loads(path.read_text()) for path in cell.folder.glob("trained/bm25*.json")]
    assert trained[0]["measures"][MEASURE] == pytest.approx(outcomes["bm25"].mean)
    data = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert set(data["cells"][0]["outcomes"][0]["tests"]) == {"larger", "smaller"}
    for text in (str(found), study_page(found)):
        assert "larger" in text
        assert "smaller" in text


def test_other_collections_make_another_cell_and_the_trainings_own_makes_none(studied):
    place, given = studied
    for number, tests in enumerate(([], [given[0]], OTHERS[:1])):
        run_study(place / str(number), *given, tests=tests)
    names = [read_cells(place / str(number))[0].folder.name for number in range(3)]
    assert names[0] == names[1] != names[2]
    assert read_cells(place / "2")[0].sizes == []
    assert analyse(read_cells(place / "0")).outcomes != analyse(read_cells(place / "2")).outcomes


def test_what_a_word_table_learns_recurs_in_the_collection_that_it_is_trained_on_alone(studied):
    _, (collection, _, (model,), *_) = studied
    train, test = collection.qrels["train"], collection.qrels["test"]
    some = test.slice(0, 4).set_column(0, "query_id", train["query_id"].slice(0, 4))  # four more answers to train
    collection = replace(collection, qrels={**collection.qrels, "train": pa.concat_tables([train, some])})
    own = 4 / len(test)
    assert recurrence(collection, "test") == own < 1
    for tests, share in (([collection], own), ([collection, OTHERS[0]], own / 2), (OTHERS, 0.0)):
        assert Encoders(SETTINGS, tests).deciding(model, collection).recurrence == share


def test_a_language_model_heeds_no_recurrence_and_an_encoder_takes_all_for_recurring(tmp_path):
    bert_model(tmp_path / "language")
    load_trainable(str(tmp_path / "language")).save_pretrained(str(tmp_path / "encoder"))
    collection = made_up()
    language, encoder = (
        Encoders(SETTINGS, [collection]).deciding(str(tmp_path / name), collection) for name in ("language", "encoder")
    )
    assert (language.starts, language.recurrence) == ("nothing", None)
    assert (encoder.starts, encoder.recurrence) == ("encoder", 1.0)


def test_the_interval_draws_queries_within_each_collection():
    rng = np.random.default_rng(0)
    values = np.concatenate([np.full((2, 30), 0.2), np.full((2, 3), 0.8)], axis=1)
    assert mean_of(values, [30, 3]) == pytest.approx([0.5, 0.5])
    assert mean_and_interval(values, rng, [30, 3]) == pytest.approx((0.5, 0.5, 0.5))
    mean, low, high = mean_and_interval(values, rng)
    assert low < mean < high < 0.5


def test_what_does_not_fit_is_refused(studied, tmp_path):
    _, (collection, sources, models, store, settings) = studied
    with pytest.raises(InputError, match="two collections to test on are called larger"):
        run_study(tmp_path / "s", collection, sources, models, store, settings, tests=[OTHERS[0], OTHERS[0]])
    run = Run.from_dict({"q59": {"d1": 1.0}})
    again = StudySettings(reranker=True, first_stage=run)
    with pytest.raises(InputError, match="a run is of one collection, and there are 2"):
        run_study(tmp_path / "s", collection, sources, models, store, again, tests=OTHERS)
    assert not (tmp_path / "s").exists()
    run_study(tmp_path / "damaged", collection, sources, models, store, settings, tests=OTHERS)
    (path,) = (tmp_path / "damaged").glob("cells/*/cell.json")
    facts = json.loads(path.read_text())
    facts.pop("checksum", None)
    wrong = [{"name": "larger", "queries": 40}, facts["tests"][1]]
    for tests, message in (([{"name": "larger"}], "no collections"), (wrong, "45 test queries")):
        path.write_text(json.dumps({**facts, "tests": tests}))
        with pytest.raises(FormatError, match=message):
            read_cells(tmp_path / "damaged")
