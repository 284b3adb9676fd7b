"""The documentation's code runs, what its tables name is there, and every page of the menu can be reached."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

import foils
from foils.cli.app import run
from foils.cli.program import options_of_verb, settings_of_verb
from foils.cli.verbs import DOORS

ROOT = Path(__file__).parents[1]
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
README = ROOT / "README.md"
PAGES = sorted([README, *(ROOT / "docs").glob("*.md")])


def in_consoles(text: str) -> list[tuple[str, str]]:
    """The commands of `foils` in blocks of a console, from the verb on, each with the output that is shown."""
    blocks = "\n".join(re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)).replace("\\\n", " ")
    return re.findall(r"^\$ foils ([a-z].*)\n((?:(?!\$ ).*\n)*)", blocks, re.M)


BLOCKS = [
    (page.name, number, block)
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S))
]


@pytest.mark.parametrize(("page", "number", "block"), BLOCKS, ids=[f"{page}-{number}" for page, number, _ in BLOCKS])
def test_code_in_the_documentation_runs(page, number, block, tmp_path, monkeypatch, beir_folder):
    beir_folder("scifact")  # what the examples call scifact/
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, f"{page}:{number}", "exec"), {"__name__": "__main__"})


THINGS = ["boat", "harbour", "tide", "rope", "sail", "mast", "keel", "anchor", "deck", "oar"]
COLOURS = ["red", "blue", "green", "white", "grey"]
PAIRS = [(f"which {a} is {b}?", f"the {a} of the {b} crew") for a in THINGS for b in COLOURS]


def write_pairs(folder: Path) -> None:
    """Write what the examples call pairs.csv."""
    rows = ["question,answer", *map(",".join, PAIRS)]
    (folder / "pairs.csv").write_text("\n".join(rows) + "\n", "utf-8")


SHOWN = [
    pytest.param(command, output, id=f"{page.name}: {command}")
    for page in PAGES
    for command, output in in_consoles(page.read_text("utf-8"))
    if output.strip()
]


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_tables_that_are_shown_are_those_that_are_printed(command, output, tmp_path, monkeypatch, capsys, beir_folder):
    monkeypatch.chdir(tmp_path)
    beir_folder("scifact")
    beir_folder(
        "banking77",
        documents={f"d{at}": ("", answer) for at, (_, answer) in enumerate(PAIRS)},
        queries={f"q{at}": question for at, (question, _) in enumerate(PAIRS)},
        qrels={"train": {f"q{at}": {f"d{at ^ 1}": 1} for at in range(len(PAIRS))}},  # a guide finds a nearer one
    )
    foils.mine("scifact/", "bm25").write("bm25.parquet")
    capsys.readouterr()
    assert run(shlex.split(command, comments=True)) == 0
    printed, shown = tables_in(capsys.readouterr().out), tables_in(output)
    assert shown
    assert [table for table in shown if table not in printed] == []


def tables_in(output: str) -> list[tuple[str, str]]:
    """Title and columns of the tables that a program prints, without their numbers and widths."""
    lines = [re.sub(r"\d[\d.,]*", "#", " ".join(line.split())) for line in output.splitlines() if line.strip()]
    return [(lines[at - 2], lines[at - 1]) for at, line in enumerate(lines) if set(line) == {"─"}]


def test_the_readme_is_short_and_its_links_and_cells_are_those_of_the_pages():
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 120
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []
    cells = re.compile(r"^\| .+[✅❌] \|$", re.M)
    assert cells.findall(text) == cells.findall((ROOT / "docs" / "peers.md").read_text("utf-8"))


def test_the_templates_for_methods_run():
    templates = re.findall(r"^```python\n(.*?)^```", CONTRIBUTING.read_text("utf-8"), re.M | re.S)
    assert len(templates) == 6
    exec(compile("\n".join(templates), CONTRIBUTING.name, "exec"), {"__name__": "__main__"})


def test_the_citation_is_of_this_version_and_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    cited = dict(re.findall(r"^(\w+): (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M))
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])


def test_functions_in_the_documentation_exist():
    names = named_in_pages(r"`(foils\.[a-z_]+(?:\.\w+)+)`")
    assert names
    assert [name for name in names if located(name) is None] == []


def located(dotted: str) -> Any:
    """The module, or what a module or a class has of this name; None: nothing."""
    try:
        return import_module(dotted)
    except ModuleNotFoundError:
        home, _, name = dotted.rpartition(".")
        owner = located(home) if home else None
        return getattr(owner, name, getattr(owner, "__dataclass_fields__", {}).get(name))


def named_in_pages(pattern: str) -> set[str]:
    return {name for page in [*PAGES, CONTRIBUTING] for name in re.findall(pattern, page.read_text("utf-8"))}


def test_files_in_the_documentation_exist():
    names = named_in_pages(r"`((?:tests|benchmarks)/[\w./-]+)`")
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_commands_in_the_documentation_name_verbs_and_options_that_there_are():
    flags = {verb: flags_of(verb) for verb in DOORS}
    wrong, commands = [], 0
    for page in [*PAGES, CONTRIBUTING]:
        text = page.read_text("utf-8")
        for verb, *rest in commands_in(text):
            commands += 1
            unknown = {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)} - flags.get(verb, set())
            wrong += [f"{page.name}: foils {verb} {flag}" for flag in unknown]
            wrong += [f"{page.name}: foils {verb}"] if verb not in DOORS else []
        named = set(re.findall("`(--[a-z][a-z-]*)", without_other_programs(text)))
        wrong += [f"{page.name}: {flag}" for flag in named.difference(*flags.values())]
    assert not wrong
    assert commands > 50


def test_keys_in_the_documentation_are_keys_of_their_options():
    known = {each.flag.removesuffix("…") for entry in DOORS.values() for each in settings_of_verb(entry)}
    pairs = named_in_pages(r"(--[a-z]+-args) \"?((?:[a-z_]+=[^`\"\s]*)+)")
    named = {f"{option} {key}" for option, keys in pairs for key in re.findall(r"[a-z_]+=", keys)}
    assert len(named) >= 8
    assert not named - known


def test_examples_of_the_help_name_options_that_there_are():
    for verb, entry in DOORS.items():
        program, named, *rest = shlex.split(entry.example)
        assert (program, named) == ("foils", verb)
        assert {word for word in rest if word.startswith("-")} <= flags_of(verb)


def flags_of(verb: str) -> set[str]:
    """Every name that the program has for an option of the verb."""
    settings = options_of_verb(DOORS[verb])
    switches = {f"--no-{each.flag.removeprefix('--')}" for each in settings if each.annotation in (bool, bool | None)}
    return switches.union({"--help"}, *({each.flag, each.option.short} for each in settings)) - {""}


def commands_in(text: str) -> list[list[str]]:
    """The words of the commands of `foils` in blocks of a console, and of those in the text, from the verb on."""
    commands = [command for command, _ in in_consoles(text)]
    commands += re.findall(r"`foils ([a-z][^`]*)`", without_blocks(text))
    return [shlex.split(command, comments=True) for command in commands]


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def without_other_programs(text: str) -> str:
    """The text without its blocks, and without paragraphs that say how a benchmark is run."""
    return "\n\n".join(
        part for part in without_blocks(text).split("\n\n") if not re.search(r"python benchmarks\b", part)
    )


@pytest.mark.slow  # builds the pages
def test_every_public_name_stands_in_the_reference(tmp_path):
    for extension in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(extension)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", str(tmp_path / "read"), str(ROOT / "docs")]
    subprocess.run([*command, str(tmp_path / "html")], check=True)
    lines = zlib.decompress((tmp_path / "html" / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    described = {line.split(" ", 1)[0] for line in lines if line.split(" ")[1].startswith("py:")}
    last = {name.rpartition(".")[2] for name in described}  # what foils itself hands on is described in its package
    assert [name for name in foils.__all__ if name not in last] == []
    rooms = [f"foils.{path.parent.name}" for path in (ROOT / "src" / "foils").glob("*/__init__.py")]
    public = {f"{room}.{name}" for room in rooms for name in getattr(import_module(room), "__all__", [])}
    assert len(public) > 200
    assert not public - described
