"""Verdicts and words of a decision, from numbers made by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foils.scoring.decision import Decision, Turn
from foils.scoring.wording import sentences
from foils.scoring.worth import SourceWorth, verdict

GOOD = SourceWorth(
    name="dense", false_share=0.04, false_share_low=0.02, false_share_high=0.06, benefit=0.5, benefit_low=0.4,
    benefit_high=0.6, strength=0.55, learnability=1.0, best_with_probability=0.83, above_none=1.0, verdict="good",
)  # fmt: skip
DECISION = Decision(
    source="dense", best_with_probability=0.83, runner_up="bm25", ratio=1.2, matters=True,
    turns_at=Turn(unlabelled=2.0, false_share=0.08, source="bm25", above=True), label_next=40, labels=0,
    unlabelled=0.5, unlabelled_low=0.0, unlabelled_high=1.0, unlabelled_most=1.0, ability=0.98,
    worths={"dense": GOOD}, curve={},
)  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, "good"),
        ({"above_none": 0.94}, "cannot tell"),
        ({"above_none": 0.05, "benefit_low": -0.6, "benefit_high": -0.1}, "too many false"),
        ({"strength": 0.14}, "too easy"),
        ({"benefit_low": -0.01, "benefit_high": 0.01}, "no better than none"),
    ],
)
def test_a_verdict_says_what_the_numbers_say(changed: dict[str, float], expected: str) -> None:
    assert verdict(replace(GOOD, **changed), weakest=0.1, tolerated=0.01) == expected


def test_a_decision_says_what_to_train_on_where_it_turns_and_what_to_label() -> None:
    first, turn, label = sentences(DECISION)
    assert first == ("Train on dense: best with probability 0.83, 1.2 times as useful as bm25; 2–6 % of it are false.")
    assert turn == "The order turns to bm25 if more than 8 % of dense are false (today's belief: 2–6 %)."
    assert "label about 40 pairs" in label


def test_tiny_shares_are_said_as_a_hundredth_of_a_percent() -> None:
    sure = replace(GOOD, false_share_low=0.0, false_share_high=6e-30)
    first, _, _ = sentences(replace(DECISION, worths={"dense": sure}))
    assert first.endswith("; 0–0.01 % of it are false.")


def test_a_turn_names_the_share_of_the_source_with_more_false_negatives() -> None:
    bm25 = replace(GOOD, name="bm25", false_share_low=0.0, false_share_high=0.5)
    turned = Turn(unlabelled=2.0, false_share=0.003, source="bm25", above=False, share_of_other=0.09)
    _, turn, _ = sentences(replace(DECISION, turns_at=turned, worths={"dense": GOOD, "bm25": bm25}))
    assert turn == "The order turns to bm25 if fewer than 9 % of bm25 are false (today's belief: 0–50 %)."


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"label_next": None}, "Not even 320 labels"),
        ({"label_next": 0}, "Labels would hardly change it"),
        ({"best_with_probability": 0.4}, "It cannot be told"),
        ({"matters": False}, "the cheapest of those"),
        ({"source": None}, "Train on in-batch negatives alone"),
        ({"ability": 0.6}, "only 60 % of random documents"),
    ],
)
def test_every_kind_of_decision_has_its_sentence(changed: dict[str, object], expected: str) -> None:
    assert expected in " ".join(sentences(replace(DECISION, **changed)))  # type: ignore[arg-type]
