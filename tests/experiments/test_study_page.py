from __future__ import annotations

import json
import re
from html import escape
from pathlib import Path

import numpy as np

from foils.experiments import analyse
from foils.experiments.cells import Cell
from foils.experiments.pages import study_page
from foils.experiments.tasks import IN_BATCH
from hostile import ATTACK, assert_harmless


def cell(name, model="m", measure="nDCG@10"):
    rng = np.random.default_rng(0)
    sources = [f"s{i} {ATTACK}" for i in range(4)]
    outcomes = {each: {measure: rng.uniform(0, 1, (2, 20))} for each in [*sources, IN_BATCH]}
    predictors = {each: {"eci_sem": float(i), "rho": -float(i)} for i, each in enumerate(sources)}
    facts = {
        "collection": {"name": name, "digest": "x" * 20}, "model": {"name": model, "fingerprint": "y" * 20},
        "settings": {"measures": [measure]}, "sources": dict.fromkeys(sources, ""),
    }  # fmt: skip
    return Cell(Path(), facts, predictors, outcomes)


def test_the_page_says_who_led_and_escapes_what_users_named():
    analysis = analyse([cell(f"a {ATTACK}"), cell("b")])
    page = study_page(analysis)
    assert analysis.leaderboard[0].predictor in page
    assert "ECI_sem" in page
    assert "in-batch negatives" in page
    assert_harmless(page)


def test_cells_of_several_models_are_told_apart():
    page = study_page(analyse([cell("a", "first"), cell("a", "second")]))
    assert page.count("a · first") > 1
    assert page.count("a · second") > 1


def test_labels_of_figures_are_plain_text_and_names_of_sources_no_numbers():
    page = study_page(analyse([cell("a", measure=f"m {ATTACK}")]))
    figures = json.loads(re.search(r"^const figures = (.*);$", page, re.M).group(1))
    predictors, outcomes = [figure["layout"] for figure in figures]
    assert outcomes["xaxis"]["title"]["text"] == f"m {escape(ATTACK)}"
    assert outcomes["yaxis"]["type"] == "category"
    assert [each for each in outcomes["yaxis"]["categoryarray"] if "<" in each] == []
    assert predictors["yaxis"]["categoryarray"] == ["rho", "eci_sem"]
