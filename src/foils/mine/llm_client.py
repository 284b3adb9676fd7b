"""Asks an OpenAI-compatible server, many records at once, and stays patient with it.

Retried, with growing pauses: 429, 5xx, a lost connection, an answer that takes longer than the time allowed (however
slowly its bytes drip). Not retried: what asking again cannot mend.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from foils.errors import FailureError, InputError, require
from foils.mine.llm_prompt import SCHEMA, Asking, parse, validated

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MOST_PAUSE = 60.0  # seconds


@dataclass(frozen=True)
class Client:
    """How to reach a model.

    Attributes:
        model: its name on the server.
        base_url: of the server, up to /v1; None: the openai package's own default.
        key_variable: environment variable that holds the key; a server without keys needs none.
        concurrency: requests at once.
        timeout: seconds for a whole answer.
        retries: of a request that failed for a reason that may pass.
        pause: seconds before the first retry; doubled each time, unless the server says how long.
        structured: ask for the JSON schema; a server that knows none is asked without it.
        patience: records in a row that may fail before the run stops.
    """

    model: str
    base_url: str | None = None
    key_variable: str = "OPENAI_API_KEY"
    concurrency: int = 8
    timeout: float = 120.0
    retries: int = 5
    pause: float = 1.0
    structured: bool = True
    patience: int = 20

    def __post_init__(self) -> None:
        if not self.model:
            raise InputError("no model; name one that the server has")
        if self.concurrency < 1 or self.retries < 0 or self.patience < 1 or not (self.timeout > 0 and self.pause >= 0):
            raise InputError(
                "expected concurrency and patience of at least 1, retries and pause of at least 0, timeout above 0"
            )

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it: the model, and the server less any name and password."""
        parts = urlsplit(self.base_url or "")
        host = f"{parts.scheme}://{parts.hostname}:{parts.port}{parts.path}" if parts.port else None
        return {
            "model": self.model,
            "server": host or (f"{parts.scheme}://{parts.hostname}" if parts.hostname else None),
        }


@dataclass(frozen=True)
class Record:
    """A query, its first positive, and all its positives."""

    key: str
    query_id: str
    query: str
    positive: str
    positives: tuple[str, ...]


@dataclass
class Served:
    """What a record came to: negatives, or why there are none."""

    negatives: list[str] = field(default_factory=list)
    failure: str | None = None
    turned_away: Counter[str] = field(default_factory=Counter)
    requests: int = 0
    tokens: list[int] = field(default_factory=lambda: [0, 0])

    def as_record(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return {
            "negatives": self.negatives, "failure": self.failure, "turned_away": dict(self.turned_away),
            "requests": self.requests, "tokens": self.tokens,
        }  # fmt: skip


def ask_all(
    client: Client, asked: Asking, records: Sequence[Record], finished: Callable[[Record, Served], None]
) -> None:
    """Ask for every record, `concurrency` at once; hand each to `finished` as soon as it is.

    Raises:
        InputError: the server refuses the key, or does not know the model.
        FailureError: `patience` records in a row failed.
    """
    require("openai", "llm")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(_ask_all(client, asked, records, finished))
        return
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:  # the caller runs a loop, as notebooks do: take another thread's
        pool.submit(context.run, lambda: asyncio.run(_ask_all(client, asked, records, finished))).result()


async def _ask_all(
    client: Client, asked: Asking, records: Sequence[Record], finished: Callable[[Record, Served], None]
) -> None:
    from openai import AsyncOpenAI

    key = os.environ.get(client.key_variable) or "none"
    waiting, in_a_row = iter(records), 0
    async with AsyncOpenAI(api_key=key, base_url=client.base_url, max_retries=0, timeout=client.timeout) as server:
        session = _Session(client, asked, server, key)

        async def work() -> None:
            nonlocal in_a_row
            for record in waiting:
                served = await session.serve(record)
                finished(record, served)
                in_a_row = 0 if served.negatives else in_a_row + 1
                if in_a_row >= client.patience:
                    raise FailureError(
                        f"{in_a_row} records in a row failed (last: {served.failure}); what was finished is kept, "
                        "and another run asks for the rest"
                    )

        workers = [asyncio.create_task(work()) for _ in range(min(client.concurrency, len(records)))]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


class _FailedError(Exception):
    """A request that failed for good, and why, in few words."""


class _Session:
    """One server, for the time of a run."""

    def __init__(self, client: Client, asked: Asking, server: AsyncOpenAI, key: str) -> None:
        self._client, self._asked, self._server, self._key = client, asked, server, key
        self._structured = client.structured

    async def serve(self, record: Record) -> Served:
        """Ask until the record has its number of negatives, or has been asked often enough."""
        served = Served()
        for turn in range(self._asked.asks):
            wanted = self._asked.number - len(served.negatives)
            prompt = self._asked.prompt.text(record.query, record.positive, wanted, served.negatives)
            try:
                texts = await self._answer(prompt, self._asked.seed + turn, served)
            except _FailedError as error:
                served.failure = str(error).replace(self._key, "***") if self._key != "none" else str(error)
                continue
            kept, away = validated(
                texts, query=record.query, positives=record.positives, taken=served.negatives, number=wanted
            )
            served.negatives += kept
            served.turned_away.update(away)
            if len(served.negatives) == self._asked.number:
                break
            served.failure = None if served.negatives else "no usable negative in any answer"
        if served.negatives:
            served.failure = None
        return served

    async def _answer(self, prompt: str, seed: int, served: Served) -> list[str]:
        completion = await self._patiently(prompt, seed, served)
        usage = getattr(completion, "usage", None)
        if usage is not None:
            served.tokens[0] += usage.prompt_tokens or 0
            served.tokens[1] += usage.completion_tokens or 0
        choices = getattr(completion, "choices", None)
        if not choices:
            raise _FailedError("an answer without choices")
        message = choices[0].message
        if getattr(message, "refusal", None):
            raise _FailedError("the model refused")
        if not message.content:
            raise _FailedError(f"an empty answer (finish reason {choices[0].finish_reason})")
        found = parse(message.content)
        if not found:
            raise _FailedError("an answer that holds no list of texts")
        return found

    async def _patiently(self, prompt: str, seed: int, served: Served) -> Any:
        import openai

        said, tries = "", 0
        while tries <= self._client.retries:
            pause = min(MOST_PAUSE, self._client.pause * 2**tries)
            served.requests += 1
            structured = self._structured
            try:
                return await asyncio.wait_for(self._request(prompt, seed, structured), self._client.timeout)
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                raise InputError(
                    f"the server refuses the key (status {error.status_code}); set {self._client.key_variable}"
                ) from None
            except openai.NotFoundError:
                raise InputError(f"the server does not know the model {self._client.model!r}, or the address") from None
            except openai.BadRequestError:
                if not structured:
                    raise _FailedError("status 400") from None
                self._structured = False
                continue
            except (openai.APITimeoutError, TimeoutError):
                said = f"no whole answer in {self._client.timeout:g} s"
            except openai.APIConnectionError:
                said = "no connection"
            except openai.APIStatusError as error:
                said = f"status {error.status_code}"
                if error.status_code < 500 and error.status_code not in (408, 409, 429):
                    raise _FailedError(said) from None
                pause = _asked_pause(error.response.headers.get("retry-after"), pause)
            except (openai.APIError, ValueError) as error:
                said = f"an answer that is no completion ({type(error).__name__})"
            tries += 1
            if tries <= self._client.retries:
                await asyncio.sleep(pause)
        raise _FailedError(said)

    async def _request(self, prompt: str, seed: int, structured: bool) -> Any:
        settings: dict[str, Any] = {"temperature": self._asked.temperature, "seed": seed}
        if self._asked.most_tokens is not None:
            settings["max_tokens"] = self._asked.most_tokens
        if structured:
            schema = {"name": "negatives", "strict": True, "schema": SCHEMA}
            settings["response_format"] = {"type": "json_schema", "json_schema": schema}
        messages: Any = [{"role": "user", "content": prompt}]
        return await self._server.chat.completions.create(model=self._client.model, messages=messages, **settings)


def _asked_pause(header: str | None, otherwise: float) -> float:
    try:
        return min(MOST_PAUSE, max(0.0, float(header or "")))
    except ValueError:
        return otherwise
