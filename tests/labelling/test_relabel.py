"""`foils relabel`: verdicts by labels and a threshold, and what becomes of the rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from label_world import Program, oracle, source, world, world_folder

import foils
from fakes import HashingEncoder
from foils.cli.app import run
from foils.data import Collection, Labels, Negatives
from foils.data.negatives import negatives_table
from foils.encode import VectorStore
from foils.labelling.relabelling import Judged, Relabelled, evidence_of, verdicts_of, with_errors
from foils.runtime.errors import InputError
from foils.statistics.survey import Crowd


def relabelled(tmp_path: Path, *, table: Negatives | None = None, **settings: Any) -> Relabelled:
    given = source("a", 1) if table is None else table
    return foils.relabel(world(), given, encoder=HashingEncoder(), vectors=tmp_path / "vectors", **settings)


def truth(of: Negatives) -> np.ndarray:
    pairs = zip(of.table["query_id"].to_pylist(), of.table["doc_id"].to_pylist(), strict=True)
    return np.array([int(document[1:]) % 30 == int(query[1:]) for query, document in pairs])


def verdicts(of: Negatives) -> np.ndarray:
    return np.array(of.table["verdict"].to_pylist())


def answers(answer: Callable[[str, str, str], bool], folder: Path, n: int = 240, checks: int = 100) -> Labels:
    """What a program says of rows that `foils label` draws, and of pairs of known truth."""
    output = folder / f"{answer.__name__}-{n}.parquet"
    return foils.label(world(), {"a": source("a", 1)}, n=n, ask=Program(answer), output=output, checks=checks).labels


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


@pytest.mark.parametrize("confirmed", [True, False])
@pytest.mark.parametrize(("judge", "believed"), [(oracle, True), (weak, True), (guess, False), (always, False)])
def test_a_judge_is_believed_as_far_as_is_known_of_it(
    tmp_path: Path, judge: Callable[..., bool], confirmed: bool, believed: bool
) -> None:
    labels = [answers(judge, tmp_path), *([people(source("a", 1), 3)] if confirmed else [])]
    result = relabelled(tmp_path, labels=labels)
    use, called, right = result.judges[-1], verdicts(result) == "positive", truth(result)
    assert use["answered"] == len(result)
    assert (use["name"], use["confirmed"]) == (f"judge:{judge.__name__}", confirmed)
    if confirmed:
        assert use["believed"] == believed, "people show how often it errs"
    if not use["believed"]:
        assert "not believed" in str(result)
        assert np.array_equal(called[::3], right[::3]) if confirmed else not called.any()
        assert np.isnan(result.table["relevance"].to_numpy()).all() != confirmed, (
            "where nobody is believed nothing is known"
        )
    if judge is oracle:
        assert min(right[called].mean(), called[right].mean()) > 0.9
        assert (min(use["sensitivity"], use["specificity"]) > 0.9) == confirmed
    assert np.array_equal(result.keep, ~called)


def judged(relevant: Any, *errors: float, drawn: float = 1.0, **more: Any) -> Judged:
    """Answers about the first rows, each drawn with the same probability."""
    answers = np.asarray(relevant, np.float64)
    return Judged(np.arange(len(answers)), answers, *errors, probability=np.full(len(answers), drawn), **more)


NOBODY = judged([])


def test_errors_where_people_judged_the_same_rows_by_hand() -> None:
    """40 rows, 10 relevant: the judge finds 8 of them and calls 3 of the 30 others relevant; 29 rows are too few."""
    truth_of, called = np.r_[np.ones(10), np.zeros(30)], np.r_[np.ones(8), np.zeros(2), np.ones(3), np.zeros(27)]
    program = judged(called, 0.9, 0.96)
    shown, alone = with_errors(program, judged(truth_of)), with_errors(program, judged(truth_of[:29]))
    assert shown.sensitivity == pytest.approx((8 + 1) / (10 + 2))
    assert shown.specificity == pytest.approx((27 + 1) / (30 + 2))
    assert (alone.sensitivity, alone.specificity) == pytest.approx((0.9, (0.5 + 0.96) / 2))
    assert [(each.confirmed, each.believed) for each in (shown, alone)] == [(True, True), (False, True)]
    assert not judged([1], 0.7, 0.69).believed


def test_verdicts_by_hand() -> None:
    """The mean from .8 up is .9; people answered about every row, and the first row against all expectation."""
    p = np.repeat([1.0, 0.8, 0.5, 0.2, 0.0], 40)
    crowd = Crowd(np.zeros(1), p, p)
    people, every = judged([0]), judged([1] * 80 + [0] * 120)
    verdict, lowest = verdicts_of(crowd, [every], people, 0.89)
    assert lowest == 0.8
    assert verdict.tolist() == ["negative", *["positive"] * 79, *["unsure"] * 120]
    verdict, lowest = verdicts_of(crowd, [judged([1] * 40 + [0] * 160)], people, 0.89)
    assert lowest == 1.0, "answers about the rows of .8 deny what is expected of them"
    verdict, lowest = verdicts_of(crowd, [], people, 0.89)
    assert lowest > 1, "where nobody confirms a share there is no threshold"
    assert verdict.tolist() == ["negative", *["unsure"] * 199]


def test_the_best_judge_says_what_share_is_relevant() -> None:
    """A program with many answers does not outvote people."""
    p = np.full(400, 0.95)
    program, people = judged([1] * 400, 0.9, 0.9), judged([0] * 100, drawn=0.25)
    crowd = Crowd(np.zeros(1), p, p)
    assert (verdicts_of(crowd, [program, people], NOBODY, 0.9)[0] == "positive").all()
    assert (verdicts_of(crowd, [people, program], NOBODY, 0.9)[0] == "unsure").all()


def test_few_labels_leave_the_table_as_it_was_but_for_what_they_answer(tmp_path: Path) -> None:
    result = relabelled(tmp_path, labels=people(source("a", 1), 12))
    answered = np.arange(len(result)) % 12 == 0
    assert np.array_equal(verdicts(result) == "unsure", ~answered)
    assert np.array_equal(result.keep, ~(answered & truth(result)))
    assert f"{int(result.keep.sum()):,} of {len(result)} rows are left to train on." in str(result)


def test_promoted_rows_are_positives_wherever_they_are_given(tmp_path: Path) -> None:
    result = relabelled(tmp_path, labels=people(source("a", 1)))
    result.promoted.write(tmp_path / "found.tsv")
    after, read = (foils.load(world(), add_judgements=each) for each in (result.promoted, tmp_path / "found.tsv"))
    assert len(after.known_positives.doc_rows) == len(world().known_positives.doc_rows) + int(truth(result).sum())
    assert read.qrels["train"].equals(after.qrels["train"])
    assert read.digest == after.digest
    assert result.promoted.provenance["stage"] == "relabel"


def test_the_rows_that_nobody_answered_about_are_inferred(tmp_path: Path) -> None:
    result = relabelled(tmp_path, labels=answers(oracle, tmp_path, 60, 0))
    assert result.judges[0]["answered"] == 60
    p, right = result.table["relevance"].to_numpy(), truth(result)
    assert p[right].mean() > p[~right].mean() + 0.3


def test_people_are_believed(tmp_path: Path) -> None:
    people(source("a", 1), 3).write(tmp_path / "labels.tsv")
    result = relabelled(tmp_path, labels=[tmp_path / "labels.tsv", answers(guess, tmp_path, 10)])
    assert np.allclose(result.table["relevance"].to_numpy()[::3], truth(result)[::3], atol=1e-6)


def test_too_few_rows_that_are_left_end_in_no_training_of_one_step(tmp_path: Path) -> None:
    queries, half = {f"q{i}": f"subject {i}" for i in range(400)}, {f"q{i}": {f"d{i}": 1} for i in range(400)}
    collection = Collection.from_dicts("c", {f"d{i}": f"text {i}" for i in range(401)}, queries, {"train": half})
    ids = [pa.array([f"q{i}" for i in range(400)]), pa.array([f"d{i + 1}" for i in range(400)])]
    table = Negatives(negatives_table(*ids, "s", np.zeros(400), np.zeros(400)))
    few = table.reject(np.arange(400) > 5, "may be relevant")
    with pytest.raises(InputError, match=r"6 of 400 pairs have a negative that is kept, fewer than a batch of \d+"):
        foils.train(collection, few, model="static:all-MiniLM-L6-v2", output=tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_texts_that_are_not_in_the_collection_are_never_promoted(tmp_path: Path) -> None:
    written = source("llm", 1, text=lambda query, row: f"a text about subject {row % 30}")
    answers, of_texts = people(source("llm", 1)).table, written.table.select(["doc_id", "text"]).to_pylist()
    rows = [{**row, **each} for row, each in zip(answers.to_pylist(), of_texts, strict=True)]
    result = relabelled(tmp_path, table=written, labels=Labels(pa.Table.from_pylist(rows)))
    assert (verdicts(result) == "positive").any()
    assert len(result.promoted) == 0


def test_rows_of_queries_that_the_split_does_not_judge_have_no_verdict(tmp_path: Path) -> None:
    collection = world(dev=("q1", "q2"))
    result = foils.relabel(
        collection, source("a", 1), labels=people(source("a", 1)), encoder=HashingEncoder(), vectors=tmp_path / "v"
    )
    of_dev = np.isin(result.table["query_id"].to_pylist(), ["q1", "q2"])
    assert np.array_equal(np.array([each is None for each in result.table["verdict"].to_pylist()]), of_dev)
    assert np.array_equal(np.isnan(result.table["relevance"].to_numpy()), of_dev)
    assert result.keep[of_dev].all()


def test_the_evidence_by_hand(tmp_path: Path) -> None:
    """q0 and q1 share document a; b is labelled for q1 alone, c for nobody: q0–a–q1–b is the one way there is."""
    documents = {name: f"text {name}" for name in "abcde"}
    qrels = {"q0": {"a": 1}, "q1": {"a": 1, "b": 1}, "q2": {"d": 1}}
    collection = Collection.from_dicts("c", documents, {name: f"query {name}" for name in qrels}, {"train": qrels})
    pairs = [("q0", "b"), ("q0", "c"), ("q0", "d"), ("q1", "c"), ("q1", "a"), ("q2", "e")]
    table = {"query_id": [q for q, _ in pairs], "doc_id": [d for _, d in pairs], "source": ["s"] * 6}
    negatives = Negatives(pa.table({**table, "rank": list(range(6)), "score": [1.0] * 6}))
    encoder = HashingEncoder()
    rows, features = evidence_of(collection, negatives, encoder, VectorStore(tmp_path))
    assert [*features] == ["nearest", "labelled together"]
    assert rows.tolist() == [0, 1, 2, 3, 5], "q1's a is a positive"
    vectors = dict(zip(documents, encoder.encode([*documents.values()], "document"), strict=True))
    known = {query: [*of] for query, of in qrels.items()}
    nearest = [max(vectors[d] @ vectors[each] for each in known[q]) for q, d in pairs if (q, d) != ("q1", "a")]
    for column, values in zip(features.values(), (nearest, np.log1p([1, 0, 0, 0, 0])), strict=True):
        np.testing.assert_allclose(column, (values - np.mean(values)) / np.std(values), atol=1e-5)


def test_a_text_of_a_language_model_is_near_an_answer_or_not(tmp_path: Path) -> None:
    collection = world()
    texts = ["document 0 of subject 0", "something else"]
    columns = {"query_id": ["q0", "q0"], "doc_id": ["x", "y"], "source": ["llm"] * 2, "rank": [0, 1], "text": texts}
    table = pa.table({**columns, "score": [0.0, 0.0]})
    _, features = evidence_of(collection, Negatives(table), HashingEncoder(), VectorStore(tmp_path))
    assert [*features] == ["nearest"], "no label of another query leads to a text that is in no collection"
    assert features["nearest"][0] > features["nearest"][1]


def test_the_program_does_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = world_folder(tmp_path / "world")
    source("a", 1).write(tmp_path / "a.parquet")
    people(source("a", 1), 3).write(tmp_path / "labels.tsv")
    given = ["relabel", str(folder), str(tmp_path / "a.parquet"), "-o", str(tmp_path / "out.parquet")]
    assert run(given) == 2
    assert "no labels; give those that foils label wrote: --labels FILE" in capsys.readouterr().err
    options = {"encoder": "static:all-MiniLM-L6-v2", "labels": tmp_path / "labels.tsv"}
    given += [f"--{name}={value}" for name, value in {**options, "promoted": tmp_path / "found.tsv"}.items()]
    assert run(given) == 0
    assert "sensitivity" in capsys.readouterr().out
    result = foils.relabel(folder, tmp_path / "a.parquet", **options)
    assert Negatives.read(tmp_path / "out.parquet").digest == result.digest
    assert Labels.of(tmp_path / "found.tsv").table["doc_id"] == result.promoted.table["doc_id"]
    with pytest.raises(InputError, match="relevance and verdict already"):
        relabelled(tmp_path, table=Negatives(result.table), labels=tmp_path / "labels.tsv")
