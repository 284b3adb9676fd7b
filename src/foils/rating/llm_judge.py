"""A language model as a judge, behind any OpenAI-compatible server.

Every answer is on disk before it counts, so a stopped run asks for what is missing alone; one that failed is missing,
and is asked for again by the next run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foils.llm import AnswerStore, BatchFolder, Client, ModelUse, Question, Sampling, ask_questions, digest
from foils.rating.candidates import Candidates
from foils.rating.pairs import Floats, Pairs, Rows
from foils.rating.pairwise import texts_of
from foils.rating.question import TOKEN, QuestionSettings

UNREADABLE = "an answer that holds no preference"


class LLMJudge:
    """P(first ≻ second) as a language model says it, the first shown as A; NaN where no answer came or could be read.

    It has a position bias as all such judges have: `ask` shows both orders and averages, and measures it.

    Args:
        client: how to reach the model.
        log: folder of the answers.
        question: what is asked.
        sampling: how answers are drawn.
        batch: folder of OpenAI's batch form, in the place of the server (`foils.llm.batch`); `settle` then tells
            whether any question waits. None: the server is asked.

    Attributes:
        asked: requests, tokens and failures so far.
    """

    antisymmetric = False

    def __init__(
        self,
        client: Client,
        log: str | Path,
        question: QuestionSettings | None = None,
        sampling: Sampling | None = None,
        batch: str | Path | None = None,
    ) -> None:
        self._client = client
        self._question, self._sampling = question or QuestionSettings(), sampling or Sampling()
        self.name = client.model
        decisive = {**self._question.describe(), **self._sampling.describe()}
        self.fingerprint = digest("llm judge", client.identity, sorted(decisive.items()))
        self._log = AnswerStore(log)
        self._batch = None if batch is None else BatchFolder(batch, f"{self.name}-{self.fingerprint[:8]}")
        self.asked = ModelUse()

    def settle(self) -> None:
        """Finish the files of a batch.

        Raises:
            WaitingError: questions wait for the results of one.
        """
        if self._batch is not None:
            self._batch.settle()

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it."""
        return {**self._client.describe(), **self._question.describe(), **self._sampling.describe()}

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the model's answers, (m,), `concurrency` of them asked for at once.

        Raises:
            InputError: the server refuses the key, or does not know the model.
            FailureError: question after question failed, or the log cannot be written; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        candidates.check(pairs)
        texts = zip(*texts_of(candidates, pairs.first, pairs.second), strict=True)
        return self._asked([self._question.text(*each) for each in texts])

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return (m,) P(first answers its query better than second answers its own), by the prompt between-1.

        Raises:
            As `judge`.
        """
        queries, ones, others = texts_of(candidates, first, second)
        of_second = [candidates.queries[row] for row in candidates.query_of(second)]
        texts = zip(queries, ones, of_second, others, strict=True)
        return self._asked([self._question.text_between(*each) for each in texts])

    def _asked(self, prompts: Sequence[str]) -> Floats:
        """Return the answers to these prompts, (m,), NaN where there is none."""
        questions = [Question(digest(self.fingerprint, prompt), prompt) for prompt in prompts]
        answers = ask_questions(
            self._client,
            self._log,
            questions,
            self._question.parsed,
            first_token=self._question.answer == TOKEN,
            name="preference",
            unreadable=UNREADABLE,
            sampling=self._sampling,
            tries=self._question.asks,
            schema=self._question.schema,
            batch=self._batch,
            task=f"asking {self.name}",
        )
        self.asked.count({question.key: answer for question, answer in zip(questions, answers, strict=True)})
        return np.array([np.nan if one["preference"] is None else one["preference"] for one in answers], np.float64)
