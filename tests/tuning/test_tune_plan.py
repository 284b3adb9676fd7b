"""A plan reads as it was written; a budget plans what fits; parts keep what is judged."""

from __future__ import annotations

import tomllib
from pathlib import Path

import numpy as np
import pytest

from foils.data.splitting import drawn_judgements, with_documents, with_three_splits
from foils.runtime.errors import FormatError, InputError
from foils.tuning.budget import Budget, Work
from foils.tuning.pace import Pace
from foils.tuning.parts import check_sizes, dev_part, fitting, kept_part, shares_of
from foils.tuning.plan import Plan
from train_models import made_up

GIVEN = {"collection": 'a "b"\\c\n\x7fé', "model": "m", "seed": 0, "columns": {"query": "a b"}, "minutes": 0.5}


def test_a_plan_reads_as_it_was_written(tmp_path: Path) -> None:
    trials = {"learning_rates": [1e-05, 0.003], "epochs": [1, 2], "queries": 3, "final_epochs": 0, "dev_documents": 9}
    plan = Plan({"given": {**GIVEN, "corpus": None}, "trials": {**trials, "extend": True}})
    plan.write(tmp_path / "plan.toml")
    read = Plan.read(tmp_path / "plan.toml")
    assert read.sections == {"given": GIVEN, "trials": {**trials, "extend": True}}
    assert tomllib.loads(plan.to_toml()) == read.sections
    assert read.to_toml() == plan.to_toml()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = ", "not a plan: "),
        ("[trials]\n", r"\[given\] is missing"),
        ('[given]\ncollection = "c"\nmodel = 3\nseed = 1\n', "model of .given. is 3; expected str"),
        ('[given]\ncollection = "c"\nmodel = "m"\nseed = true\n', "seed of .given. is True; expected int"),
    ],
)
def test_a_plan_that_is_none(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.toml").write_text(text)
    with pytest.raises(FormatError, match=message):
        Plan.read(tmp_path / "plan.toml")


def test_a_budget_by_hand() -> None:
    """A text takes 1 ms, a row 10 ms, a training 1 s; 1,000 documents, 100 queries of two rows each."""
    pace, work = Pace(0.001, 0.01, 1.0, 0.008), Work(1_000, 100, 50, 2.0)
    whole = Budget(pace, work, None, 2e-5)
    documents, trials = whole.documents(), whole.trials(whole.documents())
    assert (documents["count"], documents["train_queries"], trials["queries"]) == (1_000, 100, 100)
    assert trials["learning_rates"] == [6.7e-6, 2e-5, 6e-5]
    # base: 1 s; three runs of one epoch, two of two, one of three: each 2 s an epoch, 1 s to start, 1 s to measure; one
    # of three without mined negatives; the test: 2 s
    assert whole.estimate(documents, trials) == pytest.approx(1 + 3 * (2 + 2) + 2 * (4 + 2) + 2 * (6 + 2) + 2)
    for seconds, rates, epochs, final in ((60, 3, [1, 2, 3], 0), (28, 3, [1], 3), (12, 1, [4], 0), (5, 1, [1], 0)):
        budget = Budget(pace, work, seconds, 2e-5, few_steps=3.0)
        trials = budget.trials(budget.documents())
        assert (len(trials["learning_rates"]), trials["epochs"], trials["final_epochs"]) == (rates, epochs, final)
        assert trials["contest"] is (rates > 1)
        if rates == 1:
            assert trials["learning_rates"] == [6e-5]
        if seconds > 5:
            assert budget.estimate(budget.documents(), trials) <= seconds
    hurried = Budget(pace, Work(100_000, 10_000, 500, 2.0), 60, 2e-5).documents()
    assert hurried["train_queries"] == 0.6 * 60 / 0.016
    assert hurried["count"] == 0.15 * 60 / 0.001
    assert "measures are of these documents alone" in hurried["reason"]
    few_rows = Budget(pace, Work(1_000, 10_000, 500, 2.0), 60, 2e-5).documents()
    assert (few_rows["count"], few_rows["reason"]) == (
        1_000,
        "all documents; of 10,000 training queries, what fits into the time",
    )


def test_time_goes_into_choosing_where_many_rows_fit_and_into_one_training_where_few_do() -> None:
    """A row takes 1 ms: 0.45 of 22.2 s is 10,000 rows, of which the data have a million."""
    work = Work(1_000, 1_000_000, 50, 1.0)
    for seconds, chooses in ((22.3, True), (22.2, False)):
        budget = Budget(Pace(0.0001, 0.001, 0.0, 0.0005), work, seconds, 2e-5)
        documents = budget.documents()
        assert documents["train_queries"] == int(0.45 * seconds / 0.001 if chooses else 0.6 * seconds / 0.0005)
        assert budget.trials(documents)["contest"] is chooses


def test_what_must_not_be_forgotten_takes_a_tenth_of_the_time_at_most() -> None:
    """On 200 documents of dev and 1,000 of pydocs: 4.5 · 1,000 + 3 · 200 texts of 1 ms."""
    pace, work = Pace(0.001, 0.001, 0.0, 0.001), Work(200, 50, 50, 1.0)

    def budget(seconds: float | None, keep: bool) -> tuple[int, float]:
        made = Budget(pace, work, seconds, 2e-5, keep)
        documents = made.documents()
        trials = made.trials(documents)
        return trials["keep_documents"], made.estimate(documents, trials)

    assert budget(None, False)[0] == 0
    assert budget(None, True)[1] - budget(None, False)[1] == pytest.approx(5.1)
    sizes = [budget(seconds, True)[0] for seconds in (51, 50.9, 24, 23.9, 15, 14.9)]
    assert sizes == [1000, 900, 400, 300, 200, 0]


def test_shares() -> None:
    assert shares_of(200) == pytest.approx((0.5, 0.2, 0.3))
    assert shares_of(500) == pytest.approx((0.68, 0.12, 0.2))
    assert shares_of(50_000) == pytest.approx((0.8, 0.1, 0.1))


def test_splits_that_are_missing_come_from_train() -> None:
    whole = made_up(queries=200, documents=400)
    assert with_three_splits(whole, (0.8, 0.1, 0.1)) is whole
    for kept in (["train"], ["train", "test"], ["test"]):
        collection = type(whole)("c", whole.documents, whole.queries, {name: whole.qrels[name] for name in kept}, "d")
        made = with_three_splits(collection, (0.5, 0.2, 0.3))
        assert list(made.qrels) == ["train", "dev", "test"]
        ids = [set(made.qrels[name]["query_id"].to_pylist()) for name in made.qrels]
        assert set.union(*ids) == set.union(*(set(each["query_id"].to_pylist()) for each in collection.qrels.values()))
        assert sum(map(len, ids)) == len(set.union(*ids))
        assert made.digest != collection.digest
        if "test" in kept and len(kept) > 1:
            assert made.qrels["test"] is collection.qrels["test"]
            assert len(ids[1]) == 20  # a fifth of train
    with pytest.raises(InputError, match="expected a split 'train'"):
        with_three_splits(
            type(whole)("c", whole.documents, whole.queries, {n: whole.qrels[n] for n in ("dev", "test")}), (1, 0, 0)
        )


def test_parts_keep_what_is_judged() -> None:
    whole = made_up(queries=100, documents=400)
    assert len(fitting(whole, documents=10, queries=30, seed=0).documents) == 80  # the positives
    part = fitting(whole, documents=200, queries=30, seed=0)
    assert (len(part.documents), len(part.positives("train")), len(part.positives("test"))) == (200, 30, 25)
    assert part.digest not in (whole.digest, fitting(whole, documents=200, queries=30, seed=1).digest)
    assert fitting(whole, documents=400, queries=50, seed=0) is whole
    dev = dev_part(whole, 100, 0)
    assert (len(dev.documents), dev.splits, len(dev.positives("dev"))) == (100, ["dev"], 25)
    kept = kept_part(whole, 100, 0)
    assert (len(kept.documents), len(kept.positives("dev")), len(kept.positives("test"))) == (100, 25, 25)
    assert (kept.splits, kept_part(whole, 40, 0).digest == kept.digest) == (["dev", "test"], False)
    assert [len(kept_part(whole, 40, 0).positives(name)) for name in ("dev", "test")] == [10, 20]
    rows = np.array([3, 1])
    assert with_documents(whole, rows).documents["doc_id"].to_pylist() == ["d1", "d3"]
    assert with_documents(whole, rows).qrels["train"]["doc_id"].to_pylist() == ["d1", "d3"]
    assert drawn_judgements(whole, "train", None, 0) is whole.qrels["train"]


def test_what_is_too_small_is_refused() -> None:
    with pytest.raises(InputError, match="dev has 5, 10 are needed; test has 5, 20 are needed"):
        check_sizes(made_up(queries=20 * 2 - 20, documents=80))


def test_no_mined_negatives_are_shown_as_none() -> None:
    rows = Plan({"negatives": {"source": "", "per_query": 10, "reason": "on dev"}}).table().rows
    assert list(map(tuple, rows)) == [("negatives", "source none, per_query 10", "on dev")]
