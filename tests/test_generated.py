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
    wrong = [{"rank": -1}, {"score": "high"}, {"keep": False, "reason": None}, {"keep": True, "reason": "near"}]
    assert all(not validator.is_valid({**rows[0], **change}) for change in wrong)
