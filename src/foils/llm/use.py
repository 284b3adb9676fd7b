"""What a language model was asked, and what that used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foils.llm.client import Usage


@dataclass
class Asked:
    """What a model was asked so far.

    Attributes:
        usage: of the answers it gave, in this run and before.
        failures: why there is no answer → how many.
    """

    usage: Usage = field(default_factory=Usage)
    failures: Counter[str] = field(default_factory=Counter)

    def count(self, answers: Mapping[str, Mapping[str, Any]]) -> None:
        """Add what the answers of these questions took, by key: those of one question are one."""
        used = Usage.total(answers.values())
        self.usage.requests += used.requests
        self.usage.prompt_tokens += used.prompt_tokens
        self.usage.completion_tokens += used.completion_tokens
        self.failures.update(each["failure"] for each in answers.values() if each["failure"] is not None)

    def use(self, price: tuple[float, float] | None = None) -> ModelUse:
        """Return it for a result, with the prices of the model's tokens."""
        return ModelUse(self.usage, self.failures, price)


@dataclass(frozen=True)
class ModelUse:
    """What a language model was asked.

    Attributes:
        usage: requests and tokens.
        failures: why there is no answer -> how many.
        price: per million prompt tokens and per million completion tokens; None: not known.
    """

    usage: Usage
    failures: Mapping[str, int]
    price: tuple[float, float] | None = None

    def rows(self, name: str) -> list[tuple[str, str]]:
        """Return it as rows of a table, each with the model's name."""
        failed = sorted(self.failures.items(), key=lambda each: -each[1])
        rows = [*self.usage.rows(self.price), *((f"failed: {why}", f"{count:,}") for why, count in failed)]
        return [(f"{name}: {what}", value) for what, value in rows]
