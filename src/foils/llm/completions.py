"""What is asked of a chat model, and how its completion is read: of a server at once, or in a batch's files."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from foils.llm.client import Usage
from foils.runtime.errors import FailureError

TOP_TOKENS = 20  # whose log-probabilities are asked for: the most that OpenAI and vLLM give


class NoAnswerError(FailureError):
    """A request brought no answer; the message says why in few words, and never holds the key."""


@dataclass(frozen=True)
class Request:
    """A prompt and how it is answered.

    Attributes:
        prompt: what the user says.
        seed: sent to the server, which may heed it.
        temperature: of the sampling, at least 0.
        schema: JSON schema of the answer; None: free text.
        name: of the schema.
        most_tokens: of the answer; None: the server's default.
        first_token: one token is asked for, with log-probabilities (`logprobs`, `top_logprobs`: 20).
    """

    prompt: str
    seed: int
    temperature: float
    schema: Mapping[str, Any] | None = None
    name: str = "answer"
    most_tokens: int | None = None
    first_token: bool = False

    @property
    def messages(self) -> list[dict[str, str]]:
        """The prompt as a conversation."""
        return [{"role": "user", "content": self.prompt}]

    @property
    def settings(self) -> dict[str, Any]:
        """Everything but the messages and the shape of the answer."""
        settings: dict[str, Any] = {"temperature": self.temperature, "seed": self.seed}
        if self.first_token:
            return {**settings, "max_tokens": 1, "logprobs": True, "top_logprobs": TOP_TOKENS}
        return settings if self.most_tokens is None else {**settings, "max_tokens": self.most_tokens}

    @property
    def shape(self) -> dict[str, Any]:
        """The shape of the answer, which a server may not know; {}: none is asked for."""
        if self.schema is None or self.first_token:
            return {}
        of_json = {"name": self.name, "strict": True, "schema": dict(self.schema)}
        return {"response_format": {"type": "json_schema", "json_schema": of_json}}

    def body(self, model: str, *, structured: bool = True) -> dict[str, Any]:
        """Return the whole request to a model as JSON has it; not structured: without the shape."""
        shape = self.shape if structured else {}
        return {"model": model, "messages": self.messages, **self.settings, **shape}

    def answer_of(self, completion: Any, usage: Usage) -> Any:
        """Return the text of a completion, or how probable each of the likeliest first tokens is; count its tokens.

        Raises:
            NoAnswerError: the model refused, said nothing, or there are no log-probabilities.
        """
        choice = _choice_of(completion, usage)
        if self.first_token:
            listed = getattr(getattr(choice, "logprobs", None), "content", None)
            if not listed or not listed[0].top_logprobs:
                raise NoAnswerError("an answer without log-probabilities")
            return {each.token: math.exp(min(each.logprob, 0.0)) for each in listed[0].top_logprobs}
        if not choice.message.content:
            raise NoAnswerError(f"an empty answer (finish reason {choice.finish_reason})")
        return str(choice.message.content)


def _choice_of(completion: Any, usage: Usage) -> Any:
    used = getattr(completion, "usage", None)
    if used is not None:
        usage.prompt_tokens += used.prompt_tokens or 0
        usage.completion_tokens += used.completion_tokens or 0
    choices = getattr(completion, "choices", None)
    if not choices:
        raise NoAnswerError("an answer without choices")
    if getattr(choices[0].message, "refusal", None):
        raise NoAnswerError("the model refused")
    return choices[0]
