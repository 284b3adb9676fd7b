"""A language model as a judge, behind any OpenAI-compatible server: what it is asked, and how its answer is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from foils.llm import Client, Form, Questions, Sampling, Template, Usage, digest
from foils.llm.asking import ANSWER_TOKENS, CHARACTERS_A_TOKEN
from foils.llm.client import LLM_ARGS
from foils.llm.prompts import TemplateLike
from foils.llm.questions import ATTEMPTS, LONGEST
from foils.rating.pairs import Candidates, Floats, Pairs, Rows, texts_of
from foils.runtime.options import Option, Settings

LEAST_SHARE = 0.5  # probability of both letters together, below which a token is no answer
VERSION, BETWEEN = "pairwise-1", "between-1"
SLOTS = {"needed": ("query", "first", "second"), "optional": ("domain", "answer")}
BETWEEN_SLOTS = {"needed": ("first_query", "first", "second_query", "second"), "optional": ("domain", "answer")}
PREFERENCE, TOKEN = "preference", "token"


def _probability(value: Any) -> float | None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= 1 else None


def _letters(probabilities: Mapping[str, float]) -> float | None:
    """P(A)/(P(A) + P(B)); no answer where the model would rather say something else than either letter."""
    share = dict.fromkeys("AB", 0.0)
    for token, probability in probabilities.items():
        if token.strip() in share:
            share[token.strip()] += probability
    total = share["A"] + share["B"]
    return share["A"] / total if total > LEAST_SHARE else None


FORMS = {
    PREFERENCE: Form(
        PREFERENCE,
        'Answer in JSON: {"preference": p}, where p, from 0 to 1, is the probability that A is the better one: '
        "1 if A surely is, 0 if B surely is, 0.5 if you cannot tell.",
        _probability,
        {"type": "number", "minimum": 0, "maximum": 1},
    ),
    TOKEN: Form(
        PREFERENCE,
        "Answer with one letter and nothing else: A if A is the better one, B if B is.",
        _letters,
    ),
}


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
    answer: Annotated[str, Option(names=tuple(FORMS), within=LLM_ARGS)] = PREFERENCE
    domain: Annotated[str, Option(within=LLM_ARGS)] = "general"

    @cached_property
    def template(self) -> Template:
        """The prompt.

        Raises:
            InputError: no such file.
            FormatError: it is not UTF-8, or its slots are not those expected.
        """
        return Template.of(self.question, "foils.rating", VERSION, **SLOTS)


class LLMJudge:
    """P(first ≻ second) as a language model says it, the first shown as A; NaN where no answer came or could be read.

    It has a position bias as all such judges have: `ask` shows both orders and averages, and measures it.

    Args:
        client: how to reach the model.
        log: folder of the answers.
        question: what is asked.
        sampling: how answers are drawn.

    Attributes:
        questions: asks them, and counts what that takes.
    """

    antisymmetric = False

    def __init__(
        self,
        client: Client,
        log: str | Path,
        question: QuestionSettings | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.name, self._question = client.model, question or QuestionSettings()
        template, answer = self._question.template, self._question.answer
        described = {
            "prompt": template.version, "prompt_digest": digest(template.text, self._question.domain),
            "answer": answer, "asks": ATTEMPTS, "longest": LONGEST, "fenced": True,
        }  # fmt: skip
        self.questions = Questions(client, log, FORMS[answer], sampling, kind="llm judge", described=described)
        self.fingerprint = self.questions.fingerprint

    def cost(self, candidates: Candidates, pairs: Pairs, *, sample: int = 100) -> Usage:
        """Return about what both orders of these pairs take, by the prompts of the first ones."""
        prompts = self._prompts(candidates, pairs.at(np.arange(min(sample, len(pairs)))))
        count, tokens = 2 * len(pairs), np.mean([len(each) for each in prompts]) / CHARACTERS_A_TOKEN
        return Usage(count, round(count * tokens), count * ANSWER_TOKENS)

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the model's answers, (m,), `concurrency` of them asked for at once.

        Raises:
            As `Questions.ask`.
        """
        candidates.check(pairs)
        return np.array(self.questions.ask(self._prompts(candidates, pairs), announced=True), np.float64)

    def _prompts(self, candidates: Candidates, pairs: Pairs) -> list[str]:
        template, domain = self._question.template, self._question.domain
        texts = zip(*texts_of(candidates, pairs.first, pairs.second), strict=True)
        return [self.questions.prompt(template, domain=domain, query=q, first=a, second=b) for q, a, b in texts]

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return (m,) P(first answers its query better than second answers its own), by the prompt between-1.

        Raises:
            As `Questions.ask`.
        """
        queries, ones, others = texts_of(candidates, first, second)
        of_second = [candidates.queries[row] for row in candidates.query_of(second)]
        template, domain = Template.of(None, "foils.rating", BETWEEN, **BETWEEN_SLOTS), self._question.domain
        prompts = [
            self.questions.prompt(template, domain=domain, first_query=q, first=a, second_query=r, second=b)
            for q, a, r, b in zip(queries, ones, of_second, others, strict=True)
        ]
        return np.array(self.questions.ask(prompts), np.float64)
