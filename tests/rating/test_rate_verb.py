import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foils.cli.app import run
from foils.data import Negatives


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "qrels").mkdir()
    documents = [{"_id": f"d{i}", "title": "", "text": f"text {i}"} for i in range(8)]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in documents))
    (tmp_path / "queries.jsonl").write_text(json.dumps({"_id": "q", "text": "query"}) + "\n")
    (tmp_path / "qrels" / "train.tsv").write_text("query-id\tcorpus-id\tscore\nq\td7\t1\n")
    table = pa.table(
        {
            "query_id": ["q"] * 7,
            "doc_id": [f"d{i}" for i in range(7)],
            "source": ["s"] * 7,
            "rank": range(7),
            "score": [0.0] * 7,
        }
    )
    Negatives(table).write(tmp_path / "negatives.parquet")
    pairs = [(i, j) for i in range(8) for j in range(i + 1, 8)]
    answers = pa.table(
        {
            "query_id": ["q"] * len(pairs),
            "first": [f"d{i}" for i, _ in pairs],
            "second": [f"d{j}" for _, j in pairs],
            "preference": [1 / (1 + np.exp(j - i)) for i, j in pairs],
        }
    )
    pq.write_table(answers, tmp_path / "answers.parquet")
    return tmp_path


def rate(folder, *more):
    arguments = [
        "rate",
        str(folder),
        str(folder / "negatives.parquet"),
        "--judge",
        f"recorded:{folder / 'answers.parquet'}",
    ]
    return run([*arguments, "-o", str(folder / "rated.parquet"), *more])


def test_it_writes_table_and_json_and_repeats_itself(folder, capsys):
    assert (
        rate(folder, "--json", str(folder / "rated.json"), "--rating-args", "model=bradley-terry", "--validate", "all")
        == 0
    )
    found = Negatives.read(folder / "rated.parquet")
    gaps = found.kept()["gap"].to_numpy()
    np.testing.assert_allclose(gaps, 173.7 * np.arange(7, 0, -1), rtol=0.06)  # less by the prior
    np.testing.assert_allclose(found.kept()["preference"].to_numpy()[-1], 1 / (1 + np.exp(-1)))
    assert found.provenance["stage"] == "rate"
    assert found.provenance["settings"]["model"] == "bradley-terry"
    report = json.loads((folder / "rated.json").read_text())
    assert (
        report["comparisons"] == 24 + 1
    )  # degree 6 on eight candidates, and the positive against the one it leaves out
    assert report["missing"] == 0
    assert "comparisons" in capsys.readouterr().out
    once = (folder / "rated.parquet").read_bytes()
    assert rate(folder, "--rating-args", "model=bradley-terry", "--validate", "all") == 0
    assert (folder / "rated.parquet").read_bytes() == once


@pytest.mark.parametrize(
    "more",
    [
        ("--degree", "4"),
        ("--rating-args", "rounds=2", "--degree", "4"),
        ("--rating-args", "prior_sd=0.5"),
        ("--rating-args", "prior_sd=1e6"),
        ("--seed", "5", "--degree", "2"),
        ("--degree", "4", "--seed", "2"),
    ],
)
def test_options_reach_the_rating(folder, more):
    rate(folder)
    plain = Negatives.read(folder / "rated.parquet").table["elo_se"].to_numpy()
    assert rate(folder, *more) == 0
    assert np.abs(Negatives.read(folder / "rated.parquet").table["elo_se"].to_numpy() - plain).max() > 1


@pytest.mark.parametrize("in_a_circle", [True, False])
def test_answers_that_no_rating_fits_are_warned_of(folder, caplog, in_a_circle):
    """Each candidate beats the three after it, round in a circle, or not round: then it is an order."""
    pairs = [(i, j) for i in range(8) for j in range(8) if i != j and (j - i) % 8 in (1, 2, 3)]
    wins = [1.0 if in_a_circle or i < j else 0.0 for i, j in pairs]
    columns = {
        "query_id": ["q"] * len(pairs),
        "first": [f"d{i}" for i, _ in pairs],
        "second": [f"d{j}" for _, j in pairs],
    }
    pq.write_table(pa.table({**columns, "preference": wins}), folder / "answers.parquet")
    assert rate(folder, "--degree", "8", "--json", str(folder / "rated.json")) == 0
    found = json.loads((folder / "rated.json").read_text())
    assert (found["deviance_explained"] < 0.05) == in_a_circle
    assert ("the ratings explain" in caplog.text) == in_a_circle


def test_several_judges_are_averaged(folder):
    halves = pq.read_table(folder / "answers.parquet").set_column(3, "preference", pa.array([0.5] * 28))
    pq.write_table(halves, folder / "halves.parquet")
    rate(folder)
    alone = Negatives.read(folder / "rated.parquet").kept()["gap"].to_numpy()
    assert rate(folder, "--judge", f"recorded:{folder / 'halves.parquet'}") == 0
    both = Negatives.read(folder / "rated.parquet").kept()["gap"].to_numpy()
    assert (both < 0.8 * alone).all()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--rating-args", "model=elo"), "bradley-terry, thurstone"),
        (("--degree", "3"), "even degree"),
        (("--budget", "10"), "--budget 10: the judgements are recorded"),
        (("--rating-args", "prior_sd=0"), "prior_sd=0; expected auto, or a number above 0"),
        (("--rating-args", "prior_sd=weak"), "prior_sd=weak; expected auto"),
        (("--judge", "cross-encoder"), "needs its model"),
        (("--judge", "recorded"), "needs its path"),
        (("--split", "dev"), "split"),
    ],
)
def test_bad_input_is_said(folder, capsys, more, said):
    assert rate(folder, *more) == 2
    assert said in capsys.readouterr().err
    assert not (folder / "rated.parquet").exists()
