"""foils rate with a language model, and with a judge distilled from recorded answers."""

from __future__ import annotations

import json
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foils.cli.app import run
from foils.data import Negatives
from foils.data.negatives import negatives_table
from llm_server import Reply, serving
from tiny_models import tiny_cross_encoder

LEVELS = {f"d{i}": f"w{i}" for i in range(8)}


@pytest.fixture
def folder(tmp_path, monkeypatch, beir_folder):
    """Six queries, eight documents: d7 is the best for all and the labelled one; the others are negatives."""
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    queries = {f"q{i}": f"query {i}" for i in range(6)}
    made = beir_folder(
        "small",
        documents={key: ("", text) for key, text in LEVELS.items()},
        queries=queries,
        qrels={"train": {query: {"d7": 1} for query in queries}},
    )
    rows = [(query, f"d{i}", i) for query in queries for i in range(7)]
    ids = [pa.array(column) for column in list(zip(*rows, strict=True))[:2]]
    table = negatives_table(*ids, "s", [rank for _, _, rank in rows], np.zeros(len(rows)))
    Negatives(table).write(made / "negatives.parquet")
    answers = [(q, f"d{i}", f"d{j}", 1 / (1 + np.exp(j - i))) for q in queries for i in range(8) for j in range(i)]
    names = ("query_id", "first", "second", "preference")
    columns = dict(zip(names, map(list, zip(*answers, strict=True)), strict=True))
    pq.write_table(pa.table(columns), made / "answers.parquet")
    return made


def rate(folder, *more):
    given = [str(folder), str(folder / "negatives.parquet"), "-o", str(folder / "rated.parquet")]
    return run(["rate", *given, *more])


def gaps(folder):
    return Negatives.read(folder / "rated.parquet").kept()["gap"].to_numpy()


def by_number(number, asked):
    content = asked["messages"][0]["content"]
    first, second = (int(one) for one in re.findall(r"Passage [AB]:\n<\S+>\nw(\d)", content))
    return Reply(json.dumps({"preference": 0.85 if first > second else 0.25}))


def test_where_every_question_fails_it_says_so_with_the_address(folder, capsys):
    keep = ["--budget", "12"]  # twelve questions: fewer than those after which a run stops by itself
    with serving(lambda number, asked: Reply("no idea")) as server:
        options = ["--judge", "llm", "--llm-model", "m", "--base-url", server.url, *keep]
        assert rate(folder, *options) == 1
        said = " ".join(capsys.readouterr().err.split())
        assert "no question was answered" in said
        assert server.url.rstrip("/") in said
    assert not (folder / "rated.parquet").exists()


def test_what_it_costs_is_said_before_the_first_question(folder, capsys):
    with serving(lambda number, asked: Reply(status=401)) as server:
        options = ["--judge", "llm", "--llm-model", "m", "--base-url", server.url, "--budget", "48"]
        assert rate(folder, *options, "--llm-args", "price=1000,0,concurrency=1") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert re.search(r"m at http://127\S+: 48 questions, about [\d,]+ prompt tokens .* cost: [\d,]+\.\d\d", said)


def test_a_budget_for_few_is_a_warning(folder, capsys):
    with serving(by_number) as server:
        options = ["--judge", "llm", "--llm-model", "m", "--base-url", server.url, "--budget", "8"]
        assert rate(folder, *options) == 0
    assert re.search(r"the budget leaves \d+ of 48 candidates unrated; give more", capsys.readouterr().err)


def test_a_language_model_rates(folder, capsys):
    with serving(by_number) as server:
        options = ["--judge", "llm", "--llm-model", "m", "--base-url", server.url, "--json", str(folder / "r.json")]
        assert rate(folder, *options, "--llm-args", "price=1000,0") == 0
        asked = len(server.seen)
        found = gaps(folder)
        assert rate(folder, *options) == 0
        assert len(server.seen) == asked == 6 * 24 * 2, "answers are kept"
        np.testing.assert_array_equal(gaps(folder), found)
    assert (found > -1e-6).all()  # 0 where the two best are the pair that degree 6 leaves out
    shown = capsys.readouterr().out
    assert re.search(r"position bias +0.050 \(95 % interval 0.050 to 0.050\)", shown)
    assert re.search(r"m: requests +288", shown)
    assert re.search(r"m: cost +2.02", shown)
    written = json.loads((folder / "r.json").read_text())
    assert written["position_bias_interval"] == pytest.approx([0.05, 0.05])
    told = Negatives.read(folder / "rated.parquet").provenance["settings"]["language_models"][0]
    assert (told["model"], told["prompt"], told["answer"]) == ("m", "pairwise-1", "preference")


def test_each_model_has_a_server_and_settings_of_its_own(folder, capsys):
    """Two servers, each with its own temperature and form of answer; the rest is shared."""

    def chooses(number, asked):
        content = asked["messages"][0]["content"]
        first, second = (int(one) for one in re.findall(r"Passage [AB]:\n<\S+>\nw(\d)", content))
        return Reply("A", tokens={"A" if first > second else "B": -0.01})

    with serving(by_number) as one, serving(chooses) as other:
        judges = [f"llm:x,base_url={one.url}", f"llm:y,base_url={other.url},temperature=0.7,answer=token"]
        options = ["--llm-args", "temperature=0.1", "--degree", "4"]
        assert rate(folder, *(part for each in judges for part in ("--judge", each)), *options) == 0
        assert {(each["model"], each["temperature"]) for each in one.seen} == {("x", 0.1)}
        assert {(each["model"], each["temperature"]) for each in other.seen} == {("y", 0.7)}
        assert len(one.seen) == len(other.seen) == 6 * 16 * 2
    told = Negatives.read(folder / "rated.parquet").provenance["settings"]["language_models"]
    assert [(each["model"], each["temperature"], each["answer"]) for each in told] == [
        ("x", 0.1, "preference"), ("y", 0.7, "token"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("judge", "why"),
    [
        ("llm:m,base_ur=x", "Did you mean 'base_url'"),
        ("llm:m,temperature=hot", "expected a number"),
        ("llm:m,temperature=-1", "at least 0"),
        ("llm:m,price=1,2", "unknown key"),
        ("recorded:answers.parquet,temperature=1", "has no settings"),
        ("cross-encoder:m,answer=token", "temperature"),
    ],
)
def test_own_settings_that_a_judge_does_not_have_are_refused(folder, capsys, judge, why):
    assert rate(folder, "--judge", judge) == 2
    assert why in " ".join(capsys.readouterr().err.split())


def test_the_question_is_ones_own_and_several_models_are_an_ensemble(folder, tmp_path):
    (tmp_path / "own.txt").write_text("Passage A:\n{first}\n\nPassage B:\n{second}\n\n{query} {domain} {answer}")
    with serving(by_number) as server:
        options = ["--judge", "llm:one", "--judge", "llm:two", "--base-url", server.url, "--degree", "2"]
        more = ["--llm-args", f"question={tmp_path / 'own.txt'},domain=law"]
        assert rate(folder, *options, *more) == 0
        assert {asked["model"] for asked in server.seen} == {"one", "two"}
        assert " law Answer in JSON" in server.seen[0]["messages"][0]["content"]


def test_the_judges_of_an_ensemble_are_kept_apart_and_read_together(folder, tmp_path):
    def answer(number, asked):
        """Model two says A whatever is shown, and fails where w6 comes second."""
        content = asked["messages"][0]["content"]
        if asked["model"] == "two":
            return Reply("?" if re.search(r"Passage B:\n<\S+>\nw6", content) else json.dumps({"preference": 0.9}))
        return by_number(number, asked)

    kept = tmp_path / "kept"
    with serving(answer) as server:
        options = ["--base-url", server.url, "--judgements", str(kept)]
        assert rate(folder, "--judge", "llm:one", "--judge", "llm:two", *options) == 0
        rows = sorted(sum(pq.read_metadata(part).num_rows for part in each.iterdir() if part.suffix == ".parquet")
                      for each in kept.iterdir())  # fmt: skip
        assert rows == [6 * (24 - 6), 6 * 24], "six pairs of w6 in each query lack an order of the second model"
    together = gaps(folder)
    assert rate(folder, "--judge", f"recorded:{kept}") == 0
    np.testing.assert_allclose(gaps(folder), together, atol=1e-6)


def test_answers_are_distilled_and_the_judge_is_used(folder, tmp_path, capsys):
    (tmp_path / "base").mkdir()
    base, made = tiny_cross_encoder(tmp_path / "base", [*LEVELS.values(), "query"]), tmp_path / "judge"
    recorded = ["--judge", f"recorded:{folder / 'answers.parquet'}"]
    options = ["--distil-args", f"from={base},epochs=2,length=32", "--device", "cpu"]
    assert rate(folder, *recorded, "--distil", str(made), *options, "--json", str(folder / "r.json")) == 0
    facts = json.loads((folder / "r.json").read_text())["distilled"]
    assert facts["trained"] + facts["held_out"] == 6 * 24
    assert "prefers what its teachers do" in capsys.readouterr().out
    taught = gaps(folder)
    assert rate(folder, "--judge", f"pairwise:{made}", "--device", "cpu") == 0
    own = gaps(folder)
    assert np.isfinite(own).all()
    assert np.abs(own - taught).max() > 1
    other = tmp_path / "other"
    both = ["--distil-args", f"from={base},epochs=1,length=32,form=pairwise", "--device", "cpu"]
    assert rate(folder, *recorded, "--distil", str(other), *both) == 0
    assert rate(folder, "--judge", f"pairwise:{other}", "--device", "cpu") == 0
    reads = gaps(folder)
    assert rate(folder, "--judge", f"pairwise:{other}", "--device", "cpu", "--temperature", "3") == 0
    assert np.abs(gaps(folder) - reads).max() > 0.1
    assert rate(folder, *recorded, "--distil", str(made), *options) == 2
    assert "is there already" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--judge", "llm"), "the model's name"),
        (("--judge", "pairwise"), "needs its folder"),
        (("--judge", "pairwise:/nowhere"), "no pairwise judge"),
        (("--judge", "llm:m", "--llm-args", "answer=points"), "preference, token"),
        (("--judge", "llm:m", "--llm-args", "question=/nowhere.txt"), "nowhere.txt"),
        (("--judge", "llm:m", "--llm-args", "price=cheap"), "two numbers"),
    ],
)
def test_bad_input_is_said(folder, capsys, more, said):
    assert rate(folder, *more) == 2
    assert said in capsys.readouterr().err


def test_a_temperature_of_zero_is_refused_not_replaced(folder, tmp_path, capsys):
    (tmp_path / "base").mkdir()
    model = tiny_cross_encoder(tmp_path / "base", [*LEVELS.values(), "query"])
    assert rate(folder, "--judge", f"cross-encoder:{model}", "--temperature", "0") == 2
    assert "--temperature 0; expected above 0" in capsys.readouterr().err


def test_device_length_and_trust_reach_a_cross_encoder(folder, tmp_path, monkeypatch, capsys):
    from foils.encode import cross_encoders

    place = tiny_cross_encoder(tmp_path, [*LEVELS.values(), "query"])
    asked, load = {}, cross_encoders.load_cross_encoder

    def loading(name, **more):
        asked.update(more)
        return load(name, **more)

    monkeypatch.setattr("foils.rating.opening.load_cross_encoder", loading)
    options = ["--device", "cpu", "--max-length", "32", "--encoder-args", "trust_remote_code=true"]
    assert rate(folder, "--judge", f"cross-encoder:{place}", *options) == 0, capsys.readouterr().err
    assert asked == {"device": "cpu", "max_length": 32, "trust_remote_code": True}
