"""Asking a server on loopback that misbehaves in every way."""

import asyncio
import json
import time
from tempfile import TemporaryDirectory

import pytest

from foils.llm import AnswerStore, LLMSettings, NoAnswerError, Request, Usage, ask_missing
from foils.llm.asking import parsed_price
from foils.runtime.errors import FailureError, InputError
from llm_server import Reply, hurried, language_model, serving
from refusals import refused

SCHEMA = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}
GOOD = Reply("yes")
OF_PATIENCE = ("pause", "timeout", "retries", "patience")


async def serve(session, record: str):
    text = failure = None
    try:
        text = await session.answer(Request(record, 5, schema=SCHEMA))
    except NoAnswerError as error:
        failure = str(error)
    return {"text": text, "failure": failure, **session.usage.as_record()}


def good(number: int, asked: dict) -> Reply:
    return GOOD


def asked(llm, records, serve=serve):
    """What each record came to; nothing of it is kept."""
    with TemporaryDirectory() as folder:
        named = {record: record for record in records}
        return ask_missing(llm, AnswerStore(folder), named, serve, count=lambda *_: None, task="", unit="")


def ask(answer, records, *, serve=serve, **settings):
    """What each record came to, and the server."""
    patience = {name: settings.pop(name) for name in OF_PATIENCE if name in settings}
    with serving(answer) as server, hurried(**patience):
        return asked(language_model(server, **settings), records, serve), server


def test_every_record_is_served_and_counted():
    found, server = ask(good, ["a", "b", "c"])
    used = Usage(1, 7, 3).as_record()
    assert found == {record: {"text": "yes", "failure": None, **used} for record in "abc"}
    assert sorted(request["messages"][0]["content"] for request in server.seen) == ["a", "b", "c"]
    assert ask(good, [])[0] == {}


@pytest.mark.parametrize(
    "bad",
    [
        Reply(status=429, body=b"{}", headers={"Retry-After": "0.01"}),
        Reply(status=500, body=b"oops"),
        Reply(hang_up=True),
        Reply(stall=3.0, content="{}"),
        Reply(drip=0.05, content="a drip at a time"),
        Reply(body=b"<html>not JSON</html>"),
    ],
    ids=["429", "500", "hang up", "stall", "drip", "no JSON"],
)
def test_what_may_pass_is_asked_again(bad):
    slow = bad.stall or bad.drip
    found, server = ask(lambda number, _: bad if number < 2 else GOOD, ["a"], timeout=1.0 if slow else 60.0)
    assert (found["a"]["text"], len(server.seen)) == ("yes", 3)
    assert found["a"]["requests"] in (3, 4), "on a connection that was just hung up, one may fail unseen"


@pytest.mark.parametrize(
    ("bad", "reason", "requests"),
    [
        (Reply(status=500, body=b"oops"), "status 500", 2),
        (Reply(status=402, body=b'{"error": {"message": "no money"}}'), "status 402: no money", 1),
        (Reply("half an", finish="length"), "an answer that was cut off; allow it more tokens", 1),
        (Reply("<think>1</think>a<think>so, 3"), "thoughts without an end", 1),
        (Reply(status=400, body=b"{}"), "status 400", 2),
        (Reply(hang_up=True), "no connection", 2),
        (Reply(stall=0.5, content="{}"), "no whole answer in 0.2 s", 2),
        (Reply(None, refusal="I cannot"), "the model refused", 1),
        (Reply(""), "an empty answer (finish reason stop)", 1),
        (Reply(body=b'{"choices": []}'), "an answer without choices", 1),
    ],
)
def test_what_cannot_pass_is_a_failure_with_its_reason(bad, reason, requests):
    found, _ = ask(lambda *_: bad, ["a"], timeout=0.2 if bad.stall else 60.0, retries=1)
    assert (found["a"]["text"], found["a"]["failure"], found["a"]["requests"]) == (None, reason, requests)


def test_the_pause_is_the_servers_or_grows():
    wait = Reply(status=429, body=b"{}", headers={"Retry-After": "0.3"})
    start = time.monotonic()
    ask(lambda number, _: wait if number < 1 else GOOD, ["a"], pause=0.0)
    assert time.monotonic() - start > 0.3
    start = time.monotonic()
    ask(lambda number, _: Reply(status=500, body=b"") if number < 2 else GOOD, ["a"], pause=0.2)
    assert time.monotonic() - start > 0.2 + 0.4


def test_a_schema_is_asked_for_unless_the_server_knows_none():
    _, server = ask(good, ["a"])
    shape = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}}
    assert server.seen[0]["response_format"] == shape

    for no in (Reply(status=400, body=b"{}"), Reply(status=422, body=b"{}")):
        found, server = ask(
            lambda _, asked, no=no: no if "response_format" in asked else GOOD, ["a", "b"], concurrency=1
        )
        assert [served["text"] for served in found.values()] == ["yes", "yes"]
        assert ["response_format" in request for request in server.seen] == [True, False, False]

    async def plain(session, record):
        return {"text": await session.answer(Request(record)), "failure": None}

    _, server = ask(good, ["a"], serve=plain)
    assert "response_format" not in server.seen[0]


@pytest.mark.parametrize(("unknown", "status"), [(("seed",), 400), (("max_tokens", "temperature", "seed"), 422)])
def test_what_a_server_does_not_know_is_left_out(unknown, status):
    """Some refuse a seed or a temperature; some want max_completion_tokens."""

    def answer(number, request):
        for name in unknown:
            if name in request:
                reason = {"error": {"message": f"Unsupported parameter: '{name}' is not supported"}}
                return Reply(status=status, body=json.dumps(reason).encode())
        return GOOD

    async def asks(session, record):
        return {"text": await session.answer(Request(record, 11, schema=SCHEMA)), "failure": None}

    found, server = ask(answer, ["a", "b"], serve=asks, concurrency=1, llm_temperature=0.5, max_tokens=9)
    first = server.seen[0]
    assert (first["model"], first["temperature"], first["seed"], first["max_tokens"]) == ("m", 0.5, 11, 9)
    assert [served["text"] for served in found.values()] == ["yes", "yes"]
    assert len(server.seen) == len(unknown) + 2, "the second record is asked without at once"
    sent = server.seen[-1]
    assert not set(unknown) & set(sent)
    assert ("max_completion_tokens" in sent) == ("max_tokens" in unknown)
    assert "response_format" in sent


def test_the_key_is_sent_and_never_told(monkeypatch):
    secret = "sk-very-secret-123"
    monkeypatch.setenv("MY_KEY", secret)
    found, server = ask(good, ["a"], key_variable="MY_KEY")
    assert server.keys == [f"Bearer {secret}"]
    denied = Reply(status=401, body=json.dumps({"error": {"message": f"bad key {secret}"}}).encode())
    with pytest.raises(InputError, match="MY_KEY") as caught:
        ask(lambda *_: denied, ["a"], key_variable="MY_KEY")
    echo = Reply(json.dumps({"error": secret}), status=422)
    found, _ = ask(lambda *_: echo, ["a"], key_variable="MY_KEY")
    for said in (str(caught.value), repr(caught.value.__cause__), str(found), found["a"]["failure"]):
        assert secret not in said
    for before in ("x" * 190, "x" * (199 - len(secret))):  # the message ends inside the key, or just behind it
        cut = Reply(status=402, body=json.dumps({"error": {"message": f"{before} {secret} and more"}}).encode())
        failure = ask(lambda *_, cut=cut: cut, ["a"], key_variable="MY_KEY")[0]["a"]["failure"]
        assert "sk-" not in failure
    monkeypatch.setenv("MY_KEY", "stop")  # a word of the reason itself
    found, _ = ask(lambda *_: Reply(""), ["a"], key_variable="MY_KEY")
    assert found["a"]["failure"] == "an empty answer (finish reason ***)"
    assert language_model("http://me:word@host:1/v1").describe() == {"model": "m", "server": "http://host:1/v1"}
    assert language_model().describe() == {"model": "m", "server": None}


def test_a_servers_words_cannot_move_the_cursor():
    """What a terminal would take for orders, in a status, a finish reason and the last message of a run."""
    evil = "\x1b[2J\x1b]0;title\x07\u202egood\r\nnews\x9b1m"
    status = Reply(status=402, body=json.dumps({"error": {"message": evil}}).encode())
    for reply in (status, Reply("", finish=evil)):
        failure = ask(lambda *_, reply=reply: reply, ["a"])[0]["a"]["failure"]
        assert failure.isprintable()
        assert "good" in failure
        with pytest.raises(FailureError) as caught:
            ask(lambda *_, reply=reply: reply, ["a"], patience=1)
        assert str(caught.value).isprintable()


@pytest.mark.parametrize("key", ["sk-one\nsk-two", "schl\u00fcssel", "sk\x00"])
def test_a_key_that_no_request_can_carry_is_refused(monkeypatch, key):
    if "\x00" not in key:  # no environment holds one
        monkeypatch.setenv("MY_KEY", key)
        refused("the key in MY_KEY holds", ask, good, ["a"], key_variable="MY_KEY")
    monkeypatch.setenv("MY_KEY", "sk-one\n")
    assert ask(good, ["a"], key_variable="MY_KEY")[1].keys == ["Bearer sk-one"]


def test_the_identity_is_of_what_answers_and_of_nothing_else(monkeypatch):
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    here = language_model("http://host:1/v1")
    how = {"key_variable": "K", "concurrency": 2}
    assert language_model("http://me:word@HOST:1/v1/", **how).identity == here.identity
    others = [
        language_model("http://host:1/v1", "n"), language_model("http://other:1/v1"), language_model("https://host:1/v1"),
        language_model("http://host:1/v2"), language_model(),
    ]  # fmt: skip
    assert language_model("http://host:2/v1").identity == here.identity, "a server that is started at another port"
    assert len({client.identity for client in [here, *others]}) == len(others) + 1
    monkeypatch.setenv("OPENAI_BASE_URL", "http://host:1/v1")
    assert language_model().identity == here.identity, "where the openai package looks for the address"
    assert language_model().describe() == here.describe() == {"model": "m", "server": "http://host:1/v1"}


def test_an_unknown_model_and_a_dead_server_end_the_run():
    refused("does not know the model 'm'", ask, lambda *_: Reply(status=404, body=b"{}"), ["a"])
    broken = Reply(status=500, body=b"")
    with pytest.raises(FailureError, match=r"2 records in a row failed \(last: status 500\) at http://127"):
        ask(lambda *_: broken, list("abc"), pause=0.0, retries=1, patience=2, concurrency=1)


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:{port}/v1", "http://localhost:{port}/v1", "http://no.invalid/v1"]
)
def test_a_server_that_nothing_connects_to_is_said_at_once(address):
    with serving(good) as server:
        url = address.format(port=server.server_port)
    with pytest.raises(FailureError, match=r"no connection to http://[^ ]+ .*base_url"):
        asked(language_model(url), "abc")


def test_a_server_that_answered_before_may_be_away_for_a_while(monkeypatch):
    """Its address is right: a connection that is refused later is asked for again."""
    with serving(good) as server:

        async def away_once(session, record):
            if record == "b":
                server.shutdown()
                server.server_close()
            return await serve(session, record)

        with hurried(retries=1):
            found = asked(language_model(server, concurrency=1), "ab", away_once)
    assert (found["a"]["text"], found["b"]["failure"]) == ("yes", "no connection")


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
@pytest.mark.parametrize("status", [301, 307, 308])
def test_a_redirect_is_refused(host, status):
    with serving(good) as other:
        elsewhere = f"http://{host}:{other.server_port}/v1/chat/completions"
        moved = Reply(status=status, body=b"{}", headers={"Location": elsewhere})
        with pytest.raises(InputError, match=f"redirects to http://{host}:{other.server_port}"):
            ask(lambda *_: moved, ["a"])
        assert other.seen == []


WHOLE = {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]}
SHAPES = {
    "a null message": {"choices": [{"message": None}]},
    "an empty choice": {"choices": [{}]},
    "a choice of null": {"choices": [None]},
    "choices by name": {"choices": {"0": {}}},
    "choices as text": {"choices": "yes"},
    "usage of strings": {**WHOLE, "usage": {"prompt_tokens": "7", "completion_tokens": "3"}},
    "usage of fractions": {**WHOLE, "usage": {"prompt_tokens": 7.5}},
    "negative usage": {**WHOLE, "usage": {"prompt_tokens": -7, "completion_tokens": 3}},
    "a content of numbers": {"choices": [{"message": {"content": 7}}]},
    "a message that is a text": {"choices": [{"message": "yes"}]},
    "a list": [],
    "a text": "yes",
    "null": None,
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("first_token", [False, True])
def test_a_completion_of_another_shape_is_a_failed_record(shape, first_token):
    async def asks(session, record):
        try:
            return {"text": await session.answer(Request(record, first_token=first_token)), "failure": None}
        except NoAnswerError as error:
            return {"text": None, "failure": str(error)}

    found, _ = ask(lambda *_: Reply(body=json.dumps(shape).encode()), ["a"], serve=asks)
    assert (found["a"]["text"], bool(found["a"]["failure"])) == (None, True)


def test_nesting_without_end_is_a_failed_record():
    found, _ = ask(lambda *_: Reply(body=b'{"choices":' + b"[" * 200_000), ["a"], retries=0)
    assert found["a"]["failure"] == "an answer that is no completion (RecursionError)"


def test_usage_of_null_and_content_in_parts_are_read():
    parts = [{"type": "thinking", "thinking": []}, {"type": "text", "text": "ye"}, {"type": "text", "text": "s"}]
    body = json.dumps({"choices": [{"message": {"content": parts}}], "usage": None}).encode()
    assert ask(lambda *_: Reply(body=body), ["a"])[0]["a"]["text"] == "yes"


def test_patience_counts_failures_in_a_row():
    def answer(number, request):
        return Reply(status=402, body=b"{}") if request["messages"][0]["content"] == "bad" else GOOD

    mixed = [f"{at}" if at % 2 else "bad" for at in range(8)]
    found, _ = ask(answer, mixed, concurrency=1, patience=2)
    assert len(found) == 5  # four others, and "bad"


def test_it_works_inside_a_running_loop():
    async def inside():
        return ask(good, ["a"])[0]

    assert asyncio.run(inside())["a"]["text"] == "yes"


def test_refused_settings():
    refused("at least", language_model, concurrency=0)
    for address in ("http://localhost:99999/v1", "http://[::1/v1", "localhost:8000/v1", "ftp://host/v1", "http:///v1"):
        refused("no address", language_model(address).check_askable)


def test_answers_are_kept_by_collection_and_a_model_is_named(small):
    assert small.digest[:16] in LLMSettings().folder(small).parts
    with pytest.raises(InputError, match="no model"):
        LLMSettings().check_askable()


def test_prices():
    assert parsed_price("0.15,0.60") == (0.15, 0.6)
    for bad in ("cheap", "1", "1,2,3"):
        with pytest.raises(InputError, match="two numbers"):
            parsed_price(bad)
    records = [Usage(1, 1_500_000, 3).as_record(), Usage(2, 500_000, 999_997).as_record()]
    usage = Usage.total(records, (1.0, 2.0))
    assert usage.rows()[-1] == ("cost", "4.00")
    assert len(Usage.total(records).rows()) == 3
    assert usage.to_json() == {"requests": 3, "tokens": [2_000_000, 1_000_000], "cost": 4.0}
