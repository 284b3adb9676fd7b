"""OpenAI's batch form: requests in files, results from files; nothing is lost, nothing is asked twice."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foils.llm import BatchFolder, Client, Question, Sampling, WaitingError, ask_questions
from foils.llm import batch as batch_module
from foils.runtime.errors import FormatError

CLIENT = Client("some/model")


def questions(count: int) -> list[Question]:
    return [Question(f"key{i:03d}", f"number {i}") for i in range(count)]


def asked(place: Path, count: int, **how: Any) -> list[dict[str, Any]]:
    """What the folder's batch says of so many questions; a batch that is waited for raises."""
    batch = how.pop("batch", None) or BatchFolder(place / "batch", "some/model")
    found = ask_questions(
        CLIENT,
        place / "log",
        questions(count),
        how.pop("read", lambda text: float(text) if text[0].isdigit() else None),
        name="value",
        unreadable="no number",
        sampling=Sampling(0.5, 7),
        task="asking",
        batch=batch,
        **how,
    )
    batch.settle()
    return found


def requests(place: Path) -> list[dict[str, Any]]:
    """All lines of request files, in their order."""
    files = sorted((place / "batch").glob("requests-*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def result(line: dict[str, Any], content: str | None, number: int = 0, **more: Any) -> str:
    """A line of results to a request."""
    message = {"role": "assistant", "content": content}
    body = {
        "id": "c", "object": "chat.completion", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
    }  # fmt: skip
    response = {"status_code": 200, "request_id": "r", "body": body}
    whole = {
        "id": f"b{number}-{line['custom_id']}",
        "custom_id": line["custom_id"],
        "response": response,
        "error": None,
    }
    return json.dumps({**whole, **more})


def answer(place: Path, name: str, lines: list[str]) -> None:
    (place / "batch" / name).write_text("".join(f"{line}\n" for line in lines))


def number_in(line: dict[str, Any]) -> str:
    return re.search(r"\d+", line["body"]["messages"][0]["content"]).group()


def test_requests_are_openais_lines_and_results_are_answers(tmp_path: Path) -> None:
    schema = {"type": "object"}
    with pytest.raises(WaitingError, match="5 questions to some-model wait"):
        asked(tmp_path, 5, schema=schema)
    lines = requests(tmp_path)
    assert [line["custom_id"] for line in lines] == [f"key{i:03d}" for i in range(5)]
    assert (lines[2]["method"], lines[2]["url"]) == ("POST", "/v1/chat/completions")
    of_json = {"name": "value", "strict": True, "schema": schema}
    assert lines[2]["body"] == {
        "model": "some/model", "messages": [{"role": "user", "content": "number 2"}], "temperature": 0.5, "seed": 0,
        "max_tokens": 7, "response_format": {"type": "json_schema", "json_schema": of_json},
    }  # fmt: skip
    answer(tmp_path, "output.jsonl", [result(line, number_in(line)) for line in reversed(lines)])
    found = asked(tmp_path, 5, schema=schema)
    assert [each["value"] for each in found] == [0, 1, 2, 3, 4]
    assert found[0] == {"value": 0.0, "failure": None, "requests": 1, "tokens": [7, 3]}
    for file in (tmp_path / "batch").iterdir():
        file.unlink()
    assert [each["value"] for each in asked(tmp_path, 5)] == [0, 1, 2, 3, 4], "the log has them"


def test_nothing_is_requested_twice_and_nothing_lost(tmp_path: Path) -> None:
    for _ in range(2):  # a run before the results are there adds nothing
        with pytest.raises(WaitingError, match="3 questions"):
            asked(tmp_path, 3)
    assert len(requests(tmp_path)) == 3
    first = requests(tmp_path)
    answer(tmp_path, "some.jsonl", [result(first[0], "0")])
    with pytest.raises(WaitingError, match="4 questions"):  # two wait, two are new
        asked(tmp_path, 5)
    assert [line["custom_id"] for line in requests(tmp_path)] == [f"key{i:03d}" for i in range(5)]
    rest = requests(tmp_path)[1:]
    answer(tmp_path, "rest.jsonl", [result(line, number_in(line)) for line in rest])
    answer(tmp_path, "rest (1).jsonl", [result(line, number_in(line)) for line in rest])  # downloaded twice
    assert [each["value"] for each in asked(tmp_path, 5)] == [0, 1, 2, 3, 4]
    assert sum(each["requests"] for each in asked(tmp_path, 5)) == 5


def test_a_failed_question_is_requested_as_often_as_allowed(tmp_path: Path) -> None:
    with pytest.raises(WaitingError):
        asked(tmp_path, 3, tries=2)
    lines = requests(tmp_path)
    failed = json.dumps({"id": "b", "custom_id": "key001", "response": None, "error": {"code": "batch_expired"}})
    refused = result(lines[2], None, response={"status_code": 429, "body": {}})
    answer(tmp_path, "output.jsonl", [result(lines[0], "hm"), refused])
    answer(tmp_path, "error.jsonl", [failed])
    with pytest.raises(WaitingError, match="3 questions"):
        asked(tmp_path, 3, tries=2)
    again = requests(tmp_path)[3:]
    assert [(line["custom_id"], line["body"]["seed"]) for line in again] == [(f"key{i:03d}", 1) for i in range(3)]
    answer(tmp_path, "z-more.jsonl", [result(again[0], "0", 1), result(again[1], "hm", 1), result(again[2], None, 1)])
    found = asked(tmp_path, 3, tries=2)
    assert [each["value"] for each in found] == [0, None, None]
    assert [each["failure"] for each in found[1:]] == ["no number", "an empty answer (finish reason stop)"]
    assert [each["requests"] for each in found] == [2, 2, 2]
    assert len(requests(tmp_path)) == 6, "no third time"


def test_files_of_requests_are_bounded_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_module, "MAX_REQUESTS", 2)
    with pytest.raises(WaitingError, match="5 questions"):
        asked(tmp_path, 5)
    sizes = [len(file.read_text().splitlines()) for file in sorted((tmp_path / "batch").iterdir())]
    assert sizes == [2, 2, 1]
    monkeypatch.setattr(batch_module, "MAX_BYTES", 400)
    (tmp_path / "other").mkdir()
    with pytest.raises(WaitingError):
        asked(tmp_path / "other", 4)
    assert all(file.stat().st_size <= 400 for file in (tmp_path / "other" / "batch").iterdir())
    assert len(requests(tmp_path / "other")) == 4


def test_probabilities_of_a_first_token_come_from_a_batch(tmp_path: Path) -> None:
    how: dict[str, Any] = {"first_token": True, "read": lambda tokens: tokens.get("A")}
    with pytest.raises(WaitingError):
        asked(tmp_path, 1, **how)
    (line,) = requests(tmp_path)
    assert (line["body"]["max_tokens"], line["body"]["logprobs"], line["body"]["top_logprobs"]) == (1, True, 20)
    top = [{"token": "A", "logprob": float(np.log(0.75))}, {"token": "B", "logprob": float(np.log(0.25))}]
    told = json.loads(result(line, "A"))
    told["response"]["body"]["choices"][0]["logprobs"] = {"content": [{**top[0], "top_logprobs": top}]}
    answer(tmp_path, "output.jsonl", [json.dumps(told)])
    assert asked(tmp_path, 1, **how)[0]["value"] == pytest.approx(0.75)


@pytest.mark.parametrize("line", ["{", "[]", '{"id": "x"}', '{"custom_id": 3}', '"x"'])
def test_a_file_that_is_no_batch_is_named_with_its_line(tmp_path: Path, line: str) -> None:
    (tmp_path / "batch").mkdir()
    answer(tmp_path, "output.jsonl", ["", line])
    batch = BatchFolder(tmp_path / "batch", "some/model")
    for _ in range(2):  # what was read of it is not trusted the second time
        with pytest.raises(FormatError, match=r"output.jsonl:2: expected a line of a batch"):
            asked(tmp_path, 1, batch=batch)


@pytest.mark.parametrize(
    "response",
    [
        None,
        {},
        "x",
        *({"status_code": 200, **more} for more in ({}, {"body": {"choices": []}}, {"body": {"choices": [3]}})),
    ],
)
def test_a_response_without_a_completion_is_a_failure(tmp_path: Path, response: Any) -> None:
    with pytest.raises(WaitingError):
        asked(tmp_path, 1)
    answer(tmp_path, "output.jsonl", [result(requests(tmp_path)[0], "1", response=response)])
    assert asked(tmp_path, 1)[0]["value"] is None
