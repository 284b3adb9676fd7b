"""Templates of prompts."""

from __future__ import annotations

from pathlib import Path

import pytest

from foils.llm import Template
from foils.runtime.errors import FormatError, InputError


def test_slots_are_filled_and_values_are_no_slots() -> None:
    template = Template("{query}? {domain}! {query}", "own", ("query",), ("domain", "other"))
    assert template.filled(query="{domain}", domain="law", other="-") == "{domain}? law! {domain}"
    assert template.slots == {"query", "domain"}


def test_other_slots_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"unknown slots b; known are a"):
        Template("{a} {b}", "own", ("a",))
    path = tmp_path / "mine.v2.txt"
    path.write_text("{c}")
    with pytest.raises(FormatError, match=r"mine\.v2\.txt: the template lacks \{a\}"):
        Template.read(path, needed=("a",), optional=("c",))
    assert Template.read(path, needed=("c",)).version == "mine.v2"
