"""Which language model is asked, how it is reached, and what asking it used."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from foils.data.collection import Collection
from foils.runtime.errors import FailureError, InputError
from foils.runtime.files import cache_place
from foils.runtime.options import Option, Settings, spelled

KEY_VARIABLE = "OPENAI_API_KEY"
Price = tuple[float, float]  # per million prompt tokens and per million completion tokens


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
        patience: records in a row that may fail before the run stops.
        price: per million prompt tokens and per million completion tokens; None: not known.
        max_cost: at these prices, of which the run stops; None: no bound.
    """

    model: str
    base_url: str | None = None
    key_variable: str = KEY_VARIABLE
    concurrency: int = 8
    timeout: float = 300.0
    retries: int = 5
    pause: float = 1.0
    patience: int = 20
    price: Price | None = None
    max_cost: float | None = None

    def __post_init__(self) -> None:
        if not self.model:
            raise InputError("no model; name one that the server has")
        address = urlsplit("")
        try:
            address, _ = urlsplit(self.address), self.server
            wrong = "" if address.scheme in ("http", "https") and address.hostname else "no http:// or https://"
        except ValueError as error:  # of the port, or of brackets
            wrong = str(error)
        if self.address and wrong:
            raise InputError(f"{self.address}: no address ({wrong}); give one as http://localhost:8000/v1")
        if self.max_cost is not None and self.price is None:
            advice = f"give {spelled('price', 'IN,OUT')}, per million tokens, or a judge its own, as price=IN/OUT"
            raise InputError(f"{spelled('max_cost', self.max_cost)} without a price of {self.model}; {advice}")
        if self.concurrency < 1 or self.retries < 0 or self.patience < 1 or not (self.timeout > 0 and self.pause >= 0):
            raise InputError("expected concurrency and patience of at least 1, retries and pause of 0, timeout above 0")

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
        if not parts.hostname:
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
        return self.model, self.server and f"{parts.scheme}://{parts.hostname}{parts.path}", True

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it: the model, and the server less any name and password."""
        return {"model": self.model, "server": self.server}


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


if TYPE_CHECKING:
    LanguageModelLike = str | Client
else:
    LanguageModelLike = str


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


@dataclass(frozen=True)
class Sampling:
    """How an answer is drawn.

    Attributes:
        temperature: of the sampling, at least 0.
        max_tokens: of the answer; None: the server's default.
        seed: sent to the server, plus the number of the attempt; a server may heed it.
    """

    temperature: float = 0.0
    max_tokens: int | None = None
    seed: int = 0

    def describe(self) -> dict[str, Any]:
        """Return it for provenance."""
        return {"temperature": self.temperature, "seed": self.seed, "max_tokens": self.max_tokens}


@dataclass(frozen=True, kw_only=True)
class LLMSettings(Settings):
    """Which language model is asked.

    Attributes:
        llm_model: Name of the model on the server. In Python also a `Client`, which has its own settings.
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

    llm_model: LanguageModelLike = ""
    base_url: Annotated[str | None, Option(metavar="URL")] = None
    key_variable: Annotated[str, Option(metavar="NAME")] = KEY_VARIABLE
    llm_temperature: Annotated[float, Option(least=0)] = 0.0
    max_tokens: Annotated[int | None, Option(least=1)] = None
    concurrency: Annotated[int, Option(least=1)] = 8
    price: Annotated[Price | None, Option(parse=parsed_price, least=0)] = None
    max_cost: Annotated[float | None, Option(above=0)] = None

    def client(self) -> Client:
        """Return how the model is reached.

        Raises:
            InputError: no model is named.
        """
        if isinstance(self.llm_model, Client):
            return self.llm_model
        return Client(
            self.llm_model, self.base_url, self.key_variable, self.concurrency, price=self.price, max_cost=self.max_cost
        )

    def purse(self) -> Purse:
        """Return the purse of all models of a run."""
        return Purse(self.llm_model.max_cost if isinstance(self.llm_model, Client) else self.max_cost)

    def folder(self, collection: Collection) -> Path:
        """Return where answers about a collection are kept."""
        return cache_place("llm", collection.digest[:16])

    def sampling(self) -> Sampling:
        """Return how answers are drawn."""
        return Sampling(self.llm_temperature, self.max_tokens)
