"""What negatives are worth, and the decision where hidden answers are known: shares, bytes, verbs alike, the page."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from scipy.special import expit, logsumexp
from threadpoolctl import threadpool_limits

import foils
from fakes import HashingEncoder
from foils.data import Negatives
from foils.data.labels import Labels
from foils.data.negatives import Recapture
from foils.deciding import decide, unlabelled
from foils.deciding.benefit import FORM, HARM, MOST, Odds, added_losses
from foils.deciding.decision import GRID, Weighed, benefits_by_block, turning_points
from foils.deciding.page import score_page
from foils.deciding.unlabelled import THE_ENCODER, Pairs, Pooling, Relevance, Survey, rounded, signs_of_pooling
from foils.encode import VectorStore
from foils.experiments.score import score
from foils.mining.retrievers import BM25Retriever
from foils.scoring.triplets import make_records
from foils.selection.doors import select
from hidden_positives import World, WorldEncoder, decided, hidden_world, mined, oracle, true_share
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
    share = {each: pairs.basis.expected[_own(pairs, each)].mean() for each in ("hard", "middle")}
    counted = {each: plain.basis.expected[_own(plain, each)].mean() for each in ("hard", "middle")}
    scale = pairs.unlabelled_most / plain.unlabelled_most
    for name, value in share.items():
        assert value == pytest.approx(counted[name] * scale, rel=0.35), name


def _own(decision, name):
    records = decision.basis.measured.records
    return np.flatnonzero(records.members >> records.names.index(name) & 1)


def test_hard_negatives_win_where_none_is_an_answer(tmp_path):
    complete = hidden_world(8, labelled=1.0)
    decision = decided(complete, mined(complete), tmp_path)
    assert decision.source == "hard"
    assert decision.worths["hard"].verdict == "good"
    assert decision.turns_at is None
    assert "if the labels were not pooled" in decision.sentence
    assert "whatever" not in decision.sentence


def test_none_and_random_are_candidates_like_any_other(half, plain):
    world, sources, folder = half
    assert {each.name for each in plain.candidates} == {*sources, "none"}
    none = plain.candidates[[each.name for each in plain.candidates].index("none")]
    assert (none.benefit, none.gain, none.gain_low, none.gain_high, none.false_share_high) == (0, 0, 0, 0, 0)
    for each in (plain, decided(world, {"hard": sources["hard"]}, folder, starts="nothing")):
        tied = "none" in each.ties
        assert each.source is None or each.sentence.startswith("A tie") == tied == (each.candidates[0].gain_low <= 0)
    drawn = decided(world, {"hard": sources["hard"]}, folder)
    assert {each.name for each in drawn.candidates} == {"hard", "random", "none"}
    assert not world.collection.known_positives.contain(*drawn.negatives["random"].rows_in(world.collection)).any()
    assert drawn.worths["random"].strength < 0.5 * drawn.worths["hard"].strength
    random = decided(world, {"hard": sources["hard"]}, folder, starts="nothing", in_batch=0)
    assert random.source == "random"
    alone = decided(world, {"hard": sources["hard"]}, folder, candidates=["none"])
    assert alone.source is None
    assert alone.sentence.startswith("Train without mined negatives")
    refused("a source is called 'none'", decided, world, {"none": sources["hard"]}, folder)


def test_a_source_with_few_records_never_wins(half, plain):
    world, sources, folder = half
    few = Negatives(sources["middle"].kept().slice(0, 15))
    decision = decided(world, {**sources, "few": few}, folder)
    assert decision.worths["few"].records == 3
    assert decision.source == plain.source
    share = 3 / len(decision.basis.measured.records)
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
    measured = plain.basis.measured
    everything = np.arange(len(measured.records.record))
    np.testing.assert_allclose(
        replace(plain.basis, recurrence=0.25).learnabilities(everything), 0.25 + 0.75 * measured.similarities.rho**16
    )


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
    alone, among = (decided(world, sources, folder, labels=Labels(table)) for table in (by_chance, both))
    true = true_share(world, sources["hard"])
    for decision in (alone, among):  # the ends are meant to miss one time in twenty, but not by much
        hard = decision.worths["hard"]
        assert hard.false_share_low - 0.03 <= true <= hard.false_share_high + 0.03
    assert alone.worths["hard"].false_share_low == 0, "nobody who can be relied on saw an answer"


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
    assert len({json.dumps([each.to_json(), str(each.worths)]) for each in decisions}) == 1


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


@pytest.mark.parametrize(
    ("benefits", "ends"),
    [
        # at each o: what the chosen (c), one that is better with fewer (f) and one that is better with more (m) give
        ({"c": (3, 3, 3), "f": (9, 1, 0), "m": (0, 1, 9)}, ("f", "m")),
        ({"c": (3, 3, 3), "f": (1, 1, 0), "m": (0, 1, 9)}, (None, "m")),
        ({"c": (3, 3, 3), "f": (9, 1, 0), "m": (0, 1, 2)}, ("f", None)),
        ({"c": (3, 3, 3), "f": (1, 1, 0), "m": (0, 1, 2)}, (None, None)),
        ({"c": (3, 3, 3), "f": (9, 1, 9), "m": (0, 1, 2)}, ("f", "f")),
    ],
)
def test_a_choice_holds_between_two_ends(benefits, ends, plain):
    """Straight lines between o = 0, half of the bound, and the bound; the ends are where they cross."""
    o = np.linspace(0, 4, GRID)
    curves = {name: np.interp(o, [0, 2, 4], values) for name, values in benefits.items()} | {"none": 0 * o}
    rates = {"c": 0.1, "f": 0.2, "m": 0.05, "none": 0.0}
    weighed = {name: Weighed(None, curve, rates[name] * o, curve, curve) for name, curve in curves.items()}
    above, below = turning_points("c", weighed, o, today=GRID // 2)
    assert (below and below.source, above and above.source) == ends
    values = np.column_stack([*curves.values()])
    candidates = [replace(plain.candidates[0], name="c"), *plain.candidates[1:]]
    decision = replace(
        plain, source="c", candidates=tuple(candidates), turns_at=above or below, turns_below=below if above else None
    )
    sentence = decision.sentence
    for turn, words in ((below, "below that, "), (above, "beyond that, ")):
        assert (words in sentence) == (turn is not None)
        if turn is not None:
            inside = -1 if turn.above else 1
            at = int(np.argmin(np.abs(o - turn.unlabelled)))
            assert values[at].max() > values[at, 0], "another is better there"
            assert values[at + inside, 0] >= 0.95 * values[at + inside].max(), "and not one step nearer"
    bounds = {(True, True): "between", (False, True): "at most", (True, False): "at least", (False, False): "pooled"}
    assert bounds[below is not None, above is not None] in sentence
    if below and above and below.source != above.source:
        assert f"between {100 * below.false_share:.2g} and {100 * above.false_share:.2g} %" in sentence


@pytest.mark.parametrize("depth", [5, 10, 20])
@pytest.mark.parametrize("by", ["BM25", THE_ENCODER])
def test_labels_among_the_first_of_a_retriever_look_pooled(depth, by):
    """Ranks of the labelled positives are even down to a depth and end there; natural ones thin out and go on."""
    rng = np.random.default_rng(depth)
    queries, per_query, count = 120, 4, 1_500
    texts = [" ".join(f"w{word}" for word in rng.integers(60, size=45)) for _ in range(count)]
    documents = {f"d{row}": text for row, text in enumerate(texts)}
    asked = {f"q{query}": " ".join(f"w{word}" for word in rng.integers(60, size=4)) for query in range(queries)}
    bare = foils.Collection.from_dicts("texts", documents, asked, {"train": {name: {"d0": 1} for name in asked}})
    ranked, _ = BM25Retriever(bare).search(np.arange(queries), 400)

    def world(ranks):
        qrels = {f"q{query}": {f"d{ranked[query, rank]}": 1 for rank in ranks()} for query in range(queries)}
        return foils.Collection.from_dicts("texts", documents, asked, {"train": qrels})

    def signs(collection, encoder_ranks):
        labelled = Pairs(*[np.zeros(len(encoder_ranks))] * 2, encoder_ranks, *[np.zeros(len(encoder_ranks))] * 2)
        return signs_of_pooling(collection, np.arange(queries), Survey(labelled, labelled, labelled, count))

    natural = np.floor(np.exp(rng.uniform(0, np.log(400), queries * per_query))) - 1
    even = rng.integers(depth, size=queries * per_query).astype(float)
    spread = world(lambda: rng.permutation(400)[:per_query])
    shallow = world(lambda: rng.permutation(depth)[:per_query])
    pooled = signs(shallow, natural) if by == "BM25" else signs(spread, even)
    assert pooled.sign.endswith(f"among the first {depth} of {pooled.by}")
    assert (pooled.ends, pooled.depth, pooled.by) == (True, depth, by)
    assert signs(spread, natural) == Pooling()
    if by == "BM25":
        records = make_records(shallow, {"bm25": foils.mine(shallow, "bm25", top=depth)}, split="train", control=False)
        judged = pooled.judged(SimpleNamespace(records=records), None)
        rows = np.asarray(records.texts.rows)[records.document]
        assert 0 < judged.sum() < len(judged)
        pairs = zip(records.queries[records.record], rows, strict=True)
        expected = [row in ranked[query, :depth] for query, row in pairs]
        np.testing.assert_array_equal(judged, expected)
        # a pool of another retriever: its first documents are strewn over BM25's first hundred
        strewn = world(lambda: np.append(rng.permutation(90)[: per_query - 1], 300 if rng.random() < 0.1 else 95))
        pooled = signs(strewn, natural)
        assert (pooled.ends, pooled.depth) == (True, 0)
        assert pooled.sign.startswith("Of the labelled positives beyond the first 10 of BM25 only ")


def test_labels_that_look_pooled_bound_nothing(tmp_path, monkeypatch):
    """The nearest answers are labelled eight times as often; all other shares than the bound's are possible then."""
    world = hidden_world(5, labelled=0.3, preference=8.0)
    sources = mined(world)
    pooled = Pooling("All are among the first 10 of BM25")
    monkeypatch.setattr("foils.deciding.decision.signs_of_pooling", lambda *_: pooled)
    decision = decided(world, sources, tmp_path)
    for name, source in sources.items():
        assert true_share(world, source) <= decision.worths[name].false_share_high, name
    assert all(decision.worths[name].false_share_high > 0.9 for name in ("hard", "middle", "drawn"))
    assert decision.worths["hard"].gain_low < 0, "with that many answers it does harm"
    assert decision.label_next == 60
    assert decision.turns_at is not None
    assert "first 10 of BM25: such labels say nothing" in " ".join(decision.cautions)
    judged = decided(world, sources, tmp_path, labels=oracle(world, sources, 120))
    for name, source in sources.items():
        each = judged.worths[name]
        assert each.false_share_low - 0.02 <= true_share(world, source) <= each.false_share_high + 0.02, name


def test_what_was_judged_in_a_pool_and_not_labelled_is_no_answer(tmp_path, monkeypatch):
    """The encoder's first twelve documents of each query were judged; all others may be answers."""
    world = hidden_world(5, labelled=0.3)
    pooled = Pooling("All are among the first 12 of the encoder", True, THE_ENCODER, 12)
    monkeypatch.setattr("foils.deciding.decision.signs_of_pooling", lambda *_: pooled)
    decision = decided(world, mined(world), tmp_path)
    of, expected = decision.basis.measured.records, decision.basis.expected
    queries, documents = (rounded(vectors.take(slice(None))) for vectors in (world.queries, world.documents))
    nearness = (queries @ documents.T)[of.queries[of.record]]
    rows = np.asarray(of.texts.rows)[of.document]
    rank = (nearness > nearness[np.arange(len(rows)), rows][:, None]).sum(axis=1)
    labelled = of.collection.known_positives.counts_of(of.queries)[of.record]
    judged = rank + labelled < 12
    assert judged.sum() > 100
    assert expected[judged].max() < 1e-6
    assert expected[rank >= 12].max() > 0.9
    assert "until some negatives are judged" in decision.sentence or decision.source in decision.negatives
    with_labels = decided(world, mined(world), tmp_path, labels=oracle(world, mined(world), 60))
    assert with_labels.basis.expected[judged].max() > 0.01, "labels are believed, wherever they are"


def test_few_queries_are_too_few_to_tell(half):
    world, _, folder = half
    names = world.collection.queries["query_id"].to_pylist()
    for count in (5, 20, 49, 120):
        kept = world.collection.qrels["train"]
        few = [name for name in names if pc.any(pc.equal(kept["query_id"], name)).as_py()][:count]
        qrels = {"train": kept.filter(pc.is_in(kept["query_id"], pa.array(few)))}
        smaller = World(
            replace(world.collection, qrels=qrels, digest=f"few{count}"), world.queries, world.documents, world.hidden
        )
        decision = decided(smaller, mined(smaller), folder)
        assert decision.queries == count
        assert decision.sentence.startswith("Too few pairs to tell") == (count < 50)
        assert ("so few" in " ".join(decision.cautions)) == (count < 50)


def test_the_interval_of_a_source_does_not_depend_on_what_else_is_scored(half, plain):
    world, sources, folder = half
    fewer = decided(world, {name: sources[name] for name in ("middle", "random", "hard")}, folder)
    for name in ("hard", "middle", "random"):
        one, other = plain.worths[name], fewer.worths[name]
        for field in ("benefit", "benefit_low", "benefit_high", "gain_low", "gain_high", "false_share_high"):
            assert getattr(one, field) == pytest.approx(getattr(other, field), rel=1e-9), (name, field)


def test_windows_of_mine_have_the_shares_that_score_gives_the_same_negatives(half):
    world, _, folder = half
    encoder, store = WorldEncoder(world), VectorStore(folder / "vectors")
    models = {"encoder": encoder, "vectors": store}
    best = foils.mine(world.collection, "dense", top=5, ranks="best", near_duplicate=None, **models)
    windows = {
        name: foils.mine(
            world.collection, "dense", top=5, near_duplicate=None,
            ranks=tuple(int(each) for each in name.removeprefix("ranks ").split("–")), **models,
        )
        for name in best.decision.worths
        if name.startswith("ranks ")
    }  # fmt: skip
    scored = score(world.collection, windows, **models).decision
    assert set(windows) == {f"ranks {first}–{first + 5}" for first in range(0, 50, 5)}
    assert scored.worths == best.decision.worths
    assert scored.source == best.decision.source
    assert all(Recapture.of(table) is not None for table in best.decision.negatives.values() if table.provenance)


def test_a_selection_is_compared_with_its_parts_by_the_same_probabilities(half):
    world, sources, folder = half
    encoder, store = WorldEncoder(world), VectorStore(folder / "vectors")
    for chosen in (("hard",), ("hard", "middle"), ("hard", "middle", "random")):
        parts = {name: sources[name] for name in chosen}
        selected = select(
            parts, by="benefit", settings={"top": 5}, collection=world.collection, encoder=encoder, vectors=store,
            temperature=0.1,
        )  # fmt: skip
        assert selected.of_sources.keys() == parts.keys()
        assert all(selected.benefit >= value for value in selected.of_sources.values())


def test_the_page_says_what_is_decided_shows_examples_and_draws_every_source(tmp_path):
    """That it is harmless says tests/faults/test_safety.py."""
    hostile = score(*hostile_world(), encoder=HashingEncoder(), vectors=VectorStore(tmp_path))
    page = score_page(hostile, hostile.decision, hostile.published())
    verdict = re.search(r'class="verdict">(.*?)</div>', page)[1]
    assert re.match("Train |Too few pairs to tell", verdict)
    assert page.count(verdict) == 1, "no sentence stands there twice"
    assert page.count('<div class="example">') == 3
    assert re.search(r"<mark>boat\d+</mark>", page)
    assert all(f"{each.eci_sem:.4f}" in page for each in hostile.sources)
    assert page.index("Read some") < page.index("What each choice gains") < page.index("The numbers")
    assert page.count('class="line"') == len(hostile.decision.candidates)


# What negatives are worth: added losses, how answers spread, points, relevance of pairs, the example of the docs


NONE = np.array([-np.inf])


def test_one_negative_as_near_as_the_positive_adds_ln_2():
    assert added_losses(np.array([0]), np.array([0.3]), np.array([0.3]), NONE, 0.05) == pytest.approx([np.log(2)])


def test_the_parts_add_up_to_what_the_list_adds_to_the_loss():
    rng = np.random.default_rng(1)
    record = np.sort(rng.integers(5, size=40))
    s_n, s_p, in_batch = rng.normal(size=40), rng.normal(size=5), rng.normal(size=5)
    parts = added_losses(record, s_n, s_p, in_batch, 0.2)
    for each in range(5):
        own = np.concatenate([[0.0, in_batch[each]], (s_n[record == each] - s_p[each]) / 0.2])
        assert parts[record == each].sum() == pytest.approx(logsumexp(own) - logsumexp(own[:2]))
    assert (parts > 0).all()


def test_the_more_there_is_in_the_batch_the_less_a_negative_adds():
    alone, among = (
        added_losses(np.zeros(2, int), np.array([0.2, 0.1]), np.array([0.3]), np.array([odds]), 0.05)
        for odds in (-np.inf, 3.0)
    )
    assert (among < alone).all()
    assert among[0] / among[1] == pytest.approx(alone[0] / alone[1])


def test_extreme_similarities_neither_overflow_nor_vanish():
    parts = added_losses(np.zeros(2, int), np.array([1.0, -1.0]), np.array([-1.0]), NONE, 0.001)
    assert np.isfinite(parts).all()
    assert parts[0] == pytest.approx(2_000)


@pytest.mark.parametrize("share", [1e-6, 0.03, 0.5, 0.9, MOST])
def test_the_mean_over_a_source_is_its_share(share):
    logs = np.random.default_rng(0).normal(-3, 2, 500)
    constant, slope = Odds(logs).line(share)
    assert slope == 1
    assert expit(constant + logs).mean() == pytest.approx(share, rel=0.01)


def test_another_slope_turns_the_line_about_the_answers():
    logs = np.random.default_rng(0).normal(-3, 2, 500)
    odds = Odds(logs)
    (a, _), (b, slope) = odds.line(0.2), odds.line(0.2, 0.5)
    weights = expit(a + logs)
    mean = weights @ logs / weights.sum()
    assert b + slope * mean == pytest.approx(a + mean, abs=0.02)


def test_points_rise_with_the_benefit_and_err_with_heavy_tails():
    rng = np.random.default_rng(0)
    for form in FORM.values():
        assert form.mean(0.0) == 0
        assert form.mean(-0.4) == -form.mean(0.4)
        assert form.mean(0.5) > form.mean(0.2) > 0
        slope, *errors = rng.standard_t(3, (3, 20_000))
        drawn = [
            form.drawn(np.full(20_000, value), slope, error) for value, error in zip((0.5, 0.0), errors, strict=True)
        ]
        gain = drawn[0] - drawn[1]
        assert np.median(gain) == pytest.approx(float(form.mean(0.5)), abs=0.02)
        low, high = np.quantile(gain, [0.001, 0.999])
        assert high - low > 1.5 * 2 * 3.09 * (np.quantile(gain, 0.84) - np.median(gain)), "wider than a normal's"


@pytest.mark.parametrize("scale", [1.0, 1e-6, 37.0])
def test_inner_products_of_rounded_vectors_are_exact_in_any_order(scale):
    rng = np.random.default_rng(2)
    vectors = scale * rng.standard_normal((40, 384)) * rng.lognormal(0, 1, (40, 1)) / np.sqrt(384)
    a, b = rounded(vectors[:20].astype(np.float32)), rounded(vectors[20:].astype(np.float32))
    exact = np.einsum("id,jd->ij", a.astype(np.float64), b.astype(np.float64))
    for order in (np.arange(384), rng.permutation(384), np.argsort(-np.abs(a[0]))):
        products = np.ascontiguousarray(a[:, order]) @ np.ascontiguousarray(b[:, order]).T
        np.testing.assert_array_equal(products.astype(np.float64), exact)
    lengths = np.linalg.norm(vectors, axis=1)
    error = exact - vectors[:20] @ vectors[20:].T
    assert np.abs(error / lengths[:20, None] / lengths[None, 20:]).max() < 2e-3


def pairs(count: int, similarity: float, resemblance: np.ndarray, rng: np.random.Generator) -> Pairs:
    """Pairs of as many records, around a similarity."""
    rank = rng.integers(0, 500, count).astype(float)
    return Pairs(np.arange(count), similarity + 0.1 * rng.standard_normal(count), rank, resemblance, np.ones(count))


def test_one_query_alone_with_several_positives_is_no_failure():
    """Its half of the records knows what resembles a positive; the other half knows nothing of it."""
    rng, count = np.random.default_rng(0), 400
    one = np.full(count, np.nan)
    one[0] = 0.7
    nothing = np.full(count, np.nan)
    labelled, unlabelled = pairs(count, 0.6, one, rng), pairs(count, 0.2, nothing, rng)
    survey = Survey(labelled, unlabelled, unlabelled, 1_000)
    relevance = Relevance.fit(survey, seed=0)
    assert relevance.ratio(labelled).mean() > 5 * relevance.ratio(unlabelled).mean()
    assert np.isfinite(relevance.bound(survey))


def test_queries_to_which_every_document_is_relevant_are_scored(tmp_path):
    """No document of the collection is unlabelled; the negatives are texts that a source brings along."""
    keel = {"d1": "A keel is the spine of a boat."}
    queries = {"q1": "what is a keel?", "q2": "what is the spine of a boat?"}
    collection = foils.Collection.from_dicts("keel", keel, queries, {"train": {name: {"d1": 1} for name in queries}})
    written = pa.table({"query": list(queries.values()), "negative": ["The crew rows.", "Oars are made of ash."]})
    scores = foils.score(collection, {"llm": written}, encoder=HashingEncoder(), vectors=str(tmp_path))
    assert scores.decision is not None
    assert scores.decision.worths["llm"].false_share_high > 0.9, "nothing is known of them"


X = {"dense": np.array([1.0, 0.5]), "far": np.array([0.2, 0.2])}
RATIOS = {"dense": np.array([0.10, 0.02]), "far": np.array([0.004, 0.0])}


def added(source: str) -> np.ndarray:
    record, alone = np.zeros(2, int), np.array([-np.inf])
    return added_losses(record, 0.05 * np.log(X[source]), np.zeros(1), alone, 0.05)


def benefit(source: str, o: float) -> float:
    return float((added(source) * (1 - (1 + HARM) * np.minimum(1, o * RATIOS[source]))).sum())


def test_the_numbers_of_the_page():
    text = (Path(__file__).parents[2] / "docs" / "deciding.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith(("| dense |", "| far |"))]
    assert len(rows) == 4
    for at, (source, x, r, a, pi, product) in enumerate(rows):
        place, answers = at % 2, 2 * RATIOS[source]
        assert (float(x), float(r)) == (X[source][place], RATIOS[source][place])
        assert float(a) == pytest.approx(added(source)[place], abs=6e-4)
        assert float(pi) == pytest.approx(answers[place])
        assert float(product) == pytest.approx(added(source)[place] * (1 - 3 * answers[place]), abs=1e-3)
    assert added("dense").sum() == pytest.approx(np.log(2.5))
    values = {source: benefit(source, 2.0) for source in X}
    assert values == pytest.approx({"dense": 0.513, "far": 0.332}, abs=1e-3)
    gains = FORM["encoder"].mean(np.array([*values.values()]))
    assert gains.round(1).tolist() == [1.2, 1.0]
    falls = {source: benefit(source, 0.0) - benefit(source, 1.0) for source in X}
    assert falls == pytest.approx({"dense": 0.202, "far": 0.002}, abs=5e-4)
    crossing = (benefit("dense", 0.0) - benefit("far", 0.0)) / (falls["dense"] - falls["far"])
    assert crossing == pytest.approx(2.9, abs=0.02)
    assert (crossing * RATIOS["dense"]).mean() == pytest.approx(0.174, abs=0.002)


def test_the_decision_sums_what_the_page_sums():
    """Σ s·(1 − (1 + κ)·π) by block, κ = 2, π = σ(constant + slope·log r): here ½, then r/(1 + r)."""
    strength, block = np.array([1.0, 2.0, 4.0]), np.array([0, 0, 1])
    logs = np.log([0.25, 1.0, 0.25])
    sums, share = benefits_by_block(logs, strength, block, 2, 0.0, 0.0)
    np.testing.assert_allclose(sums, [-0.5 * 3, -0.5 * 4])
    assert share == 0.5
    sums, share = benefits_by_block(logs, strength, block, 2, 0.0, 1.0)
    np.testing.assert_allclose(sums, [1 * (1 - 3 * 0.2) + 2 * (1 - 3 * 0.5), 4 * (1 - 3 * 0.2)])
    assert share == pytest.approx(0.3)


class Truthful:
    """Judges a document better than the positive exactly where it is a hidden answer, as a judge of `foils rate`."""

    name, fingerprint, antisymmetric = "truthful", "truthful-1", True

    def __init__(self, world):
        texts = world.collection.document_texts(np.arange(len(world.collection.documents)))
        number = {f"d{row}": text for row, text in enumerate(texts)}
        names = [f"q{row}" for row in range(len(world.collection.queries))]
        known = world.collection.known_positives
        labelled = {
            (names[query], f"d{row}")
            for place, query in enumerate(known.query_rows.tolist())
            for row in known.of(place).tolist()
        }
        asked = dict(zip(names, world.collection.query_texts(np.arange(len(names))), strict=True))
        self.answers = {(asked[query], number[document]) for query, document in world.hidden | labelled}
        self.asked = 0

    def judge(self, candidates, pairs):
        self.asked += len(pairs)
        queries = [candidates.queries[row] for row in candidates.query_of(pairs.first)]
        better = [
            {(query, text) in self.answers for text in both}
            for query, both in zip(
                queries, zip(candidates.texts(pairs.first), candidates.texts(pairs.second), strict=True), strict=True
            )
        ]
        return np.array([0.5 if each == {True} else 0.0 for each in better])


def test_score_has_a_judge_label_the_negatives_first(half, plain, tmp_path):
    world, sources, folder = half
    models = {"encoder": WorldEncoder(world), "vectors": VectorStore(folder / "vectors"), "temperature": 0.1}
    judge = Truthful(world)
    scored = score(world.collection, sources, labels_by=judge, **models).decision
    assert judge.asked > 0
    assert scored.labels > plain.labels == 0
    file = tmp_path / "labels.tsv"
    foils.label(world.collection, sources, ask=Truthful(world), output=file)
    given = score(world.collection, sources, labels=file, **models).decision
    assert scored.to_json() == given.to_json(), "in one step as in two"
    assert scored.best_with_probability is not None
    refused("judge 'nobody'", score, world.collection, sources, labels_by="nobody:m", **models)
