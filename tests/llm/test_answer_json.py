"""What a model said, with its thoughts, words around and JSON that never ends."""

import pytest

from foils.llm.answers import STARTS, json_values, without_thoughts


def test_thoughts():
    assert without_thoughts("<think>a</think>b<think>c</think>d") == "bd"
    assert without_thoughts("a<think>b <think> c</think>d</think>") == "ad</think>"
    assert without_thoughts("a<think>b") == "a<think>b"


def test_values_from_the_outer_to_the_inner():
    assert list(json_values('so: {"a": [1]} or {"b": 2')) == [{"a": [1]}, [1]]
    assert list(json_values("none")) == []


@pytest.mark.parametrize("begin", ["[", '{"a":', "[1,"])
def test_an_end_to_trying(begin):
    assert list(json_values(begin * 100_000)) == []
    assert list(json_values("[ " * STARTS + "[1]")) == []
    assert list(json_values("[ " * (STARTS - 1) + "[1]")) == [[1]]
