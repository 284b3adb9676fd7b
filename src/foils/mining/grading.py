"""Grades of pairs by a language model."""

from __future__ import annotations

from typing import Any

import numpy as np

from foils.llm import PairQuestions, ValueForm
from foils.mining.pairs import Scores, TextPairs

VERSION = "grade-1"
MOST = 4
GRADE = ValueForm(
    "grade",
    {"type": "integer", "minimum": 0, "maximum": MOST},
    kind="grade",
    prompt=("foils.mining", VERSION),
    words=f'Answer in JSON: {{"grade": N}}, where N is a whole number from 0 to {MOST}.',
    accepts=lambda value: type(value) is int and 0 <= value <= MOST,
    unreadable=f"an answer without a grade from 0 to {MOST}",
)


class LLMScorer(PairQuestions):
    """Grades of a language model, from 0 to 4, for each pair by itself; NaN where no answer came or could be read.

    Source: pointwise grades from 0 to 4 are those of Zhuang et al. 2024 (2310.14122), whose expected grade needs the
    probabilities of words, which servers may lack; here a grade is what the model says.
    """

    form = GRADE

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it."""
        return {"name": self.name, "fingerprint": self.fingerprint}

    def score(self, pairs: TextPairs) -> Scores:
        """Return the grade of each pair, (n,).

        Raises:
            InputError: the server refuses the key, or does not know the model.
            FailureError: question after question failed, or the log cannot be written; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        queries, documents = pairs.collection.query_texts(pairs.query_rows), pairs.documents[:]
        grades = self.answers(list(zip(queries, documents, strict=True)))
        return np.array([np.nan if grade is None else grade for grade in grades], np.float64)
