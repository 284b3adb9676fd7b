"""Opens a collection by what users write: pairs, a BEIR folder, a data set of a hub, a task of MTEB, pydocs.

In `pydocs`, the documentation of installed packages, the first paragraph of a docstring asks, and
the rest answers.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from itertools import chain
from os.path import exists, isdir
from pathlib import Path
from platform import python_version
from typing import Annotated, Any, cast

from foils.data.collection import SPLITS, Collection, Keep, build, checked_collection, judgement, row_sources
from foils.data.labels import LabelsLike, with_judgements
from foils.data.pairs import USUAL, parsed_columns, read_pairs, split_name
from foils.data.records import ENDINGS, Complaints, Fields, Records, fetching, json_objects, numbered_lines, records_in
from foils.data.tables import ArrowTable, DataSet
from foils.data.tokens import near_pairs
from foils.runtime import progress
from foils.runtime.errors import InputError, check_names, require
from foils.runtime.files import existing_file
from foils.runtime.options import Option, Settings, door, refuse, several

# what is not read of a docstring: doctests to the next blank line, the lines under headings, roles and quotes
LEFT_OUT = re.compile(r"(?m)^[ \t]*>>>.*(?:\n[ \t]*\S.*)*|^[ \t]*([-=~])\1{2,}[ \t]*$|:[\w:+-]+:(?=`)|`")
# packages with much documentation that foils' own requirements bring along (`transformers` is left
# out: most of its docstrings repeat one template for each of hundreds of models)
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
# of a document, which is cut after the last; a word is a run of letters and digits
MIN_WORDS, MAX_WORDS = 20, 200
NEAR = 0.85  # Jaccard similarity of case-folded words from which two summaries or documents are nearly equal
# a word in more than this share of the docstrings, and in more than _COMMON_LEAST of them, is common
_COMMON = 0.03
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
    """Return the version of each package that `read_pydocs` would read.

    With Python's they decide the collection.
    """
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
        # a dotted name's parents would be imported
        spec = find_spec(package) if package.isidentifier() else None
        origin = Path(spec.origin or "") if spec and spec.has_location else Path()
        if origin.suffix == ".py":
            roots[package] = origin.parent if origin.name == "__init__.py" else origin
    missing = [package for package in wanted if package not in roots]
    if packages is not None and missing:
        raise InputError(f"not installed as Python source: {', '.join(missing)}; expected names such as 'sklearn'")
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


FILES = ("corpus.jsonl", "queries.jsonl")
LAYOUT = "a BEIR folder holds corpus.jsonl, queries.jsonl and qrels/{train,dev,test}.tsv, each plain or .gz"


def read_beir(name: str) -> Collection:
    """Read a BEIR folder.

    The Arrow form is stored in the cache and used again while the files stay as they are.

    A folder without `qrels` is a collection without judgements.

    Args:
        name: the folder, as BEIR lays it out.

    Raises:
        InputError: one of its files is missing.
        FormatError: what is wrong in a file, with lines.
    """
    folder = Path(name)
    if not exists(folder):  # noqa: PTH110  a name may be too long
        raise InputError(f"{name}: no such folder or file; {LAYOUT}")
    texts = {file: path for file in FILES for path in (folder / f"{file}.gz", folder / file) if path.is_file()}
    packed_then_plain = (path for gz in (".gz", "") for path in (folder / "qrels").glob(f"[!.]*.tsv{gz}"))
    judged = {path.name.partition(".tsv")[0]: path for path in packed_then_plain if path.is_file()}
    missing = [file for file in FILES if file not in texts]
    if not judged and (missing or (folder / "qrels").exists()):
        missing.append("qrels/*.tsv")
    if missing:
        raise InputError(f"{folder}: no {', no '.join(missing)}; {LAYOUT}")
    documents, queries = (Records(str(texts[file]), (), partial(json_objects, texts[file])) for file in FILES)
    judged = dict(sorted(judged.items()))
    qrels = {split: Records(str(path), (), partial(_judgements, path)) for split, path in judged.items()}
    make = partial(checked_collection, documents=documents, queries=queries, qrels=qrels)
    return build(folder.resolve().name, ("beir", *texts.values(), *judged.values()), make)


def _judgements(path: Path, complaints: Complaints) -> Iterator[tuple[int, Fields]]:
    """Of BEIR's form, or TREC's four columns, divided by tabs or, where there are none, by blanks."""
    for line, text in numbered_lines(path, complaints):
        *ids, score = text.rstrip().split("\t") if "\t" in text.strip() else text.split()
        if len(ids) not in (2, 3):
            yield line, {}
        elif line > 1 or len(ids) == 3 or score.strip() != "score":
            yield line, judgement(ids[0], ids[-1], score)


def read_ir_datasets(name: str) -> Collection:
    """Read a data set that `ir_datasets` knows; its Arrow form is stored in the cache.

    Where the data set has queries and judgements of its own, they are the one split, called by the
    last part of its ID (`training` is train; `validation`, `valid` and `val` are dev), otherwise
    test. Where it has none, the splits are those below it: ID/train, ID/dev, ID/test.

    Args:
        name: ID, such as `beir/scifact`. An ID stands for fixed contents: if you change a data set
            that you have registered yourself, register it under another ID.

    Raises:
        MissingExtraError: without the package.
        InputError: an unknown ID, no judgements in train, dev or test, or data that cannot be fetched.
        FormatError: what is wrong in the data.
    """
    registry = require("ir_datasets", "hub").registry

    def registered(identifier: str) -> Any:
        try:
            return registry[identifier]
        except KeyError:
            return None

    whole = registered(name)
    if whole is None:
        raise InputError(f"ir_datasets knows no data set {name!r}; see https://ir-datasets.com for the IDs")
    split = split_name(name.rpartition("/")[2])
    parts = [(split if split in SPLITS else "test", whole)]
    if not (whole.has_queries() and whole.has_qrels()):
        parts = [(split, registered(f"{name}/{last}")) for split, usual in USUAL.items() for last in usual[::-1]]
    judged = {split: part for split, part in parts if part and part.has_queries() and part.has_qrels()}
    documents = next((part for part in (whole, *judged.values()) if part.has_docs()), None)
    if not judged or documents is None:
        raise InputError(f"ir_datasets:{name}, its train, dev and test have no documents or no judgements")

    def judgement_rows(part: Any) -> Iterator[Fields]:
        for judged in part.qrels_iter():
            yield judgement(judged.query_id, judged.doc_id, getattr(judged, "relevance", None))

    # nothing is fetched before it is read
    texts = ({"_id": each.doc_id, "text": each.default_text()} for part in [documents] for each in part.docs_iter())
    every = ((each.query_id, each.default_text()) for part in judged.values() for each in part.queries_iter())
    # a query that is in two splits, with one text, comes once
    asked = ({"_id": query, "text": text} for queries in [every] for query, text in dict.fromkeys(queries))
    qrels = {split: judgement_rows(part) for split, part in judged.items()}
    rows = row_sources(f"ir_datasets:{name}", texts, asked, qrels)
    facts = ("ir_datasets", version("ir_datasets"), name)
    return build(name, facts, partial(checked_collection, **rows, lenient=True))


def read_hf(name: str) -> Collection | dict[str, Records]:
    """Read a data set of the Hugging Face hub or of a local folder: a collection in BEIR's layout, or records by split.

    In BEIR's layout the configurations are `corpus` (`_id` or `id`, `title` if there is one,
    `text`), `queries` (`_id` or `id`, `text`) and `qrels` or `default` (`query-id`, `corpus-id`,
    `score`), the last in splits; the judgements may also be in the repository, or folder,
    NAME-qrels. The splits `validation`, `valid` and `val` are dev, `training` is train; others keep
    their names. The Arrow form of the collection is in the cache.

    Args:
        name: NAME of a repository, such as `BeIR/scifact`, or the path of a folder; of pairs also
            NAME:CONFIGURATION, NAME:CONFIGURATION:SPLIT, or NAME::SPLIT.

    Raises:
        MissingExtraError: without the package `datasets`.
        InputError: no such data set, configuration or split, none that can be reached and none in
            the cache of `datasets`, or one without judgements.
        FormatError: what is wrong in the data of a collection, by row.
    """
    datasets = require("datasets", "hub")
    name, _, rest = name.partition(":")
    configuration, _, split = rest.partition(":")
    with fetching(f"hf:{name}"):
        configurations = datasets.get_dataset_config_names(name)
        if rest or not {"corpus", "queries"} <= {*configurations}:
            splits, files = _hf_splits(datasets, name, configuration or None)
            if split:
                check_names(f"split of hf:{name}", [split], splits)
                splits = {split: splits[split]}
            return {
                each: replace(records_in(f"hf:{name} ({each})", rows, files), columns=tuple(next(iter(rows), {})))
                for each, rows in splits.items()
            }
        qrels = next(((name, each) for each in ("qrels", "default") if each in configurations), (f"{name}-qrels", None))
        places = ((name, "corpus"), (name, "queries"), qrels)
        (corpus, queries, judged), files_of = zip(*(_hf_splits(datasets, *each) for each in places), strict=True)
    documents, asked = (chain.from_iterable(splits.values()) for splits in (corpus, queries))
    by_split = {split_name(split): rows for split, rows in judged.items()}
    if len(by_split) < len(judged):  # dev and validation, say: each keeps its own name
        by_split = dict(judged)
    rows = row_sources(f"hf:{name}", documents, asked, by_split)
    facts = ("hf", name, *dict.fromkeys(chain(*files_of)))
    return build(Path(name).name, facts, partial(checked_collection, **rows, lenient=True))


def _hf_splits(
    datasets: Any, name: str, configuration: str | None
) -> tuple[Mapping[str, Iterable[Mapping[str, Any]]], tuple[Path, ...]]:
    """Load one configuration; None: the only one. Return its rows by split, and the files that they lie in.

    A folder is streamed: what `datasets` would keep of it is found again by the folder's last name
    and README alone, so that it would give old contents, or another folder's.
    """
    is_folder = Path(name).is_dir()
    splits = datasets.load_dataset(name, configuration, streaming=is_folder)
    if is_folder:
        return splits, tuple(sorted(path for path in Path(name).rglob("*") if path.is_file()))
    return splits, tuple(Path(file["filename"]) for rows in splits.values() for file in rows.cache_files)


def read_mteb(name: str) -> Collection:
    """Read a retrieval task of mteb, of text, in one language, without instructions.

    Args:
        name: of the task. Its splits are those that it evaluates.

    Raises:
        MissingExtraError: without the package mteb.
        InputError: no retrieval task, several languages, no texts, or an id with two texts.
    """
    mteb = require("mteb", "mteb")
    with fetching(f"mteb:{name}"):
        task = mteb.get_task(name)
        if not isinstance(task, mteb.abstasks.AbsTaskRetrieval):
            raise InputError(f"{name} is a {type(task).__name__}, no retrieval task of mteb")
        task.load_data()
        task.convert_v1_dataset_format_to_v2(num_proc=None)
    if "default" not in task.dataset:  # mteb's name for the data of a task that is not in several languages
        raise InputError(f"{name} is in several languages, {', '.join(task.dataset)}; a collection is of one")
    parts, texts = task.dataset["default"], {"corpus": dict[str, Any](), "queries": dict[str, Any]()}
    for kind, row in ((table, row) for part in parts.values() for table in texts for row in part[table]):
        text = row.get("text")
        value = (row.get("title") or "", text) if kind == "corpus" else text
        if "instruction" in row or not isinstance(text, str) or texts[kind].setdefault(row["id"], value) != value:
            expected = "an id has one text in all splits of a collection, and no instruction"
            raise InputError(f"{row['id']!r} of the {kind} of {name} has {', '.join(row)}; {expected}")
    judged = {split: part["relevant_docs"] for split, part in parts.items()}
    return Collection.from_dicts(name, texts["corpus"], texts["queries"], judged)


def _pydocs(named: str) -> Collection:
    """The documentation of installed packages, kept in the cache for as long as their versions stay."""
    packages = [package.strip() for package in named.split(",")] if named else None

    def make(keep: Keep) -> Collection:
        docstrings = read_pydocs(packages)
        judged: dict[str, list[Fields]] = {split: [] for split in SPLITS}
        for each in docstrings:
            judged[split_of(each.module)].append(judgement(f"q:{each.name}", each.name, 1))
        documents = [{"_id": each.name, "text": each.text} for each in docstrings]
        queries = [{"_id": f"q:{each.name}", "text": each.summary} for each in docstrings]
        return checked_collection(keep, **row_sources("pydocs", documents, queries, judged))

    versions = sorted(pydocs_versions(packages).items())
    return build("pydocs", ("pydocs", version("foils"), python_version(), *versions), make)


# what stands before the colon of a name -> what opens the rest of it
OPENERS: dict[str, Callable[[str], Collection | dict[str, Records]]] = {
    "ir_datasets": read_ir_datasets, "hf": read_hf, "mteb": read_mteb, "pydocs": _pydocs,
}  # fmt: skip


def load_collection(
    source: CollectionLike,
    *,
    keep_identical_ids: bool = False,
    columns: Mapping[str, str] | None = None,
    corpus: Any = None,
) -> Collection:
    """Open a collection.

    Args:
        source: a BEIR folder; a table of pairs, as a file (CSV, TSV, JSON, JSONL, Parquet) or in memory (see
            `foils.data.pairs.read_pairs`); `ir_datasets:ID`; `hf:NAME` (a hub name or a local
            folder); `mteb:TASK`; or `pydocs`, or `pydocs:PACKAGE,PACKAGE` of packages that are
            named as they are imported. Documents and queries without a text, and what repeats, are
            left out, and the collection's name tells how many; of `ir_datasets:` and `hf:`
            judgements of what is not there, too, which in a folder are mistakes.
        keep_identical_ids: let a document whose id is a query's own be a negative of the query and
            an answer to it (`Collection.identical`).
        columns: of pairs: what a column is -> its name, as {"query": "a", "positive": "b"}.
        corpus: of pairs: more documents, a file or a table.

    Raises:
        InputError: there is no such collection, it is not well-formed, or it is not made of pairs.
        MissingExtraError: `ir_datasets:` or `hf:` without the extra `hub`, `mteb:` without `mteb`.
    """
    opened, name = cast(Any, source), ""
    if isinstance(source, (str, Path)):
        kind, colon, rest = str(source).partition(":")
        is_table = str(source).lower().removesuffix(".gz").endswith(ENDINGS)
        is_file = exists(source) and not isdir(source)  # noqa: PTH110, PTH112  a name may be too long
        if kind in OPENERS and (colon or (kind == "pydocs" and not is_file)):
            opened, name = OPENERS[kind](rest), rest
        elif is_table or is_file:
            opened = existing_file(source)
        else:
            opened = read_beir(str(source))
    if isinstance(opened, Collection):
        refuse({"columns": columns, "corpus": corpus}, f"with {opened.name}, which is not made of pairs")
    else:
        opened = replace(read_pairs(opened, columns=columns, corpus=corpus, name=name), columns=dict(columns or {}))
    return replace(opened, keep_identical_ids=True) if keep_identical_ids else opened


A_COLLECTION = (
    "A file of pairs (CSV, TSV, JSON, JSONL, Parquet), a BEIR folder, ir_datasets:ID, hf:NAME, mteb:TASK, or "
    "pydocs[:PACKAGE,…]. "
    "In Python also a `Collection`, a DataFrame, an Arrow table, a data set of `datasets`, or a dictionary of splits."
)


TableLike = str | Path | ArrowTable | DataSet
Listed = Sequence[Mapping[str, object] | Sequence[object]]
CollectionLike = Annotated[
    Collection | TableLike | Mapping[str, TableLike] | Listed, Option(metavar="COLLECTION", help=A_COLLECTION)
]
AddedLike = LabelsLike | Sequence[LabelsLike]


@dataclass(frozen=True)
class CollectionSettings(Settings):
    """How a collection is read.

    Attributes:
        columns: For pairs: which column is what, as query=QUESTION,positive=ANSWER; the other roles
            are query_id, doc_id, title, negative, score and split. A source with all of these
            columns is read by the same names. Default: what the columns' names say.
        corpus: For pairs: more documents to search, a file (CSV, TSV, JSON, JSONL or Parquet) with
            a column of texts.
        add_judgements: File of labels whose relevant pairs become positives of train; may be given
            several times. In Python also labels or a DataFrame.
    """

    heading = "Collection"

    columns: Annotated[Mapping[str, str] | None, Option(parse=parsed_columns, metavar="ROLE=COLUMN,…")] = None
    corpus: Annotated[TableLike | None, Option(metavar="FILE")] = None
    add_judgements: Annotated[AddedLike, Option(metavar="FILE", parse=list, repeated=True)] = ()

    def open(self, source: CollectionLike) -> Collection:
        """Return a collection as it is, or the one of this name, path or table (see `load_collection`).

        Judgements that are given besides are added to it (see `with_judgements`).
        """
        loaded = load_collection(source, columns=self.columns, corpus=self.corpus)
        more = several(self.add_judgements)
        return with_judgements(loaded, more) if more else loaded


@door
def load(collection: CollectionLike, *, reading: CollectionSettings) -> Collection:
    """Open a collection: pairs in a file or a table, a BEIR folder, or a data set of others.

    Raises:
        InputError: there is no such collection, or it is not well-formed.
        MissingExtraError: what reads it is not installed.
    """
    return reading.open(collection)


def identical_ids_caption(queries: int) -> str:
    """Return the remark on this many queries whose own document is left out; empty where there are none."""
    return f"{queries:,} queries: the document with the query's own id is left out" if queries else ""
