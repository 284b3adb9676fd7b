"""What is asked of a chat model, and how its completion is read."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from foils.llm.client import Sampling, Usage
from foils.runtime.errors import FailureError

TOP_TOKENS = 20  # whose log-probabilities are asked for: the most that OpenAI and vLLM give


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
            without: what the server does not know: `response_format`, `seed` or `temperature`, which are left out, or
                `max_tokens`, in whose place `max_completion_tokens` stands.
        """
        body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": self.prompt}]}
        body |= {"temperature": self.sampling.temperature, "seed": self.sampling.seed + self.attempt}
        if (most := 1 if self.first_token else self.sampling.max_tokens) is not None:
            body["max_completion_tokens" if "max_tokens" in without else "max_tokens"] = most
        if self.first_token:
            body |= {"logprobs": True, "top_logprobs": TOP_TOKENS}
        elif self.schema is not None:
            of_json = {"name": self.name, "strict": True, "schema": dict(self.schema)}
            body["response_format"] = {"type": "json_schema", "json_schema": of_json}
        return {name: value for name, value in body.items() if name not in without}

    def answer_of(self, completion: Any, usage: Usage) -> Any:
        """Return the text of a completion, or how probable each of the likeliest first tokens is; count its tokens.

        Raises:
            NoAnswerError: the model refused, said nothing, or was cut off; or there are no log-probabilities.
        """
        if (used := getattr(completion, "usage", None)) is not None:
            usage.prompt_tokens += used.prompt_tokens or 0
            usage.completion_tokens += used.completion_tokens or 0
        if not (choices := getattr(completion, "choices", None)):
            raise NoAnswerError("an answer without choices")
        choice = choices[0]
        if getattr(choice.message, "refusal", None):
            raise NoAnswerError("the model refused")
        if self.first_token:
            listed = getattr(getattr(choice, "logprobs", None), "content", None)
            if not listed or not listed[0].top_logprobs:
                raise NoAnswerError("an answer without log-probabilities")
            return {each.token: math.exp(min(each.logprob, 0.0)) for each in listed[0].top_logprobs}
        if (reason := getattr(choice, "finish_reason", None)) == "length":
            raise NoAnswerError("an answer that was cut off; allow it more tokens")
        if not choice.message.content:
            raise NoAnswerError(f"an empty answer (finish reason {reason})")
        text = str(choice.message.content)
        if "<think>" in text.rpartition("</think>")[2]:
            raise NoAnswerError("thoughts without an end")
        return text
