"""What a language model is asked about two documents, and how its answer is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from foils.data.lines import whole_text
from foils.llm import digest
from foils.llm.answers import json_values, without_thoughts
from foils.runtime.errors import FormatError, InputError, UnknownNameError

VERSION = "pairwise-1"
SLOTS = ("domain", "query", "first", "second", "answer")
NEEDED = ("query", "first", "second")
_SLOT = re.compile(r"\{([a-z_]+)\}")
_CHOICES = {"a": 1.0, "b": 0.0, "tie": 0.5}


@dataclass(frozen=True)
class Answer:
    """A form of answer: what the prompt says of it, its JSON schema, and how its value becomes P(A ≻ B)."""

    words: str
    schema: Mapping[str, Any]
    read: Callable[[Any], float | None]


def _preference(value: Any) -> float | None:
    """A number in [0, 1] as it is; anything else is no answer."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        return None
    return float(value)


def _choice(value: Any) -> float | None:
    """A 1, B 0, tie ½; anything else is no answer."""
    return _CHOICES.get(value.strip().lower()) if isinstance(value, str) else None


def _schema(name: str, shape: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": {name: shape}, "required": [name], "additionalProperties": False}


ANSWERS: dict[str, Answer] = {
    "preference": Answer(
        'Answer in JSON: {"preference": p}, where p, from 0 to 1, is the probability that A is the better one: 1 if A '
        "surely is, 0 if B surely is, 0.5 if you cannot tell.",
        _schema("preference", {"type": "number", "minimum": 0, "maximum": 1}),
        _preference,
    ),
    "choice": Answer(
        'Answer in JSON: {"choice": "A"} if A is the better one, {"choice": "B"} if B is, {"choice": "tie"} if you '
        "cannot tell.",
        _schema("choice", {"type": "string", "enum": ["A", "B", "tie"]}),
        _choice,
    ),
}


@dataclass(frozen=True)
class PairPrompt:
    """A template, and the field of the collection.

    Attributes:
        template: text with the slots {query}, {first}, {second}, and optionally {domain} and {answer}; without
            {answer}, what the form of answer says of itself comes at the end.
        version: what to call it in provenance.
        domain: the field of the collection.

    Raises:
        InputError: a template without a needed slot, or with an unknown one.
    """

    template: str = field(
        default_factory=lambda: (files("foils.rating") / "prompts" / f"{VERSION}.txt").read_text("utf-8")
    )
    version: str = VERSION
    domain: str = "general"

    def __post_init__(self) -> None:
        found = set(_SLOT.findall(self.template))
        if unknown := sorted(found - set(SLOTS)):
            raise InputError(f"the template has unknown slots {', '.join(unknown)}; known are {', '.join(SLOTS)}")
        if missing := [slot for slot in NEEDED if slot not in found]:
            raise InputError(f"the template lacks {', '.join(f'{{{slot}}}' for slot in missing)}")

    @classmethod
    def read(cls, path: str | Path, *, domain: str = "general") -> PairPrompt:
        """Read a template from a file; its name, less the ending, is the version.

        Raises:
            InputError: no such file.
            FormatError: it is not UTF-8, or a template without a needed slot, or with an unknown one.
        """
        text = whole_text(path)
        try:
            return cls(text, Path(path).stem, domain)
        except InputError as error:
            raise FormatError(str(error), path) from error

    def text(self, query: str, first: str, second: str, answer: str) -> str:
        """Return the prompt for a pair; what stands in its texts is never taken for a slot."""
        values = {"query": query, "first": first, "second": second, "domain": self.domain, "answer": answer}
        said = _SLOT.sub(lambda slot: values[slot.group(1)], self.template)
        return said if "{answer}" in self.template else f"{said.rstrip()}\n\n{answer}\n"


@dataclass(frozen=True)
class PairAsking:
    """What is asked of the model about a pair.

    Attributes:
        prompt: the prompt.
        answer: preference, a number, or choice, A, B or tie.
        temperature: of the sampling, at least 0.
        seed: sent to the server, which may heed it.
        most_tokens: of an answer; None: the server's default.
        asks: how often at most, while what comes back cannot be read; at least 1.
        longest: characters of a document that are shown; None: all.

    Raises:
        UnknownNameError: an unknown form of answer.
        InputError: asks or longest below 1, or a negative temperature.
    """

    prompt: PairPrompt = field(default_factory=PairPrompt)
    answer: str = "preference"
    temperature: float = 0.0
    seed: int = 0
    most_tokens: int | None = None
    asks: int = 2
    longest: int | None = 6000

    def __post_init__(self) -> None:
        if self.answer not in ANSWERS:
            raise UnknownNameError("form of answer", self.answer, ANSWERS)
        if self.asks < 1 or (self.longest is not None and self.longest < 1) or self.temperature < 0:
            raise InputError(
                f"asks {self.asks}, longest {self.longest}, temperature {self.temperature}; expected at least 1, at "
                "least 1, at least 0"
            )

    def describe(self) -> dict[str, Any]:
        """Return everything that decides an answer beside the model and the texts."""
        return {
            "prompt": self.prompt.version, "prompt_digest": digest(self.prompt.template, self.prompt.domain),
            "answer": self.answer, "temperature": self.temperature, "seed": self.seed,
            "most_tokens": self.most_tokens, "asks": self.asks, "longest": self.longest,
        }  # fmt: skip

    def text(self, query: str, first: str, second: str) -> str:
        """Return the prompt for a pair."""
        return self.prompt.text(query, first[: self.longest], second[: self.longest], ANSWERS[self.answer].words)


def parse_answer(content: str, answer: str) -> float | None:
    """Read P(A ≻ B) out of what a model said; None where there is no such answer, or one out of range.

    Accepted: the JSON asked for, bare, in a fence, among words, or after a model's thoughts; of several such objects
    the last that can be read. Nothing is guessed from words.
    """
    found = None
    for value in json_values(without_thoughts(content)):
        if isinstance(value, dict) and answer in value:
            found = ANSWERS[answer].read(value[answer])
    return found
