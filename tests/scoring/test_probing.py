"""What a reranker from nothing learns: the head against an independent optimiser, the measure by hand, and worlds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from decided_world import mined, scored
from scipy.optimize import minimize

from foils.runtime.errors import InputError
from foils.scoring import DecisionSettings, decide_sources
from foils.scoring.pair_features import First, PairFeatures
from foils.scoring.probing import RIDGE, Probe, fit_head
from hidden_positives import World, hidden_world

ONES = np.ones(4)


def test_the_head_is_what_another_optimiser_finds() -> None:
    rng = np.random.default_rng(0)
    record = np.repeat(np.arange(40), rng.integers(1, 6, 40))
    margins = rng.normal(size=(len(record), 3)) - [1.0, 0.0, -0.5]

    def loss(head: np.ndarray) -> float:
        lists = [np.log1p(np.exp(margins[record == each] @ head).sum()) for each in range(40)]
        return float(np.mean(lists) + RIDGE / 2 * head @ head)

    other = minimize(loss, np.zeros(3), tol=1e-12).x
    assert fit_head(margins, record) == pytest.approx(other, abs=1e-4)


def test_lists_that_are_told_apart_at_once_do_not_run_away() -> None:
    head = fit_head(np.full((10, 1), -50.0), np.arange(10))
    assert np.isfinite(head).all()
    assert -50 * head[0] < -1


def probe(labelled: list[int], ratio: list[float]) -> Probe:
    pairs = PairFeatures(np.zeros(4, np.int64), ONES, ONES, ONES, ONES)
    first = First(pairs, np.arange(4), np.array(labelled, bool), np.array([0, 4]))
    return Probe(np.zeros((0, 3)), np.zeros((1, 3)), np.zeros((4, 3)), first, np.array(ratio))


def test_the_measure_counts_hidden_positives() -> None:
    """The labelled one is third; the first is hidden with π = min(1, o·2), the others are not relevant."""
    each = probe([0, 0, 1, 0], [2.0, 0.0, 0.0, 0.0])
    none, half, both = each._measure(np.array([4.0, 3.0, 2.0, 1.0]), np.array([0.0, 0.25, 3.0]))[0]
    third, second = 1 / np.log2(4), 1 / np.log2(3)
    assert none == pytest.approx(third)
    assert half == pytest.approx((0.5 + third) / (1 + 0.5 * second))
    assert both == pytest.approx((1 + third) / (1 + second))


def test_equal_scores_keep_the_encoders_order() -> None:
    assert probe([1, 0, 0, 0], [0.0] * 4)._measure(np.zeros(4), np.zeros(1))[0, 0] == 1.0


@pytest.fixture(scope="module")
def world() -> World:
    return hidden_world(3)


def test_negatives_that_look_like_positives_are_too_hard_to_begin_with(world: World, tmp_path: Path) -> None:
    sources = mined(world)
    scores, encoder, store = scored(world, sources, tmp_path)
    decision = decide_sources(scores, sources, encoder, store, DecisionSettings(starts="nothing")).decision
    worths = decision.worths
    assert decision.starts == "nothing"
    assert worths["random control"].benefit == 0.0
    assert worths["hard"].benefit < worths["random"].benefit
    assert worths["hard"].learnability < worths["random"].learnability
    assert decision.source is not None  # the random source stands for no mined negatives
    again = decide_sources(scores, sources, encoder, store, DecisionSettings(starts="nothing")).decision
    assert again.to_json() == decision.to_json()


def test_without_a_random_source_random_negatives_may_be_the_decision(world: World, tmp_path: Path) -> None:
    sources = {"hard": mined(world)["hard"]}
    scores, encoder, store = scored(world, sources, tmp_path)
    decision = decide_sources(scores, sources, encoder, store, DecisionSettings(starts="nothing")).decision
    assert decision.source is None
    assert "Train on random negatives" in decision.sentences[0]
    assert decision.worths["hard"].verdict == "too hard"


def test_a_probe_needs_the_control(world: World, tmp_path: Path) -> None:
    from dataclasses import replace

    from foils.scoring import score_sources

    sources = mined(world)
    scores, encoder, store = scored(world, sources, tmp_path)
    alone = score_sources(world.collection, sources, encoder, store, replace(scores.settings, control=False))
    with pytest.raises(InputError, match="random negatives, and the control is left out"):
        decide_sources(alone, sources, encoder, store, DecisionSettings(starts="nothing"))
