"""The documentation of installed packages: the first paragraph of a docstring asks, and the rest of it answers."""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from foils.data.tokens import near_pairs
from foils.runtime import progress
from foils.runtime.errors import InputError

LEFT_OUT = re.compile(r"(?m)^[ \t]*>>>.*(?:\n[ \t]*\S.*)*|^[ \t]*([-=~])\1{2,}[ \t]*$|:[\w:+-]+:(?=`)|`")
"""What is not read of a docstring: doctests to the next blank line, the lines under headings, roles and quotes."""
DEFAULT_PACKAGES = (
    "filelock",
    "fsspec",
    "huggingface_hub",
    "jinja2",
    "joblib",
    "networkx",
    "numpy",
    "pyarrow",
    "rich",
    "scipy",
    "sentence_transformers",
    "sklearn",
    "sympy",
    "torch",
    "tqdm",
    "typer",
)
"""Packages with much documentation that foils' own requirements bring along (`transformers` is left out: most of
its docstrings repeat one template for each of hundreds of models)."""
MIN_WORDS, MAX_WORDS = 20, 200  # of a document, which is cut after the last; a word is a run of letters and digits
NEAR = 0.85  # Jaccard similarity of case-folded words from which two summaries or documents are nearly equal
_COMMON = 0.03  # a word in more than this share of the docstrings, and in more than _COMMON_LEAST of them, is common
_COMMON_LEAST = 20
_SKIPPED_FOLDERS = frozenset({"benchmarks", "examples", "externals", "test", "tests", "vendor", "vendored"})
_TEST_FILE = re.compile(r"test_.*|.*_test|conftest")
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Docstring:
    """A query and its document.

    Attributes:
        name: dotted, such as `numpy.linalg._linalg.norm`: the document's id. `q:` and the name is
            the query's, never equal to a document's, because tools in the manner of BEIR leave out
            a document that has its query's id.
        module: that it is in.
        summary: the query.
        text: the document. It has no title: the name would give the answer away.
    """

    name: str
    module: str
    summary: str
    text: str


def read_pydocs(packages: Sequence[str] | None = None) -> list[Docstring]:
    """Return a query and a document for each function and class of installed packages, from their sources, by name.

    A docstring is left out when its name is private, its first paragraph is no summary (4 to 32
    words without a colon that end in a full stop), the rest is short or repeats the summary, the
    summary has common words alone (each in more than 3 % of the docstrings that are left), or its
    summary or its rest nearly equals that of an earlier one: so that the one judgement of each
    query is the right one. Tests, vendored copies, private subpackages and files that do not parse
    are not read. A module's queries are all in one split: test and dev have a tenth of the modules
    each, by a digest of the module's name.

    Args:
        packages: names as imported, such as `sklearn`; None for those of `DEFAULT_PACKAGES` that
            are installed.

    Raises:
        InputError: a named package is not installed as Python source, or there is no documentation.
    """
    roots = _roots(packages)
    documented: dict[str, Docstring] = {}
    for module, tree in _modules(roots):
        for name, docstring in _documented(tree, module):
            parts = LEFT_OUT.sub("", docstring).strip().partition("\n\n")
            summary, _, rest = (" ".join(part.split()) for part in parts)
            asked, words = _WORD.findall(summary.casefold()), list(_WORD.finditer(rest))
            is_sentence = summary.endswith(".") and summary[0].isalnum() and ":" not in summary
            if is_sentence and 4 <= len(asked) <= 32 and len(words) >= MIN_WORDS:
                text = rest[: words[MAX_WORDS - 1].end()] if len(words) > MAX_WORDS else rest
                if f" {' '.join(asked)} " not in f" {' '.join(_WORD.findall(text.casefold()))} ":
                    documented.setdefault(name, Docstring(name, module, summary, text))
    docstrings = [documented[name] for name in sorted(documented)]
    texts, summaries = [_words(each.text) for each in docstrings], [_words(each.summary) for each in docstrings]
    repeated = set[int]()  # those that have nearly a document or a summary in common with an earlier one
    for earlier, later in sorted(near_pairs(texts, threshold=NEAR) + near_pairs(summaries, threshold=NEAR)):
        if earlier not in repeated:
            repeated.add(later)
    distinct = [each for at, each in enumerate(docstrings) if at not in repeated]
    holders = Counter(word for each in distinct for word in _words(f"{each.summary} {each.text}"))
    common = max(_COMMON * len(distinct), _COMMON_LEAST)
    kept = [each for each in distinct if any(holders[word] <= common for word in _words(each.summary))]
    if not kept:
        raise InputError(f"no documentation of {MIN_WORDS} words or more in: {', '.join(roots) or 'no package'}")
    return kept


def pydocs_versions(packages: Sequence[str] | None = None) -> dict[str, str]:
    """Return the version of each package that `read_pydocs` would read; with Python's they decide the collection."""
    distributions = packages_distributions()
    return {package: ", ".join(map(version, sorted({*distributions.get(package, [])}))) for package in _roots(packages)}


def split_of(module: str) -> str:
    """Return the split of a module's queries: `test`, `dev` (a tenth of the names each) or `train`."""
    tenth = int.from_bytes(blake2b(module.encode(), digest_size=8).digest(), "big") * 10 >> 64
    return ("test", "dev")[tenth] if tenth < 2 else "train"


def _roots(packages: Sequence[str] | None) -> dict[str, Path]:
    """Find where each package's source lies: its folder, or its one file."""
    roots: dict[str, Path] = {}
    wanted = sorted({*(DEFAULT_PACKAGES if packages is None else packages)})
    for package in wanted:
        spec = find_spec(package) if package.isidentifier() else None  # a dotted name's parents would be imported
        origin = Path(spec.origin or "") if spec and spec.has_location else Path()
        if origin.suffix == ".py":
            roots[package] = origin.parent if origin.name == "__init__.py" else origin
    missing = [package for package in wanted if package not in roots]
    if packages is not None and missing:
        problem = f"not installed as Python source: {', '.join(map(repr, missing))}"
        raise InputError(f"{problem}; give names of top-level packages as they are imported, such as 'sklearn'")
    return roots


def _modules(roots: dict[str, Path]) -> Iterator[tuple[str, ast.Module]]:
    """Parse the source files, in the order of the modules' names."""
    named = []
    for package, root in roots.items():
        for file in [root] if root.is_file() else root.rglob("*.py"):
            folders = file.relative_to(root).parts[:-1]
            private = any(folder.startswith("_") or folder in _SKIPPED_FOLDERS for folder in folders)
            if not private and not _TEST_FILE.fullmatch(file.stem):
                of_file = [] if file == root or file.stem == "__init__" else [file.stem]
                named.append((".".join([package, *folders, *of_file]), file))
    with progress.task("reading documentation", total=len(named), unit="files") as advance:
        for module, file in sorted(named):
            advance(1)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # a parsed package's invalid escapes are not ours to report
                try:
                    tree = ast.parse(file.read_bytes())
                except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
                    continue
            yield module, tree


def _documented(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the dotted name and docstring of every public definition, methods included, nested functions not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _documented(child, prefix)
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and child.name[0] != "_":
            name = f"{prefix}.{child.name}"
            docstring = ast.get_docstring(child)
            if docstring is not None:
                yield name, docstring
            if isinstance(child, ast.ClassDef):
                yield from _documented(child, name)


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))
