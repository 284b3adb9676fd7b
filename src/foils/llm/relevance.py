"""A language model asked about one document at a time: how likely it is that the document answers the query."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit

from foils.llm.asking import digest
from foils.llm.client import Client, Purse, Sampling
from foils.llm.prompts import Template, TemplateLike
from foils.llm.questions import ATTEMPTS, LONGEST, Form, Questions, probability

VERSION = "relevance-1"
SURE = 0.01  # the least probability that is told from 0, and by as much from 1
RELEVANCE = Form(
    "relevance",
    'Answer in JSON: {"relevance": p}, where p, from 0 to 1, is the probability that the passage answers the query: '
    "1 if it surely does, 0 if it surely does not.",
    probability,
    {"type": "number", "minimum": 0, "maximum": 1},
)


class RelevanceQuestions(Questions):
    """Asks how likely it is that each document answers its query, and scores it by the logit of that probability.

    Args:
        client: how to reach the model.
        log: folder of the answers.
        template: a prompt with {query}, {document}, and optionally {domain} and {answer}; None: the package's own.
        domain: field of the collection, for the prompt.
        sampling: how answers are drawn.
        purse: of all language models of the run.
    """

    def __init__(
        self,
        client: Client,
        log: str | Path,
        *,
        template: TemplateLike | None = None,
        domain: str = "general",
        sampling: Sampling | None = None,
        purse: Purse | None = None,
    ) -> None:
        slots = {"needed": ("query", "document"), "optional": ("domain", "answer")}
        self.template, self.domain = Template.of(template, "foils.llm", VERSION, **slots), domain
        described = {
            "prompt": self.template.version, "prompt_digest": digest(self.template.text, domain),
            "answer": RELEVANCE.name, "asks": ATTEMPTS, "longest": LONGEST,
        }  # fmt: skip
        super().__init__(client, log, RELEVANCE, sampling, kind="relevance", described=described, purse=purse)

    def prompts(self, queries: Sequence[str], documents: Sequence[str]) -> list[str]:
        """Return the question about each document of its query."""
        pairs = zip(queries, documents, strict=True)
        return [self.prompt(self.template, domain=self.domain, query=q, document=d) for q, d in pairs]

    def scores(
        self, queries: Sequence[str], documents: Sequence[str], *, announced: bool = False
    ) -> npt.NDArray[np.float64]:
        """Return (n,) log(p/(1 − p)) of each document, p between .01 and .99; NaN where no answer came.

        Raises:
            As `Questions.ask`.
        """
        answers: list[Any] = self.ask(self.prompts(queries, documents), announced=announced)
        return np.asarray(logit(np.clip(np.array(answers, np.float64), SURE, 1 - SURE)))
