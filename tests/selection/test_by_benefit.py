"""Selecting by benefit: lists worked by hand, the best of all lists, and worlds whose false negatives are known."""

from itertools import combinations

import numpy as np
import pytest

from foils.data import Negatives
from foils.deciding import BeliefSettings
from foils.deciding.benefit import HARM
from foils.encode import VectorStore
from foils.runtime.errors import InputError
from foils.selection import Candidates, list_benefit, most_useful, select_by_benefit
from foils.selection.benefit import HARMFUL, NOT_CHOSEN
from foils.selection.doors import select
from hidden_positives import WorldEncoder, decided, hidden_world, mined, oracle, true_share
from refusals import refused

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


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory):
    world, folder = hidden_world(9, labelled=0.15), tmp_path_factory.mktemp("spoilt")
    sources = {name: table for name, table in mined(world).items() if name in NAMES}
    judged = {"labels": oracle(world, sources, 240)}
    how = VectorStore(folder / "vectors"), BeliefSettings(**judged)
    chosen = select_by_benefit(world.collection, sources, WorldEncoder(world), *how, top=5, temperature=0.1)
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


def test_one_table_loses_what_does_harm_and_may_go_without_weights(tmp_path):
    world = hidden_world(7, labelled=0.5)
    hard = mined(world)["hard"]
    models = {"encoder": WorldEncoder(world), "vectors": VectorStore(tmp_path / "v"), "temperature": 0.1}
    given = {"by": "benefit", "collection": world.collection, **models}
    plain = select(hard, settings={"weigh": False, "top": 2}, **given)
    assert "weight" not in plain.table.column_names
    assert plain.keep.sum() <= 2 * len(world.collection.positives("train"))
    weighed = select({"hard": hard}, settings={"top": 2}, **given)
    assert (weighed.keep == plain.keep).all()
    with pytest.raises(InputError, match="top 0"):
        select(hard, settings={"top": 0}, **given)


def test_what_does_not_go_together_is_refused(tmp_path):
    for given, why in (
        ({"by": "benefit"}, "give the collection"),
        ({"labels": "labels.tsv"}, "goes by ratings"),
        ({"temperature": 0.1}, "it goes with by benefit"),
        ({"in_batch": 3}, "in_batch 3: no effect with by table"),
    ):
        refused(why, select, "nowhere.parquet", **given)
    refused("2 tables; a rule on ratings takes one", select, ["a.parquet", "b.parquet"])


def test_where_documents_do_not_recur_hard_negatives_weigh_less(spoilt):
    class WordTable(WorldEncoder):
        static = True

    world, sources, plain, folder, judged = spoilt
    how = VectorStore(folder / "vectors"), BeliefSettings(**judged)
    chosen = select_by_benefit(world.collection, sources, WordTable(world), *how, top=5, temperature=0.1)
    false, weight = (chosen.table[name].to_numpy(zero_copy_only=False) for name in ("false_probability", "weight"))
    assert (weight[chosen.keep] < 1 - (1 + HARM) * false[chosen.keep]).all()
    assert chosen.provenance["settings"]["recurrence"] == 0
    assert chosen.benefit < plain.benefit
