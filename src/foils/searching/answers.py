"""Answers of a language model to the queries, whose vectors make the sun (LLM DIME and LLM Eclipse).

Every finished answer is on disk before the next begins to count, so a stopped run asks for what is missing alone. A
failure is said, with its reason; its query has no answer, and searches with every dimension.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from foils.data.collection import Collection
from foils.data.lines import Complaints, json_objects, text_field, whole_text
from foils.llm import Client, LLMSettings, NoAnswerError, Session, Usage, ask_missing, digest
from foils.llm.answers import without_thoughts
from foils.runtime.errors import FormatError, InputError

VERSION = "answer-1"
SLOT = "{query}"
MOST_TOKENS = 256  # of an answer
log = logging.getLogger(__name__)


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
    most_tokens: int | None = MOST_TOKENS
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


def read_answers(path: str | Path) -> dict[str, str | None]:
    """Read lines of {"query_id": …, "answer": …}.

    Raises:
        InputError: no such file.
        FormatError: a line of another form, a blank answer, or a second answer to a query; all are listed.
    """
    complaints = Complaints(path)
    answers: dict[str, str | None] = {}
    for line, record in json_objects(path, complaints):
        query, answer = text_field(record.get("query_id")), text_field(record.get("answer"))
        if query is None or not (answer or "").strip():
            complaints.add('expected {"query_id": string, "answer": a text that is not empty}', line)
        elif query in answers:
            complaints.add(f"{query!r} has an answer on an earlier line already", line)
        else:
            answers[query] = str(answer)
    complaints.settle()
    return answers


def written_answers(
    collection: Collection, splits: Sequence[str], llm: LLMSettings, prompt: AnswerPrompt, *, seed: int
) -> tuple[Answers, dict[str, Any]]:
    """Let a language model answer every query of the splits; report what it used, and why answers are missing.

    Returns:
        The answers, and what JSON says of them.
    """
    asking = AnswerAsking(prompt, llm.llm_temperature, llm.most_tokens or MOST_TOKENS, seed)
    ids = list(
        dict.fromkeys(query for split in splits for query in collection.judgements(split)["query_id"].to_pylist())
    )
    texts = collection.query_texts(collection.query_rows(ids))
    client = llm.client()
    answers = ask_answers(dict(zip(ids, texts, strict=True)), client, llm.folder(collection), asking=asking)
    answered = sum(text is not None for text in answers.texts.values())
    used = ", ".join(f"{count} {what}" for what, count in answers.usage.rows(llm.price))
    log.info("%s answered %s of %s queries: %s", client.model, f"{answered:,}", f"{len(ids):,}", used)
    for reason, count in answers.failed.items():
        log.info("no answer for %s queries, which keep every dimension: %s", f"{count:,}", reason)
    return answers, {
        **client.describe(), **asking.describe(), "answered": answered, "failed": answers.failed,
        **answers.usage.to_json(llm.price),
    }  # fmt: skip


def ask_answers(
    queries: Mapping[str, str], client: Client, folder: str | Path, *, asking: AnswerAsking | None = None
) -> Answers:
    """Let a model answer every query.

    Args:
        queries: id → text.
        client: of the server.
        folder: for finished answers, one file for each combination of model, server and settings.
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
            reply = await session.answer(
                asking.prompt.text(record.text),
                seed=asking.seed,
                temperature=asking.temperature,
                most_tokens=asking.most_tokens,
            )
        except NoAnswerError as error:
            return _Answered(record.query_id, None, str(error), session.usage)
        answer = without_thoughts(reply).strip()
        return _Answered(record.query_id, answer or None, None if answer else "a blank answer", session.usage)

    file = Path(folder) / f"answers-{digest(client.identity, settings)}.jsonl"
    found = ask_missing(client, file, records, serve, task="asking for answers", unit="queries")
    return Answers(
        {record.query_id: kept["answer"] for record, kept in zip(records, found, strict=True)},
        dict(Counter(kept["failure"] for kept in found if kept["failure"] is not None)),
        Usage.total(found),
    )
