"""The report of a batch plan: what it says, that it is whole, and that nobody's text runs in it."""

from __future__ import annotations

import json
import re

import plotly.graph_objects as go
import pytest

from fakes import HashingEncoder
from foils.batching.doors import batch
from foils.batching.page import batch_report
from foils.data import Collection
from foils.encode import VectorStore
from hostile import ATTACK, assert_harmless
from in_browser import assert_fits_everyone, needs_chromium

SMALL = {"seeds": 4, "candidates": 16}


@pytest.fixture
def planned(tmp_path):
    def plan(name="hobit", settings=SMALL, *, epochs=2, pairs=60, batch_size=16, shared=1):
        documents = {f"d{i}": f"wind boat{i} keel sail{i % 7} {ATTACK}" for i in range(pairs)}
        queries = {f"q{i}": f"boat{i} sail{i % 7} {ATTACK}" for i in range(pairs)}
        judged = {f"q{i}": {f"d{(i + k) % pairs}": 1 for k in range(shared)} for i in range(pairs)}
        collection = Collection.from_dicts(f"evil {ATTACK}", documents, queries, {"train": judged})
        store = VectorStore(tmp_path / "vectors")
        return batch(
            collection, name, encoder=HashingEncoder(), vectors=store, settings=settings, batch_size=batch_size,
            epochs=epochs,
        )  # fmt: skip

    return plan


def figures(page):
    return json.loads(re.search(r"^const figures = (.*);$", page, re.M).group(1))


def test_the_page_says_what_the_plan_measured(planned):
    found = planned()
    page = batch_report(found)
    first = found.plan.measures[0]
    for value in (first.hardness, first.loss, first.weight, found.plan.random.hardness):
        assert f"{value:.3f}" in page
    assert f"{first.hardness_gain:+.3f}" in page
    assert "harder than random ones" in page
    assert "60 of 60 judged" in page
    assert f"{100 * found.plan.overlap:.1f} %" in page
    hardest = int(found.plan.rows.hardness.argmax())
    assert f"hardness {found.plan.rows.hardness[hardest]:.3f}" in page


def test_an_easier_plan_is_not_called_harder(planned):
    found = planned("random", {}, epochs=1)
    object.__setattr__(found.plan.measures[0], "hardness_gain", -0.01)
    assert "not harder than random ones" in batch_report(found)


def test_figures_are_valid_plotly_and_show_every_batch(planned):
    drawn = figures(batch_report(planned()))
    assert len(drawn) == 4, "over the epoch, sorted, two gains; no contradictions, no figure of them"
    for figure in drawn:
        go.Figure(data=figure["data"], layout=figure["layout"])
        assert [len(line["y"]) for line in figure["data"]] == [4, 4, 4]
    assert drawn[1]["data"][0]["y"] == sorted(drawn[1]["data"][0]["y"], reverse=True)


def test_contradictions_are_drawn_where_there_are_any(planned):
    # every query has half of the documents: batches of 24 cannot keep them apart
    found = planned(pairs=12, shared=6, batch_size=24, epochs=1)
    assert found.plan.measures[0].contradictions > 0
    page = batch_report(found)
    bars = figures(page)[4]["data"]
    assert sum(bars[0]["y"]) == found.plan.measures[0].contradictions
    assert "use a loss that masks" in page


def test_a_batch_without_a_negative_leaves_a_gap(planned):
    found = planned(pairs=33, epochs=1)  # the last batch has one row
    assert figures(batch_report(found))[0]["data"][0]["y"][-1] is None


def test_what_users_bring_is_escaped(planned):
    assert_harmless(batch_report(planned()))


def test_it_is_written_whole_and_the_same_each_time(planned, tmp_path):
    page = tmp_path / "page.html"
    found = planned()
    found.report(page)
    before = page.read_text()
    assert before == batch_report(found)


@pytest.mark.slow
@needs_chromium
def test_everyone_can_read_it(planned, tmp_path):
    planned().report(tmp_path / "page.html")
    assert_fits_everyone(tmp_path / "page.html")
