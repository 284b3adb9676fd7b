"""The parts of a tuning: its plan, how much is searched, what is tried and taken, and what it says of test."""

import json
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import foils
from foils.cli.app import DOORS
from foils.data import Collection, Run
from foils.data.description import with_three_splits
from foils.data.pairs import split_sizes
from foils.data.run import Fusion
from foils.encode.models import load_model
from foils.evaluation import measure_run
from foils.evaluation.doors import Evaluation
from foils.experiments import plan as planning
from foils.experiments.plan import Plan, extent, resembling, with_queries
from foils.experiments.tasks import EncoderTask
from foils.experiments.tune import Tuning
from foils.experiments.tuned import (
    MEASURE,
    Candidate,
    Setting,
    Tuned,
    around,
    averaged,
    errors_needed,
    plainest,
    search,
    short,
    trials_table,
)
from foils.runtime.errors import FormatError, InputError
from foils.statistics import Comparison
from foils.statistics.measures import Measured
from foils.training.data import TrainingSet
from foils.training.models import TrainingLength
from refusals import refused
from train_models import bert_model, made_up, masked_language_model, static_model
from tune_world import tuned_by, write_pairs


@pytest.mark.parametrize(
    ("seconds", "documents", "dev", "train"),
    [
        (np.inf, 9_000, 9_000, 50),
        (9_000.0, 9_000, 9_000, 50),  # embedding all takes a tenth of the time
        (8_000.0, 9_000, 2_400, 50),  # a ninth: dev is a part of .03 of the time
        (4_000.0, 4_000, 2_000, 50),  # a quarter: test is a part, too, of a tenth of the time
        (0.1, 2_000, 2_000, 50),
    ],
)
def test_all_documents_are_searched_where_embedding_them_takes_a_tenth_of_the_time(
    monkeypatch, seconds, documents, dev, train
):
    monkeypatch.setattr(planning, "seconds_a_text", lambda *_: 0.1)
    monkeypatch.setattr(EncoderTask, "kind", "static embedding")
    data = extent(EncoderTask("static"), made_up(100, 9_000), seconds=seconds, seed=0)
    assert (data["documents"], data["dev_documents"], data["train_queries"]) == (documents, dev, train)
    assert ("test is measured among" in data["reason"]) == (documents < 9_000)
    assert ("dev is measured among" in data["reason"]) == (dev < 9_000)


def test_training_queries_are_drawn_where_there_is_no_time_for_a_row_of_each(monkeypatch):
    """A row takes .6 s; 25,600 rows are the 200 steps that a word table makes at least."""
    monkeypatch.setattr(planning, "seconds_a_text", lambda *_: 0.1)
    monkeypatch.setattr(EncoderTask, "kind", "static embedding")
    whole = made_up(60_000, 60_000)
    for seconds, train in ((np.inf, 30_000), (6_060.0, 30_000), (5_400.1, 27_000), (60.0, 25_600)):
        data = extent(EncoderTask("static"), whole, seconds=seconds, seed=0)
        assert data["train_queries"] == train
        assert ("training queries are trained on" in data["reason"]) == (train < 30_000)


@pytest.mark.parametrize(("device", "texts"), [("cpu", 32), ("cuda", 2_048), ("mps", 2_048)])
def test_texts_are_timed_in_batches_that_fill_the_device(device, texts):
    seen = []
    encoder = SimpleNamespace(encode=lambda batch, kind: seen.append((len(batch), kind)))
    model = SimpleNamespace(device=SimpleNamespace(type=device))
    task = SimpleNamespace(load=lambda: model, encoder=encoder)
    assert planning.seconds_a_text(task, made_up(20, 100), 0) >= 0
    assert seen == [(texts, "document")] * 2  # the first warms up


def ranking(scores: np.ndarray, rows: np.ndarray, name: str, depth: int = 100) -> Run:
    """The run of (q, d) scores, among the documents of some rows."""
    listed = {}
    for query, of in enumerate(scores):
        best = rows[np.argsort(-of[rows])[:depth]]
        listed[f"q{query}"] = {f"d{row}": float(of[row]) for row in best}
    return Run.from_dict(listed, name=name)


def synthetic(seed: int, base: float) -> tuple[Collection, dict[str, np.ndarray]]:
    """Queries near one document each; BM25 and the base see both through noise, the tuned model through less of it."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(400, 24))[rng.integers(400, size=4_000)] + 0.6 * rng.normal(size=(4_000, 24))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = rng.choice(4_000, 60, replace=False)
    exact = vectors[rows] @ vectors.T
    exact[np.arange(60), rows] -= 0.1  # the answer is not the text itself
    noise = {name: each * rng.normal(size=exact.shape) for name, each in (("bm25", 0.1), ("base", base))}
    systems = {name: exact + each for name, each in noise.items()}
    systems["tuned"] = exact + 0.7 * noise["base"] + 0.02 * rng.normal(size=exact.shape)
    judged = {f"q{at}": {f"d{row}": 1} for at, row in enumerate(rows)}
    collection = Collection.from_dicts(
        "synthetic",
        {f"d{row}": f"text {row}" for row in range(4_000)},
        {f"q{at}": f"asked {at}" for at in range(60)},
        {"dev": judged},
    )
    return collection, systems


@pytest.mark.parametrize(("seed", "base"), [(0, 0.08), (1, 0.1), (2, 0.12)])
def test_a_part_keeps_the_order_of_systems_and_how_much_they_differ(seed, base):
    """What is ranked is in the part, so BM25 and the base have there what they have on all; a better model nearly."""
    whole, systems = synthetic(seed, base)
    every = np.arange(4_000)
    ranked = [ranking(systems[name], every, name, 30) for name in ("bm25", "base")]
    part = resembling(whole, ("dev",), ranked, 500, 0)
    kept = whole.document_rows(part.documents["doc_id"])
    assert 500 < len(kept) < 3_000

    def means(rows: np.ndarray) -> dict[str, float]:
        runs = {name: ranking(scores, rows, name, 10) for name, scores in systems.items()}
        return {name: measure_run(run, whole, "dev", (MEASURE,)).means[MEASURE] for name, run in runs.items()}

    on_all, on_part = means(every), means(kept)
    assert [on_part[name] for name in ("bm25", "base")] == pytest.approx([on_all[name] for name in ("bm25", "base")])
    assert sorted(on_all, key=on_all.get) == sorted(on_part, key=on_part.get)
    assert on_part["tuned"] == pytest.approx(on_all["tuned"], abs=0.02)
    assert on_all["tuned"] > on_all["base"] + 0.05
    by_bm25 = means(whole.document_rows(resembling(whole, ("dev",), ranked[:1], 500, 0).documents["doc_id"]))
    assert by_bm25["base"] > on_all["base"], "what is hard for BM25 alone flatters the model"


def test_shares_and_parts_keep_what_is_judged():
    assert split_sizes(200) == pytest.approx((0.5, 0.2, 0.3))
    assert split_sizes(50_000) == pytest.approx((0.8, 0.1, 0.1))
    whole = made_up(queries=100, documents=400)
    assert with_three_splits(whole) is whole
    ids = whole.documents["doc_id"].to_pylist()
    queries = whole.queries["query_id"].to_pylist()
    run = Run.from_dict({query: {ids[at]: 1.0 / (1 + at) for at in range(100)} for query in queries})
    splits = ("train", "dev", "test")
    assert len(resembling(whole, splits, [run], 10, 0, bound=True).documents) == 100  # the positives
    part = resembling(with_queries(whole, {"train": 30}, 0), splits, [run], 200, 0, bound=True)
    assert (len(part.documents), len(part.positives("train")), len(part.positives("test"))) == (200, 30, 25)
    assert set(ids[:60]) <= set(part.documents["doc_id"].to_pylist())  # the first ranks of the ranking
    assert resembling(whole, splits, [run], 400, 0) is whole


# What is tried.


def candidate(setting: Setting, mean: float, spread: float = 0.0) -> Candidate:
    return Candidate((setting,), 1.0, mean + spread * np.tile([-1.0, 1.0], 10))


PLAIN = Setting(1e-4, 100)


def test_one_thing_is_changed_at_a_time_and_rates_beyond_the_best_are_tried():
    near = partial(around, most_steps=400, source="dense 10-20")
    worth = {"learning_rate": {1e-4: 0.0, 3e-4: 0.1, 9e-4: 0.2, 2.7e-3: 0.1}, "steps": {100: 0.0, 200: 0.05, 400: 0.02}}

    def run(setting, before):
        return candidate(setting, sum(of.get(getattr(setting, name), -0.3) for name, of in worth.items()))

    trials = search(PLAIN, run, near, 99)
    best = max(trials, key=lambda each: each.mean).members[0]
    assert (best.learning_rate, best.steps, best.source) == (9e-4, 200, "")
    tried = {each.members[0] for each in trials}
    assert {each.learning_rate for each in tried} >= {3e-4, 9e-4, 2.7e-3}
    assert set(near(best)) <= tried, "the search ends where nothing around the best is better"
    assert len(search(PLAIN, run, near, 3)) == 3


def test_mined_negatives_are_tried_from_one_to_seven_and_mined_again():
    near = partial(around, most_steps=100, source="dense 10-20")
    worth = {0: 0.1, 1: 0.2, 4: 0.3, 7: 0.25}
    trials = search(PLAIN, lambda setting, _: candidate(setting, worth[setting.per_query]), near, 99)
    tried = {(each.members[0].source, each.members[0].per_query) for each in trials}
    assert tried == {("", 0), *(("dense 10-20", count) for count in (1, 4, 7)), ("again 10-20", 4)}


def test_what_does_not_fit_into_the_time_is_passed_over():
    def run(setting, before):
        return candidate(setting, 0.1 * setting.steps) if setting.steps <= 200 or not before else None

    trials = search(PLAIN, run, partial(around, most_steps=800), 99)
    assert max(each.members[0].steps for each in trials) == 200


# What is taken.


def test_the_best_of_several_that_chance_made_is_not_taken():
    """Eight settings that are equally good, a dev of 40 queries: the plain one in four of five draws at least."""
    rng, plain = np.random.default_rng(0), 0
    for _ in range(200):
        queries = rng.beta(0.5, 0.5, 40)
        values = [np.clip(queries + 0.2 * rng.normal(size=40), 0, 1) for _ in range(8)]
        plain += plainest(values, errors_needed(40, 7)) == 0
    assert plain >= 160


def test_what_is_surely_better_is_taken():
    rng, taken = np.random.default_rng(0), 0
    for _ in range(200):
        values = [0.5 + 0.1 * rng.normal(size=200) + (0.05 if at == 5 else 0.0) for at in range(8)]
        taken += plainest(values, errors_needed(200, 7)) == 5
    assert taken >= 190


def test_one_candidate_has_to_be_one_error_better_and_several_more():
    """Of many queries .159 of the normal distribution lie above one standard error; a seventh of it above 2.0."""
    assert errors_needed(100_000, 1) == pytest.approx(1.0, abs=1e-3)
    assert errors_needed(100_000, 7) == pytest.approx(2.0, abs=0.01)
    assert errors_needed(20, 1) > 1.0


def test_of_what_is_not_told_apart_the_first_is_taken():
    """By hand: gains of 0 and .2 have the mean .1 ± .023, those of −.09 and .11 the mean .01 ± .023."""
    zeros = np.zeros(20)
    clear, doubtful = np.tile([0.0, 0.2], 10), np.tile([-0.09, 0.11], 10)
    assert plainest([zeros, clear]) == 1
    assert plainest([zeros, doubtful]) == 0
    assert plainest([zeros, clear], 5.0) == 0
    assert plainest([zeros - 1, clear - clear, doubtful / 9]) == 1


def test_weights_are_averaged_of_the_best_that_are_no_worse_than_the_plain_one():
    settings = [Setting(rate, 100) for rate in (1.0, 2.0, 3.0, 4.0, 5.0)]
    trials = [candidate(each, mean) for each, mean in zip(settings, (0.3, 0.2, 0.5, 0.4, 0.6), strict=True)]
    assert averaged(trials) == (settings[4], settings[2], settings[3])
    assert averaged(trials[:2]) == (settings[0],)


def test_the_table_says_of_each_training_what_dev_has_and_why_it_is_not_taken():
    base = Candidate((), 0.0, np.full(20, 0.1))
    plain = candidate(PLAIN, 0.3, 0.1)
    others = [candidate(Setting(3e-4, 100), 0.31, 0.2), candidate(Setting(3e-5, 100), 0.2)]
    table = trials_table([base, plain, *others], plain, MEASURE)
    assert [row[0] for row in table.rows][:2] == ["the base", "100 steps at 0.0001, pairs alone"]
    assert [row[3] for row in table.rows] == ["lower", "taken", "no more than chance above what is plainer", "lower"]
    assert table.rows[1][1] == "0.3000 ± 0.0229"  # .1·√(20/19)/√20
    half = Candidate((PLAIN,), 0.5, np.zeros(20))
    assert str(half) == "0.5 of 100 steps at 0.0001, pairs alone, the rest the base"


# What is said of test.


def made(deploys="both", *, better=True, gap=0.024, p=0.001, means=None, documents=100, **given):
    """A tuning whose systems have these means on test; the deployed one differs from the best other by `gap`."""
    half = "tuned" if better else "base"
    names = ["base", *(["tuned"] if better else []), "bm25", f"bm25 + {half}"]
    means = means or dict(zip(names, (0.3, 0.55, 0.596, 0.62) if better else (0.3, 0.596, 0.62), strict=True))
    systems = tuple(Measured(name, ("q",), {MEASURE: np.array([mean])}, ()) for name, mean in means.items())
    deployed = {"both": f"bm25 + {half}", "model": "tuned", "base": "base"}.get(deploys, deploys)
    how = {"measure": MEASURE, "test": "t", "p": 1.0, "p_holm": 1.0, "p_randomised": p, "p_randomised_holm": p}
    pairs = [Comparison(a=deployed, b=name, difference=gap, low=gap - 0.015, high=gap + 0.014, **how)
             for name in means if name != deployed]  # fmt: skip
    if better and deployed != "tuned":
        pairs.append(Comparison(a="tuned", b="base", difference=0.25, low=0.2, high=0.3, **how))
    intervals = {name: {MEASURE: (0.0, 1.0)} for name in means}
    plan = Plan({"given": {"model": "m", "collection": "c", "seed": 0, **given}})
    plan.sections["retriever"] = {"deploys": deploys, "weight": 0.5, "dev": {}}
    base = Candidate((), 0.0, np.zeros(2))
    taken = Candidate((PLAIN,), 1.0, np.ones(2)) if better else base
    collection = SimpleNamespace(documents=[None] * 100)
    return Tuned(
        path=Path("better"), collection=collection, documents=documents, plan=plan, taken=taken, base="m",
        evaluation=Evaluation("test", systems, intervals, tuple(pairs)), candidates=(base, taken),
        warnings=(),
    )  # fmt: skip


BOTH = "Deploy BM25 and the tuned model together (foils search better): nDCG@10 .620 on test, BM25 alone .596"
LOST = {"base": 0.3, "tuned": 0.55, "bm25": 0.63, "bm25 + tuned": 0.62}
LOWER = "Deploy BM25 and the tuned model together (foils search better): nDCG@10 .620 on test, BM25 alone .630"


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({}, f"{BOTH}, difference +.024 [+.009, +.038]."),
        ({"p": 0.21}, f"{BOTH}, difference +.024 [+.009, +.038], which may be chance (p 0.2100)."),
        ({"documents": 900}, f"{BOTH.replace('on test', 'on test (of 100 of 900 documents)')}, difference +.024 "
                             "[+.009, +.038]."),
        ({"means": LOST, "gap": -0.01, "p": 0.001},
         f"{LOWER}, difference -.010 [-.025, +.004]. Dev chose it; test disagrees (p 0.0010)."),
        ({"means": LOST, "gap": -0.01, "p": 0.3},
         f"{LOWER}, difference -.010 [-.025, +.004]. Dev chose it; test does not tell the two apart (p 0.3000)."),
        ({"deploys": "model", "means": {"base": 0.3, "tuned": 0.65, "bm25": 0.5, "bm25 + tuned": 0.6}},
         "Deploy the tuned model (foils search better): nDCG@10 .650 on test, BM25 and the tuned model together .600, "
         "difference +.024 [+.009, +.038]."),
        ({"deploys": "bm25", "better": False, "means": {"base": 0.3, "bm25": 0.65, "bm25 + base": 0.6}},
         "Deploy BM25 (foils search better): nDCG@10 .650 on test, BM25 and m together .600, difference +.024 "
         "[+.009, +.038]."),
        ({"deploys": "base", "better": False, "means": {"base": 0.7, "bm25": 0.6, "bm25 + base": 0.6}},
         "Deploy m (foils search better): nDCG@10 .700 on test, BM25 .600, difference +.024 [+.009, +.038]."),
        ({"deploys": "base", "better": False, "means": {"base": 0.7}},
         "Deploy m (foils search better): nDCG@10 .700 on test."),
    ],
)  # fmt: skip
def test_the_sentence_says_what_dev_chose_and_what_test_has(how, sentence):
    """A table of verdicts made by hand; what is deployed is never what test would choose."""
    tuned = made(**how)
    assert tuned.sentence == sentence
    assert tuned.deploys == how.get("deploys", "both")
    assert tuned.better == how.get("better", True)
    assert "foils evaluate" not in tuned.next, "test is not looked at again"


def test_what_became_of_the_training_is_said_apart():
    tuned = made()
    assert tuned.training.startswith("Tuned: 100 steps at 0.0001, pairs alone, over m +.250 [+.200, +.300] on test ")
    assert (tuned.model, made(better=False).model) == (str(Path("better/model")), "m")
    assert made(better=False).training == "Kept m: no training is better on dev. No model was written."
    turned = tuned.compared("bm25", "bm25 + tuned")
    assert (turned.difference, turned.low, turned.high) == pytest.approx((-0.024, -0.038, -0.009))


@pytest.mark.parametrize(("value", "sign", "shown"), [
    (0.62, "", ".620"), (0.024, "+", "+.024"), (-0.01, "+", "-.010"), (1.0, "", "1.000"), (0.9999, "", "1.000"),
    (-0.0001, "+", "+.000"),
])  # fmt: skip
def test_numbers_of_a_sentence_have_three_digits(value, sign, shown):
    assert short(value, sign) == shown


def test_a_reranker_is_used_by_another_command():
    means = {"first stage": 0.3, "tuned": 0.55, "first stage + tuned": 0.6}
    tuned = made("model", means=means, reranker=True, first_stage="run.trec")
    words = (
        "Deploy the tuned model (foils evaluate c --model run.trec --reranker better --rerank-depth 50): nDCG@10 .550 "
        "on test, the order of run.trec and "
    )
    assert tuned.sentence.startswith(f"{words}the tuned model together .600")


@pytest.mark.parametrize(("tuned", "typed", "command"), [
    (made("both"), {}, 'foils search better --query "…"'),
    (made("model", reranker=True), {},
     "foils evaluate 'my pairs.csv' --model bm25 --reranker better --rerank-depth 50"),
    (made("model", reranker=True, first_stage="old/"), {"first_stage": "old/", "columns": "query=a,positive=b"},
     "foils evaluate 'my pairs.csv' --model old/ --reranker better --rerank-depth 50 --columns query=a,positive=b"),
    (Plan({}), {"explain": True}, None),
])  # fmt: skip
def test_what_is_advised_after_a_tuning_can_be_typed(tuned, typed, command):
    assert DOORS["tune"].after(tuned, {"collection": "my pairs.csv", "output": "better", **typed}) == command


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


def test_adapters_need_a_transformer(world):
    pytest.importorskip("peft")
    given = {"device": "cpu", "explain": True, "lora": 2}
    plan = foils.tune(str(world / "pairs.csv"), model=str(world / "encoder"), **given)
    assert plan["given"]["lora"] == 2
    with pytest.raises(InputError, match="lora: the model has no transformer"):
        foils.tune(str(world / "pairs.csv"), model=str(world / "static"), **given)


def test_a_reranker_is_planned_as_foils_train_trains_one(world):
    """Sixty lists in batches of 16, 40 epochs or 100 steps at least; an untrained head has three times the rate."""
    masked_language_model(world / "mlm")
    given = {"device": "cpu", "explain": True, "reranker": True}
    for minutes, steps in ((None, 160), (1e-5, 100)):
        plan = foils.tune(str(world / "pairs.csv"), model=str(world / "mlm"), minutes=minutes, **given)
        assert (plan["recipe"]["steps"], plan["recipe"]["batch_size"]) == (steps, 16)
        assert plan["recipe"]["learning_rate"] == pytest.approx(3e-4)
    assert "minutes, more than is left, and is finished all the same" in plan["recipe"]["reason"]


@pytest.mark.parametrize(
    ("minutes", "of_long", "of_short", "steps", "length", "late"),
    [
        (None, 9.0, 9.0, 160, 256, False),
        (10.0, 2.5, 1.0, 160, 256, False),  # 400 of 480 seconds
        (10.0, 5.0, 2.5, 160, 128, False),  # 800, and 400 where texts are cut to 128 tokens
        (10.0, 8.0, 4.0, 119, 128, False),
        (10.0, 40.0, 20.0, 100, 128, True),
    ],
)
def test_the_plain_training_is_cut_to_the_time_by_shorter_texts_then_by_fewer_steps(
    world, monkeypatch, minutes, of_long, of_short, steps, length, late
):
    """`foils train` takes 160 steps of 256 tokens; four fifths of the time are its, but it has 100 steps at least."""
    monkeypatch.setattr(TrainingSet, "length_for", lambda data, model, tokens=None: TrainingLength(tokens or 256, 0.0))
    monkeypatch.setattr(Tuning, "_seconds_a_step", lambda tuning, model, size, at: of_long if at == 256 else of_short)
    plan = foils.tune(
        str(world / "pairs.csv"), model=str(world / "encoder"), minutes=minutes, device="cpu", explain=True
    )
    recipe = plan["recipe"]
    assert (recipe["steps"], recipe["max_length"]) == (pytest.approx(steps, abs=1), length)
    assert ("is finished all the same" in recipe["reason"]) == late
    assert ("by default foils train takes 160" in recipe["reason"]) == ((steps, length) != (160, 256))


def test_a_training_of_adapters_gives_a_plain_model(world):
    pytest.importorskip("peft")
    given = {"collection": str(world / "pairs.csv"), "model": str(world / "encoder"), "seed": 0, "lora": 2}
    tuned = tuned_by({"given": given}, world / "out", members=[Setting(0.05, 20)])
    assert tuned.better
    assert "| lora | 2 |" in (world / "out/model/README.md").read_text()
    before, after = (load_model(place, device="cpu").state_dict() for place in (world / "encoder", world / "out/model"))
    assert list(before) == list(after)
    assert any(not before[name].equal(after[name]) for name in before)


def test_a_share_of_the_way_and_a_mean_of_weights_are_what_they_say(world):
    """w = (1 − s)·base + s·(a + b)/2, for every weight of the word table."""
    given = {"collection": str(world / "pairs.csv"), "model": str(world / "static"), "seed": 0}
    members = [Setting(rate, 5) for rate in (0.05, 0.2)]
    ways = {"a": (members[:1], 1.0), "b": (members[1:], 1.0), "both": (members, 0.25)}
    tables = {"base": load_model(world / "static", device="cpu")[0].embedding.weight.detach().numpy()}
    for name, (of, share) in ways.items():
        tuned_by({"given": given}, world / name, members=of, share=share)
        tables[name] = load_model(world / name / "model", device="cpu")[0].embedding.weight.detach().numpy()
    mean = (tables["a"] + tables["b"]) / 2
    np.testing.assert_allclose(tables["both"], 0.75 * tables["base"] + 0.25 * mean, atol=1e-6)
    assert not np.allclose(tables["both"], tables["base"], atol=1e-4)
    written = json.loads((world / "both/tune.json").read_text())
    assert written["trials"][-1]["share"] == 0.25
    assert Fusion.of(world / "both").deploys == {"base": "model"}.get(written["deploys"], written["deploys"])
