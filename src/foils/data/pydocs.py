"""A real collection for retrieval from the documentation of installed Python packages.

A query is the summary line of a public function's, method's or class's docstring; its one relevant document is the
rest of that docstring. Source files are parsed, never imported, and nothing is downloaded: the same versions of the
packages give the same collection everywhere.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path
from platform import python_version

from foils.data.docstrings import split_docstring
from foils.data.duplicates import near_pairs
from foils.runtime import progress
from foils.runtime.errors import InputError

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

_MAX_BYTES = 1_000_000
_SUMMARY_WORDS = (4, 32)
_COMMON = 0.03  # a word in more than this share of the docstrings, and in more than _COMMON_LEAST of them, is common
_COMMON_LEAST = 20
_SKIPPED_FOLDERS = frozenset({"benchmarks", "examples", "externals", "test", "tests", "vendor", "vendored"})
_TEST_FILE = re.compile(r"test_.*|.*_test|conftest")
_WORD = re.compile(r"[^\W_]+")

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class PydocsData:
    """Documents, queries and judgements as plain lists, in the order of the documents' ids.

    Attributes:
        doc_ids: dotted names, such as `numpy.linalg._linalg.norm`.
        texts: the documents, parallel to `doc_ids`. They have no title: the name would give the answer away.
        query_ids: `q:` and the document's id, parallel to `queries`; never equal to a document's id, because tools
            in the manner of BEIR leave out a document that has its query's id.
        queries: the summaries.
        qrels: for each of train, dev and test, (query id, document id, 1), one for each query of the split.
        left_out: how many files and docstrings are not in the collection, by reason.
        versions: the version of each package that was read.
    """

    doc_ids: list[str]
    texts: list[str]
    query_ids: list[str]
    queries: list[str]
    qrels: dict[str, list[tuple[str, str, int]]]
    left_out: dict[str, int]
    versions: dict[str, str]


@dataclass(frozen=True)
class _Pair:
    name: str
    module: str
    summary: str
    text: str


def read_pydocs(
    packages: Sequence[str] | None = None,
    *,
    min_words: int = 20,
    max_words: int = 200,
    threshold: float = 0.85,
) -> PydocsData:
    """Build the collection from the sources of installed packages.

    A docstring is left out, and counted, when its name is private, it has no summary sentence of 4 to 32 words, the
    rest is short or repeats the summary, its summary has common words alone (each in more than 3 % of the docstrings
    that are left), or its summary or its rest nearly equals that of an earlier one: so that the one judgement of
    each query is the right one. Tests, vendored copies, private subpackages, files over 1 MB and files that do not
    parse are not read. A module's queries are all in one split: test and dev have a tenth of
    the modules each, by a digest of the module's name.

    Args:
        packages: names as imported, such as `sklearn`; None for those of `DEFAULT_PACKAGES` that are installed.
        min_words: fewest words of a document; a word is a run of letters and digits.
        max_words: a document is cut after this many words.
        threshold: Jaccard similarity, in (0, 1], of the sets of case-folded words from which two summaries or two
            documents count as nearly equal; 1 leaves out equal sets alone.

    Raises:
        InputError: a named package is not installed as Python source, or an option is out of its range.
    """
    if not 1 <= min_words <= max_words:
        raise InputError(f"min_words and max_words must be 1 <= min <= max, not {min_words} and {max_words}")
    left_out: Counter[str] = Counter()
    roots = _roots(packages, left_out)
    pairs = []
    for module, tree in _modules(roots, left_out):
        for name, docstring in _documented(tree, module, left_out):
            pair = _pair(name, module, docstring, min_words, max_words)
            if isinstance(pair, str):
                left_out[pair] += 1
            else:
                pairs.append(pair)
    pairs = _distinct(sorted(pairs, key=lambda pair: pair.name), threshold, left_out)
    pairs = _specific(pairs, left_out)
    if not pairs:
        raise InputError(f"no documentation of {min_words} words or more in: {', '.join(roots) or 'no package'}")
    qrels: dict[str, list[tuple[str, str, int]]] = {"train": [], "dev": [], "test": []}
    for pair in pairs:
        qrels[split_of(pair.module)].append((f"q:{pair.name}", pair.name, 1))
    return PydocsData(
        doc_ids=[pair.name for pair in pairs],
        texts=[pair.text for pair in pairs],
        query_ids=[f"q:{pair.name}" for pair in pairs],
        queries=[pair.summary for pair in pairs],
        qrels=qrels,
        left_out={reason: n for reason, n in sorted(left_out.items()) if n},
        versions=_versions(roots),
    )


def pydocs_versions(packages: Sequence[str] | None = None) -> dict[str, str]:
    """Return the version of each package that `read_pydocs` would read: what decides the collection."""
    return _versions(_roots(packages, Counter()))


def split_of(module: str) -> str:
    """Return the split of a module's queries: `test`, `dev` (a tenth of the names each) or `train`."""
    tenth = int.from_bytes(blake2b(module.encode(), digest_size=8).digest(), "big") * 10 >> 64
    return ("test", "dev")[tenth] if tenth < 2 else "train"


def _roots(packages: Sequence[str] | None, left_out: Counter[str]) -> dict[str, Path]:
    """Find where each package's source lies: its folder, or its one file."""
    roots: dict[str, Path] = {}
    missing = []
    for package in sorted(set(DEFAULT_PACKAGES if packages is None else packages)):
        source = _source(package)
        if source is None:
            missing.append(package)
        else:
            roots[package] = source.parent if source.name == "__init__.py" else source
    if packages is not None and missing:
        raise InputError(
            f"not installed as Python source: {', '.join(map(repr, missing))}; "
            "give names of top-level packages as they are imported, such as 'sklearn'"
        )
    if missing:
        left_out["default package that is not installed"] = len(missing)
    return roots


def _source(package: str) -> Path | None:
    """Return the file of a package's own code, without importing it."""
    if not package.isidentifier():
        return None  # looking for a dotted name imports its parents
    try:
        spec = find_spec(package)
    except ValueError:  # a module that says nothing of where it comes from, such as __main__
        return None
    path = Path(spec.origin) if spec and spec.origin and spec.has_location else None
    return path if path and path.suffix == ".py" else None


def _versions(roots: dict[str, Path]) -> dict[str, str]:
    distributions = packages_distributions()
    versions = {}
    for package in roots:
        if package in sys.stdlib_module_names:
            versions[package] = python_version()
        else:
            names = sorted(set(distributions.get(package, [])))
            versions[package] = ", ".join(version(name) for name in names) or "unknown"
    return versions


def _modules(roots: dict[str, Path], left_out: Counter[str]) -> Iterator[tuple[str, ast.Module]]:
    """Parse the source files, in the order of the modules' names."""
    named = []
    for package, root in roots.items():
        files = [root] if root.is_file() else root.rglob("*.py")
        named += [(_module_name(package, root, file), file, root) for file in files]
    with progress.task("reading documentation", total=len(named), unit="files") as advance:
        for module, file, root in sorted(named):
            advance(1)
            tree = _parse(file, root)
            if isinstance(tree, str):
                left_out[tree] += 1
            else:
                yield module, tree


def _module_name(package: str, root: Path, file: Path) -> str:
    if file == root:
        return package
    parts = [package, *file.relative_to(root).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _parse(file: Path, root: Path) -> ast.Module | str:
    """Return the syntax tree of a source file, or the reason why it is left out."""
    folders = file.relative_to(root).parts[:-1]
    if any(folder.startswith("_") for folder in folders):
        return "file of a private subpackage"
    if _SKIPPED_FOLDERS.intersection(folders) or _TEST_FILE.fullmatch(file.stem):
        return "file of tests, examples or vendored code"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a parsed package's invalid escapes are not ours to report
        try:
            if file.stat().st_size > _MAX_BYTES:
                return "file over 1 MB"
            return ast.parse(file.read_bytes())
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return "file that does not parse"


def _documented(node: ast.AST, prefix: str, left_out: Counter[str]) -> Iterator[tuple[str, str]]:
    """Yield the dotted name and docstring of every public definition, methods included, nested functions not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, Definition):
            docstring = ast.get_docstring(child)
            if child.name.startswith("_"):
                left_out["private name"] += docstring is not None
                continue
            name = f"{prefix}.{child.name}"
            if docstring is not None:
                yield name, docstring
            if isinstance(child, ast.ClassDef):
                yield from _documented(child, name, left_out)
        elif isinstance(child, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _documented(child, prefix, left_out)


def _pair(name: str, module: str, docstring: str, min_words: int, max_words: int) -> _Pair | str:
    """Return the query and document of one docstring, or the reason why it gives none."""
    short = f"fewer than {min_words} words after the summary"
    if len(_WORD.findall(docstring)) < min_words:
        return short
    parts = split_docstring(docstring)
    if parts is None:
        return "no summary sentence"
    summary, rest = parts
    asked, words = _WORD.findall(summary.casefold()), list(_WORD.finditer(rest))
    if not _SUMMARY_WORDS[0] <= len(asked) <= _SUMMARY_WORDS[1]:
        return "summary of fewer than 4 or more than 32 words"
    if len(words) < min_words:
        return short
    text = rest[: words[max_words - 1].end()] if len(words) > max_words else rest
    if f" {' '.join(asked)} " in f" {' '.join(_WORD.findall(text.casefold()))} ":
        return "document that repeats the summary"
    return _Pair(name, module, summary, text)


def _distinct(pairs: list[_Pair], threshold: float, left_out: Counter[str]) -> list[_Pair]:
    """Keep the first of those that have a name, or nearly a document or a summary, in common."""
    named: dict[str, _Pair] = {}
    for pair in pairs:
        named.setdefault(pair.name, pair)
    left_out["another definition of the same name"] += len(pairs) - len(named)
    unique = list(named.values())
    earlier: defaultdict[int, list[tuple[int, str]]] = defaultdict(list)
    for field in ("text", "summary"):
        sets = [_words(getattr(pair, field)) for pair in unique]
        for i, j in near_pairs(sets, threshold=threshold):
            earlier[j].append((i, "document" if field == "text" else field))
    kept: dict[int, _Pair] = {}
    for j, pair in enumerate(unique):
        same = next((what for i, what in earlier[j] if i in kept), None)
        if same is None:
            kept[j] = pair
        else:
            left_out[f"{same} nearly equal to an earlier one"] += 1
    return list(kept.values())


def _specific(pairs: list[_Pair], left_out: Counter[str]) -> list[_Pair]:
    """Keep the pairs whose summary has a word that is not common: others would fit many documents."""
    holders = Counter(word for pair in pairs for word in _words(f"{pair.summary} {pair.text}"))
    common = max(_COMMON * len(pairs), _COMMON_LEAST)
    kept = [pair for pair in pairs if any(holders[word] <= common for word in _words(pair.summary))]
    left_out["summary of common words alone"] += len(pairs) - len(kept)
    return kept


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))
