"""Which language model is asked, and where its answers are kept: the options of every door that asks one."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from foils.data.collection import Collection
from foils.llm.client import Client
from foils.llm.questions import Sampling
from foils.runtime.errors import InputError
from foils.runtime.files import cache_folder
from foils.runtime.options import Option, Settings, spelled

if TYPE_CHECKING:
    LanguageModelLike = str | Client
else:
    LanguageModelLike = str

LLM_ARGS = "llm_args"  # the program's option that takes rarely used settings as its keys


def parsed_price(text: str) -> tuple[float, float]:
    """Read two prices, `IN,OUT`.

    Raises:
        InputError: it is not of this form.
    """
    try:
        prompts, completions = map(float, text.split(","))
    except ValueError as error:
        raise InputError(f"{spelled('price', text)}: expected two numbers, as in 0.15,0.60") from error
    return prompts, completions


@dataclass(frozen=True, kw_only=True)
class LLMSettings(Settings):
    """Which language model is asked.

    Attributes:
        llm_model: Name of the model on the server. In Python also a `Client`, which has its own settings.
        base_url: Address of an OpenAI-compatible server, as http://localhost:8000/v1.
        key_variable: Environment variable with the server's key. The key itself is never written.
        llm_temperature: Sampling temperature.
        most_tokens: Maximum length of an answer, in tokens. Default, where none is shown: the server's.
        concurrency: Number of requests at once.
        timeout: Seconds to wait for a whole answer.
        retries: Number of times a failed request is sent again.
        schema: Ask for JSON by a schema. A server that does not support schemas is asked without.
        price: Prices per million prompt tokens and completion tokens, as 0.15,0.60. The result then shows the cost.
        log: Folder where answers are kept, so that none is paid for twice. Default: the cache.
    """

    heading = "Language model"

    llm_model: LanguageModelLike = ""
    base_url: Annotated[str | None, Option(metavar="URL")] = None
    key_variable: Annotated[str, Option(within=LLM_ARGS)] = "OPENAI_API_KEY"
    llm_temperature: Annotated[float, Option(least=0, flag="temperature", within=LLM_ARGS)] = 0.0
    most_tokens: Annotated[int | None, Option(least=1, within=LLM_ARGS)] = None
    concurrency: Annotated[int, Option(least=1, within=LLM_ARGS)] = 8
    timeout: Annotated[float, Option(above=0, within=LLM_ARGS)] = 120.0
    retries: Annotated[int, Option(least=0, within=LLM_ARGS)] = 5
    schema: Annotated[bool, Option(within=LLM_ARGS)] = True
    price: Annotated[tuple[float, float] | None, Option(parse=parsed_price, least=0, within=LLM_ARGS)] = None
    log: Annotated[str | Path | None, Option(within=LLM_ARGS)] = None

    def client(self) -> Client:
        """Return how the model is reached.

        Raises:
            InputError: no model is named.
        """
        if isinstance(self.llm_model, Client):
            return self.llm_model
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
        return Path(self.log) if self.log else cache_folder() / "llm" / collection.digest[:16]

    def sampling(self) -> Sampling:
        """Return how answers are drawn."""
        return Sampling(self.llm_temperature, self.most_tokens)
