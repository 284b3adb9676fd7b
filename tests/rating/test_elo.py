import evalica
import numpy as np
import pytest

from foils.rating import Pairs, online_elo, regular_pairs
from foils.runtime.errors import InputError
from foils.statistics.elo_scale import ELO_PER_LOGIT, ELO_PER_PROBIT, expected_score


def test_the_scale_is_the_papers():
    assert pytest.approx(173.7, abs=0.05) == ELO_PER_LOGIT
    assert pytest.approx(1.702 * 173.7, abs=0.1) == ELO_PER_PROBIT
    assert expected_score(400.0) == pytest.approx(10 / 11)
    assert expected_score([0.0]) == pytest.approx(0.5)


def test_one_game_by_hand():
    # equal ratings: E = 0.5, so a win moves both by K/2
    np.testing.assert_allclose(online_elo(Pairs.of_one(2, [0], [1]), [1.0], k_factor=32), [1516, 1484])
    # 400 points ahead, E = 10/11: a loss costs 32·10/11
    found = online_elo(Pairs.of_one(2, [0], [1]), [0.0], k_factor=32, start=[1900, 1500])
    np.testing.assert_allclose(found, [1900 - 320 / 11, 1500 + 320 / 11])


def test_online_elo_agrees_with_evalica():
    rng = np.random.default_rng(1)
    pairs = regular_pairs([15], degree=6, keys=rng)
    won = rng.random(len(pairs)) < 0.5
    winners = [evalica.Winner.X if win else evalica.Winner.Y for win in won]
    expected = evalica.elo(pairs.first.tolist(), pairs.second.tolist(), winners, initial=1500, k=24).scores.sort_index()
    np.testing.assert_allclose(online_elo(pairs, won, k_factor=24), expected.to_numpy())


def test_queries_do_not_mix_and_missing_judgements_change_nothing():
    pairs = regular_pairs([6, 8], degree=4, keys=np.random.default_rng(2))
    w = np.random.default_rng(3).random(len(pairs))
    w[[0, 5]] = np.nan
    both = online_elo(pairs, w)
    one = pairs.query == 0
    alone = online_elo(Pairs.of_one(6, pairs.first[one], pairs.second[one]), w[one])
    np.testing.assert_array_equal(both[:6], alone)
    known = np.isfinite(w)
    np.testing.assert_array_equal(both, online_elo(pairs.where(known), w[known]))


def test_faulty_settings_are_refused():
    pairs = Pairs.of_one(2, [0], [1])
    with pytest.raises(InputError, match="k_factor"):
        online_elo(pairs, [1.0], k_factor=0)
    with pytest.raises(InputError, match="one rating for each"):
        online_elo(pairs, [1.0], start=[1500])
