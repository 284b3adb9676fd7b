"""The report: everything escaped, nothing fetched, every figure and table there; in a browser where there is one."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import escape
from pathlib import Path

import pytest

from fakes import HashingEncoder
from foils.data import Collection
from foils.encode import VectorStore
from foils.mining import BM25Retriever, RandomRetriever, mine_negatives
from foils.scoring import Scores, ScoreSettings, ablate, audit, score_sources
from foils.scoring.page import score_page
from hostile import ATTACK, assert_harmless
from in_browser import assert_fits_everyone, in_chromium, needs_chromium


def hostile(tmp_path: Path, queries: int = 12) -> Scores:
    documents = {f"d{i} {ATTACK}": f"wind boat{i} keel {ATTACK}" for i in range(queries)}
    documents |= {f"e{i}": f"boat{i} bread{i} loaf {ATTACK}" for i in range(queries)}
    collection = Collection.from_dicts(
        f"evil {ATTACK}",
        documents,
        {f"q{i}": f"boat{i} {ATTACK}" for i in range(queries)},
        {"train": {f"q{i}": {f"d{i} {ATTACK}": 1} for i in range(queries)}},
    )
    sources = {
        f"bm25 {ATTACK}": mine_negatives(collection, BM25Retriever(collection), split="train", top=3),
        "random": mine_negatives(collection, RandomRetriever(collection), split="train", top=3),
    }
    settings = ScoreSettings(replicates=20)
    return score_sources(collection, sources, HashingEncoder(), VectorStore(tmp_path / "vectors"), settings)


def analysed(scores: Scores, *, top: int) -> Scores:
    return replace(scores, ablations=ablate(scores), suspects=audit(scores, {}, top=top))


def test_what_users_bring_is_escaped_and_nothing_is_fetched(tmp_path):
    scores = hostile(tmp_path)
    assert_harmless(score_page(analysed(scores, top=5)))


def test_the_page_says_what_was_found(tmp_path):
    scores = hostile(tmp_path)
    page = score_page(scores)
    for score in scores.sources:
        assert f"{score.eci_sem:.4f}" in page
    easy = [score.name for score in scores.sources if score.easy]
    assert "random" in easy
    verdict = re.search(r'class="verdict">(.*?)</div>', page).group(1)
    assert verdict.startswith("Every source") == (len(easy) == len(scores.sources))
    assert all(escape(name) in verdict for name in easy) or verdict.startswith("Every source")
    assert "Suspected false negatives" not in page
    longer = score_page(analysed(scores, top=2))
    assert "Suspected false negatives" in longer
    assert "ECI_sem by tokenizer" in longer


def test_figures_are_valid_plotly(tmp_path):
    import plotly.graph_objects as go

    scores = hostile(tmp_path)
    page = score_page(analysed(scores, top=1))
    figures = json.loads(re.search(r"^const figures = (.*);$", page, re.M).group(1))
    assert len(figures) >= 9
    for figure in figures:
        go.Figure(data=figure["data"], layout=figure["layout"])  # raises on a property that Plotly does not have


def test_a_report_appears_whole(tmp_path, monkeypatch):
    scores = hostile(tmp_path)
    page = tmp_path / "page.html"
    scores.report(page)
    before = page.read_bytes()
    monkeypatch.setattr("foils.scoring.page.render_page", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        scores.report(page)
    assert page.read_bytes() == before


@pytest.mark.slow
@needs_chromium
def test_no_script_of_a_collection_runs_in_a_browser(tmp_path):
    scores = hostile(tmp_path)
    page = tmp_path / "page.html"
    analysed(scores, top=5).report(page)
    shown = in_chromium(page)
    assert "<title>Which hard negatives to train on</title>" in shown
    assert shown.count('class="main-svg"') >= 4, "the figures were drawn"
    assert_fits_everyone(page)
