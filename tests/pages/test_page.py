"""The renderer of pages: what a section shows, and when the library of figures is in a page."""

from hashlib import sha256
from importlib.resources import files

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
    assert "Plotly" not in page, "no figure, no library"
    assert "<h2>open</h2>" in page


def test_a_figure_keeps_its_height():
    figure = Figure([{"type": "bar", "x": ["a"], "y": [1]}], {}, "words", height=123)
    page = render_page("T", subtitle="", verdict="", sections=[Section("s", [figure])])
    assert "height:123px" in page
    assert "<figcaption>words</figcaption>" in page


def test_the_library_of_figures_is_small_and_is_the_published_one():
    library = files("foils.pages").joinpath("plotly", "plotly-basic.min.js").read_bytes()
    assert len(library) < 1.2e6, "a page has 1.5 MB in all"
    assert sha256(library).hexdigest() == "99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"
    assert b"plotly.js (basic - minified) v4.1.1" in library[:100]
