"""The decision, on collections whose hidden positives are known, and in words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from decided_world import WorldEncoder, mined, oracle, scored, true_share
from foils.data import Negatives
from foils.data.labels import Labels
from foils.data.splitting import expected_recurrence
from foils.runtime.errors import InputError
from foils.scoring import Decided, Decision, DecisionSettings, decide_sources
from foils.scoring.worth import learnabilities
from hidden_positives import World, hidden_world


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, dict[str, Negatives], tuple]:
    world = hidden_world(7, labelled=0.5)
    sources = mined(world)
    return world, sources, scored(world, sources, tmp_path_factory.mktemp("half"))


def decided(case: tuple, **settings: object) -> Decided:
    _, sources, (scores, encoder, store) = case
    return decide_sources(scores, sources, encoder, store, DecisionSettings(**settings))  # type: ignore[arg-type]


def test_without_labels_the_share_is_an_interval_from_0_that_holds_the_truth(half: tuple) -> None:
    world, sources, _ = half
    decision = decided(half).decision
    for name, source in sources.items():
        worth = decision.worths[name]
        assert worth.false_share_low == 0
        assert true_share(world, source) <= worth.false_share_high, name
    assert decision.unlabelled_most >= world.unlabelled


def test_labels_narrow_the_interval_about_the_truth(half: tuple) -> None:
    world, sources, _ = half
    before, after = decided(half).decision, decided(half, labels=oracle(world, sources, 240)).decision
    for name, source in sources.items():
        old, new = before.worths[name], after.worths[name]
        assert new.false_share_low <= true_share(world, source) <= new.false_share_high, name
        if true_share(world, source) > 0.1:
            assert new.false_share_high - new.false_share_low < 0.8 * old.false_share_high, name
    assert after.labels > before.labels == 0
    assert after.unlabelled_low < world.unlabelled < after.unlabelled_high


def test_a_plain_window_is_believed_to_hold_what_counting_says(half: tuple) -> None:
    _, sources, (scores, encoder, store) = half
    plain = {name: Negatives(source.table, {}) for name, source in sources.items()}  # no counts in the provenance
    counted, pairs = decided(half).decision, decide_sources(scores, plain, encoder, store).decision
    scale = pairs.unlabelled_most / counted.unlabelled_most
    for name in ("hard", "middle"):
        recaptured = counted.worths[name].false_share * scale
        assert pairs.worths[name].false_share == pytest.approx(recaptured, rel=0.35), name


def test_hard_negatives_win_where_none_is_false_and_lose_where_most_are(tmp_path: Path, half: tuple) -> None:
    complete = hidden_world(8, labelled=1.0)
    sources = mined(complete)
    decision = decide_sources(*_arguments(scored(complete, sources, tmp_path), sources)).decision
    assert decision.source == "hard"
    assert decision.best_with_probability > 0.6
    assert decision.worths["hard"].verdict == "good"
    world, sources, _ = half
    spoilt = decided((world, sources, half[2]), labels=Labels(_all_relevant(sources["hard"]))).decision
    assert spoilt.source != "hard"
    assert spoilt.worths["hard"].verdict == "too many false"


def _arguments(scored_as: tuple, sources: dict[str, Negatives]) -> tuple:
    scores, encoder, store = scored_as
    return scores, sources, encoder, store


def _all_relevant(negatives: Negatives) -> pa.Table:
    table = negatives.kept().select(["query_id", "doc_id"]).slice(0, 200)
    return table.append_column("relevant", pa.array([1] * len(table), pa.int8()))


def test_no_mined_negatives_are_worth_0_and_hybrids_the_mean_of_their_parts(half: tuple) -> None:
    worths = decided(half).decision.worths
    both = worths["hard+middle"]
    assert both.benefit == pytest.approx((worths["hard"].benefit + worths["middle"].benefit) / 2)
    assert worths["random control"].strength < 0.5 * worths["hard"].strength


def test_a_model_that_starts_from_nothing_learns_from_what_it_can_tell_apart(half: tuple) -> None:
    able, starting = decided(half).decision.worths, decided(half, starts="nothing", in_batch=0).decision.worths
    assert starting["random"].strength > starting["hard"].strength
    assert able["random"].strength < able["hard"].strength
    assert starting["hard"].learnability < 1 == able["hard"].learnability


def test_where_documents_do_not_recur_a_negative_is_learned_from_as_far_as_it_is_told_already(half: tuple) -> None:
    able, part, none = (decided(half, recurrence=share).decision.worths for share in (1.0, 0.5, 0.0))
    gates, record = half[2][0].measured.gates, half[2][0].measured.records
    everything = np.arange(len(record.record))
    np.testing.assert_allclose(
        learnabilities(half[2][0].measured, everything, "encoder", 0.25), 0.25 + 0.75 * gates.rho**16
    )
    assert {each.learnability for each in able.values()} == {1.0}
    assert none["hard"].learnability < 0.5 * none["random"].learnability
    assert part["hard"].strength == pytest.approx((able["hard"].strength + none["hard"].strength) / 2)
    assert part["hard"].false_share == able["hard"].false_share
    assert able["random"].verdict == "too easy"
    assert none["random"].verdict == "good"


def test_a_word_table_is_decided_for_by_what_recurs_in_the_collection(half: tuple) -> None:
    world, sources, (scores, encoder, store) = half
    collection = scores.measured.records.collection
    share = expected_recurrence(collection)
    assert share == 0  # each document of this world is relevant to one query

    def decision(encoder: object, **settings: object) -> Decision:
        given = DecisionSettings(**settings)  # type: ignore[arg-type]
        return decide_sources(scores, sources, encoder, store, given).decision  # type: ignore[arg-type]

    def benefits(encoder: object, **settings: object) -> dict[str, float]:
        return {name: worth.benefit for name, worth in decision(encoder, **settings).worths.items()}

    class WordTable(WorldEncoder):
        static = True

    words = WordTable(world)
    assert [decision(each).recurrence for each in (encoder, words)] == [1.0, share]
    assert benefits(words) == benefits(words, recurrence=0.0) != benefits(encoder)
    assert benefits(words, recurrence=1.0) == benefits(encoder)
    said = [" ".join(decision(words, recurrence=each).sentences) for each in (1.0, 0.25)]
    line = "Of the positives of queries to come 25 % are expected to be positives of training queries too"
    assert [line in each for each in said] == [False, True]
    assert "recurrence 0.25" in said[1]


def test_a_training_from_nothing_heeds_no_recurrence(half: tuple) -> None:
    assert decided(half, starts="nothing").decision.recurrence is None
    with pytest.raises(InputError, match=r"recurrence 0\.5: no effect with starts nothing"):
        DecisionSettings(starts="nothing", recurrence=0.5)


def test_the_batch_takes_away_what_easy_negatives_add(half: tuple) -> None:
    alone, among = (decided(half, in_batch=count).decision.worths for count in (0, 500))
    assert among["random"].strength < alone["random"].strength
    ratio = [each["hard"].strength / each["random"].strength for each in (alone, among)]
    assert ratio[1] > ratio[0]


def test_the_decision_turns_where_it_says(half: tuple) -> None:
    decision = decided(half).decision
    turn = decision.turns_at
    assert turn is not None
    grid = np.array(decision.curve["unlabelled"])
    own = np.array(decision.curve["benefit"][decision.source])
    other = 0 * own if turn.source is None else np.array(decision.curve["benefit"][turn.source])
    at = int(np.argmin(np.abs(grid - turn.unlabelled)))
    assert other[at] > own[at]
    assert other[max(0, at - 1) if turn.above else at + 1] <= own[max(0, at - 1) if turn.above else at + 1] + 1e-9


def test_the_same_seed_gives_the_same_bytes(half: tuple) -> None:
    one, other = (json.dumps(decided(half).decision.to_json()) for _ in range(2))
    assert one == other


def test_published_scores_are_background_where_a_decision_stands_above_them(half: tuple) -> None:
    scores = half[2][0]
    assert "background" not in scores.tables()[-1].caption
    decision, *_, published = scores.with_decision(decided(half), "benefit").tables()
    assert (decision.title, published.title) == ("Which negatives to train on", "Sources of negatives by ECI_sem")
    assert published.caption.startswith("background: ")


def test_a_program_that_answers_at_random_says_nothing_of_the_sources(half: tuple) -> None:
    world, sources, _ = half
    pairs = oracle(world, sources, 240).table
    rng = np.random.default_rng(3)
    columns = {
        "judge": pa.array(["llm:m"] * len(pairs)),
        "relevant": pa.array(rng.integers(2, size=len(pairs)), pa.int8()),
    }
    by_chance = pairs
    for name, column in columns.items():
        by_chance = by_chance.set_column(by_chance.column_names.index(name), name, column)
    people = pairs.slice(0, 60)
    alone, among = (
        decided(half, labels=Labels(by_chance)),
        decided(half, labels=Labels(pa.concat_tables([people, by_chance]))),
    )
    true = true_share(world, sources["hard"])
    for decision in (alone.decision, among.decision):
        assert decision.worths["hard"].false_share_low <= true <= decision.worths["hard"].false_share_high
    rates = among.decision.judges["llm:m"]
    assert (rates["judged"], rates["judged_by_people_too"]) == (len(pairs), 60)
    assert rates["sensitivity"] + rates["specificity"] < 1.3
    assert alone.decision.worths["hard"].false_share_low == 0, "nobody who can be relied on saw a false one"
    assert "judge some of its pairs yourself" in " ".join(alone.decision.sentences)


def test_labels_of_other_pairs_are_refused(half: tuple) -> None:
    world, _, _ = half
    query = world.collection.queries["query_id"][0].as_py()
    labels = Labels(pa.table({"query_id": [query], "doc_id": ["d0"], "relevant": pa.array([0], pa.int8())}))
    with pytest.raises(InputError, match="none of the judged pairs"):
        decided(half, labels=labels)
    with pytest.raises(InputError, match="without a judgement"):
        decided(half, labels=Labels(labels.table.select(["query_id", "doc_id"])))
