import numpy as np
import pytest
from judging import LetterEncoder, NumberJudge, rate_negatives
from scipy.special import expit, logit

from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.encode import VectorStore
from foils.rating import (
    BiEncoderJudge,
    Candidates,
    CrossEncoderJudge,
    Judgements,
    agreements,
    all_pairs,
)
from foils.runtime.errors import InputError


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

    def predict(self, texts, **settings):
        scores = [len(set(query) & set(document)) if document else np.nan for query, document in texts]
        return np.array(scores, np.float32)


def test_the_cross_encoder_judges_by_the_difference_of_its_logits():
    candidates = Candidates.of_lists(["q"], ["abc"], [[("d0", "abc"), ("d1", "a"), ("d2", "")]])
    found = CrossEncoderJudge(FakeCrossEncoder(), temperature=2.0).judge(candidates, all_pairs([3]))
    np.testing.assert_allclose(found, [expit(1.0), np.nan, np.nan])


def said(*answers):
    forward = np.array(answers)
    return Judgements(forward, 1 - forward)


def test_agreement_with_the_others_by_hand():
    judges = [said(0.9, 0.2, 0.5, np.nan, 0.8), said(0.6, 0.7, 0.9, 0.1, np.nan), said(0.7, 0.4, 0.9, 0.2, np.nan)]
    # means of the others: 0.65, 0.55, 0.9, 0.15, none; 0.8, 0.3, 0.7, 0.2, 0.8; 0.75, 0.45, 0.7, 0.1, 0.8
    np.testing.assert_allclose(agreements(judges), [1 / 2, 3 / 4, 1.0])
    assert np.isnan(agreements([said(0.5), said(0.9)])).all()


def test_a_rating_shows_each_judge_of_an_ensemble():
    documents = {f"d{i}": str(float(i)) for i in range(8)}
    collection = Collection.from_dicts("numbers", documents, {"q": "query"}, {})
    rows = Negatives(negatives_table(["q"] * 8, list(documents), "s", range(8), [0.0] * 8))
    judges = [NumberJudge(), NumberJudge(bias=0.05, name="biased"), NumberJudge(name="backwards", temperature=-4.0)]
    rated = rate_negatives(collection, rows, judges, validate="all")
    shown = [(each["name"], each["agreement"]) for each in rated.summary.judges]
    assert shown == [("numbers", 1), ("biased", 1), ("backwards", 0)]
    assert [each["position_bias"] for each in rated.to_json()["judges"]] == pytest.approx([0, 0.05, 0], abs=0.02)
    assert "judge backwards" in str(rated)
    assert rate_negatives(collection, rows, judges[0]).summary.judges == []
