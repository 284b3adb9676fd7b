"""A retriever answers new queries as the measured runs answer those of a split, and opens again from its folder."""

import json
import runpy
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from http.server import ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers")

import foils as library
from foils.cli.app import run
from foils.data.run import FUSED_DEPTH, Fusion, fuse_runs
from foils.encode import EmbeddingSettings, VectorStore
from foils.encode.nearest import ExactIndex
from foils.evaluation import dense_run
from foils.mining.retrievers import BM25Retriever
from foils.runtime.errors import InputError
from foils.searching.doors import Retriever, documents_digest, named_collection
from foils.searching.runs import bm25_run
from train_models import static_model

EXACT = EmbeddingSettings(precision="float32")


@pytest.fixture
def better(tmp_path, beir_folder):
    """A collection, and a function that writes what `foils tune` would, for what is deployed."""
    place = beir_folder("small")

    def written(deploys: str = "both", weight: float = 0.25) -> Path:
        folder = tmp_path / deploys
        static_model().save_pretrained(str(folder / "model"))
        collection = library.load(place)
        named = named_collection(collection, {"collection": str(place)}, folder)
        Fusion("z", weight, deploys, "", {}, named).write(folder / "retriever.json")
        return folder

    return place, written


def expected(place: Path, folder: Path) -> dict[str, list[tuple[str, float]]]:
    """What the runs of the evaluation have for each query of test, best first."""
    collection, fusion = library.load(place), Fusion.of(folder)
    lexical = bm25_run(collection, "train", depth=FUSED_DEPTH)
    dense = dense_run(static_model(), collection, "train", depth=FUSED_DEPTH)
    runs = {"bm25": lexical, "model": dense, "both": fuse_runs([lexical, dense], **fusion.how)}
    lists: dict[str, list[tuple[str, float]]] = {}
    for row in runs[fusion.deploys].table.to_pylist():
        lists.setdefault(row["query_id"], []).append((row["doc_id"], row["score"]))
    return lists


@pytest.mark.parametrize("deploys", ["bm25", "model", "both"])
def test_new_queries_are_answered_as_those_of_a_split_were_measured(better, deploys):
    place, written = better
    folder = written(deploys)
    retriever = Retriever.load(folder, embedding=EXACT)
    lists = expected(place, folder)
    collection = library.load(place)
    texts = dict(zip(*(collection.queries[name].to_pylist() for name in ("query_id", "text")), strict=True))
    found = retriever.search([texts[query] for query in lists], k=4)
    for hits, listed in zip(found, lists.values(), strict=True):
        assert [hit.doc_id for hit in hits] == [doc_id for doc_id, _ in listed[:4]]
        np.testing.assert_allclose(
            [hit.score for hit in hits], [score for _, score in listed[:4]], rtol=1e-5, atol=1e-6
        )
        rows = collection.document_rows([hit.doc_id for hit in hits])
        assert [hit.text for hit in hits] == collection.document_texts(rows)


def test_one_query_is_a_list_of_one(better):
    place, _ = better
    [hits] = Retriever(library.load(place), "bm25").search("the crew rows", k=2)
    assert len(hits) <= 2
    assert library.Retriever is Retriever


@pytest.mark.parametrize("deploys", ["bm25", "model", "both"])
def test_nothing_of_the_documents_is_made_again_for_a_query(better, monkeypatch, deploys):
    _, written = better
    retriever = Retriever.load(written(deploys), embedding=EXACT)
    first = retriever.search("the crew rows", k=2)

    def refused(*_):
        raise AssertionError("an index is made for a query")

    monkeypatch.setattr(BM25Retriever, "_indexed", refused)
    monkeypatch.setattr(ExactIndex, "__init__", refused)
    monkeypatch.setattr(VectorStore, "embed", refused)
    assert retriever.search("the crew rows", k=2) == first


def test_documents_are_replaced_by_giving_another_collection(better, beir_folder):
    _, written = better
    folder = written("bm25")
    documents = {"new": ("", "zeppelins float over harbours")}
    other = beir_folder("other", documents=documents, queries={"q": "x"}, qrels={"test": {"q": {"new": 1}}})
    [hits] = Retriever.load(folder, other).search("zeppelins")
    assert [hit.doc_id for hit in hits] == ["new"]


def test_a_collection_that_has_changed_is_refused(better):
    place, written = better
    folder = written("bm25")
    lines = (place / "corpus.jsonl").read_text().splitlines()
    (place / "corpus.jsonl").write_text(
        "\n".join([*lines, json.dumps({"_id": "added", "title": "", "text": "zeppelins"})])
    )
    with pytest.raises(InputError, match="has changed since"):
        Retriever.load(folder)
    assert Retriever.load(folder, place).search("zeppelins", k=1)[0][0].doc_id == "added"


def test_a_collection_from_memory_has_to_be_given(better, tmp_path):
    place, written = better
    folder = written("bm25")
    fusion = Fusion.of(folder)
    replace(fusion, collection={}).write(folder / "retriever.json")
    for unnamed in (folder, tmp_path):
        with pytest.raises(InputError, match=r"names no collection in its retriever\.json"):
            Retriever.load(unnamed)
    assert named_collection(library.load(place), {"collection": "in memory"}, tmp_path) == {}


def test_the_digest_is_of_documents_alone(better):
    place, _ = better
    collection = library.load(place)
    assert documents_digest(collection) == documents_digest(replace(collection, qrels={}))


@pytest.mark.parametrize(("queries", "k", "message"), [(["", "x"], 3, "without text: 0"), (["x"], 0, "k 0")])
def test_what_is_no_query_is_refused(better, queries, k, message):
    place, _ = better
    with pytest.raises(InputError, match=message):
        Retriever(library.load(place), "bm25").search(queries, k)


def test_the_program_answers_queries(better, tmp_path, monkeypatch, capsys):
    _, written = better
    folder = written("both")
    assert run(["search", str(folder), "--query", "how does a boat tack", "--top", "2"]) == 0
    assert "how does a boat tack" in capsys.readouterr().out
    asked = tmp_path / "asked.txt"
    asked.write_text("how does a boat tack\n\nthe crew\n")
    assert run(["search", str(folder), "--queries", str(asked), "--top", "2", "--json", "-"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = library.Retriever.load(folder).search(["how does a boat tack", "the crew"], k=2)
    assert [record["query"] for record in records] == ["how does a boat tack", "the crew"]
    assert [[tuple(hit.values()) for hit in record["hits"]] for record in records] == [
        [*map(tuple, of)] for of in found
    ]
    table = library.search(str(folder), queries=str(asked), top=2).to_pandas()
    assert [*zip(table["query"], table["doc_id"], strict=True)] == [
        (record["query"], hit["doc_id"]) for record in records for hit in record["hits"]
    ]
    monkeypatch.setattr("sys.stdin", asked.open())
    assert run(["search", str(folder), "--queries", "-", "--top", "2", "--json", "-"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == records


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "is a retriever; give --query TEXT"),
        (["--query", "x", "--dimensions", "rdime"], "--dimensions rdime: no effect with --query x"),
        (["--query", "x", "--run", "x.trec"], "--run"),
        (["--query", "x", "--split", "dev"], "--split dev"),
    ],
)
def test_options_without_effect_are_refused(better, capsys, words, message):
    _, written = better
    assert run(["search", str(written("bm25")), *words]) == 2
    assert message in capsys.readouterr().err


def test_the_server_of_the_examples(better, monkeypatch):
    _, written = better
    monkeypatch.setattr(sys, "argv", ["server.py", str(written("bm25"))])
    names = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "server.py"))
    with ThreadingHTTPServer(("127.0.0.1", 0), names["Search"]) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}/search"
        try:
            with urllib.request.urlopen(f"{address}?q=boat&k=1", timeout=10) as answer:
                [hit] = json.load(answer)
            assert hit["doc_id"] == names["retriever"].search("boat", 1)[0][0].doc_id
            with pytest.raises(urllib.error.HTTPError, match="400"):
                urllib.request.urlopen(f"{address}?k=x", timeout=10)
        finally:
            server.shutdown()


def test_terms_of_bm25_are_known_where_a_folder_says_them():
    with pytest.raises(InputError, match="load a folder that foils tune wrote"):
        Fusion("z", 0.5).terms(["a text"])
