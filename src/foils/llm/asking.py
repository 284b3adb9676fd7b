"""Asks an OpenAI-compatible server, many records at once, stays patient with it, and keeps what is finished.

Retried, with growing pauses: 429, 5xx, a lost connection, an answer that takes longer than the time
allowed (however slowly its bytes drip, which openai's own retries do not see). What a server
refuses to know (schema, seed, temperature, max_tokens) is left out or renamed, and the server asked
no more for it. A server that cannot be connected to before it answered anything ends the run at
once, and so does a redirect: prompts and key go nowhere else.
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
import logging
import math
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from foils.llm.answers import AnswerStore
from foils.llm.client import Client, Price, Sampling, Usage
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError, require
from foils.runtime.options import spelled
from foils.runtime.results import counted

if TYPE_CHECKING:
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)

MAX_PAUSE, CONNECTING = 60.0, 20.0  # seconds: of a pause at most, and until a connection has to be there
LONGEST_REASON = 200  # characters of what a server says that a message shows
CHARACTERS_A_TOKEN = 4  # about, in English
TOP_TOKENS = 20  # whose log-probabilities are asked for: the most that OpenAI and vLLM give
_UNKNOWN = (400, 422)  # statuses of a request with something that a server does not know


R = TypeVar("R")
Served = dict[str, Any]
"""What a record came to, as JSON has it: `failure` says why it came to nothing, None where it came to something; `came`
is then an answer that could not be read."""


def digest(*parts: object) -> str:
    """Return 32 hexadecimal digits of values whose `repr` says all there is, in any process the same."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


class NoAnswerError(FailureError):
    """A request brought no answer; the message says why in few words, and never holds the key."""


@dataclass(frozen=True)
class Request:
    """A prompt and how it is answered.

    Attributes:
        prompt: what the user says.
        sampling: how the answer is drawn.
        attempt: added to the seed.
        schema: JSON schema of the answer; None: free text.
        name: of the schema.
        first_token: one token is asked for, with log-probabilities (`logprobs`, `top_logprobs`: 20).
    """

    prompt: str
    sampling: Sampling
    attempt: int = 0
    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    first_token: bool = False

    def body(self, model: str, *, without: Collection[str] = ()) -> dict[str, Any]:
        """Return the whole request to a model as JSON has it.

        Args:
            model: its name.
            without: what the server does not know: `response_format`, `seed` or `temperature`,
                which are left out, `max_tokens`, in whose place `max_completion_tokens` stands, or
                more log-probabilities than, as in top_logprobs=5.
        """
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": self.prompt}]}
        body |= {"temperature": self.sampling.temperature, "seed": self.sampling.seed + self.attempt}
        if (most := 1 if self.first_token else self.sampling.max_tokens) is not None:
            body["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = most
        if self.first_token:
            allowed = [int(each.partition("=")[2]) for each in without if each.startswith("top_logprobs=")]
            body |= {"logprobs": True, "top_logprobs": min([TOP_TOKENS, *allowed])}
        elif self.schema is not None:
            of_json = {"name": self.name, "strict": True, "schema": dict(self.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": of_json}
        return {name: value for name, value in body.items() if name not in without}

    def answer_of(self, completion: Any, usage: Usage) -> Any:
        """Return the text of a completion, or how probable each of the likeliest first tokens is; count its tokens.

        Args:
            completion: as the server's JSON has it, whatever its shape.
            usage: that its tokens are added to.

        Raises:
            NoAnswerError: the model refused, said nothing, or was cut off; there are no
                log-probabilities; the server counts something that is no number of tokens; or the
                completion has another shape.
        """
        choice = _at(completion, "choices", 0)
        message = _at(choice, "message")
        content, reasons = _text(message), _reasons(message)
        sent = [_at(completion, "usage", name) for name in ("prompt_tokens", "completion_tokens")]
        wrong = [each for each in sent if each is not None and (type(each) is not int or each < 0)]
        self.estimate(usage, content + reasons, [None if wrong else each for each in sent])
        if wrong:
            raise NoAnswerError(f"an answer whose usage is no number of tokens ({str(wrong[0])[:50]})")
        if choice is None:
            raise NoAnswerError("an answer without choices")
        if _at(message, "refusal"):
            raise NoAnswerError("the model refused")
        if self.first_token:
            listed = _at(choice, "logprobs", "content", 0, "top_logprobs")
            likely = listed if isinstance(listed, list) else []
            found = {str(_at(each, "token")): _at(each, "logprob") for each in likely}
            if not found or not all(isinstance(value, (int, float)) for value in found.values()):
                raise NoAnswerError("an answer without log-probabilities")
            return {token: math.exp(min(value, 0.0)) for token, value in found.items()}
        reason = _at(choice, "finish_reason")
        if reason == "length":
            raise NoAnswerError("an answer that was cut off; allow it more tokens")
        if not content:
            raise NoAnswerError(f"an empty answer (finish reason {reason})")
        if reasons:
            content = f"<think>{reasons}</think>{content}"
        if "<think>" in content.rpartition("</think>")[2]:
            raise NoAnswerError("thoughts without an end")
        return content

    def estimate(self, usage: Usage, answer: str = "", counted: Sequence[int | None] = (None, None)) -> None:
        """Add the tokens of prompt and answer that were counted; where none were, as many as the characters make.

        No prompt and no text has 0 tokens.
        """
        guesses = [-(-len(text) // CHARACTERS_A_TOKEN) for text in (self.prompt, answer)]
        prompts, completions = (number or guess for number, guess in zip(counted, guesses, strict=True))
        usage.estimated += [prompts, completions] != [*counted]
        usage.prompt_tokens += prompts
        usage.completion_tokens += completions


def _text(message: Any) -> str:
    """The text of a message, whose content may come in parts; empty where there is none."""
    content = _at(message, "content")
    if isinstance(content, list):  # parts, of which thoughts are others
        content = "".join(str(_at(part, "text") or "") for part in content)
    return content if isinstance(content, str) else ""


def _reasons(message: Any) -> str:
    """The thoughts that a server sends apart, as vLLM and OpenRouter do; empty where there are none."""
    thoughts = [_at(message, name) for name in ("reasoning_content", "reasoning")]
    return next((each for each in thoughts if isinstance(each, str)), "")


def _at(value: Any, *path: str | int) -> Any:
    """Return what stands at keys and places inside JSON; None where nothing does."""
    for step in path:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def ask_all(
    client: Client,
    records: Sequence[R],
    serve: Callable[[Session, R], Awaitable[Served]],
    finished: Callable[[R, Served], None],
) -> None:
    """Serve every record, `concurrency` at once; hand each to `finished` as soon as it is.

    Args:
        client: of the server.
        records: what is to be served.
        serve: asks what it likes of the session, which is the record's own, and says what the
            record came to. A `NoAnswerError` that it lets pass ends the run.
        finished: takes the record and what it came to; called from one thread. Where it raises a
            FailureError, no further record is begun, and the run ends when those that are being
            served are finished.

    Raises:
        InputError: the server refuses the key, does not know the model or redirects to another
            server; or the key has characters that no key has.
        FailureError: nothing can be connected to at the address, or `patience` records in a row failed.
        MissingExtraError: the openai package is not installed.
    """
    require("openai", "llm")
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

    key = client.key
    waiting, in_a_row = iter(records), 0
    stopped: list[FailureError] = []

    async def work(server: _Server) -> None:
        nonlocal in_a_row
        for record in waiting:
            served = await serve(Session(server), record)
            try:
                finished(record, served)
            except FailureError as error:
                stopped.append(error)
            if stopped:
                return
            in_a_row = 0 if served["failure"] is None or "came" in served else in_a_row + 1
            if in_a_row >= client.patience:
                last = f"(last: {served['failure']}) at {client.where}"
                raise FailureError(f"{in_a_row} records in a row failed {last}; what was finished is kept")

    async def ask() -> None:
        timeout = Timeout(client.timeout, connect=min(client.timeout, CONNECTING))
        http = DefaultAsyncHttpxClient(timeout=timeout, follow_redirects=False)
        async with AsyncOpenAI(
            api_key=key or "none", base_url=client.base_url, max_retries=0, timeout=timeout, http_client=http
        ) as openai:
            server = _Server(client, openai)
            workers = [asyncio.create_task(work(server)) for _ in range(min(client.concurrency, len(records)))]
            try:
                await asyncio.gather(*workers)
                if stopped:
                    raise stopped[0]
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(ask())
        return
    context = contextvars.copy_context()
    with ThreadPoolExecutor(1) as pool:  # the caller runs a loop, as notebooks do: take another thread's
        pool.submit(context.run, lambda: asyncio.run(ask())).result()


class Session:
    """What serves one record: asks, and counts what that used.

    Attributes:
        usage: of this record so far, failed requests included.
    """

    def __init__(self, server: _Server) -> None:
        self._server = server
        self.usage = Usage()

    async def answer(self, request: Request) -> Any:
        """Return what the model answers: a text, never empty nor cut off, or token → probability of a first token.

        Raises:
            NoAnswerError: every attempt failed, the model refused, or its answer is empty or was cut off.
            InputError: the server refuses the key, or does not know the model.
        """
        try:
            completion = await self._server.complete(request, self.usage)
            return request.answer_of(completion, self.usage)
        except NoAnswerError as error:
            raise NoAnswerError(self.shown(str(error))) from None

    def shown(self, text: str, most: int = LONGEST_REASON) -> str:
        """Return a server's text as messages and records may show it: without the key, on one line, not too long."""
        key = self._server.client.key
        masked = text.replace(key, "***") if key else text
        line = " ".join("".join(each if each.isprintable() else " " for each in masked).split())
        return line if len(line) <= most else f"{line[:most]} …"


class _Server:
    """One server, for the time of a run.

    Attributes:
        unknown: names of what it refused to know: settings of a request, or its `response_format`.
    """

    def __init__(self, client: Client, openai: AsyncOpenAI) -> None:
        self.client, self._openai, self._has_answered = client, openai, False
        self.unknown: frozenset[str] = frozenset()

    async def complete(self, asked: Request, usage: Usage) -> Any:
        """Return a completion as its JSON has it, asked for as often as the client allows.

        What the server refuses to know is left out.
        """
        import openai

        client, completions = self.client, self._openai.chat.completions.with_raw_response
        where = client.where
        reason, attempt, unknown = "", 0, self.unknown
        while attempt <= client.retries:
            pause = min(MAX_PAUSE, client.pause * 2**attempt)
            usage.requests += 1
            body: Any = asked.body(client.model, without=unknown)
            try:
                response = await asyncio.wait_for(completions.create(**body), client.timeout)
                completion = json.loads(response.text)
                self._has_answered = True
                self.unknown |= unknown  # it was this that was refused: ask no other record with it
                return completion
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                status = f"the server refuses the key (status {error.status_code})"
                raise InputError(f"{status}; set {client.key_variable}") from None
            except openai.NotFoundError:
                raise InputError(f"the server does not know the model {client.model!r}, or the address") from None
            except (openai.APITimeoutError, TimeoutError) as error:
                if not self._has_answered and type(error.__cause__).__name__ == "ConnectTimeout":
                    raise _unreachable(where, f"no connection within {CONNECTING:g} s") from None
                asked.estimate(usage)  # it is paid for all the same
                reason = f"no whole answer in {client.timeout:g} s"
            except openai.APIConnectionError as error:
                if not self._has_answered and type(error.__cause__).__name__ == "ConnectError":
                    raise _unreachable(where, str(error.__cause__)) from None
                reason = "no connection"
            except openai.APIStatusError as error:
                if error.response.has_redirect_location:
                    advice = f"give {spelled('base_url')} that address if it is to have the questions"
                    raise InputError(f"{where} redirects to {error.response.headers['location']}; {advice}") from None
                reason = f"status {error.status_code}{_said(error)}"
                refused = _refused(error, body) if error.status_code in _UNKNOWN else None
                if refused is not None:
                    unknown |= {refused}
                    continue
                if error.status_code < 500 and error.status_code not in (408, 409, 429):
                    raise NoAnswerError(reason) from None
                pause = _retry_pause(error.response.headers.get("retry-after"), pause)
            except (openai.APIError, ValueError, RecursionError) as error:
                asked.estimate(usage)
                reason = f"an answer that is no completion ({type(error).__name__})"
            attempt += 1
            if attempt <= client.retries:
                await asyncio.sleep(pause)
        raise NoAnswerError(reason)


def _unreachable(where: str, why: str) -> FailureError:
    advice = f"is a server running there? {spelled('base_url')} gives its address, as http://localhost:8000/v1"
    return FailureError(f"no connection to {where} ({why}); {advice}")


def _refused(error: Any, body: Mapping[str, Any]) -> str | None:
    """What of a request the server does not know: what it names, else the schema; None: nothing that can be left.

    Of log-probabilities, how many the server allows, as top_logprobs=5: the most that it names,
    else 5, then 2.
    """
    reason, top = _said(error), body.get("top_logprobs", 0)
    if top and "logprob" in reason:
        named_numbers = [int(number) for number in re.findall(r"\d+", reason) if 0 < int(number) < top]
        fewer = max(named_numbers, default=5 if top > 5 else 2)
        return f"top_logprobs={fewer}" if fewer < top else None
    named = (name for name in ("max_tokens", "seed", "temperature") if name in body and name in reason)
    return next(named, "response_format" if "response_format" in body else None)


def _said(error: Any) -> str:
    """The server's own reason, after a colon; empty where it gives none."""
    body = error.body if isinstance(error.body, Mapping) else {}
    reason = body.get("message") or body.get("detail") or ""
    return f": {reason}" if reason else ""


def _retry_pause(header: str | None, otherwise: float) -> float:
    try:
        return min(MAX_PAUSE, max(0.0, float(header or "")))
    except ValueError:
        return otherwise


def estimated(prompts: Sequence[str], answer_tokens: int, price: Price | None) -> Usage:
    """Return about what it takes to ask these questions once each."""
    characters = sum(map(len, prompts))
    return Usage(len(prompts), characters // CHARACTERS_A_TOKEN, len(prompts) * answer_tokens, price=price)


def announce(asked: Sequence[tuple[Client, Usage]]) -> None:
    """Say what language models are about to be asked, and what that costs.

    Args:
        asked: servers, each with the requests and about how many tokens; one without requests is left out.
    """
    asked = [(client, usage) for client, usage in asked if usage.requests]
    for client, usage in asked:
        money = f"give {spelled('price', 'IN,OUT')} to see the cost" if usage.cost is None else f"{usage.cost:,.2f}"
        log.info(
            f"{client.model} at {client.where}: {counted(usage.requests, 'questions')}, about "
            f"{usage.prompt_tokens:,} prompt tokens and {usage.completion_tokens:,} completion tokens; cost: {money}"
        )
    if len(asked) > 1:
        costs = [usage.cost for _, usage in asked if usage.cost is not None]
        money = f"; cost: {sum(costs):,.2f}" if len(costs) == len(asked) else ""
        log.info(f"together: {counted(sum(usage.requests for _, usage in asked), 'questions')}{money}")


def ask_missing(
    client: Client,
    store: AnswerStore,
    records: Mapping[str, R],
    serve: Callable[[Session, R], Awaitable[Served]],
    *,
    count: Callable[[str, Served], None],
    task: str,
    unit: str,
) -> dict[str, Served]:
    """Return what each record came to, by its key.

    A record that the store has, and not as a failure, is not asked for again; each other is on disk
    as soon as it is finished, so that a run that was stopped asks for what is missing alone. What a
    failure used is added to what asking again uses.

    Args:
        client: of the server.
        store: of the finished records.
        records: what is to be served, by a digest of everything that decides the answer: the
            client's identity, settings, texts.
        serve: as in `ask_all`.
        count: takes the key of each record and what it came to, in this run or before; its
            FailureError stops the run.
        task: what the progress says.
        unit: what it counts.

    Raises:
        FormatError: the store is damaged.
        InputError: the server refuses the key, or does not know the model.
        FailureError: the store cannot be written, record after record failed, or `count` says so;
            what was finished is kept.
    """
    answers = store.get(records)
    missing = [key for key in records if key not in answers or answers[key]["failure"] is not None]
    with progress.task(task, total=len(records), unit=unit) as advance:
        advance(len(records) - len(missing))
        for key, line in answers.items():
            count(key, line)

        def finished(key: str, served: Served) -> None:
            if key in answers:
                served = {**served, **Usage.total([answers[key], served]).as_record()}
            answers[key] = served
            store.add({key: served})
            advance(1)
            count(key, served)

        if missing:
            ask_all(client, missing, lambda session, key: serve(session, records[key]), finished)
    return {key: answers[key] for key in records}
