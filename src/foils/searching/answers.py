"""Answer texts to the queries, whose vectors take the place of the sun (LLM DIME and LLM Eclipse)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from foils.data.records import Complaints, json_objects, text_field

if TYPE_CHECKING:
    AnswersLike = str | Path | Mapping[str, str | None]
else:
    AnswersLike = Path


def read_answers(path: str | Path) -> dict[str, str | None]:
    """Read lines of {"query_id": …, "answer": …}; an answer that is null is none.

    Raises:
        InputError: no such file.
        FormatError: a line of another form, a blank answer, or a second answer to a query; all are listed.

    Source: DIME (Faggioli et al. 2024), LLM DIM estimators; Eclipse eq. 2 and 4.
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
