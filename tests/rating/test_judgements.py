"""Judges, their agreement, and their answers kept."""

import numpy as np
import pytest
from scipy.special import expit, logit

from foils.data import Collection
from foils.encode import VectorStore
from foils.llm import AnswerStore
from foils.mining.rules import TextPairs
from foils.mining.scorers import CrossEncoderScorer
from foils.rating import (
    BiEncoderJudge,
    Candidates,
    CrossEncoderJudge,
    Judgements,
    Pairs,
    all_pairs,
    ask,
    combined,
    session,
)  # fmt: skip
from foils.runtime.errors import FailureError, InputError
from judging import LetterEncoder, NumberJudge, letters
from refusals import refused


def test_both_orders_are_asked_and_averaged():
    candidates, pairs = letters((3,)), all_pairs([3])
    fair, biased = NumberJudge(), NumberJudge(bias=0.04)
    found = ask(biased, candidates, pairs)
    np.testing.assert_allclose(found.preference, fair.judge(candidates, pairs))
    assert found.position_bias == pytest.approx(0.04)
    assert ask(fair, candidates, pairs).position_bias == pytest.approx(0, abs=1e-12)
    assert biased.asked == 6


def test_a_judge_without_order_is_asked_once():
    judge = NumberJudge(antisymmetric=True)
    found = ask(judge, letters((3,)), all_pairs([3]))
    assert judge.asked == 3
    np.testing.assert_allclose(found.forward + found.backward, 1)


def test_what_is_kept_is_not_asked_again_and_a_failure_is(tmp_path):
    candidates, pairs, store = letters((4, 3)), all_pairs([4, 3]), AnswerStore(tmp_path)
    first = ask(NumberJudge(bias=0.03, fail=[("q0d1", "q0d0")]), candidates, pairs, store=store)
    assert np.isnan(first.preference).sum() == 1
    judge = NumberJudge(bias=0.03)
    turned = Pairs(pairs.offsets, pairs.second, pairs.first)
    again = ask(judge, candidates, turned, store=AnswerStore(tmp_path))
    assert judge.asked == 1
    known = np.isfinite(first.backward)
    np.testing.assert_array_equal(again.forward[known], first.backward[known])
    np.testing.assert_array_equal(again.backward, first.forward)
    other = NumberJudge(bias=0.04)
    ask(other, candidates, pairs, store=store)
    assert other.asked == 2 * len(pairs), "another judge's answers are its own"


def test_a_killed_run_asks_only_what_is_missing(tmp_path, monkeypatch):
    candidates, pairs, store = letters((4, 3, 5)), all_pairs([4, 3, 5]), AnswerStore(tmp_path)
    monkeypatch.setattr(session, "BLOCK", 6)
    with pytest.raises(KeyboardInterrupt):
        ask(NumberJudge(most=12), candidates, pairs, store=store)
    judge = NumberJudge()
    resumed = ask(judge, candidates, pairs, store=store)
    assert judge.asked == 2 * (len(pairs) - 6)
    np.testing.assert_array_equal(resumed.preference, ask(NumberJudge(), candidates, pairs).preference)


@pytest.mark.parametrize("answers", [[2.0], [0.5, 0.5]])
def test_answers_that_are_no_probabilities_are_failures(answers):
    class Faulty(NumberJudge):
        def judge(self, candidates, pairs):
            return np.array(answers)

    with pytest.raises(FailureError, match="expected a probability for each"):
        ask(Faulty(), letters((2,)), all_pairs([2]))


def test_combining_leaves_out_a_judge_that_lacks_an_order_of_a_pair():
    # pair 0: both judges, (.6 + .8)/2 and (.5 + .1)/2; pair 1: the second lacks an order; pair 2: nobody has both
    one = Judgements(np.array([0.6, 0.6, np.nan]), np.array([0.5, 0.4, 0.5]))
    other = Judgements(np.array([0.8, 0.9, 0.7]), np.array([0.1, np.nan, np.nan]))
    found = combined([one, other])
    np.testing.assert_allclose(found.forward, [0.7, 0.6, np.nan])
    np.testing.assert_allclose(found.backward, [0.3, 0.4, np.nan])
    np.testing.assert_allclose(found.preference, [np.mean([0.55, 0.85]), 0.6, np.nan])


def words():
    return Candidates.of_lists(
        ["q0", "q1"], ["aab", "c"], [[("d0", "aaab"), ("d1", "b"), ("d2", "c")], [("d0", "aaab"), ("d2", "c")]]
    )


def test_the_bi_encoder_judges_by_the_difference_of_cosines():
    encoder = LetterEncoder()
    found = BiEncoderJudge(encoder, temperature=0.1).judge(words(), all_pairs([3, 2]))
    cosines = encoder.encode(["aab", "c"], "query") @ encoder.encode(["aaab", "b", "c"], "document").T
    leads = [cosines[q, i] - cosines[q, j] for q, i, j in ((0, 0, 1), (0, 0, 2), (0, 1, 2), (1, 0, 2))]
    np.testing.assert_allclose(found, expit(np.array(leads) / 0.1), rtol=1e-5)
    assert found[0] > 0.5 > found[3]


def test_temperature_divides_and_is_part_of_the_fingerprint():
    candidates, pairs = words(), all_pairs([3, 2])
    cool, warm = (BiEncoderJudge(LetterEncoder(), temperature=t) for t in (0.1, 0.2))
    np.testing.assert_allclose(
        logit(cool.judge(candidates, pairs)), 2 * logit(warm.judge(candidates, pairs)), rtol=1e-4
    )
    assert cool.fingerprint != warm.fingerprint
    with pytest.raises(InputError, match="temperature"):
        BiEncoderJudge(LetterEncoder(), temperature=0)


def test_with_a_store_every_text_is_encoded_once(tmp_path):
    encoder = LetterEncoder()
    judge = BiEncoderJudge(encoder, store=VectorStore(tmp_path))
    first = judge.judge(words(), all_pairs([3, 2]))
    assert encoder.encoded == 5
    np.testing.assert_array_equal(judge.judge(words(), all_pairs([3, 2])), first)
    assert encoder.encoded == 5
    np.testing.assert_allclose(BiEncoderJudge(LetterEncoder()).judge(words(), all_pairs([3, 2])), first, rtol=1e-6)


class FakeCrossEncoder:
    """Scores a pair by the number of letters that its texts share; NaN for an empty document."""

    num_labels, max_length, tokenizer = 1, 64, None

    def state_dict(self):
        return {}

    def children(self):
        return []

    def predict(self, texts, **settings):
        scores = [len(set(query) & set(document)) if document else np.nan for query, document in texts]
        return np.array(scores, np.float32)


def test_the_cross_encoder_judges_by_the_difference_of_its_logits(tmp_path):
    candidates = Candidates.of_lists(["q"], ["abc"], [[("d0", "abc"), ("d1", "a"), ("d2", "ab"), ("d3", "")]])
    scorer = CrossEncoderScorer(FakeCrossEncoder(), VectorStore(tmp_path))
    judge, pairs = CrossEncoderJudge(scorer, temperature=2.0), all_pairs([3])
    found = judge.judge(candidates, Pairs(candidates.offsets, pairs.first, pairs.second))
    np.testing.assert_allclose(found, expit([1.0, 0.5, -0.5]))
    refused("NaN or infinite", judge.score, candidates, np.arange(4), error=FailureError)


def test_logits_are_kept_with_a_teachers(tmp_path):
    candidates, store = Candidates.of_lists(["q"], ["abc"], [[("d0", "abc"), ("d1", "a")]]), VectorStore(tmp_path)
    model = FakeCrossEncoder()
    CrossEncoderScorer(model, store).score(
        TextPairs(
            Collection.from_dicts("c", {"d0": "abc", "d1": "a"}, {"q": "abc"}, {}), np.zeros(2, np.int64), np.arange(2),
            np.zeros(2),
        )
    )  # fmt: skip
    model.predict = None
    found = CrossEncoderJudge(CrossEncoderScorer(model, store)).judge(candidates, all_pairs([2]))
    np.testing.assert_allclose(found, [expit(2.0)])
