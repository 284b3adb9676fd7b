"""Questions of one form, asked of a language model about many texts: prompts, answers read, what asking takes.

Every answer is on disk before it counts, so that a stopped run asks for what is missing alone; one
that failed is missing, and is asked for again by the next run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logit

from foils.data.records import whole_text
from foils.llm.asking import (
    AnswerStore,
    LLMSettings,
    NoAnswerError,
    Purse,
    Request,
    Served,
    Session,
    Usage,
    ask_missing,
    digest,
    estimated,
)
from foils.runtime.errors import FailureError, FormatError, InputError
from foils.runtime.options import spelled

log = logging.getLogger(__name__)

# shares of answers that cannot be read; and of how many, to stop a run
WARNED, STOPPED, LEAST_HEARD = 0.05, 0.2, 20
ATTEMPTS = 2  # times that a question is asked until its answer can be read
LONGEST, LISTED = 6_000, 1_800  # characters of a document that a model is shown, and of each in a list
ANSWER_TOKENS = 12  # about what a bare answer in JSON takes
_COUNTED = ("requests", "tokens", "estimated", "failure")  # of a record, what tells what it took
AROUND = r"[\s\"'`*}\].,)]*"  # what may stand behind a value
_NUMBER = r"((?:\d*\.\d+|\d+)(?:[eE][-+]?\d+)?\s*%?)"
_SLOT = re.compile(r"\{([a-z_]+)\}")
OPTIONAL = ("domain", "answer")  # slots that a prompt may have
STARTS = 1000  # brackets of an answer that are tried as the beginning of its JSON
_BRACKET = re.compile(r"[\[{]")


@dataclass(frozen=True)
class Template:
    """Text with slots, as {query}.

    Attributes:
        text: the whole prompt.
        version: what to call it in provenance.
    """

    text: str
    version: str

    @classmethod
    def of(
        cls, given: TemplateLike | None, package: str, version: str, *, optional: Sequence[str] = OPTIONAL
    ) -> Template:
        """Return a template, that of a file, or for None prompts/VERSION.txt of a package.

        It must have the slots of the package's own prompt, and may have the optional ones. The name
        of a file, less the ending, is the version.

        Raises:
            InputError: no such file, or a template whose slots are not those expected.
            FormatError: the file is not UTF-8, or its slots are not those expected.
        """
        ours = cls((files(package) / "prompts" / f"{version}.txt").read_text("utf-8"), version)
        if given is None:
            return ours
        template = given if isinstance(given, Template) else cls(whole_text(given), Path(given).stem)
        needed = [slot for slot in ours.slots if slot not in optional]
        known, faults = [*needed, *optional], []
        if unknown := sorted(set(template.slots) - set(known)):
            faults.append(f"has unknown slots {', '.join(unknown)[:200]}; known are {', '.join(known)}")
        if missing := [f"{{{slot}}}" for slot in needed if slot not in template.slots]:
            faults.append(f"lacks {', '.join(missing)}")
        if faults:
            message = f"the template {' and '.join(faults)}"
            raise InputError(message) if isinstance(given, Template) else FormatError(message, given)
        return template

    @property
    def slots(self) -> list[str]:
        """The names of its slots, in their order."""
        return [*dict.fromkeys(_SLOT.findall(self.text))]

    def filled(self, **values: str) -> str:
        """Return the prompt; what stands in the values is never taken for a slot."""
        return _SLOT.sub(lambda slot: values[slot.group(1)], self.text)


TemplateLike = str | Path | Template


def fenced(**texts: str) -> dict[str, str]:
    """Return texts between marks that nobody who wrote one of them can have written, for the slots of a prompt.

    The mark is another one for each question: a digest of all texts, so that the same question has
    the same prompt.
    """
    mark = hashlib.blake2b(repr(sorted(texts.items())).encode("utf-8", "replace"), digest_size=6).hexdigest()
    return {name: f"<{name}-{mark}>\n{text}\n</{name}-{mark}>" for name, text in texts.items()}


def without_thoughts(text: str) -> str:
    """Return an answer without what stands between <think> and </think>.

    Where a </think> has no beginning, as under chat templates that open the thoughts in the prompt,
    all before it is thought; thoughts without an end are all that follows.
    """
    kept: list[str] = []
    *thoughts, rest = text.split("</think>")
    for part in thoughts:
        before, begun, _ = part.partition("<think>")
        kept = [*kept, before] if begun else []
    return "".join([*kept, rest.partition("<think>")[0]])


def json_values(text: str) -> Iterator[Any]:
    """Yield the JSON object or list that begins at each bracket, inner ones after those around them.

    Line breaks inside strings are taken as they are. Brackets that begin no JSON are passed over;
    after STARTS brackets no more are tried, so that a model that repeats itself stops no run.
    """
    decoder = json.JSONDecoder(strict=False)
    for start in islice((match.start() for match in _BRACKET.finditer(text)), STARTS):
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield value


def probability(value: Any) -> float | None:
    """Return a number in [0, 1], or that of a text that is nothing but one, in quotes, brackets or as a percentage."""
    if isinstance(value, str):
        alone = re.fullmatch(rf"[\s\"'`*({{\[]*{_NUMBER}{AROUND}", value)
        text = alone.group(1) if alone else "nan"
        value = float(text.rstrip("% ")) / (100 if text.endswith("%") else 1)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= 1 else None


def concluded(value: Any) -> float | None:
    """Return the same, or the number at the end of a text, unless a sign or a range goes before it, or it is B's."""
    last = re.search(rf"(?<![\w./–-]){_NUMBER}{AROUND}$", value) if isinstance(value, str) else None
    if last is None:
        return probability(value)
    of_b = re.search(r"\bB\b\W*$|\d\s*(?:-|–|to|or|and|,)?\s*$", value[: last.start()])
    return None if of_b else probability(last.group(1))


@dataclass(frozen=True)
class Form:
    """The form of an answer.

    Attributes:
        name: of the value in an answer's JSON object, and in the store.
        words: what a prompt says of the form.
        read: from that value, or from a text that stands in its place, to what it means; None: it
            cannot be read.
        schema: JSON schema of the value; None: one token is asked for, and `read` takes token → probability.
        tokens: about how many an answer takes.
        thinks: whether the model gives its reasons first, which are kept with the answer.
    """

    name: str
    words: str
    read: Callable[[Any], Any | None]
    schema: Mapping[str, Any] | None = None
    tokens: int = ANSWER_TOKENS
    thinks: bool = False

    def request(self, prompt: str, seed: int) -> Request:
        """Return what is sent to the server."""
        if self.schema is None:
            return Request(prompt, seed, first_token=True)
        properties: dict[str, Any] = {"reasoning": {"type": "string"}} if self.thinks else {}
        properties |= {self.name: dict(self.schema)}
        whole = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
        return Request(prompt, seed, whole)

    def value(self, answer: Any) -> Any | None:
        """Return what an answer means where it has one reading, else None.

        That is the last value under the form's name that can be read, in JSON or in what resembles
        it (single quotes, a brace that is not closed); without the name, the whole answer.
        """
        if self.schema is None:
            return self.read(answer)
        text = without_thoughts(answer)
        named: list[Any] = [
            each[self.name] for each in json_values(text) if isinstance(each, dict) and self.name in each
        ]
        if not named:
            tails = re.findall(rf"{self.name}[\"'`*]*\s*[:=]\s*(.*)", text, re.IGNORECASE)
            named = [part for tail in tails for part in (tail.partition(",")[0], tail)]
        values = [value for value in map(self.read, named or [text]) if value is not None]
        return values[-1] if values else None


class Questions:
    """Asks questions of one form, and counts what that takes.

    Args:
        llm: the model, how it is reached, and how its answers are drawn.
        log: folder of the answers.
        form: of an answer.
        template: the prompt with slots.
        domain: field of the collection, for the prompt.
        kind: of question; it and what follows are part of the fingerprint.
        described: what else decides an answer.
        purse: of the run, which pays, too; the model's own bound holds in any case.

    Attributes:
        llm: the model.
        described: of everything that decides an answer beside the texts, what provenance says.
        fingerprint: a digest of it.
    """

    def __init__(
        self,
        llm: LLMSettings,
        log: str | Path,
        form: Form,
        template: Template,
        *,
        domain: str = "general",
        kind: str = "",
        described: Mapping[str, object] | None = None,
        purse: Purse | None = None,
    ) -> None:
        llm.check_askable()
        self.llm, self._form, self._purse = llm, form, Purse(llm.max_cost, purse)
        self._template, self._domain = template, domain
        self._counted: dict[str, Served] = {}
        # questions that have an answer or were asked again, and those that stay unread
        self._heard = self._unread = 0
        self._store = AnswerStore(log)
        decisive = {
            "prompt": template.version, "prompt_digest": digest(template.text, domain), "answer": form.name,
            "asks": ATTEMPTS, "longest": LONGEST, **(described or {}), **llm.sampling(),
        }  # fmt: skip
        self.described = {**llm.describe(), **decisive}
        self.fingerprint = digest(kind, llm.identity, sorted(decisive.items()))

    def prompt(self, template: Template | None = None, *, listed: Sequence[str] = (), **texts: str) -> str:
        """Return the prompt for texts by slot; documents are cut, and the form of the answer is explained.

        Args:
            template: another prompt with slots; None: that of the questions.
            listed: documents that are numbered from 1, for the slot `passages`.
            texts: by slot; one that the template does not have is not shown.
        """
        template = template or self._template
        shown = {
            slot: text if "query" in slot else text[:LONGEST] for slot, text in texts.items() if slot in template.slots
        }
        numbered = {f"passage-{number}": text[:LISTED] for number, text in enumerate(listed, 1)}
        marked = fenced(**shown, **numbered)
        passages = "\n".join(marked.pop(name) for name in numbered)
        prompt = template.filled(**marked, passages=passages, domain=self._domain, answer=self._form.words)
        return prompt if "answer" in template.slots else f"{prompt.rstrip()}\n\n{self._form.words}\n"

    @property
    def asked(self) -> Usage:
        """Requests, tokens and failures of all questions so far, each question once."""
        return Usage.total(self._counted.values(), self.llm.price)

    def cost(self, prompts: Sequence[str]) -> Usage:
        """Return about what it takes to ask those questions that no answer is kept of.

        What the others took is counted.

        Raises:
            As `recalled`.
        """
        answers = zip(prompts, self.recalled(prompts), strict=True)
        open_ones = dict.fromkeys(prompt for prompt, answer in answers if answer is None)
        return estimated([*open_ones], self._form.tokens, self.llm.price)

    def recalled(self, prompts: Sequence[str]) -> list[Any]:
        """Return what the answers mean that are kept, None for other questions; count what they took.

        Raises:
            FormatError: the store is damaged.
            FailureError: they have cost more than is allowed.
        """
        keys = self._keys(prompts)
        kept = self._store.get(keys)
        for key, served in kept.items():
            self._count(key, served)
        return [kept[key][self._form.name] if key in kept else None for key in keys]

    def _keys(self, prompts: Sequence[str]) -> list[str]:
        return [digest(self.fingerprint, prompt) for prompt in prompts]

    def _count(self, key: str, served: Served) -> None:
        before = self._counted.get(key)
        self._heard += served["failure"] is None and (before is None or before["failure"] is not None)
        self._counted[key] = {name: served[name] for name in _COUNTED if name in served}
        self._purse.pay(key, served, self.llm.price)
        if self._heard >= LEAST_HEARD and self._unread > STOPPED * self._heard:
            came = f"; the last one: {served['came']}" if "came" in served else ""
            raise FailureError(
                f"{self._unread} of {self._heard} answers of {self.llm.llm_model} cannot be read{came}; take another "
                f"{spelled('answer')}, {spelled('question')} or model; what was answered is kept"
            )

    def ask(self, prompts: Sequence[str]) -> list[Any]:
        """Return what the answers mean, None where none came or none can be read.

        `concurrency` are asked at once.

        Args:
            prompts: the questions; a repeated one is asked once, one that the store has an answer to is not.

        Raises:
            FormatError: the store is damaged.
            InputError: the server refuses the key, or does not know the model.
            FailureError: the store cannot be written, or question after question failed; what was
                answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        keys, form = self._keys(prompts), self._form
        unread = f'an answer in which "{form.name}" cannot be read'

        async def serve(session: Session, prompt: str) -> Served:
            value, failure, kept = None, "", {}
            for attempt in range(ATTEMPTS):
                try:
                    answer = await session.answer(form.request(prompt, attempt))
                except NoAnswerError as error:
                    failure = str(error)
                    continue
                value = form.value(answer)
                if value is not None:
                    kept = {"reasoning": session.shown(answer, LONGEST)} if form.thinks else {}
                    break
                failure, kept = unread, {"came": session.shown(str(answer))}
            self._heard += value is None
            self._unread += value is None and failure == unread
            failed = failure if value is None else None
            return {form.name: value, "failure": failed, **kept, **session.usage.as_record()}

        answers = ask_missing(
            self.llm, self._store, dict(zip(keys, prompts, strict=True)), serve,
            count=self._count, task=f"asking {self.llm.llm_model}", unit="questions",
        )  # fmt: skip
        if self._unread > WARNED * self._heard:
            came = [each["came"] for each in answers.values() if "came" in each]
            log.warning(
                "%d of %d answers of %s cannot be read%s", self._unread, self._heard, self.llm.llm_model,
                f"; the first of them: {came[0]}" if came else "",
            )  # fmt: skip
        return [answers[key][form.name] for key in keys]


SURE = 0.01  # the least probability that is told from 0, and by as much from 1
RELEVANCE = Form(
    "relevance",
    'Answer in JSON: {"relevance": p}, where p, from 0 to 1, is the probability that the passage answers the query: '
    "1 if it surely does, 0 if it surely does not.",
    probability,
    {"type": "number", "minimum": 0, "maximum": 1},
)


class RelevanceQuestions(Questions):
    """Asks how likely it is that each document answers its query, and scores it by the logit of that probability.

    Args:
        llm: the model, how it is reached, and how its answers are drawn.
        log: folder of the answers.
        template: a prompt with {query}, {document}, and optionally {domain} and {answer}; None: the
            package's own.
        more: domain and purse, as `Questions`.
    """

    def __init__(self, llm: LLMSettings, log: str | Path, template: TemplateLike | None = None, **more: Any) -> None:
        loaded = Template.of(template, "foils.llm", "relevance-1")
        super().__init__(llm, log, RELEVANCE, loaded, kind="relevance", **more)

    def prompts(self, queries: Sequence[str], documents: Sequence[str]) -> list[str]:
        """Return the question about each document of its query."""
        return [self.prompt(query=query, document=text) for query, text in zip(queries, documents, strict=True)]

    def scores(self, queries: Sequence[str], documents: Sequence[str]) -> npt.NDArray[np.float64]:
        """Return (n,) log(p/(1 − p)) of each document, p between .01 and .99; NaN where no answer came.

        Raises:
            As `Questions.ask`.
        """
        answers: list[Any] = self.ask(self.prompts(queries, documents))
        return np.asarray(logit(np.clip(np.array(answers, np.float64), SURE, 1 - SURE)))
