"""Answers of a language model to the queries, whose vectors make the sun (LLM DIME and LLM Eclipse).

Every finished answer is on disk before the next begins to count, so a stopped run asks for what is missing alone. A
failure is said, with its reason; its query has no answer, and searches with every dimension.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from foils.data.lines import whole_text
from foils.llm import Client, NoAnswerError, Session, Usage, ask_missing, digest
from foils.llm.answers import without_thoughts
from foils.runtime.errors import FormatError, InputError

VERSION = "answer-1"
SLOT = "{query}"


@dataclass(frozen=True)
class AnswerPrompt:
    """A template with the slot {query}.

    Attributes:
        template: what is said, whole.
        version: what to call it in provenance.

    Raises:
        InputError: a template without the slot, or with another.
    """

    template: str = field(
        default_factory=lambda: (files("foils.searching") / "prompts" / f"{VERSION}.txt").read_text("utf-8")
    )
    version: str = VERSION

    def __post_init__(self) -> None:
        found = set(re.findall(r"\{[a-z_]+\}", self.template))
        if found != {SLOT}:
            raise InputError(
                f"expected a template with the slot {SLOT} alone; found {', '.join(sorted(found)) or 'none'}"
            )

    @classmethod
    def read(cls, path: str | Path) -> AnswerPrompt:
        """Read a template from a file; its name, less the ending, is the version.

        Raises:
            InputError: no such file.
            FormatError: it is not UTF-8, or a template without the slot, or with another.
        """
        text = whole_text(path)
        try:
            return cls(text, Path(path).stem)
        except InputError as error:
            raise FormatError(str(error), path) from error

    def text(self, query: str) -> str:
        """Return the prompt for a query."""
        return self.template.replace(SLOT, query)


@dataclass(frozen=True)
class AnswerAsking:
    """What is asked for.

    Attributes:
        prompt: template.
        temperature: of the sampling.
        most_tokens: of an answer; None: the server's default.
        seed: sent with the request; a server may heed it.

    Raises:
        InputError: a setting out of range.
    """

    prompt: AnswerPrompt = field(default_factory=AnswerPrompt)
    temperature: float = 0.0
    most_tokens: int | None = 256
    seed: int = 0

    def __post_init__(self) -> None:
        if self.temperature < 0 or (self.most_tokens is not None and self.most_tokens < 1):
            raise InputError(
                f"expected a temperature of at least 0 and most_tokens of at least 1; found {self.temperature}, "
                f"{self.most_tokens}"
            )

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it."""
        template = hashlib.blake2b(self.prompt.template.encode(), digest_size=16).hexdigest()
        return {
            "prompt": self.prompt.version,
            "prompt_digest": template,
            "temperature": self.temperature,
            "most_tokens": self.most_tokens,
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Answers:
    """What asking gave.

    Attributes:
        texts: query id → answer; None for a query that has none.
        failed: reason → number of queries.
        usage: requests and tokens for these queries, in this run and before.
    """

    texts: dict[str, str | None]
    failed: dict[str, int]
    usage: Usage


@dataclass(frozen=True)
class _Query:
    key: str
    query_id: str
    text: str


@dataclass(frozen=True)
class _Answered:
    query_id: str
    answer: str | None
    failure: str | None
    usage: Usage

    def as_record(self) -> dict[str, Any]:
        return {
            "query_id": self.query_id,
            "answer": self.answer,
            "failure": self.failure,
            **self.usage.as_record(),
        }


def ask_answers(
    queries: Mapping[str, str], client: Client, log: str | Path, *, asking: AnswerAsking | None = None
) -> Answers:
    """Let a model answer every query.

    Args:
        queries: id → text.
        client: of the server.
        log: folder for finished answers, one file for each combination of model, server and settings.
        asking: what is asked.

    Raises:
        InputError: a server that refuses key or model.
        FailureError: the server fails query after query; what was finished is kept.

    Source: DIME (Faggioli et al. 2024), LLM DIM estimators; Eclipse eq. 2 and 4.
    """
    asking = asking or AnswerAsking()
    settings = sorted(asking.describe().items())
    records = [_Query(digest(client.identity, settings, text), query, text) for query, text in queries.items()]

    async def serve(session: Session, record: _Query) -> _Answered:
        try:
            said = await session.answer(
                asking.prompt.text(record.text),
                seed=asking.seed,
                temperature=asking.temperature,
                most_tokens=asking.most_tokens,
            )
        except NoAnswerError as error:
            return _Answered(record.query_id, None, str(error), session.usage)
        answer = without_thoughts(said).strip()
        return _Answered(record.query_id, answer or None, None if answer else "a blank answer", session.usage)

    file = Path(log) / f"answers-{digest(client.identity, settings)}.jsonl"
    found = ask_missing(client, file, records, serve, task="asking for answers", unit="queries")
    return Answers(
        {record.query_id: kept["answer"] for record, kept in zip(records, found, strict=True)},
        dict(Counter(kept["failure"] for kept in found if kept["failure"] is not None)),
        Usage.total(found),
    )
