"""The options of every verb that asks a language model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foils.cli.groups import panel
from foils.runtime.errors import InputError

if TYPE_CHECKING:
    from foils.data import Collection
    from foils.llm import Client, Usage


_llm = panel("Language model")


@dataclass(frozen=True)
class LLMOptions:
    """Which model is asked, how patiently, and where its answers are kept."""

    llm_model: Annotated[str, _llm("--llm-model", "The model's name on the server.")] = ""
    base_url: Annotated[
        str | None, _llm("--base-url", "Of an OpenAI-compatible server, as http://localhost:8000/v1.", metavar="URL")
    ] = None
    key_variable: Annotated[
        str, _llm("--key-variable", "Environment variable that holds the key; it is written nowhere.")
    ] = "OPENAI_API_KEY"
    llm_temperature: Annotated[float, _llm("--llm-temperature", "Of the sampling.", min=0.0)] = 0.0
    most_tokens: Annotated[int | None, _llm("--most-tokens", "Of an answer.", min=1)] = None
    concurrency: Annotated[int, _llm("--concurrency", "Requests at once.", min=1)] = 8
    timeout: Annotated[float, _llm("--timeout", "Seconds for a whole answer.")] = 120.0
    retries: Annotated[int, _llm("--retries", "Of a request that failed.", min=0)] = 5
    schema: Annotated[
        bool, _llm("--schema/--no-schema", "Ask for JSON by schema. A server that knows no schemas is asked without.")
    ] = True
    price: Annotated[
        str | None, _llm("--price", "Of a million tokens of prompts and of answers, as 0.15,0.60.", metavar="IN,OUT")
    ] = None
    log: Annotated[
        Path | None, _llm("--log", "Where finished records are kept. Default: the cache.", metavar="FOLDER")
    ] = None

    def client(self) -> Client:
        """Return how the model is reached.

        Raises:
            InputError: the --price is not two numbers: it is told before anything is asked.
        """
        from foils.llm import Client, Usage

        self.cost(Usage())
        return Client(
            self.llm_model,
            self.base_url,
            key_variable=self.key_variable,
            concurrency=self.concurrency,
            timeout=self.timeout,
            retries=self.retries,
            structured=self.schema,
        )

    def folder(self, collection: Collection) -> Path:
        """Return where finished records of a collection are kept."""
        from foils.data.store import cache_folder

        return self.log or cache_folder() / "llm" / collection.digest[:16]

    def usage_rows(self, usage: Usage) -> list[tuple[str, str]]:
        """Return what asking used, for a table."""
        cost = self.cost(usage)
        return [
            ("requests", f"{usage.requests:,}"),
            ("tokens of prompts", f"{usage.prompt_tokens:,}"),
            ("tokens of answers", f"{usage.completion_tokens:,}"),
            *([("cost", f"{cost:,.2f}")] if cost is not None else []),
        ]

    def usage_facts(self, usage: Usage) -> dict[str, Any]:
        """Return what asking used, for JSON."""
        return {**usage.as_record(), "cost": self.cost(usage)}

    def cost(self, usage: Usage) -> float | None:
        """Return what the tokens cost; None without a --price.

        Raises:
            InputError: the --price is not two numbers.
        """
        if self.price is None:
            return None
        try:
            of_prompts, of_answers = map(float, self.price.split(","))
        except ValueError as error:
            raise InputError(f"--price {self.price}: expected two numbers, as in 0.15,0.60") from error
        return usage.cost((of_prompts, of_answers))
