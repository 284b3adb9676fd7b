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
import os
import re
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import urlsplit

import xxhash

from foils.data.collection import Collection
from foils.runtime import progress
from foils.runtime.errors import FailureError, FormatError, InputError, require
from foils.runtime.files import cache_place, make_folder
from foils.runtime.options import Option, Settings, spelled
from foils.runtime.results import counted

if TYPE_CHECKING:
    from openai import AsyncOpenAI

log = logging.getLogger(__name__)

MAX_PAUSE, CONNECTING = 60.0, 20.0  # seconds: of a pause at most, and until a connection has to be there
TIMEOUT = 300.0  # seconds for a whole answer
RETRIES, PAUSE = 5, 1.0  # of a request that failed for a reason that may pass; seconds before the first, then doubled
PATIENCE = 20  # records in a row that may fail before the run stops
LONGEST_REASON = 200  # characters of what a server says that a message shows
CHARACTERS_A_TOKEN = 4  # about, in English
TOP_TOKENS = 20  # whose log-probabilities are asked for: the most that OpenAI and vLLM give
_UNKNOWN = (400, 422)  # statuses of a request with something that a server does not know
NAME = "answers.sqlite"
_DAMAGED = "damaged answers; remove the file, and they will be asked for again"


# Which model is asked, how it is reached, and what that costs

KEY_VARIABLE = "OPENAI_API_KEY"
Price = tuple[float, float]  # per million prompt tokens and per million completion tokens


@dataclass
class Usage:
    """What asking used, in this run and before.

    Attributes:
        requests: sent, retries included.
        prompt_tokens: of prompts, as the server counted them.
        completion_tokens: of answers, likewise.
        estimated: answers whose tokens the server did not count: they are estimated from the characters.
        failures: why there is no answer -> how many.
        price: per million prompt tokens and per million completion tokens; None: not known.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    price: Price | None = None

    @classmethod
    def total(cls, records: Iterable[Mapping[str, Any]], price: Price | None = None) -> Usage:
        """Return the sum over records of a store."""
        total = cls(price=price)
        for record in records:
            prompts, completions = record.get("tokens", (0, 0))
            total.requests += record.get("requests", 0)
            total.prompt_tokens += prompts
            total.completion_tokens += completions
            total.estimated += record.get("estimated", 0)
            if record.get("failure") is not None:
                total.failures[record["failure"]] += 1
        return total

    @property
    def cost(self) -> float | None:
        """What the tokens cost; None without prices."""
        if self.price is None:
            return None
        return (self.prompt_tokens * self.price[0] + self.completion_tokens * self.price[1]) / 1e6

    def as_record(self) -> dict[str, Any]:
        """Return it as a store of answers has it."""
        record = {"requests": self.requests, "tokens": [self.prompt_tokens, self.completion_tokens]}
        return {**record, "estimated": self.estimated} if self.estimated else record

    def rows(self, name: str = "") -> list[tuple[str, str]]:
        """Return it as rows of a table, each with the model's name if given, with the cost where prices are given."""
        counts = {
            "requests": self.requests, "prompt tokens": self.prompt_tokens, "completion tokens": self.completion_tokens
        }  # fmt: skip
        if self.estimated:
            counts["answers whose tokens are estimated"] = self.estimated
        rows = [(what, f"{count:,}") for what, count in counts.items()]
        if self.cost is not None:
            rows.append(("cost", f"{self.cost:,.2f}"))
        rows += [(f"failed: {why}", f"{count:,}") for why, count in self.failures.most_common()]
        return [(f"{name}: {what}" if name else what, value) for what, value in rows]

    def to_json(self) -> dict[str, Any]:
        """Return it for JSON, with the cost, None without prices."""
        return {**self.as_record(), "cost": self.cost}


class Purse:
    """What the answers that a run uses have cost, in this run and in those before it, and what they may cost.

    Args:
        most: that they may cost; None: no bound.
        whole: the purse of all models of the run, of which this one is a part.

    Attributes:
        spent: so far.
    """

    def __init__(self, most: float | None = None, whole: Purse | None = None) -> None:
        self.most, self.whole, self.spent = most, whole, 0.0
        self._costs: dict[str, float] = {}

    def pay(self, key: str, record: Mapping[str, Any], price: Price | None) -> None:
        """Count what the record of a key has cost in all, each key once; without prices nothing.

        Raises:
            FailureError: all together have cost more than is allowed.
        """
        cost = Usage.total([record], price).cost or 0.0
        self.spent += cost - self._costs.get(key, 0.0)
        self._costs[key] = cost
        if self.whole is not None:
            self.whole.pay(key, record, price)
        if self.most is not None and self.spent > self.most * (1 + 1e-9):  # sums of cents are rounded
            spent = f"language models have cost {self.spent:,.2f}, more than {spelled('max_cost', self.most)}"
            raise FailureError(f"{spent}; every answer is kept, and the same command with more goes on")


def parsed_price(text: str) -> Price:
    """Read two prices, `IN,OUT` or `IN/OUT`.

    Raises:
        InputError: it is not of this form.
    """
    try:
        prompts, completions = map(float, text.replace("/", ",").split(","))
    except ValueError as error:
        raise InputError(f"{spelled('price', text)}: expected two numbers, as in 0.15,0.60") from error
    return prompts, completions


@dataclass(frozen=True, kw_only=True)
class LLMSettings(Settings):
    """Which language model is asked.

    Attributes:
        llm_model: Name of the model on the server.
        base_url: Address of an OpenAI-compatible server, as http://localhost:8000/v1.
        key_variable: Environment variable that holds the server's key. A server without keys needs none.
        llm_temperature: Sampling temperature.
        max_tokens: Maximum length of an answer, in tokens. An answer that is cut off there counts
            as a failure. Default, where none is shown: the server's.
        concurrency: Number of requests at once.
        price: Prices per million prompt tokens and completion tokens, as 0.15,0.60. The result then
            shows the cost.
        max_cost: Money, at these prices, after which the run stops: what all of its answers have
            cost, those of earlier runs included. Answers are kept.
    """

    heading = "Language model"

    llm_model: str = ""
    base_url: Annotated[str | None, Option(metavar="URL")] = None
    key_variable: Annotated[str, Option(metavar="NAME")] = KEY_VARIABLE
    llm_temperature: Annotated[float, Option(least=0)] = 0.0
    max_tokens: Annotated[int | None, Option(least=1)] = None
    concurrency: Annotated[int, Option(least=1)] = 8
    price: Annotated[Price | None, Option(parse=parsed_price, least=0)] = None
    max_cost: Annotated[float | None, Option(above=0)] = None

    def check_askable(self) -> None:
        """Refuse settings by which no model can be asked: other stages leave them as they are.

        Raises:
            InputError: no model is named, the server's address is none, or a bound on the cost has no prices.
        """
        if not self.llm_model:
            raise InputError(f"no model; name one that the server has ({spelled('llm_model', 'NAME')})")
        try:
            wrong = "no http:// or https://" if self.address and not self.server else ""
        except ValueError as error:  # of the port, or of brackets
            wrong = str(error)
        if wrong:
            raise InputError(f"{self.address}: no address ({wrong}); give one as http://localhost:8000/v1")
        if self.max_cost is not None and self.price is None:
            advice = f"give {spelled('price', 'IN,OUT')}, per million tokens, or a judge its own, as price=IN/OUT"
            raise InputError(f"{spelled('max_cost', self.max_cost)} without a price of {self.llm_model}; {advice}")

    @property
    def address(self) -> str:
        """The server's address as it was given; empty: the openai package's own default."""
        return self.base_url or os.environ.get("OPENAI_BASE_URL", "")

    @property
    def key(self) -> str:
        """The server's key, "" where the environment has none.

        Raises:
            InputError: it holds characters that no request can carry.
        """
        key = os.environ.get(self.key_variable, "").strip()
        if not key.isascii() or not key.isprintable():
            raise InputError(
                f"the key in {self.key_variable} holds line breaks or letters that no key has; set it anew"
            )
        return key

    @property
    def server(self) -> str | None:
        """The server's address less any name, password and query; None: the openai package's own default."""
        parts = urlsplit(self.address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            return None
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}"

    @property
    def where(self) -> str:
        """The server as messages name it."""
        return self.server or "the default server"

    @property
    def identity(self) -> tuple[str, str | None, bool]:
        """What decides an answer beside the question: the model, and the server less its port, at which it may move."""
        parts = urlsplit(self.server or "")
        # True once said whether a JSON schema is asked for; answers are kept by it
        return self.llm_model, self.server and f"{parts.scheme}://{parts.hostname}{parts.path}", True

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it: the model, and the server less any name and password."""
        return {"model": self.llm_model, "server": self.server}

    def folder(self, collection: Collection) -> Path:
        """Return where answers about a collection are kept."""
        return cache_place("llm", collection.digest[:16])

    def sampling(self, seed: int = 0) -> dict[str, Any]:
        """Return how answers are drawn, as provenance says it; `seed` is that of the first attempt."""
        return {"temperature": self.llm_temperature, "seed": seed, "max_tokens": self.max_tokens}


# Answers that are kept


class AnswerStore:
    """Answers by key, in an SQLite file: on disk before they count. Several processes may use one file.

    Each answer has a checksum, which is compared when it is read.

    Args:
        folder: of the file; made with it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / NAME

    def add(self, records: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep records, each in the place of an earlier one of its key, and wait until they are on disk.

        Raises:
            FormatError: the file is damaged.
            FailureError: it cannot be written.
        """
        texts = [(key, json.dumps(record)) for key, record in records.items()]
        with self._connected() as connection:
            rows = [(key, text, _checksum(key, text)) for key, text in texts]
            connection.executemany("INSERT OR REPLACE INTO answers VALUES (?, ?, ?)", rows)

    def get(self, keys: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return the records of those keys that have one.

        Raises:
            FormatError: the file, or one of these records, is damaged.
            FailureError: the file cannot be read.
        """
        records = {}
        with self._connected() as connection:
            for key in keys:
                for text, checksum in connection.execute("SELECT record, checksum FROM answers WHERE key = ?", (key,)):
                    if _checksum(key, text) != checksum:
                        raise FormatError(_DAMAGED, self.path)
                    records[key] = json.loads(text)
        return records

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        """Open the file; what SQLite complains of is an error of the file, or of the disk."""
        make_folder(self.path.parent)
        try:
            with closing(sqlite3.connect(self.path, timeout=60)) as connection, connection:
                connection.execute("PRAGMA synchronous = FULL")
                columns = "key TEXT PRIMARY KEY, record TEXT NOT NULL, checksum TEXT"
                connection.execute(f"CREATE TABLE IF NOT EXISTS answers ({columns})")
                yield connection
        except sqlite3.OperationalError as error:  # a full disk, no permission, another process for too long
            raise FailureError(f"cannot write {self.path}: {error}; what was finished is kept") from error
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
            raise FormatError(f"{_DAMAGED} ({error})", self.path) from error


def _checksum(key: str, text: str) -> str:
    return xxhash.xxh3_64(f"{key}\0{text}".encode()).hexdigest()


# Asking


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
        seed: sent to the server, which may heed it; another attempt has another.
        schema: JSON schema of the answer; None: free text.
        first_token: one token is asked for, with log-probabilities (`logprobs`, `top_logprobs`: 20).
    """

    prompt: str
    seed: int = 0
    schema: Mapping[str, Any] | None = None
    first_token: bool = False

    def body(self, llm: LLMSettings, *, without: frozenset[str] = frozenset()) -> dict[str, Any]:
        """Return the whole request to a model as JSON has it.

        Args:
            llm: the model, and how its answers are drawn.
            without: what the server does not know: `response_format`, `seed` or `temperature`,
                which are left out, `max_tokens`, in whose place `max_completion_tokens` stands, or
                more log-probabilities than, as in top_logprobs=5.
        """
        body: dict[str, Any] = {"model": llm.llm_model, "messages": [{"role": "user", "content": self.prompt}]}
        body |= {"temperature": llm.llm_temperature, "seed": self.seed}
        if (most := 1 if self.first_token else llm.max_tokens) is not None:
            body["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = most
        if self.first_token:
            allowed = [int(each.partition("=")[2]) for each in without if each.startswith("top_logprobs=")]
            body |= {"logprobs": True, "top_logprobs": min([TOP_TOKENS, *allowed])}
        elif self.schema is not None:
            of_json = {"name": "answer", "strict": True, "schema": dict(self.schema)}
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
        thoughts = [_at(message, name) for name in ("reasoning_content", "reasoning")]  # of vLLM and OpenRouter
        content, reasons = _text(message), next((each for each in thoughts if isinstance(each, str)), "")
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


@dataclass
class _Server:
    """One server, for the time of a run.

    Attributes:
        llm: how it is reached.
        openai: what sends the requests.
        unknown: names of what it refused to know: settings of a request, or its `response_format`.
        has_answered: whether any request was answered.
    """

    llm: LLMSettings
    openai: AsyncOpenAI
    unknown: frozenset[str] = frozenset()
    has_answered: bool = False


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
            return request.answer_of(await self._complete(request), self.usage)
        except NoAnswerError as error:
            raise NoAnswerError(self.shown(str(error))) from None

    def shown(self, text: str, most: int = LONGEST_REASON) -> str:
        """Return a server's text as messages and records may show it: without the key, on one line, not too long."""
        key = self._server.llm.key
        masked = text.replace(key, "***") if key else text
        line = " ".join("".join(each if each.isprintable() else " " for each in masked).split())
        return line if len(line) <= most else f"{line[:most]} …"

    async def _complete(self, asked: Request) -> Any:
        """Return a completion as its JSON has it, asked for `RETRIES` times more where it fails.

        What the server refuses to know is left out.
        """
        import openai

        server, llm, attempt, unknown = self._server, self._server.llm, 0, self._server.unknown
        while True:
            pause = min(MAX_PAUSE, PAUSE * 2**attempt)
            self.usage.requests += 1
            body: Any = asked.body(llm, without=unknown)
            try:
                sent = server.openai.chat.completions.with_raw_response.create(**body)
                completion = json.loads((await asyncio.wait_for(sent, TIMEOUT)).text)
                server.has_answered = True
                server.unknown |= unknown  # it was this that was refused: ask no other record with it
                return completion
            except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
                status = f"the server refuses the key (status {error.status_code})"
                raise InputError(f"{status}; set {llm.key_variable}") from None
            except openai.NotFoundError:
                raise InputError(f"the server does not know the model {llm.llm_model!r}, or the address") from None
            except (openai.APIConnectionError, TimeoutError) as error:
                cause = error.__cause__
                if not server.has_answered and type(cause).__name__ in ("ConnectError", "ConnectTimeout"):
                    why = str(cause) or f"no connection within {CONNECTING:g} s"
                    advice = f"{spelled('base_url')} gives its address, as http://localhost:8000/v1"
                    problem = f"no connection to {llm.where} ({why})"
                    raise FailureError(f"{problem}; is a server running there? {advice}") from None
                reason = "no connection"
                if isinstance(error, openai.APITimeoutError | TimeoutError):
                    asked.estimate(self.usage)  # it is paid for all the same
                    reason = f"no whole answer in {TIMEOUT:g} s"
            except openai.APIStatusError as error:
                if error.response.has_redirect_location:
                    moved = f"{llm.where} redirects to {error.response.headers['location']}"
                    advice = f"give {spelled('base_url')} that address if it is to have the questions"
                    raise InputError(f"{moved}; {advice}") from None
                reason = f"status {error.status_code}{_said(error)}"
                refused = _refused(error, body) if error.status_code in _UNKNOWN else None
                if refused is not None:
                    unknown |= {refused}
                    continue
                if error.status_code < 500 and error.status_code not in (408, 409, 429):
                    raise NoAnswerError(reason) from None
                pause = _retry_pause(error.response.headers.get("retry-after"), pause)
            except (openai.APIError, ValueError, RecursionError) as error:
                asked.estimate(self.usage)
                reason = f"an answer that is no completion ({type(error).__name__})"
            attempt += 1
            if attempt > RETRIES:
                raise NoAnswerError(reason)
            await asyncio.sleep(pause)


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


def announce(asked: Sequence[tuple[LLMSettings, Usage]]) -> None:
    """Say what language models are about to be asked, and what that costs.

    Args:
        asked: models, each with the requests and about how many tokens; one without requests is left out.
    """
    asked = [(llm, usage) for llm, usage in asked if usage.requests]
    for llm, usage in asked:
        money = f"give {spelled('price', 'IN,OUT')} to see the cost" if usage.cost is None else f"{usage.cost:,.2f}"
        log.info(
            f"{llm.llm_model} at {llm.where}: {counted(usage.requests, 'questions')}, about "
            f"{usage.prompt_tokens:,} prompt tokens and {usage.completion_tokens:,} completion tokens; cost: {money}"
        )
    if len(asked) > 1:
        costs = [usage.cost for _, usage in asked if usage.cost is not None]
        money = f"; cost: {sum(costs):,.2f}" if len(costs) == len(asked) else ""
        log.info(f"together: {counted(sum(usage.requests for _, usage in asked), 'questions')}{money}")


def ask_missing(
    llm: LLMSettings,
    store: AnswerStore,
    records: Mapping[str, R],
    serve: Callable[[Session, R], Awaitable[Served]],
    *,
    count: Callable[[str, Served], None],
    task: str,
    unit: str,
) -> dict[str, Served]:
    """Return what each record came to, by its key; `concurrency` are served at once.

    A record that the store has, and not as a failure, is not asked for again; each other is on disk
    as soon as it is finished, so that a run that was stopped asks for what is missing alone. What a
    failure used is added to what asking again uses.

    Args:
        llm: the model, and how it is reached.
        store: of the finished records.
        records: what is to be served, by a digest of everything that decides the answer: the
            model's identity, settings, texts.
        serve: asks what it likes of the session, which is the record's own, and says what the
            record came to. A `NoAnswerError` that it lets pass ends the run.
        count: takes the key of each record and what it came to, in this run or before. Where it
            raises a FailureError, no further record is begun, and the run ends when those that are
            being served are finished.
        task: what the progress says.
        unit: what it counts.

    Raises:
        FormatError: the store is damaged.
        InputError: the server refuses the key, does not know the model or redirects to another
            server; or the key has characters that no key has.
        FailureError: nothing can be connected to at the address, `PATIENCE` records in a row
            failed, the store cannot be written, or `count` says so; what was finished is kept.
        MissingExtraError: the openai package is not installed.
    """
    answers = store.get(records)
    missing = [key for key in records if key not in answers or answers[key]["failure"] is not None]
    with progress.task(task, total=len(records), unit=unit) as advance:
        advance(len(records) - len(missing))
        for key, served in answers.items():
            count(key, served)

        def finished(key: str, served: Served) -> None:
            if key in answers:
                served = {**served, **Usage.total([answers[key], served]).as_record()}
            answers[key] = served
            store.add({key: served})
            advance(1)
            count(key, served)

        if missing:
            _run(_serve_all(llm, missing, lambda session, key: serve(session, records[key]), finished))
    return {key: answers[key] for key in records}


async def _serve_all(
    llm: LLMSettings,
    keys: Sequence[str],
    serve: Callable[[Session, str], Awaitable[Served]],
    finished: Callable[[str, Served], None],
) -> None:
    """Serve each key, `concurrency` at once, and hand what it came to to `finished` as soon as it is there."""
    require("openai", "llm")
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Timeout

    waiting, in_a_row, stopped = iter(keys), 0, list[FailureError]()

    async def work(server: _Server) -> None:
        nonlocal in_a_row
        for key in waiting:
            served = await serve(Session(server), key)
            try:
                finished(key, served)
            except FailureError as error:
                stopped.append(error)
            if stopped:
                return
            in_a_row = 0 if served["failure"] is None or "came" in served else in_a_row + 1
            if in_a_row >= PATIENCE:
                last = f"(last: {served['failure']}) at {llm.where}"
                raise FailureError(f"{in_a_row} records in a row failed {last}; what was finished is kept")

    timeout = Timeout(TIMEOUT, connect=min(TIMEOUT, CONNECTING))
    http = DefaultAsyncHttpxClient(timeout=timeout, follow_redirects=False)
    async with AsyncOpenAI(
        api_key=llm.key or "none", base_url=llm.base_url, max_retries=0, timeout=timeout, http_client=http
    ) as openai:
        server = _Server(llm, openai)
        workers = [asyncio.create_task(work(server)) for _ in range(min(llm.concurrency, len(keys)))]
        try:
            await asyncio.gather(*workers)
            if stopped:
                raise stopped[0]
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine, in another thread where the caller runs a loop, as notebooks do."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        asyncio.run(work)
        return
    with ThreadPoolExecutor(1) as pool:
        pool.submit(contextvars.copy_context().run, asyncio.run, work).result()
