import numpy as np
import pytest
from judging import LetterEncoder, NumberJudge, letters, rate_negatives
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
    ask,
    combined,
)
from foils.runtime.errors import InputError


def words():
    return Candidates.of_lists(
        ["q0", "q1"], ["aab", "c"], [[("d0", "aaab"), ("d1", "b"), ("d2", "c")], [("d0", "aaab"), ("d2", "c")]]
    )


def test_the_bi_encoder_judges_by_the_difference_of_cosines():
    encoder = LetterEncoder()
    candidates, pairs = words(), all_pairs([3, 2])
    found = BiEncoderJudge(encoder, temperature=0.1).judge(candidates, pairs)
    queries, documents = encoder.encode(["aab", "c"], "query"), encoder.encode(["aaab", "b", "c"], "document")
    cosines = queries @ documents.T
    expected = expit(
        np.array(
            [
                cosines[0, 0] - cosines[0, 1],
                cosines[0, 0] - cosines[0, 2],
                cosines[0, 1] - cosines[0, 2],
                cosines[1, 0] - cosines[1, 2],
            ]
        )
        / 0.1
    )
    np.testing.assert_allclose(found, expected, rtol=1e-5)
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


@pytest.mark.parametrize("fail", [(), [("q0d1", "q0d0")], [("q0d0", "q0d1")]])
def test_no_position_bias_enters_the_mean_of_judges(fail):
    """A judge that always says 1/2 but for its bias, with and without an order that failed: the answer is 1/2."""
    candidates, pairs = letters((3,)), all_pairs([3])
    fair, biased = NumberJudge(temperature=1e9), NumberJudge(temperature=1e9, bias=0.25, fail=fail)
    found = combined([ask(judge, candidates, pairs) for judge in (fair, biased)])
    np.testing.assert_allclose(found.preference, 0.5, atol=1e-6)
    np.testing.assert_allclose(found.forward[1:], 0.625, atol=1e-6)  # what is shown of the bias stays


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


def test_a_cross_encoder_with_several_outputs_is_refused():
    model = FakeCrossEncoder()
    model.num_labels = 3
    with pytest.raises(InputError, match="3 outputs"):
        CrossEncoderJudge(model)


def test_pairs_over_other_candidates_are_refused():
    with pytest.raises(InputError, match="other candidates"):
        BiEncoderJudge(LetterEncoder()).judge(words(), all_pairs([2, 3]))


def test_candidates_that_do_not_fit_together_are_refused():
    with pytest.raises(InputError, match="query texts"):
        Candidates(["q"], ["a", "b"], np.array([0, 1]), ["d"], lambda rows: ["x"])
    with pytest.raises(InputError, match="document ids"):
        Candidates(["q"], ["a"], np.array([0, 2]), ["d"], lambda rows: ["x"])


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
    rows = negatives_table(["q"] * 8, list(documents), "s", range(8), [0.0] * 8)

    class Backwards(NumberJudge):
        def judge(self, candidates, pairs):
            return 1 - super().judge(candidates, pairs)

    judges = [NumberJudge(), NumberJudge(bias=0.05, name="biased"), Backwards(name="backwards", temperature=4.0)]
    rated = rate_negatives(collection, Negatives(rows), judges, validate="all")
    summary = rated.summary
    assert [judge.name for judge in summary.judges] == ["numbers", "biased", "backwards"]
    assert [judge.agreement for judge in summary.judges] == [1, 1, 0]
    assert summary.judges[1].position_bias == pytest.approx(0.05, abs=0.02)
    assert summary.judges[0].position_bias == pytest.approx(0, abs=1e-9)
    assert rated.to_json()["judges"][2] == {
        "name": "backwards",
        "missing": 0,
        "position_bias": pytest.approx(0, abs=1e-9),
        "agreement": 0.0,
    }
    assert "judge backwards" in str(rated)
    alone = rate_negatives(collection, Negatives(rows), judges[0])
    assert alone.summary.judges == []
