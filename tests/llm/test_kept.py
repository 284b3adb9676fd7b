"""What is finished stays so: the log, and asking for what it lacks."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

from foils.llm import Client, NoAnswerError, RecordLog, ask_missing, digest
from foils.llm import log as log_module
from foils.runtime import progress
from foils.runtime.errors import FailureError, FormatError
from llm_server import Reply, serving


@dataclass(frozen=True)
class Question:
    key: str
    text: str


@dataclass
class Answer:
    text: str | None
    failure: str | None = None

    def as_record(self):
        return {"text": self.text, "failure": self.failure}


async def serve(session, record: Question) -> Answer:
    try:
        return Answer(await session.answer(record.text, seed=0, temperature=0.0))
    except NoAnswerError as error:
        return Answer(None, str(error))


def ask(answer, log, texts, **settings):
    records = [Question(text[0], text) for text in texts]
    with serving(answer) as server:
        client = Client("m", server.url, concurrency=1, retries=0, **settings)
        found = ask_missing(client, log, records, serve, task="asking", unit="questions")
    return [record["text"] for record in found], server


def echo(number: int, request: dict) -> Reply:
    return Reply(request["messages"][0]["content"].upper())


def test_answers_come_in_the_order_of_the_records_and_stay(tmp_path: Path):
    found, server = ask(echo, tmp_path / "log.jsonl", ["a1", "b1", "c1"])
    assert found == ["A1", "B1", "C1"]
    found, server = ask(echo, tmp_path / "log.jsonl", ["c1", "d1", "a1"])
    assert (found, len(server.seen)) == (["C1", "D1", "A1"], 1)
    assert ask(echo, tmp_path / "log.jsonl", [])[0] == []


def test_a_failure_is_asked_for_again(tmp_path: Path):
    found, _ = ask(lambda *_: Reply(""), tmp_path / "log.jsonl", ["a1"])
    assert found == [None]
    with RecordLog(tmp_path / "log.jsonl") as log:
        assert log.records["a"]["failure"].startswith("an empty answer")
    assert ask(echo, tmp_path / "log.jsonl", ["a1"])[0] == ["A1"]


def test_a_stopped_run_keeps_what_was_finished(tmp_path: Path):
    def answer(number, request):
        return Reply(status=422, body=b"{}") if number == 2 else echo(number, request)

    with pytest.raises(FailureError, match="1 records in a row"):
        ask(answer, tmp_path / "log.jsonl", ["a1", "b1", "c1", "d1"], patience=1)
    found, server = ask(echo, tmp_path / "log.jsonl", ["a1", "b1", "c1", "d1"])
    assert found == ["A1", "B1", "C1", "D1"]
    assert [request["messages"][0]["content"] for request in server.seen] == ["c1", "d1"]


def test_records_of_one_key_are_asked_for_once(tmp_path: Path):
    found, server = ask(echo, tmp_path / "log.jsonl", ["a1", "a2", "a3"])
    assert (found, len(server.seen)) == (["A1", "A1", "A1"], 1)


def test_progress_counts_what_was_there(tmp_path: Path):
    told = []

    class Reporter:
        def task(self, description, total, unit):
            told.append((description, total, unit))
            return nullcontext(told.append)

    ask(echo, tmp_path / "log.jsonl", ["a1", "b1"])
    with progress.reporting(Reporter()):
        ask(echo, tmp_path / "log.jsonl", ["a1", "b1", "c1"])
    assert told == [("asking", 3, "questions"), 2, 1]


def test_digests_tell_values_apart():
    assert digest("m", {"a": 1}) == digest("m", {"a": 1})
    assert len({digest("ab"), digest("a", "b"), digest(("a", "b")), digest(1), digest("1")}) == 5
    assert digest("m", 1) == hashlib.blake2b(b"('m', 1)", digest_size=16).hexdigest()  # in any process


@pytest.mark.parametrize(
    "line",
    [b"[" * 100_000, b'{"key": 1}', b'{"key": "a", "key": "b"}', b"\xff", b'{"key": "b"}\r{"key": "c"}', b"", b"{}"],
)
def test_a_line_that_is_no_record(tmp_path: Path, line: bytes):
    path = tmp_path / "log.jsonl"
    path.write_bytes(b'{"key": "a"}\n' + line + b"\n")
    with pytest.raises(FormatError, match=r"log.jsonl:2: a damaged line"), RecordLog(path):
        pass


def test_a_damaged_log_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    with RecordLog(path) as log:
        log.add("a", {"negatives": ["é"]})
        log.add("a", {"negatives": ["later"]})
    with RecordLog(path) as log:
        assert log.records == {"a": {"negatives": ["later"]}}
    path.write_bytes(path.read_bytes() + b'{"key": "half a li')
    with RecordLog(path) as log:
        assert log.records == {"a": {"negatives": ["later"]}}
        log.add("b", {"negatives": []})
    with RecordLog(path) as log:
        assert list(log.records) == ["a", "b"]
    path.write_bytes(b"not json\n" + path.read_bytes())
    with pytest.raises(FormatError, match=r"log.jsonl:1: a damaged line"), RecordLog(path):
        pass
    with pytest.raises(FailureError, match="not open"):
        RecordLog(path).add("b", {})
    with pytest.raises(FailureError, match="cannot write"), RecordLog(path / "log.jsonl"):
        pass


def test_a_digit_that_changed_is_named_with_its_line(tmp_path: Path):
    path = tmp_path / "log.jsonl"
    with RecordLog(path) as log:
        for key in "abc":
            log.add(key, {"score": 0.25, "by": {2: "é", 10: None}})
    whole = path.read_bytes()
    second = whole.index(b"\n") + 1
    for at in (at for at, byte in enumerate(whole.splitlines()[1]) if chr(byte).isdigit()):
        changed = bytearray(whole)
        changed[second + at] = ord("7") if changed[second + at] != ord("7") else ord("8")
        path.write_bytes(changed)
        with pytest.raises(FormatError, match=r"log.jsonl:2: a damaged line"), RecordLog(path):
            pass
    path.write_bytes(whole)
    with RecordLog(path) as log:
        assert log.get("b") == {"score": 0.25, "by": {"2": "é", "10": None}}


def test_two_processes_do_not_write_one_log(tmp_path):
    path = tmp_path / "log.jsonl"
    program = (
        "import sys; from foils.llm import RecordLog\n"
        "with RecordLog(sys.argv[1]) as log:\n"
        "    log.add('a', {'text': 'x'}); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(FailureError, match=r"log.jsonl is being written by another process; wait"), RecordLog(path):
            pass
        other.kill()
        other.wait()
    with RecordLog(path) as log:  # its lock died with it
        assert log.records == {"a": {"text": "x"}}


def counted(monkeypatch):
    """Count the lines that are parsed."""
    parsed, plain = [], log_module.json_value
    monkeypatch.setattr(log_module, "json_value", lambda line: parsed.append(line) or plain(line))
    return parsed


def test_a_log_opened_again_reads_only_what_is_new(tmp_path: Path, monkeypatch):
    log, other = (RecordLog(tmp_path / "log.jsonl") for _ in range(2))
    parsed = counted(monkeypatch)
    for number in range(20):
        with log:
            log.add(f"a{number}", {"n": number})
        with other:
            other.add(f"b{number}", {"n": -number})
    with log:
        assert [log.get(key) for key in ("a3", "b19", "c")] == [{"n": 3}, {"n": -19}, None]
    assert len(parsed) == 20 + 20 + 2, "each reads the lines of the other, once"
    (tmp_path / "log.jsonl").write_bytes(b'{"key": "c", "n": 5}\n')
    with log:
        assert [log.get(key) for key in ("a3", "c")] == [None, {"n": 5}]


def test_the_last_record_of_each_of_many_keys_is_found(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(log_module.os, "fsync", lambda handle: None)
    log = RecordLog(tmp_path / "log.jsonl")
    with log:
        for number in range(15_000):
            log.add(f"key {number % 11_000}", {"n": number})
        last = [number + 11_000 if number < 4_000 else number for number in range(11_000)]
        assert [log.get(f"key {number}")["n"] for number in range(11_000)] == last
    with RecordLog(tmp_path / "log.jsonl") as again:
        assert [again.get(f"key {number}")["n"] for number in range(0, 11_000, 7)] == last[::7]
        assert again.get("key 11000") is None


def test_keys_of_one_digest_are_asked_for_again_not_mixed_up(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(log_module, "_digest", lambda key: 7)
    found, server = ask(echo, tmp_path / "log.jsonl", ["a1", "b1"])
    assert found == ["A1", "B1"]
    found, server = ask(echo, tmp_path / "log.jsonl", ["a1", "b1"])
    assert (found, len(server.seen)) == (["A1", "B1"], 1)
