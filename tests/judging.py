"""Judges and encoders with known answers, and what they judge."""

import tempfile
from typing import Any

import numpy as np
import pytest
from scipy.special import expit

import foils
from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.rating import Candidates, Rated, Spread, fit_ratings


def listed(pairs: Any) -> Negatives:
    """A table of (query, document) pairs, ranked as they come."""
    queries, documents = zip(*pairs, strict=True)
    return Negatives(negatives_table(list(queries), list(documents), "s", range(len(pairs)), np.zeros(len(pairs))))


def numbers(documents: dict[str, float], queries: int, qrels: Any = None) -> Collection:
    """A collection whose documents are numbers, which a judge may read off."""
    texts = {name: str(float(value)) for name, value in documents.items()}
    return Collection.from_dicts("numbers", texts, {f"q{i}": f"query {i}" for i in range(queries)}, qrels or {})


def rate_negatives(
    collection: Collection,
    negatives: Negatives,
    judge: Any,
    *,
    cache: Any = None,
    prior_sd: Any = None,
    **settings: Any,
) -> Rated:
    """Rate by a judge, or a list of them, without answers of before where no cache is given.

    The prior is fitted to the answers, where no `prior_sd` is given.
    """
    with tempfile.TemporaryDirectory() as none, pytest.MonkeyPatch.context() as environment:
        environment.setenv("FOILS_CACHE", str(cache or none))
        if prior_sd is not None:
            environment.setattr(
                "foils.rating.doors.fit_ratings",
                lambda *answers, model, **_: fit_ratings(*answers, model=model, spread=Spread(prior_sd)),
            )
        return foils.rate(collection, negatives, judge=judge, **settings)


def letters(documents_per_query=(4, 3)):
    """Candidates whose texts are the numbers that a judge may read off: query q has documents 0, 1, 2, …"""
    documents = [[(f"q{q}d{i}", str(float(i))) for i in range(n)] for q, n in enumerate(documents_per_query)]
    ids = [f"q{q}" for q in range(len(documents))]
    return Candidates.of_lists(ids, [f"query {q}" for q in range(len(documents))], documents)


class NumberJudge:
    """σ(difference of the texts' numbers over the temperature) + bias for the first shown; counts what it is asked.

    It fails on the pairs of `fail`, and is killed once it has been asked `most` times.
    """

    def __init__(self, *, bias=0.0, temperature=1.0, fail=(), most=np.inf, antisymmetric=False, name="numbers"):
        self.name, self.fingerprint, self.antisymmetric = name, f"{name}{bias}", antisymmetric
        self.bias, self.temperature, self.fail, self.most, self.asked = bias, temperature, set(fail), most, 0

    def judge(self, candidates, pairs):
        if self.asked >= self.most:
            raise KeyboardInterrupt
        self.asked += len(pairs)
        one, other = (np.array(candidates.texts(rows), float) for rows in (pairs.first, pairs.second))
        answers = np.clip(expit((one - other) / self.temperature) + self.bias, 0, 1)
        failed = [
            (candidates.doc_ids[a].as_py(), candidates.doc_ids[b].as_py()) in self.fail
            for a, b in zip(pairs.first, pairs.second, strict=True)
        ]
        return np.where(failed, np.nan, answers)


class LetterEncoder:
    """An encoder whose vectors are counts of a, b, c, scaled to length 1."""

    name, dimension, fingerprint = "letters", 3, "letters-1"

    def __init__(self):
        self.encoded = 0

    def route(self, kind):
        return kind

    def encode(self, texts, kind):
        self.encoded += len(texts)
        counts = np.array([[text.count(letter) + 1e-3 for letter in "abc"] for text in texts], np.float32).reshape(
            -1, 3
        )
        return counts / np.linalg.norm(counts, axis=1, keepdims=True)
