"""Deciding in growing samples: when that stops, and what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decided_world import WorldEncoder, mined, oracle, true_share
from foils.encode import VectorStore
from foils.runtime.errors import InputError
from foils.scoring import DecisionSettings, ScoreSettings, Settled, decide_until
from foils.scoring.attainable import attainable
from foils.scoring.belief import Draws
from foils.scoring.worth import SHARES, Worth
from hidden_positives import World, hidden_world


def settled(world: World, folder: Path, *, names: tuple[str, ...], **settings: object) -> Settled:
    every = mined(world)
    sources = {name: every[name] for name in names}
    given: dict[str, object] = {"confidence": 0.6, "first": 64, **settings}
    deciding = DecisionSettings(labels=given.pop("labels", None))
    scoring = ScoreSettings(replicates=50, hybrids=1, temperature=0.1)
    store = VectorStore(folder / "vectors")
    return decide_until(world.collection, sources, WorldEncoder(world), store, scoring, deciding, **given)  # type: ignore[arg-type]


def test_a_clear_decision_stops_at_the_first_look(tmp_path: Path) -> None:
    outcome = settled(hidden_world(8, labelled=1.0), tmp_path, names=("hard", "random"))
    assert outcome.certain
    assert len(outcome.looks) == 1
    assert outcome.looks[0].records == 64 == len(outcome.scores.measured.records) < outcome.available
    assert outcome.looks[0].source == outcome.scores.decision.source == "hard"  # type: ignore[union-attr]
    assert outcome.remark == ""
    assert np.isfinite(outcome.scores.sources[0].eci_sem_low), "intervals are made of the last sample"
    assert outcome.to_json()["records_needed"] == 64


def test_it_stops_where_labels_are_what_is_missing(tmp_path: Path) -> None:
    world = hidden_world(7, labelled=0.5)
    outcome = settled(world, tmp_path, names=("hard", "middle", "drawn"), confidence=0.999)
    assert not outcome.certain
    assert len(outcome.looks) == 2
    assert outcome.looks[-1].records == 128 < outcome.available
    assert all(look.attainable < 0.999 for look in outcome.looks)
    assert "More records would hardly make it surer" in outcome.remark
    assert outcome.scores.decision is not None
    assert outcome.scores.decision.sentences[-1] == outcome.remark
    assert outcome.remark in str(outcome.scores)
    assert outcome.to_json()["remark"] == outcome.remark


def test_records_with_labels_are_in_the_first_look(tmp_path: Path) -> None:
    world = hidden_world(7, labelled=0.5)
    labels = oracle(world, {"hard": mined(world)["hard"]}, 40)
    outcome = settled(world, tmp_path, names=("hard", "random"), labels=labels)
    assert outcome.scores.decision is not None
    assert outcome.scores.decision.labels == len(labels)
    worth = outcome.scores.decision.worths["hard"]
    assert worth.false_share_low <= true_share(world, mined(world)["hard"]) <= worth.false_share_high


def test_what_cannot_be_is_refused(tmp_path: Path) -> None:
    world = hidden_world(7, labelled=0.5)
    for wrong in ({"first": 3}, {"confidence": 1.0}):
        with pytest.raises(InputError, match="expected 16 or more, and a share"):
            settled(world, tmp_path, names=("hard",), **wrong)


def test_more_records_help_where_records_are_what_is_uncertain_and_not_where_the_belief_is() -> None:
    rng, blocks = np.random.default_rng(0), 20
    shares = np.column_stack([rng.uniform(0, 0.6, 2_000), np.full(2_000, 0.1)])
    draws = Draws(shares[:, 0], shares, shares, np.zeros((2_000, 0)), np.zeros((2_000, 0)), 1.0)

    def worth(each: np.ndarray, slope: float) -> Worth:
        sums = each[:, None] * 10 * (1 - slope * SHARES[None, :])
        return Worth(sums, np.full(blocks, 10.0), 1.0, 1.0)

    def most(worths: list[Worth], given: Draws) -> float:
        none = np.ones((2, 2_000, 2))
        return attainable(worths, given, np.arange(3), none, np.random.default_rng(1), tolerance=0.02)

    by_belief = [worth(np.ones(blocks), 1.75), worth(np.full(blocks, 0.6), 1.75)]
    assert most(by_belief, draws) < 0.7
    noisy = [worth(1 + rng.standard_normal(blocks), 0.0), worth(1 + rng.standard_normal(blocks), 0.0)]
    assert most(noisy, draws) == 1
    known = replace(draws, shares=np.full((2_000, 2), 0.1))
    assert most(by_belief, known) == 1
