"""The pages that are made from the code are what it makes today."""

import ast
import inspect
import json
import re
import runpy
from pathlib import Path

import jsonschema
import pytest

import foils
from foils.cli.program import settings_of_verb
from foils.cli.verbs import DOORS

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture(scope="module")
def made():
    return runpy.run_path(str(DOCS / "generate.py"))


def test_what_is_made_from_the_code_is_current(made):
    stale = [path.name for path, text in made["pages"]().items() if path.read_text("utf-8") != text]
    assert not stale, "run: make pages"


def test_a_type_checker_and_an_editor_know_every_option():
    stub = ast.parse((DOCS.parent / "src" / "foils" / "__init__.pyi").read_text("utf-8"))
    known = {each.name: [arg.arg for arg in (*each.args.args, *each.args.kwonlyargs)]
             for each in stub.body if isinstance(each, ast.FunctionDef)}  # fmt: skip
    assert set(known) == {verb.replace("-", "_") for verb in DOORS} | {"load"}
    for name, options in known.items():
        assert options == list(inspect.signature(getattr(foils, name)).parameters), name


def test_the_reference_names_every_function_and_package(made):
    text = (DOCS / "api.md").read_text("utf-8")
    functions = [name for name in foils.__all__ if name[0].islower()]
    assert [name for name in functions if not re.search(rf":members: .*\b{name}\b", text)] == []
    assert [room for room in made["rooms"]() if f".. automodule:: foils.{room}\n   :members:" not in text] == []


def test_every_option_of_every_verb_stands_in_its_section():
    sections = re.split(r"^## foils ([a-z-]+)\n", (DOCS / "options.md").read_text("utf-8"), flags=re.M)[1:]
    page = dict(zip(sections[::2], sections[1::2], strict=True))
    assert set(page) == set(DOORS)
    for verb, entry in DOORS.items():
        for each in settings_of_verb(entry):
            shown = f"`{each.key}=`" if each.option.within else f"`{each.flag}`"
            places = (shown, f"`{each.option.metavar or each.name.upper()}`")  # an argument has no flag
            assert any(place in page[verb] for place in places), f"foils {verb}: {each.flag}"


def test_llms_txt_has_every_page_and_verb_with_a_line_and_no_dead_link():
    lines = re.findall(r"^- \[(.+?)\]\(([^)#]+).*?\)(.*)$", (DOCS / "llms.txt").read_text("utf-8"), re.M)
    assert [link for _, link, _ in lines if not (DOCS / link).is_file()] == []
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert pages <= {link for _, link, text in lines if len(text) > 20}
    assert {f"foils {verb}" for verb in DOORS} <= {name for name, _, _ in lines}


def test_every_verb_has_a_schema_that_programs_are_told_of():
    guide = (DOCS / "for-agents.md").read_text("utf-8")
    assert {path.stem for path in (DOCS / "schemas").glob("*.json")} == {*DOORS, "negatives"}
    for name in (*DOORS, "negatives"):
        jsonschema.Draft202012Validator.check_schema(json.loads((DOCS / "schemas" / f"{name}.json").read_text("utf-8")))
        assert f"(schemas/{name}.json)" in guide


def test_the_schema_of_the_table_holds_its_rows_and_refuses_others(small):
    schema = json.loads((DOCS / "schemas" / "negatives.json").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    mined = foils.mine(small, "bm25", top=2)
    rows = [{name: None if value != value else value for name, value in row.items()} for row in mined.table.to_pylist()]
    assert rows
    assert [error.message for row in rows for error in validator.iter_errors(row)] == []
    wrong = [
        {"rank": -1},
        {"score": "high"},
        {"keep": False, "reason": None},
        {"keep": True, "reason": "near"},
        {"query_id": 3},
    ]
    assert all(not validator.is_valid({**rows[0], **change}) for change in wrong)


@pytest.mark.parametrize(
    ("text", "shown"),
    [("ir_datasets:ID, x*y <b>", r"ir\_datasets:ID, x\*y \<b\>"), ("as `a_b` or c_d", r"as `a_b` or c\_d")],
)
def test_nothing_in_a_help_text_is_markup(made, text, shown):
    assert made["_plain"](text) == shown
