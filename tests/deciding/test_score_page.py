"""The report: everything escaped, nothing fetched, every figure and table there; in a browser where there is one."""

import json
import re

import pytest

from fakes import HashingEncoder
from foils.data import Collection
from foils.deciding.doors import score
from foils.deciding.page import score_page
from foils.encode import VectorStore
from foils.mining import BM25Retriever, RandomRetriever, mine_negatives
from hostile import ATTACK, assert_harmless
from in_browser import assert_fits_everyone, in_chromium, needs_chromium


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    documents = {f"d{i} {ATTACK}": f"wind boat{i} keel {ATTACK}" for i in range(12)}
    documents |= {f"e{i}": f"boat{i} bread{i} loaf {ATTACK}" for i in range(12)}
    queries = {f"q{i}": f"boat{i} {ATTACK}" for i in range(12)}
    qrels = {"train": {f"q{i}": {f"d{i} {ATTACK}": 1} for i in range(12)}}
    collection = Collection.from_dicts(f"evil {ATTACK}", documents, queries, qrels)
    sources = {
        f"bm25 {ATTACK}": mine_negatives(collection, BM25Retriever(collection), split="train", top=3),
        "random": mine_negatives(collection, RandomRetriever(collection), split="train", top=3),
    }
    store = VectorStore(tmp_path_factory.mktemp("vectors"))
    return score(collection, sources, encoder=HashingEncoder(), vectors=store)


def test_what_users_bring_is_escaped_and_nothing_is_fetched(hostile):
    assert_harmless(score_page(hostile))


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


def test_a_report_appears_whole(hostile, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    hostile.report(page)
    before = page.read_bytes()
    monkeypatch.setattr("foils.deciding.page.render_page", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        hostile.report(page)
    assert page.read_bytes() == before


@pytest.mark.slow
@needs_chromium
def test_no_script_of_a_collection_runs_in_a_browser(hostile, tmp_path):
    page = tmp_path / "page.html"
    hostile.report(page)
    shown = in_chromium(page)
    assert "<title>Which hard negatives to train on</title>" in shown
    assert shown.count('class="main-svg"') >= 2, "the figures were drawn"
    assert_fits_everyone(page)
