"""The renderer of pages: what a section shows, and when the library of figures is in a page."""

import re

import pytest

from foils.pages import Examples, Figure, Section, render_page
from foils.runtime.results import Table


def test_blocks_and_folding():
    page = render_page(
        "T",
        subtitle="s",
        verdict="v",
        sections=[
            Section("open", [Table("", ["a", "b"], [("x", "1"), ("y", "2")], "cap", frozenset({1}))]),
            Section("shut", [Examples("none", [])], folded=True),
        ],
    )
    assert page.count('class="marked"') == 1
    assert "<summary>shut</summary>" in page
    assert "<figure" not in page
    assert "<h2>open</h2>" in page


def test_a_figure_shows_every_point_at_its_place():
    """On an axis from −1 to 3; rows come in the reversed order of the last group."""
    groups = {
        "base": {"a": (-0.5, -1.0, 0.0), "b": (1.0, 0.0, 2.0)},
        "tuned": {"b": (2.0, 1.0, 3.0), "a": (3.0, 3.0, 3.0)},
    }
    figure = Figure(groups, "points", "words", (-1.0, 3.0))
    page = render_page("T", subtitle="", verdict="", sections=[Section("s", [figure])])
    assert re.findall(r'<b style="grid-row: (\d)">(\w)</b>', page) == [("1", "a"), ("2", "b")]
    lines = re.findall(r'title="(.*?)"><i style="left: (.*?)%; width: (.*?)%"></i><u style="left: (.*?)%"', page)
    assert lines == [
        ("a: -0.5 [-1, 0]", "0.0", "25.0", "12.5"), ("a: 3 [3, 3]", "100.0", "0.0", "100.0"),
        ("b: 1 [0, 2]", "25.0", "50.0", "50.0"), ("b: 2 [1, 3]", "50.0", "50.0", "75.0"),
    ]  # fmt: skip
    assert "<figcaption>words</figcaption>" in page
    assert re.findall(r">(base|tuned)</span>", page) == ["base", "tuned"]


@pytest.mark.parametrize("reached", [(0.0, 1.0), (-0.031, 0.0204), (0.2, 0.2), (12.0, 4100.0), (-3.7, 2.1)])
def test_ticks_are_round_numbers_on_the_axis(reached):
    low, high = reached
    figure = Figure({"": {"a": (low, low, high)}}, "x", "")
    assert 3 <= len(figure.ticks()) <= 9
    assert all(0 <= figure.place(float(tick)) <= 100 for tick in figure.ticks())
    assert all(len(tick.lstrip("-")) <= 6 for tick in figure.ticks())
    assert Figure({"": {}}, "x", "").ticks()
