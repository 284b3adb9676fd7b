"""How likely pairs are relevant, by what is known of labelled and unlabelled ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

import foils
from fakes import HashingEncoder
from foils.deciding.unlabelled import Pairs, Relevance, Survey


def pairs(count: int, similarity: float, resemblance: np.ndarray, rng: np.random.Generator) -> Pairs:
    """Pairs of as many records, around a similarity."""
    rank = rng.integers(0, 500, count).astype(float)
    return Pairs(np.arange(count), similarity + 0.1 * rng.standard_normal(count), rank, resemblance, np.ones(count))


def test_one_query_alone_with_several_positives_is_no_failure():
    """Its half of the records knows what resembles a positive; the other half knows nothing of it."""
    rng, count = np.random.default_rng(0), 400
    one = np.full(count, np.nan)
    one[0] = 0.7
    nothing = np.full(count, np.nan)
    labelled, unlabelled = pairs(count, 0.6, one, rng), pairs(count, 0.2, nothing, rng)
    survey = Survey(labelled, unlabelled, unlabelled, 1_000)
    relevance = Relevance.fit(survey, seed=0)
    assert relevance.ratio(labelled).mean() > 5 * relevance.ratio(unlabelled).mean()
    assert np.isfinite(relevance.bound(survey))


def test_queries_to_which_every_document_is_relevant_are_scored(tmp_path):
    """No document of the collection is unlabelled; the negatives are texts that a source brings along."""
    keel = {"d1": "A keel is the spine of a boat."}
    queries = {"q1": "what is a keel?", "q2": "what is the spine of a boat?"}
    collection = foils.Collection.from_dicts("keel", keel, queries, {"train": {name: {"d1": 1} for name in queries}})
    written = pa.table({"query": list(queries.values()), "negative": ["The crew rows.", "Oars are made of ash."]})
    scores = foils.score(collection, {"llm": written}, encoder=HashingEncoder(), vectors=str(tmp_path))
    assert scores.decision is not None
    assert scores.decision.worths["llm"].false_share_high > 0.9, "nothing is known of them"
