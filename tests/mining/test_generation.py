"""Negatives from a language model: against a server on loopback that misbehaves in every way."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import foils
from foils.data.negatives import Negatives
from foils.llm import Usage
from foils.mining.generation import (
    PROMPTS,
    Record,
    WritingSettings,
    parse,
    validated,
)  # fmt: skip
from foils.runtime.errors import FailureError, FormatError
from llm_server import Reply, hurried, serving
from refusals import refused


def good(number: int, asked: dict) -> Reply:
    """Three passages that differ from prompt to prompt, the same for the same prompt."""
    tag = sum(map(ord, asked["messages"][0]["content"])) % 1000
    return Reply(json.dumps({"negatives": [f"passage {at} about {tag}" for at in range(3)]}))


@pytest.fixture
def asked(small, monkeypatch):
    """Mining by one server, whose answers change from call to call; `patience` is that with the server."""
    with serving(good) as server:

        def mined(answer, place, *, patience=None, **settings):
            server.answer, server.seen, server.keys = answer, [], []
            monkeypatch.setenv("FOILS_CACHE", str(place))
            model = {"llm_model": "m", "base_url": server.url}
            with hurried(**(patience or {})):
                return foils.generate(small, **{"top": 3, **model, **settings}), server

        yield mined


def test_rows_are_texts_of_their_own(small, asked, tmp_path):
    found, server = asked(good, tmp_path)
    assert (found.queries, found.answered, dict(found.usage.failures), found.short) == (3, 3, {}, 0)
    assert found.usage == Usage(3, 21, 9)
    rows = found.table.to_pylist()
    assert [row["query_id"] for row in rows] == ["q1"] * 3 + ["q2"] * 3 + ["q3"] * 3
    assert [row["rank"] for row in rows] == [0, 1, 2] * 3
    assert {row["source"] for row in rows} == {"llm"}
    assert all(row["doc_id"].startswith("llm:") and row["text"] for row in rows)
    assert (found.rows_in(small)[1] == -1).all()
    assert server.seen[0]["response_format"]["json_schema"]["schema"]["required"] == ["negatives"]
    found.write(tmp_path / "llm.parquet")
    read = Negatives.read(tmp_path / "llm.parquet").table
    assert read.drop_columns("score").equals(found.table.drop_columns("score"))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Reply(status=500, body=b"oops"), "status 500"),
        (Reply(None, refusal="I cannot"), "the model refused"),
        (Reply(""), "an empty answer"),
        (Reply(json.dumps({"negatives": ["a b", "c d", "e f"]}), finish="length"), "cut off"),
        (Reply('<think>["a b", "c d", "e f"]'), "thoughts without an end"),
        (Reply("I would rather not."), "no list of texts"),
        (Reply(json.dumps({"negatives": ["", "  ", "how does a boat tack?"]})), "no usable negative"),
    ],
)
def test_a_failure_is_recorded_as_one_and_asked_for_again(asked, tmp_path, bad, reason):
    settings = {"patience": {"retries": 1}, "concurrency": 1, "limit": 1}
    found, _ = asked(lambda *_: bad, tmp_path, **settings)
    assert (found.answered, len(found)) == (0, 0)
    ((said, count),) = found.usage.failures.items()
    assert reason in said
    assert count == 1
    again, server = asked(good, tmp_path, **settings)
    assert (again.answered, dict(again.usage.failures), len(server.seen)) == (1, {}, 1)


def test_missing_negatives_are_asked_for_again_and_named(small, asked, tmp_path):
    replies = [
        ["one passage", "One  passage!", small.document_texts([0])[0]],
        ["how does a boat tack", "second passage"],
        ["third passage", "fourth passage"],
    ]
    found, server = asked(
        lambda number, _: Reply(json.dumps({"negatives": replies[number]})),
        tmp_path,
        concurrency=1,
        limit=1,
    )
    assert found.table["text"].to_pylist() == ["one passage", "second passage", "third passage"]
    assert found.turned_away == {
        "repeats another": 1, "equals a positive": 1, "equals the query": 1, "more than asked for": 1
    }  # fmt: skip
    prompts = [request["messages"][0]["content"] for request in server.seen]
    assert "Write 3 other" in prompts[0]
    assert "Write 2 other" in prompts[1]
    assert "- one passage" in prompts[1]
    assert [request["seed"] for request in server.seen] == [0, 1, 2]
    schemas = [request["response_format"]["json_schema"]["schema"] for request in server.seen]
    assert [each["properties"]["negatives"]["minItems"] for each in schemas] == [3, 2, 1]


def test_a_short_record_is_told_and_kept(asked, tmp_path):
    for times in (3, 0):
        found, server = asked(lambda *_: Reply(json.dumps({"negatives": ["the only one"]})), tmp_path, limit=1)
        assert (found.queries, found.answered, found.short, len(server.seen)) == (1, 1, 1, times)


def test_every_positive_of_the_query_counts(small, asked, tmp_path):
    second = small.document_texts([2])[0]  # q1's other positive
    answer = lambda *_: Reply(json.dumps({"negatives": [second, "x y", second + " indeed"]}))  # noqa: E731
    found, _ = asked(answer, tmp_path, limit=1)
    assert found.turned_away == {"equals a positive": 3, "repeats another": 4}
    assert found.rejected() == {"near-duplicate of a positive": 1}


def test_the_order_is_the_splits(asked, tmp_path):
    def answer(number, request):
        reply = good(number, request)
        reply.stall = 0.3 if number == 0 else 0.05
        return reply

    one, _ = asked(answer, tmp_path / "a", concurrency=3)
    two, _ = asked(good, tmp_path / "b", concurrency=1)
    assert one.table.drop_columns("score").equals(two.table.drop_columns("score"))


@pytest.mark.parametrize("killed", [0, 2])
def test_a_stopped_run_asks_for_what_is_missing_and_ends_with_the_same_bytes(asked, tmp_path, killed):
    def answer(number, request):
        return Reply(hang_up=True) if number >= killed else good(number, request)

    settings = {"patience": {"retries": 0, "patience": 1}, "concurrency": 1}
    whole, _ = asked(good, tmp_path / "w", **settings)
    whole.write(tmp_path / "a.parquet")
    with pytest.raises(FailureError, match="1 records in a row"):
        asked(answer, tmp_path / "b", **settings)
    found, server = asked(good, tmp_path / "b", **settings)
    assert len(server.seen) == 3 - killed
    found.write(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_other_settings_are_other_records_and_reach_the_server(asked, tmp_path):
    asked(good, tmp_path)
    sampling = {"llm_temperature": 0.25, "seed": 11, "max_tokens": 99}
    for other in (sampling, {"domain": "sailing"}, {"top": 2}):
        _, server = asked(good, tmp_path, **other)
        assert len(server.seen) >= 3
        if "seed" in other:
            first = server.seen[0]
            assert [first[name] for name in ("temperature", "seed", "max_tokens")] == [0.25, 11, 99]


def test_each_server_answers_for_itself(small, tmp_path, monkeypatch):
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path))
    says = [lambda *_, at=at: Reply(json.dumps({"negatives": [f"a passage by server {at}"]})) for at in range(2)]
    with serving(says[0]) as one, serving(says[1]) as two:
        for server in (one, two):
            # a port of one host is no other server
            away = server.url.replace("127.0.0.1", "localhost") if server is two else server.url
            mined = foils.generate(small, llm_model="m", base_url=away, top=1, limit=1)
            assert mined.table["text"].to_pylist() == [f"a passage by server {int(server is two)}"]
        assert ["response_format" in request for request in (*one.seen, *two.seen)] == [True, True]


@pytest.mark.parametrize("name", PROMPTS)
def test_prompts_of_the_papers(small, asked, tmp_path, name):
    """ECI draws domain, difficulty and length for each query; ECI_sem's prompt asks for keys of their own."""
    keyed = PROMPTS[name].keyed

    def answer(number, request):
        texts = [f"passage {at} about {number}" for at in range(3)]
        keys = {f"hard_negative_document_{at}": text for at, text in enumerate(texts, 1)}
        return Reply(json.dumps({"reasoning": "because", **keys} if keyed else {"negatives": texts}))

    found, server = asked(answer, tmp_path, prompt=name)
    assert (found.answered, len(found)) == (3, 9)
    prompts = [request["messages"][0]["content"] for request in server.seen]
    required = server.seen[0]["response_format"]["json_schema"]["schema"]["required"]
    assert ("hard_negative_document_3" in required, '"hard_negative_document_3"' in prompts[0]) == (keyed, keyed)
    drawn = {tuple(WritingSettings(prompt=name).drawn(np.random.default_rng(seed)).values()) for seed in range(30)}
    assert (len(drawn) > 9) == (name == "eci")
    for slot in (0, 1, 2) if name == "eci" else ():
        assert len({each[slot] for each in drawn}) >= 3


def asked_for(writing: WritingSettings, query: str, positive: str, number: int, taken=()) -> str:
    return writing.asked(query, positive, number, writing.drawn(np.random.default_rng(0)), taken)


A = ["one passage", 'two "quoted", with [brackets]']


@pytest.mark.parametrize(
    "said",
    [
        json.dumps({"negatives": A}),
        json.dumps(A),
        f"Here you are:\n```json\n{json.dumps({'negatives': A}, indent=1)}\n```\nGood luck!",
        f'<think>maybe ["x"] or {{}}</think>{json.dumps({"negatives": A})}',
        f"I made {{two}} of them: {json.dumps(A)}",
        json.dumps({f"hard_negative_document_{at}": text for at, text in enumerate(A, 1)}),
        json.dumps({"reasoning": "first", **{f"hard_negative_document_{at}": text for at, text in enumerate(A, 1)}}),
        json.dumps({"reasoning": ["first", "second"], "hard_negatives": A}),
        json.dumps([{"reasoning": "first", "hard_negative": text} for text in A]),
        f"Not {json.dumps(['x'])} but {json.dumps({'negatives': A})}",
        f"1. {A[0]}\n2) {A[1]}",
        f"Sure:\n- {A[0]}\n* {A[1]}\nDone.",
        f'<think>["x"] <think> ["y"]</think>{json.dumps(A)}<think>["z"]</think>',
    ],
)
def test_answers_however_wrapped(said):
    assert parse(said) == A


@pytest.mark.parametrize(
    "said",
    [
        "I cannot do that.",
        '{"negatives": []}',
        "[1, 2]",
        "[[[",
        '{"reasoning": ["x", "y"], "hard_negatives": []}',
        '["x"]</think>',
        '<think>["x"]',
        '{"number_of_negatives": 3, "negative_reasoning": ["x"]}',
        '{"negative": ' + "[" * 300 + "]" * 300 + "}",
    ],
)
def test_answers_without_a_list(said):
    assert parse(said) == []


@example(["<think>"])
@example(["an answer</think>", "of <think> two"])
@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip() == text), min_size=1, max_size=5))
def test_the_json_asked_for_is_read_exactly(texts):
    assert parse(json.dumps({"negatives": texts})) == texts


@given(st.text())
def test_no_answer_breaks_the_parser(said):
    assert all(isinstance(text, str) for text in parse(said))


def record(query: str, *positives: str) -> Record:
    return Record("key", "q", query, positives, {})


def test_what_is_turned_away():
    texts = ["fine", "FINE.", "", "?!", "the query!", "positive one", "\ud800 x", "taken", "also fine"]
    kept, away = validated([*texts, "more"], record("the query", "positive, one"), taken=["Taken"], number=2)
    assert kept == ["fine", "also fine"]
    assert away == {
        "repeats another": 2, "empty, or not valid text": 3, "equals the query": 1, "equals a positive": 1,
        "more than asked for": 1,
    }  # fmt: skip


def test_pieces_of_the_positive_and_of_the_prompt_are_turned_away():
    given = record("of a query", "A long positive, with seven words indeed", "Another")
    prompt = asked_for(WritingSettings(), "of a query", "", 3)
    texts = ["LONG positive: with", "ong positive", "read like a passage", "passage", "with seven", "A query", "query"]
    kept, away = validated(texts, given, taken=[], number=9, prompt=prompt)
    assert kept == ["ong positive", "passage", "query"], "neither part of a word nor a single word of the prompt"
    assert away == {"is a part of a positive": 2, "repeats the prompt": 2}


def test_texts_much_shorter_than_every_positive_are_turned_away():
    kept, away = validated(["x", "x y", "x y z"], record("q", "w " * 30, "v " * 21), taken=[], number=9)
    assert (kept, away) == (["x y z"], {"much shorter than a positive": 2})


def test_slots_fill_and_braces_in_texts_stay():
    writing = WritingSettings(domain="law")
    prompt = asked_for(writing, "what is {x}?", "It is {positive} {y}.", 4)
    for part in ("Field: law", "be hard to tell", "what is {x}?", "It is {positive} {y}.", "Write 4 "):
        assert part in prompt
    assert asked_for(writing, "q", "p", 2, ["had"]).endswith("- had\n")
    assert writing.describe()["prompt_digest"] != WritingSettings().describe()["prompt_digest"]


def test_templates_of_ones_own(tmp_path):
    path = tmp_path / "mine-2.txt"
    path.write_text("{number} for {query} unlike {positive}")
    writing = WritingSettings(prompt=path, domain="x")
    assert writing.describe()["prompt"] == "mine-2"
    assert re.fullmatch(r"3 for <query-(\w+)>\nQ\n</query-\1> unlike <positive-\1>\nP\n</positive-\1>",
                        asked_for(writing, "Q", "P", 3))  # fmt: skip
    for text, reason in (
        ("only {number}", r"lacks \{query\}, \{positive\}"),
        ("{number} {query} {positive} {topic}", "unknown slots topic"),
    ):
        path.write_text(text)
        refused(reason, asked_for, WritingSettings(prompt=path), "Q", "P", 3)
    path.write_bytes(b"{query}\n\xff")
    refused(r"mine-2\.txt:2: not UTF-8", WritingSettings(prompt=path).describe, error=FormatError)


LONG = {
    "lists": "[1," * 50_000, "objects": '{"a":' * 30_000, "thoughts": "<think>" * 30_000,
    "quotes": '{"negatives": ["' + '\\"' * 50_000, "blanks": '{"negatives": ["a"' + " " * 100_000,
}  # fmt: skip


@pytest.mark.parametrize("answer", LONG.values(), ids=list(LONG))
def test_an_answer_that_repeats_itself_is_read_in_time_of_its_length(answer: str) -> None:
    assert parse(answer) in ([], ["a"])  # scanning each bracket or quote to the end would take minutes
