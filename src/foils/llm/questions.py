"""One kind of question, asked of a language model about many texts: its prompts, and how its answers are read.

Every answer is on disk before it counts, so that a stopped run asks for what is missing alone; one that failed is
missing, and is asked for again by the next run.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foils.llm.answers import AnswerStore, json_values, without_thoughts
from foils.llm.asking import ANSWER_TOKENS, Served, Session, ask_missing, digest
from foils.llm.client import Client, ModelUse, Purse, Sampling, Usage
from foils.llm.prompts import Template, fenced
from foils.llm.request import CHARACTERS_A_TOKEN, NoAnswerError, Request
from foils.runtime.errors import FailureError
from foils.runtime.options import spelled

_COUNTED = ("requests", "tokens", "estimated", "failure")  # of a record, what tells what it took
log = logging.getLogger(__name__)

WARNED, STOPPED, LEAST_HEARD = 0.05, 0.2, 20  # shares of answers that cannot be read; and of how many, to stop a run
ATTEMPTS = 2  # times that a question is asked until its answer can be read
LONGEST, LISTED = 6_000, 1_800  # characters of a document that a model is shown, and of each in a list


_NUMBER = r"(\d*\.\d+|\d+)"
AROUND = r"[\s\"'`*}\].,)]*"  # what may stand behind a value


def probability(value: Any) -> float | None:
    """Return a number in [0, 1], or that of a text that is nothing but one, in quotes or with a bracket behind it."""
    if isinstance(value, str):
        alone = re.fullmatch(rf"[\s\"'`*({{\[]*{_NUMBER}{AROUND}", value)
        value = float(alone.group(1)) if alone else None
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number and 0 <= value <= 1 else None


def concluded(value: Any) -> float | None:
    """Return the same, or the number at the end of a text."""
    last = re.search(rf"(?<![\d./]){_NUMBER}{AROUND}$", value) if isinstance(value, str) else None
    return probability(last.group(1) if last else value)


@dataclass(frozen=True)
class Form:
    """The form of an answer.

    Attributes:
        name: of the value in an answer's JSON object, and in the store.
        words: what a prompt says of the form.
        read: from that value, or from a text that stands in its place, to what it means; None: it cannot be read.
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

    def request(self, prompt: str, sampling: Sampling, attempt: int) -> Request:
        """Return what is sent to the server."""
        if self.schema is None:
            return Request(prompt, sampling, attempt, first_token=True)
        properties: dict[str, Any] = {"reasoning": {"type": "string"}} if self.thinks else {}
        properties |= {self.name: dict(self.schema)}
        whole = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
        return Request(prompt, sampling, attempt, schema=whole, name=self.name)

    def value(self, answer: Any) -> Any | None:
        """Return what an answer means where it has one reading, else None.

        That is the last value under the form's name that can be read, in JSON or in what resembles it (single quotes, a
        brace that is not closed); without the name, the whole answer.
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
        client: how to reach the model.
        log: folder of the answers.
        form: of an answer.
        sampling: how answers are drawn.
        kind: of question; it and what follows are part of the fingerprint.
        described: what else decides an answer beside its prompt.
        purse: of the run, which pays, too; the client's own bound holds in any case.

    Attributes:
        client: how the model is reached.
        sampling: how answers are drawn.
        described: of everything that decides an answer beside its prompt, what provenance says.
        fingerprint: a digest of it.
    """

    def __init__(
        self,
        client: Client,
        log: str | Path,
        form: Form,
        sampling: Sampling | None,
        *,
        kind: str,
        described: Mapping[str, object],
        purse: Purse | None = None,
    ) -> None:
        self.client, self._form, self._purse = client, form, Purse(client.max_cost, purse)
        self._counted: dict[str, Served] = {}
        self._heard = self._unread = 0  # questions that have an answer or were asked again, and those that stay unread
        self._store, self.sampling = AnswerStore(log), sampling or Sampling()
        decisive = {**described, **self.sampling.describe()}
        self.described = {**client.describe(), **decisive}
        self.fingerprint = digest(kind, client.judge_identity, sorted(decisive.items()))

    def prompt(self, template: Template, *, domain: str = "", listed: Sequence[str] = (), **texts: str) -> str:
        """Return a template's prompt for texts by slot; documents are cut, and the form of the answer is explained.

        Args:
            template: the prompt with slots.
            domain: for its slot.
            listed: documents that are numbered from 1, for the slot `passages`.
            texts: by slot; one that the template does not have is not shown.
        """
        shown = {
            slot: text if "query" in slot else text[:LONGEST] for slot, text in texts.items() if slot in template.slots
        }
        numbered = {f"passage-{number}": text[:LISTED] for number, text in enumerate(listed, 1)}
        marked = fenced(**shown, **numbered)
        passages = "\n".join(marked.pop(name) for name in numbered)
        prompt = template.filled(**marked, passages=passages, domain=domain, answer=self._form.words)
        return prompt if "answer" in template.slots else f"{prompt.rstrip()}\n\n{self._form.words}\n"

    @property
    def asked(self) -> ModelUse:
        """Requests, tokens and failures of all questions so far, each question once."""
        return ModelUse.of([*self._counted.values()], self.client.price)

    def cost(self, prompts: Sequence[str], count: int | None = None) -> Usage:
        """Return about what it takes to ask `count` questions like these; None: these very ones, each once."""
        prompts = [*dict.fromkeys(prompts)] if count is None else prompts
        count = len(prompts) if count is None else count
        characters = sum(map(len, prompts)) / max(len(prompts), 1)
        return Usage(count, round(count * characters / CHARACTERS_A_TOKEN), count * self._form.tokens)

    def unanswered(self, prompts: Sequence[str]) -> list[str]:
        """Return the questions that no answer is kept of; what the others used is counted."""
        return [prompt for prompt, answer in zip(prompts, self.recalled(prompts), strict=True) if answer is None]

    def recalled(self, prompts: Sequence[str]) -> list[Any]:
        """Return what the answers mean that are kept, None for other questions; count what they used.

        Raises:
            FormatError: the store is damaged.
            FailureError: they have cost more than is allowed.
        """
        values = []
        with self._store:
            for prompt in prompts:
                key = digest(self.fingerprint, prompt)
                served = self._store.get(key)
                if served is not None:
                    self._count(key, served)
                values.append(served and served[self._form.name])
        return values

    def _count(self, key: str, served: Served) -> None:
        before = self._counted.get(key)
        self._heard += served["failure"] is None and (before is None or before["failure"] is not None)
        self._counted[key] = {name: served[name] for name in _COUNTED if name in served}
        self._purse.pay(key, served, self.client.price)
        if self._heard >= LEAST_HEARD and self._unread > STOPPED * self._heard:
            came = f"; the last one: {served['came']}" if "came" in served else ""
            raise FailureError(
                f"{self._unread} of {self._heard} answers of {self.client.model} cannot be read{came}; take another "
                f"{spelled('answer')}, {spelled('question')} or model; what was answered is kept"
            )

    def ask(self, prompts: Sequence[str], *, announced: bool = False) -> list[Any]:
        """Return what the answers mean, None where none came or none can be read; `concurrency` are asked at once.

        Args:
            prompts: the questions; a repeated one is asked once, one that the store has an answer to is not.
            announced: whether the costs were said before.

        Raises:
            FormatError: the store is damaged.
            InputError: the server refuses the key, or does not know the model.
            FailureError: the store cannot be written, or question after question failed; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        keys, form = [digest(self.fingerprint, prompt) for prompt in prompts], self._form
        unread = f'an answer in which "{form.name}" cannot be read'

        async def serve(session: Session, prompt: str) -> Served:
            value, failure, kept = None, "", {}
            for attempt in range(ATTEMPTS):
                try:
                    answer = await session.answer(form.request(prompt, self.sampling, attempt))
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
            self.client, self._store, dict(zip(keys, prompts, strict=True)), serve,
            text_of=None if announced else str, answer_tokens=form.tokens, count=self._count,
            task=f"asking {self.client.model}", unit="questions",
        )  # fmt: skip
        if self._unread > WARNED * self._heard:
            came = [each["came"] for each in answers.values() if "came" in each]
            log.warning(
                "%d of %d answers of %s cannot be read%s", self._unread, self._heard, self.client.model,
                f"; the first of them: {came[0]}" if came else "",
            )  # fmt: skip
        return [answers[key][form.name] for key in keys]
