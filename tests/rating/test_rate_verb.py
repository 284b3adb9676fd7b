"""foils rate by a judge that knows, and by language models."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import foils
from foils.cli.app import run
from foils.data import Negatives
from foils.encode.vectors import AT_128
from foils.llm import LLMSettings
from foils.rating import QuestionSettings
from foils.rating.judges import HEEDED, JudgeSettings, Opening, open_judge
from foils.runtime.errors import FailureError, InputError
from judging import listed
from llm_server import Reply, serving
from tiny_models import tiny_cross_encoder

QUERIES, LEVELS = {f"q{i}": f"query {i}" for i in range(3)}, {f"d{i}": f"w{i}" for i in range(8)}


class LevelJudge:
    """σ of the difference of the numbers in the texts w0, w1, …"""

    name = fingerprint = "levels"
    antisymmetric = True

    def judge(self, candidates, pairs):
        texts = candidates.texts(pairs.first), candidates.texts(pairs.second)
        first, second = (np.array([int(text[1:]) for text in of_pairs]) for of_pairs in texts)
        return 1 / (1 + np.exp(second - first))


@pytest.fixture
def folder(tmp_path, monkeypatch, beir_folder):
    """Three queries, eight documents: d7 is the best for all and the labelled one; the others are negatives."""
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))
    documents, qrels = {key: ("", text) for key, text in LEVELS.items()}, {query: {"d7": 1} for query in QUERIES}
    made = beir_folder("small", documents=documents, queries=QUERIES, qrels={"train": qrels})
    listed([(query, f"d{i}") for query in QUERIES for i in range(7)]).write(made / "negatives.parquet")
    monkeypatch.setitem(HEEDED, "levels", frozenset())
    opened = lambda judge, *more: LevelJudge() if judge == "levels" else open_judge(judge, *more)  # noqa: E731
    monkeypatch.setattr("foils.rating.doors.open_judge", opened)
    return made


def rate(folder, *more):
    judge = () if "--judge" in more else ("--judge", "levels")
    given = [str(folder), str(folder / "negatives.parquet"), "-o", str(folder / "rated.parquet")]
    return run(["rate", *given, *judge, *more])


def gaps(folder, column="gap"):
    return Negatives.read(folder / "rated.parquet").kept()[column].to_numpy()


def test_it_writes_table_and_json_and_repeats_itself(folder, capsys):
    options = ("--rating-model", "bradley-terry", "--validate", "all")
    assert rate(folder, "--json", str(folder / "rated.json"), *options) == 0
    np.testing.assert_allclose(gaps(folder)[:7], 173.7 * np.arange(7, 0, -1), rtol=0.06)  # less by the prior
    np.testing.assert_allclose(gaps(folder, "preference")[6], 1 / (1 + np.exp(-1)))
    found = Negatives.read(folder / "rated.parquet").provenance
    assert (found["stage"], found["settings"]["model"]) == ("rate", "bradley-terry")
    report = json.loads((folder / "rated.json").read_text())
    # degree 6 on eight candidates, and the positive against the one that it leaves out
    assert (report["comparisons"], report["missing"]) == (3 * 25, 0)
    assert "comparisons" in capsys.readouterr().out
    once = (folder / "rated.parquet").read_bytes()
    assert rate(folder, *options) == 0
    assert (folder / "rated.parquet").read_bytes() == once


def test_options_reach_the_rating(folder):
    found = []
    for more in (
        "--degree 4",
        "--rating-model bradley-terry",
        "--seed 5 --degree 4",
    ):
        assert rate(folder, *more.split()) == 0
        found.append(gaps(folder, "elo_se"))
    assert all(np.abs(one - other).max() > 1 for at, one in enumerate(found) for other in found[:at])


def by_number(number, asked):
    content = asked["messages"][0]["content"]
    first, second = (int(one) for one in re.findall(r"Passage [AB]:\n<\S+>\nw(\d)", content))
    return Reply(json.dumps({"preference": 0.85 if first > second else 0.25}))


def test_costs_are_said_first_and_a_failure_of_every_question_last(folder, capsys):
    with serving(lambda number, asked: Reply("no idea")) as server:
        options = ["--judge", "llm", "--llm-model", "m", "--base-url", server.url, "--price", "1000,0"]
        rows = listed([("q0", "d0"), ("q0", "d1"), ("q0", "d2")])  # fewer questions than those after which a run stops
        rows.write(folder / "negatives.parquet")
        assert rate(folder, *options) == 1
        said = " ".join(capsys.readouterr().err.split())
        assert re.search(r"m at http://127\S+: 12 questions, about [\d,]+ prompt tokens .* cost: [\d,]+\.\d\d", said)
        assert 'no question was answered (an answer in which "preference" cannot be read)' in said
    assert not (folder / "rated.parquet").exists()


def test_a_language_model_rates(folder, capsys):
    with serving(by_number) as server:
        options = ["--judge", "llm", "--llm-model", "m", "--base-url", server.url, "--json", str(folder / "r.json")]
        assert rate(folder, *options, "--price", "1000,0") == 0
        found, asked = gaps(folder), len(server.seen)
        assert rate(folder, *options) == 0
        assert len(server.seen) == asked == 3 * 24 * 2, "answers are kept"
        np.testing.assert_array_equal(gaps(folder), found)
    assert (found > -1e-6).all()  # 0 where the two best are the pair that degree 6 leaves out
    shown = capsys.readouterr().out
    assert re.search(r"position bias +0.050", shown)
    assert re.search(r"m: requests +144", shown)
    assert re.search(r"m: cost +1.01", shown)
    told = Negatives.read(folder / "rated.parquet").provenance["settings"]["language_models"][0]
    assert (told["model"], told["prompt"], told["answer"]) == ("m", "pairwise-1", "preference")


def test_each_model_has_a_server_and_settings_of_its_own(folder, tmp_path, capsys):
    """Two servers, each with its own temperature and form of answer; the prompt and the field are shared."""
    (tmp_path / "own.txt").write_text("Passage A:\n{first}\n\nPassage B:\n{second}\n\n{query} {domain} {answer}")

    def chooses(number, asked):
        first = json.loads(by_number(number, asked).content)["preference"] > 0.5
        return Reply("A", tokens={"A" if first else "B": -0.01})

    with serving(by_number) as one, serving(chooses) as other:
        judges = [f"llm:x,base_url={one.url}", f"llm:y,base_url={other.url},temperature=0.7,answer=token"]
        shared = ["--llm-temperature", "0.1", "--domain", "law", "--question", str(tmp_path / "own.txt")]
        options = [*shared, "--degree", "4"]
        assert rate(folder, *(part for each in judges for part in ("--judge", each)), *options) == 0
        assert {(each["model"], each["temperature"]) for each in one.seen} == {("x", 0.1)}
        assert {(each["model"], each["temperature"]) for each in other.seen} == {("y", 0.7)}
        assert len(one.seen) == len(other.seen) == 3 * 16 * 2
        shown = capsys.readouterr().err
        for name in ("x", "y"):
            assert re.search(
                f"judge {name}: better than chance: .*; labelled positives win 1.00, orders agree 1", shown
            )
        assert " law Answer in JSON" in one.seen[0]["messages"][0]["content"]
    told = Negatives.read(folder / "rated.parquet").provenance["settings"]["language_models"]
    assert [(each["model"], each["answer"]) for each in told] == [("x", "preference"), ("y", "token")]


def test_device_length_and_trust_reach_a_cross_encoder(folder, tmp_path, monkeypatch, capsys):
    from foils.encode.models import load_cross_encoder as load

    place = tiny_cross_encoder(tmp_path, [*LEVELS.values(), "query"])
    asked = {}
    monkeypatch.setattr(
        "foils.encode.vectors.load_cross_encoder", lambda name, **more: asked.update(more) or load(name)
    )
    options = ["--device", "cpu", "--max-length", "32", "--trust-remote-code"]
    assert rate(folder, "--judge", f"cross-encoder:{place}", *options) == 0, capsys.readouterr().err
    assert asked == {"device": "cpu", "max_length": 32, "trust_remote_code": True}


@pytest.mark.parametrize(
    "judge", ["all-MiniLM-L6-v2", "bi-encoder:all-MiniLM-L6-v2", "bi-encoder", "all-MiniLM-L6-v2,temperature=0.1"]
)
def test_a_device_reaches_a_bi_encoder_however_it_is_named(folder, monkeypatch, judge):
    devices = []

    def no_model(settings, collection):
        devices.append(settings.device)
        raise InputError("that is enough")

    monkeypatch.setattr("foils.encode.vectors.EncodingSettings.open", no_model)
    assert rate(folder, "--judge", judge, "--device", "cpu") == 2
    between = ["--between", "2", "--between-judge", judge, "--device", "cpu"]
    assert rate(folder, *between) == 2
    assert devices == ["cpu", "cpu"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("--degree 3", "even degree"),
        ("--split dev", "split"),
        ("--temperature 1", "--temperature 1.0: no effect with"),
        ("--judge cross-encoder", "cross-encoder needs its model"),
        ("--judge cross-encoder:/nowhere", "no such folder"),
        ("--judge llm", "no model; name one"),
        ("--judge llm:m --question /nowhere.txt", "nowhere.txt"),
        ("--judge llm:m,base_ur=x", "Did you mean 'base_url'"),
        ("--judge llm:m,temperature=-1", "at least 0"),
        ("--judge llm:m,price=1", "two numbers"),
        ("--judge llm:m --max-cost 3", "--max-cost 3.0 without a price of m"),
    ],
)
def test_bad_input_is_said(folder, capsys, more, said):
    assert rate(folder, *more.split()) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not (folder / "rated.parquet").exists()


def priced(number, asked):
    """By number, for 1,000 prompt tokens: .01 at a price of 10 for a million."""
    pairwise = re.search(r"Passage [AB]:\n<\S+>\nw\d", asked["messages"][0]["content"])
    reply = json.loads((by_number(number, asked) if pairwise else Reply('{"preference": 0.6}')).bytes())
    return Reply(body=json.dumps({**reply, "usage": {"prompt_tokens": 1000, "completion_tokens": 0}}).encode())


def spent(folder):
    found = json.loads((folder / "r.json").read_text())["language_models"]
    return {name: each["cost"] for name, each in found.items()}


def test_the_bound_is_on_what_a_run_cost_in_all_with_answers_of_earlier_runs(folder, capsys):
    with serving(priced) as server:
        options = ["--judge", "llm:m", "--base-url", server.url, "--price", "10,0", "--concurrency", "1"]
        assert rate(folder, *options, "--degree", "2", "--json", str(folder / "r.json")) == 0
        before = len(server.seen)
        assert spent(folder)["m"] == pytest.approx(before / 100) == pytest.approx(0.48)
        assert rate(folder, *options, "--max-cost", ".6") == 1
        stopped = len(server.seen)
        assert 61 <= stopped <= 65, "nearly all pairs of degree 2 are among those of degree 6"
        assert "have cost 0.61, more than --max-cost 0.6" in " ".join(capsys.readouterr().err.split())
        assert rate(folder, *options, "--max-cost", ".3") == 1
        assert len(server.seen) == stopped, "nothing is asked where the kept answers cost more"
        assert rate(folder, *options, "--max-cost", "9", "--json", str(folder / "r.json")) == 0
        assert spent(folder)["m"] == pytest.approx(1.44), "72 pairs in both orders"


def test_the_bound_is_on_all_judges_together_those_between_queries_too(folder, capsys):
    with serving(priced) as server:
        vendors = [f"llm:{name},base_url={server.url},price=10/0" for name in ("a", "b")]
        judges = [part for each in vendors for part in ("--judge", each)]
        between = ["--between", "2", "--between-judge", f"llm:c,base_url={server.url},price=10/0"]
        options = [*judges, *between, "--degree", "2", "--concurrency", "1"]
        assert rate(folder, *options, "--max-cost", "0.5") == 1
        assert len(server.seen) == 51
        assert rate(folder, *options, "--max-cost", "0.97") == 1
        assert len(server.seen) == 98, "two judges of 48 questions, then two between queries"
        capsys.readouterr()
        assert rate(folder, *options, "--json", str(folder / "r.json")) == 0
        shown = " ".join(capsys.readouterr().err.split())
        assert "c at " in shown
        assert "4 questions" in shown, "three queries meet three others, in both orders; two answers are there"
        assert spent(folder) == pytest.approx({"a": 0.48, "b": 0.48, "c": 0.06})


def test_the_bound_is_on_all_judges_together(folder):
    with serving(priced) as server:
        llm = {"llm_model": "m", "base_url": server.url, "price": (10.0, 0.0), "max_cost": 0.6, "concurrency": 1}
        judges = ["llm", "llm,temperature=0.5", "llm,temperature=0.7"]
        with pytest.raises(FailureError, match=r"more than max_cost 0\.6"):
            foils.rate(folder, folder / "negatives.parquet", judge=judges, **llm, degree=2)
        assert len(server.seen) == 61


def test_judges_of_one_model_with_other_settings_are_announced_and_counted_each(folder, capsys):
    with serving(priced) as server:
        judges = ["--judge", "llm:m", "--judge", "llm:m,temperature=0.5", "--base-url", server.url]
        assert rate(folder, *judges, "--degree", "2", "--price", "10,0", "--json", str(folder / "r.json")) == 0
        shown = " ".join(capsys.readouterr().err.split())
        assert "together: 96 questions" in shown
        assert len(server.seen) == 96
        assert spent(folder) == pytest.approx({"m": 0.48, "m (2)": 0.48})


@pytest.mark.parametrize("named", [(True, True), (False, True), (True, False), (False, False)])
def test_a_key_goes_to_its_own_server_only(folder, monkeypatch, caplog, named):
    """Without a variable of its own the first server gets the run's key, and no other does."""
    for name in ("OPENAI_API_KEY", "KEY_ONE", "KEY_TWO"):
        monkeypatch.setenv(name, f"secret of {name}".replace(" ", "-"))
    with serving(priced) as one, serving(priced) as two:
        servers = {"ONE": one, "TWO": two}
        judges = []
        for (name, server), own in zip(servers.items(), named, strict=True):
            more = f",key_variable=KEY_{name}" if own else ""
            judges += ["--judge", f"llm:{name},base_url={server.url}{more}"]
        assert rate(folder, *judges, "--degree", "2") == 0
        keys = [{key.removeprefix("Bearer ") for key in server.keys} for server in servers.values()]
    first = "secret-of-KEY_ONE" if named[0] else "secret-of-OPENAI_API_KEY"
    second = "secret-of-KEY_TWO" if named[1] else "secret-of-OPENAI_API_KEY" if named[0] else "none"
    assert keys == [{first}, {second}]
    assert ("gets no key" in caplog.text) == (named == (False, False))


def test_no_message_shows_a_password_that_stands_in_an_address(monkeypatch, caplog):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    opening = Opening(JudgeSettings(), AT_128, LLMSettings(base_url="http://a/v1"), QuestionSettings())
    opening.with_own({"base_url": "http://user:password@b:8000/v1"})
    assert "b:8000 gets no key" in caplog.text
    assert "password" not in caplog.text
