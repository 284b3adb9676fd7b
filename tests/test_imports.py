"""Imports point down, stages do not import one another, and heavy packages are loaded where they are used."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import foils

ROOT = Path(__file__).parents[1] / "src" / "foils"
STAGES = ("rating", "labelling", "selection", "batching", "training", "searching", "evaluation")
ARROWS = {  # among stages, only these
    "evaluation": {"searching"},
    "labelling": {"rating"},
    "rating": {"training"},
    "training": {"batching", "evaluation", "selection"},
}
LAYERS = (  # a part imports from parts on lines above its own, and from itself
    ("runtime",),
    ("data", "pages"),
    ("encode", "llm"),
    ("statistics", "upkeep"),
    ("mining", "scoring"),
    ("deciding",),
    STAGES,
    ("experiments",),
    ("cli",),
)
LAYER = {part: number for number, parts in enumerate(LAYERS) for part in parts}

HEAVY_MODULES = ("batching.sampler", "training.")  # torch's own: others import them inside functions alone
HEAVY = (  # numba is not among them: bm25s loads it where it is installed
    "torch", "transformers", "sentence_transformers", "ray", "faiss", "datasets", "ir_datasets", "huggingface_hub",
    "openai", "pymetis", "ir_measures", "polars", "peft", "mteb", "safetensors",
)  # fmt: skip
PARTS_OF_TERMINAL = {"rich": {"cli", "runtime"}, "cyclopts": {"cli"}, "jinja2": {"pages"}}


@dataclass(frozen=True)
class Import:
    """One imported module."""

    file: str
    line: int
    module: str


def imports_of(source: str, file: str) -> Iterator[Import]:
    """Read every import, those inside functions too."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            names = [f"foils.{alias.name}" for alias in node.names] if node.module == "foils" else [str(node.module)]
            yield from (Import(file, node.lineno, name) for name in names)


MODULES = [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.rglob("*.py"))]
ALL = [found for file in MODULES for found in imports_of((ROOT / file).read_text("utf-8"), file)]


def part(file_or_module: str) -> str:
    """The part of foils: `batching` of batching/kernels.py and of foils.batching.kernels."""
    return file_or_module.removeprefix("foils.").removesuffix(".py").replace("/", ".").partition(".")[0]


def listed(found: list[Import]) -> str:
    return "\n".join(f"{each.file}:{each.line}: {each.module}" for each in found)


def test_every_part_has_its_layer():
    parts = {part(path.relative_to(ROOT).as_posix()) for path in ROOT.rglob("*.py")} - {"__init__", "__main__"}
    assert parts <= set(LAYER), "give the new part a line in LAYERS"


def test_imports_point_down():
    own = [each for each in ALL if each.module.startswith("foils.") and part(each.file) not in ("__init__", "__main__")]
    assert len(own) > 100
    assert {part(each.file) for each in ALL if each.module == "foils"} <= {"cli"}, "the doors are for the program"
    wrong = [
        each
        for each in own
        if part(each.file) != part(each.module)
        and LAYER[part(each.module)] >= LAYER[part(each.file)]
        and part(each.module) not in ARROWS.get(part(each.file), ())
    ]
    assert not wrong, f"imports that do not point down:\n{listed(wrong)}"


def file_of(module: str) -> str | None:
    """The file of a module, or of the module that has the name: training/fit.py of foils.training.fit.train_model."""
    path = module.removeprefix("foils.").replace(".", "/")
    names = (f"{path}.py", f"{path}/__init__.py", f"{path.rpartition('/')[0]}.py")
    return next((name for name in names if name in MODULES), None)


def needed_files(file: str) -> set[str]:
    """The files of foils that a file imports, those inside functions too."""
    needed = set[str | None]()
    for node in ast.walk(ast.parse((ROOT / file).read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("foils"):
            needed |= {file_of(f"{node.module}.{alias.name}") or file_of(str(node.module)) for alias in node.names}
    return {name for name in needed if name is not None} - {file}


def test_no_file_imports_one_that_needs_it():
    reached = {file: needed_files(file) for file in MODULES}
    for through in MODULES:  # Warshall's closure
        for file in MODULES:
            if through in reached[file]:
                reached[file] = reached[file] | reached[through]
    circles = [{other for other in reached[file] if file in reached[other]} for file in MODULES]
    wrong = [sorted(circle) for circle in circles if circle]
    assert not wrong, f"files that import one another: {wrong}"


def test_the_house_is_drawn_as_it_stands():
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    drawing = re.search(r"^## The house\n\n((?:    .*\n|\n)+)", text, re.M)
    assert drawing
    lines = [re.split(" {4,}", line.strip())[0].replace("│", "").split() for line in drawing[1].splitlines()]
    assert [set(line) for line in reversed(lines) if line] == [set(parts) for parts in LAYERS]
    table = {stage: set(of.split(", ")) for stage, of in re.findall(r"^\| (\w+) \| ([\w, ]+) \|$", text, re.M)}
    assert {stage: of for stage, of in table.items() if stage in STAGES} == ARROWS


@pytest.mark.parametrize("package", PARTS_OF_TERMINAL)
def test_who_speaks_to_the_terminal(package):
    wrong = [
        each
        for each in ALL
        if each.module.partition(".")[0] == package and part(each.file) not in PARTS_OF_TERMINAL[package]
    ]
    assert not wrong, f"{package} belongs to {PARTS_OF_TERMINAL[package]}:\n{listed(wrong)}"


def loaded_by(statement: str) -> list[str]:
    program = f"{statement}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_what_is_heavy_is_loaded_where_it_is_used():
    assert loaded_by("import foils") == []
    names = [file.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for file in MODULES]
    light = [name for name in names if not name.startswith(HEAVY_MODULES) and name not in ("__init__", "__main__")]
    assert loaded_by("\n".join(f"import foils.{name}" for name in light)) == []


def test_no_test_needs_a_benchmark():
    """Tests stand alone; a benchmark may load what lies under tests. Only documentation shows benchmarks' tables."""
    tests = Path(__file__).parent
    benchmarks = {path.stem for path in (tests.parent / "benchmarks").glob("*.py")}
    for path in set(tests.rglob("*.py")) - {Path(__file__), tests / "test_docs.py"}:
        source = path.read_text("utf-8")
        assert not re.search(r"""["']benchmarks["']|benchmarks/["']""", source), f"{path} reaches into benchmarks"
        needed = {each.module.partition(".")[0] for each in imports_of(source, path.name)}
        assert not needed & benchmarks, f"{path} imports a benchmark"


def test_every_test_module_has_a_name_of_its_own():
    """Two of one name cannot be collected in one process."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert [name for name in set(names) if names.count(name) > 1] == []


def test_every_public_name_is_there_and_is_what_its_home_has():
    for name in foils.__all__:
        assert getattr(foils, name).__name__ == name
        assert name in dir(foils)


def test_another_name_is_not():
    with pytest.raises(AttributeError, match="mines"):
        foils.mines  # noqa: B018
