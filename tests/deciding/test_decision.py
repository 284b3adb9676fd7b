"""The decision where hidden answers are known: shares, candidates, bytes, verbs that agree, the page."""

import json
import re

import numpy as np
import plotly.graph_objects as go
import pyarrow as pa
import pytest
from threadpoolctl import threadpool_limits

from fakes import HashingEncoder
from foils.data import Negatives
from foils.data.labels import Labels
from foils.deciding import decide, unlabelled
from foils.deciding.benefit import learnabilities
from foils.deciding.doors import score
from foils.deciding.mine import best_window, windows_of
from foils.deciding.page import score_page
from foils.encode import VectorStore
from foils.mining import mine_negatives
from foils.runtime.errors import InputError
from foils.selection.doors import select
from hidden_positives import WorldEncoder, decided, hidden_world, mined, oracle, true_share
from hostile import hostile_world
from refusals import refused

pytestmark = pytest.mark.usefixtures("fewer_steps")


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    world = hidden_world(7, labelled=0.5)
    return world, mined(world), tmp_path_factory.mktemp("half")


@pytest.fixture(scope="module")
def plain(half):
    return decided(*half)


@pytest.fixture(scope="module")
def labelled(half):
    return decided(*half, labels=oracle(*half[:2], 240))


def test_without_labels_the_share_is_an_interval_from_0_that_holds_the_truth(half, plain):
    world, sources, _ = half
    assert plain.best_with_probability is None
    for name, source in sources.items():
        each = plain.worths[name]
        assert each.false_share_low == 0
        assert np.isnan(each.false_share)
        assert np.isnan(each.best_with_probability)
        assert true_share(world, source) <= each.false_share_high, name
    assert plain.unlabelled_most >= world.unlabelled


def test_labels_narrow_the_interval_about_the_truth(half, plain, labelled):
    world, sources, _ = half
    for name, source in sources.items():
        old, new = plain.worths[name], labelled.worths[name]
        assert new.false_share_low <= true_share(world, source) <= new.false_share_high, name
        if true_share(world, source) > 0.1:
            assert new.false_share_high - new.false_share_low < 0.8 * old.false_share_high, name
    assert labelled.labels > plain.labels == 0
    assert sum(each.best_with_probability for each in labelled.candidates) == pytest.approx(1)
    assert labelled.best_with_probability == labelled.candidates[0].best_with_probability


def test_labels_win_over_the_bound(half, plain):
    """Every judged negative of the hardest source is an answer: far more than the pairs seemed to exclude."""
    world, sources, folder = half
    table = sources["hard"].kept().select(["query_id", "doc_id"]).slice(0, 200)
    relevant = table.append_column("relevant", pa.array([1] * 200, pa.int8()))
    spoilt = decided(world, sources, folder, labels=Labels(relevant))
    assert spoilt.worths["hard"].false_share > max(0.8, plain.worths["hard"].false_share_high)
    assert spoilt.worths["hard"].verdict == "harmful"
    assert spoilt.source != "hard"


@pytest.mark.parametrize("preference", [1 / 8, 3.0, 8.0])
def test_labels_hold_the_truth_where_labelling_prefers_what_looks_likely(preference, tmp_path):
    """The likeliest of the relevant documents were labelled 3 or 8 times as often as the others, or the reverse."""
    world = hidden_world(11, labelled=0.5, preference=preference)
    sources = mined(world)
    decision = decided(world, sources, tmp_path, labels=oracle(world, sources, 60))
    for name, source in sources.items():
        each = decision.worths[name]
        assert each.false_share_low - 0.01 <= true_share(world, source) <= each.false_share_high + 0.01, name


def test_a_plain_window_is_believed_to_hold_what_counting_says(half, plain):
    world, sources, folder = half
    without_counts = {name: Negatives(source.table, {}) for name, source in sources.items()}
    pairs = decided(world, without_counts, folder)
    share = {each: pairs.ground.expected[_own(pairs, each)].mean() for each in ("hard", "middle")}
    counted = {each: plain.ground.expected[_own(plain, each)].mean() for each in ("hard", "middle")}
    scale = pairs.unlabelled_most / plain.unlabelled_most
    for name, value in share.items():
        assert value == pytest.approx(counted[name] * scale, rel=0.35), name


def _own(decision, name):
    records = decision.ground.measured.records
    return np.flatnonzero(records.members >> records.names.index(name) & 1)


def test_hard_negatives_win_where_none_is_an_answer(tmp_path):
    complete = hidden_world(8, labelled=1.0)
    decision = decided(complete, mined(complete), tmp_path)
    assert decision.source == "hard"
    assert decision.worths["hard"].verdict == "good"
    assert decision.turns_at is None
    assert "whatever is true of unlabelled answers" in decision.sentence


def test_none_and_random_are_candidates_like_any_other(half, plain):
    world, sources, folder = half
    assert {each.name for each in plain.candidates} == {*sources, "none"}
    none = plain.candidates[[each.name for each in plain.candidates].index("none")]
    assert (none.benefit, none.gain, none.gain_low, none.gain_high, none.false_share_high) == (0, 0, 0, 0, 0)
    for each in (plain, decided(world, {"hard": sources["hard"]}, folder, starts="nothing")):
        tied = "none" in each.ties
        assert each.source is None or ("(a tie)" in each.sentence) == tied == (each.candidates[0].gain_low <= 0)
    drawn = decided(world, {"hard": sources["hard"]}, folder)
    assert {each.name for each in drawn.candidates} == {"hard", "random", "none"}
    assert not world.collection.known_positives.contain(*drawn.negatives["random"].rows_in(world.collection)).any()
    assert drawn.worths["random"].strength < 0.5 * drawn.worths["hard"].strength
    random = decided(world, {"hard": sources["hard"]}, folder, starts="nothing", in_batch=0)
    assert random.source == "random"
    alone = decided(world, {"hard": sources["hard"]}, folder, candidates=["none"])
    assert alone.source is None
    assert alone.sentence.startswith("Train without mined negatives")
    with pytest.raises(InputError, match="a source is called 'none'"):
        decided(world, {"none": sources["hard"]}, folder)


def test_a_source_with_few_records_never_wins(half, plain):
    world, sources, folder = half
    few = Negatives(sources["middle"].kept().slice(0, 15))
    decision = decided(world, {**sources, "few": few}, folder)
    assert decision.worths["few"].records == 3
    assert decision.source == plain.source
    share = 3 / len(decision.ground.measured.records)
    assert decision.worths["few"].strength < 3 * share * decision.worths["middle"].strength


def test_a_model_that_starts_from_nothing_learns_from_what_it_can_tell_apart(half, plain):
    starting = decided(*half, starts="nothing", in_batch=0)
    assert starting.recurrence is None
    assert starting.worths["random"].strength > starting.worths["hard"].strength
    assert plain.worths["random"].strength < plain.worths["hard"].strength
    assert starting.worths["hard"].learnability < 1 == plain.worths["hard"].learnability


def test_a_word_table_is_decided_for_by_what_recurs_among_training_pairs(half, plain):
    class WordTable(WorldEncoder):
        static = True

    words = decided(*half, encoder=WordTable(half[0]))
    assert (plain.recurrence, words.recurrence) == (1.0, 0.0), "each document of this world answers one query"
    assert words.worths["hard"].learnability < 0.5 * words.worths["random"].learnability
    assert "0 % are expected to be positives of training queries too" in " ".join(words.sentences)
    measured = plain.ground.measured
    everything = np.arange(len(measured.records.record))
    np.testing.assert_allclose(
        learnabilities(measured, everything, "encoder", 0.25), 0.25 + 0.75 * measured.gates.rho**16
    )


def test_the_decision_turns_where_it_says(plain):
    turn = plain.turns_at
    assert turn is not None
    grid, curves = np.array(plain.curve["unlabelled"]), plain.curve["benefit"]
    at = int(np.argmin(np.abs(grid - turn.unlabelled)))
    other, own = np.array(curves[turn.source or "none"]), np.array(curves[str(plain.source)])
    before = at - 1 if turn.above else at + 1
    assert other[at] > own[at]
    assert other[before] <= own[before] * 1.021
    chosen = plain.candidates[0]
    assert chosen.best_from <= chosen.best_to


def test_the_gain_is_known_better_with_labels_and_ties_are_said(plain, labelled):
    for decision in (plain, labelled):
        for each in decision.candidates:
            assert each.gain_low <= each.gain <= each.gain_high
            assert (each.name in decision.ties) == each.verdict.startswith("tie")
        assert decision.candidates[0].name == (decision.source or "none")
    hard = [decision.worths["hard"] for decision in (plain, labelled)]
    assert hard[1].gain_high - hard[1].gain_low < hard[0].gain_high - hard[0].gain_low
    assert plain.label_next == 60


def test_the_same_seed_gives_the_same_bytes_and_valid_json(half, labelled):
    again = decided(*half, labels=oracle(*half[:2], 240))
    one, other = (json.dumps(each.to_json(), allow_nan=False) for each in (labelled, again))
    assert one == other
    assert {"source", "best_with_probability", "runner_up", "turns_at", "label_next"} <= json.loads(one).keys()


def test_a_program_that_answers_at_random_says_nothing_of_the_sources(half):
    world, sources, folder = half
    pairs = oracle(world, sources, 240).table
    said = pa.array(np.random.default_rng(3).integers(2, size=len(pairs)), pa.int8())
    by_chance = pairs.drop_columns(["judge", "relevant"]).append_column("relevant", said)
    by_chance = by_chance.append_column("judge", pa.array(["llm:m"] * len(pairs))).select(pairs.column_names)
    both = pa.concat_tables([pairs.slice(0, 60), by_chance])
    alone, among = (
        decided(world, sources, folder, labels=Labels(table), confidence=0.99) for table in (by_chance, both)
    )
    true = true_share(world, sources["hard"])
    for decision in (alone, among):
        assert decision.worths["hard"].false_share_low <= true <= decision.worths["hard"].false_share_high
    rates = among.judges["llm:m"]
    assert (rates["judged"], rates["judged_by_people_too"]) == (len(pairs), 60)
    assert rates["sensitivity"] + rates["specificity"] < 1.3
    assert alone.worths["hard"].false_share_low == 0, "nobody who can be relied on saw an answer"
    assert "judge some of its pairs yourself" in " ".join(alone.sentences)


def test_labels_of_other_pairs_are_refused(half):
    world, _, _ = half
    query = world.collection.queries["query_id"][0].as_py()
    labels = Labels(pa.table({"query_id": [query], "doc_id": ["d0"], "relevant": pa.array([0], pa.int8())}))
    refused("none of the judged pairs", decided, *half, labels=labels)
    refused("without a judgement", decided, *half, labels=Labels(labels.table.select(["query_id", "doc_id"])))


def noisy_decision(folder, noise=0.0):
    world = hidden_world(8, labelled=0.5)
    encoder, rng = WorldEncoder(world), np.random.default_rng(1)
    for kind, vectors in encoder.vectors.items():
        encoder.vectors[kind] = vectors * (1 + noise * rng.standard_normal(vectors.shape))
    return decided(world, mined(world), folder / f"{noise}", encoder)


def test_threads_and_blocks_change_no_bit(tmp_path, monkeypatch):
    decisions = []
    for threads, queries, documents in ((1, 256, 8_192), (2, 37, 1_000), (3, 500, 300)):
        monkeypatch.setattr(unlabelled, "BLOCK", queries)
        monkeypatch.setattr(unlabelled, "DOCUMENTS", documents)
        with threadpool_limits(threads):
            decisions.append(noisy_decision(tmp_path))
    assert len({json.dumps([each.to_json(), each.curve, str(each.worths)]) for each in decisions}) == 1


def test_the_last_digits_of_vectors_hardly_change_a_decision(tmp_path):
    plain, noisy = (noisy_decision(tmp_path, noise) for noise in (0.0, 1e-7))
    assert noisy.source == plain.source
    for name, worth in plain.worths.items():
        assert noisy.worths[name].benefit == pytest.approx(worth.benefit, rel=0.1)
        assert noisy.worths[name].gain_low == pytest.approx(worth.gain_low, abs=0.2)


def test_score_and_select_choose_as_studies_and_tunings_do(half):
    world, sources, folder = half
    sources = {name: Negatives(table.table, table.provenance) for name, table in sources.items()}
    encoder, store = WorldEncoder(world), VectorStore(folder / "vectors")
    models = {"encoder": encoder, "vectors": store, "temperature": 0.1}
    alone = decide(world.collection, sources, encoder, store, temperature=0.1)
    scored = score(world.collection, sources, sample=50, **models)
    selected = select(sources, by="benefit", collection=world.collection, **models)
    assert len({json.dumps(each.to_json()) for each in (alone, scored.decision, selected.decision)}) == 1
    assert scored.ranking[0] == alone.source
    assert [table.title for table in scored.tables()] == [alone.sentence]


def test_mine_chooses_between_ranks_as_score_does_between_the_same_tables(half):
    world, _, folder = half
    deep = mine_negatives(world.collection, world.dense(), split="train", top=20)
    encoder, store = WorldEncoder(world), VectorStore(folder / "vectors")
    decision, (first, end) = best_window(world.collection, deep, encoder, store, size=5, temperature=0.1)
    rank = np.asarray(deep.table["rank"])
    windows = {
        f"ranks {low}–{high}": Negatives(deep.table.filter(pa.array(deep.keep & (rank >= low) & (rank < high))))
        for low, high in windows_of(0, 20, 5)
    }
    scored = score(world.collection, windows, encoder=encoder, vectors=store, temperature=0.1).decision
    assert decision.worths == {name: scored.worths[name] for name in decision.worths}
    assert decision.source == scored.source == f"ranks {first}–{end}"


def test_the_page_says_what_is_decided_shows_examples_and_draws_valid_figures(tmp_path):
    """That it is harmless says tests/faults/test_safety.py."""
    hostile = score(*hostile_world(), encoder=HashingEncoder(), vectors=VectorStore(tmp_path))
    page = score_page(hostile)
    verdict = re.search(r'class="verdict">(.*?)</div>', page)[1]
    assert verdict.startswith("Train ")
    assert page.count(verdict) == 1, "no sentence stands there twice"
    assert page.count('<div class="example">') == 3
    assert re.search(r"<mark>boat\d+</mark>", page)
    assert all(f"{each.eci_sem:.4f}" in page for each in hostile.sources)
    assert page.index("What each choice gains") < page.index("Read some") < page.index("Where the choice turns")
    gains, turns = json.loads(re.search(r"^const figures = (.*);$", page, re.M)[1])
    for figure in (gains, turns):
        go.Figure(data=figure["data"], layout=figure["layout"])  # raises on a property that Plotly does not have
    colours = dict(zip(gains["data"][0]["y"], gains["data"][0]["marker"]["color"], strict=True))
    assert colours == {line["name"]: line["line"]["color"] for line in turns["data"]}
