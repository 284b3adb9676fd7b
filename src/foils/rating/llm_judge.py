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

from foils.llm import AnswerStore, Client, ModelUse, Question, Sampling, Template, ask_questions, digest, fenced
from foils.llm.answers import json_values, without_thoughts
from foils.llm.client import LLM_ARGS
from foils.llm.prompts import TemplateLike
from foils.rating.pairs import Candidates, Floats, Pairs, Rows, texts_of
from foils.runtime.options import Option, Settings

ATTEMPTS = 2  # times that a question is asked until its answer can be read
LONGEST = 6_000  # characters of a document that a model is shown
LEAST_SHARE = 0.5  # probability of both letters together, below which a token is no answer
VERSION, BETWEEN = "pairwise-1", "between-1"
SLOTS = {"needed": ("query", "first", "second"), "optional": ("domain", "answer")}
BETWEEN_SLOTS = {"needed": ("first_query", "first", "second_query", "second"), "optional": ("domain", "answer")}
PREFERENCE, TOKEN = "preference", "token"
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
UNREADABLE = "an answer that holds no preference"


def read_preference(content: str) -> float | None:
    """Return the last number in [0, 1] that is called so in what a model said; nothing is guessed from words."""
    values = [value.get(PREFERENCE) for value in json_values(without_thoughts(content)) if isinstance(value, dict)]
    numbers = [each for each in values if isinstance(each, (int, float)) and not isinstance(each, bool)]
    return next((float(each) for each in reversed(numbers) if 0 <= each <= 1), None)


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
    """

    heading = "Language model"

    question: Annotated[TemplateLike | None, Option(within=LLM_ARGS)] = None
    answer: Annotated[str, Option(names=tuple(ANSWERS), within=LLM_ARGS)] = PREFERENCE
    domain: Annotated[str, Option(within=LLM_ARGS)] = "general"

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
            "answer": self.answer, "asks": ATTEMPTS, "longest": LONGEST, "fenced": True,
        }  # fmt: skip

    def text(self, template: Template, **texts: str) -> str:
        """Return the prompt of a template for these texts by slot; documents are cut."""
        shown = fenced(**{slot: text if "query" in slot else text[:LONGEST] for slot, text in texts.items()})
        prompt, words = template.filled(**shown, domain=self.domain, answer=ANSWERS[self.answer]), ANSWERS[self.answer]
        return prompt if "answer" in template.slots else f"{prompt.rstrip()}\n\n{words}\n"


@cache
def _between_template() -> Template:
    return Template.of(None, "foils.rating", BETWEEN, **BETWEEN_SLOTS)


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
        prompts = self._prompts(candidates, pairs.at(np.arange(min(sample, len(pairs)))))
        return float(np.mean([len(each) for each in prompts]) / 4) if prompts else 0.0

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the model's answers, (m,), `concurrency` of them asked for at once.

        Raises:
            InputError: the server refuses the key, or does not know the model.
            FailureError: question after question failed, or the log cannot be written; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        candidates.check(pairs)
        return self._asked(self._prompts(candidates, pairs), announced=True)

    def _prompts(self, candidates: Candidates, pairs: Pairs) -> list[str]:
        texts, template = texts_of(candidates, pairs.first, pairs.second), self._question.template
        return [self._question.text(template, query=q, first=a, second=b) for q, a, b in zip(*texts, strict=True)]

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return (m,) P(first answers its query better than second answers its own), by the prompt between-1.

        Raises:
            As `judge`.
        """
        queries, ones, others = texts_of(candidates, first, second)
        of_second = [candidates.queries[row] for row in candidates.query_of(second)]
        template, slots = _between_template(), BETWEEN_SLOTS["needed"]
        texts = [dict(zip(slots, each, strict=True)) for each in zip(queries, ones, of_second, others, strict=True)]
        return self._asked([self._question.text(template, **each) for each in texts])

    def _asked(self, prompts: Sequence[str], *, announced: bool = False) -> Floats:
        """Return the answers to these prompts, (m,), NaN where there is none."""
        questions = [Question(digest(self.fingerprint, prompt), prompt) for prompt in prompts]
        token = self._question.answer == TOKEN
        answers = ask_questions(
            self.client,
            self._log,
            questions,
            _letters if token else read_preference,
            first_token=token,
            name=PREFERENCE,
            unreadable=UNREADABLE,
            sampling=self._sampling,
            tries=ATTEMPTS,
            schema=None if token else SCHEMA,
            announced=announced,
            task=f"asking {self.name}",
        )
        self.asked.count({question.key: answer for question, answer in zip(questions, answers, strict=True)})
        values = [answer[PREFERENCE] for answer in answers]
        return np.array([np.nan if value is None else value for value in values], np.float64)
