"""How a language model is reached, and what asking it used."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from foils.runtime.errors import InputError


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

    @property
    def server(self) -> str | None:
        """The server's address less any name, password and query; None: the openai package's own default."""
        parts = urlsplit(self.base_url or os.environ.get("OPENAI_BASE_URL", ""))
        if not parts.hostname:
            return None
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}"

    @property
    def identity(self) -> tuple[str, str | None, bool]:
        """Model, server, and whether JSON is asked for: what decides an answer beside the question itself."""
        return self.model, self.server, self.structured

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of it: the model, and the server less any name and password."""
        return {"model": self.model, "server": self.server}


@dataclass
class Usage:
    """What asking used.

    Attributes:
        requests: sent, retries included.
        prompt_tokens: of prompts, as the server counted them.
        completion_tokens: of answers, likewise.
    """

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    def as_record(self) -> dict[str, Any]:
        """Return it as a log has it."""
        return {"requests": self.requests, "tokens": [self.prompt_tokens, self.completion_tokens]}

    @classmethod
    def total(cls, records: Iterable[Mapping[str, Any]]) -> Usage:
        """Return the sum over a log's records."""
        total = cls()
        for record in records:
            total.requests += record["requests"]
            total.prompt_tokens += record["tokens"][0]
            total.completion_tokens += record["tokens"][1]
        return total

    def cost(self, price: tuple[float, float] | None) -> float | None:
        """Return what the tokens cost, at prices per million prompt and completion tokens; None without prices."""
        if price is None:
            return None
        return (self.prompt_tokens * price[0] + self.completion_tokens * price[1]) / 1e6

    def rows(self, price: tuple[float, float] | None = None) -> list[tuple[str, str]]:
        """Return it as rows of a table, with the cost where prices are given."""
        cost = self.cost(price)
        return [
            ("requests", f"{self.requests:,}"),
            ("prompt tokens", f"{self.prompt_tokens:,}"),
            ("completion tokens", f"{self.completion_tokens:,}"),
            *([("cost", f"{cost:,.2f}")] if cost is not None else []),
        ]

    def to_json(self, price: tuple[float, float] | None = None) -> dict[str, Any]:
        """Return it for JSON, with the cost, None without prices."""
        return {**self.as_record(), "cost": self.cost(price)}
