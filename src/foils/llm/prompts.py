"""Prompts: text with slots, from a file of one's own or from the package, and questions about one pair at a time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from foils.data.records import whole_text
from foils.llm.answers import AnswerStore, json_values, without_thoughts
from foils.llm.asking import Question, ask_questions, digest
from foils.llm.client import Client, ModelUse, Sampling
from foils.runtime.errors import FormatError, InputError

ATTEMPTS = 2  # times that a question is asked until its answer can be read
LONGEST = 6_000  # characters of a document that a model is shown
_SLOT = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Template:
    """Text with slots, as {query}.

    Attributes:
        text: the whole prompt.
        version: what to call it in provenance.
        needed: slots that it must have.
        optional: slots that it may have.

    Raises:
        InputError: a slot that is needed is missing, or one is unknown.
    """

    text: str
    version: str
    needed: Sequence[str] = ()
    optional: Sequence[str] = ()

    def __post_init__(self) -> None:
        slots, known = self.slots, (*self.needed, *self.optional)
        if unknown := sorted(slots - set(known)):
            raise InputError(f"the template has unknown slots {', '.join(unknown)[:200]}; known are {', '.join(known)}")
        if missing := [slot for slot in self.needed if slot not in slots]:
            raise InputError(f"the template lacks {', '.join(f'{{{slot}}}' for slot in missing)}")

    @classmethod
    def read(cls, path: str | Path, *, needed: Sequence[str] = (), optional: Sequence[str] = ()) -> Template:
        """Read a template from a file; its name, less the ending, is the version.

        Raises:
            InputError: no such file.
            FormatError: it is not UTF-8, or its slots are not those expected.
        """
        text = whole_text(path)
        try:
            return cls(text, Path(path).stem, needed, optional)
        except InputError as error:
            raise FormatError(str(error), path) from error

    @classmethod
    def packaged(
        cls, package: str, version: str, *, needed: Sequence[str] = (), optional: Sequence[str] = ()
    ) -> Template:
        """Read prompts/VERSION.txt of a package."""
        return cls((files(package) / "prompts" / f"{version}.txt").read_text("utf-8"), version, needed, optional)

    @classmethod
    def of(
        cls,
        given: TemplateLike | None,
        package: str,
        version: str,
        *,
        needed: Sequence[str] = (),
        optional: Sequence[str] = (),
    ) -> Template:
        """Return a template as it is, that of a file (see `read`), or for None that of a package (see `packaged`)."""
        if given is None:
            return cls.packaged(package, version, needed=needed, optional=optional)
        return given if isinstance(given, Template) else cls.read(given, needed=needed, optional=optional)

    @property
    def slots(self) -> set[str]:
        """The names of its slots."""
        return set(_SLOT.findall(self.text))

    def filled(self, **values: str) -> str:
        """Return the prompt; what stands in the values is never taken for a slot."""
        return _SLOT.sub(lambda slot: values[slot.group(1)], self.text)


if TYPE_CHECKING:
    TemplateLike = str | Path | Template
else:
    TemplateLike = str


def fenced(**texts: str) -> dict[str, str]:
    """Return texts between marks that nobody who wrote one of them can have written, for the slots of a prompt.

    The mark is another one for each question: a digest of all texts, so that the same question has the same prompt.
    """
    mark = hashlib.blake2b(repr(sorted(texts.items())).encode("utf-8", "replace"), digest_size=6).hexdigest()
    return {name: f"<{name}-{mark}>\n{text}\n</{name}-{mark}>" for name, text in texts.items()}


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
        folder: of the answers, so that none is asked for twice.
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
        folder: str | Path,
        question: TemplateLike | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.name = f"llm:{client.model}"
        self._client, self._sampling = client, sampling or Sampling()
        needed, optional = ("query", "document"), ("answer",)
        self._template = Template.of(question, *self.form.prompt, needed=needed, optional=optional)
        decisive = {
            **self._sampling.describe(),
            "prompt": self._template.text,
            "attempts": ATTEMPTS,
            "longest": LONGEST,
        }
        self.fingerprint = digest(self.form.kind, client.identity, sorted(decisive.items()))
        self._store = AnswerStore(folder)
        self.asked = ModelUse()

    def answers(self, pairs: Sequence[tuple[str, str]]) -> list[Any | None]:
        """Return the value of each (query, document); None where no answer came, or none that can be read.

        Raises:
            InputError: the server refuses the key, or does not know the model.
            FailureError: question after question failed, or answers cannot be kept; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        prompts = [self._prompt(*pair) for pair in pairs]
        questions = [Question(digest(self.fingerprint, prompt), prompt) for prompt in prompts]
        answers = ask_questions(
            self._client,
            self._store,
            questions,
            self.form.read,
            name=self.form.name,
            unreadable=self.form.unreadable,
            sampling=self._sampling,
            tries=ATTEMPTS,
            schema=self.form.of_object(),
            task=f"asking {self.name}",
        )
        self.asked.count({question.key: answer for question, answer in zip(questions, answers, strict=True)})
        return [answer[self.form.name] for answer in answers]

    def _prompt(self, query: str, document: str) -> str:
        words = self.form.words
        filled = self._template.filled(**fenced(query=query, document=document[:LONGEST]), answer=words)
        return filled if "answer" in self._template.slots else f"{filled.rstrip()}\n\n{words}\n"
