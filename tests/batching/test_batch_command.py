"""foils batch, with a small encoder from a folder."""

import json

import numpy as np
import pyarrow.parquet as pq
import pytest

pytest.importorskip("datasets")
from foils.cli.app import run
from train_models import WORDS, bert_model


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    beir = tmp_path / "beir"
    (beir / "qrels").mkdir(parents=True)
    texts = [" ".join(rng.choice(WORDS, 8)) for _ in range(60)]
    (beir / "corpus.jsonl").write_text(
        "".join(json.dumps({"_id": f"d{i}", "title": "", "text": t}) + "\n" for i, t in enumerate(texts))
    )
    (beir / "queries.jsonl").write_text(
        "".join(json.dumps({"_id": f"q{i}", "text": t[:11]}) + "\n" for i, t in enumerate(texts))
    )
    (beir / "qrels" / "train.tsv").write_text(
        "query-id\tcorpus-id\tscore\n" + "".join(f"q{i}\td{i}\t1\n" for i in range(60))
    )
    bert_model(tmp_path / "bert").save(str(tmp_path / "model"))
    return tmp_path


def arguments(folder, *more):
    return ["batch", str(folder / "beir"), "--encoder", str(folder / "model"), *more]


def test_it_writes_the_plan_and_says_how_good_it_is(folder, capsys):
    plan, facts = folder / "plan.parquet", folder / "facts.json"
    more = ["--batch-size", "16", "--set", "seeds=4", "--set", "seed_order=k-means"]
    more += ["-o", str(plan), "--json", str(facts)]
    assert run(arguments(folder, *more)) == 0
    assert pq.read_table(plan).num_rows == 60
    shown = capsys.readouterr().out
    assert "contradictions in a plain shuffle" in shown
    assert "60 rows in 4 batches of 16, made of 60 pairs" in shown
    written = json.loads(facts.read_text())
    assert written["with"] == "hobit"
    assert written["settings"] == {"seeds": 4, "seed_order": "k-means"}
    assert written["measures"]["rows"] == 60


def test_a_source_says_which_queries_take_part(folder, capsys):
    source = folder / "negatives.jsonl"
    texts = [json.loads(line)["text"] for line in (folder / "beir" / "corpus.jsonl").read_text().splitlines()]
    rows = [{"anchor": texts[i][:11], "positive": texts[i], "negative": texts[i + 1]} for i in range(20)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    plan = folder / "plan.parquet"
    more = [str(source), "--with", "random", "--batch-size", "8", "-o", str(plan)]
    found = arguments(folder)
    assert run([*found[:2], more[0], *found[2:], *more[1:]]) == 0
    assert sorted(pq.read_table(plan)["query_id"].to_pylist()) == sorted(f"q{i}" for i in range(20))
    assert pq.read_table(plan).column_names[-1] == "negative_id"
    assert run([*found[:2], more[0], *found[2:], *more[1:], "--form", "pairs"]) == 0
    assert pq.read_table(plan).num_rows == 60


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--with", "hobbit"], 'Did you mean "hobit"?'),
        (["--set", "alhpa=1"], "unknown setting of hobit 'alhpa'"),
        (["--set", "alpha"], "expected NAME=VALUE"),
        (["--split", "dev"], "split"),
    ],
)
def test_bad_usage_is_a_message(folder, capsys, more, message):
    assert run(arguments(folder, *more, "-o", str(folder / "plan.parquet"))) == 2
    assert message in capsys.readouterr().err
    assert not (folder / "plan.parquet").exists()
