"""Settings that take one value or several."""

from pathlib import Path

from foils.runtime.options import several


def test_one_value_and_several():
    assert several("a.tsv") == ["a.tsv"]
    assert several(Path("a.tsv")) == [Path("a.tsv")]
    assert several(("a", "b")) == ["a", "b"]
    assert several([]) == []
    assert several(0.5) == [0.5]
    given = ["a"]
    assert several(given) is not given, "what is done to the list is not done to what was given"
