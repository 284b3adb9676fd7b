"""What is asked of a chat model, and how its completion is read."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from foils.llm.client import Sampling, Usage
from foils.runtime.errors import FailureError

CHARACTERS_A_TOKEN = 4  # about, in English
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
            without: what the server does not know: `response_format`, `seed` or `temperature`, which are left out,
                `max_tokens`, in whose place `max_completion_tokens` stands, or more log-probabilities than, as in
                top_logprobs=5.
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
            NoAnswerError: the model refused, said nothing, or was cut off; there are no log-probabilities; or the
                completion has another shape.
        """
        self._count(completion, usage)
        choice = _at(completion, "choices", 0)
        if choice is None:
            raise NoAnswerError("an answer without choices")
        if _at(choice, "message", "refusal"):
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
        content = _at(choice, "message", "content")
        if isinstance(content, list):  # parts, of which thoughts are others
            content = "".join(str(_at(part, "text") or "") for part in content)
        if not content:
            raise NoAnswerError(f"an empty answer (finish reason {reason})")
        if not isinstance(content, str):
            raise NoAnswerError("an answer whose content is no text")
        reasoning = _at(choice, "message", "reasoning_content")
        if reasoning and isinstance(reasoning, str):  # as vLLM sends the thoughts apart
            content = f"<think>{reasoning}</think>{content}"
        if "<think>" in content.rpartition("</think>")[2]:
            raise NoAnswerError("thoughts without an end")
        return content

    def _count(self, completion: Any, usage: Usage) -> None:
        """Add the tokens of a completion; where the server counts none, about as many as its characters make."""
        content = _at(completion, "choices", 0, "message", "content")
        sent = [_at(completion, "usage", name) for name in ("prompt_tokens", "completion_tokens")]
        wrong = [each for each in sent if each is not None and (type(each) is not int or each < 0)]
        if wrong:
            raise NoAnswerError(f"an answer whose usage is no number of tokens ({str(wrong[0])[:50]})")
        if not sent[0]:  # no prompt has none
            usage.estimated += 1
            texts = self.prompt, content if isinstance(content, str) else ""
            sent = [number or -(-len(text) // CHARACTERS_A_TOKEN) for number, text in zip(sent, texts, strict=True)]
        usage.prompt_tokens += sent[0]
        usage.completion_tokens += sent[1] or 0


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
