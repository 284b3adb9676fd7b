"""Reads a docstring as a person would: the summary sentence, and the prose that follows it.

Sections, parameters and notes stay; what only a renderer or an interpreter wants goes (underlines, directives,
roles and quotes of reStructuredText and Markdown, doctests and fenced code, placeholders of templates).
"""

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

_UNDERLINE = re.compile(r"\s*([-=~^\"*+#])\1{2,}\s*")


_CODE_DIRECTIVE = re.compile(r"\s*\.\.\s*(?:code|code-block|sourcecode|plot|testcode|doctest)\s*::")


_SILENT_DIRECTIVE = re.compile(
    r"\s*\.\.\s*(?:(?:versionadded|versionchanged|deprecated|autosummary|toctree|index)\s*::|_[^:]*:)"
)


_ADMONITION = re.compile(r"^(\s*)(?:\.\.\s+(?:[\w-]+\s*::)?|[!?]{3}\+?|>(?:\s*\[!\w+\])?)\s*")


_BULLET = re.compile(r"\s*(?:[-*+•]|\(?\w{1,2}[.)]|:\w+ [^:]*:)\s")


_EXAMPLES = re.compile(r"\W*(?:examples?|usage)\W*", re.IGNORECASE)


_SECTION = re.compile(
    r"(?:(?:keyword |other )?(?:args|arguments|parameters|params)|inputs?|outputs?|returns?|yields?|raises|notes?"
    r"|examples?|usage|attributes|shapes?|references|see also|warnings?|methods)\s*::?",
    re.IGNORECASE,
)


# Each pattern with a text that is present wherever it matches.
_MARKUP: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("%(", re.compile(r"%\([^)]*\)[sd]"), " "),  # a template's placeholder
    (":`", re.compile(r":[\w:+-]+:`~[^`<>]*?([^`.<>]+)`"), r"\1"),  # :class:`~torch.nn.ReLU` shows ReLU
    (":`", re.compile(r":[\w:+-]+:`([^`<>]+?)\s*<[^`>]*>`"), r"\1"),  # :ref:`text <target>`
    (":`", re.compile(r":[\w:+-]+:`!?([^`]+)`"), r"\1"),
    (">`_", re.compile(r"`([^`<>]+?)\s*<[^`>]*>`_{1,2}"), r"\1"),  # `text <address>`_
    ("[`", re.compile(r"\[+`~?([^`]*)`\]+(?:\([^)]*\))?"), r"\1"),  # [`Class`](address)
    ("](", re.compile(r"\[([^\]\[]+)\]\([^)]*\)"), r"\1"),  # [text](address)
    ("]_", re.compile(r"(?:\s*\[#?\w+\]_)+"), ""),  # a citation's mark
    ("`~", re.compile(r"`~[^`]*?([^`.]+)`"), r"\1"),
    ("`", re.compile(r"`+([^`]*)`+_{0,2}"), r"\1"),
    ("*", re.compile(r"(?<![\w*])(\*{1,2})(?![\s*])([^*]+?)(?<!\s)\1(?![\w*])"), r"\2"),  # emphasis
    ("::", re.compile(r"::(?=\s|$)"), ":"),
)


_SENTENCE_END = re.compile(r"(?<!\.)[.!?][\"')\]]*(?=\s+[\"'`(\[]*[A-Z0-9])")


_ABBREVIATION = re.compile(r"(?:^|[\s(\[])(?:(?:\w\.)+|(?:cf|resp|vs|etc|eq|fig|al|approx|no)\.)$", re.IGNORECASE)


_SIGNATURE = re.compile(r"[\w.]+\s*\(.*\)\s*(?:->.*|:)?|.*\)\s*->.*", re.DOTALL)


_FIELD = re.compile(r"\*{0,2}[\w.]+\*{0,2}\s*(?:\(.*?\))?\s*:(?:\s|$)")


def split_docstring(docstring: str) -> tuple[str, str] | None:
    """Split a docstring into its summary and the rest, both as plain text.

    The summary is the first sentence of the first paragraph, on one line. The rest is everything after it, one
    paragraph, list item or parameter a line; it may be empty.

    Args:
        docstring: dedented, as `ast.get_docstring` gives it.

    Returns:
        (summary, rest), or None where the docstring does not open with a sentence: a signature, a parameter, a
        section, code, or words that announce a list or a formula (they end in a colon).
    """
    lines = docstring.strip().split("\n")
    end = next((i for i in range(1, len(lines)) if _ends_summary(lines, i)), len(lines))
    paragraph = " ".join(line.strip() for line in lines[:end])
    if (
        paragraph.startswith("```")
        or _SECTION.match(paragraph)
        or _SIGNATURE.fullmatch(paragraph)
        or _FIELD.match(paragraph)
    ):
        return None
    sentence, remainder = _first_sentence(paragraph)
    summary = plain(sentence)
    if not summary or not summary[0].isalnum() or summary.endswith(":") or ">>>" in summary:
        return None
    rest = readable(lines[end:])
    return summary, "\n".join(part for part in (plain(remainder), rest) if part)


def _ends_summary(lines: list[str], i: int) -> bool:
    line = lines[i].strip()
    return (
        not line
        or line.startswith((":param", ">>>", ".. ", "```"))
        or bool(_SECTION.fullmatch(line) or _BULLET.match(line))
        or (i + 1 < len(lines) and bool(_UNDERLINE.fullmatch(lines[i + 1])))
    )


def _first_sentence(paragraph: str) -> tuple[str, str]:
    for match in _SENTENCE_END.finditer(paragraph):
        if not _ABBREVIATION.search(paragraph[: match.start() + 1]):
            return paragraph[: match.end()], paragraph[match.end() :].strip()
    return paragraph, ""


def plain(text: str) -> str:
    """Return text on one line, without inline markup."""
    for present, pattern, replacement in _MARKUP:
        if present in text:
            text = pattern.sub(replacement, text)
    return " ".join(text.split())


def readable(lines: list[str]) -> str:
    """Join lines into paragraphs, list items and parameters, one a line, without code, directives or underlines.

    A line continues the one before it unless a blank line or a heading stands between them, it opens a list
    item, or it is less indented: "x : float", its indented description and the next parameter come apart.
    """
    blocks: list[list[str]] = []
    joined, indent = False, 0
    for line in _prose(lines):
        if not line.strip():
            joined = False
            continue
        depth = len(line) - len(line.lstrip())
        if joined and depth >= indent and not _BULLET.match(line):
            blocks[-1].append(line)
        else:
            blocks.append([line])
        joined, indent = True, depth
    return "\n".join(text for block in blocks if (text := plain("\n".join(block))))


def _prose(lines: list[str]) -> list[str]:
    """Put blank lines for doctests, fenced code, code directives and underlines, and around headings."""
    out: list[str] = []
    fenced = doctest = False
    code: int | None = None  # how far the code directive is indented whose body is being left out
    for i, line in enumerate(lines):
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if code is not None and stripped and depth <= code:
            code = None
        doctest = bool(stripped) and (doctest or stripped.startswith(">>>"))
        fence = stripped.startswith(("```", "~~~")) and not _UNDERLINE.fullmatch(line)
        fenced ^= fence
        if fence or fenced or doctest or code is not None or not stripped:
            out.append("")
        elif _CODE_DIRECTIVE.match(line):
            code = depth
        elif _SILENT_DIRECTIVE.match(line) or _UNDERLINE.fullmatch(line) or _EXAMPLES.fullmatch(stripped):
            out.append("")
        elif i + 1 < len(lines) and _UNDERLINE.fullmatch(lines[i + 1]):
            out += ["", line, ""]
        else:
            out.append(_ADMONITION.sub(r"\1", line))
    return out


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
_MAX_BYTES = 1_000_000
_SUMMARY_WORDS = (4, 32)
_COMMON = 0.03  # a word in more than this share of the docstrings, and in more than _COMMON_LEAST of them, is common
_COMMON_LEAST = 20
_SKIPPED_FOLDERS = frozenset({"benchmarks", "examples", "externals", "test", "tests", "vendor", "vendored"})
_TEST_FILE = re.compile(r"test_.*|.*_test|conftest")
_WORD = re.compile(r"[^\W_]+")
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True)
class Docstring:
    """A query and its document.

    Attributes:
        name: dotted, such as `numpy.linalg._linalg.norm`: the document's id. `q:` and the name is the query's, never
            equal to a document's, because tools in the manner of BEIR leave out a document that has its query's id.
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

    A docstring is left out when its name is private, it has no summary sentence of 4 to 32 words, the rest is short or
    repeats the summary, its summary has common words alone (each in more than 3 % of the docstrings that are left), or
    its summary or its rest nearly equals that of an earlier one: so that the one judgement of each query is the right
    one. Tests, vendored copies, private subpackages, files over 1 MB and files that do not parse are not read. A
    module's queries are all in one split: test and dev have a tenth of the modules each, by a digest of the module's
    name.

    Args:
        packages: names as imported, such as `sklearn`; None for those of `DEFAULT_PACKAGES` that are installed.

    Raises:
        InputError: a named package is not installed as Python source, or there is no documentation.
    """
    roots = _roots(packages)
    documented = (
        _docstring(name, module, text) for module, tree in _modules(roots) for name, text in _documented(tree, module)
    )
    found = sorted((each for each in documented if each), key=lambda each: each.name)
    kept = _specific(_distinct(list({each.name: each for each in reversed(found)}.values())[::-1]))
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
    found: dict[str, Path] = {}
    for package in (wanted := sorted({*(DEFAULT_PACKAGES if packages is None else packages)})):
        try:  # looking for a dotted name imports its parents; __main__ says nothing of where it comes from
            spec = find_spec(package) if package.isidentifier() else None
        except ValueError:
            continue
        if spec and spec.has_location and (origin := Path(spec.origin or "")).suffix == ".py":
            found[package] = origin.parent if origin.name == "__init__.py" else origin
    if packages is not None and (missing := [package for package in wanted if package not in found]):
        said = f"not installed as Python source: {', '.join(map(repr, missing))}"
        raise InputError(f"{said}; give names of top-level packages as they are imported, such as 'sklearn'")
    return found


def _modules(roots: dict[str, Path]) -> Iterator[tuple[str, ast.Module]]:
    """Parse the source files, in the order of the modules' names."""
    named = []
    for package, root in roots.items():
        for file in [root] if root.is_file() else root.rglob("*.py"):
            parts = [package, *file.relative_to(root).with_suffix("").parts] if file != root else [package]
            named.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), file, root))
    with progress.task("reading documentation", total=len(named), unit="files") as advance:
        for module, file, root in sorted(named):
            advance(1)
            if tree := _parse(file, root):
                yield module, tree


def _parse(file: Path, root: Path) -> ast.Module | None:
    folders = file.relative_to(root).parts[:-1]
    private = any(folder.startswith("_") for folder in folders)
    if private or _SKIPPED_FOLDERS.intersection(folders) or _TEST_FILE.fullmatch(file.stem):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a parsed package's invalid escapes are not ours to report
        try:
            return ast.parse(file.read_bytes()) if file.stat().st_size <= _MAX_BYTES else None
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            return None


def _documented(node: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield the dotted name and docstring of every public definition, methods included, nested functions not."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            yield from _documented(child, prefix)
        elif isinstance(child, Definition) and not child.name.startswith("_"):
            name = f"{prefix}.{child.name}"
            if (docstring := ast.get_docstring(child)) is not None:
                yield name, docstring
            if isinstance(child, ast.ClassDef):
                yield from _documented(child, name)


def _docstring(name: str, module: str, docstring: str) -> Docstring | None:
    """Return the query and document of one docstring; None where it gives none."""
    if len(_WORD.findall(docstring)) < MIN_WORDS or (parts := split_docstring(docstring)) is None:
        return None
    summary, rest = parts
    asked, words = _WORD.findall(summary.casefold()), list(_WORD.finditer(rest))
    if not _SUMMARY_WORDS[0] <= len(asked) <= _SUMMARY_WORDS[1] or len(words) < MIN_WORDS:
        return None
    text = rest[: words[MAX_WORDS - 1].end()] if len(words) > MAX_WORDS else rest
    repeated = f" {' '.join(asked)} " in f" {' '.join(_WORD.findall(text.casefold()))} "
    return None if repeated else Docstring(name, module, summary, text)


def _distinct(found: list[Docstring]) -> list[Docstring]:
    """Keep the first of those that have nearly a document or a summary in common."""
    texts, summaries = [_words(each.text) for each in found], [_words(each.summary) for each in found]
    kept: set[int] = set()
    earlier: dict[int, list[int]] = {at: [] for at in range(len(found))}
    for i, j in (*near_pairs(texts, threshold=NEAR), *near_pairs(summaries, threshold=NEAR)):
        earlier[j].append(i)
    for at, others in earlier.items():
        if kept.isdisjoint(others):
            kept.add(at)
    return [found[at] for at in sorted(kept)]


def _specific(found: list[Docstring]) -> list[Docstring]:
    """Keep those whose summary has a word that is not common: others would fit many documents."""
    holders = Counter(word for each in found for word in _words(f"{each.summary} {each.text}"))
    common = max(_COMMON * len(found), _COMMON_LEAST)
    return [each for each in found if any(holders[word] <= common for word in _words(each.summary))]


def _words(text: str) -> frozenset[str]:
    return frozenset(_WORD.findall(text.casefold()))
