"""The stage that selects, by rules on ratings and by benefit, and curricula."""

import json
from itertools import combinations

import numpy as np
import pyarrow as pa
import pytest

from foils.cli.app import run
from foils.data import Negatives
from foils.data.negatives import negatives_table
from foils.deciding.benefit import HARM
from foils.encode import VectorStore
from foils.runtime.errors import InputError, UnknownNameError
from foils.selection import LearningProgress, adapted_gap, simans, stage_of
from foils.selection.doors import HARMFUL, NOT_CHOSEN, Candidates, list_benefit, most_useful, select
from foils.selection.rules import tier_max
from hidden_positives import WorldEncoder, decided, hidden_world, mined, oracle, true_share
from rated_rows import rows_of
from refusals import refused


def rated(gaps, *, per_query=4, **more):
    n, gaps = len(gaps), np.asarray(gaps, float)
    ids = pa.array([f"q{i // per_query}" for i in range(n)]), pa.array([f"d{i}" for i in range(n)])
    ratings = {"elo": 1500 - gaps, "elo_se": np.full(n, 50.0), "gap": gaps, **more}
    return Negatives(negatives_table(*ids, "s", np.arange(n), np.zeros(n)), {"stage": "rate"}).with_columns(
        {name: np.asarray(values, float) for name, values in ratings.items()}
    )


def test_the_base_table_adds_its_columns_and_drops_no_row():
    given = rated([50.0, 150.0, 300.0, np.nan])
    found = select(given)
    table = found.table
    assert table.column_names == [*given.table.column_names, "keep", "reason", "weight", "tier"]
    assert table["keep"].to_pylist() == [False, True, True, False]
    assert table["reason"].to_pylist() == ["danger zone", None, None, "unrated"]
    assert table["weight"].to_pylist() == [0, 0.5, 1, 0]
    assert table["tier"].to_pylist() == ["danger", "soft", "goldilocks", "unrated"]
    assert found.rejected() == {"danger zone": 1, "unrated": 1}
    assert "keep" not in given.table.column_names


def test_rows_rejected_before_keep_their_reason_and_are_not_seen():
    gaps = [*np.linspace(0, 100, 20), 5000.0, 6000.0]
    given = rated(gaps).reject(np.arange(22) >= 20, "look-alike")
    found = select(given, by="percentile")
    assert found.selection.thresholds["medium"] == pytest.approx(75)
    assert found.table["reason"].to_pylist()[20:] == ["look-alike"] * 2
    assert found.table["tier"].to_pylist()[20:] == [None, None]
    assert found.table["weight"].to_pylist()[20:] == [0, 0]


def test_the_judges_word_is_used_where_the_table_has_it():
    gaps = [90.0, 120.0]
    assert select(rated(gaps, preference=[0.9, 0.1])).keep.tolist() == [True, False]
    assert select(rated(gaps)).keep.tolist() == [False, True]
    assert select(rated(gaps, preference=[0.9, 0.1]), by="denoise").keep.tolist() == [True, False]


def test_settings_and_seed_reach_the_rule():
    given = rated(np.linspace(0, 800, 40), per_query=20)
    assert select(given, by="relative", settings={"margin": 0.01}).keep.sum() > select(given, by="relative").keep.sum()
    draws = [select(given, by="simans", seed=seed).keep.tolist() for seed in (0, 0, 1)]
    assert draws[0] == draws[1] != draws[2]


def test_unknown_names_and_unrated_tables_are_refused():
    refused(r"mixture.*percentile", select, rated([1.0]), error=UnknownNameError, by="percentiles")
    with pytest.raises(UnknownNameError, match="Did you mean 'margin'"):
        select(rated([1.0]), by="relative", settings={"margn": 0.1})
    bare = Negatives(rated([1.0]).table.drop_columns(["elo", "gap"]))
    refused("no elo, gap; rate it first", select, bare)
    refused("weight", select, select(rated([300.0])))


@pytest.fixture
def program(tmp_path):
    """foils select of forty gaps from −100 to 800, of one query."""
    rated(np.linspace(-100, 800, 40), per_query=40).write(tmp_path / "rated.parquet")
    return lambda *more: run(["select", str(tmp_path / "rated.parquet"), "-o", str(tmp_path / "out.parquet"), *more])


def test_the_program_writes_table_and_json(program, tmp_path, capsys):
    assert program("--set", "bounds=[50, 200, 400, 600]", "--json", str(tmp_path / "s.json")) == 0
    found = Negatives.read(tmp_path / "out.parquet")
    gaps = found.table["gap"].to_numpy()
    np.testing.assert_array_equal(found.keep, gaps >= 50)
    assert found.provenance["before"] == {"stage": "rate"}
    result = json.loads((tmp_path / "s.json").read_text())
    assert result["kept"] == (gaps >= 50).sum() == sum(tier["kept"] for tier in result["tiers"].values())
    assert result["thresholds"]["goldilocks"] == 200
    assert "goldilocks" in capsys.readouterr().out


def test_where_no_row_is_kept_it_says_so_and_what_to_loosen(program, capsys):
    assert program("--by", "relative", "--set", "margin=0.9") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "No row is kept: there is nothing to train on." in said
    assert "too close to the positive's rating: 40" in said


OTHER_TYPE = "of another type than its defaults"
BAD = {
    "--by gap": "Choose from",
    "--set bounds": "NAME=VALUE",
    "--by relative --set margin=much": OTHER_TYPE,
    "--by relative --set margin=[1,2]": OTHER_TYPE,
    "--by mixture --set components=2.5": OTHER_TYPE,
    "--by simans --set rate=true": OTHER_TYPE,
    '--by percentile --set percentiles=["a","b","c"]': OTHER_TYPE,
}


@pytest.mark.parametrize(("more", "said"), BAD.items())
def test_bad_input_is_said(program, capsys, more, said):
    assert program(*more.split()) == 2
    assert said in capsys.readouterr().err


def test_table_3():
    assert [stage_of(epoch) for epoch in (1, 2, 3, 4, 5, 6, 7, 50)] == [
        (300, 0.5), (300, 0.5), (200, 0.6), (200, 0.6), (150, 0.7), (150, 0.7), (100, 0.8), (100, 0.8)
    ]  # fmt: skip
    refused("epoch 0; expected at least 1", stage_of, 0)


def test_the_first_update_by_hand():
    bandit = LearningProgress(tiers=2, rate=1.0, exploration=0.0)
    np.testing.assert_allclose(bandit.probabilities, [0.5, 0.5])
    # one reward has no spread to be scaled by: 0, so t = 2 mixes two equal weights
    np.testing.assert_allclose(bandit.updated(0, 1.0, 0.5).probabilities, [0.5, 0.5])
    known = LearningProgress(tiers=2, rate=1.0, exploration=0.0, history=(0.0, 1.0), steps=2)
    # rewards 0, 1, 1: percentiles 0.4 and 1 scale the last to 1, and 1/0.5 = 2 is added; then t = 4
    a, b = 0.75 * np.exp(2) + 0.25, 0.75 + 0.25 * np.exp(2)
    np.testing.assert_allclose(known.updated(0, 1.0, 0.0).probabilities, [a / (a + b), b / (a + b)])


def drawn(rewards, *, steps=1500, **settings):
    rng = np.random.default_rng(0)
    bandit = LearningProgress(tiers=4, **settings)
    counts = np.zeros(4)
    for step in range(steps):
        tier = int(rng.choice(4, p=bandit.probabilities))
        counts[tier] += step >= steps // 2
        gained = rewards(step)[tier] + 0.1 * rng.normal()
        bandit = bandit.updated(tier, 1.0, 1.0 - gained)
    return counts / counts.sum()


def test_it_draws_what_teaches_most_and_follows_when_that_changes():
    assert drawn(lambda step: [0.0, 0.1, 0.8, 0.1]).argmax() == 2
    assert drawn(lambda step: [0.8, 0, 0, 0] if step < 500 else [0, 0, 0, 0.8]).argmax() == 3


def test_settings_of_the_bandit_count():
    steady = lambda step: [0.0, 0.1, 0.8, 0.1]  # noqa: E731
    assert drawn(steady, exploration=1.0).max() < 0.3
    assert drawn(steady, rate=1e-6).max() < 0.3 < drawn(steady).max()
    slow = LearningProgress(tiers=2, history=(0.0, 1.0))
    assert slow.updated(0, 1, 0, duration=10).history[-1] == 0.1


def test_the_state_is_not_changed_in_place_and_forgets_old_rewards():
    bandit = LearningProgress(tiers=2, history=tuple(range(1000)))
    after = bandit.updated(1, 1.0, 0.0)
    assert len(after.history) == 1000
    assert after.history[0] == 1
    assert bandit.steps == 0
    assert after.steps == 1


@pytest.mark.parametrize("given", [(4, 1.0, 0.0, 1.0), (0, np.nan, 0.0, 1.0), (0, 1.0, 0.0, 0.0)])
def test_faulty_updates_and_settings_are_refused(given):
    tier, before, after, duration = given
    with pytest.raises(InputError):
        LearningProgress().updated(tier, before, after, duration=duration)
    for settings in ({"tiers": 1}, {"rate": 0.0}, {"exploration": 1.5}):
        refused(next(iter(settings)), LearningProgress, **settings)


def test_tiers_up_to_the_one_of_algorithm_3():
    assert [tier_max(epoch) for epoch in (1, 2, 3, 4, 9)] == [1.5, 2, 2.5, 3, 3]


def test_simans_aims_at_the_adapted_gap_of_section_8_3():
    rows = rows_of(np.arange(0.0, 900.0, 10))
    assert simans(rows, rate=0.2).thresholds["target"] == adapted_gap(0.2) == pytest.approx(280)


# By benefit: lists worked by hand, the best of all lists, worlds whose false negatives are known


pytestmark = pytest.mark.usefixtures("fewer_steps")
NAMES = ("hard", "middle", "random")


def test_a_lists_benefit_by_hand() -> None:
    # X = 1 + 3 = 4 and Y = 1·.5 − 3·.2 = −.1: log 5 · (−.1)/4.
    assert list_benefit(np.log([1.0, 3.0]), np.array([0.5, -0.2])) == pytest.approx(np.log(5) * -0.025)
    assert list_benefit(np.log([2.0]), np.array([1.0])) == pytest.approx(np.log(3))
    assert list_benefit(np.zeros(0), np.zeros(0)) == 0


def test_harmful_negatives_are_left_out_and_the_list_is_at_least_every_sources():
    rng = np.random.default_rng(3)
    record = np.repeat(np.arange(60), 12)
    pull, gain = rng.normal(-1, 2, 720), rng.uniform(-0.75, 1, 720)
    lists = tuple(np.tile(np.arange(12) // 4 == source, 60) for source in range(3))
    chosen = most_useful(Candidates(np.arange(720), record, pull, gain, lists), 4)
    assert (gain[chosen] > 0).all()
    short = 0.0
    for each in range(60):
        own = chosen[record[chosen] == each]
        worth = list_benefit(pull[own], gain[own])
        for has in lists:
            places = np.flatnonzero(has & (record == each))
            assert worth >= list_benefit(pull[places], gain[places]) - 1e-12
        every = np.flatnonzero(record == each)
        best = max(
            list_benefit(pull[list(way)], gain[list(way)])
            for size in range(1, 5)
            for way in combinations(every.tolist(), size)
        )
        assert worth <= best + 1e-12
        short = max(short, 1 - worth / best)
    assert short < 0.05, "greedy comes near the best of all lists"


def test_where_pulls_are_equal_the_least_likely_false_are_taken_first():
    gain = np.array([0.2, 0.9, -0.1, 0.7, 0.4])
    same = Candidates(np.arange(5), np.zeros(5, int), np.full(5, -3.0), gain, ())
    assert most_useful(same, 2).tolist() == [1, 3]
    assert most_useful(same, 9).tolist() == [0, 1, 3, 4]
    assert (
        most_useful(Candidates(np.arange(2), np.zeros(2, int), np.zeros(2), np.array([-1.0, 0.0]), ()), 3).tolist()
        == []
    )


def by_benefit(world, sources, encoder, folder, judged):
    models = {"encoder": encoder, "vectors": VectorStore(folder / "vectors"), "temperature": 0.1}
    return select(sources, by="benefit", settings={"top": 5}, collection=world.collection, **models, **judged)


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory):
    world, folder = hidden_world(9, labelled=0.15), tmp_path_factory.mktemp("spoilt")
    sources = {name: table for name, table in mined(world).items() if name in NAMES}
    judged = {"labels": oracle(world, sources, 240)}
    chosen = by_benefit(world, sources, WorldEncoder(world), folder, judged)
    return world, sources, chosen, folder, judged


def test_a_composition_is_worth_at_least_each_source_and_has_fewer_false_than_the_hardest(spoilt):
    world, sources, chosen, folder, judged = spoilt
    kept = chosen.kept().group_by("query_id").aggregate([("doc_id", "count")])["doc_id_count"].to_numpy()
    assert kept.max() == 5
    assert true_share(world, chosen) < 0.6 * true_share(world, sources["hard"])
    decision = decided(world, {**sources, "chosen": Negatives(chosen.table, chosen.provenance)}, folder, **judged)
    assert decision.source == "chosen"
    for name in NAMES:
        assert decision.worths["chosen"].benefit >= decision.worths[name].benefit, name
        assert chosen.benefit >= chosen.decision.worths[name].benefit, name


def test_it_says_which_source_it_would_choose_as_the_decision_does(spoilt):
    world, sources, chosen, folder, judged = spoilt
    decision = decided(world, sources, folder, **judged)
    assert chosen.tables()[-1].title == decision.sentence
    assert chosen.to_json()["decision"] == decision.to_json()


def test_rows_say_what_is_believed_of_them_and_why_they_are_left_out(spoilt):
    world, sources, chosen, *_ = spoilt
    table = chosen.table
    false, weight = (table[name].to_numpy(zero_copy_only=False) for name in ("false_probability", "weight"))
    np.testing.assert_allclose(weight[chosen.keep], 1 - (1 + HARM) * false[chosen.keep])
    assert (weight[~chosen.keep] == 0).all()
    assert (weight[chosen.keep] > 0).all()
    reasons = np.array(table["reason"].to_pylist(), object)
    assert (false[reasons == HARMFUL] >= 1 / (1 + HARM)).all()
    assert set(chosen.rejected()) <= {HARMFUL, NOT_CHOSEN, *next(iter(sources.values())).rejected()}
    pairs = zip(table["query_id"].to_pylist(), table["doc_id"].to_pylist(), strict=True)
    hidden = np.array([pair in world.hidden for pair in pairs])
    assert np.nanmean(false[hidden]) > 3 * np.nanmean(false[~hidden])
    assert abs(np.nanmean(false) - hidden.mean()) < 0.05
    assert chosen.provenance["settings"]["labels"] == 240


def test_one_table_loses_what_does_harm(tmp_path):
    world = hidden_world(7, labelled=0.5)
    hard = mined(world)["hard"]
    models = {"encoder": WorldEncoder(world), "vectors": VectorStore(tmp_path / "v"), "temperature": 0.1}
    given = {"by": "benefit", "collection": world.collection, **models}
    chosen = select(hard, settings={"top": 2}, **given)
    assert 0 < chosen.keep.sum() <= 2 * len(world.collection.positives("train"))
    assert (chosen.table["weight"].to_numpy()[chosen.keep] > 0).all()
    refused("top 0", select, hard, settings={"top": 0}, **given)


def test_what_does_not_go_together_is_refused(tmp_path):
    for given, why in (
        ({"by": "benefit"}, "give the negatives' collection"),
        ({"labels": "labels.tsv"}, "no effect with by table"),
        ({"temperature": 0.1}, "or give by benefit"),
        ({"in_batch": 3}, "in_batch 3: no effect with by table"),
    ):
        refused(why, select, "nowhere.parquet", **given)
    refused("2 tables; a rule on ratings takes one", select, ["a.parquet", "b.parquet"])


def test_where_documents_do_not_recur_hard_negatives_weigh_less(spoilt):
    class WordTable(WorldEncoder):
        static = True

    world, sources, plain, folder, judged = spoilt
    chosen = by_benefit(world, sources, WordTable(world), folder, judged)
    false, weight = (chosen.table[name].to_numpy(zero_copy_only=False) for name in ("false_probability", "weight"))
    assert (weight[chosen.keep] < 1 - (1 + HARM) * false[chosen.keep]).all()
    assert chosen.provenance["settings"]["recurrence"] == 0
    assert chosen.benefit < plain.benefit
