"""The prompt, the parser of answers, and what validation turns away."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.mining.generation_answers import parse, validated
from foils.mining.generation_prompt import WritingSettings, schema
from foils.runtime.errors import FormatError, InputError

A = ["one passage", 'two "quoted", with [brackets]']


@pytest.mark.parametrize(
    "said",
    [
        json.dumps({"negatives": A}),
        json.dumps(A),
        json.dumps({"passages": A}),
        json.dumps([{"text": text} for text in A]),
        json.dumps({"negatives": [{"passage": text, "why": "hm"} for text in A]}),
        f"Here you are:\n```json\n{json.dumps({'negatives': A}, indent=1)}\n```\nGood luck!",
        f'<think>maybe ["x"] or {{}}</think>{json.dumps({"negatives": A})}',
        f"I made {{two}} of them: {json.dumps(A)}",
        json.dumps({"negatives": [*A, "a third one that is cut off"]})[:-14],
        json.dumps([*A, "cut"])[:-3],
        f'so, ["x"] or {{}}</think>\n\n{json.dumps({"negatives": A})}',
        json.dumps({f"hard_negative_document_{at}": text for at, text in enumerate(A, 1)}),
        json.dumps({"reasoning": "first", **{f"hard_negative_document_{at}": text for at, text in enumerate(A, 1)}}),
        json.dumps({"reasoning": ["first", "second"], "hard_negatives": A}),
        json.dumps({"thoughts": {"negatives": ["x"]}, "result": {"hard_negatives": A}}),
        json.dumps({"reasoning": ["first", "second"], "passages": A}),
        json.dumps([{"reasoning": "first", "hard_negative": text} for text in A]),
        json.dumps({"hard_negatives": [{"reasoning": "first", "title": "a", "negative": text} for text in A]}),
        f"Not {json.dumps(['x'])} but {json.dumps({'negatives': A})}",
        json.dumps({"reasoning": ["first"], "hard_negatives": [*A, "a third one that is cut off"]})[:-14],
        json.dumps({**{f"hard_negative_document_{at}": text for at, text in enumerate(A, 1)}, "cut": "off"})[:-4],
        f"1. {A[0]}\n2) {A[1]}",
        f"Sure:\n- {A[0]}\n* {A[1]}\nDone.",
    ],
)
def test_answers_however_wrapped(said):
    assert parse(said) == A


@pytest.mark.parametrize(
    "said",
    [
        "",
        "I cannot do that.",
        "{}",
        '{"negatives": []}',
        '{"negatives": "x"}',
        "[1, 2]",
        "[[[",
        '{"reasoning": ["x", "y"], "hard_negatives": []}',
        '{"reasoning": ["x", "y"], "hard_neg',
        '["x"]</think>',
        '{"number_of_negatives": 3, "negative_reasoning": ["x"]}',
        '{"negative": ' + "[" * 300 + "]" * 300 + "}",
    ],
)
def test_answers_without_a_list(said):
    assert parse(said) == []


@given(st.lists(st.text(min_size=1).filter(lambda text: text.strip() == text), min_size=1, max_size=5))
def test_the_json_asked_for_is_read_exactly(texts):
    assert parse(json.dumps({"negatives": texts})) == texts


@given(st.text())
def test_no_answer_breaks_the_parser(said):
    assert all(isinstance(text, str) for text in parse(said))


def test_a_cut_answer_loses_only_what_is_cut():
    whole = json.dumps({"negatives": [f"passage {at}" for at in range(5)]})
    for end in range(len(whole)):
        found = parse(whole[:end])
        assert found == [f"passage {at}" for at in range(len(found))]
        assert len(found) >= whole[:end].count('",')


def test_what_is_turned_away():
    texts = ["fine", "FINE.", "", "?!", "the query!", "positive one", "есть другой", "\ud800 x", "taken", "also fine"]
    kept, away = validated(
        [*texts, "more"],
        query="the query", positives=["positive, one"], taken=["Taken"], number=2,
    )  # fmt: skip
    assert kept == ["fine", "also fine"]
    assert away == {
        "repeats another": 2, "empty, or not valid text": 3, "equals the query": 1, "equals a positive": 1,
        "in another script": 1, "more than asked for": 1,
    }  # fmt: skip


def test_pieces_of_the_positive_and_of_the_prompt_are_turned_away():
    given = {"query": "of a query", "positives": ["A long positive, with seven words indeed", "Another"], "taken": []}
    prompt = WritingSettings(example="Say: a worked example").prompt("", "", 3)
    texts = ["LONG positive: with", "ong positive", "A worked example", "read like a passage", "passage", "with seven"]
    texts += ["A query", "query"]
    kept, away = validated(texts, **given, number=9, prompt=prompt)
    assert kept == ["ong positive", "passage", "query"], "neither part of a word nor a single word of prompt or query"
    assert away == {"is a part of a positive": 2, "repeats the prompt": 2, "is a part of the query": 1}
    unsaid = validated(texts, **given, number=9)[0]
    assert unsaid == ["ong positive", "A worked example", "read like a passage", "passage", "query"]


def test_texts_much_shorter_than_every_positive_are_turned_away():
    given = {"query": "q", "positives": ["one two three four five six", "a b c d"], "taken": [], "number": 9}
    texts = ["x", "x y", "x y z"]
    for shortest, kept in ((0.0, texts), (0.25, texts), (0.26, texts[1:]), (0.75, texts[2:]), (1.0, [])):
        found, away = validated(texts, **given, shortest=shortest)
        assert found == kept
        assert away.get("much shorter than a positive", 0) == 3 - len(kept)
    for bad in (-0.1, 1.1):
        with pytest.raises(InputError, match="shortest"):
            WritingSettings(shortest=bad)


def test_the_schema_asks_for_the_number():
    assert schema(4)["properties"]["negatives"]["maxItems"] == 4


@given(st.lists(st.text("abc ", max_size=4)), st.integers(1, 4))
def test_kept_and_turned_away_add_up(texts, number):
    kept, away = validated(texts, query="a", positives=["b"], taken=["c"], number=number)
    assert len(kept) + sum(away.values()) == len(texts)
    assert not {"a", "b", "c", ""} & {text.strip() for text in kept}
    assert len(kept) <= number


def test_slots_fill_and_braces_in_texts_stay():
    writing = WritingSettings(domain="law", difficulty="very hard", length="20 words", example="E.g. {query}")
    prompt = writing.prompt("what is {x}?", "It is {positive} {y}.", 4)
    for part in ("law", "very hard", "20 words", "E.g. {query}", "what is {x}?", "It is {positive} {y}.", "Write 4 "):
        assert part in prompt
    assert "Example" not in WritingSettings().prompt("q", "p", 1)
    assert WritingSettings().prompt("q", "p", 2, ["had"]).endswith("- had\n")


def test_every_slot_changes_the_digest():
    slots = ({}, {"domain": "a"}, {"difficulty": "a"}, {"length": "a"}, {"example": "a"})
    assert len({WritingSettings(**each).describe()["prompt_digest"] for each in slots}) == 5


def test_templates_of_ones_own(tmp_path):
    path = tmp_path / "mine-2.txt"
    path.write_text("{number} for {query} unlike {positive}")
    writing = WritingSettings(template=path, domain="x")
    assert (writing.describe()["prompt"], writing.prompt("Q", "P", 3)) == ("mine-2", "3 for Q unlike P")
    for text, reason in (
        ("only {number}", r"lacks \{query\}, \{positive\}"),
        ("{number} {query} {positive} {topic}", "unknown slots topic"),
    ):
        path.write_text(text)
        with pytest.raises(InputError, match=reason):
            WritingSettings(template=path).prompt("Q", "P", 3)


@pytest.mark.parametrize(
    "answer",
    [
        "[" * 100_000,
        "[1," * 50_000,
        '{"a":' * 30_000,
        "<think>" * 30_000,
        '{"negatives": ["' + '\\"' * 50_000,
        '{"negatives": ["a"' + " " * 100_000,
        '"a" ' * 50_000,
    ],
    ids=["brackets", "lists", "objects", "thoughts", "quotes", "blanks", "strings"],
)
def test_an_answer_that_repeats_itself_is_read_in_time_of_its_length(answer: str) -> None:
    assert parse(answer) in ([], ["a"])  # scanning each bracket or quote to the end would take minutes


def test_thoughts_are_left_out() -> None:
    assert parse('<think>["x"]</think>["a"]<think>["y"]</think>') == ["a"]
    assert parse('<think>["x"] <think> ["y"]</think>["a"]') == ["a"]
    assert parse('<think>["x"]') == ["x"]


def test_a_template_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.txt"
    path.write_bytes(b"{query}\n\xff")
    with pytest.raises(FormatError, match=r"mine\.txt:2: not UTF-8"):
        WritingSettings(template=path).describe()
    path.write_bytes(b"\xef\xbb\xbf{query} {positive} {number}")
    assert WritingSettings(template=path).prompt("q", "p", 3) == "q p 3"
