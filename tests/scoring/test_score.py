"""All that is said of a source: by hand, against a plain loop of the equations, intervals from blocks of records."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import plain
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from score_world import ExactStore, NoEncoder, Texts, World, negatives, random_world, score

from fakes import memory_of
from foils.data import Collection, Negatives
from foils.encode import Vectors
from foils.runtime import memory
from foils.scoring import Scores
from foils.scoring.gates import (
    WEIGHTINGS,
    Similarities,
    gated,
    pair_loss,
    semantic_locality,
    target_consistency,
)
from foils.scoring.measure import (
    Geometry,
    assign_blocks,
    bootstrap,
    gradient_energies,
    information_matrix,
    information_sums,
    interval,
    leave_out,
    log_det,
    resampled,
    triplet_similarities,
)
from foils.scoring.scores import gradient_norm, score_variance
from foils.scoring.triplets import CONTROL, Target
from refusals import refused


def test_two_records_worked_by_hand():
    """In the plane, τ = 1, λ = 1, scoring corpus: the pooled texts pos one, neg sun, neg one two, pos sun (M = 4).

    Record 1: query "one", u = (1, 0), v⁺ = (1, 0); negatives a: (0, 1), "neg sun", and b: (0.6, 0.8), "neg one two".
    Record 2: query "sun moon", u = (0, 1), v⁺ = (0, 1); negative a again: v⁻ = (0, 1) = v⁺, so r = 0.

    Tokens: T(q1) = {one}, T(q2) = {sun, moon}; df(one) = 2, df(sun) = 2, df(moon) = 0, so
    idf(one) = idf(sun) = ln(5/3) + 1 = 1.510826, idf(moon) = ln 5 + 1 = 2.609438.
    1a: ρ = σ(1 − 0) = 0.731059, η = σ(0 − 0) = 0.5, C = 0, w = 0.365529; r = (1, −1)/√2
    1b: ρ = σ(1 − 0.6) = 0.598688, η = σ(0.6 − 0.6) = 0.5, C = 1, w = 0
    2a: ρ = σ(1 − 1) = 0.5, η = σ(1 − 1) = 0.5, C = 1.510826/4.120264 = 0.366682, w = 0.158330, r = 0
    I = (1/3)·0.365529·½·[[1, −1], [−1, 1]]: eigenvalues 0.365529/3 = 0.121843 and 0.
    ECI_sem = ln 1.121843 = 0.114973; trace 0.121843.
    Record 1: P ∝ (e¹, e⁰, e^0.6) = (2.718282, 1, 1.822119)/5.540401 = (0.490629, 0.180492, 0.328879);
      g = P·d − d₊ = (0.490629 + 0.6·0.328879 − 1, 0.180492 + 0.8·0.328879) = (−0.312044, 0.443595),
      ‖g‖² = 0.294148; −log P₊ = 0.712067.
    Record 2: P = (½, ½), g = 0, −log P₊ = ln 2. Means: energy 0.147074, proxy 0.702607, ambiguity 0.
    ECI: S = (0 + 0.6 + 1)/3 = 0.533333, |N| = 1.5. Δ by triplet ((1 − 0) + (1 − 0.6) + (1 − 1))/3 = 0.466667,
      ln 2.5 · 2·0.533333·0.466667/1 = 0.456109; by list ((1 − 0.6) + (1 − 1))/2 = 0.2,
      ln 2.5 · 2·0.533333·0.2/0.733333 = 0.916291·0.290909 = 0.266557.
    """
    collection = Collection.from_dicts(
        "plane",
        {"p1": "pos one", "p2": "pos sun", "a": "neg sun", "b": "neg one two"},
        {"q1": "one", "q2": "sun moon"},
        {"train": {"q1": {"p1": 1}, "q2": {"p2": 1}}},
    )
    vectors = {
        "one": (1, 0), "sun moon": (0, 1), "pos one": (1, 0), "pos sun": (0, 1), "neg sun": (0, 1),
        "neg one two": (0.6, 0.8),
    }  # fmt: skip
    store = ExactStore({text: np.array(vector, np.float64) for text, vector in vectors.items()})
    source = negatives([("q1", "a", None), ("q1", "b", None), ("q2", "a", None)])
    found = score(collection, {"s": source}, NoEncoder(), store, temperature=1.0, control=False).sources[0]
    assert found.rho == pytest.approx((0.731059 + 0.598688 + 0.5) / 3, abs=1e-6)
    assert found.eta == 0.5
    assert found.coverage == pytest.approx((0 + 1 + 0.366682) / 3, abs=1e-6)
    assert found.psi == pytest.approx(1 - found.coverage)
    assert found.eci_sem == pytest.approx(0.114973, abs=1e-6)
    assert found.eci_sem_per_dim == pytest.approx(0.114973 / 2, abs=1e-6)
    assert found.trace == pytest.approx(0.121843, abs=1e-6)
    assert found.gradient_energy == pytest.approx(0.147074, abs=1e-6)
    assert found.mnrl_proxy == pytest.approx(0.702607, abs=1e-6)
    assert found.ambiguity == found.inversion_rate == 0
    assert found.signal == pytest.approx(0.533333, abs=1e-6)
    assert found.margin == pytest.approx(1.4 / 3)
    assert found.eci == pytest.approx(0.456109, abs=1e-6)
    assert found.margin_list == pytest.approx(0.2)
    assert found.eci_list == pytest.approx(0.266557, abs=1e-6)
    assert found.pair_loss == pytest.approx(-(math.log(0.731059) + math.log(0.598688) + math.log(0.5)) / 3, abs=1e-6)
    assert found.buckets == pytest.approx({
        "inverted": 0, "not_local": 0, "high_coverage": 100 / 3, "valid_high_coverage": 0, "valid_not_local": 0,
    })  # fmt: skip


def scored(world: World, **settings: object) -> Scores:
    return score(world.collection, world.sources, NoEncoder(), ExactStore(), **settings)


def check(found, records, world, **settings):
    """Every figure of a source is that of the plain loop over its records."""
    idf = plain.idf_of(plain.pooled_documents(world.plainly.values()))
    expected = vars(plain.score(records, Texts(), Texts(), idf, **settings))
    for name in expected.keys() - {"information", *WEIGHTINGS}:
        assert getattr(found, name) == pytest.approx(expected[name], abs=1e-9, rel=1e-9), name


@pytest.mark.parametrize("seed", range(6))
def test_every_figure_of_sources_and_hybrids_equals_the_plain_loop(seed):
    world = random_world(seed)
    scores = scored(world, hybrids=3)
    parts = [names for size in (1, 2, 3) for names in combinations(world.sources, size)]
    assert [found.name for found in scores.sources] == ["+".join(names) for names in parts]
    for found, names in zip(scores.sources, parts, strict=True):
        check(found, plain.united(*(world.plainly[name] for name in names)), world)
    assert scores.ranking == [each.name for each in sorted(scores.sources, key=lambda each: -each.eci_sem)]


@pytest.mark.parametrize("temperature", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("regularization", [1e-4, 0.1, 7.0])
def test_temperature_and_lambda_as_in_the_plain_loop(temperature, regularization):
    world = random_world(11)
    found = scored(world, temperature=temperature, regularization=regularization, hybrids=1).sources[0]
    check(found, world.plainly["a"], world, temperature=temperature, regularization=regularization)


def test_the_control_is_scored_like_a_source_of_its_triplets():
    world = random_world(15)
    scores = scored(world, hybrids=1)
    records = scores.measured.records
    control = records.targets(1)[-1]
    assert control.name == CONTROL
    member = control.of(records.members)
    drawn = []
    for at, query in enumerate(records.queries):
        texts = tuple(records.texts[int(d)] for d in records.document[member & (records.record == at)])
        drawn.append(replace(world.plainly["a"][query], negatives=texts))
    assert scores.control is not None
    check(scores.control, drawn, world)


SEEDS = st.integers(0, 2**32 - 1)


def random_geometry(
    rng: np.random.Generator, *, d: int = 6, records: int = 40, documents: int = 30, kind: type = np.float64
) -> Geometry:
    def unit(count: int) -> Vectors:
        drawn = rng.standard_normal((count, d))
        return Vectors.of((drawn / np.linalg.norm(drawn, axis=1, keepdims=True)).astype(kind))

    record = np.sort(np.r_[np.arange(records), rng.integers(records, size=3 * records)])
    return Geometry(
        unit(records), unit(documents), rng.integers(documents, size=records), record,
        rng.integers(documents, size=len(record)),
    )  # fmt: skip


@settings(max_examples=40, deadline=None)
@given(SEEDS)
def test_information_is_positive_semidefinite_and_the_score_between_zero_and_its_trace(seed):
    rng = np.random.default_rng(seed)
    geometry = random_geometry(rng)
    count = len(geometry.record)
    information = information_matrix(geometry, rng.random(count), np.arange(count)) / count
    np.testing.assert_array_equal(information, information.T)
    assert np.linalg.eigvalsh(information).min() >= -1e-14
    assert 0 <= log_det(information) <= np.trace(information)
    assert log_det(information) >= np.trace(information) - 0.5 * np.trace(information @ information) - 1e-14


def test_scores_at_the_ends():
    assert log_det(np.zeros((4, 4))) == 0
    assert log_det(np.eye(4)) == pytest.approx(4 * math.log(2))
    assert log_det(np.eye(4), 0.01) == pytest.approx(4 * math.log(101))
    for bad in (0.0, -1.0, math.nan, math.inf):
        refused("lambda", log_det, np.eye(2), bad)


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("block", [1, 7, 64])
def test_block_size_changes_nothing(kind, block):
    rng = np.random.default_rng(2)
    geometry = random_geometry(rng, kind=kind)
    rows, tolerance = np.arange(len(geometry.record)), 1e-12 if kind is np.float64 else 2e-6
    weights = rng.random(len(rows))
    found, expected = (
        [
            *triplet_similarities(geometry, block=size),
            information_matrix(geometry, weights, rows, block=size) / len(rows),
        ]
        for size in (block, 2048)
    )
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=tolerance)


def test_targets_are_sums_of_their_own_triplets_whatever_the_memory():
    """Overlapping targets, in one group and each alone (a budget of one lower triangle), against one sum of each."""
    rng = np.random.default_rng(3)
    geometry = random_geometry(rng)
    weights, members = rng.random(len(geometry.record)), rng.integers(1, 8, len(geometry.record))
    targets = [Target(f"{bits}", bits) for bits in range(1, 8)]
    whole = information_sums(geometry, weights, members, targets)
    with memory_of(memory.LEAST), pytest.MonkeyPatch.context() as patch:
        patch.setattr(memory, "budget", lambda: 1)
        alone = information_sums(geometry, weights, members, targets)
    for target in targets:
        np.testing.assert_array_equal(whole[target.name], alone[target.name])
        rows = np.flatnonzero(target.of(members))
        expected = information_matrix(geometry, weights, rows)
        np.testing.assert_allclose(whole[target.name], expected, atol=1e-12)


def test_a_record_of_many_negatives_among_records_of_few():
    """Rectangles of records are cut by the longest list; a list longer than a rectangle stands alone."""
    rng = np.random.default_rng(5)
    base = random_geometry(rng, documents=40)
    record = np.sort(np.r_[np.zeros(5000, np.int64), base.record])
    geometry = Geometry(base.queries, base.documents, base.positive, record, rng.integers(40, size=len(record)))
    s_p, s_n, *_ = triplet_similarities(geometry)
    member = rng.random(len(record)) < 0.5
    member[np.unique(record, return_index=True)[1]] = True
    member[record == 7] = False
    found = gradient_energies(geometry, s_p, s_n, [member, ~member], 0.1)
    assert np.isnan(found[7, 0])
    for t in (0, 3, 39):
        rows = np.flatnonzero(member & (record == t))
        vectors = np.vstack([
            geometry.documents.take([geometry.positive[t]]), geometry.documents.take(geometry.document[rows])
        ])  # fmt: skip
        logits = vectors @ geometry.queries.take([t])[0] / 0.1
        shares = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        assert found[t, 0] == pytest.approx((((shares @ vectors) - vectors[0]) ** 2).sum() / 0.01, rel=1e-9)


def test_the_gradient_energy_is_that_of_the_listwise_loss_by_finite_differences():
    rng = np.random.default_rng(6)
    geometry = random_geometry(rng, records=1, documents=6)
    u, documents = geometry.queries.take([0])[0], geometry.documents.take(np.arange(6))
    negatives_of = documents[geometry.document]

    def loss(query):
        logits = np.r_[documents[geometry.positive[0]] @ query, negatives_of @ query] / 0.2
        return float(np.log(np.exp(logits).sum()) - logits[0])

    gradient = [(loss(u + step) - loss(u - step)) / 2e-6 for step in np.eye(6) * 1e-6]
    s_p, s_n, *_ = triplet_similarities(geometry)
    energy = gradient_energies(geometry, s_p, s_n, [np.ones(len(s_n), bool)], 0.2)
    assert energy[0, 0] == pytest.approx(float(np.square(gradient).sum()), rel=1e-6)


def test_margin_hardness_is_the_squared_gradient_of_the_pair_loss():
    """∂(−log ρ)/∂u = −(1 − ρ)/τ·(v⁺ − v⁻), eq. 24."""
    rng = np.random.default_rng(7)
    u, positive, negative = rng.standard_normal((3, 5))

    def loss(query):
        return float(pair_loss(np.array([query @ positive]), np.array([query @ negative]), 0.3)[0])

    gradient = np.array([(loss(u + step) - loss(u - step)) / 2e-6 for step in np.eye(5) * 1e-6])
    similarities = Similarities(
        np.array([u @ positive]), np.array([u @ negative]), np.array([positive @ negative]), np.array([0.25]),
        np.array([((positive - negative) ** 2).sum()]), 0.3,
    )  # fmt: skip
    hardness = WEIGHTINGS["margin_hardness"](similarities)[0]
    assert hardness == pytest.approx(gradient @ gradient, rel=1e-6)
    eta = semantic_locality(similarities.s_pn, similarities.s_n, 0.3)[0]
    assert WEIGHTINGS["gradient_weighted"](similarities)[0] == pytest.approx(hardness * eta * 0.75)
    rho = target_consistency(similarities.s_p, similarities.s_n, 0.3)[0]
    assert gated(similarities)[0] == pytest.approx(rho * eta * 0.75)


@pytest.mark.parametrize("seed", range(4))
def test_order_of_records_of_rows_and_of_judgements_changes_nothing(seed):
    world, rng = random_world(seed), np.random.default_rng(seed)
    queries = world.collection.queries.to_pylist()
    judged: dict[str, dict[str, int]] = {}
    for row in world.collection.judgements("train").to_pylist():
        judged.setdefault(row["query_id"], {})[row["doc_id"]] = row["relevance"]
    documents = {row["doc_id"]: row["text"] for row in world.collection.documents.to_pylist()}
    ids = [str(key) for key in rng.permutation([row["query_id"] for row in queries])]
    texts = {row["query_id"]: row["text"] for row in queries}
    shuffled = Collection.from_dicts(
        "world",
        {str(key): documents[str(key)] for key in rng.permutation(list(documents))},
        {key: texts[key] for key in ids[::-1]},
        {"train": {key: judged[key] for key in ids}},
    )
    tables = {name: Negatives(of.table.take(rng.permutation(len(of)))) for name, of in world.sources.items()}
    first, second = (scored(each, control=False) for each in (world, World(shuffled, tables, {})))
    assert (first.ranking, first.idf_corpus) == (second.ranking, second.idf_corpus)
    for a, b in zip(first.sources, second.sources, strict=True):
        for key, value in a.to_json().items():
            exact = value is None or isinstance(value, (str, bool))
            assert b.to_json()[key] == (value if exact else pytest.approx(value, rel=1e-9, abs=1e-12)), key


# Intervals from blocks of records: pseudo-values, width, coverage at every λ, seeds, memory


WHOLE = Target("s", 1)


def world(rng: np.random.Generator, records: int, *, d: int = 4, each: int = 3) -> tuple[Geometry, np.ndarray]:
    """Records with a hardness of their own, so that their negatives' weights belong together."""
    drawn = rng.standard_normal((records * (each + 1), d)) + np.array([2, *[0] * (d - 1)])
    documents = Vectors.of(drawn / np.linalg.norm(drawn, axis=1, keepdims=True))
    record = np.repeat(np.arange(records), each)
    geometry = Geometry(
        documents.select(np.arange(records)), documents, np.arange(records), record,
        np.arange(records, records * (each + 1)),
    )  # fmt: skip
    return geometry, rng.beta(2, 3, records)[record] * rng.uniform(0.5, 1, len(record))


def with_blocks(
    rng: np.random.Generator, records: int, *, regularization: float = 1.0, **shape: int
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """The score of a world, and the scores without each block."""
    geometry, weights = world(rng, records, **shape)
    members = np.ones(len(weights), np.int64)
    sums = information_sums(geometry, weights, members, [WHOLE])
    blocks = assign_blocks(records, rng)
    left_out = leave_out(geometry, weights, members, sums, [WHOLE], blocks, regularization=regularization)
    return {"s": log_det(sums["s"] / len(weights), regularization)}, left_out


@pytest.mark.parametrize("regularization", [1.0, 0.01])
def test_leaving_a_block_out_is_scoring_the_others(regularization):
    """Two overlapping sources and their union: the second pass against scoring the other records' triplets alone."""
    rng = np.random.default_rng(0)
    geometry, weights = world(rng, 30)
    members, blocks = rng.integers(1, 4, len(weights)), assign_blocks(30, rng, blocks=7)
    members[geometry.record == 0] = 2  # block of record 0: may hold none of the first source
    targets = [Target("a", 1), Target("b", 2), Target("a+b", 3)]
    found = leave_out(
        geometry, weights, members, information_sums(geometry, weights, members, targets), targets, blocks,
        regularization=regularization,
    )  # fmt: skip
    for target in targets:
        for block in range(7):
            rows = np.flatnonzero(target.of(members) & (blocks[geometry.record] != block))
            expected = log_det(information_matrix(geometry, weights, rows) / len(rows), regularization)
            assert found[target.name][block] == pytest.approx(expected, rel=1e-10)


def test_the_pseudo_values_of_a_mean_are_its_terms():
    """Three blocks score 1, 2, 6: their mean 3; left out 4, 3.5, 1.5. No bias."""
    np.testing.assert_allclose(resampled(3.0, np.array([4, 3.5, np.nan, 1.5]), np.ones((5, 4))), 3.0)


def test_the_jackknife_takes_the_bias_of_a_square_away():
    """θ = x̄² exceeds μ² by σ²/n; the jackknife estimates just s²/n of it (Quenouille 1956)."""
    x = np.random.default_rng(0).normal(2, 1, 20)
    left_out = ((x.sum() - x) / 19) ** 2
    (unbiased,) = resampled(x.mean() ** 2, left_out, np.ones((1, 20)))
    assert x.mean() ** 2 - unbiased == pytest.approx(x.var(ddof=1) / 20)


def test_intervals_cover_the_score_of_the_population():
    """120 samples of 400 records: 95 % intervals hold the population's score in 88 to 99 %."""
    geometry, weights = world(np.random.default_rng(5), 40_000)
    truth = log_det(information_matrix(geometry, weights, np.arange(len(weights))) / len(weights))
    rng = np.random.default_rng(6)
    held = 0
    for _ in range(120):
        low, high = interval(bootstrap(*with_blocks(rng, 400), rng, replicates=100)["s"])
        held += low <= truth <= high
    assert 0.88 <= held / 120 <= 0.99


@pytest.mark.slow
@pytest.mark.parametrize(("records", "d", "each"), [(128, 64, 5), (64, 64, 1), (20, 16, 2)])
def test_intervals_cover_at_every_lambda_where_there_are_any(records, d, each):
    """200 samples each. Where most samples have an interval, 0.9 of those or more hold the population's score; where
    a small λ makes the bias too large (64 triplets in 64 dimensions), most have none."""
    geometry, weights = world(np.random.default_rng(7), 60_000 // each, d=d, each=each)
    information = information_matrix(geometry, weights, np.arange(len(weights))) / len(weights)
    claims = {}
    for regularization in (1.0, 0.1, 0.01, 0.001, 1e-4):
        truth, rng = log_det(information, regularization), np.random.default_rng(18)
        held, claimed = [], []
        for _ in range(200):
            found = with_blocks(rng, records, regularization=regularization, d=d, each=each)
            low, high = interval(bootstrap(*found, rng, replicates=300)["s"])
            held.append(low <= truth <= high)
            claimed.append(not math.isnan(low))
        claims[regularization] = float(np.mean(claimed))
        if sum(claimed) > 100:
            assert np.mean(np.array(held)[claimed]) >= 0.9, regularization
    assert claims[1.0] == claims[0.1] == 1
    assert claims[1e-4] < 0.5


def test_a_small_lambda_and_few_records_give_no_interval():
    """64 triplets span 64 dimensions barely: the score at λ = 1e-4 is far below that of many records."""
    rng = np.random.default_rng(10)
    score, left_out = with_blocks(rng, 64, regularization=1e-4, d=64, each=1)
    assert np.isnan(bootstrap(score, left_out, rng)["s"]).all()


def test_fewer_than_two_blocks_give_no_interval():
    """One record, one block of a hundred that holds the source, no replicates."""
    rng = np.random.default_rng(9)
    alone = {"s": 1.0}, {"s": np.r_[np.nan, np.full(99, np.nan)]}
    for found, replicates in ((with_blocks(rng, 1), 100), (alone, 100), (with_blocks(rng, 10), 0)):
        drawn = bootstrap(*found, rng, replicates=replicates)["s"]
        assert all(math.isnan(end) for end in interval(drawn))


def test_heuristics_that_eci_is_compared_with():
    """ECI equations 11 and 12, by hand."""
    assert gradient_norm(0.6, 25, 0.05) == pytest.approx(25 * np.exp(12))
    assert score_variance(0.8, 0.6) == pytest.approx(0.02)
