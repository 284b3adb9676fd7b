"""What foils search takes sun and moon from: another run, or answers, from a file or written by a language model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli.show import say
from foils.runtime.errors import InputError

if TYPE_CHECKING:
    from foils.cli.llm_options import LLMOptions
    from foils.data import Collection, Run


@dataclass(frozen=True)
class FeedbackOptions:
    """What sun and moon are made of, where it is not the first pass."""

    feedback: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take sun and moon from this TREC run (as of BM25).")
    ] = None
    answers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='JSONL of {"query_id", "answer"}: texts whose vectors make the sun.'),
    ] = None
    answer_prompt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of the answers that --llm-model writes: a template with {query}."),
    ] = None

    def check(self, llm: LLMOptions) -> None:
        """Raise an InputError for both a file of answers and a model that writes them, before anything is read."""
        if self.answers and llm.llm_model:
            raise InputError("--answers FILE and --llm-model both bring answers; give one of them")

    def run(self) -> Run | None:
        """Return the run that --feedback names."""
        from foils.data import Run

        return Run.read(self.feedback) if self.feedback else None

    def texts(
        self, collection: Collection, splits: Sequence[str], llm: LLMOptions, seed: int
    ) -> tuple[dict[str, str | None] | None, dict[str, Any]]:
        """Return the answers to the queries of the splits, None where there are none; and what to say of them."""
        if llm.llm_model:
            return answers_by_model(collection, splits, llm, self.answer_prompt, seed)
        return (read_answers(self.answers) if self.answers else None), {}


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
    """Let a model answer every query of the splits; return the answers, and what to say of them."""
    from foils.searching import AnswerAsking, AnswerPrompt, ask_answers

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
