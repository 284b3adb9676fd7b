"""What a language model is asked to write: the options, the prompt, and the schema of its answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

from foils.data.records import whole_text
from foils.llm.kept import digest
from foils.llm.template import Template, TemplateLike
from foils.mining.settings import RULE_ARGS
from foils.runtime.options import Option, Settings

VERSION = "negatives-2"
SLOTS = {"needed": ("query", "positive", "number"), "optional": ("domain", "difficulty", "length", "example")}


def _example_of(path: str) -> str:
    return whole_text(path).strip()


@dataclass(frozen=True, kw_only=True)
class WritingSettings(Settings):
    """What the language model is asked to write.

    Attributes:
        domain: Field of the collection, which the prompt names.
        difficulty: How easily a negative could be mistaken for a correct answer, as the prompt says it.
        length: How long a negative is to be, as the prompt says it.
        example: File with a worked example for the prompt. In Python its text.
        template: Prompt of your own: a text file with {query}, {positive} and {number}, and optionally {domain},
            {difficulty}, {length} and {example}. In Python also a `Template`.
        asks: Number of times the model is asked for a query's negatives, until it has written enough of them.
        shortest: Turn away texts with fewer words than this share of the shortest positive's.
    """

    heading = "Prompt"

    domain: str = "general"
    difficulty: str = "hard"
    length: str = "about as many words as the passage above"
    example: Annotated[str, Option(parse=_example_of, metavar="FILE")] = ""
    template: Annotated[TemplateLike | None, Option(metavar="FILE")] = None
    asks: Annotated[int, Option(least=1)] = 3
    shortest: Annotated[float, Option(least=0, most=1, within=RULE_ARGS)] = 0.1

    @cached_property
    def _template(self) -> Template:
        return Template.of(self.template, "foils.mining", VERSION, **SLOTS)

    def prompt(self, query: str, positive: str, number: int, taken: Sequence[str] = ()) -> str:
        """Return the prompt for one query; `taken` are negatives that it has already."""
        prompt = self._template.filled(
            query=query,
            positive=positive,
            number=str(number),
            domain=self.domain,
            difficulty=self.difficulty,
            length=self.length,
            example=f"\nExample:\n{self.example}\n" if self.example else "",
        )
        if taken:
            prompt += "\nThese are there already; write others:\n" + "\n".join(f"- {text}" for text in taken) + "\n"
        return prompt

    def describe(self) -> dict[str, str]:
        """Return what provenance says of the prompt: its version, and a digest of template and slots."""
        slots = (self.domain, self.difficulty, self.length, self.example)
        return {"prompt": self._template.version, "prompt_digest": digest(self._template.text, *slots)}


def schema(number: int) -> dict[str, Any]:
    """Return the JSON schema of an answer with so many negatives."""
    texts = {"type": "array", "items": {"type": "string"}, "minItems": number, "maxItems": number}
    return {
        "type": "object",
        "properties": {"negatives": texts},
        "required": ["negatives"],
        "additionalProperties": False,
    }
