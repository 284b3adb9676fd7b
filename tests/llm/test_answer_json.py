"""What a model said, with its thoughts, words around and JSON that never ends."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foils.llm.answers import STARTS, json_values, outer_values, without_thoughts


def test_thoughts():
    assert without_thoughts("<think>a</think>b<think>c</think>d") == "bd"
    assert without_thoughts("a<think>b <think> c</think>d") == "ad"
    assert without_thoughts("a<think>b") == "a<think>b"
    assert without_thoughts("a</think>b") == "b", "the prompt opened the thoughts"
    assert without_thoughts("a<think>b</think>c</think>d<think>e</think>f") == "df"


def test_values_from_the_outer_to_the_inner():
    assert list(json_values('so: {"a": [1]} or {"b": 2')) == [{"a": [1]}, [1]]
    assert list(json_values("none")) == []


def test_outermost_values_the_last_up_to_where_it_is_cut():
    assert list(outer_values('so: {"a": [1]} or [2]')) == [{"a": [1]}, [2]]
    assert list(outer_values('{two} of ["a\nb"')) == [["a\nb"]]
    assert list(outer_values('{"a": ["x", {"y": tr')) == [{"a": ["x"]}]
    assert list(outer_values('{"a": {"b": 1}, "c')) == [{"a": {"b": 1}}]
    assert list(outer_values('{"a": "x", "b": "\\u00')) == [{"a": "x"}]
    for none in ("none", "{two", '{"a": "x" oops', '{"a": ["x"] oops, "b": 2]', '{"a": "b', "]", "{]"):
        assert [value for value in outer_values(none) if value != ["x"]] == []


def test_brackets_inside_a_string_that_is_cut_off_are_text():
    for begin in ('["[]{}', '{"a": "[1] and {}', '["x", "[1]', '{"[1]'):
        assert list(outer_values(begin)) in ([], [["x"]])
    assert list(outer_values("{[1]]")) == [[1]]
    assert list(outer_values('[1] then ["[2]')) == [[1]]


@given(st.recursive(st.text() | st.booleans() | st.none(), lambda of: st.lists(of) | st.dictionaries(st.text(), of)))
def test_a_value_that_is_cut_off_stays_one(value):
    said = json.dumps([value])
    for end in range(1, len(said)):
        assert len(list(outer_values(said[:end]))) <= 1
    assert list(outer_values(said)) == [[value]]


@pytest.mark.parametrize("begin", ["[", '{"a":', "[1,", '["x",', '{"a": "b", "c": ['])
def test_an_end_to_trying(begin):
    assert list(json_values(begin * 100_000)) == []
    assert len(list(outer_values(begin * 100_000))) <= 1
    assert list(outer_values(begin * 100_000 + "?")) == []
    assert list(json_values("[ " * STARTS + "[1]")) == []
    assert list(json_values("[ " * (STARTS - 1) + "[1]")) == [[1]]
