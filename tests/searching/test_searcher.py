"""Texts in, ids out: any sentence-transformers model, and PyTerrier's pipelines."""

from dataclasses import replace

import numpy as np
import pytest

from fakes import HashingEncoder
from foils.data import Collection
from foils.encode import VectorStore
from foils.runtime.errors import InputError, UnknownNameError
from foils.searching import (
    DimensionSettings,
    FaissIndex,
    TextSearcher,
    pyterrier_transformer,
    query_masks,
    search_vectors,
)

RNG = np.random.default_rng(0)
TEXTS = {f"d{i}": " ".join(f"w{w}" for w in RNG.integers(i % 6 * 8, i % 6 * 8 + 12, 9)) for i in range(90)}
QUERIES = [f"w{8 * i} w{8 * i + 3} w{8 * i + 5}" for i in range(6)]
ANSWERS = [f"w{8 * i + 1} w{8 * i + 2} w{8 * i + 4}" for i in range(6)]
ECLIPSE = DimensionSettings("eclipse", k_plus=3, k_minus=4, share=0.5)
SETTINGS = [
    DimensionSettings("none"),
    DimensionSettings("rdime"),
    replace(ECLIPSE, method="dime"),
    ECLIPSE,
    replace(ECLIPSE, moon_pool=30),
]


@pytest.fixture(scope="module")
def searcher():
    return TextSearcher.of_texts(HashingEncoder(), TEXTS)


def ids(found):
    return [[hit.doc_id for hit in hits] for hits in found]


def flat(found):
    return [hit.doc_id for hits in found for hit in hits]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda s: f"{s.method} {s.moon_pool or ''}")
def test_a_search_of_texts_is_a_search_of_their_vectors(searcher, settings):
    queries = HashingEncoder().encode(QUERIES, "query")
    for second in ("index", "retrieved"):
        expected = search_vectors(
            queries, searcher.documents, searcher.index, settings, k=20, feedback_depth=60, second_pass=second,
            rng=np.random.default_rng(1),
        )  # fmt: skip
        found = searcher.search(
            QUERIES, settings, k=20, feedback_depth=60, second_pass=second, rng=np.random.default_rng(1)
        )
        assert ids(found) == [[f"d{row}" for row in rows] for rows in expected.positions]
        assert [[hit.score for hit in hits] for hits in found] == [scores.tolist() for scores in expected.scores]


def test_every_option_of_a_search_changes_what_is_found(searcher):
    def found(settings=ECLIPSE, **options):
        return searcher.search(QUERIES, settings, **{"k": 8, "feedback_depth": 60, **options})

    plain = found()
    other = [[f"d{i}" for i in np.random.default_rng(row).permutation(90)[:50]] for row in range(6)]
    for options in (
        {"settings": SETTINGS[1]}, {"k": 5}, {"feedback_depth": 20}, {"feedback": other}, {"answers": ANSWERS},
        {"second_pass": "retrieved", "rerank_depth": 8},
    ):  # fmt: skip
        assert found(**options) != plain, options
    assert ids(searcher.search(QUERIES)) == ids(searcher.search(QUERIES, DimensionSettings("selective"), k=10))
    plain = ids(searcher.search(QUERIES, answers=ANSWERS))
    assert plain == ids(searcher.search(QUERIES, DimensionSettings("rdime"), answers=ANSWERS)), "no feedback to judge"


def test_candidates_are_ranked_with_the_dimensions_they_choose(searcher):
    candidates = [[f"d{i}" for i in np.random.default_rng(row).permutation(90)[: 30 + row]] for row in range(6)]
    queries, lists = HashingEncoder().encode(QUERIES, "query"), searcher.positions(candidates)
    for depth in (1000, 12):
        found = searcher.rank(QUERIES, candidates, ECLIPSE, feedback_depth=depth)
        masks, _ = query_masks(queries, searcher.documents, [rows[:depth] for rows in lists], ECLIPSE)
        for row, rows in enumerate(lists):
            scores = (searcher.documents.take(rows) @ (queries[row] * masks[row])).tolist()
            by_id = dict(zip(candidates[row], scores, strict=True))
            assert set(ids(found)[row]) == set(candidates[row])
            np.testing.assert_allclose([hit.score for hit in found[row]], sorted(scores, reverse=True), atol=1e-6)
            np.testing.assert_allclose([by_id[hit.doc_id] for hit in found[row]], sorted(scores)[::-1], atol=1e-6)
    assert searcher.rank(QUERIES, candidates, ECLIPSE) != searcher.rank(QUERIES, candidates, ECLIPSE, answers=ANSWERS)
    assert searcher.rank(QUERIES, candidates, ECLIPSE) != found, "the depth of the feedback counts"


def test_a_store_keeps_the_vectors_and_a_collection_brings_its_texts(tmp_path):
    collection = Collection.from_dicts(
        "c", {id_: ("", text) for id_, text in TEXTS.items()}, {"q": QUERIES[0]}, {"test": {"q": {"d0": 1}}}
    )
    encoder = HashingEncoder()
    kept = TextSearcher.of_collection(encoder, collection, store=VectorStore(tmp_path))
    assert kept.search(QUERIES) == TextSearcher.of_texts(HashingEncoder(), TEXTS).search(QUERIES)
    TextSearcher.of_texts(encoder, TEXTS, store=VectorStore(tmp_path))
    assert encoder.encoded == len(set(TEXTS.values())) + 6, "documents once, queries each time"


def test_an_index_of_ones_own_serves(searcher):
    index = FaissIndex.build(searcher.documents, "flat")
    own = TextSearcher.of_texts(HashingEncoder(), TEXTS, index=index)
    assert own.index is index
    assert ids(own.search(QUERIES, ECLIPSE)) == ids(searcher.search(QUERIES, ECLIPSE))


def test_a_loaded_model_is_used_with_its_prompts():
    sentence_transformers = pytest.importorskip("sentence_transformers")
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {word: at for at, word in enumerate(["[UNK]", *(f"w{i}" for i in range(60))])}
    tokenizer = Tokenizer(models.WordLevel(words, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    weights = np.random.default_rng(0).standard_normal((61, 16)).astype(np.float32)
    model = sentence_transformers.SentenceTransformer(
        modules=[StaticEmbedding(tokenizer, embedding_weights=weights)], device="cpu", prompts={"query": "w59 "}
    )
    found = TextSearcher.of_texts(model, TEXTS).search(QUERIES, DimensionSettings("none"), k=90)
    queries = model.encode([f"w59 {query}" for query in QUERIES], normalize_embeddings=True)
    documents = model.encode(list(TEXTS.values()), normalize_embeddings=True)
    for hits, scores in zip(found, queries @ documents.T, strict=True):
        np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores)[::-1], atol=1e-6)
        assert hits[0].doc_id == f"d{scores.argmax()}"


def test_what_cannot_be_searched_is_refused(searcher):
    with pytest.raises(InputError, match="type object; expected the name of a model, a loaded SentenceTransformer"):
        TextSearcher.of_texts(object(), TEXTS)
    with pytest.raises(InputError, match="at least one document"):
        TextSearcher.of_texts(HashingEncoder(), {})
    with pytest.raises(InputError, match="90 documents in the index"):
        TextSearcher.of_texts(HashingEncoder(), {"a": "w1"}, index=searcher.index)
    with pytest.raises(InputError, match="one text"):
        searcher.search("w1 w2")
    with pytest.raises(InputError, match="1 that are not among the 90 documents: x"):
        searcher.rank(["w1"], [["d1", "x"]])
    with pytest.raises(InputError, match="1 lists with an id twice"):
        searcher.search(["w1"], feedback=[["d1", "d1"]])
    with pytest.raises(InputError, match="each of 1 queries; found 2"):
        searcher.search(["w1"], answers=["a", "b"])


@pytest.mark.parametrize("missing", [None, " ", float("nan")])
def test_an_answer_that_is_missing_is_said(searcher, missing):
    """A pipeline's column has None or NaN where a model did not answer."""
    answers = [*ANSWERS[:4], missing, ANSWERS[5]]
    with pytest.raises(InputError, match=r"not blank.*queries \[4\] \(1 of 6\)"):
        searcher.search(QUERIES, ECLIPSE, answers=answers)
    with pytest.raises(InputError, match="without answers"):
        searcher.rank(QUERIES, [["d1", "d2"]] * 6, ECLIPSE, answers=answers)


@pytest.fixture
def topics():
    pytest.importorskip("pyterrier")
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame({"qid": [f"q{i}" for i in range(6)], "query": QUERIES, "qanswer": ANSWERS})


@pytest.mark.parametrize("second", ["index", "retrieved"])
def test_pyterrier_searches_for_queries(searcher, topics, second):
    step = pyterrier_transformer(searcher, ECLIPSE, k=7, feedback_depth=60, second_pass=second)
    found = step(topics)
    assert found.columns.tolist() == ["qid", "query", "qanswer", "docno", "score", "rank"]
    expected = searcher.search(QUERIES, ECLIPSE, k=7, feedback_depth=60, second_pass=second)
    assert found["docno"].tolist() == flat(expected)
    assert found["score"].tolist() == [hit.score for hits in expected for hit in hits]
    assert found["qid"].tolist() == [f"q{i}" for i in range(6) for _ in range(7)]
    assert found["rank"].tolist() == [*range(7)] * 6
    answered = pyterrier_transformer(searcher, ECLIPSE, k=7, feedback_depth=60, second_pass=second, answers="qanswer")
    assert not answered(topics)["score"].equals(found["score"])


def test_pyterrier_takes_results_as_feedback(searcher, topics):
    """Behind another retriever: given results are the feedback, in the order of their ranks or scores."""
    import pyterrier as pt

    rng = np.random.default_rng(3)
    given = topics.drop(columns="qanswer").merge(
        topics[["qid"]].assign(docno=[[f"d{i}" for i in rng.permutation(90)[:40]] for _ in range(6)]).explode("docno")
    )
    given["score"] = rng.permutation(len(given)).astype(float)
    given["text"] = given["docno"].map(TEXTS)
    ranked = given.sort_values("score", ascending=False)
    lists = [ranked[ranked.qid == f"q{i}"]["docno"].tolist() for i in range(6)]
    first = pt.Transformer.from_df(given)
    again = (first >> pyterrier_transformer(searcher, ECLIPSE, second_pass="retrieved", feedback_depth=30))(topics)
    expected = searcher.rank(QUERIES, lists, ECLIPSE, feedback_depth=30)
    assert again["docno"].tolist() == flat(expected)
    assert again["score"].tolist() == [hit.score for hits in expected for hit in hits]
    assert (again["text"] == again["docno"].map(TEXTS)).all(), "what was known of a document stays with it"
    anew = (first >> pyterrier_transformer(searcher, ECLIPSE, k=9))(topics)
    expected = searcher.search(QUERIES, ECLIPSE, k=9, feedback=lists)
    assert anew["docno"].tolist() == flat(expected)
    assert "text" not in anew
    by_rank = pt.model.add_ranks(given.drop(columns="score").assign(score=-given["score"])).drop(columns="score")
    turned = pyterrier_transformer(searcher, ECLIPSE, k=9)(by_rank)
    turned_lists = [ids[::-1] for ids in lists]
    expected = searcher.search(QUERIES, ECLIPSE, k=9, feedback=turned_lists)
    assert turned["docno"].tolist() == flat(expected)
    best = pt.Transformer.from_df(pt.model.add_ranks(given.copy())) % 20
    joined = best >> pyterrier_transformer(searcher, ECLIPSE, second_pass="retrieved")
    assert len(joined(topics)) == 6 * 20


def test_pyterrier_inspects_and_repeats_and_refuses(searcher, topics):
    import pyterrier as pt

    step = pyterrier_transformer(searcher, replace(ECLIPSE, moon_pool=30), k=7, seed=1)
    assert step(topics).equals(step(topics))
    assert not step(topics).equals(pyterrier_transformer(searcher, replace(ECLIPSE, moon_pool=30), k=7, seed=2)(topics))
    assert pt.inspect.transformer_outputs(step, ["qid", "query"]) == ["qid", "query", "docno", "score", "rank"]
    assert list(step(topics[:0]).columns) == ["qid", "query", "qanswer", "docno", "score", "rank"]
    with pytest.raises(KeyError, match="query"):
        step(topics.drop(columns="query"))
    with pytest.raises(KeyError, match="qanswer"):
        pyterrier_transformer(searcher, answers="qanswer")(topics.drop(columns="qanswer"))
    with pytest.raises(UnknownNameError, match="retrieved"):
        pyterrier_transformer(searcher, second_pass="again")
    with pytest.raises(InputError, match="k=0"):
        pyterrier_transformer(searcher, k=0)
    with pytest.raises(InputError, match="not among the 90"):
        step(topics.assign(docno="nowhere", score=1.0))
