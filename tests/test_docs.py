"""The documentation's code runs, and the functions and tests that its tables name are there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
BLOCKS = [
    (page.name, number, block)
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S))
]


@pytest.mark.parametrize(("page", "number", "block"), BLOCKS, ids=[f"{page}-{number}" for page, number, _ in BLOCKS])
def test_code_in_the_documentation_runs(page, number, block, tmp_path, monkeypatch, beir_folder):
    beir_folder("scifact")  # what the examples call scifact/
    monkeypatch.chdir(tmp_path)
    exec(compile(block, f"{page}:{number}", "exec"), {"__name__": "__main__"})


def test_there_is_code_to_run():
    assert len(BLOCKS) >= 3


def test_functions_in_the_documentation_exist():
    missing = []
    for page in PAGES:
        for name in re.findall(r"`(foils\.[a-z_]+(?:\.\w+)+)`", page.read_text("utf-8")):
            if not exists(name):
                missing.append(f"{page.name}: {name}")
    assert not missing


def exists(dotted: str) -> bool:
    parts = dotted.split(".")
    for depth in range(len(parts), 0, -1):
        try:
            found = import_module(".".join(parts[:depth]))
        except ModuleNotFoundError:
            continue
        for part in parts[depth:]:
            if part in getattr(found, "__dataclass_fields__", {}):
                return True
            found = getattr(found, part, None)
        return found is not None
    return False


def test_files_in_the_documentation_exist():
    missing = []
    for page in PAGES:
        for name in re.findall(r"`((?:tests|benchmarks)/[\w./-]+)`", page.read_text("utf-8")):
            if not (ROOT / name).exists():
                missing.append(f"{page.name}: {name}")
    assert not missing
