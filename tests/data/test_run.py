"""Runs, and results of systems, written and read."""

import json
import math
from itertools import permutations

import numpy as np
import pyarrow as pa
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from foils.data import Negatives, Run
from foils.data.negatives import negatives_table
from foils.data.sources import as_source
from foils.runtime.errors import FormatError, InputError
from foils.statistics import measure_rankings


def rows(run: Run) -> list[tuple[object, ...]]:
    return list(zip(*(run.table[key].to_pylist() for key in ("query_id", "doc_id", "score", "rank")), strict=True))


def test_sorting_by_hand():
    run = Run.ranked(["b", "a", "b", "a", "b"], ["1", "2", "3", "4", "5"], [1.0, 0.5, 3.0, 0.5, -2.0])
    assert rows(run) == [
        ("b", "3", 3.0, 0),
        ("b", "1", 1.0, 1),
        ("b", "5", -2.0, 2),
        ("a", "2", 0.5, 0),  # a tie: in the order given
        ("a", "4", 0.5, 1),
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ((["q", "q"], ["a", "b"], [1.0, math.nan]), "1 scores of the run mine are NaN or infinite"),
        ((["q", "p", "q"], ["a", "a", "a"], [1, 2, 3]), "the run mine names 1 documents twice for a query"),
        ((["q"], ["a", "b"], [1, 2]), "doc_id expected length 1 but got length 2"),
    ],
)
def test_what_is_refused(columns, message):
    with pytest.raises(ValueError, match=message) as caught:
        Run.ranked(*columns, name="mine")  # type: ignore[arg-type]
    assert isinstance(caught.value, InputError) == ("mine" in message)


# TREC files


def test_a_file_by_hand(tmp_path):
    run = Run.from_dict({"q1": {"d1": 0.1, "d2": 1e-30}, "q2": {"d1": -3}}, name="my system")
    run.write(tmp_path / "run.trec")
    assert (tmp_path / "run.trec").read_text() == (
        "q1 Q0 d1 1 0.1 my_system\nq1 Q0 d2 2 1e-30 my_system\nq2 Q0 d1 1 -3.0 my_system\n"
    )
    assert Run.read(tmp_path / "run.trec").name == "my_system"


def test_the_score_decides_not_the_rank(tmp_path):
    path = tmp_path / "run.trec"
    path.write_text("q Q0 a 1 1.0 x\nq\tQ0\tb  2 2.0\ty\r\n\n")
    run = Run.read(path)
    assert [row[1] for row in rows(run)] == ["b", "a"]
    assert run.name == "run"  # two tags: the file's name


LINES = ["q Q0 b 2 1.0 x", "q Q0 a 1 1.0 x", "q Q0 c 3 1.0 x", "q Q0 d 4 2.0 x"]


@pytest.mark.parametrize("lines", list(permutations(LINES)))
def test_of_equal_scores_the_rank_decides_and_no_line_stands_first_by_chance(tmp_path, lines):
    (tmp_path / "run.trec").write_text("\n".join(lines), "utf-8")
    run = Run.read(tmp_path / "run.trec")
    assert run.table["doc_id"].to_pylist() == ["d", "a", "b", "c"]
    qrels = {"q": {"a": 1}}
    assert measure_rankings({"q": run.table["doc_id"].to_pylist()}, qrels, ["RR"]).means["RR"] == 1 / 2


@pytest.mark.parametrize("rank", ["1", "0", "Q0", "1.5", "-"])
@pytest.mark.parametrize("ids", list(permutations(["d1", "d10", "é"])))
def test_where_ranks_say_nothing_equal_scores_stand_as_in_trec_eval(tmp_path, ids, rank):
    """Each document in turn is the relevant one: pytrec_eval, which reads scores alone, finds it at the same rank."""
    (tmp_path / "run.trec").write_text("".join(f"q Q0 {each} {rank} 0.5 x\n" for each in ids), "utf-8")
    ranked = Run.read(tmp_path / "run.trec").table["doc_id"].to_pylist()
    for place, relevant in enumerate(ranked):
        evaluator = pytrec_eval.RelevanceEvaluator({"q": {relevant: 1}}, {"recip_rank"})
        assert evaluator.evaluate({"q": dict.fromkeys(ids, 0.5)})["q"]["recip_rank"] == pytest.approx(1 / (place + 1))


# An id is text without white space; a byte order mark would be taken for one at the start of the file.
ids = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\ufeff"), min_size=1, max_size=4).filter(
    lambda text: text.split() == [text]
)
scores = st.floats(allow_nan=False, allow_infinity=False)


@given(st.dictionaries(ids, st.dictionaries(ids, scores, min_size=1), max_size=4))
def test_a_file_comes_back_in_its_order(tmp_path_factory, found):
    path = tmp_path_factory.getbasetemp() / "run.trec"
    run = Run.from_dict(found)
    run.write(path)
    back = Run.read(path)
    assert back.table.drop_columns("score").equals(run.table.drop_columns("score"))
    held = np.clip(run.table["score"].to_numpy(), -1e38, 1e38)  # equal scores fall by a float32 from rank to rank
    np.testing.assert_allclose(np.clip(back.table["score"].to_numpy(), -1e38, 1e38), held, rtol=1e-5, atol=1e-40)


@pytest.mark.parametrize("identifier", ["a b", "", "\u3000"])
def test_ids_that_the_form_cannot_hold(tmp_path, identifier):
    path = tmp_path / "run.trec"
    for run in (Run.from_dict({identifier: {"d": 1}}), Run.from_dict({"q": {identifier: 1}})):
        with pytest.raises(InputError, match="is empty or has white space in it; a TREC run cannot hold it"):
            run.write(path)
    assert not path.exists()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("q Q0 d 1 2.0", r"run\.trec:2: expected 6 fields \(query Q0 document rank score tag\), found 5"),
        ("q Q0 d 1 high x", r":2: the score 'high' is not a finite number"),
        ("q Q0 d 1 1_0 x", "the score '1_0'"),
        ("q1 Q0 d1 2 1.0 x", r":2: 'd1' is ranked for 'q1' on line 1 already"),
        ("\udcff", ":2: not UTF-8"),
    ],
)
def test_lines_that_are_wrong(tmp_path, line, message):
    path = tmp_path / "run.trec"
    path.write_bytes(f"q1 Q0 d1 1 2.0 x\n{line}\n".encode("utf-8", "surrogateescape"))
    with pytest.raises(FormatError, match=message):
        Run.read(path)


@pytest.fixture
def negatives():
    table = negatives_table(pa.array(["q1", "q1"]), pa.array(["d2", "d5"]), "bm25", [0, 1], [2.0, 1.0])
    return Negatives(table, {"stage": "mine", "settings": {"top": 2}}).reject(np.array([False, True]), "near")


def test_a_result_is_a_table_of_negatives(small, negatives, tmp_path):
    result = Negatives.of(negatives, title="bm25 negatives", collection=small)
    assert (result.digest, result.to_json()) == (negatives.digest, negatives.to_json())
    assert result.tables()[0].title == "bm25 negatives"
    assert result.rows() == [("rows", "2"), ("kept", "1"), ("rejected: near", "1")]
    assert "bm25 negatives" in str(result)
    assert result.to_pandas()["doc_id"].tolist() == ["d2", "d5"]
    assert as_source(result, small).negatives is result
    result.write(tmp_path / "n.parquet")
    assert Negatives.read(tmp_path / "n.parquet").digest == result.digest


def test_its_kept_rows_are_exported(small, negatives, tmp_path):
    result = Negatives.of(negatives, collection=small)
    assert result.export(tmp_path / "t.jsonl") == 2  # one for each positive of q1
    assert list(json.loads((tmp_path / "t.jsonl").read_text().splitlines()[0])) == ["anchor", "positive", "negative"]
    with pytest.raises(InputError, match="name the collection"):
        Negatives.of(negatives).export(tmp_path / "t.jsonl")
