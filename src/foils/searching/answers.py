"""Answers of a language model to the queries, whose vectors make the sun (LLM DIME and LLM Eclipse).

Every finished answer is on disk before the next begins to count, so a stopped run asks for what is missing alone. A
query whose answer is missing searches with every dimension.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foils.data.records import Complaints, json_objects, text_field
from foils.llm import Client, LLMSettings, Question, Sampling, Template, Usage, ask_questions, digest
from foils.llm.answers import without_thoughts
from foils.runtime.files import write_text
from foils.runtime.results import Result, Table

VERSION = "answer-1"
ANSWERING = LLMSettings(max_tokens=256)
THE_ANSWERS = (
    'JSONL file of {"query_id", "answer"}, as foils answer writes it: their vectors are the suns. '
    "In Python also a dictionary, where None stands for no answer, or what `foils.answer` returns."
)


@dataclass(frozen=True)
class Answers(Result):
    """What asking gave.

    Attributes:
        texts: query id → answer; None for a query that has none.
        failures: query id → why it has none.
        usage: requests and tokens for these queries, in this run and before.
        asking: how they were asked, for provenance.
        price: per million prompt tokens and per million completion tokens; None: unknown.
    """

    texts: Mapping[str, str | None]
    failures: Mapping[str, str]
    usage: Usage
    asking: Mapping[str, Any]
    price: tuple[float, float] | None = field(default=None, repr=False)

    @property
    def failed(self) -> dict[str, int]:
        """Reason → number of queries that have no answer for it."""
        return dict(Counter(self.failures.values()))

    @property
    def answered(self) -> int:
        """How many queries have an answer."""
        return len(self.texts) - len(self.failures)

    def tables(self) -> list[Table]:
        """Return the counts of queries, answers, requests and tokens, and why answers are missing."""
        rows = [("queries", f"{len(self.texts):,}"), ("answered", f"{self.answered:,}"), *self.usage.rows(self.price)]
        rows += [(f"without an answer: {reason}", f"{count:,}") for reason, count in self.failed.items()]
        return [Table(f"answers of {self.asking['model']}", ["", ""], rows)]

    def to_json(self) -> dict[str, Any]:
        """Return how the model was asked, what it used, and the digest that a search with these answers shows."""
        counts = {"queries": len(self.texts), "answered": self.answered, "failed": self.failed}
        return {**self.asking, **counts, "digest": answers_digest(self.texts), **self.usage.to_json(self.price)}

    def write(self, path: str | Path) -> None:
        """Write lines of {"query_id", "answer"}; those without an answer have null, and the failure."""
        lines = [
            {"query_id": query, "answer": text} | ({"failure": self.failures[query]} if text is None else {})
            for query, text in self.texts.items()
        ]
        write_text(path, "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines))


if TYPE_CHECKING:
    AnswersLike = str | Path | Mapping[str, str | None] | Answers
else:
    AnswersLike = Path


def answer_prompt(path: str | Path | Template | None = None) -> Template:
    """Return the template of the prompt, with the slot {query}: the package's own, that of a file, or one as it is.

    Raises:
        InputError: no such file.
        FormatError: it is not UTF-8, or a template without the slot, or with another.
    """
    return Template.of(path, "foils.searching", VERSION, needed=("query",))


def as_answers(given: AnswersLike | None) -> Mapping[str, str | None] | None:
    """Return query id → answer, None for a query without; of a file, see `read_answers`."""
    if isinstance(given, Answers):
        return given.texts
    return read_answers(given) if isinstance(given, (str, Path)) else given


def read_answers(path: str | Path) -> dict[str, str | None]:
    """Read lines of {"query_id": …, "answer": …}; an answer that is null is none.

    Raises:
        InputError: no such file.
        FormatError: a line of another form, a blank answer, or a second answer to a query; all are listed.
    """
    complaints = Complaints(path)
    answers: dict[str, str | None] = {}
    for line, record in json_objects(path, complaints):
        query, answer = text_field(record.get("query_id")), text_field(record.get("answer"))
        missing = "answer" in record and record["answer"] is None
        if query is None or not (missing or (answer or "").strip()):
            complaints.add('expected {"query_id": string, "answer": a text that is not empty, or null}', line)
        elif query in answers:
            complaints.add(f"{query!r} has an answer on an earlier line already", line)
        else:
            answers[query] = answer
    complaints.settle()
    return answers


def answers_digest(texts: Mapping[str, str | None]) -> str:
    """Return a digest of answers, whatever their order, which says what search was made with."""
    return digest("answers", sorted(texts.items()))


def ask_answers(
    queries: Mapping[str, str],
    client: Client,
    folder: str | Path,
    *,
    prompt: Template | None = None,
    sampling: Sampling | None = None,
) -> Answers:
    """Let a model answer every query.

    Args:
        queries: id → text.
        client: of the server.
        folder: for finished answers.
        prompt: with the slot {query}; None: the package's own.
        sampling: how answers are drawn; None: without temperature, at most 256 tokens.

    Raises:
        InputError: a server that refuses key or model.
        FailureError: the server fails query after query; what was finished is kept.

    Source: DIME (Faggioli et al. 2024), LLM DIM estimators; Eclipse eq. 2 and 4.
    """
    prompt, sampling = prompt or answer_prompt(), sampling or ANSWERING.sampling()
    facts = {
        "prompt": prompt.version,
        "prompt_digest": hashlib.blake2b(prompt.text.encode(), digest_size=16).hexdigest(),
        **sampling.describe(),
    }
    settings = sorted(facts.items())
    records = ask_questions(
        client,
        folder,
        [Question(digest(client.identity, settings, text), prompt.filled(query=text)) for text in queries.values()],
        lambda reply: without_thoughts(reply).strip() or None,
        name="answer",
        unreadable="a blank answer",
        sampling=sampling,
        task="asking for answers",
        unit="queries",
    )
    by_query = dict(zip(queries, records, strict=True))
    return Answers(
        {query: record["answer"] for query, record in by_query.items()},
        {query: record["failure"] for query, record in by_query.items() if record["failure"] is not None},
        Usage.total(records),
        {**client.describe(), **facts},
    )
