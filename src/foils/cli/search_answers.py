"""Answers to the queries, for foils search: from a file, or written by a language model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foils.cli.show import say

if TYPE_CHECKING:
    from foils.cli.llm_options import LLMOptions
    from foils.data import Collection


def read_answers(path: Path) -> dict[str, str | None]:
    """Read {"query_id": …, "answer": …} lines."""
    from foils.data.lines import Complaints, json_objects, text_field

    complaints = Complaints(path)
    found: dict[str, str | None] = {}
    for line, record in json_objects(path, complaints):
        query, answer = text_field(record.get("query_id")), text_field(record.get("answer"))
        if query is None or not (answer or "").strip():
            complaints.add('expected {"query_id": string, "answer": a text that is not empty}', line)
        elif query in found:
            complaints.add(f"{query!r} has an answer on an earlier line already", line)
        else:
            found[query] = str(answer)
    complaints.settle()
    return found


def answers_by_model(
    collection: Collection, splits: Sequence[str], llm: LLMOptions, prompt: Path | None, seed: int
) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Let a model answer every query of the splits; return the answers, and what is to be said of them."""
    from foils.llm import Usage
    from foils.search import AnswerAsking, AnswerPrompt, ask_answers

    llm.cost(Usage())  # a wrong --price is told before anything is asked
    asking = AnswerAsking(
        AnswerPrompt.read(prompt) if prompt else AnswerPrompt(), llm.llm_temperature, llm.most_tokens or 256, seed
    )
    ids = list(
        dict.fromkeys(query for split in splits for query in collection.judgements(split)["query_id"].to_pylist())
    )
    texts = collection.query_texts(collection.query_rows(ids))
    client = llm.client()
    found = ask_answers(dict(zip(ids, texts, strict=True)), client, llm.folder(collection), asking=asking)
    answered = sum(text is not None for text in found.texts.values())
    used = ", ".join(f"{count} {what}" for what, count in llm.usage_rows(found.usage))
    say(f"{client.model} answered {answered:,} of {len(ids):,} queries: {used}")
    for reason, count in found.failed.items():
        say(f"no answer for {count:,} queries, which keep every dimension: {reason}")
    facts = {
        **client.describe(), **asking.describe(), "answered": answered, "failed": found.failed,
        **llm.usage_facts(found.usage),
    }  # fmt: skip
    return found.texts, {"answers": facts}
