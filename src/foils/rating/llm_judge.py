"""A language model as a judge, behind any OpenAI-compatible server.

Every answer is on disk before it counts, so a stopped run asks for what is missing alone; one that failed is missing,
and is asked for again by the next run.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from foils.llm import Client, NoAnswerError, RecordLog, Session, Usage, ask_missing, digest
from foils.rating.candidates import Candidates
from foils.rating.llm_prompt import ANSWERS, PairAsking, parse_answer
from foils.rating.pairs import Floats, Pairs
from foils.rating.pairwise import texts_of

UNREADABLE = "an answer that holds no preference"


@dataclass(frozen=True)
class _Question:
    """Two documents in the order in which they are shown."""

    key: str
    prompt: str


@dataclass
class _Answered:
    """What a question came to."""

    usage: Usage
    preference: float | None = None
    failure: str | None = None

    def as_record(self) -> dict[str, Any]:
        return {"preference": self.preference, "failure": self.failure, **self.usage.as_record()}


@dataclass
class Asked:
    """What a judge was asked so far.

    Attributes:
        usage: of the answers it gave, in this run and before.
        failures: why there is no answer → how many.
    """

    usage: Usage = field(default_factory=Usage)
    failures: Counter[str] = field(default_factory=Counter)


class LLMJudge:
    """P(first ≻ second) as a language model says it, the first shown as A; NaN where no answer came or could be read.

    It has a position bias as all such judges have: `ask` shows both orders and averages, and measures it.

    Args:
        client: how to reach the model.
        log: folder of the answers, one file of JSON lines for each model, server and way of asking.
        asking: what is asked.

    Attributes:
        asked: requests, tokens and failures so far.
    """

    antisymmetric = False

    def __init__(self, client: Client, log: str | Path, asking: PairAsking | None = None) -> None:
        self._client, self._asking = client, asking or PairAsking()
        self.name = client.model
        self.fingerprint = digest("llm judge", client.identity, sorted(self._asking.describe().items()))
        self._log = RecordLog(Path(log) / f"{self.fingerprint}.jsonl")  # read once, however often it is asked
        self.asked = Asked()

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it."""
        return {**self._client.describe(), **self._asking.describe()}

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the model's answers, (m,), `concurrency` of them asked for at once.

        Raises:
            InputError: the server refuses the key, or does not know the model.
            FailureError: question after question failed, or the log cannot be written; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        candidates.check(pairs)
        prompts = [
            self._asking.text(*texts) for texts in zip(*texts_of(candidates, pairs.first, pairs.second), strict=True)
        ]
        questions = [_Question(digest(self.fingerprint, prompt), prompt) for prompt in prompts]
        found = ask_missing(
            self._client, self._log, questions, self._serve, task=f"asking {self.name}", unit="questions"
        )
        once = dict(zip((question.key for question in questions), found, strict=True)).values()
        used = Usage.total(once)
        self.asked.usage.requests += used.requests
        self.asked.usage.prompt_tokens += used.prompt_tokens
        self.asked.usage.completion_tokens += used.completion_tokens
        self.asked.failures.update(record["failure"] for record in once if record["failure"] is not None)
        return np.array([np.nan if one["preference"] is None else one["preference"] for one in found], np.float64)

    async def _serve(self, session: Session, question: _Question) -> _Answered:
        """Ask until the answer can be read, or has been asked for often enough."""
        answered, asking = _Answered(session.usage), self._asking
        for turn in range(asking.asks):
            try:
                said = await session.answer(
                    question.prompt,
                    seed=asking.seed + turn,
                    temperature=asking.temperature,
                    schema=ANSWERS[asking.answer].schema,
                    name=asking.answer,
                    most_tokens=asking.most_tokens,
                )
            except NoAnswerError as error:
                answered.failure = str(error)
                continue
            answered.preference = parse_answer(said, asking.answer)
            answered.failure = UNREADABLE if answered.preference is None else None
            if answered.failure is None:
                break
        return answered
