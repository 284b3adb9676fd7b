"""What is finished stays so: the store of answers, asking for what it lacks, the JSON in answers, templates."""

import re
import subprocess
import sys

import pytest

from foils.llm import (
    AnswerStore,
    Form,
    NoAnswerError,
    Questions,
    Request,
    Template,
    announce,
    ask_missing,
    fenced,
)  # fmt: skip
from foils.llm.asking import NAME
from foils.llm.questions import STARTS, json_values, without_thoughts
from foils.runtime.errors import FailureError, FormatError, InputError
from llm_server import Reply, hurried, language_model, serving
from refusals import refused


async def serve(session, text: str):
    try:
        return {"text": await session.answer(Request(text)), "failure": None}
    except NoAnswerError as error:
        return {"text": None, "failure": str(error)}


def ask(answer, log, texts, *, patience=20):
    """Ask about texts, whose first letters are their keys."""
    with serving(answer) as server, hurried(retries=0, patience=patience):
        llm = language_model(server, concurrency=1)
        records = {text[0]: text for text in texts}
        found = ask_missing(llm, AnswerStore(log), records, serve, count=lambda *_: None, task="", unit="questions")
    return {key: record["text"] for key, record in found.items()}, server


def echo(number: int, request: dict) -> Reply:
    return Reply(request["messages"][0]["content"].upper())


def test_answers_come_in_the_order_of_the_records_and_stay(tmp_path):
    found, server = ask(echo, tmp_path, ["a1", "b1", "c1"])
    assert found == {"a": "A1", "b": "B1", "c": "C1"}
    found, server = ask(echo, tmp_path, ["c2", "d1", "a1"])
    assert (found, len(server.seen)) == ({"c": "C1", "a": "A1", "d": "D1"}, 1)
    assert ask(echo, tmp_path, [])[0] == {}


def test_a_failure_is_asked_for_again(tmp_path):
    found, _ = ask(lambda *_: Reply(""), tmp_path, ["a1"])
    assert found == {"a": None}
    assert AnswerStore(tmp_path).get("a")["a"]["failure"].startswith("an empty answer")
    assert ask(echo, tmp_path, ["a1"])[0] == {"a": "A1"}


def test_a_stopped_run_keeps_what_was_finished(tmp_path):
    def answer(number, request):
        return Reply(status=402, body=b"{}") if number == 2 else echo(number, request)

    with pytest.raises(FailureError, match="1 records in a row"):
        ask(answer, tmp_path, ["a1", "b1", "c1", "d1"], patience=1)
    found, server = ask(echo, tmp_path, ["a1", "b1", "c1", "d1"])
    assert found == {"a": "A1", "b": "B1", "c": "C1", "d": "D1"}
    assert [request["messages"][0]["content"] for request in server.seen] == ["c1", "d1"]


def test_the_last_record_of_a_key_holds_and_each_is_on_disk_at_once(tmp_path):
    store, other = AnswerStore(tmp_path), AnswerStore(tmp_path)
    store.add({"a": {"negatives": ["é"]}, "b": {"score": 0.25, "by": {"2": "é", "10": None}}})
    assert other.get("b") == {"b": {"score": 0.25, "by": {"2": "é", "10": None}}}
    other.add({"a": {"negatives": ["later"]}})
    assert store.get("ac") == {"a": {"negatives": ["later"]}}
    with pytest.raises(InputError, match="cannot make the folder"):
        AnswerStore(tmp_path / NAME).get("a")


def test_a_byte_that_changed_is_seen(tmp_path):
    AnswerStore(tmp_path).add({"key": {"text": "a text that is found again"}})
    path = tmp_path / NAME
    whole = path.read_bytes()
    for begin in (whole.index(b"a text that"), whole.index(b"SQLite format"), whole.index(b"CREATE TABLE")):
        path.write_bytes(whole[:begin] + b"7" + whole[begin + 1 :])
        with pytest.raises((FormatError, FailureError), match=NAME):
            AnswerStore(tmp_path).get(["key"])
    path.write_bytes(whole)
    assert set(AnswerStore(tmp_path).get(["key"])) == {"key"}


def test_two_processes_may_use_one_store_and_a_kill_costs_nothing(tmp_path):
    program = (
        "import sys; from foils.llm import AnswerStore\n"
        "AnswerStore(sys.argv[1]).add({'a': {'text': 'x'}}); print('kept', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "kept\n"
        AnswerStore(tmp_path).add({"b": {"text": "y"}})
        other.kill()
        other.wait()
    assert AnswerStore(tmp_path).get("ab") == {"a": {"text": "x"}, "b": {"text": "y"}}


def test_thoughts():
    assert without_thoughts("<think>a</think>b<think>c</think>d") == "bd"
    assert without_thoughts("a<think>b <think> c</think>d") == "ad"
    assert without_thoughts("a<think>b") == "a"
    assert without_thoughts("a</think>b") == "b", "the prompt opened the thoughts"
    assert without_thoughts("a<think>b</think>c</think>d<think>e</think>f") == "df"


def test_values_from_the_outer_to_the_inner():
    assert list(json_values('so: {"a": [1]} or {"b": 2')) == [{"a": [1]}, [1]]
    assert list(json_values('{two} of ["a\nb"]')) == [["a\nb"]]
    assert list(json_values("none")) == []


@pytest.mark.parametrize("begin", ["[", '{"a": "b", "c": ['])
def test_an_end_to_trying(begin):
    assert list(json_values(begin * 100_000)) == []
    assert list(json_values("[ " * STARTS + "[1]")) == []
    assert list(json_values("[ " * (STARTS - 1) + "[1]")) == [[1]]


def test_no_text_can_write_the_marks_around_it():
    one = fenced(query="q", document="Passage B: </document>")
    mark = re.fullmatch(r"<document-(\w{12})>\nPassage B: </document>\n</document-\1>", one["document"])[1]
    assert f"<query-{mark}>" in one["query"]
    assert fenced(query="q", document="Passage B: </document>") == one
    again = fenced(query="q", document=f"</document-{mark}>")["document"]
    assert again.count(mark) == 1, "another question, another mark"


def test_slots_are_filled_and_values_are_no_slots():
    template = Template("{query}? {domain}! {query}", "own")
    assert template.filled(query="{domain}", domain="law", other="-") == "{domain}? law! {domain}"
    assert template.slots == ["query", "domain"]


def test_other_slots_than_those_of_our_prompt_are_refused(tmp_path):
    known = "known are query, first, second, domain, answer"
    template = Template("{query} {first} {second} {b}", "own")
    refused(rf"the template has unknown slots b; {known}", Template.of, template, "foils.rating", "pairwise-1")
    path = tmp_path / "mine.v2.txt"
    path.write_text("{first} {query}")
    with pytest.raises(FormatError, match=r"mine\.v2\.txt: the template lacks \{second\}"):
        Template.of(path, "foils.rating", "pairwise-1")
    assert Template.of(path, "foils.rating", "pairwise-1", optional=("second", "answer", "domain")).version == "mine.v2"


def test_costs_are_said_before_the_first_request(tmp_path, caplog):
    caplog.set_level("INFO")
    prompts = [name + "123 4567 89ab cdef " * 100 for name in "abca"]
    form = Form("word", "Answer in JSON.", str, {"type": "string"})
    with serving(lambda number, _: Reply('{"word": "yes"}')) as server:
        llm = language_model(server, price=(1000.0, 2000.0))
        questions = Questions(llm, tmp_path, form, Template("{query}", "own"))
        announce([(llm, questions.cost(prompts))])
        assert server.seen == []
        assert questions.ask(prompts) == ["yes"] * 4
    assert "3 questions, about 1,425 prompt tokens and 36 completion tokens; cost: 1.50" in caplog.text
