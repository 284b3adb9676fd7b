"""`foils relabel`: verdicts by a cascade of judges, and what becomes of the rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from label_world import oracle, source, world, world_folder

import foils
from fakes import HashingEncoder
from foils.cli.app import run
from foils.data import Collection, Labels, Negatives
from foils.encode import VectorStore
from foils.labelling.evidence import Evidence, evidence_of
from foils.labelling.relabelling import Cascade, Judged, Relabelled
from foils.llm import Client
from foils.runtime.errors import FailureError, InputError
from foils.statistics.noisy_labels import Answers
from llm_server import Reply, serving


def relabelled(tmp_path: Path, *, table: Negatives | None = None, **settings: Any) -> Relabelled:
    given = source("a", 1) if table is None else table
    return foils.relabel(world(), given, encoder=HashingEncoder(), vectors=tmp_path / "vectors", **settings)


def truth(of: Negatives) -> np.ndarray:
    pairs = zip(of.table["query_id"].to_pylist(), of.table["doc_id"].to_pylist(), strict=True)
    return np.array([int(document[1:]) % 30 == int(query[1:]) for query, document in pairs])


def verdicts(of: Negatives) -> np.ndarray:
    return np.array(of.table["verdict"].to_pylist())


def counted(answer: Callable[[str, str, str], bool | None]) -> tuple[Callable[..., bool | None], list[tuple[str, ...]]]:
    asked: list[tuple[str, ...]] = []

    def judge(*texts: str) -> bool | None:
        asked.append(texts)
        return answer(*texts)

    return judge, asked


def people(table: Negatives, every: int = 1) -> Labels:
    """A person's answers to every so many rows."""
    rows = [
        {"query_id": query, "doc_id": document, "relevant": int(right), "judge": "me"}
        for query, document, right in zip(
            table.table["query_id"].to_pylist(), table.table["doc_id"].to_pylist(), truth(table), strict=True
        )
    ]
    return Labels(pa.Table.from_pylist(rows[::every]))


def guess(query: str, positive: str, document: str) -> bool:
    return len(document) % 3 == 0


def always(query: str, positive: str, document: str) -> bool:
    return True


def weak(query: str, positive: str, document: str) -> bool:
    """Better than chance: calls seven in ten answers relevant, and one in eight other documents."""
    number = int(document.rsplit(" ", 1)[1])
    return number % 10 < 7 if oracle(query, positive, document) else number % 8 == 0


@pytest.mark.parametrize(
    ("judge", "confirmed", "heeded"),
    [
        (oracle, True, True), (oracle, False, True), (weak, True, True), (weak, False, False),
        (guess, True, False), (guess, False, False), (always, False, False),
    ],
)  # fmt: skip
def test_a_judge_is_heeded_as_far_as_is_known_of_it(
    tmp_path: Path, judge: Callable[..., bool], confirmed: bool, heeded: bool
) -> None:
    answers = people(source("a", 1), 3) if confirmed else ()
    unasked, result = (relabelled(tmp_path, labels=answers, **how) for how in ({}, {"judge": judge, "budget": 1.0}))
    use, called, right = result.judges[0], verdicts(result) == "positive", truth(result)
    assert (use["asked"], use["answered"]) == (len(result), len(result))
    assert (use["name"], use["confirmed"], use["heeded"]) == (f"function:{judge.__name__}", confirmed, heeded)
    assert np.array_equal(result.keep, verdicts(result) == "negative")
    if not heeded:
        assert result.table["relevance"] == unasked.table["relevance"]
        assert "not heeded" in str(result)
    elif judge is oracle:
        assert min(right[called].mean(), called[right].mean()) > 0.9
        assert (min(use["sensitivity"], use["specificity"]) > 0.9) == confirmed
        assert ("not confirmed" in str(result)) == ("To confirm a judge, label 30" in str(result)) != confirmed


def test_a_better_judge_confirms_a_weak_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = relabelled(tmp_path, judge=[weak, oracle], budget=1.0)
    assert [use["heeded"] for use in both.judges] == [True, True]
    assert truth(both)[verdicts(both) == "positive"].mean() > 0.9
    monkeypatch.setattr("foils.labelling.relabelling.LEAST_POWER", 0.0)
    assert relabelled(tmp_path, judge=weak, budget=1.0).judges[0]["heeded"], "it is this bar that decides"


def cascade_of(features: np.ndarray, belief: float = 0.0, **more: Any) -> Cascade:
    """Rows with these features, which are all that is seen of them."""
    rows = np.arange(len(features))
    pairs = pa.table({"query_id": ["q"] * len(rows), "doc_id": [f"d{row}" for row in rows], "text": rows.astype(str)})
    names = tuple(map(str, range(features.shape[1])))
    return Cascade(world(), pairs, Evidence(rows, np.full(len(rows), belief), 1.0, names, features), **more)


def test_a_judge_with_many_answers_does_not_confirm_itself() -> None:
    """Its answers follow a feature that has nothing to do with the truth; a better judge answered to a tenth."""
    rows, rng = np.arange(2000), np.random.default_rng(1)
    right, feature = rng.random(2000) < 0.4, rng.normal(size=2000)
    cascade = cascade_of(feature[:, None])
    for name, count, known, relevant in (
        ("cheap", 2000, (0.6, 0.9), feature > 0), ("good", 200, (0.95, 0.95), right[:200]),
    ):  # fmt: skip
        answers = Answers(rows[:count], relevant.astype(float))
        cascade.judges[name] = Judged(np.full(2000, count / 2000), known, answers)
    for _ in range(3):
        cascade._learn()
    cheap = cascade.use("cheap")
    assert abs(cheap["sensitivity"] + cheap["specificity"] - 1) < 0.2
    assert not cheap["heeded"]


def test_the_draws_of_a_judge_together_weigh_every_row_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """After the first answers some rows are far more open than others; Σ 1/probability still estimates how many."""
    rng = np.random.default_rng(0)
    feature = rng.normal(size=1000)
    right = rng.random(1000) < 1 / (1 + np.exp(2 - 3 * feature))
    monkeypatch.setattr("foils.labelling.relabelling.shown_of", lambda collection, pairs: pairs)
    judge = SimpleNamespace(name="function:right", judge=lambda pairs: [right[int(pair["text"])] for pair in pairs])
    shares = []
    for seed in range(20):
        cascade = cascade_of(feature[:, None], -1.0, seed=seed)
        cascade.ask(judge, 200, checks=0)
        own = cascade.judges[judge.name]
        assert len(own.answers.rows) == 200
        weights = 1 / own.probability[own.answers.rows]
        shares.append([weights.sum() / 1000, weights @ right[own.answers.rows] / 1000])
    np.testing.assert_allclose(np.mean(shares, axis=0), [1, right.mean()], atol=0.03)


def test_the_best_judge_says_what_share_is_relevant() -> None:
    """A cheap judge with many answers does not outvote a better one that was asked after it."""
    cascade, rows = cascade_of(np.zeros((400, 0))), np.arange(400)
    for name, count, relevant in (("cheap", 400, 1.0), ("good", 100, 0.0)):
        answers = Answers(rows[:count], np.full(count, relevant), 0.9, 0.9)
        cascade.judges[name] = Judged(np.full(400, count / 400), answers=answers, confirmed=True)
    assert cascade.judged_share(rows >= 0) == 0.0


def test_promoted_rows_are_positives_wherever_they_are_given(tmp_path: Path) -> None:
    result = relabelled(tmp_path, labels=people(source("a", 1)))
    result.promoted.write(tmp_path / "found.tsv")
    after, read = (foils.load(world(), add_judgements=each) for each in (result.promoted, tmp_path / "found.tsv"))
    assert len(after.known_positives.doc_rows) == len(world().known_positives.doc_rows) + int(truth(result).sum())
    assert read.qrels["train"].equals(after.qrels["train"])
    assert read.digest == after.digest
    assert result.promoted.provenance["stage"] == "relabel"


def test_a_budget_bounds_the_questions_and_the_rest_is_inferred(tmp_path: Path) -> None:
    judge, asked = counted(oracle)
    result = relabelled(tmp_path, judge=judge, budget=60, checks=0)
    assert len(asked) == 60 == result.judges[0]["asked"]
    assert len(set(asked)) == 60, "no row is asked about twice"
    p, right = result.table["relevance"].to_numpy(), truth(result)
    assert p[right].mean() > p[~right].mean() + 0.3
    assert relabelled(tmp_path, judge=oracle, budget=0.25).judges[0]["asked"] == round(0.25 * len(result))


def test_answers_that_are_there_are_used_and_people_are_believed(tmp_path: Path) -> None:
    people(source("a", 1), 3).write(tmp_path / "labels.tsv")
    judge, asked = counted(oracle)
    first = relabelled(tmp_path, labels=tmp_path / "labels.tsv", judge=judge, budget=10, checks=0)
    assert len(asked) == 10
    assert np.allclose(first.table["relevance"].to_numpy()[::3], truth(first)[::3], atol=1e-6)
    assert first.answers.to_json()["judges"]["function:judge"]["judged"] == 10
    judge, asked = counted(oracle)
    relabelled(tmp_path, labels=first.answers, judge=judge, budget=1.0, checks=0)
    assert len(asked) == len(first) - 10, "what this judge answered before is not asked again"


def test_a_dead_judge_loses_nothing_and_invents_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    answered, dead = Reply('{"relevant": false}'), [True]
    with serving(lambda number, body: Reply("", 500) if dead[0] and number >= 6 else answered) as server:
        client = Client("m", server.url, retries=0, concurrency=1)
        settings = {"judge": "llm", "llm_model": client, "budget": 1.0, "checks": 0}
        with pytest.raises(FailureError):
            relabelled(tmp_path, **settings)
        dead[0], before = False, len(server.seen)
        result = relabelled(tmp_path, **settings)
        assert result.judges[0]["answered"] == len(result)
        assert len(server.seen) - before == len(result) - 6, "what was answered is not asked again"


def test_unsure_rows_are_left_out_or_kept(tmp_path: Path) -> None:
    strict = {"positive_precision": 1.0, "negative_precision": 1.0}
    rejected = relabelled(tmp_path, **strict)
    assert (verdicts(rejected) == "unsure").all()
    assert rejected.rejected() == {"may be relevant": len(rejected)}
    assert relabelled(tmp_path, unsure="keep", **strict).keep.all()


def test_texts_that_are_not_in_the_collection_are_never_promoted(tmp_path: Path) -> None:
    written = source("llm", 1, text=lambda query, row: f"a text about subject {row % 30}")
    answers = people(source("llm", 1))
    rows = [
        {**row, "text": text}
        for row, text in zip(answers.table.drop(["text"]).to_pylist(), written.table["text"].to_pylist(), strict=True)
    ]
    result = relabelled(tmp_path, table=written, labels=Labels(pa.Table.from_pylist(rows)))
    assert (verdicts(result) == "positive").any()
    assert len(result.promoted) == 0


def test_rows_of_queries_that_the_split_does_not_judge_have_no_verdict(tmp_path: Path) -> None:
    collection = world(dev=("q1", "q2"))
    result = foils.relabel(
        collection, source("a", 1), judge=oracle, budget=1.0, encoder=HashingEncoder(), vectors=tmp_path / "v"
    )
    of_dev = np.isin(result.table["query_id"].to_pylist(), ["q1", "q2"])
    assert np.array_equal(np.array([each is None for each in result.table["verdict"].to_pylist()]), of_dev)
    assert np.array_equal(np.isnan(result.table["relevance"].to_numpy()), of_dev)
    assert result.keep[of_dev].all()


def test_the_evidence_follows_labels_by_hand(tmp_path: Path) -> None:
    """q0 and q1 share document a; b is labelled for q1 alone, c for nobody."""
    documents = {name: f"text {name}" for name in "abcde"}
    qrels = {"q0": {"a": 1}, "q1": {"a": 1, "b": 1}, "q2": {"d": 1}}
    collection = Collection.from_dicts("c", documents, {name: f"query {name}" for name in qrels}, {"train": qrels})
    pairs = [("q0", "b"), ("q0", "c"), ("q0", "d"), ("q1", "c"), ("q2", "e")]
    table = {"query_id": [q for q, _ in pairs], "doc_id": [d for _, d in pairs], "source": ["s"] * 5}
    negatives = Negatives(pa.table({**table, "rank": list(range(5)), "score": [1.0] * 5, "teacher": [1.0] * 5}))
    evidence = evidence_of(collection, negatives, HashingEncoder(), VectorStore(tmp_path))
    ways = dict(zip(pairs, evidence.features[:, evidence.names.index("labelled together")], strict=True))
    assert ways["q0", "b"] == max(ways.values()) > ways["q0", "c"]
    assert ways["q0", "c"] == ways["q0", "d"] == ways["q1", "c"]
    elsewhere = dict(zip(pairs, evidence.features[:, evidence.names.index("labelled elsewhere")], strict=True))
    assert elsewhere["q0", "b"] == elsewhere["q0", "d"] > elsewhere["q0", "c"]
    plain = [at for at, name in enumerate(evidence.names) if not name.endswith("squared")]
    assert np.allclose(evidence.features[:, plain].mean(axis=0), 0)
    assert "teacher" not in evidence.names, "a column that does not vary says nothing"


def test_scores_of_the_table_are_evidence_beside_those_of_the_positives(tmp_path: Path) -> None:
    collection, table, how = world(), source("a", 1), (HashingEncoder(), VectorStore(tmp_path))
    query, document = collection.positives("train").pairs()
    ids = (pa.array([f"{letter}{row}" for row in of]) for letter, of in (("q", query), ("d", document)))
    wide, at = table.with_rejected(*ids)
    scores = np.random.default_rng(0).normal(size=len(wide))
    scores[[5, at[0]]] = np.nan  # q0 has the positive at[0] alone
    plain, found = (evidence_of(collection, each, *how) for each in (table, wide.with_columns({"teacher": scores})))
    assert [name for name in found.names if "teacher" not in name] == list(plain.names)
    means = [np.nan, *(np.nanmean(scores[at][query == row]) for row in range(1, 30))]
    of_positives = np.array(means)[wide.rows_in(collection)[0][found.rows]]
    for name, values in (("teacher", scores[found.rows]), ("positives' teacher", of_positives)):
        scaled = np.nan_to_num((values - np.nanmean(values)) / np.nanstd(values))
        assert found.features[:, found.names.index(name)] == pytest.approx(scaled)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"judge": "wise:m"}, "unknown judge 'wise'; expected one of: bi-encoder"),
        ({"judge": oracle, "budget": [0.1, 0.1]}, "2 values of .*budget.* for 1 judges"),
        ({"judge": oracle, "budget": 0.0}, "budget 0; expected above 0"),
        ({"budget": 0.5}, "budget 0.5: no effect without judge"),
        ({"judge": oracle, "llm_model": "m"}, "it goes with judge llm"),
        ({"judge": lambda *texts: "yes"}, "answered 'yes'"),
    ],
)
def test_what_makes_no_sense_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        relabelled(tmp_path, **settings)


def test_the_program_does_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = world_folder(tmp_path / "world")
    source("a", 1).write(tmp_path / "a.parquet")
    model = "static:all-MiniLM-L6-v2"
    options = {"encoder": model, "judge": f"bi-encoder:{model}", "budget": 40, "checks": 10}
    given = [f"--{name}={value}" for name, value in {**options, "promoted": tmp_path / "found.tsv"}.items()]
    assert run(["relabel", str(folder), str(tmp_path / "a.parquet"), *given, "-o", str(tmp_path / "out.parquet")]) == 0
    assert "sensitivity" in capsys.readouterr().out
    result = foils.relabel(folder, tmp_path / "a.parquet", **options)
    assert Negatives.read(tmp_path / "out.parquet").digest == result.digest
    assert Labels.of(tmp_path / "found.tsv").table["doc_id"] == result.promoted.table["doc_id"]
    with pytest.raises(InputError, match="relevance and verdict already"):
        relabelled(tmp_path, table=Negatives(result.table))
