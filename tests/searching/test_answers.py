"""Answer texts: a sun of their own, and nothing where one is missing."""

import numpy as np
import pytest

from fakes import HashingEncoder
from foils.data import Collection
from foils.encode import Vectors, VectorStore
from foils.runtime.errors import InputError
from foils.searching import (
    DimensionSettings,
    ExactIndex,
    Grid,
    Judged,
    embed_collection,
    evaluate_grid,
    search_vectors,
    sharpened_queries,
)
from foils.searching.choosing import Relevant


def unit(n, d=12, seed=0):
    x = np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def test_a_query_without_an_answer_keeps_every_dimension():
    documents, queries, answers = Vectors.of(unit(80)), unit(4, seed=1), unit(4, seed=2)
    silent = answers.copy()
    silent[2] = np.nan
    for method in ("dime", "eclipse", "rdime", "rocchio"):
        settings = DimensionSettings(method, k_plus=2, k_minus=3, share=0.5)
        found, full, base = (
            search_vectors(queries, documents, ExactIndex(documents), chosen, k=30, answers=given)
            for chosen, given in ((settings, silent), (settings, answers), (DimensionSettings("none"), None))
        )
        assert found.sharpened.no_feedback.tolist() == [False, False, True, False]
        assert found.sharpened.changed.tolist() == [True, True, False, True]
        assert found.scores[2].tobytes() == base.scores[2].tobytes()
        for row in (0, 1, 3):
            assert found.scores[row].tobytes() == full.scores[row].tobytes()
    lists = list(ExactIndex(documents).search(queries, 30)[0])
    relevant = [Relevant(rows[[4, 9]], np.array([1, 1])) for rows in lists]
    grid = Grid("eclipse", ((2, 3),), shares=(0.3, 1.0))
    values = evaluate_grid(Judged(queries, documents, lists, relevant, silent), grid, answered=True)
    assert values.values["AP"][2, 0] == values.values["AP"][2, 1]
    whole = evaluate_grid(Judged(queries, documents, lists, relevant, answers), grid, answered=True)
    np.testing.assert_array_equal(values.values["AP"][[0, 1, 3]], whole.values["AP"][[0, 1, 3]])
    made = sharpened_queries(queries, documents, lists, DimensionSettings("dime", share=0.3), answers=silent)
    assert made.masks[2].all()


def test_only_the_answers_that_there_are_are_embedded(small: Collection, tmp_path):
    encoder = HashingEncoder()
    found = embed_collection(
        small, encoder, VectorStore(tmp_path), split="test", answers={"q4": None, "q5": "eggs of bees"}
    )
    assert np.isnan(found.answers[0]).all()
    np.testing.assert_array_equal(found.answers[1], HashingEncoder().encode(["eggs of bees"], "document")[0])
    assert ["eggs of bees"] in encoder.calls
    nobody = embed_collection(small, encoder, VectorStore(tmp_path), split="test", answers={"q4": None, "q5": None})
    assert np.isnan(nobody.answers).all()
    with pytest.raises(InputError, match="q5"):
        embed_collection(small, encoder, VectorStore(tmp_path), split="test", answers={"q4": None})
