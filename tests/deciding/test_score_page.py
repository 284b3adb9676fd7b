"""The report: what is decided, examples, every figure; that it is harmless says tests/faults/test_hostile_pages.py."""

import json
import re

import pytest

from fakes import HashingEncoder
from foils.deciding.doors import score
from foils.deciding.page import score_page
from foils.encode import VectorStore
from hostile import hostile_world


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    store = VectorStore(tmp_path_factory.mktemp("vectors"))
    return score(*hostile_world(), encoder=HashingEncoder(), vectors=store)


def test_the_page_says_what_is_decided_and_shows_three_examples_with_shared_words_marked(hostile):
    page = score_page(hostile)
    verdict = re.search(r'class="verdict">(.*?)</div>', page)
    assert verdict
    assert verdict[1].startswith("Train ")
    assert page.count(verdict[1]) == 1, "no sentence stands there twice"
    assert page.count('<div class="example">') == 3
    assert re.search(r"<mark>boat\d+</mark>", page)
    for score_of in hostile.sources:
        assert f"{score_of.eci_sem:.4f}" in page
    assert page.index("What each choice gains") < page.index("Read some") < page.index("Where the choice turns")


def test_figures_are_valid_plotly_in_one_colour_for_each_source(hostile):
    import plotly.graph_objects as go

    found = re.search(r"^const figures = (.*);$", score_page(hostile), re.M)
    assert found
    gains, turns = json.loads(found[1])
    for figure in (gains, turns):
        go.Figure(data=figure["data"], layout=figure["layout"])  # raises on a property that Plotly does not have
    colours = dict(zip(gains["data"][0]["y"], gains["data"][0]["marker"]["color"], strict=True))
    assert colours == {line["name"]: line["line"]["color"] for line in turns["data"]}
