"""How much a verb asks of who reads its help; and where options went that a verb once had."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from foils.cli.program import options_of_verb
from foils.cli.verbs import DOORS

MOST_OPTIONS = 26
MOST_LINES = 132  # of 100 characters: two screens
MORE_LINES = {"train": 143}
MORE_OPTIONS = {"mine": 27, "rate": 28, "train": 36, "score": 33, "study": 32}


@pytest.mark.parametrize("verb", DOORS)
def test_no_verb_has_more_options_than_one_can_read(
    foils: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    options = options_of_verb(DOORS[verb])
    lines = foils(verb, "--help").out.splitlines()
    print(f"foils {verb}: {len(options)} options, {len(lines)} lines of help")
    assert len(options) <= MORE_OPTIONS.get(verb, MOST_OPTIONS)
    assert len(lines) <= MORE_LINES.get(verb, MOST_LINES)


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
