"""Curves: what windows and margins of a source are worth, on collections whose hidden positives are known."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from decided_world import oracle, scored, true_share
from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.data.recapture import Returned
from foils.mining import mine_negatives
from foils.runtime.errors import InputError, UnknownNameError
from foils.scoring import DecisionSettings, Scores, curves, decide_sources
from foils.scoring.curve import _windows
from foils.scoring.curve_shown import curve_figure, curve_table, sentence
from foils.scoring.page import score_page
from foils.scoring.part_recapture import Recaptured
from hidden_positives import World, hidden_world

DEPTH, SIZE = 50, 5


def deep(world: World) -> Negatives:
    return mine_negatives(world.collection, world.dense(), split="train", top=DEPTH, plant=2_000)


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, Negatives], tuple]:
    world = hidden_world(7, labelled=0.5)
    sources = {"deep": deep(world)}
    return world, sources, scored(world, sources, tmp_path_factory.mktemp("half"))


def with_decision(case: tuple, **settings: object) -> Scores:
    _, sources, (scores, encoder, store) = case
    decided = decide_sources(scores, sources, encoder, store, DecisionSettings(**settings))  # type: ignore[arg-type]
    return scores.with_decision(decided, "benefit")


def window_of(negatives: Negatives, first: int, end: int) -> Negatives:
    rank = np.asarray(negatives.table["rank"])
    return Negatives(negatives.table.filter(pa.array((rank >= first) & (rank < end))))


def test_windows_have_no_gap_at_first_and_lie_further_apart_below() -> None:
    assert _windows(np.arange(100), 10) == [(at, at + 10) for at in range(0, 100, 10)]
    assert _windows(np.arange(20, 64), 10) == [(20, 30), (30, 40), (40, 50), (50, 60)]
    deeper = _windows(np.arange(1_000), 10)
    assert (deeper[10:12], deeper[-1]) == ([(100, 110), (120, 130)], (880, 890))
    assert len(deeper) < 25
    assert {end - first for first, end in deeper} == {10}


def test_without_labels_the_share_of_every_window_is_within_its_interval(half: tuple) -> None:
    world, sources, _ = half
    by_rank, by_margin = curves(with_decision(half), sources, "deep", size=SIZE)
    assert [part.name for part in by_rank.parts][:2] == ["0–5", "5–10"]
    for part in by_rank.parts:
        true = true_share(world, window_of(sources["deep"], int(part.first), part.end))
        assert part.worth.false_share_low == 0 <= true <= part.worth.false_share_high, part.name
    assert [part.first for part in by_margin.parts] == sorted(part.first for part in by_margin.parts)
    assert all(
        a.negatives_per_query >= b.negatives_per_query
        for a, b in zip(by_margin.parts, by_margin.parts[1:], strict=False)
    )


def test_labels_narrow_each_window_about_its_truth_and_move_the_best(tmp_path: Path) -> None:
    world = hidden_world(9, labelled=0.15)
    sources = {"deep": deep(world)}
    case = (world, sources, scored(world, sources, tmp_path))
    labelled = with_decision(case, labels=oracle(world, sources, 600))
    before = curves(with_decision(case), sources, "deep", size=SIZE)[0]
    after = curves(labelled, sources, "deep", size=SIZE)[0]
    truth = [true_share(world, window_of(sources["deep"], int(part.first), part.end)) for part in after.parts]
    held = [
        part.worth.false_share_low <= true <= part.worth.false_share_high
        for part, true in zip(after.parts, truth, strict=True)
    ]
    assert np.mean(held) >= 0.9
    assert after.parts[0].worth.false_share_high < before.parts[0].worth.false_share_high
    assert truth[0] > 0.3, "the first ranks are spoilt"
    assert after.best is not None
    assert after.best.first > 0
    benefits = [part.worth.benefit for part in after.parts]
    assert after.best.worth.benefit == pytest.approx(max(benefits), rel=0.05)


def test_where_nothing_is_hidden_the_first_ranks_are_best(tmp_path: Path) -> None:
    world = hidden_world(8, labelled=1.0)
    sources = {"deep": deep(world)}
    case = (world, sources, scored(world, sources, tmp_path))
    by_rank = curves(with_decision(case), sources, "deep", size=SIZE)[0]
    assert by_rank.best is not None
    assert by_rank.best.name == "0–5"
    strengths = [part.worth.strength for part in by_rank.parts]
    assert strengths == sorted(strengths, reverse=True)
    assert min(strengths) < by_rank.drawn.strength < max(strengths)
    assert "ranks 0–5 are worth most" in sentence(by_rank)


def test_a_window_is_believed_as_if_it_had_been_mined_alone(half: tuple) -> None:
    world, sources, _ = half
    scores = with_decision(half)
    by_rank = curves(scores, sources, "deep", size=SIZE)[0]
    most = by_rank.decision.unlabelled_most
    for part in by_rank.parts[:2]:
        alone = mine_negatives(
            world.collection, world.dense(), split="train", top=SIZE, ranks=(int(part.first), part.end)
        )
        counted = alone.provenance["recapture"]
        rate = counted["returned"] / counted["kept"]
        assert part.worth.false_share == pytest.approx(rate * most / 2, rel=0.3), part.name


def test_planted_positives_and_pairs_make_a_windows_recapture_by_hand() -> None:
    ids = [f"d{at}" for at in range(20)]
    collection = Collection.from_dicts("tiny", dict.fromkeys(ids, "text"), {"q": "query"}, {"train": {"q": {"d0": 1}}})
    table = negatives_table(["q"] * 20, ids, "dense", np.arange(20), np.zeros(20))
    recapture = {"returned": 8.0, "labelled": 10.0, "kept": 20.0, "way": "counted", "standard_error": 2.0}
    planted = {
        "query_id": ["q"] * 4,
        "doc_id": ["d0"] * 4,
        "rank": [0, 3, 12, 1],
        "keep": [True, True, True, False],
    }
    whole = Recaptured.of(Negatives(table, {"recapture": recapture, "planted": planted}), collection)
    assert whole is not None
    window = whole.window(0, 10, 1.6)
    # The pairs expect a share 1.6 · 10/20 = .8, 2.4 of the 3 that came back; 2 are there. 1/σ² = 2.778.
    share = 0.8 * (2.7778 + 2) / (2.7778 + 2.4)
    assert window.provenance["recapture"]["returned"] == pytest.approx(8 * share, rel=1e-4)
    assert window.provenance["recapture"]["kept"] == len(window) == 10
    assert Returned.of(window, collection).ranks.tolist() == [0, 3]
    error = 8 * share * math.hypot(2 / 8, (2.7778 + 2) ** -0.5)
    assert window.provenance["recapture"]["standard_error"] == pytest.approx(error, rel=1e-4)
    unplanted = Recaptured.of(Negatives(table, {"recapture": recapture}), collection)
    assert unplanted is not None
    assert unplanted.window(0, 10, 1.6).provenance["recapture"]["returned"] == pytest.approx(8 * 0.8)
    drawn = whole.draw(Negatives(table.slice(0, 5)))
    assert drawn.provenance["recapture"] == {**recapture, "queries": 0, "returned": 2.0, "kept": 5.0,
                                             "standard_error": 0.5}  # fmt: skip
    assert Returned.of(drawn, collection).ranks.tolist() == [0, 3, 12]
    assert Recaptured.of(Negatives(table), collection) is None


def test_a_curve_says_the_same_in_words_numbers_and_pictures(half: tuple) -> None:
    import plotly.graph_objects as go

    _, sources, _ = half
    scores = with_decision(half)
    both = curves(scores, sources, "deep", size=SIZE)
    shown = replace(scores, curves=both).to_json()["curves"]
    assert json.loads(json.dumps(shown)) == shown
    for curve, written in zip(both, shown, strict=True):
        assert written["sentence"] in curve_table(curve, 0.95).caption
        assert len(curve_table(curve, 0.95).rows) == len(written["parts"]) + 2
        figure = curve_figure(curve)
        assert list(figure.data[0]["y"]) == [round(part["benefit"], 5) for part in written["parts"]]
        go.Figure(data=figure.data, layout=figure.layout)
    assert (shown[0]["parts"][1]["ranks"], shown[1]["parts"][1]["margin"]) == ([5, 10], 0.02)


def test_lists_of_different_lengths_are_not_compared_without_a_word(tmp_path: Path) -> None:
    world = hidden_world(8, labelled=1.0)
    sources = {"deep": deep(world), "short": mine_negatives(world.collection, world.dense(), split="train", top=5)}
    unequal = with_decision((world, sources, scored(world, sources, tmp_path)))
    assert unequal.unequal_lengths[0].startswith("the sources have 5 to 50 negatives a query")
    assert unequal.unequal_lengths[0] in unequal.warnings
    assert "The sources have 5 to 50 negatives a query" in score_page(unequal)


def test_sources_that_have_no_curve_are_refused(half: tuple) -> None:
    _, sources, (undecided, *_) = half
    scores = with_decision(half)
    with pytest.raises(UnknownNameError, match="deep"):
        curves(scores, sources, "deeep")
    with pytest.raises(
        InputError, match=r"deep has 50 ranks; .* 60 ranks; mine it deeper, as foils mine --top 300 .* deep:25 does"
    ):
        curves(scores, sources, "deep", size=30)
    with pytest.raises(InputError, match="published score"):
        curves(undecided, sources, "deep")
