"""Imports point down, stages do not import one another, and heavy packages are loaded where they are used."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "foils"
STAGES = ("mining", "scoring", "rating", "labelling", "selection", "batching", "training", "searching", "evaluation")
ARROWS = {  # among stages, only these
    "evaluation": {"searching"},
    "labelling": {"deciding", "rating", "scoring"},
    "rating": {"training"},
    "searching": {"mining"},
    "selection": {"deciding", "mining", "scoring"},
    "training": {"batching", "evaluation", "mining", "selection"},
}
LAYERS = (  # a part imports from parts on lines above its own, and from itself
    ("runtime",),
    ("data", "pages"),
    ("encode", "llm"),
    ("statistics", "upkeep"),
    STAGES,
    ("deciding",),
    ("experiments",),
    ("cli",),
)
LAYER = {part: number for number, parts in enumerate(LAYERS) for part in parts}

LIGHT = {  # what any module may import when it is loaded, beside the standard library
    "bm25s", "cyclopts", "jinja2", "lazy_loader", "numpy", "pyarrow", "rich", "scipy", "sklearn", "Stemmer",
    "threadpoolctl", "xxhash",
}  # fmt: skip
HEAVY_MODULES = {  # modules that cannot do without: others may import them inside functions alone
    "batching/kernels.py": {"numba"},
    "batching/sampler.py": {"sentence_transformers", "torch", "transformers"},
}
HEAVY_PARTS = {"training": {"safetensors", "torch", "sentence_transformers", "transformers"}}  # tensors all through
PARTS_OF_TERMINAL = {"rich": {"cli", "runtime"}, "cyclopts": {"cli"}, "jinja2": {"pages"}}


@dataclass(frozen=True)
class Import:
    """One imported name, and whether loading the module loads it."""

    file: str
    line: int
    module: str
    at_load: bool


def imports_of(source: str, file: str) -> Iterator[Import]:
    """Read every import; those inside functions, or for type checkers alone, do not happen when a module is loaded."""

    def visit(node: ast.AST, at_load: bool) -> Iterator[Import]:
        if isinstance(node, ast.Import):
            yield from (Import(file, node.lineno, alias.name, at_load) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno}: relative import"
            if node.module == "foils":  # its parts are modules
                yield from (Import(file, node.lineno, f"foils.{alias.name}", at_load) for alias in node.names)
            else:
                yield Import(file, node.lineno, str(node.module), at_load)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for child in node.body:
                yield from visit(child, False)
            for child in node.orelse:
                yield from visit(child, at_load)
        else:
            inner = at_load and not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            for child in ast.iter_child_nodes(node):
                yield from visit(child, inner)

    yield from visit(ast.parse(source), True)


ALL = [
    found
    for path in sorted(ROOT.rglob("*.py"))
    for found in imports_of(path.read_text("utf-8"), path.relative_to(ROOT).as_posix())
]


def part(file_or_module: str) -> str:
    """The part of foils: `batching` of batching/kernels.py and of foils.batching.kernels."""
    return file_or_module.removeprefix("foils.").removesuffix(".py").replace("/", ".").partition(".")[0]


def listed(found: list[Import]) -> str:
    return "\n".join(f"{each.file}:{each.line}: {each.module}" for each in found)


def test_every_part_has_its_layer():
    parts = {part(path.relative_to(ROOT).as_posix()) for path in ROOT.rglob("*.py")} - {"__init__", "__main__"}
    assert parts <= set(LAYER), "give the new part a line in LAYERS"


def test_imports_point_down():
    own = [each for each in ALL if each.module.startswith("foils") and part(each.file) not in ("__init__", "__main__")]
    assert len(own) > 100
    wrong = [
        each
        for each in own
        if part(each.file) != part(each.module)
        and LAYER[part(each.module)] >= LAYER[part(each.file)]
        and part(each.module) not in ARROWS.get(part(each.file), ())
    ]
    assert not wrong, f"imports that do not point down:\n{listed(wrong)}"


def test_the_house_is_drawn_as_it_stands():
    text = (ROOT.parents[1] / "CONTRIBUTING.md").read_text("utf-8")
    drawing = re.search(r"^## The house\n\n((?:    .*\n|\n)+)", text, re.M)
    assert drawing
    lines = [re.split(" {4,}", line.strip())[0].replace("│", "").split() for line in drawing[1].splitlines()]
    assert [set(line) for line in reversed(lines) if line] == [set(parts) for parts in LAYERS]
    table = {stage: set(of.split(", ")) for stage, of in re.findall(r"^\| (\w+) \| ([\w, ]+) \|$", text, re.M)}
    assert {stage: of for stage, of in table.items() if stage in STAGES} == ARROWS


def may_load(each: Import) -> bool:
    """Whether a module may load this when it is loaded itself: what is light, or where heavy things are allowed."""
    package, own = each.module.partition(".")[0], f"{each.module.removeprefix('foils.').replace('.', '/')}.py"
    if package == "foils":
        free = own not in HEAVY_MODULES and part(each.module) not in HEAVY_PARTS
        return free or each.file in HEAVY_MODULES or part(each.file) in HEAVY_PARTS
    allowed = HEAVY_MODULES.get(each.file, set()) | HEAVY_PARTS.get(part(each.file), set())
    return package in sys.stdlib_module_names or package in LIGHT or package in allowed


def test_what_is_heavy_is_imported_where_it_is_used():
    wrong = [each for each in ALL if each.at_load and not may_load(each)]
    assert not wrong, f"import these inside the functions that use them:\n{listed(wrong)}"


@pytest.mark.parametrize("package", PARTS_OF_TERMINAL)
def test_who_speaks_to_the_terminal(package):
    wrong = [
        each
        for each in ALL
        if each.module.partition(".")[0] == package and part(each.file) not in PARTS_OF_TERMINAL[package]
    ]
    assert not wrong, f"{package} belongs to {PARTS_OF_TERMINAL[package]}:\n{listed(wrong)}"


HEAVY = (  # numba is not among them: bm25s loads it where it is installed
    "torch", "transformers", "sentence_transformers", "ray", "faiss", "datasets", "ir_datasets", "huggingface_hub",
    "openai", "plotly", "pymetis", "ir_measures",
)  # fmt: skip


def loaded_by(statement: str) -> list[str]:
    program = f"{statement}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_import_foils_loads_nothing_heavy():
    parts = [part for parts in LAYERS for part in parts if (ROOT / part).is_dir() or (ROOT / f"{part}.py").is_file()]
    assert loaded_by("import foils") == []
    assert loaded_by("\n".join(f"import foils.{each}" for each in parts)) == []


def test_no_test_needs_a_benchmark():
    """Tests stand alone; a benchmark may load what lies under tests."""
    tests = Path(__file__).parent
    benchmarks = {path.stem for path in (tests.parent / "benchmarks").glob("*.py")}
    for path in set(tests.rglob("*.py")) - {Path(__file__)}:
        source = path.read_text("utf-8")
        assert not re.search(r"""["']benchmarks["']|benchmarks/["']""", source), f"{path} reaches into benchmarks"
        needed = {each.module.partition(".")[0] for each in imports_of(source, path.name)}
        assert not needed & benchmarks, f"{path} imports a benchmark"


def test_every_test_module_has_a_name_of_its_own():
    """Two of one name cannot be collected in one process."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert [name for name in set(names) if names.count(name) > 1] == []
