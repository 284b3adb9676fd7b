"""Reads a docstring as a person would: the summary sentence, and the prose that follows it.

Sections, parameters and notes stay; what only a renderer or an interpreter wants goes (underlines, directives,
roles and quotes of reStructuredText and Markdown, doctests and fenced code, placeholders of templates).
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
