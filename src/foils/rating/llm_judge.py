"""A language model as a judge, behind any OpenAI-compatible server: what it is asked, and how its answer is read.

Every answer is on disk before it counts, so a stopped run asks for what is missing alone; one that failed is missing,
and is asked for again by the next run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from foils.llm import (
    AnswerStore,
    Client,
    ModelUse,
    Question,
    Sampling,
    Template,
    ask_questions,
    digest,
    fenced,
)
from foils.llm.answers import json_values, without_thoughts
from foils.llm.client import LLM_ARGS
from foils.llm.prompts import TemplateLike
from foils.rating.pairs import Candidates, Floats, Pairs, Rows, texts_of
from foils.runtime.options import Option, Settings

PREFERENCE, TOKEN = "preference", "token"
LEAST_SHARE = 0.5  # probability of both letters together, below which a token is no answer
VERSION, BETWEEN = "pairwise-1", "between-1"
SLOTS = {"needed": ("query", "first", "second"), "optional": ("domain", "answer")}
BETWEEN_SLOTS = {"needed": ("first_query", "first", "second_query", "second"), "optional": ("domain", "answer")}
ANSWERS = {
    PREFERENCE: 'Answer in JSON: {"preference": p}, where p, from 0 to 1, is the probability that A is the better one: '
    "1 if A surely is, 0 if B surely is, 0.5 if you cannot tell.",
    TOKEN: "Answer with one letter and nothing else: A if A is the better one, B if B is.",
}
"""Form of answer → what the prompt says of it."""
SCHEMA = {
    "type": "object",
    "properties": {PREFERENCE: {"type": "number", "minimum": 0, "maximum": 1}},
    "required": [PREFERENCE],
    "additionalProperties": False,
}


def _preference(value: Any) -> float | None:
    """A number in [0, 1] as it is; anything else is no answer."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        return None
    return float(value)


def _letters(probabilities: Mapping[str, float]) -> float | None:
    """P(A)/(P(A) + P(B)); no answer where the model would rather say something else than either letter."""
    share = dict.fromkeys("AB", 0.0)
    for token, probability in probabilities.items():
        if token.strip() in share:
            share[token.strip()] += probability
    total = share["A"] + share["B"]
    return share["A"] / total if total > LEAST_SHARE else None


@dataclass(frozen=True, kw_only=True)
class QuestionSettings(Settings):
    """What a language model is asked about a pair.

    Attributes:
        question: Text file with your prompt. It has {query}, {first}, {second}, and optionally {domain} and {answer};
            without {answer}, the form of the answer is explained at the end. In Python also a `Template`.
        answer: Form of the answer. It is a number from 0 to 1 (preference), or one token, A or B, whose
            log-probabilities are read (token).
        domain: Field of the collection, which the prompt names.
        asks: Times a question is asked until its answer can be read.
        longest: Characters of a document that the model is shown.
    """

    heading = "Language model"

    question: Annotated[TemplateLike | None, Option(within=LLM_ARGS)] = None
    answer: Annotated[str, Option(names=tuple(ANSWERS), within=LLM_ARGS)] = PREFERENCE
    domain: Annotated[str, Option(within=LLM_ARGS)] = "general"
    asks: Annotated[int, Option(least=1, within=LLM_ARGS)] = 2
    longest: Annotated[int | None, Option(least=1, within=LLM_ARGS)] = 6000

    @cached_property
    def template(self) -> Template:
        """The prompt.

        Raises:
            InputError: no such file.
            FormatError: it is not UTF-8, or its slots are not those expected.
        """
        return Template.of(self.question, "foils.rating", VERSION, **SLOTS)

    def describe(self) -> dict[str, Any]:
        """Return what decides an answer beside the model, its sampling and the texts."""
        return {
            "prompt": self.template.version, "prompt_digest": digest(self.template.text, self.domain),
            "answer": self.answer, "asks": self.asks, "longest": self.longest, "fenced": True,
        }  # fmt: skip

    def text(self, query: str, first: str, second: str) -> str:
        """Return the prompt for a pair."""
        shown = fenced(query=query, first=first[: self.longest], second=second[: self.longest])
        prompt = self.template.filled(**shown, domain=self.domain, answer=ANSWERS[self.answer])
        return prompt if "answer" in self.template.slots else f"{prompt.rstrip()}\n\n{ANSWERS[self.answer]}\n"

    def text_between(self, first_query: str, first: str, second_query: str, second: str) -> str:
        """Return the prompt for documents of two queries, the package's own."""
        first, second = first[: self.longest], second[: self.longest]
        shown = fenced(first_query=first_query, first=first, second_query=second_query, second=second)
        return _between_template().filled(**shown, domain=self.domain, answer=ANSWERS[self.answer])

    def parsed(self, content: Any) -> float | None:
        """Read P(A ≻ B) out of an answer's text, or of how probable its first tokens are; None: no such value.

        Accepted: the JSON asked for, bare, in a fence, among words, or after a model's thoughts; of several such
        objects the last that can be read. Nothing is guessed from words.
        """
        if self.answer == TOKEN:
            return _letters(content)
        preference = None
        for value in json_values(without_thoughts(content)):
            if isinstance(value, dict) and PREFERENCE in value:
                preference = _preference(value[PREFERENCE])
        return preference


@cache
def _between_template() -> Template:
    return Template.of(None, "foils.rating", BETWEEN, **BETWEEN_SLOTS)


UNREADABLE = "an answer that holds no preference"


class LLMJudge:
    """P(first ≻ second) as a language model says it, the first shown as A; NaN where no answer came or could be read.

    It has a position bias as all such judges have: `ask` shows both orders and averages, and measures it.

    Args:
        client: how to reach the model.
        log: folder of the answers.
        question: what is asked.
        sampling: how answers are drawn.

    Attributes:
        client: how the model is reached.
        asked: requests, tokens and failures so far.
    """

    antisymmetric = False

    def __init__(
        self,
        client: Client,
        log: str | Path,
        question: QuestionSettings | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.client = client
        self._question, self._sampling = question or QuestionSettings(), sampling or Sampling()
        self.name = client.model
        decisive = {**self._question.describe(), **self._sampling.describe()}
        self.fingerprint = digest("llm judge", client.identity, sorted(decisive.items()))
        self._log = AnswerStore(log)
        self.asked = ModelUse()

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it."""
        return {**self.client.describe(), **self._question.describe(), **self._sampling.describe()}

    def tokens_of(self, candidates: Candidates, pairs: Pairs, *, sample: int = 100) -> float:
        """Return about how many tokens a prompt has: a quarter of its characters, the mean over the first pairs."""
        part = pairs.at(np.arange(min(sample, len(pairs))))
        texts = zip(*texts_of(candidates, part.first, part.second), strict=True)
        return float(np.mean([len(self._question.text(*each)) for each in texts]) / 4) if len(part) else 0.0

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the model's answers, (m,), `concurrency` of them asked for at once.

        Raises:
            InputError: the server refuses the key, or does not know the model.
            FailureError: question after question failed, or the log cannot be written; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        candidates.check(pairs)
        texts = zip(*texts_of(candidates, pairs.first, pairs.second), strict=True)
        return self._asked([self._question.text(*each) for each in texts], announced=True)

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return (m,) P(first answers its query better than second answers its own), by the prompt between-1.

        Raises:
            As `judge`.
        """
        queries, ones, others = texts_of(candidates, first, second)
        of_second = [candidates.queries[row] for row in candidates.query_of(second)]
        texts = zip(queries, ones, of_second, others, strict=True)
        return self._asked([self._question.text_between(*each) for each in texts])

    def _asked(self, prompts: Sequence[str], *, announced: bool = False) -> Floats:
        """Return the answers to these prompts, (m,), NaN where there is none."""
        questions = [Question(digest(self.fingerprint, prompt), prompt) for prompt in prompts]
        answers = ask_questions(
            self.client,
            self._log,
            questions,
            self._question.parsed,
            first_token=self._question.answer == TOKEN,
            name=PREFERENCE,
            unreadable=UNREADABLE,
            sampling=self._sampling,
            tries=self._question.asks,
            schema=None if self._question.answer == TOKEN else SCHEMA,
            announced=announced,
            task=f"asking {self.name}",
        )
        self.asked.count({question.key: answer for question, answer in zip(questions, answers, strict=True)})
        return np.array([np.nan if one["preference"] is None else one["preference"] for one in answers], np.float64)
