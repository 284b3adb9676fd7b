"""The parts of a tuning: its plan, its time, its search, and the retriever that comes out of it."""

import json
import shlex
import time
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import foils
from foils.cli.app import run
from foils.data.analyser import BM25Settings
from foils.data.fusing import Fusion
from foils.data.read import CollectionSettings
from foils.data.splitting import split_sizes, with_three_splits
from foils.encode.models import load_model
from foils.experiments import plan as planning
from foils.experiments.doors import TuneSettings, _given
from foils.experiments.plan import (
    PARTS,
    Plan,
    Trial,
    clock,
    halving,
    schedule,
    weight_within_an_error,
    with_hard_documents,
    with_queries,
)
from foils.experiments.tasks import EncoderTask, RerankerTask
from foils.experiments.tune import Tuning, read_again
from foils.runtime.errors import FormatError, InputError
from foils.training.models import LEARNING_RATES, OF_ADAPTERS
from refusals import refused
from train_models import bert_model, made_up, static_model
from tune_world import write_pairs

ENGLISH = BM25Settings(language="english")
GIVEN = {"collection": 'a "b"\\c\n\x7fé', "model": "m", "seed": 0, "columns": {"query": "a b"}, "minutes": 0.5}
TRIALS = {
    "learning_rates": [1e-05, 0.003], "epochs": [1, 2], "queries": 3, "final_epochs": 0, "dev_documents": 9,
    "documents": 30, "train_queries": 3, "test_queries": 2,
}  # fmt: skip


def test_a_plan_reads_as_it_was_written(tmp_path):
    plan = Plan({"given": {**GIVEN, "corpus": None}, "trials": TRIALS})
    plan.write(tmp_path / "plan.toml")
    read = Plan.read(tmp_path / "plan.toml")
    assert read.sections == {"given": GIVEN, "trials": TRIALS} == tomllib.loads(plan.to_toml())
    assert read.to_toml() == plan.to_toml()
    rows = Plan({"negatives": {"source": "", "per_query": 10, "reason": "on dev"}}).tables()[0].rows
    assert list(map(tuple, rows)) == [("negatives", "source none, per_query 10", "on dev")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "malformed TOML "),
        ("[trials]\n", r"\[given\] is missing"),
        ("[batch]\nsize = 3\n", r"\[batch\] is no section of a plan; \[given\] is missing"),
        ('[given]\ncollection = "c"\nmodel = 3\nseed = 1\n', "model of .given. is 3; expected str"),
        ('[given]\ncollection = "c"\nmodel = "m"\nseed = true\n', "seed of .given. is True; expected int"),
    ],
)
def test_a_plan_that_is_none(tmp_path, text, message):
    (tmp_path / "plan.toml").write_text(text)
    refused(message, Plan.read, tmp_path / "plan.toml", error=FormatError)


@pytest.mark.parametrize(
    ("seconds", "rates", "epochs", "final", "queries"),
    [(None, 3, [1, 2, 3], 0, 50), (1e6, 3, [1, 2, 3], 3, 50), (30.0, 1, [4], 0, 50), (1e-3, 1, [4], 0, 50)],
)
def test_the_time_decides_what_is_tried_and_not_how_long_it_is_trained(
    monkeypatch, seconds, rates, epochs, final, queries
):
    """A text takes 0.1 s, so that a row takes 0.9 s: 30 seconds are 15 rows, of which the data have 50."""
    monkeypatch.setattr(planning, "seconds_a_text", lambda *_: 0.1)
    task, whole = EncoderTask("static"), made_up(100, 900)
    trials = schedule(task, whole, per_query=1, rates=(2e-5, 6e-5), seconds=seconds, seed=0)
    assert (len(trials["learning_rates"]), trials["epochs"], trials["final_epochs"]) == (rates, epochs, final)
    assert trials["learning_rates"] == ([6.7e-6, 2e-5, 6e-5] if rates == 3 else [6e-5])
    assert trials["ablation"] is (rates == 3)
    assert trials["queries"] == queries
    assert trials["documents"] == (900 if seconds in (None, 1e6) else 500)
    if seconds == 1e6:  # the base's and the tuned model's documents, dev three times
        assert trials["seconds"] == 1e6 - (2 * 900 + 3 * 900) * 0.1


def test_the_clock_follows_the_time_and_its_marks_make_the_same_steps_again(monkeypatch):
    """Steps of 1, then of 9 seconds: the schedule follows what is spent, and the training ends with the time."""
    now = [0.0]
    monkeypatch.setattr(planning, "time", SimpleNamespace(monotonic=lambda: now[0], perf_counter=time.perf_counter))

    def steps(callback, most=1_000):
        group = {"initial_lr": 1.0}
        state, control = (
            SimpleNamespace(global_step=0, max_steps=most),
            SimpleNamespace(should_training_stop=False, should_log=False),
        )
        rates = []
        while not control.should_training_stop:
            callback.on_step_begin(None, state, control, optimizer=SimpleNamespace(param_groups=[group]))
            rates.append(group["lr"])
            now[0] += 1.0 if state.global_step < 50 else 9.0
            state.global_step += 1
            callback.on_step_end(None, state, control)
        return rates

    live = clock(100.0)
    rates = steps(live)
    assert len(rates) == 50 + 6  # the sixth step of nine seconds passes the end
    assert live.marks[9] == 50
    assert (len(live.marks), live.marks[-1], live.whole) == (PARTS, 56, False)
    assert rates[0] == pytest.approx(0.25)  # half of the first twentieth, of a tenth in which it rises
    assert rates[-1] == pytest.approx((1 - 19.5 / 20) / 0.9)
    assert steps(clock(marks=live.marks)) == rates
    late = clock(100.0)
    now[0] += 80.0  # rows and batches are prepared
    assert len(steps(late)) == 50, "what comes before the first step takes half of the time at most"
    short = clock(1e9)
    assert len(steps(short, most=40)) == 40  # all epochs are made before the time is spent
    assert short.whole


def trial(rate, epochs, dev):
    return Trial(rate, epochs, 10, dev, (), 1, 1, 1.0)


@pytest.mark.parametrize(
    ("dev", "rates", "epochs", "best", "tried"),
    [
        ({(1, 1): 0.1, (2, 1): 0.3, (3, 1): 0.2, (2, 2): 0.4, (3, 2): 0.5, (3, 3): 0.6}, [1, 2, 3], [1, 2, 3],
         (3, 3), [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2), (3, 3)]),
        ({(1, 1): 0.1, (2, 1): 0.3, (3, 1): 0.2, (2, 2): 0.3, (3, 2): 0.1}, [1, 2, 3], [1, 2, 3],
         (2, 1), [(1, 1), (2, 1), (3, 1), (2, 2), (3, 2)]),
    ],
    ids=["the better half goes on", "longer is no better"],
)  # fmt: skip
def test_halving(dev, rates, epochs, best, tried):
    made = []

    def run(rate, each):
        made.append((rate, each))
        return trial(rate, each, dev[rate, each])

    found = halving(run, rates, epochs)
    assert (found.learning_rate, found.epochs) == best
    assert made == tried


def test_halving_ends_where_there_is_no_time_for_another_round():
    found = halving(lambda rate, each: trial(rate, each, rate), [1, 2], [1, 2], bool)
    assert (found.learning_rate, found.epochs) == (2, 1)


def test_shares_and_parts_keep_what_is_judged():
    assert split_sizes(200) == pytest.approx((0.5, 0.2, 0.3))
    assert split_sizes(50_000) == pytest.approx((0.8, 0.1, 0.1))
    whole = made_up(queries=100, documents=400)
    assert with_three_splits(whole) is whole
    splits = ("train", "dev", "test")
    assert len(with_hard_documents(whole, splits, ("dev", "test"), 10, 0, ENGLISH).documents) == 100  # the positives
    part = with_hard_documents(with_queries(whole, {"train": 30}, 0), splits, ("dev", "test"), 200, 0, ENGLISH)
    assert (len(part.documents), len(part.positives("train")), len(part.positives("test"))) == (200, 30, 25)
    assert with_hard_documents(whole, splits, splits, 400, 0, ENGLISH) is whole


@pytest.mark.parametrize(
    ("pairs", "message"),
    [(1, r"train has 1 \(20 are needed\), dev has 0 \(10 are needed\), .*; give about 200"), (20, "test has 6")],
)
def test_few_pairs_are_counted(tmp_path, pairs, message):
    (tmp_path / "few.csv").write_text("query,positive\n" + "".join(f"q{i},d{i}\n" for i in range(pairs)))
    refused(message, foils.tune, str(tmp_path / "few.csv"), model="m", output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_retriever_reads_as_it_was_written_and_a_broken_one_is_refused(tmp_path):
    assert Fusion.of(tmp_path) is Fusion.of("bm25") is None
    made = Fusion("z", 0.3, "both")
    made.write(tmp_path / "retriever.json")
    assert Fusion.of(tmp_path) == made
    for text in ("{}", '{"normalisation": "z", "weight": 2, "deploys": "both"}', "[]"):
        (tmp_path / "retriever.json").write_text(text)
        refused("tune again", Fusion.of, tmp_path, error=FormatError)


@pytest.fixture
def world(tmp_path) -> Path:
    write_pairs(tmp_path / "pairs.csv", 120)
    bert_model(tmp_path / "bert").save_pretrained(str(tmp_path / "encoder"))
    static_model().save_pretrained(str(tmp_path / "static"))
    return tmp_path


def test_few_steps_take_three_times_an_encoders_rate_and_adapters_ten_times(world):
    pytest.importorskip("peft")
    rate, given = LEARNING_RATES["encoder"][0], {"device": "cpu", "explain": True}
    for how, expected in (({}, 3 * rate), ({"lora": 2}, OF_ADAPTERS * rate)):
        plan = foils.tune(str(world / "pairs.csv"), model=str(world / "encoder"), minutes=1e-5, **given, **how)
        assert plan["trials"]["learning_rates"] == pytest.approx([expected])
        assert plan["given"].get("lora") == how.get("lora")
    with pytest.raises(InputError, match="lora: the model has no transformer"):
        foils.tune(str(world / "pairs.csv"), model=str(world / "static"), lora=2, **given)


def test_a_plan_with_adapters_runs_and_gives_a_plain_model(world, monkeypatch):
    pytest.importorskip("peft")
    given = {"collection": str(world / "pairs.csv"), "model": str(world / "encoder"), "seed": 0, "lora": 2}
    plan = Plan({"given": given, "negatives": {"source": "", "per_query": 1}})
    plan.sections["training"] = {"learning_rate": 0.05, "epochs": 2}
    plan.write(world / "plan.toml")
    monkeypatch.setattr("foils.experiments.tune.Tuning.tidy", lambda _: None)  # what was trained stays
    foils.tune(plan=world / "plan.toml", output=world / "out", device="cpu")
    (trained,) = (world / "out" / "work" / "checkpoints").glob("model-*")
    assert "| lora | 2 |" in (trained / "README.md").read_text()
    before, after = (load_model(place, device="cpu").state_dict() for place in (world / "encoder", trained))
    assert list(before) == list(after)
    assert any(not before[name].equal(after[name]) for name in before)


@pytest.mark.parametrize(("first", "expected"), [("bm25", "bm25 0-50"), ("static", "dense 0-50")])
def test_a_reranker_trains_on_draws_of_what_it_orders(world, monkeypatch, first, expected):
    first = first if first == "bm25" else str(world / first)
    given = {"collection": "", "model": str(world / "encoder"), "seed": 0, "reranker": True, "first_stage": first}
    trials = {**TRIALS, "train_queries": 60, "test_queries": 9, "documents": 99}
    tuning = Tuning(made_up(99, 99), Plan({"given": given, "trials": trials}), world / "out", "cpu")
    tuning.schedule()
    assert tuning.decide() == {}
    section = tuning.plan["negatives"]
    assert (section["source"], section["per_query"]) == (expected, 7)
    ranks = tuning.mined(section["source"]).kept()["rank"].to_numpy()
    assert ranks.max() > 7
    monkeypatch.setattr(RerankerTask, "train", lambda _, data, folder, settings, *more, **kw: raises(data, settings))
    with pytest.raises(SeenError) as seen:
        tuning.train_once(section, 1e-4, 1, 60)
    data, settings = seen.value.args
    assert data.rows.shape[1] == 2 + ranks.max() + 1
    assert settings.draw_negatives == 7


class SeenError(Exception):
    """Carries what a training was given."""


def raises(*seen):
    """Stop a training that would begin."""
    raise SeenError(*seen)


@pytest.mark.parametrize(("longest", "expected"), [(0.5, 0.6), (0.6, 0.6), (0.7, 0.7)])
def test_a_short_training_is_taken_where_the_last_one_is_worse(longest, expected):
    def train_once(rows, rate, epochs, queries, *, seconds):
        return Trial(rate, epochs, queries, longest if epochs == 3 else 0.6, (), 3, 9, 1.0, whole=False)

    trials = {
        "seconds": 8.0,
        "learning_rates": [1e-4],
        "epochs": [1],
        "queries": 9,
        "train_queries": 9,
        "final_epochs": 3,
    }
    tuning = SimpleNamespace(train_once=train_once, keep_models=lambda *_: None, left=lambda: 4.0)
    tuning.task, tuning._fitting = SimpleNamespace(in_batch=True), lambda queries, share: queries
    tuning.trials = [Trial(1e-4, 1, 9, 0.6, (), 3, 9, 1.0, whole=False)]
    best = Tuning._search(tuning, {}, trials, False)
    assert (best.dev, best.epochs) == (expected, 1 if longest < 0.6 else 3)


@pytest.mark.parametrize(("model", "native", "expected"), [
    ("encoder", True, {"bf16": True}), ("encoder", False, {}), ("static", True, {}),
])  # fmt: skip
def test_training_is_in_bfloat16_where_the_processor_computes_it(world, monkeypatch, model, native, expected):
    monkeypatch.setattr("foils.experiments.tune.computes_bfloat16", lambda _: native)
    given = {"collection": "", "model": str(world / model), "seed": 0}
    assert Tuning(made_up(9, 9), Plan({"given": given}), world / "out", "cpu")._trainer == expected


def test_the_next_command_reads_the_pairs_as_the_tuning_did(tmp_path):
    rows = [f"what is number {at}?,it is the {at}th number" for at in range(300)]
    pairs = tmp_path / "my pairs.csv"
    pairs.write_text("\n".join(["asked,said", *rows]), "utf-8")
    (tmp_path / "more.csv").write_text("text\nanother number\n", "utf-8")
    reading = CollectionSettings(columns={"query": "asked", "positive": "said"}, corpus=tmp_path / "more.csv")
    whole = with_three_splits(reading.open(pairs))
    given = _given(pairs, whole, "m", TuneSettings(), ENGLISH, reading)
    assert (
        run(["evaluate", *shlex.split(read_again(given)), "--model", "bm25", "--json", str(tmp_path / "e.json")]) == 0
    )
    queries = json.loads((tmp_path / "e.json").read_text("utf-8"))["systems"][0]["per_query"]["nDCG@10"]
    positives = whole.positives("test")
    assert sorted(queries) == sorted(whole.queries["query_id"].take(positives.query_rows).to_pylist())


def test_the_most_even_weight_within_a_standard_error_of_the_best_is_taken():
    """By hand: losses of 0 and .2 have the mean .1 ± .023, those of −.09 and .11 the mean .01 ± .023."""
    zeros = np.zeros(20)
    clear, doubtful = np.tile([0.0, 0.2], 10), np.tile([-0.09, 0.11], 10)
    assert weight_within_an_error({0.2: zeros, 0.5: zeros - clear, 0.8: zeros - clear}) == 0.2
    assert weight_within_an_error({0.2: zeros, 0.5: zeros - doubtful, 0.8: zeros - 1}) == 0.5
    assert weight_within_an_error({0.2: zeros, 0.4: zeros - doubtful, 0.6: zeros - doubtful / 2, 0.8: zeros - 1}) == 0.6
