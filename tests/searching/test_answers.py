"""Answers of a language model: asked for once, kept, said where missing, and a sun of their own."""

import numpy as np
import pytest

from fakes import HashingEncoder
from foils.data import Collection
from foils.encode import Vectors, VectorStore
from foils.llm import Client, Sampling, Template
from foils.runtime.errors import FailureError, InputError
from foils.searching import (
    DimensionSettings,
    ExactIndex,
    Grid,
    Judged,
    embed_collection,
    evaluate_grid,
    search_vectors,
    sharpened_queries,
)
from foils.searching.answers import answer_prompt, ask_answers
from foils.searching.choosing import Relevant
from llm_server import Reply, serving

QUERIES = {"a": "what is tack", "b": "what is a keel", "c": "what is yeast"}


def echo(number, asked):
    return Reply(f"  about {asked['messages'][0]['content'].split('Query: ')[1].splitlines()[0]}\n")


@pytest.fixture
def ask():
    """Answers of one server, which change from call to call."""
    with serving(echo) as server:

        def answers(answer, folder, queries=QUERIES, prompt=None, sampling=None, **settings):
            server.answer, server.seen = answer, []
            client = Client("m", server.url, concurrency=1, pause=0.01, **{"retries": 0, "timeout": 60.0, **settings})
            return ask_answers(queries, client, folder, prompt=prompt, sampling=sampling), server

        yield answers


def test_every_query_is_answered_once_and_kept(ask, tmp_path):
    found, server = ask(echo, tmp_path)
    assert found.texts == {query: f"about {text}" for query, text in QUERIES.items()}
    assert (found.failed, found.usage.requests, found.usage.completion_tokens) == ({}, 3, 9)
    assert "response_format" not in server.seen[0], "free text"
    again, server = ask(echo, tmp_path, {"c": QUERIES["c"], "d": "what is a bee"})
    assert again.texts == {"c": "about what is yeast", "d": "about what is a bee"}
    assert len(server.seen) == 1


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Reply(status=500, body=b"oops"), "status 500"),
        (Reply(status=422, body=b"{}"), "status 422"),
        (Reply(hang_up=True), "no connection"),
        (Reply(stall=4.0, content="late"), "no whole answer in 1.5 s"),
        (Reply(None, refusal="I cannot"), "the model refused"),
        (Reply(""), "an empty answer (finish reason stop)"),
        (Reply(" \n "), "a blank answer"),
        (Reply(body=b"<html>not JSON</html>"), "an answer that is no completion (JSONDecodeError)"),
        (Reply(body=b'{"choices": []}'), "an answer without choices"),
    ],
)
def test_a_failure_is_missing_and_said_and_asked_for_again(ask, tmp_path, bad, reason):
    found, _ = ask(
        lambda number, asked: bad if "keel" in str(asked["messages"]) else echo(number, asked),
        tmp_path,
        timeout=1.5 if bad.stall else 60.0,
    )
    assert found.texts == {"a": "about what is tack", "b": None, "c": "about what is yeast"}
    assert found.failed == {reason: 1}
    again, server = ask(echo, tmp_path)
    assert again.texts["b"] == "about what is a keel"
    assert (again.failed, len(server.seen)) == ({}, 1)


def test_each_server_answers_for_itself_and_its_thoughts_are_left_out(tmp_path):
    said = ["<think>hm</think> a rope", "so, hm</think> a beam"]
    with serving(lambda *_: Reply(said[0])) as one, serving(lambda *_: Reply(said[1])) as two:
        found = [ask_answers({"a": "what"}, Client("m", server.url), tmp_path).texts["a"] for server in (one, two)]
    assert found == ["a rope", "a beam"]


def test_a_server_that_always_fails_ends_the_run(ask, tmp_path):
    with pytest.raises(FailureError, match="2 records in a row"):
        ask(lambda *_: Reply(status=500, body=b""), tmp_path, patience=2)
    with pytest.raises(InputError, match="refuses the key"):
        ask(lambda *_: Reply(status=401, body=b"{}"), tmp_path)


@pytest.mark.parametrize(
    "other",
    [
        {"sampling": Sampling(temperature=0.5, max_tokens=256)},
        {"sampling": Sampling(max_tokens=7)},
        {"sampling": Sampling(max_tokens=256, seed=3)},
        {"prompt": Template("Say. Query: {query}", "say", ("query",))},
    ],
)
def test_every_setting_is_sent_and_asks_anew(ask, tmp_path, other):
    ask(echo, tmp_path)
    _, server = ask(echo, tmp_path, **other)
    sent, sampling = server.seen[0], other.get("sampling", Sampling(max_tokens=256))
    assert len(server.seen) == 3
    assert (sent["temperature"], sent["max_tokens"]) == (sampling.temperature, sampling.max_tokens)
    assert sent["seed"] == sampling.seed
    prompt = other.get("prompt", answer_prompt())
    assert sent["messages"][0]["content"] == prompt.filled(query="what is tack")
    _, server = ask(echo, tmp_path)
    assert not server.seen, "the first answers are kept still"


def test_prompts_have_one_slot(tmp_path):
    own = tmp_path / "own.txt"
    for wrong in ("Answer {query} in {language}", "no slot"):
        own.write_text(wrong)
        with pytest.raises(InputError, match=r"own\.txt: the template"):
            answer_prompt(own)
    own.write_text("Answer {query}, {query}!")
    assert answer_prompt(own).filled(query="{x} \\1") == "Answer {x} \\1, {x} \\1!"
    assert answer_prompt(own).version == "own"
    assert answer_prompt().filled(query="why").count("why") == 1


def unit(n, d=12, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_a_query_without_an_answer_keeps_every_dimension():
    documents, queries, answers = Vectors.of(unit(80)), unit(4, seed=1), unit(4, seed=2)
    silent = answers.copy()
    silent[2] = np.nan
    for method in ("dime", "eclipse", "rdime", "rocchio"):
        settings = DimensionSettings(method, k_plus=2, k_minus=3, share=0.5)
        found, full, base = (
            search_vectors(queries, documents, ExactIndex(documents), chosen, k=30, answers=given)
            for chosen, given in ((settings, silent), (settings, answers), (DimensionSettings("none"), None))
        )
        assert found.sharpened.no_feedback.tolist() == [False, False, True, False]
        assert found.sharpened.changed.tolist() == [True, True, False, True]
        assert found.scores[2].tobytes() == base.scores[2].tobytes()
        for row in (0, 1, 3):
            assert found.scores[row].tobytes() == full.scores[row].tobytes()
    lists = list(ExactIndex(documents).search(queries, 30)[0])
    relevant = [Relevant(rows[[4, 9]], np.array([1, 1])) for rows in lists]
    grid = Grid("eclipse", ((2, 3),), shares=(0.3, 1.0))
    values = evaluate_grid(Judged(queries, documents, lists, relevant, silent), grid, answered=True)
    assert values.values["AP"][2, 0] == values.values["AP"][2, 1]
    whole = evaluate_grid(Judged(queries, documents, lists, relevant, answers), grid, answered=True)
    np.testing.assert_array_equal(values.values["AP"][[0, 1, 3]], whole.values["AP"][[0, 1, 3]])
    made = sharpened_queries(queries, documents, lists, DimensionSettings("dime", share=0.3), answers=silent)
    assert made.masks[2].all()


def test_only_the_answers_that_there_are_are_embedded(small: Collection, tmp_path):
    encoder = HashingEncoder()
    found = embed_collection(
        small, encoder, VectorStore(tmp_path), split="test", answers={"q4": None, "q5": "eggs of bees"}
    )
    assert np.isnan(found.answers[0]).all()
    np.testing.assert_array_equal(found.answers[1], HashingEncoder().encode(["eggs of bees"], "document")[0])
    assert ["eggs of bees"] in encoder.calls
    nobody = embed_collection(small, encoder, VectorStore(tmp_path), split="test", answers={"q4": None, "q5": None})
    assert np.isnan(nobody.answers).all()
    with pytest.raises(InputError, match="q5"):
        embed_collection(small, encoder, VectorStore(tmp_path), split="test", answers={"q4": None})
