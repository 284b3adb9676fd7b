"""Asks an OpenAI-compatible server, many records at once, and stays patient with it.

Retried, with growing pauses: 429, 5xx, a lost connection, an answer that takes longer than the time allowed (however
slowly its bytes drip). Not retried: what asking again cannot mend.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from foils.llm.client import Client, Usage
from foils.llm.completions import NoAnswerError, Request
from foils.runtime.errors import FailureError, InputError, require

if TYPE_CHECKING:
    from openai import AsyncOpenAI

MOST_PAUSE = 60.0  # seconds


class Served(Protocol):
    """What a record came to."""

    @property
    def failure(self) -> str | None:
        """Why it came to nothing; None where it came to something."""
        ...


R = TypeVar("R")
S = TypeVar("S", bound=Served)


def ask_all(
    client: Client,
    records: Sequence[R],
    serve: Callable[[Session, R], Awaitable[S]],
    finished: Callable[[R, S], None],
) -> None:
    """Serve every record, `concurrency` at once; hand each to `finished` as soon as it is.

    Args:
        client: of the server.
        records: what is to be served.
        serve: asks what it likes of the session, which is the record's own, and says what the record came to. A
            `NoAnswerError` that it lets pass ends the run.
        finished: takes the record and what it came to; called from one thread.

    Raises:
        InputError: the server refuses the key, or does not know the model.
        FailureError: `patience` records in a row failed.
        MissingExtraError: the openai package is not installed.
    """
    require("openai", "llm")
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(_ask_all(client, records, serve, finished))
        return
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:  # the caller runs a loop, as notebooks do: take another thread's
        pool.submit(context.run, lambda: asyncio.run(_ask_all(client, records, serve, finished))).result()


async def _ask_all(
    client: Client,
    records: Sequence[R],
    serve: Callable[[Session, R], Awaitable[S]],
    finished: Callable[[R, S], None],
) -> None:
    from openai import AsyncOpenAI

    key = os.environ.get(client.key_variable) or "none"
    waiting, in_a_row = iter(records), 0
    async with AsyncOpenAI(api_key=key, base_url=client.base_url, max_retries=0, timeout=client.timeout) as openai:
        server = _Server(client, openai, key)

        async def work() -> None:
            nonlocal in_a_row
            for record in waiting:
                served = await serve(Session(server), record)
                finished(record, served)
                in_a_row = 0 if served.failure is None else in_a_row + 1
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


class Session:
    """What serves one record: asks, and counts what that used.

    Attributes:
        usage: of this record so far, failed requests included.
    """

    def __init__(self, server: _Server) -> None:
        self._server = server
        self.usage = Usage()

    async def answer(
        self,
        prompt: str,
        *,
        seed: int,
        temperature: float,
        schema: Mapping[str, Any] | None = None,
        name: str = "answer",
        most_tokens: int | None = None,
    ) -> str:
        """Return the model's answer to a prompt, never empty.

        Args:
            prompt: what the user says.
            seed: sent to the server, which may heed it.
            temperature: of the sampling, at least 0.
            schema: JSON schema of the answer; None: free text. A server that knows no schemas answers without, so
                that the answer is still to be parsed with care.
            name: of the schema.
            most_tokens: of the answer; None: the server's default.

        Raises:
            NoAnswerError: every try failed, the model refused, or its answer is empty.
            InputError: the server refuses the key, or does not know the model.
        """
        request = Request(prompt, seed, temperature, schema=schema, name=name, most_tokens=most_tokens)
        return str(await self.heard(request))

    async def heard(self, request: Request) -> Any:
        """Return what the model answers to a request: text, or token → probability of a first token.

        Raises:
            As `answer`.
        """
        try:
            completion = await self._server.complete(request, self.usage)
            return request.answer_of(completion, self.usage)
        except NoAnswerError as error:
            raise NoAnswerError(self._server.scrubbed(str(error))) from None


class _Server:
    """One server, for the time of a run."""

    def __init__(self, client: Client, openai: AsyncOpenAI, key: str) -> None:
        self._client, self._openai, self._key = client, openai, key
        self._structured = client.structured

    def scrubbed(self, text: str) -> str:
        """Return the text without the key."""
        return text.replace(self._key, "***") if self._key != "none" else text

    async def complete(self, asked: Request, usage: Usage) -> Any:
        """Return a completion, asked for as often as the client allows; without the shape where that is refused."""
        import openai

        shape = asked.shape
        reason, tries, structured = "", 0, self._structured and bool(shape)
        while tries <= self._client.retries:
            pause = min(MOST_PAUSE, self._client.pause * 2**tries)
            usage.requests += 1
            request = self._request(asked, shape if structured else {})
            try:
                completion = await asyncio.wait_for(request, self._client.timeout)
                if shape and not structured:  # it was the shape that was refused: ask no other record with it
                    self._structured = False
                return completion
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                raise InputError(
                    f"the server refuses the key (status {error.status_code}); set {self._client.key_variable}"
                ) from None
            except openai.NotFoundError:
                raise InputError(f"the server does not know the model {self._client.model!r}, or the address") from None
            except openai.BadRequestError:
                if not structured:
                    raise NoAnswerError("status 400") from None
                structured = False
                continue
            except (openai.APITimeoutError, TimeoutError):
                reason = f"no whole answer in {self._client.timeout:g} s"
            except openai.APIConnectionError:
                reason = "no connection"
            except openai.APIStatusError as error:
                reason = f"status {error.status_code}"
                if error.status_code < 500 and error.status_code not in (408, 409, 429):
                    raise NoAnswerError(reason) from None
                pause = _retry_pause(error.response.headers.get("retry-after"), pause)
            except (openai.APIError, ValueError) as error:
                reason = f"an answer that is no completion ({type(error).__name__})"
            tries += 1
            if tries <= self._client.retries:
                await asyncio.sleep(pause)
        raise NoAnswerError(reason)

    async def _request(self, asked: Request, shape: dict[str, Any]) -> Any:
        messages: Any = asked.messages
        settings = {**asked.settings, **shape}
        return await self._openai.chat.completions.create(model=self._client.model, messages=messages, **settings)


def _retry_pause(header: str | None, otherwise: float) -> float:
    try:
        return min(MOST_PAUSE, max(0.0, float(header or "")))
    except ValueError:
        return otherwise
