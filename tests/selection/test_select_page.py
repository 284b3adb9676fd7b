"""The report of ratings: what it says is what the table holds, all text escaped, thresholds and zones drawn."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pyarrow as pa
import pytest
from scipy.stats import norm

from foils.cli.app import run
from foils.data import Collection, Negatives
from foils.runtime.errors import InputError
from foils.runtime.results import Table
from foils.selection import select_negatives
from foils.selection.page import Benefit, Gaps, gap_figure, gap_report, laffer_figure
from hostile import ATTACK, assert_harmless
from in_browser import assert_fits_everyone, in_chromium, needs_chromium

QUERIES, EACH = 30, 20


def collection(evil: str = "") -> Collection:
    documents = {f"d{i}{evil}": f"wind boat{i} keel {evil}" for i in range(QUERIES)}
    documents |= {f"e{i}{evil}": f"loaf bread{i} {evil}" for i in range(EACH)}
    asked = {f"q{i}{evil}": f"boat{i} {evil}" for i in range(QUERIES)}
    qrels = {"train": {f"q{i}{evil}": {f"d{i}{evil}": 1} for i in range(QUERIES)}}
    return Collection.from_dicts(f"harbour{evil}", documents, asked, qrels)


def rated(evil: str = "", *, gap_errors: bool = True, seed: int = 0) -> Negatives:
    """Gaps from two groups, around 0 and 420; sources a and b; every tenth row unrated."""
    rng = np.random.default_rng(seed)
    count = QUERIES * EACH
    gap = np.where(rng.random(count) < 0.3, rng.normal(0, 60, count), rng.normal(420, 130, count))
    gap[::10] = np.nan
    columns = {
        "query_id": [f"q{i // EACH}{evil}" for i in range(count)],
        "doc_id": [f"e{i % EACH}{evil}" for i in range(count)],
        "source": [f"{'ab'[i % 2]}{evil}" for i in range(count)],
        "rank": [i % EACH for i in range(count)],
        "score": [0.5] * count,
        "elo": 1700 - gap,
        "elo_se": np.full(count, 70.0),
        "gap": gap,
    } | ({"gap_se": np.full(count, 90.0)} if gap_errors else {})
    told = {"stage": "rate", "settings": {"judge": f"tester{evil}", "model": "thurstone"}, "seed": 3}
    return Negatives(pa.table(columns), told)


def figures(page: str) -> list[dict]:
    return json.loads(re.search(r"^const figures = (.*);$", page, re.M).group(1))


def cells(page: str, first: str) -> list[str]:
    """The row of a table that begins with this cell."""
    row = re.search(rf"<tr[^>]*><td>{re.escape(first)}</td>(.*?)</tr>", page).group(1)
    return [unescape(cell) for cell in re.findall(r"<td>(.*?)</td>", row)]


RATING = Table("", ("", "value"), [("judgements missing", "7")])


def test_the_tables_count_what_the_table_holds():
    negatives = rated()
    page = gap_report(collection(), negatives, split="train", rating=RATING)
    gap = negatives.table["gap"].to_numpy()
    known = gap[np.isfinite(gap)]
    danger = known < 100
    assert cells(page, "danger")[:3] == ["below 100", f"{danger.sum()}", f"{100 * danger.mean():.1f} %"]
    inside = (known - 90 >= 200) & (known + 90 <= 400)
    goldilocks = (known >= 200) & (known < 400)
    assert cells(page, "goldilocks")[4:6] == ["90", f"{100 * inside.sum() / goldilocks.sum():.0f} %"]
    assert cells(page, "a")[3] == f"{np.median(gap[::2][np.isfinite(gap[::2])]):,.0f}"
    assert f"{100 * danger.mean():.0f} % of the negatives" in page
    assert f"{100 * (known + 90 < 100).mean():.0f} % by more than a standard error" in page
    assert cells(page, "judgements missing") == ["7"]
    assert "judge tester" in page
    assert "What was selected" not in page


def test_without_errors_of_gaps_the_ratings_own_are_shown_and_said():
    page = gap_report(collection(), rated(gap_errors=False), split="train")
    assert cells(page, "goldilocks")[4] == "70"
    assert "The rating<" not in page


def test_a_mixtures_components_and_thresholds_are_drawn():
    found = select_negatives(rated(), by="mixture", settings={"components": 2})
    page = gap_report(collection(), found, split="train", selection=found.selection)
    drawn = figures(page)[0]
    fitted = found.selection.mixture
    curves = [one for one in drawn["data"] if one["name"].startswith("component")]
    assert len(curves) == 2
    grid = np.array(curves[0]["x"])
    bins = np.diff(next(one for one in drawn["data"] if one["name"] == "a")["x"]).mean()
    expected = 100 * bins * fitted.share[0] * norm.pdf(grid, fitted.mean[0], fitted.sd[0])
    np.testing.assert_allclose(curves[0]["y"], expected, atol=0.02)
    lines = [shape["x0"] for shape in drawn["layout"]["shapes"] if shape["type"] == "line"]
    assert lines == pytest.approx(fitted.thresholds.tolist())
    kept = found.keep
    tier = np.array(found.table["tier"].to_pylist(), object)
    mine = tier == "goldilocks"
    assert re.search(rf"<td>goldilocks</td><td>{mine.sum()}</td><td>{kept[mine].sum()}</td>", page)
    assert cells(page, "in the mixture&#39;s lowest component") == [f"{(tier == 'danger').sum()}"]
    assert cells(page, "unrated")  # both a tier and a reason
    without = gap_report(collection(), found, split="train", selection=replace(found.selection, mixture=None))
    assert not [one for one in figures(without)[0]["data"] if one["name"].startswith("component")]


def test_signal_and_risk_are_those_of_theorem_12():
    gaps = some_gaps()
    one, other = Benefit(), Benefit(rate=0.3, spread=60.0, damage=4.0)
    figure = laffer_figure(gaps, one)
    curves = {of["name"]: of for of in figure.data}
    grid = np.array(curves["training signal I(Δ), bits"]["x"])
    signal = np.array(curves["training signal I(Δ), bits"]["y"])
    share = norm.cdf(grid / 295.6646)
    np.testing.assert_allclose(signal, -(share * np.log2(share) + (1 - share) * np.log2(1 - share)), atol=1e-3)
    risk = np.array(curves["risk P(false negative | Δ)"]["y"])
    assert (np.diff(risk) <= 1e-9).all()
    assert risk.max() <= 1
    np.testing.assert_allclose(curves["benefit I − 2·P"]["y"], signal - 2 * risk, atol=2e-3)
    best = grid[np.argmax(np.where(grid >= 0, signal - 2 * risk, -np.inf))]
    assert best == pytest.approx(one.best(gaps.gap), abs=10)
    assert other.best(gaps.gap) != one.best(gaps.gap)
    assert figure.layout["xaxis"]["range"][0] > figure.layout["xaxis"]["range"][1], "harder to the right"


def some_gaps(count: int = 600) -> Gaps:
    rng = np.random.default_rng(1)
    gap = rng.normal(300, 200, count)
    preference = np.where(rng.random(count) < 0.8, norm.cdf(gap / 100), np.nan)
    source = np.array(["s"] * count, object)
    return Gaps(np.arange(count), gap, np.full(count, 50.0), True, preference, source)


def test_what_the_judge_said_directly_is_beside_the_estimated_risk():
    gaps = some_gaps()
    points = next(of for of in laffer_figure(gaps, Benefit()).data if of["name"] == "judge prefers the negative")
    expected = [float(x < 0) for x in points["x"]]
    middle = np.abs(points["x"]) > 25
    np.testing.assert_allclose(np.array(points["y"])[middle], np.array(expected)[middle])
    silent = replace(gaps, preference=np.full(len(gaps.gap), np.nan))
    assert len(laffer_figure(silent, Benefit()).data) == 3


def test_every_source_has_its_line_and_every_threshold_its_name():
    gaps = some_gaps()
    two = replace(gaps, source=np.where(np.arange(600) % 2, "odd", "even").astype(object))
    assert [of["name"] for of in gap_figure(two, {}, None).data] == ["even", "odd"]
    assert gap_figure(gaps, {"soft": 123.0}, None).layout["annotations"][-1]["text"] == "soft 123"


def test_examples_are_of_their_zone_and_drawn_by_the_seed():
    one, again, other = (gap_report(collection(), rated(), split="train", seed=seed) for seed in (0, 0, 1))
    assert one == again != other
    danger = re.search(r"<summary>danger .*?</details>", one, re.S).group(0)
    shown = [int(value) for value in re.findall(r"<strong>gap (-?\d+) ± 90", danger)]
    assert len(shown) == 5
    assert shown == sorted(shown)
    assert max(shown) <= 100
    assert "loaf bread" in danger
    assert "wind boat" in danger


def test_what_users_bring_is_escaped_and_nothing_is_fetched():
    import plotly.graph_objects as go

    found = select_negatives(rated(ATTACK), by="mixture")
    page = gap_report(collection(ATTACK), found, split="train", rating=RATING, selection=found.selection)
    for figure in figures(page):
        go.Figure(data=figure["data"], layout=figure["layout"])  # raises on a property that Plotly does not have
    assert_harmless(page)


def test_tables_without_ratings_are_refused(tmp_path):
    plain = rated()
    bare = Negatives(plain.table.drop_columns(["elo", "elo_se", "gap", "gap_se"]))
    with pytest.raises(InputError, match="rate it first"):
        gap_report(collection(), bare, split="train")
    none = Negatives(plain.table.slice(0, 1))
    with pytest.raises(InputError, match="at least two"):
        gap_report(collection(), none, split="train")
    with pytest.raises(InputError, match="name the collection"):
        select_negatives(plain).report(tmp_path / "page.html")


def test_select_writes_the_page_and_training_files(tmp_path, beir_folder):
    evil = collection()
    texts = evil.document_texts(range(len(evil.documents)))
    documents = {key: ("", text) for key, text in zip(evil.documents["doc_id"].to_pylist(), texts, strict=True)}
    asked = dict(zip(evil.queries["query_id"].to_pylist(), evil.query_texts(range(QUERIES)), strict=True))
    folder = beir_folder("harbour", documents=documents, queries=asked,
                         qrels={"train": {f"q{i}": {f"d{i}": 1} for i in range(QUERIES)}})  # fmt: skip
    rated().write(tmp_path / "rated.parquet")
    page, triplets = tmp_path / "page.html", tmp_path / "triplets.jsonl"
    base = ["select", str(tmp_path / "rated.parquet"), "-o", str(tmp_path / "train.parquet"), "--report", str(page)]
    more = ["--collection", str(folder), "--export", f"triplets={triplets}"]
    assert run([*base, *more, "--by", "optimal", "--set", "damage=3"]) == 0
    assert "with λ = 3" in page.read_text()
    kept = int(Negatives.read(tmp_path / "train.parquet").keep.sum())
    assert len(triplets.read_text().splitlines()) == kept > 0
    assert "No row is kept" not in page.read_text()
    assert run([*base, *more[:2], "--by", "relative", "--set", "margin=0.99"]) == 0
    assert "No row is kept: there is nothing to train on. Give the rule relative other settings" in page.read_text()
    page.unlink()
    assert run(base) == 2, "no texts without the collection"
    assert run([*base[:4], "--export", f"nonsense={triplets}", "--collection", str(folder)]) == 2
    assert not page.exists()


@pytest.mark.slow
@needs_chromium
def test_no_script_of_a_collection_runs_in_a_browser(tmp_path):
    page = tmp_path / "page.html"
    select_negatives(rated(ATTACK), by="mixture", collection=collection(ATTACK)).report(page)
    shown = in_chromium(page)
    assert "<title>How hard the negatives are</title>" in shown
    assert shown.count('class="main-svg"') >= 2, "the figures were drawn"
    assert_fits_everyone(page)
