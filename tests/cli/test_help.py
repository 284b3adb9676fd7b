"""How much a verb asks of who reads its help; and where options went that a verb once had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from foils.cli.program import options_of_verb
from foils.cli.verbs import DOORS

MOST_OPTIONS = 25
MOST_LINES = 125  # of 80 characters
LONGER = {
    "train": (37, 140),
    "search": (25, 135),
    "rate": (37, 180),
    "mine": (34, 150),
    "score": (27, 130),
    "study": (26, 130),
}


@pytest.mark.parametrize("verb", DOORS)
def test_no_verb_has_more_options_than_one_can_read(foils: Callable[..., Any], verb: str) -> None:
    most_options, most_lines = LONGER.get(verb, (MOST_OPTIONS, MOST_LINES))
    options = options_of_verb(DOORS[verb])
    lines = foils(verb, "--help").out.splitlines()
    print(f"foils {verb}: {len(options)} options, {len(lines)} lines of help")
    assert len(options) <= most_options
    assert len(lines) <= most_lines


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (
            "mine x -o y --encode-batch 8",
            "--encode-batch is no option of this verb: give --encoder-args encode_batch=…",
        ),
        ("mine x -o y --no-trust-remote-code", "give --encoder-args trust_remote_code=…"),
        ("mine x -o y --split-shares=z", "give --collection-args split_shares=…"),
        ("generate x -o y --llm-temperature 1", "give --llm-args temperature=…"),
    ],
)
def test_an_option_that_is_a_key_of_another_is_shown_its_place(
    foils: Callable[..., Any], arguments: str, place: str
) -> None:
    ended = foils(*arguments.split())
    assert (ended.status, ended.out) == (2, "")
    assert place in ended.err
