"""Programs that judge pairs: their answers, and how often they are right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from label_world import counts_of, oracle, relevant, source, world

from foils import label
from foils.labelling.doors import Labelled, LabelSheet, Pair, ask_program, judged_by, pairs_of
from foils.llm import RelevanceQuestions
from foils.rating import PointwiseJudge
from foils.runtime.errors import FormatError, InputError
from llm_server import Reply, language_model, serving

PAIRS = [Pair("a b", "a b c", "a b"), Pair("a b", "a b", "c d"), Pair("a b", "", "a b")]


class Rule:
    """Judges rightly but for relevant documents of some subjects; counts what it is asked."""

    name, fingerprint, antisymmetric = "rule", "rule-1", True

    def __init__(self, misses: tuple[int, ...] = ()) -> None:
        self.misses, self.asked = misses, 0

    def judge(self, candidates: Any, pairs: Any) -> Any:
        self.asked += len(pairs)
        texts = candidates.texts(pairs.first)
        queries = [candidates.queries[row].rsplit(" ", 1)[1] for row in candidates.query_of(pairs.first)]
        good = [query == text.rsplit(" ", 1)[1] for query, text in zip(queries, texts, strict=True)]
        missed = [int(query) in self.misses for query in queries]
        return np.where(np.logical_and(good, np.logical_not(missed)), 0.7, 0.2)


def test_a_language_model_is_asked_about_each_pair_by_itself(tmp_path: Path) -> None:
    def answer(number: int, body: dict[str, Any]) -> Reply:
        prompt = body["messages"][-1]["content"]
        if "c d" in prompt:
            return Reply('<think>{"relevance": 0.9}</think> {"relevance": 0.49}')
        return Reply("perhaps" if number == 0 else 'I say {"relevance": 0.5}')

    with serving(answer) as server:
        client = language_model(server, concurrency=1)
        judge = PointwiseJudge(RelevanceQuestions(client, tmp_path / "log"))
        assert judged_by(judge, PAIRS) == [True, False, True]
        seen = len(server.seen)
        again = PointwiseJudge(RelevanceQuestions(client, tmp_path / "log"))
        assert judged_by(again, PAIRS) == [True, False, True], "answers are kept"
        assert len(server.seen) == seen
        (tmp_path / "own.txt").write_text("{query} ? {document}")
        own = PointwiseJudge(RelevanceQuestions(client, tmp_path / "log", tmp_path / "own.txt"))
        assert judged_by(own, PAIRS[1:2]) == [False]
        assert "Answer in JSON" in json.dumps(server.seen[-1]), "the form is explained"
    (tmp_path / "own.txt").write_text("{query} {positive}")
    with pytest.raises(FormatError, match="unknown slots positive"):
        RelevanceQuestions(client, tmp_path / "log", tmp_path / "own.txt")


@pytest.mark.parametrize("ending", ["tsv", "parquet"])
def test_texts_that_are_in_no_collection_are_labelled_too(tmp_path: Path, ending: str) -> None:
    sources = {"a": source("a", 1), "llm": source("llm", 2, text=lambda query, row: f"a text\n of subject {row % 30}")}
    path, asked = tmp_path / f"labels.{ending}", []

    def answer(query: str, positive: str, document: str) -> bool:
        asked.append(document)
        return oracle(query, positive, document)

    label(world(), sources, n=30, output=path, ask=answer)
    again = label(world(), sources, n=50, output=path, ask=answer)
    assert len(asked) == 50, "no pair is asked about twice"
    assert sum(document.startswith("a text") for document in asked) > 10
    true = {name: np.mean([relevant(*divmod_of(key)) for key in keys_of(again, name)]) for name in sources}
    for share in again.shares:
        assert share.share.low <= true[share.source] <= share.share.high


def keys_of(labelled: Labelled, name: str) -> list[str]:
    return [labelled.universe.keys[row] for row in labelled.universe.members[name]]


def test_answers_about_known_pairs() -> None:
    collection, rule = world(), Rule(misses=(1, 3))

    def counts(pairs: int) -> tuple[tuple[int, int], tuple[int, int]]:
        pool = pairs_of({"a": source("a", 1)})
        sheet = LabelSheet.of(None, collection, pool, pool.draw(1))
        ask_program(rule, "judge:rule", sheet, collection.queries["query_id"], checks=pairs, seed=0)
        labels = sheet.labels()
        assert counts_of(labels, "judge:rule")["judged"] == 1, "the others are no labels of negatives"
        return labels.checks("judge:rule")

    positives, others = counts(100)
    assert positives == (13, 15), "queries of odd numbers have a second positive to compare with the first"
    assert 26 <= others[1] <= 30
    assert others[0] >= others[1] - 3, "what is drawn may be relevant and not labelled"
    assert counts(5)[0][1] == 5


def test_people_and_a_program_have_a_share_each(tmp_path: Path) -> None:
    collection, sources = world(), {"a": source("a", 1)}
    path = tmp_path / "labels.tsv"
    label(collection, sources, n=60, output=path, ask=oracle)
    both = label(collection, sources, n=60, output=path, ask=Rule(misses=(2, 4, 6)))
    true = np.mean([relevant(*divmod_of(key)) for key in both.universe.keys])
    people, program = both.shares
    assert (people.judge, program.judge) == ("people", "judge:rule")
    assert people.share.low <= true <= people.share.high
    assert program.share.share < people.share.share, "it misses some"


def divmod_of(key: str) -> tuple[int, int]:
    query, *_, document = key.split("\0")
    return int(query[1:]), int(document.rsplit(" ", 1)[-1].lstrip("d"))


def test_a_program_is_asked_once(tmp_path: Path) -> None:
    collection, sources, rule = world(), {"a": source("a", 1)}, Rule()
    labelled = label(collection, sources, n=40, output=tmp_path / "labels.tsv", ask=rule)
    assert "takes its errors off" in labelled.tables()[0].caption
    assert labelled.labels.checks("judge:rule")[1][1] > 20
    asked = rule.asked
    again = label(collection, sources, n=40, output=tmp_path / "labels.tsv", ask=rule)
    assert rule.asked == asked, "what it said of pairs whose truth is known is in the file"
    assert counts_of(again.labels, "judge:rule")["judged"] == 40
    bare = label(collection, sources, n=40, output=tmp_path / "other.tsv", ask=rule, checks=0)
    assert bare.labels.checks("judge:rule") == ((0, 0), (0, 0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"ask": "me"},
            "unknown judge 'me'; expected one of: bi-encoder, cross-encoder, llm",
        ),
        ({"ask": "llm"}, "no model; name one"),
        ({"ask": "cross-encoder"}, "cross-encoder needs its model"),
        (
            {"ask": oracle, "encoder": "y"},
            "encoder y: no effect with ask function; leave",
        ),
        ({"ask": oracle, "checks": 5}, "checks 5: no effect with ask function"),
        ({"ask": Rule(), "labeller": "anna"}, "labeller anna: no effect with ask Rule"),
        ({"ask": "llm:m", "max_length": 64}, "max_length 64: no effect"),
        ({"ask": oracle, "base_url": "http://x"}, "base_url http://x: no effect with ask function"),
        ({"ask": oracle, "labeller": "a:b"}, "labeller a:b: expected a person's name, without colon"),
        ({"ask": oracle, "output": "labels.xlsx"}, r"expected a name that ends in \.tsv"),
        ({"ask": lambda *_: "yes"}, "the function answered 'yes'; expected True, False, or None"),
    ],
)
def test_what_is_refused(tmp_path: Path, given: dict[str, Any], message: str) -> None:
    output = tmp_path / str(given.pop("output", "labels.tsv"))
    with pytest.raises(InputError, match=message):
        label(world(), {"a": source("a", 1)}, output=output, **given)
