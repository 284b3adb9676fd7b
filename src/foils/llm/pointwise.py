"""One question about each (query, document) by itself, whose answer is one value."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from foils.llm.answers import json_values, without_thoughts
from foils.llm.client import Client
from foils.llm.kept import digest
from foils.llm.log import RecordLog
from foils.llm.questions import Question, Sampling, ask_questions
from foils.llm.template import Template, TemplateLike
from foils.llm.use import Asked

ASKS = 2  # times that a question is asked until its answer can be read
LONGEST = 6_000  # characters of a document that a model is shown


@dataclass(frozen=True)
class ValueForm:
    """The form of an answer: a JSON object with one value.

    Attributes:
        name: of the value.
        schema: JSON schema of the value.
        kind: of question, in the digest of what decides an answer.
        prompt: package and version of the prompt that is asked where none is given.
        words: that explain the form to the model.
        accepts: whether a value is one of those asked for.
        unreadable: the failure of an answer without one.
    """

    name: str
    schema: Mapping[str, Any]
    kind: str
    prompt: tuple[str, str]
    words: str
    accepts: Callable[[Any], bool]
    unreadable: str

    def read(self, content: str) -> Any | None:
        """Return the last readable value in what a model said; nothing is guessed from words."""
        values = [value.get(self.name) for value in json_values(without_thoughts(content)) if isinstance(value, dict)]
        return next((value for value in reversed(values) if self.accepts(value)), None)

    def of_object(self) -> dict[str, Any]:
        """Return the schema of the whole answer."""
        return {
            "type": "object",
            "properties": {self.name: dict(self.schema)},
            "required": [self.name],
            "additionalProperties": False,
        }


class PairQuestions:
    """A language model that is asked about pairs of a query and a document, each by itself. Each form has a subclass.

    Args:
        client: how to reach the model.
        log: folder of the answers, so that none is asked for twice.
        question: a prompt with {query}, {document}, and optionally {answer}, where the form is explained; without it,
            that stands at the end. None: the package's own.
        sampling: how answers are drawn.

    Attributes:
        form: of the answers.
        name: what to call it.
        fingerprint: digest of everything that decides an answer but the texts.
        asked: requests, tokens and failures so far.

    Raises:
        InputError: a file of a prompt that is not there.
        FormatError: slots of a prompt that are not those expected.
    """

    form: ClassVar[ValueForm]

    def __init__(
        self,
        client: Client,
        log: str | Path,
        question: TemplateLike | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.name = f"llm:{client.model}"
        self._client, self._sampling = client, sampling or Sampling()
        needed, optional = ("query", "document"), ("answer",)
        self._template = Template.of(question, *self.form.prompt, needed=needed, optional=optional)
        decisive = {**self._sampling.describe(), "prompt": self._template.text, "asks": ASKS, "longest": LONGEST}
        self.fingerprint = digest(self.form.kind, client.identity, sorted(decisive.items()))
        self._log = RecordLog(Path(log) / f"{self.fingerprint}.jsonl")
        self.asked = Asked()

    def answers(self, pairs: Sequence[tuple[str, str]]) -> list[Any | None]:
        """Return the value of each (query, document); None where no answer came, or none that can be read.

        Raises:
            InputError: the server refuses the key, or does not know the model.
            FailureError: question after question failed, or the log cannot be written; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        prompts = [self._prompt(*pair) for pair in pairs]
        questions = [Question(digest(self.fingerprint, prompt), prompt) for prompt in prompts]
        answers = ask_questions(
            self._client,
            self._log,
            questions,
            self.form.read,
            name=self.form.name,
            unreadable=self.form.unreadable,
            sampling=self._sampling,
            tries=ASKS,
            schema=self.form.of_object(),
            task=f"asking {self.name}",
        )
        self.asked.count({question.key: answer for question, answer in zip(questions, answers, strict=True)})
        return [answer[self.form.name] for answer in answers]

    def _prompt(self, query: str, document: str) -> str:
        words = self.form.words
        filled = self._template.filled(query=query, document=document[:LONGEST], answer=words)
        return filled if "answer" in self._template.slots else f"{filled.rstrip()}\n\n{words}\n"
