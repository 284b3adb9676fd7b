"""The page of a study of a collection whose every name, id and text is an attack."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from foils.data import Collection
from foils.encode import VectorStore
from foils.experiments import StudySettings, analyse, read_cells, run_study
from foils.mining import BM25Retriever, RandomRetriever, mine_negatives
from hostile import ATTACK, assert_harmless, outside_plotly
from in_browser import assert_fits_everyone, in_chromium, needs_chromium
from train_models import WORDS, static_model

NAME = "<img src=x onerror=document.title='owned'>"  # what a folder may be called
QUERIES = 12
TITLE = "Did the score predict the training?"


def texts() -> tuple[dict[str, str], dict[str, str], dict[str, dict[str, int]]]:
    """Documents, queries, judgements: every id and text has the attack in it."""
    documents = {f"d{i} {ATTACK}": f"{' '.join(WORDS[i : i + 6])} {ATTACK}" for i in range(3 * QUERIES)}
    queries = {f"q{i} {ATTACK}": f"{' '.join(WORDS[i : i + 3])} {ATTACK}" for i in range(QUERIES)}
    return documents, queries, {f"q{i} {ATTACK}": {f"d{i} {ATTACK}": 1} for i in range(QUERIES)}


def study_page(place: Path) -> Path:
    """Run a study with hostile names of collection and sources; write its page, a hostile command on it."""
    documents, queries, judged = texts()
    collection = Collection.from_dicts(f"c {ATTACK}", documents, queries, {"train": judged, "test": judged})
    sources = {
        f"bm25 {ATTACK}": mine_negatives(collection, BM25Retriever(collection), split="train", top=3),
        f"random {ATTACK}": mine_negatives(collection, RandomRetriever(collection), split="train", top=3),
        "plain": mine_negatives(collection, RandomRetriever(collection, seed=1), split="train", top=3),
    }
    static_model().save_pretrained(str(place / NAME))
    settings = StudySettings(seeds=1, training={"batch_size": 8})
    run_study(place / "study", collection, sources, [str(place / NAME)], VectorStore(place / "vectors"), settings)
    analyse(read_cells(place / "study")).report(place / "study.html")
    assert all(path.resolve().is_relative_to(place) for path in place.rglob("*"))
    return place / "study.html"


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The page's place."""
    monkeypatch.setattr("foils.experiments.analysis.RESAMPLES", 10)  # quick
    return study_page(tmp_path)


def test_what_users_bring_is_escaped_and_nothing_is_fetched(page):
    text = outside_plotly(page.read_text("utf-8"))
    assert f"<title>{TITLE}</title>" in text
    assert_harmless(page.read_text("utf-8"))
    figures = json.loads(re.search(r"^const figures = (.*);$", text, re.M).group(1))
    assert not [each for each in strings(figures) if "<" in each]  # Plotly reads some HTML in labels


def strings(value: Any) -> Iterator[str]:
    """What a figure says, hover templates left out: they are the page's own."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from strings(each) if key != "hovertemplate" else ()
    elif isinstance(value, list):
        for each in value:
            yield from strings(each)
    elif isinstance(value, str):
        yield value


@pytest.mark.slow
@needs_chromium
def test_no_script_of_a_collection_runs_in_a_browser(page):
    shown = in_chromium(page)
    assert f"<title>{TITLE}</title>" in shown
    assert shown.count('class="main-svg"') >= 2, "the figures were drawn"
    assert "<img" not in re.sub(r"<script>.*?</script>", "", shown, flags=re.S)
    assert_fits_everyone(page)
