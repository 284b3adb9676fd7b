"""The pages that are made from the code are what it makes today."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foils
from foils.cli.program import settings_of_verb
from foils.cli.verbs import DOORS

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return runpy.run_path(str(DOCS / "generate.py"))


def test_what_is_made_from_the_code_is_current(made: dict[str, Any]) -> None:
    stale = [path.name for path, text in made["pages"]().items() if path.read_text("utf-8") != text]
    assert not stale, "run: make pages"


def test_the_reference_names_every_function_and_package(made: dict[str, Any]) -> None:
    text = (DOCS / "api.md").read_text("utf-8")
    functions = [name for name in foils.__all__ if name[0].islower()]
    assert [name for name in functions if not re.search(rf":members: .*\b{name}\b", text)] == []
    assert [room for room in made["rooms"]() if f".. automodule:: foils.{room}\n   :members:" not in text] == []


def test_every_option_of_every_verb_stands_in_its_section() -> None:
    sections = re.split(r"^## foils ([a-z-]+)\n", (DOCS / "options.md").read_text("utf-8"), flags=re.M)[1:]
    page = dict(zip(sections[::2], sections[1::2], strict=True))
    assert set(page) == set(DOORS)
    for verb, entry in DOORS.items():
        for each in settings_of_verb(entry):
            shown = f"`{each.key}=`" if each.option.within else f"`{each.flag}`"
            places = (shown, f"`{each.option.metavar or each.name.upper()}`")  # an argument has no flag
            assert any(place in page[verb] for place in places), f"foils {verb}: {each.flag}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("ir_datasets:ID, x*y <b>", r"ir\_datasets:ID, x\*y \<b\>"), ("as `a_b` or c_d", r"as `a_b` or c\_d")],
)
def test_nothing_in_a_help_text_is_markup(made: dict[str, Callable[[str], str]], text: str, shown: str) -> None:
    assert made["_plain"](text) == shown
