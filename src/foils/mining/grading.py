"""Grades of pairs by a language model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from foils.llm import Client, PairQuestions, Sampling, ValueForm
from foils.llm.template import TemplateLike
from foils.mining.pairs import Scores, TextPairs

VERSION = "grade-1"
MOST = 4
GRADE = ValueForm(
    "grade",
    {"type": "integer", "minimum": 0, "maximum": MOST},
    kind="grade",
    words=f'Answer in JSON: {{"grade": N}}, where N is a whole number from 0 to {MOST}.',
    accepts=lambda value: type(value) is int and 0 <= value <= MOST,
    unreadable=f"an answer without a grade from 0 to {MOST}",
)


class LLMScorer:
    """Grades of a language model, from 0 to 4, for each pair by itself; NaN where no answer came or could be read.

    Args:
        client: how to reach the model.
        log: folder of the answers, so that none is asked for twice.
        question: a prompt with {query}, {document}, and optionally {answer}; None: the package's own.
        sampling: how answers are drawn.

    Attributes:
        name: what to call it.
        asked: requests, tokens and failures so far.

    Raises:
        InputError: a file of a prompt that is not there.
        FormatError: slots of a prompt that are not those expected.

    Source: pointwise grades from 0 to 4 are those of Zhuang et al. 2024 (2310.14122), whose expected grade needs the
    probabilities of words, which servers may lack; here a grade is what the model says.
    """

    def __init__(
        self,
        client: Client,
        log: str | Path,
        question: TemplateLike | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.name = f"llm:{client.model}"
        template = PairQuestions.template(question, "foils.mining", VERSION)
        self._questions = PairQuestions(client, log, template, GRADE, sampling)
        self.asked = self._questions.asked

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it."""
        return {"name": self.name, "fingerprint": self._questions.fingerprint}

    def score(self, pairs: TextPairs) -> Scores:
        """Return the grade of each pair, (n,).

        Raises:
            InputError: the server refuses the key, or does not know the model.
            FailureError: question after question failed, or the log cannot be written; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        queries, documents = pairs.collection.query_texts(pairs.query_rows), pairs.documents[:]
        grades = self._questions.answers(list(zip(queries, documents, strict=True)))
        return np.array([np.nan if grade is None else grade for grade in grades], np.float64)
