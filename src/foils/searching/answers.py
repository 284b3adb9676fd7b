"""Answers of a language model to the queries, whose vectors make the sun (LLM DIME and LLM Eclipse).

Every finished answer is on disk before the next begins to count, so a stopped run asks for what is missing alone. A
query whose answer is missing searches with every dimension, and the reason is reported.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foils.data.collection import Collection
from foils.data.lines import Complaints, json_objects, text_field
from foils.llm import Client, LLMSettings, Question, Sampling, Template, Usage, ask_questions, digest
from foils.llm.answers import without_thoughts

VERSION = "answer-1"
ANSWERING = LLMSettings(most_tokens=256)
log = logging.getLogger(__name__)


def answer_prompt(path: str | Path | None = None) -> Template:
    """Return the template of the prompt, with the slot {query}: the package's own, or that of a file.

    Raises:
        InputError: no such file.
        FormatError: it is not UTF-8, or a template without the slot, or with another.
    """
    if path is None:
        return Template.packaged("foils.searching", VERSION, needed=("query",))
    return Template.read(path, needed=("query",))


@dataclass(frozen=True)
class Answers:
    """What asking gave.

    Attributes:
        texts: query id → answer; None for a query that has none.
        failed: reason → number of queries.
        usage: requests and tokens for these queries, in this run and before.
        asking: how they were asked, for provenance.
    """

    texts: dict[str, str | None]
    failed: dict[str, int]
    usage: Usage
    asking: dict[str, Any]


def read_answers(path: str | Path) -> dict[str, str | None]:
    """Read lines of {"query_id": …, "answer": …}.

    Raises:
        InputError: no such file.
        FormatError: a line of another form, a blank answer, or a second answer to a query; all are listed.
    """
    complaints = Complaints(path)
    answers: dict[str, str | None] = {}
    for line, record in json_objects(path, complaints):
        query, answer = text_field(record.get("query_id")), text_field(record.get("answer"))
        if query is None or not (answer or "").strip():
            complaints.add('expected {"query_id": string, "answer": a text that is not empty}', line)
        elif query in answers:
            complaints.add(f"{query!r} has an answer on an earlier line already", line)
        else:
            answers[query] = str(answer)
    complaints.settle()
    return answers


def written_answers(
    collection: Collection, splits: Sequence[str], llm: LLMSettings, prompt: Template, *, seed: int
) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Let a language model answer every query of the splits; report what it used, and why answers are missing.

    Returns:
        Query id → answer, and what JSON says of the answers.
    """
    ids = list(
        dict.fromkeys(query for split in splits for query in collection.judgements(split)["query_id"].to_pylist())
    )
    queries = dict(zip(ids, collection.query_texts(collection.query_rows(ids)), strict=True))
    client = llm.client()
    sampling = Sampling(llm.llm_temperature, llm.most_tokens, seed)
    answers = ask_answers(queries, client, llm.folder(collection), prompt=prompt, sampling=sampling)
    answered = sum(text is not None for text in answers.texts.values())
    used = ", ".join(f"{count} {what}" for what, count in answers.usage.rows(llm.price))
    log.info("%s answered %s of %s queries: %s", client.model, f"{answered:,}", f"{len(ids):,}", used)
    for reason, count in answers.failed.items():
        log.info("no answer for %s queries, which keep every dimension: %s", f"{count:,}", reason)
    return answers.texts, {
        **client.describe(), **answers.asking, "answered": answered, "failed": answers.failed,
        **answers.usage.to_json(llm.price),
    }  # fmt: skip


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
        folder: for finished answers, one file for each combination of model, server and settings.
        prompt: with the slot {query}; None: the package's own.
        sampling: how answers are drawn; None: without temperature, at most 256 tokens.

    Raises:
        InputError: a server that refuses key or model.
        FailureError: the server fails query after query; what was finished is kept.

    Source: DIME (Faggioli et al. 2024), LLM DIM estimators; Eclipse eq. 2 and 4.
    """
    prompt, sampling = prompt or answer_prompt(), sampling or ANSWERING.sampling()
    template = hashlib.blake2b(prompt.text.encode(), digest_size=16).hexdigest()
    asking = {"prompt": prompt.version, "prompt_digest": template, **sampling.describe()}
    settings = sorted(asking.items())
    records = ask_questions(
        client,
        Path(folder) / f"answers-{digest(client.identity, settings)}.jsonl",
        [Question(digest(client.identity, settings, text), prompt.filled(query=text)) for text in queries.values()],
        lambda reply: without_thoughts(reply).strip() or None,
        name="answer",
        unreadable="a blank answer",
        sampling=sampling,
        task="asking for answers",
        unit="queries",
    )
    return Answers(
        {query: record["answer"] for query, record in zip(queries, records, strict=True)},
        dict(Counter(record["failure"] for record in records if record["failure"] is not None)),
        Usage.total(records),
        asking,
    )
