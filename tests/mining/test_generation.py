"""Negatives from a language model: against a server on loopback that misbehaves in every way."""

from __future__ import annotations

import json

import pytest

from foils.data.negatives import Negatives
from foils.llm import Client, Sampling, Usage
from foils.mining.generation import first_prompt, generate_negatives
from foils.mining.generation_prompt import WritingSettings
from foils.runtime.errors import FailureError, InputError
from llm_server import Reply, serving

ONCE = WritingSettings(asks=1)


def texts(number: int, start: int = 0) -> list[str]:
    return [f"another passage number {at}" for at in range(start, start + number)]


def good(number: int, asked: dict) -> Reply:
    """Three passages that differ from prompt to prompt, the same for the same prompt."""
    tag = sum(map(ord, asked["messages"][0]["content"])) % 1000
    return Reply(json.dumps({"negatives": [f"passage {at} about {tag}" for at in range(3)]}))


def client(server, **settings) -> Client:
    return Client("m", server.url, **{"pause": 0.01, "timeout": 60.0, "retries": 3, **settings})


@pytest.fixture
def asked(small):
    """Mining by one server, whose answers change from call to call."""
    with serving(good) as server:

        def mined(answer, place, *, top=3, limit=None, writing=None, sampling=None, **settings):
            server.answer, server.seen, server.keys = answer, [], []
            more = {"top": top, "limit": limit, "writing": writing, "sampling": sampling}
            return generate_negatives(small, client(server, **settings), place, split="train", **more), server

        yield mined


def test_rows_are_texts_of_their_own(small, asked, tmp_path):
    found, server = asked(good, tmp_path)
    assert (found.queries, found.answered, found.failed, found.short) == (3, 3, {}, 0)
    assert found.usage == Usage(3, 21, 9)
    rows = found.table.to_pylist()
    assert [row["query_id"] for row in rows] == ["q1"] * 3 + ["q2"] * 3 + ["q3"] * 3
    assert [row["rank"] for row in rows] == [0, 1, 2] * 3
    assert {row["source"] for row in rows} == {"llm"}
    assert all(row["doc_id"].startswith("llm:") and row["text"] for row in rows)
    assert (found.rows_in(small)[1] == -1).all()
    assert server.seen[0]["response_format"]["json_schema"]["schema"]["required"] == ["negatives"]
    found.write(tmp_path / "llm.parquet")
    read = Negatives.read(tmp_path / "llm.parquet").table
    assert read.drop_columns("score").equals(found.table.drop_columns("score"))


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Reply(status=500, body=b"oops"), "status 500"),
        (Reply(None, refusal="I cannot"), "the model refused"),
        (Reply(""), "an empty answer"),
        (Reply("I would rather not."), "no list of texts"),
        (Reply(json.dumps({"negatives": ["", "  ", "how does a boat tack?"]})), "no usable negative"),
    ],
)
def test_a_failure_is_recorded_as_one_and_asked_for_again(asked, tmp_path, bad, reason):
    settings = {"concurrency": 1, "retries": 1, "limit": 1}
    found, _ = asked(lambda *_: bad, tmp_path, **settings)
    assert (found.answered, len(found)) == (0, 0)
    ((said, count),) = found.failed.items()
    assert reason in said
    assert count == 1
    again, server = asked(good, tmp_path, **settings)
    assert (again.answered, again.failed, len(server.seen)) == (1, {}, 1)


def test_missing_negatives_are_asked_for_again_and_named(small, asked, tmp_path):
    replies = [
        ["one passage", "One  passage!", small.document_texts([0])[0]],
        ["how does a boat tack", "second passage"],
        ["third passage", "fourth passage"],
    ]
    found, server = asked(
        lambda number, _: Reply(json.dumps({"negatives": replies[number]})), tmp_path, concurrency=1, limit=1
    )
    assert found.table["text"].to_pylist() == ["one passage", "second passage", "third passage"]
    assert found.turned_away == {
        "repeats another": 1, "equals a positive": 1, "equals the query": 1, "more than asked for": 1
    }  # fmt: skip
    prompts = [request["messages"][0]["content"] for request in server.seen]
    assert "Write 3 other" in prompts[0]
    assert "Write 2 other" in prompts[1]
    assert "- one passage" in prompts[1]
    assert [request["seed"] for request in server.seen] == [0, 1, 2]
    schemas = [request["response_format"]["json_schema"]["schema"] for request in server.seen]
    assert [each["properties"]["negatives"]["minItems"] for each in schemas] == [3, 2, 1]


def test_a_short_record_is_told_and_kept(asked, tmp_path):
    answer = lambda *_: Reply(json.dumps({"negatives": ["the only one"]}))  # noqa: E731
    found, server = asked(answer, tmp_path, limit=1)
    assert (found.answered, found.short, len(server.seen)) == (1, 1, 3)
    _, server = asked(answer, tmp_path, limit=1)
    assert len(server.seen) == 0


def test_every_positive_of_the_query_counts(small, asked, tmp_path):
    second = small.document_texts([2])[0]  # q1's other positive
    answer = lambda *_: Reply(json.dumps({"negatives": [second, "x y", second + " indeed"]}))  # noqa: E731
    found, _ = asked(answer, tmp_path, limit=1, writing=ONCE)
    assert found.turned_away == {"equals a positive": 1}
    assert found.rejected() == {"near-duplicate of a positive": 1}


def test_the_order_is_the_splits(asked, tmp_path):
    def answer(number, request):
        reply = good(number, request)
        reply.stall = 0.3 if number == 0 else 0.05
        return reply

    one, _ = asked(answer, tmp_path / "a", concurrency=3)
    two, _ = asked(good, tmp_path / "b", concurrency=1)
    assert one.table.drop_columns("score").equals(two.table.drop_columns("score"))


@pytest.mark.parametrize("killed", range(4))
@pytest.mark.parametrize("torn", [False, True])
def test_a_stopped_run_asks_for_what_is_missing_and_ends_with_the_same_bytes(asked, tmp_path, killed, torn):
    def answer(number, request):
        return Reply(hang_up=True) if number == killed else good(number, request)

    settings = {"concurrency": 1, "retries": 0, "patience": 1, "writing": ONCE}
    whole, _ = asked(good, tmp_path / "w", **settings)
    whole.write(tmp_path / "a.parquet")
    if killed < 3:
        with pytest.raises(FailureError, match="1 records in a row"):
            asked(answer, tmp_path / "b", **settings)
    log = next((tmp_path / "b").glob("*.jsonl"), None)
    if torn and log is not None:
        log.write_bytes(log.read_bytes() + b'{"key": "half a li')
    found, server = asked(good, tmp_path / "b", **settings)
    assert len(server.seen) == (3 - killed if killed < 3 else 3)
    found.write(tmp_path / "b.parquet")
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


def test_other_settings_are_other_records(asked, tmp_path):
    asked(good, tmp_path)
    for other in ({"sampling": Sampling(0.1)}, {"writing": WritingSettings(domain="sailing")}, {"top": 2}):
        _, server = asked(good, tmp_path, **other)
        assert len(server.seen) >= 3
    assert len(list(tmp_path.glob("*.jsonl"))) == 4


def test_each_server_and_schema_mode_answers_for_itself(small, tmp_path):
    says = [lambda *_, at=at: Reply(json.dumps({"negatives": [f"a passage by server {at}"]})) for at in range(2)]
    one_each = {"top": 1, "writing": ONCE, "limit": 1}
    with serving(says[0]) as one, serving(says[1]) as two:
        for server, more in ((one, {}), (two, {}), (one, {"structured": False})):
            mined = generate_negatives(small, client(server, **more), tmp_path, split="train", **one_each)
            assert mined.table["text"].to_pylist() == [f"a passage by server {int(server is two)}"]
        assert ["response_format" in request for request in one.seen] == [True, False]
        assert len(two.seen) == 1


def test_the_key_goes_into_no_file(asked, tmp_path, monkeypatch, caplog):
    secret = "sk-very-secret-123"
    monkeypatch.setenv("MY_KEY", secret)
    caplog.set_level("DEBUG", logger="foils")
    echo = Reply(status=422, body=json.dumps({"error": {"message": f"key {secret} is odd"}}).encode())
    found, server = asked(lambda *_: echo, tmp_path, key_variable="MY_KEY", retries=0)
    assert server.keys[0] == f"Bearer {secret}"
    refused = Reply(status=401, body=json.dumps({"error": {"message": f"bad key {secret}"}}).encode())
    with pytest.raises(InputError, match="MY_KEY") as caught:
        asked(lambda *_: refused, tmp_path, key_variable="MY_KEY")
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()).decode()
    for said in (written, str(caught.value), repr(caught.value.__cause__), str(found), caplog.text):
        assert secret not in said


def test_limit_and_dry_run(small, asked, tmp_path):
    found, server = asked(good, tmp_path, limit=2)
    assert (found.queries, len(server.seen)) == (2, 2)
    said = first_prompt(small, WritingSettings(), split="train", top=3)
    assert said in [request["messages"][0]["content"] for request in server.seen]
    assert "how does a boat tack" in said
    with pytest.raises(InputError, match="limit 0"):
        asked(good, tmp_path, limit=0)


def test_settings_reach_the_server(asked, tmp_path):
    sampling = Sampling(temperature=0.25, seed=11, most_tokens=99)
    _, server = asked(good, tmp_path, sampling=sampling, limit=1)
    assert (server.seen[0]["temperature"], server.seen[0]["seed"], server.seen[0]["max_tokens"]) == (0.25, 11, 99)
    assert server.seen[0]["model"] == "m"


def test_refused_settings(asked, tmp_path):
    with pytest.raises(InputError, match="at least 1"):
        asked(good, tmp_path, top=0)
    with pytest.raises(InputError, match="at least 1"):
        WritingSettings(asks=0)
