"""The documentation's code runs, what its tables name is there, and every page of the menu can be reached."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from html import unescape
from importlib import import_module
from pathlib import Path

import pytest

import foils

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


def test_every_public_name_stands_in_the_reference(built):
    described = described_in(built / "objects.inv")
    rooms = [path.parent.name for path in sorted((ROOT / "src" / "foils").glob("*/__init__.py"))]
    public = [f"foils.{name}" for name in foils.__all__]
    for room in rooms:
        public += [f"foils.{room}.{name}" for name in getattr(import_module(f"foils.{room}"), "__all__", [])]
    assert len(public) > 200
    assert not [name for name in public if name not in described]


def described_in(inventory: Path) -> set[str]:
    """The Python objects that a built documentation describes, as Sphinx lists them for others."""
    content = inventory.read_bytes().split(b"\n", 4)[4]
    lines = zlib.decompress(content).decode().splitlines()
    return {line.split(" ", 1)[0] for line in lines if line.split(" ")[1].startswith("py:")}


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """The documentation as pages."""
    pytest.importorskip("sphinx")
    pytest.importorskip("myst_parser")
    pytest.importorskip("furo")
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", str(folder / "read"), str(ROOT / "docs")]
    done = subprocess.run([*command, str(folder / "html")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


def test_every_page_of_the_menu_holds_its_own_text(built):
    """Sphinx makes pages of its own (search, genindex), which would replace ours of the same name."""
    html = {page.stem: page.read_text("utf-8") for page in built.glob("*.html")}
    menu = re.findall(r'<li class="toctree-l1"><a [^>]*href="([^"]+)">(.*?)</a>', html["index"])
    written = {page.stem: page.read_text("utf-8") for page in (ROOT / "docs").glob("*.md") if page.stem != "index"}
    assert {link for link, _ in menu} == {f"{name}.html" for name in written}
    for name, text in written.items():
        headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M)
        shown = re.findall(r"<h\d>(.*?)<a class=\"headerlink\"", html[name])
        assert list(map(words, shown)) == list(map(words, headings))
        assert {tuple(words(title)) for link, title in menu if link == f"{name}.html"} == {tuple(words(headings[0]))}


def words(text: str) -> list[str]:
    """The words that a reader sees, whatever their quotation marks."""
    return re.findall(r"\w+", unescape(re.sub(r"<.*?>", "", text)))
