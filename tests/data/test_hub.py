"""Collections from `ir_datasets` and from the Hugging Face hub's layout, read by the libraries themselves, offline."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packaging.specifiers import SpecifierSet

from foils.data import Collection, load_collection
from foils.runtime.errors import FormatError, InputError, MissingExtraError

pytestmark = pytest.mark.usefixtures("own_cache")


def judged(collection: Collection, split: str) -> list[tuple[str, str, int]]:
    return [tuple(row.values()) for row in collection.judgements(split).to_pylist()]  # type: ignore[misc]


@pytest.mark.parametrize("name", ["ir_datasets:beir/scifact", "hf:BeIR/scifact"])
def test_without_the_extra(monkeypatch, name):
    import sys

    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(
        MissingExtraError, match=r"comes with foils\[hub\]; run in the clone of foils: pip install -e '\.\[hub\]'"
    ):
        load_collection(name)


# ir_datasets


class Part:
    """A data set as ir_datasets has them, of rows."""

    metadata = None

    def __init__(self, docs: Any = None, queries: Any = None, qrels: Any = None) -> None:
        for kind, rows in (("docs", docs), ("queries", queries), ("qrels", qrels)):
            setattr(self, f"has_{kind}", lambda rows=rows: rows is not None)
            setattr(self, f"{kind}_iter", lambda rows=rows: iter(rows))


Register = Callable[..., str]


@pytest.fixture
def register(request):
    """Register data sets with ir_datasets, under names that no other test has."""
    registry = pytest.importorskip("ir_datasets").registry
    formats = pytest.importorskip("ir_datasets").formats
    root, names = f"foils-test-{request.node.name}", list[str]()

    def one(name: str = "", *, docs: Any = None, queries: Any = None, qrels: Any = None) -> str:
        names.append(f"{root}/{name}" if name else root)
        made = [formats.GenericDoc(*doc) for doc in docs] if docs else None
        asked = [formats.GenericQuery(*row) for row in queries] if queries else None
        judged = [formats.TrecQrel(*row, "0") for row in qrels] if qrels else None
        registry.register(names[-1], Part(made, asked, judged))
        return names[-1]

    yield one
    for name in names:
        del registry._registered[name]


DOCS = [("d1", "A boat tacks."), ("d2", "A boat gybes."), ("d3", "Bread rises.")]
QUERIES = [("q1", "how to tack"), ("q2", "why does bread rise")]


def test_a_data_set_of_its_own(register):
    name = register(docs=DOCS, queries=QUERIES, qrels=[("q1", "d1", 2), ("q1", "d3", 0), ("q2", "d3", 1)])
    collection = load_collection(f"ir_datasets:{name}")
    assert collection.name == name
    assert collection.documents.to_pylist() == [{"doc_id": key, "title": "", "text": text} for key, text in DOCS]
    assert collection.queries.to_pylist() == [{"query_id": key, "text": text} for key, text in QUERIES]
    assert collection.splits == ["test"]
    assert judged(collection, "test") == [("q1", "d1", 2), ("q1", "d3", 0), ("q2", "d3", 1)]
    part = register("validation", docs=DOCS, queries=QUERIES, qrels=[("q1", "d1", 1)])
    assert load_collection(f"ir_datasets:{part}").splits == ["dev"]


def test_splits_below_the_id(register):
    name = register(docs=DOCS, queries=QUERIES)
    register("train", queries=QUERIES[:1], qrels=[("q1", "d1", 1)])
    register("validation", queries=QUERIES, qrels=[("q2", "d3", 1), ("q1", "d2", 1)])  # q1 is in both, once
    register("test", queries=[("q3", "never judged")])
    register("other", queries=QUERIES, qrels=[("q1", "d1", 1)])
    collection = load_collection(f"ir_datasets:{name}")
    assert collection.splits == ["train", "dev"]
    assert collection.queries["query_id"].to_pylist() == ["q1", "q2"]
    assert judged(collection, "dev") == [("q2", "d3", 1), ("q1", "d2", 1)]


def test_what_nobody_can_mend_is_left_out_and_told(register):
    docs, queries = [*DOCS, ("void", " "), ("blank", "\n")], [*QUERIES, ("mute", "")]
    qrels = [("q1", "d1", 1), ("q2", "d3", 1), ("q1", "void", 1), ("mute", "d1", 1), ("q1", "nowhere", 1)]
    name = register(docs=docs, queries=queries, qrels=qrels)
    for _ in range(2):  # as it was read, and as it was kept
        collection = load_collection(f"ir_datasets:{name}")
        assert collection.documents["doc_id"].to_pylist() == [of[0] for of in DOCS]
        assert collection.queries["query_id"].to_pylist() == [of[0] for of in QUERIES]
        assert judged(collection, "test") == [("q1", "d1", 1), ("q2", "d3", 1)]
        left_out = "2 documents without a text, 1 queries without a text, 3 judgements of what is not there"
        assert collection.name == f"{name} (left out: {left_out})"


def test_an_id_without_judgements(register):
    with pytest.raises(InputError, match="ir_datasets knows no data set 'beir/scifat'"):
        load_collection("ir_datasets:beir/scifat")
    name = register(docs=DOCS, queries=QUERIES)
    with pytest.raises(InputError, match=f"{name}, its train, dev and test have no documents or no judgements$"):
        load_collection(f"ir_datasets:{name}")


# The hub's layout

CORPUS = [
    {"_id": "d1", "title": "Sailing", "text": "A boat tacks."},
    {"_id": "d2", "title": "", "text": "A boat gybes."},
    {"_id": "d3", "title": None, "text": "Bread rises."},
]
ASKED = [{"_id": key, "text": text} for key, text in QUERIES]
TRAIN = [{"query-id": "q1", "corpus-id": "d1", "score": 1}, {"query-id": "q1", "corpus-id": "d3", "score": 0}]
TEST = [{"query-id": "q2", "corpus-id": "d3", "score": 2}]

WriteHf = Callable[..., Path]


@pytest.fixture
def hf_folder(tmp_path):
    """Write a folder whose README names its configurations: {configuration: {split: rows}}."""
    pytest.importorskip("datasets")

    def write(
        configurations: dict[str, dict[str, list[dict[str, Any]]]], name: str = "hf", form: str = "jsonl"
    ) -> Path:
        folder = tmp_path / name
        listed = []
        for configuration, splits in configurations.items():
            listed.append(f"- config_name: {configuration}\n  data_files:\n")
            (folder / configuration).mkdir(parents=True)
            for split, rows in splits.items():
                file = f"{configuration}/{split}.{form}"
                listed.append(f"  - split: {split}\n    path: {file}\n")
                if form == "parquet":
                    pq.write_table(pa.Table.from_pylist(rows), folder / file)
                else:
                    (folder / file).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (folder / "README.md").write_text(f"---\nconfigs:\n{''.join(listed)}---\n")
        return folder

    return write


def layout(qrels: str = "default", **change: Any) -> dict[str, Any]:
    parts = {"corpus": {"corpus": CORPUS}, "queries": {"queries": ASKED}, qrels: {"train": TRAIN, "test": TEST}}
    return {**parts, **change}


@pytest.mark.parametrize(("form", "qrels"), [("jsonl", "default"), ("parquet", "qrels")])
def test_a_folder(hf_folder, form, qrels):
    collection = load_collection(f"hf:{hf_folder(layout(qrels), form=form)}")
    assert collection.name == "hf"
    assert collection.document_texts([0, 1, 2]) == ["Sailing A boat tacks.", "A boat gybes.", "Bread rises."]
    assert collection.documents["title"].to_pylist() == ["Sailing", "", ""]
    assert collection.queries.to_pylist() == [{"query_id": key, "text": text} for key, text in QUERIES]
    assert collection.splits == ["train", "test"]
    assert judged(collection, "train") == [("q1", "d1", 1), ("q1", "d3", 0)]
    assert judged(collection, "test") == [("q2", "d3", 2)]


def test_judgements_in_a_place_of_their_own(hf_folder):
    parts = layout()
    qrels = parts.pop("default")
    folder = hf_folder(parts)
    hf_folder({"default": {"validation": qrels["train"]}}, name="hf-qrels")
    collection = load_collection(f"hf:{folder}")
    assert collection.splits == ["dev"]
    assert judged(collection, "dev") == [("q1", "d1", 1), ("q1", "d3", 0)]


def test_other_spellings(hf_folder):
    """Newer data sets have `id`, scores that are floats, and no titles."""
    corpus = [{"id": row["_id"], "text": row["text"]} for row in CORPUS]
    floats = [{**row, "score": float(row["score"])} for row in TRAIN]
    folder = hf_folder(layout(corpus={"a": corpus[:2], "b": corpus[2:]}, default={"dev": floats, "validation": TEST}))
    collection = load_collection(f"hf:{folder}")
    assert collection.splits == ["dev", "validation"], "two splits of one name keep their own"
    assert collection.documents["doc_id"].to_pylist() == ["d1", "d2", "d3"]
    assert judged(collection, "dev") == [("q1", "d1", 1), ("q1", "d3", 0)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"corpus": {"corpus": [*CORPUS, {**CORPUS[0], "text": "x"}]}},
            r"\(documents\):4: duplicate id 'd1' \(first on line 1\)",
        ),
        ({"default": {"test": [{**TEST[0], "score": 0.5}]}}, r"\(qrels test\):1: .* the relevance as a whole number"),
    ],
)
def test_rows_that_are_wrong(hf_folder, change, message):
    folder = hf_folder(layout(**change))
    with pytest.raises(FormatError, match=message):
        load_collection(f"hf:{folder}")


def test_another_layout(hf_folder):
    folder = hf_folder({"default": {"train": ASKED}})
    with pytest.raises(InputError, match="no column is known as query; the columns are '_id', 'text'"):
        load_collection(f"hf:{folder}")
    parts = layout()
    del parts["default"]
    folder = hf_folder(parts, name="without")
    with pytest.raises(InputError, match=r"cannot read hf:.*without \(.*without-qrels"):
        load_collection(f"hf:{folder}")


def test_no_version_that_runs_a_repository_s_code_is_allowed():
    """`datasets` below 4 runs the loading script of a repository."""
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = [each for of in project["optional-dependencies"].values() for each in of if each.startswith("datasets")]
    assert bounds
    assert not any(SpecifierSet(each.removeprefix("datasets")).contains("3.9") for each in bounds)
