"""A language model as judge: against a server on loopback that misbehaves, and with a position bias of its own."""

import json
import re
import sqlite3
from contextlib import closing

import numpy as np
import pytest
from scipy.special import expit

from foils.llm import AnswerStore, Purse, Template
from foils.rating import Candidates, ListJudge, LLMJudge, Pairs, QuestionSettings, all_pairs, ask, thurstone
from foils.rating.judges import FORMS, _named_first
from foils.runtime.errors import FailureError
from judging import letters
from llm_server import Reply, hurried, language_model, serving
from refusals import refused

UNREAD = 'an answer in which "preference" cannot be read'
SHOWN = re.compile(r"<first-\w+>\n(.*?)\n</first-.*<second-\w+>\n(.*?)\n</second-", re.DOTALL)


def shown(asked: dict) -> tuple[str, str]:
    return SHOWN.search(asked["messages"][0]["content"]).groups()


def says(value: float) -> Reply:
    return Reply(json.dumps({"preference": value}))


def honest(number: int, asked: dict, *, bias: float = 0.0) -> Reply:
    """σ of the difference of the numbers that the passages are, and a bias for A."""
    first, second = map(float, shown(asked))
    return says(round(float(np.clip(expit(first - second) + bias, 0, 1)), 6))


def records(folder) -> list[dict]:
    """What is kept of every question."""
    with closing(sqlite3.connect(AnswerStore(folder).path)) as connection:
        return [json.loads(record) for (record,) in connection.execute("SELECT record FROM answers")]


def judge(server, place, question=None, *, model="m", **settings) -> LLMJudge:
    return LLMJudge(language_model(server, model, **settings), place, question)


def test_both_orders_are_asked_and_the_position_bias_is_measured(tmp_path):
    candidates, pairs = letters((4, 3)), all_pairs([4, 3])
    with serving(lambda number, asked: honest(number, asked, bias=0.02)) as server:
        asked = judge(server, tmp_path)
        found = ask(asked, candidates, pairs)
    level = np.array([float(text) for text in candidates.texts(np.arange(7))])
    np.testing.assert_allclose(found.preference, expit(level[pairs.first] - level[pairs.second]), atol=1e-5)
    assert found.position_bias == pytest.approx(0.02, abs=1e-5)
    assert len(server.seen) == 2 * len(pairs)
    assert {shown(one) for one in server.seen} >= {("0.0", "1.0"), ("1.0", "0.0")}
    schema = server.seen[0]["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["preference"] == {"type": "number", "minimum": 0, "maximum": 1}
    # both queries are called differently, so that no question is another's; a question counts once
    assert (asked.questions.asked.requests, asked.questions.asked.prompt_tokens) == (18, 126)
    assert not asked.questions.asked.failures


FAILING = {
    "an error of the server": Reply(status=500),
    "no JSON": Reply("A is better"),
    "another key": Reply('{"score": 0.7}'),
    "out of range": says(1.5),
    "a truth value": Reply('{"preference": true}'),
    "no number": Reply('{"preference": NaN}'),
}


@pytest.mark.parametrize("bad", FAILING.values(), ids=FAILING)
def test_a_failure_is_a_missing_judgement_never_a_vote(tmp_path, bad):
    candidates, pairs = letters((3,)), all_pairs([3])

    def answer(number, asked):
        return bad if shown(asked) == ("1.0", "0.0") else honest(number, asked)

    with serving(answer) as server:
        asked = judge(server, tmp_path)
        found = ask(asked, candidates, pairs)
    np.testing.assert_array_equal(np.isnan(found.preference), [True, False, False])
    np.testing.assert_allclose(found.preference[1:], expit([-2.0, -1.0]), atol=1e-5)
    assert np.isfinite(found.forward[0])
    assert np.isnan(found.backward[0])
    assert sum(asked.questions.asked.failures.values()) == 1


def test_an_answer_that_cannot_be_read_is_asked_for_again_as_often_as_allowed(tmp_path):
    candidates, pairs = letters((2,)), Pairs([0, 2], [0], [1])

    def answer(number, asked):
        return Reply("hm") if asked["seed"] < unreadable else honest(number, asked)

    with serving(answer) as server:
        unreadable = 2
        assert np.isnan(judge(server, tmp_path / "a").judge(candidates, pairs)).all()
        assert [one["seed"] for one in server.seen] == [0, 1]
        unreadable = 1
        found = judge(server, tmp_path / "b").judge(candidates, pairs)
    np.testing.assert_allclose(found, expit(-1.0), atol=1e-5)
    ((failure, preference),) = ((each["failure"], each["preference"]) for each in records(tmp_path / "a"))
    assert (failure, preference) == (UNREAD, None)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('{"preference": 0.25}', 0.25),
        ('<think>{"preference": 0}</think> So: {"preference": 0.9}', 0.9),
        ('First {"preference": 0.2}, no: {"preference": 0.7}', 0.7),
        ('First {"preference": 0.2}, no: {"preference": 7}', 0.2),
        ('{"preference": 0.5', 0.5),
        ('{"preference": "0.83"}', 0.83),
        ('{"preference": ".83"}', 0.83),
        ('{"preference": .83}', 0.83),
        ("{'preference': 0.83}", 0.83),
        ("{'preference': '0.83', 'why': 'A, not B'}", 0.83),
        ("preference: 0.83", 0.83),
        ("**Preference** = .83.", 0.83),
        ('```json\n{"preference": 0.83}\n```', 0.83),
        ("0.83", 0.83),
        (" .83\n", 0.83),
        ("1", 1.0),
        ("'0.83'.", 0.83),
        ("83 %", 0.83),
        ('{"preference": "83%"}', 0.83),
        ("8.3e-1", 0.83),
        ("83.5", None),
        ("0,83", None),
        ("0.8-0.9", None),
        ('{"preference": 1.5}', None),
        ('{"preference": -0.5}', None),
        ("preference: A", None),
        ("0.83 or 0.38", None),
        ("A is better, 0.83", None),
        ("83", None),
        ('{"preference": null}', None),
        ("", None),
    ],
)
def test_answers_are_read_and_never_guessed(said, expected):
    assert FORMS["preference"].value(said) == expected


def test_texts_are_no_slots_and_are_cut_where_asked(tmp_path):
    template = Template("Q {query} A {first} B {second}", "own")
    questions = LLMJudge(language_model(), tmp_path, QuestionSettings(question=template, domain="law")).questions
    prompt = questions.prompt(query="{first} {domain}", first="{second} and", second="x" * 7000)
    bare = re.sub(r"</?(\w+)-\w+>\n?", "", prompt)
    assert bare.startswith("Q {first} {domain}\n A {second} and\n B " + "x" * 6000 + "\n\n")
    assert prompt.rstrip().endswith(FORMS["preference"].words)
    prompt = LLMJudge(language_model(), tmp_path, QuestionSettings(domain="law")).questions.prompt(
        query="q", first="a", second="b"
    )
    assert "{answer}" not in prompt
    assert "Field: law." in prompt


def test_everything_that_decides_an_answer_is_in_the_fingerprint(tmp_path):
    file = tmp_path / "mine-3.txt"
    file.write_text("{query} {first} {second} {answer}")
    named = LLMJudge(language_model(), tmp_path, QuestionSettings(question=file)).questions
    assert named.described["prompt"] == "mine-3"
    ways = [{"question": QuestionSettings(**each)} for each in (
        {}, {"question": file}, {"domain": "law"}, {"answer": "token"},
    )]  # fmt: skip
    address = "http://127.0.0.1:1/v1"
    prints = {LLMJudge(language_model(address), tmp_path, **way).fingerprint for way in ways}
    assert len(prints) == len(ways)
    models = [language_model(address, **each) for each in ({"llm_temperature": 1.0}, {"max_tokens": 9}, {"name": "n"})]
    models += [language_model("http://127.0.0.2:1/v1"), language_model()]
    assert len(prints | {LLMJudge(each, tmp_path).fingerprint for each in models}) == len(ways) + len(models)
    again = language_model("http://127.0.0.1:2/v1")
    assert LLMJudge(again, tmp_path).fingerprint in prints, "started at another port"


def test_answers_that_were_kept_before_are_found(tmp_path):
    """Regression value of our own: another fingerprint asks, and pays, for everything again."""
    assert LLMJudge(language_model("http://127.0.0.1/v1"), tmp_path).fingerprint == "74c2c23dc70fc2c75d0fdd1f27db3944"


def test_one_token_is_read_by_its_log_probabilities(tmp_path):
    """P(A) .54 and P(B) .18, spaces beside them, are P(A ≻ B) = .75."""

    def answer(number, asked):
        tokens = (
            {"A": 0.5, " A": 0.04, "B": 0.18, "The": 0.2} if shown(asked) == ("0.0", "1.0") else {"B": 0.9, "A": 0.1}
        )
        return Reply("A", tokens={token: float(np.log(p)) for token, p in tokens.items()})

    candidates, pairs = letters((2,)), Pairs([0, 2], [0], [1])
    with serving(answer) as server:
        found = ask(judge(server, tmp_path, QuestionSettings(answer="token")), candidates, pairs)
        assert found.forward[0] == pytest.approx(0.75)
        assert found.backward[0] == pytest.approx(0.1)
        for asked in server.seen:
            assert (asked["max_tokens"], asked["logprobs"], asked["top_logprobs"]) == (1, True, 20)
            assert "response_format" not in asked
            assert "one letter" in asked["messages"][0]["content"]
        server.seen = []
        ask(judge(server, tmp_path, QuestionSettings(answer="token")), candidates, pairs)
        assert not server.seen, "what was answered is kept"


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"A": 0.4, "You": 0.07, "The": 0.05, "B": 0.1}, 0.8),  # as SmolLM2-135M-Instruct answers
        ({"B": 0.3, "The": 0.29, "A": 0.1}, 0.25),
        ({" a": 0.3, "The": 0.2}, 1.0),
        ({"A": 0.28, "The": 0.4, "B": 0.28}, 0.5),
        ({"A": 0.2, "The": 0.21, "B": 0.2}, None),
        ({}, None),
    ],
)
def test_a_letter_counts_where_it_is_the_likeliest_token_or_both_are_likelier_than_not(tokens, expected):
    assert FORMS["token"].value(tokens) == (None if expected is None else pytest.approx(expected))


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply("A"), "an answer without log-probabilities"),
        (Reply("A", tokens={"The": -0.1, "A": -3.0, "B": -4.0}), UNREAD),
        (Reply("Aha", tokens={"Aha": -0.01}), UNREAD),
        (Reply("C", tokens={"C": -0.01, "(": -5.0}), UNREAD),
    ],
)
def test_a_token_that_is_neither_letter_is_no_answer(tmp_path, reply, why):
    candidates, pairs = letters((2,)), Pairs([0, 2], [0], [1])
    with serving(lambda number, asked: reply) as server:
        asked = judge(server, tmp_path, QuestionSettings(answer="token"))
        assert np.isnan(asked.judge(candidates, pairs)).all()
    assert dict(asked.questions.asked.failures) == {why: 1}


PASSAGE = re.compile(r"<passage-\d+-\w+>\n(.*?)\n</passage")


def orders(number: int, asked: dict, *, bias: float = 0.0) -> Reply:
    """The order of the numbers that the passages are; each counts less, by `bias`, the later it stands."""
    levels = np.array(PASSAGE.findall(asked["messages"][0]["content"]), float)
    seen = levels - bias * np.arange(len(levels))
    return Reply(json.dumps({"order": (np.argsort(-seen, kind="stable") + 1).tolist()}))


def listwise(server, place, **question) -> ListJudge:
    return ListJudge(language_model(server), place, QuestionSettings(answer="order", **question))


@pytest.mark.parametrize("sizes", [(4, 3), (20,), (47,)])
def test_the_order_of_a_perfect_judge_is_the_truth(tmp_path, sizes):
    candidates, pairs = letters(sizes), all_pairs(sizes)
    level = np.array([float(text) for text in candidates.texts(np.arange(sum(sizes)))])
    with serving(orders) as server:
        judge = listwise(server, tmp_path)
        expected = judge.cost(candidates, pairs.first, pairs.second).requests
        found = ask(judge, candidates, pairs)
        assert len(server.seen) == judge.questions.asked.requests <= expected  # equal prompts are asked once
        other = Candidates.of_lists(
            candidates.query_ids, candidates.queries,
            [[(f"other{at}", str(-level[at])) for at in range(start, end)]
             for start, end in zip(candidates.offsets[:-1], candidates.offsets[1:], strict=True)],
        )  # fmt: skip
        np.testing.assert_array_equal(ask(judge, other, pairs).preference, 1 - found.preference)
    np.testing.assert_array_equal(found.preference, level[pairs.first] > level[pairs.second])
    assert found.position_bias == 0


def test_a_bias_of_position_is_measured_and_cancels(tmp_path):
    """A document loses one and a half levels with each place: no pair comes out turned, and ratings order over 90 %."""
    candidates, pairs = letters((20, 20)), all_pairs([20, 20])
    with serving(lambda number, asked: orders(number, asked, bias=1.5)) as server:
        found = ask(listwise(server, tmp_path), candidates, pairs)
    truth = pairs.first > pairs.second  # levels ascend
    right = np.where(truth, found.preference, 1 - found.preference)
    assert right.min() >= 0.5
    assert right.mean() < 0.7
    assert found.position_bias > 0.3
    elo = thurstone(pairs, found.preference).elo
    assert ((elo[pairs.first] > elo[pairs.second]) == truth).mean() > 0.9


@pytest.mark.parametrize(
    ("said", "order"),
    [
        ('{"order": [2, 1, 3]}', "bac"),
        ('{"order": [2, 2, 9, 3]}', "bca"),  # what is left out comes last
        ('{"order": [2]}', None),
        ('{"order": "2 > 1 > 3"}', "bac"),
        ("[2] > [1] > [3]", "bac"),
        ("[2]>[1]>[3]\n", "bac"),
        ("The ranking is: [2] > [1] > [3].", "bac"),
        ("2 > 1 > 3", "bac"),
        ("[2] > [1] = [3]", "bac"),
        ('{"order": ["2", "1", "3"]}', "bac"),
        ('["2","1","3"]', "bac"),
        ('["[2]", "[1]", "[3]"]', "bac"),
        ("[2, 1, 3]", "bac"),
        ("2, 1, 3", "bac"),
        ("[2.0, 1.0, 3.0]", "bac"),
        ('{"order": [2, 1, 3]', "bac"),
        ("{'order': [2, 1, 3]}", "bac"),
        ("order: [2] > [1] > [3]", "bac"),
        ("['2', '1', '3']", "bac"),
        ("(2; 1; 3)", "bac"),
        ("2 1 3", "bac"),
        ("[2]\n[1]\n[3]", "bac"),
        ("Passage 2 > passage-1 > #3", "bac"),
        ("1. [2]\n2. [1]\n3. [3]", None),
        ("[2, 1, 3] or [1, 2, 3]", None),
        ("[2] > [1] > [3], or else [1] > [2] > [3]", None),
        ('{"order": [2.5, 1, 3]}', None),
        ('{"order": [{"id": 2}, {"id": 1}]}', None),
        ("2 and 1", None),
    ],
)
def test_an_order_that_names_half_of_the_passages_is_read(said, order):
    found = _named_first(list("abc"), FORMS["order"].value(said))
    assert found == (order and list(order))


def test_a_failed_order_is_no_vote_and_an_odd_number_of_orders_is_refused(tmp_path):
    candidates, pairs = letters((3,)), all_pairs([3])
    with serving(lambda number, asked: orders(number, asked) if number else Reply(status=500)) as server:
        asked = ListJudge(language_model(server, concurrency=1), tmp_path, QuestionSettings(answer="order"))
        found = ask(asked, candidates, pairs)
    np.testing.assert_array_equal(found.preference, [0, 0, 0])
    refused(
        "orders 3; expected an even", ListJudge, language_model(), tmp_path, QuestionSettings(answer="order", orders=3)
    )


def test_a_bound_of_costs_needs_prices(tmp_path):
    refused("max_cost 3.0 without a price", LLMJudge, language_model(max_cost=3), tmp_path)


def test_a_run_stops_at_its_cost_and_goes_on_with_more(tmp_path):
    candidates, pairs = letters((4,)), all_pairs([4])
    paid = {"price": (1e6, 0.0), "concurrency": 1}  # 7 for each answer
    with serving(honest) as server:
        refused("cost 21.00, more than", ask, judge(server, tmp_path, max_cost=20, **paid), candidates, pairs,
                error=FailureError)  # fmt: skip
        assert len(server.seen) == 3
        asked = judge(server, tmp_path, max_cost=84, **paid)
        assert np.isfinite(ask(asked, candidates, pairs).preference).all()
        assert len(server.seen) == 12


def usage_of(number: int, asked: dict) -> Reply:
    """An honest answer whose completion says 1,000 prompt tokens."""
    reply = json.loads(honest(number, asked).bytes())
    return Reply(body=json.dumps({**reply, "usage": {"prompt_tokens": 1000, "completion_tokens": 0}}).encode())


def test_two_judges_share_one_purse(tmp_path):
    """Each answer costs .01: together they stop at .30, though neither alone has cost so much."""
    candidates, pairs = letters((5,)), all_pairs([5])
    with serving(usage_of) as server:
        purse = Purse(0.3)
        paid = {"price": (10.0, 0.0), "concurrency": 1}
        judges = [
            LLMJudge(language_model(server, model, **paid), tmp_path, purse=purse) for model in ("one", "two", "three")
        ]
        ask(judges[0], candidates, pairs)
        with pytest.raises(FailureError, match=r"cost 0\.31, more than"):
            ask(judges[1], candidates, pairs)
        assert len(server.seen) == 31
        with pytest.raises(FailureError, match=r"cost 0\.3\d, more than"):
            ask(judges[2], candidates, pairs)
        assert len(server.seen) == 32


@pytest.mark.parametrize("apart", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("usage", [{"prompt_tokens": 5}, {"prompt_tokens": 5, "completion_tokens": 0}, None])
def test_answers_and_thoughts_whose_tokens_a_server_does_not_count_are_paid_for(tmp_path, usage, apart):
    candidates, pairs = letters((2,)), all_pairs([2])

    def answer(number, asked):
        reply = json.loads(honest(number, asked).bytes())
        reply["choices"][0]["message"][apart] = "well " * 400
        return Reply(body=json.dumps({**reply, "usage": usage}).encode())

    with serving(answer) as server:
        asked = judge(server, tmp_path, QuestionSettings(answer="thoughts"))
        assert np.isfinite(ask(asked, candidates, pairs).preference).all()
    assert asked.questions.asked.completion_tokens >= 2 * 500
    assert all("well well" in each["reasoning"] for each in records(tmp_path))


@pytest.mark.parametrize(
    "bad",
    [
        Reply(body=b"no completion"),
        Reply(stall=5.0),
        Reply(body=b'{"choices": [], "usage": {"prompt_tokens": -7, "completion_tokens": 3}}'),
    ],
    ids=["no completion", "too slow", "tokens below 0"],
)
def test_requests_that_brought_nothing_are_paid_for(tmp_path, bad):
    """Each failure costs its prompt: the bound stops a run of which no answer counts tokens."""
    candidates, pairs = letters((5,)), all_pairs([5])
    with serving(lambda *_: bad) as server, hurried(retries=0, timeout=0.5):
        bounded = judge(server, tmp_path, price=(1000.0, 0.0), max_cost=0.01, concurrency=1)
        with pytest.raises(FailureError, match="more than"):
            ask(bounded, candidates, pairs)
        assert len(server.seen) <= 2


@pytest.mark.parametrize("usage", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}])
def test_tokens_that_a_server_does_not_count_are_estimated(tmp_path, usage):
    candidates, pairs = letters((4,)), all_pairs([4])

    def answer(number, asked):
        reply = json.loads(honest(number, asked).bytes())
        return Reply(body=json.dumps({**reply, "usage": usage}).encode())

    with serving(answer) as server:
        asked = judge(server, tmp_path / "a", price=(1000.0, 1000.0))
        ask(asked, candidates, pairs)
        used = asked.questions.asked
        characters = sum(len(each["messages"][0]["content"]) for each in server.seen)
        assert used.prompt_tokens == pytest.approx(characters / 4, rel=0.01)
        assert (used.estimated, used.completion_tokens > 0) == (12, True)
        assert ("m: answers whose tokens are estimated", "12") in asked.questions.asked.rows("m")
        server.seen = []
        bounded = judge(server, tmp_path / "b", price=(1000.0, 1000.0), max_cost=0.01, concurrency=1)
        with pytest.raises(FailureError, match="more than"):
            ask(bounded, candidates, pairs)
        assert len(server.seen) == 1


def test_what_a_failure_cost_counts_when_it_is_asked_again(tmp_path):
    candidates, pairs = letters((2,)), all_pairs([2])
    with serving(lambda *_: Reply("hm")) as server:
        first = judge(server, tmp_path)
        ask(first, candidates, pairs)
        assert first.questions.asked.prompt_tokens == 4 * 7  # two orders, each asked twice
        server.answer = honest
        again = judge(server, tmp_path)
        ask(again, candidates, pairs)
        ask(again, candidates, pairs)
    assert again.questions.asked.prompt_tokens == 4 * 7 + 2 * 7, "each question is counted once"


def test_what_is_being_answered_when_the_bound_is_reached_is_kept(tmp_path):
    candidates, pairs = letters((5,)), all_pairs([5])
    with serving(usage_of) as server:
        asked = judge(server, tmp_path, price=(10.0, 0.0), max_cost=0.05, concurrency=4)
        with pytest.raises(FailureError, match="more than"):
            ask(asked, candidates, pairs)
        sent = len(server.seen)
    assert len(records(tmp_path)) == sent <= 5 + 1 + 4


@pytest.mark.parametrize("token", ["A", " A", "(A", "A.", "a", "▁A", "ĠA", "**A", '"A', "A)", "ĊA", "“A", "-A", "_A_"])
def test_one_letter_is_read_however_a_tokenizer_cuts_it(token):
    assert FORMS["token"].value({token: 0.9, "B": 0.1}) == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('{"reasoning": "B names 1 keel, A none.", "preference": 0.1}', 0.1),
        ("B names 2 keels, A none.\nPreference: 0.1", 0.1),
        ("B names 2 keels. I would say 0.1.", 0.1),
        ("<think>0.9?</think>So 0.1", 0.1),
        ("B names 2 keels, A none.", None),
        ("I would say 1/10", None),
        ("So 10 %.", 0.1),
        ("So 1e-1", 0.1),
        ("A: 0.9, B: 0.1", None),
        ("P(A) = 0.9 and P(B) = 0.1", None),
        ("between 0.1-0.2", None),
        ("0.1 or 0.2", None),
        ("-0.1", None),
    ],
)
def test_a_score_after_reasons_is_read_from_the_end(said, expected):
    assert FORMS["thoughts"].value(said) == expected


def test_reasons_are_asked_for_first_kept_and_counted(tmp_path):
    def thinks(number, asked):
        value = json.loads(honest(number, asked).content)["preference"]
        return Reply(json.dumps({"reasoning": f"A is {value:.2f}", "preference": value}))

    candidates, pairs = letters((3,)), all_pairs([3])
    with serving(thinks) as server:
        asked = judge(server, tmp_path, QuestionSettings(answer="thoughts"))
        found = ask(asked, candidates, pairs)
        schema = server.seen[0]["response_format"]["json_schema"]["schema"]
    np.testing.assert_allclose(found.preference, expit([-1.0, -2.0, -1.0]), atol=1e-5)
    assert list(schema["properties"]) == schema["required"] == ["reasoning", "preference"]
    assert all("A is 0." in each["reasoning"] for each in records(tmp_path))
    assert asked.cost(candidates, pairs.first, pairs.second).requests == 0
    other = judge(server, tmp_path / "other", QuestionSettings(answer="thoughts"))
    assert other.cost(candidates, pairs.first, pairs.second).completion_tokens > 1000


@pytest.mark.parametrize(("unread", "stops", "warns"), [(1, False, False), (3, False, True), (9, True, True)])
def test_answers_that_cannot_be_read_are_said_and_stop_a_run(tmp_path, caplog, unread, stops, warns):
    """Of 42 questions: 2 %, 7 %, 21 %; what came is shown, less the key."""
    candidates, pairs = letters((7,)), all_pairs([7])
    refused_prompts: set = set()

    def answer(number, asked):
        prompt = asked["messages"][0]["content"]
        if prompt in refused_prompts or len(refused_prompts) < unread:
            refused_prompts.add(prompt)
            return Reply("hm\x1b[2J")
        return honest(number, asked)

    with serving(answer) as server:
        asked = judge(server, tmp_path, concurrency=1)
        if stops:
            with pytest.raises(FailureError, match=r"9 of \d+ answers of m cannot be read"):
                ask(asked, candidates, pairs)
        else:
            ask(asked, candidates, pairs)
            assert ("cannot be read; the first of them: hm [2J" in caplog.text) == warns


def test_as_many_log_probabilities_are_asked_for_as_the_server_allows(tmp_path):
    def answer(number, asked):
        if asked["top_logprobs"] > 7:
            reason = {"error": {"message": "Requested sample logprobs of 20, which is greater than max allowed: 7"}}
            return Reply(status=400, body=json.dumps(reason).encode())
        return Reply("A", tokens={"A": -0.1, "B": -3.0})

    candidates, pairs = letters((2,)), all_pairs([2])
    with serving(answer) as server:
        found = ask(judge(server, tmp_path, QuestionSettings(answer="token"), concurrency=1), candidates, pairs)
        assert np.isfinite(found.preference).all()
        assert [each["top_logprobs"] for each in server.seen] == [20, 7, 20, 7]
