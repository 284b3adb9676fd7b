"""Questions with one answer each: asked until the answer can be read, and kept as soon as it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from foils.llm.batch import WAITS, BatchFolder, from_batch
from foils.llm.client import Client, Usage
from foils.llm.completions import NoAnswerError, Request
from foils.llm.kept import ask_missing, take_missing
from foils.llm.log import RecordLog
from foils.llm.sessions import Session


@dataclass(frozen=True)
class Question:
    """A prompt, and a digest of everything that decides its answer."""

    key: str
    prompt: str


@dataclass(frozen=True)
class Sampling:
    """How an answer is drawn.

    Attributes:
        temperature: of the sampling, at least 0.
        most_tokens: of the answer; None: the server's default.
        seed: sent to the server, plus the number of the try; a server may heed it.
    """

    temperature: float = 0.0
    most_tokens: int | None = None
    seed: int = 0

    def describe(self) -> dict[str, Any]:
        """Return it for provenance."""
        return {"temperature": self.temperature, "seed": self.seed, "most_tokens": self.most_tokens}


@dataclass
class _Answered:
    name: str
    usage: Usage
    value: Any = None
    failure: str | None = None

    def as_record(self) -> dict[str, Any]:
        return {self.name: self.value, "failure": self.failure, **self.usage.as_record()}


def ask_questions(
    client: Client,
    log: str | Path | RecordLog,
    questions: Sequence[Question],
    read: Callable[[Any], Any | None],
    *,
    first_token: bool = False,
    name: str,
    unreadable: str,
    sampling: Sampling,
    tries: int = 1,
    schema: Mapping[str, Any] | None = None,
    batch: BatchFolder | None = None,
    task: str,
    unit: str = "questions",
) -> list[dict[str, Any]]:
    """Return for each question, in their order, `name` (None: no answer), `failure`, `requests` and `tokens`.

    What the log has is not asked for again, except for failures.

    Args:
        client: of the server.
        log: file of the finished answers, or the log itself.
        questions: to ask; those of one key are asked once.
        read: makes the value of an answer's text; None where it cannot be read.
        first_token: ask for one token, and have `read` take how probable each one is, token → probability.
        name: of the value, in the log and for the schema.
        unreadable: the failure of an answer that cannot be read.
        sampling: how answers are drawn.
        tries: how often a question is asked, until its answer can be read.
        schema: JSON schema of an answer; None: free text.
        batch: files of requests and results in the place of the server; what is open is written, and `batch.settle`
            tells whether any question waits. None: the server is asked.
        task: what the progress says.
        unit: what it counts.

    Raises:
        FormatError: the log is damaged.
        InputError: the server refuses the key, or does not know the model.
        FailureError: the log cannot be written, or question after question failed; what was finished is kept.
    """

    def request(question: Question, turn: int) -> Request:
        return Request(
            question.prompt,
            sampling.seed + turn,
            sampling.temperature,
            schema=schema,
            name=name,
            most_tokens=sampling.most_tokens,
            first_token=first_token,
        )

    async def serve(session: Session, question: Question) -> _Answered:
        answered = _Answered(name, session.usage)
        for turn in range(tries):
            try:
                heard = await session.heard(request(question, turn))
            except NoAnswerError as error:
                answered.failure = str(error)
                continue
            answered.value = read(heard)
            answered.failure = unreadable if answered.value is None else None
            if answered.failure is None:
                break
        return answered

    def by_batch(batch: BatchFolder, question: Question) -> _Answered:
        value, failure, usage = from_batch(
            batch,
            question.key,
            partial(request, question),
            read,
            body_of=lambda asked: asked.body(client.model, structured=client.structured),
            unreadable=unreadable,
            tries=tries,
        )
        return _Answered(name, usage, value, failure)

    if batch is not None:
        return take_missing(log, questions, partial(by_batch, batch), waits=WAITS, task=task, unit=unit)
    return ask_missing(client, log, questions, serve, task=task, unit=unit)
