"""Studies, to whose folder every call adds: each source trained, scored and measured once; and what they say."""

import itertools
import json
import re
import shutil
from dataclasses import replace
from html import unescape
from pathlib import Path

import numpy as np
import pytest

from foils.data.negatives import Recapture
from foils.deciding import BeliefSettings, decide
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.evaluation import bm25_run, measure_encoder, measure_run
from foils.experiments import PREDICTORS, StudySettings, analyse, open_study, read_cells, run_cells
from foils.experiments.analysis import (
    RESAMPLES,
    chance_of_best,
    mean_and_interval,
    study_page,
)
from foils.experiments.doors import report
from foils.experiments.study import Cell, first_negatives, table_digest, trained_file, weights_of
from foils.experiments.tasks import FIRST_STAGE, IN_BATCH, UNTRAINED, EncoderTask, RerankerTask
from foils.mining import BM25Retriever, Miner, RandomRetriever
from foils.runtime.errors import FoilsError, FormatError
from foils.runtime.files import write_sealed
from foils.scoring import ScoreSettings, score_sources
from foils.statistics.significance import kendall_tau
from foils.training.models import load_trainable
from foils.training.settings import TrainSettings
from hostile import ATTACK, assert_harmless
from refusals import refused
from train_models import bert_model, cross_encoder, made_up, static_model, table
from tune_world import FACTS, SOURCES, write_study

QUICK = {"batch_size": 16, "learning_rate": 0.05}
SETTINGS = StudySettings(seeds=1, per_query=4, training=QUICK)
COLLECTION = made_up()
OTHERS = [replace(made_up(60, 90, seed=5), name="larger"), replace(made_up(20, 50, seed=7), name="smaller")]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with models: static, a language model, a cross-encoder, and its body without a head."""
    from transformers import BertForSequenceClassification

    folder = tmp_path_factory.mktemp("studies")
    static_model().save_pretrained(str(folder / "static"))
    bert_model(folder / "language")
    load_trainable(str(folder / "language")).save_pretrained(str(folder / "encoder"))
    (folder / "cross").mkdir()
    cross_encoder(folder / "cross")
    shutil.copytree(folder / "cross", folder / "body")
    BertForSequenceClassification.from_pretrained(folder / "cross").bert.save_pretrained(folder / "body")
    return folder


@pytest.fixture(scope="module")
def sources():
    mined = {
        "random": Miner(COLLECTION, RandomRetriever(COLLECTION, seed=0), top=4).mined("train"),
        "bm25": Miner(COLLECTION, BM25Retriever(COLLECTION), top=4).mined("train"),
    }
    return {**mined, "made": table(COLLECTION), "other": table(COLLECTION, seed=5)}


@pytest.fixture
def study(sources, place, tmp_path):
    """Call a study in one folder with some of the sources, by name or as tables; the folder is `study.folder`."""
    store = VectorStore(place / "vectors")

    def call(*names, settings=SETTINGS, folder="study", tables=None, model="static", **more):
        chosen = tables or {name: sources[name] for name in names or ("random", "bm25", "made")}
        run_cells(open_study(tmp_path / folder, COLLECTION, chosen, [str(place / model)], settings, **more), store)
        return read_cells(tmp_path / folder)[-1]

    call.folder, call.store = tmp_path / "study", store
    return call


def files(folder):
    """The JSON files of a study, without what tells how long a training took."""
    return {
        path.relative_to(folder).as_posix(): re.sub(r' *"(seconds|checksum)":.*', "", path.read_text())
        for path in sorted(folder.rglob("*.json"))
    }


def times(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*.json")}


def test_it_scores_trains_and_measures_and_does_nothing_twice(study):
    settings = StudySettings(seeds=2, queries=10, per_query=3, training=QUICK)
    cell = study(settings=settings)
    assert cell.sources == ["random", "bm25", "made"]
    assert cell.outcomes["bm25"]["nDCG@10"].shape == (2, 10)
    assert set(cell.outcomes) == {UNTRAINED, IN_BATCH, *cell.sources}
    assert {cell.sizes_of[name] for name in cell.sources} == {(30, 2)}
    first, at = files(study.folder), times(study.folder)
    study(settings=settings)
    assert times(study.folder) == at
    next(path for path in study.folder.rglob("*.json") if "bm25" in path.name).unlink()
    study(settings=settings)
    assert files(study.folder) == first


def test_a_later_call_adds_seeds_and_sources_as_if_all_had_come_together(study):
    study("random", "bm25")
    before = files(study.folder)
    cell = study("made", "other", settings=replace(SETTINGS, seeds=2))
    study("random", "bm25", settings=replace(SETTINGS, seeds=2))
    assert cell.sources == ["random", "bm25", "made", "other"]
    after = files(study.folder)
    assert all(after[name] == text for name, text in before.items() if "trained/" in name)
    whole = study("random", "bm25", "made", "other", folder="whole")
    for name, values in cell.predictors.items():  # one scale for all
        assert values == pytest.approx(whole.predictors[name], rel=1e-6, abs=1e-9)
    study(settings=StudySettings(training={**QUICK, "epochs": 2}, seeds=1))
    assert len(read_cells(study.folder)) == 2


def test_one_more_source_is_enough_and_no_name_takes_the_place_of_other_rows(study, sources):
    refused("two at least", study, "random", error=FoilsError)
    study("random", "bm25")
    assert set(study("made").predictors) == {"random", "bm25", "made"}
    before = files(study.folder)
    with pytest.raises(FoilsError, match=r"bm25.*other rows.*NAME=FILE"):
        study(tables={"bm25": sources["other"], "made": sources["made"]})
    assert files(study.folder) == before


def test_predictors_are_those_of_the_scores_and_the_decision(study, sources):
    cell = study()
    given = {name: first_negatives(sources[name], 4) for name in cell.sources}
    encoder = load_encoder(cell.facts["model"]["name"], EncoderSettings(max_length=128))
    scores = score_sources(COLLECTION, given, encoder, study.store, ScoreSettings(hybrids=1), replicates=0)
    for score in scores.sources:
        found = cell.predictors[score.name]
        for name in ("eci_sem", "rho", "mnrl_proxy", "gradient_energy", "eci"):
            assert found[name] == pytest.approx(getattr(score, name)), name
        assert set(found) <= set(PREDICTORS)
    for batch, same in ((16, True), (4, False)):
        worths = decide(COLLECTION, given, encoder, study.store, BeliefSettings(in_batch=batch - 1)).worths
        for name in cell.sources:
            assert (cell.predictors[name]["benefit"] == pytest.approx(worths[name].benefit)) == same, name


def test_the_table_says_how_many_rows_and_steps_each_source_had(study, sources):
    half = sources["bm25"].reject(np.arange(len(sources["bm25"])) % 2 == 0, "no")
    found = analyse([study(tables={"half": half, "random": sources["random"]}, settings=replace(SETTINGS, seeds=2))])
    (cell,) = found.cells
    rows = {row[0]: row[5:7] for row in found.outcome_table(cell).rows}
    assert rows["half"] == ("40", "5"), "twice as often: as many steps"
    assert rows["random"] == ("80", "5")
    assert rows[UNTRAINED] == ("", "")
    assert [each.get("steps") for each in found.to_json()["cells"][0]["outcomes"] if each["source"] == "half"] == [5]


def test_a_recapture_of_other_rows_is_not_used(sources):
    for per_query, counted in ((4, True), (3, False)):
        cut = first_negatives(sources["bm25"], per_query)
        assert int(cut.keep.sum()) == 20 * per_query
        assert (Recapture.of(cut) is not None) == counted


def test_a_digest_sees_what_is_trained_on(sources):
    made = sources["made"]
    assert table_digest(made) == table_digest(made.with_columns({"other": np.zeros(len(made))}))
    assert table_digest(made) != table_digest(made.reject(np.arange(len(made)) == 0, "no"))


BAD = [
    ({"measures": ()}, "no measure"),
    ({"measures": ("nDCG@10", "Nonsense@3")}, "Nonsense"),
    ({"measures": ("nDCG@2000",)}, r"nDCG@2000.*1,?000"),
    ({"training": {**QUICK, "batches": "nonsense"}}, "nonsense"),
    ({"training": {**QUICK, "epochs": "two"}}, "epochs"),
    ({"training": {**QUICK, "patience": 3}}, "patience"),
    ({"training": {"epoch": 2}}, r"Did you mean 'epochs'"),
    ({"test_split": "train"}, "train"),
    ({"reranker": True, "measures": ("nDCG@60",)}, "nDCG@60.*first 50"),
    ({"reranker": True, "training": {"batches": "hobit"}}, "batches: no effect with rerankers"),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=range(len(BAD)))
def test_what_cannot_be_done_is_refused_before_anything_is_trained(study, change, message):
    model = "body" if change.get("reranker") else "static"
    with pytest.raises(FoilsError, match=message):
        study("random", "bm25", model=model, settings=StudySettings(**{"seeds": 1, "training": QUICK, **change}))
    assert not study.folder.exists()


def test_sources_and_models_are_looked_at_before_the_first_training(study, sources, place):
    two = {name: sources[name] for name in ("random", "bm25")}
    refused("baseline", study, tables={"untrained": sources["made"], "x": sources["bm25"]})
    with pytest.raises(FoilsError, match="/nowhere/at/all"):
        open_study(study.folder, COLLECTION, two, [str(place / "static"), "/nowhere/at/all"], SETTINGS)
    refused("two collections to test on are called larger", study, tests=[OTHERS[0], OTHERS[0]])
    assert not study.folder.exists()


@pytest.mark.slow
def test_every_training_is_measured_on_each_collection_and_the_mean_is_of_their_means(study):
    settings = replace(SETTINGS, measures=("nDCG@10",))
    cell = study(tests=OTHERS, settings=settings)
    assert cell.tests == {"larger": 15, "smaller": 5}
    own = [measure_encoder(static_model(), each, "test", ["nDCG@10"]).means["nDCG@10"] for each in OTHERS]
    assert cell.means("nDCG@10")[UNTRAINED] == pytest.approx([np.mean(own)])
    found = analyse([cell])
    outcomes = {each.source: each for each in found.outcomes[cell.name]}
    assert dict(outcomes[UNTRAINED].tests) == pytest.approx(dict(zip(("larger", "smaller"), own, strict=True)))
    assert all(each.mean == pytest.approx(np.mean(list(each.tests.values()))) for each in outcomes.values())
    assert all("larger" in text and "smaller" in text for text in (str(found), study_page(found)))
    named = [study(tests=tests, settings=settings, folder=str(at)).folder.name
             for at, tests in enumerate(([], [COLLECTION], OTHERS[:1]))]  # fmt: skip
    assert named[0] == named[1] != named[2]


def test_the_interval_draws_queries_within_each_collection():
    rng = np.random.default_rng(0)
    values = np.concatenate([np.full((2, 30), 0.2), np.full((2, 3), 0.8)], axis=1)
    assert values @ weights_of(values, [30, 3]) == pytest.approx([0.5, 0.5])
    assert mean_and_interval(values, rng, [30, 3]) == pytest.approx((0.5, 0.5, 0.5))
    mean, low, high = mean_and_interval(values, rng)
    assert low < mean < high < 0.5


def test_what_training_starts_from(study, sources, place):
    """A language model and a head that nobody trained know nothing."""
    two = {name: sources[name] for name in ("random", "bm25")}
    rerankers = {"reranker": True, "training": {**QUICK, "max_length": 32}}
    for model, more, expected in (
        ("static", {}, ("encoder", 15)),
        ("language", {}, ("nothing", 15)),
        ("encoder", {}, ("encoder", 15)),
        ("body", rerankers, ("nothing", 0)),
        ("cross", rerankers, ("encoder", 0)),
    ):
        (cell,) = open_study(study.folder, COLLECTION, two, [str(place / model)], replace(SETTINGS, **more))
        assert (cell.belief.starts, cell.belief.in_batch) == expected


RERANKING = StudySettings(
    reranker=True, seeds=2, per_query=3, training={"batch_size": 8, "learning_rate": 0.01, "max_length": 32}
)


def test_rerankers_train_on_lists_and_are_measured_by_the_order_that_the_first_stage_gets(study, place):
    settings = replace(RERANKING, score_with=str(place / "static"))
    cell = study("random", "bm25", model="body", settings=settings)
    assert set(cell.outcomes) == {FIRST_STAGE, "random", "bm25"}
    assert set(cell.outcomes["bm25"]) == {"nDCG@10", "RR@10"}
    expected = measure_run(bm25_run(COLLECTION, "test", depth=50), COLLECTION, "test", ["nDCG@10"])
    assert cell.means("nDCG@10")[FIRST_STAGE] == pytest.approx([expected.means["nDCG@10"]])  # once
    assert cell.sizes_of["bm25"] == (20, 3)  # 20 lists in batches of 8
    first, second = cell.outcomes["bm25"]["nDCG@10"]
    assert not np.array_equal(first, second)
    at = times(study.folder)
    study("random", "bm25", model="body", settings=settings)
    assert times(study.folder) == at
    found = analyse([cell])
    means = {each.source: each.mean for each in found.outcomes[cell.name]}
    for each in found.outcomes[cell.name]:
        if each.source != FIRST_STAGE:
            assert each.gain == pytest.approx(means[each.source] - means[FIRST_STAGE])
    assert "gain over first stage" in str(found)


def test_every_seed_draws_a_head(place):
    pairs = [("ba be", "ba be bi")]
    loads = {name: [RerankerTask(str(place / name)).load(seed=seed).predict(pairs)[0] for seed in (0, 0, 1)]
             for name in ("body", "cross")}  # fmt: skip
    assert loads["body"][0] == loads["body"][1] != loads["body"][2]
    assert len(set(loads["cross"])) == 1


def test_a_report_takes_one_study_or_several(study):
    study("random", "bm25")
    folder = study.folder
    found = report(folder)
    assert report([str(folder)]).to_json() == found.to_json() != report(folder, seed=3).to_json()
    assert len(report([folder, folder]).cells) == 2


# What lies on disk.


@pytest.fixture
def kept(tmp_path):
    """The folder of a study, and some of its files by kind."""
    return {"study": tmp_path / "study", **write_study(tmp_path / "study")}


def test_it_is_a_good_study(kept):
    (read,) = read_cells(kept["study"])
    assert read.sources == list(SOURCES)
    assert read.outcomes["bm25"]["nDCG@10"] == pytest.approx(np.array([[0.1, 0.2], [0.1, 0.21]]))
    assert analyse([read]).leaderboard[0].predictor == "eci_sem"
    assert read.facts == FACTS, "without its checksum"
    refused("no study here", read_cells, kept["study"] / "nothing")


@pytest.mark.parametrize(
    ("name", "was", "is_now"),
    [
        ("cell", "1111", "1112"), ("scores", "2.0", "2.1"), ("result", "0.21", "0.22"),
        ("cell", '"checksum"', '"check"'),
    ],
)  # fmt: skip
def test_what_changed_or_has_no_checksum_is_refused(kept, name, was, is_now):
    kept[name].write_text(kept[name].read_text().replace(was, is_now, 1))
    with pytest.raises(FormatError, match=r"contents have changed .*remove it, and it will be made again") as caught:
        read_cells(kept["study"])
    assert caught.value.path == kept[name]


def test_results_of_other_measures_and_a_folder_in_the_place_of_a_file(kept):
    kept["result"].write_bytes(b"[")
    refused("malformed JSON", read_cells, kept["study"], error=FormatError)
    write_sealed(kept["result"], {"per_query": {"nDCG@10": [1, 2, 3]}})
    refused("other measures or queries than with seed 0", read_cells, kept["study"], error=FormatError)
    for seed in range(2):
        path = trained_file(kept["cell"].parent, "bm25", SOURCES["bm25"], seed)
        write_sealed(path, {"per_query": {"AP": [1, 2]}})
    refused(r"c · m have no nDCG@10; measured were AP, nDCG@10", analyse, read_cells(kept["study"]))
    kept["cell"].unlink()
    kept["cell"].mkdir()
    refused(r"cell\.json: ", read_cells, kept["study"])


def test_an_encoder_is_cut_in_training_and_measured_at_its_own_length(place, monkeypatch):
    task = EncoderTask(str(place / "language"))
    assert task.load().max_seq_length == task.encoder.max_length > 4
    given = []
    monkeypatch.setattr("foils.training.fit.train_model", lambda *_, settings, **__: given.append(settings))
    task.train(None, place, TrainSettings(learning_rate=0.1, max_length=4), "random")
    assert [settings.max_length for settings in given] == [4]
    assert json.dumps(task.fingerprint)


# What a study says: outcomes, how far their order repeats, predictors, where something can be told, and its page


MEASURE = "nDCG@10"


def cell(
    sources=6, *, name="world", model="m", rise=0.05, noise=0.0, seeds=4, queries=40, base=0.3, predictors=("eci_sem",),
    good=None, spread=0.1, call="s",
):  # fmt: skip
    """Sources whose results rise, of which the first predictor knows the order; the untrained model is at 0.3."""
    rng = np.random.default_rng(0)
    names = [f"{call}{i}" for i in range(sources)]
    own = spread * rng.standard_normal(queries)  # what makes a query hard, for the untrained model as for the others
    outcomes = {
        each: {MEASURE: base + own + rise * i + noise * rng.standard_normal((seeds, queries))}
        for i, each in enumerate(names)
    }
    outcomes[UNTRAINED] = {MEASURE: np.tile(0.3 + own, (seeds, 1))}
    values = {
        each: {p: float(i) if p == "eci_sem" else rng.normal() for p in predictors} for i, each in enumerate(names)
    }
    if good is not None:  # what the first predictor says, beside one that says the reverse of the truth
        values = {each: {"eci_sem": float(good[i]), "rho": -float(i)} for i, each in enumerate(names)}
    facts = {
        "collection": {"name": name, "digest": "x" * 20}, "model": {"name": model, "fingerprint": "y" * 20},
        "settings": {"measures": [MEASURE], "training": {"learning_rate": 2e-5}}, "sources": dict.fromkeys(names, ""),
    }  # fmt: skip
    return Cell(Path(), facts, values, outcomes)


def five(name="world", *, good, **more):
    return cell(5, name=name, good=good, rise=0.1, **more)


# Outcomes and predictors.


def test_predictors_are_ranked_by_their_agreement_and_outcomes_by_their_means():
    found = analyse([five(good=[1, 2, 3, 4, 5]), five("other", good=[1, 2, 3, 5, 4])])
    first, last = found.leaderboard
    assert (first.predictor, last.predictor) == ("eci_sem", "rho")
    assert (first.kendall, first.worst, last.kendall) == pytest.approx(((1 + 0.8) / 2, 0.8, -1))
    outcomes = found.outcomes["world · m"]
    assert [each.source for each in outcomes][:4] == ["s4", "s3", "s2", "s1"]
    assert all(each.low <= each.mean <= each.high and len(each.seeds) == 4 for each in outcomes)


def test_regret_is_what_the_first_choice_loses():
    regrets = {each.predictor: each.regret for each in analyse([five(good=[1, 2, 9, 4, 5])]).leaderboard}
    assert regrets == pytest.approx({"eci_sem": 0.2, "rho": 0.4})


def test_intervals_of_means_are_those_of_one_draw_after_the_other():
    values = np.random.default_rng(1).normal(size=(3, 7))
    rng = np.random.default_rng(2)
    draws = [values[of_seeds].mean(axis=0) for of_seeds in rng.integers(3, size=(RESAMPLES, 3))]
    low, high = np.quantile([means[rng.integers(7, size=7)].mean() for means in draws], [0.025, 0.975])
    assert mean_and_interval(values, np.random.default_rng(2)) == pytest.approx((values.mean(), low, high))


def test_a_predictor_that_a_source_lacks_is_not_compared():
    lacking = five("other", good=range(5))
    del lacking.predictors["s2"]["rho"]
    assert [each.predictor for each in analyse([five(good=range(5)), lacking]).leaderboard] == ["eci_sem"]
    for source in lacking.sources:
        lacking.predictors[source].pop("eci_sem")
    assert "no predictor is there for every source" in analyse([lacking, five(good=range(5))]).headline


def test_too_little_is_refused():
    little = five(good=range(5))
    for name in ("s0", "s1", "s2", "s3"):
        del little.outcomes[name]
    refused("two sources", analyse, [little])
    refused("measured were nDCG@10", analyse, [five(good=range(5))], measure="AP")


# What can be told.


def test_a_predictor_is_named_where_the_results_repeat_and_the_order_is_no_chance():
    found = analyse([cell(noise=0.01, base=0.4)])
    assert "best foreseen by eci_sem" in found.headline
    assert found.headline.startswith("Half of the seeds order the sources like the other half with τ +1.00")
    assert found.chance < 0.05


@pytest.mark.parametrize(
    ("world", "why"),
    [
        (cell(noise=0.01, seeds=1), "with one seed"),
        (cell(noise=5.0), "half of the seeds order the sources like the other half"),
        (cell(3, noise=0.01), "random orders of the sources"),
        (cell(rise=0.0, noise=0.5, predictors=("rho", "eta")), "random orders of the sources"),
    ],
    ids=["one seed", "noise", "three sources", "no order"],
)
def test_nothing_can_be_told(world, why):
    found = analyse([world])
    assert found.headline.startswith("Nothing can be told")
    assert why in found.headline
    assert "best foreseen" not in found.headline
    assert found.headline in study_page(found).replace("&#39;", "'")
    everything = replace(found, all_predictors=True)
    assert ("Which predictor orders" in str(found), "Which predictor orders" in str(everything)) == (False, True)
    assert ("what it is" in study_page(found), "what it is" in study_page(everything)) == (False, True)
    assert found.to_json()["headline"] == found.headline


def test_two_sources_are_compared_without_an_order():
    found = analyse([cell(2, rise=0.1, noise=0.01)])
    assert found.leaderboard == ()
    assert found.leads["world · m"].mean == pytest.approx(0.1, abs=0.01)
    assert "s1 trained better than s0" in found.headline
    assert "Nothing can be told of" in analyse([cell(2, rise=0.0, noise=0.5)]).headline
    beside = analyse([cell(noise=0.01), cell(2, name="little", noise=0.01)])
    assert list(beside.leaderboard[0].cells) == ["world · m"]
    assert "little · m" in study_page(beside)


def test_a_gain_is_paired_query_by_query():
    """The spread between queries is in both models and leaves the gain's interval, not the mean's."""
    found = analyse([cell(base=0.32, rise=0.02)])
    best = found.outcomes["world · m"][0]
    assert best.gain == pytest.approx(0.12)
    assert best.gain_high - best.gain_low < 1e-9 < best.high - best.low


def test_json_has_null_for_what_is_no_number():
    world = five(good=range(5), seeds=1)
    del world.outcomes[UNTRAINED]
    (found,) = json.loads(json.dumps(analyse([world]).to_json(), allow_nan=False))["cells"]
    assert (found["ceiling"], found["outcomes"][0]["gain"]) == (None, None)


def test_chance_is_the_share_of_all_orders_that_the_best_predictor_fits_as_well():
    rng = np.random.default_rng(1)
    predictors, results = rng.normal(size=(3, 4)), rng.normal(size=4)
    best = max(kendall_tau(each, results) for each in predictors)
    orders = [results[list(order)] for order in itertools.permutations(range(4))]
    exact = np.mean([max(kendall_tau(each, order) for each in predictors) >= best - 1e-9 for order in orders])
    assert chance_of_best([(predictors, results)], best, rng) == pytest.approx(exact, abs=0.05)
    doubled = [(np.vstack([predictors, predictors]), results)]
    assert chance_of_best(doubled, best, rng) == pytest.approx(exact, abs=0.05)  # the same twice is no second choice


def test_cells_of_one_collection_and_model_are_numbered_and_say_their_settings():
    one, two, three = cell(noise=0.01), cell(4, base=0.5), cell(5)
    two.facts["settings"]["training"]["learning_rate"] = 0.003
    found = analyse([one, two, three])
    names = [each.name for each in found.cells]
    assert names == ["world · m", "world · m (2)", "world · m (3)"]
    assert [text in str(found) for text in ("learning_rate 2e-05", "learning_rate 0.003")] == [True, True]
    assert [len(found.outcomes[name]) for name in names] == [7, 5, 6]
    assert list(found.leaderboard[0].cells) == names
    assert all(name in study_page(found) for name in names)
    assert [each["name"] for each in found.to_json()["cells"]] == names


def test_the_page_escapes_what_users_named_and_tells_models_apart():
    analysis = analyse([
        cell(4, name=f"a {ATTACK}", model=model, call=f"s {ATTACK}", predictors=("eci_sem", "rho")) for model in "mn"
    ])  # fmt: skip
    page = study_page(analysis)
    assert analysis.leaderboard[0].predictor in page
    assert_harmless(page)
    assert "· m" in page
    assert "· n" in page
    rows = re.findall(r'<b style="grid-row: \d+">(.*?)</b>', page)
    assert {unescape(row) for row in rows} >= {f"s {ATTACK}0"}
