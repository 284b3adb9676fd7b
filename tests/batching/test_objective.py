"""HOBIT's objective, and conflicts of a batch."""

from itertools import combinations

import numpy as np
import pytest
from batch_vectors import clustered
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from foils.batching import (
    METHODS,
    Batches,
    batch_hardness,
    find_conflicts,
    greedy,
    hardness,
    marginal_gain,
    smooth_hardness,
)  # fmt: skip
from foils.batching.batches import separate_conflicts, shuffled, swap_conflicts
from foils.runtime.errors import InputError

TAUS = st.sampled_from([1e-3, 0.05, 1.0, 30.0])


def weight_matrices(seeds: int = 3, members: int = 7):
    return arrays(np.float64, (seeds, members), elements=st.floats(-2, 2, width=32))


def test_hardness_by_hand():
    # q·d − α p·d with q = e1, p = e2: the first document is hard, the second is the positive itself
    q, p = np.array([[1.0, 0.0]]), np.array([[0.0, 1.0]])
    d = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    np.testing.assert_allclose(hardness(q, p, d), [[1.0, -1.0, -0.2]])
    np.testing.assert_allclose(hardness(q, p, d, alpha=0.0), [[1.0, 0.0, 0.6]])


def test_objectives_by_hand():
    w = np.array([[0.0, np.log(3.0)], [1.0, 1.0]])
    assert batch_hardness(w) == pytest.approx(np.log(3) + 1)
    assert smooth_hardness(w, tau=1.0) == pytest.approx(np.log(4) + 1 + np.log(2))
    # adding a member of weight (0, 1): log(1 + 1/4) + log(1 + 1/2)
    assert marginal_gain(w, np.array([[0.0], [1.0]]), tau=1.0)[0] == pytest.approx(np.log(5 / 4) + np.log(3 / 2))


@given(weight_matrices(), TAUS)
def test_bounds_eq_11(w, tau):
    s, b = w.shape
    smooth, hard = smooth_hardness(w, tau=tau), batch_hardness(w)
    assert hard - 1e-9 <= smooth <= hard + s * tau * np.log(b) + 1e-9


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("drift", [1e-3, 0.1, 0.5])
def test_the_objective_moves_no_more_than_the_vectors_allow(alpha, drift):
    """HOBIT Lemma A.5: for unit vectors that moved by at most ε, H̃ of a batch moved by at most s (2 + 2α) ε."""
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(50):
        before = rng.normal(size=(2, 12, 6))
        before /= np.linalg.norm(before, axis=2, keepdims=True)
        after = before + drift * rng.normal(size=before.shape)
        after /= np.linalg.norm(after, axis=2, keepdims=True)
        moved = np.linalg.norm(after - before, axis=2).max()
        values = [smooth_hardness(hardness(q[:4], d[:4], d, alpha=alpha)) for q, d in (before, after)]
        ratios.append(abs(values[1] - values[0]) / (4 * (2 + 2 * alpha) * moved))
    assert max(ratios) <= 1
    assert max(ratios) > 0.02, "a bound that says something"


@given(weight_matrices(), weight_matrices())
def test_limits_eq_12_to_15(first, second):
    tiny, huge, (s, b) = 1e-9, 1e7, first.shape
    assert smooth_hardness(first, tau=tiny) == pytest.approx(batch_hardness(first), abs=1e-6)
    difference = smooth_hardness(first, tau=tiny) - smooth_hardness(second, tau=tiny)
    assert difference == pytest.approx(batch_hardness(first) - batch_hardness(second), abs=1e-6)
    # for large τ the rest is of order 1/τ, and rounding of order τ · 1e-16: batches are ordered by their mean weights
    for w in (first, second):
        mean = w.mean(axis=1).sum()
        assert smooth_hardness(w, tau=huge) == pytest.approx(s * huge * np.log(b) + mean, abs=1e-5)


@given(weight_matrices(members=8), TAUS)
def test_marginal_gain_is_the_difference_eq_16(w, tau):
    before, candidates = w[:, :4], w[:, 4:]
    gains = marginal_gain(before, candidates, tau=tau)
    for v in range(candidates.shape[1]):
        after = np.concatenate([before, candidates[:, [v]]], axis=1)
        assert gains[v] == pytest.approx(smooth_hardness(after, tau=tau) - smooth_hardness(before, tau=tau), abs=1e-9)


@given(weight_matrices(members=8), TAUS)
def test_monotone_and_submodular(w, tau):
    small, large, v = w[:, :3], w[:, :6], w[:, [7]]
    assert marginal_gain(large, v, tau=tau)[0] >= 0
    assert marginal_gain(small, v, tau=tau)[0] >= marginal_gain(large, v, tau=tau)[0] - 1e-12


@settings(max_examples=40, deadline=None)
@given(weight_matrices(members=9), st.sampled_from([0.05, 0.5, 5.0]))
def test_greedy_reaches_its_share_of_the_optimum(w, tau):
    seeds, candidates, size = w[:, :2], w[:, 2:], 3
    start = smooth_hardness(seeds, tau=tau)

    def increase(chosen):
        return smooth_hardness(np.concatenate([seeds, candidates[:, list(chosen)]], axis=1), tau=tau) - start

    best = max(increase(chosen) for chosen in combinations(range(candidates.shape[1]), size))
    assert increase(greedy(seeds, candidates, size=size, tau=tau)) >= (1 - 1 / np.e) * best - 1e-9


def loss_and_gradient(query, documents, temperature):
    torch = pytest.importorskip("torch")
    q = torch.tensor(query, dtype=torch.float64, requires_grad=True)
    scores = torch.tensor(documents, dtype=torch.float64) @ q / temperature
    loss = torch.nn.functional.cross_entropy(scores[None], torch.tensor([0]))
    loss.backward()
    return q.grad.numpy(), torch.softmax(scores, 0).detach().numpy()


@pytest.mark.parametrize("temperature", [0.05, 1.0])
def test_gradient_lemma_against_autograd(temperature):
    rng = np.random.default_rng(3)
    query, documents = rng.standard_normal(6), rng.standard_normal((5, 6))
    expected, shares = loss_and_gradient(query, documents, temperature)
    np.testing.assert_allclose((shares @ documents - documents[0]) / temperature, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(20))
def test_dominant_negative_bound_eq_5(seed):
    rng, tau = np.random.default_rng(seed), 0.2
    vectors = rng.standard_normal((6, 4))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    query, documents = vectors[0], vectors[1:]
    gradient, p = loss_and_gradient(query, documents, tau)
    for j in range(1, len(documents)):
        rest = 1 - p[0] - p[j]
        bound = p[j] / tau * np.sqrt(2 * (1 - documents[0] @ documents[j])) - 2 * rest / tau
        assert np.linalg.norm(gradient) >= bound - 1e-9


def test_other_bad_input_is_refused():
    with pytest.raises(InputError, match="alpha"):
        hardness(np.ones((1, 2)), np.ones((1, 2)), np.ones((1, 2)), alpha=-1)


def contradictions(batches, conflicts):
    return sum(int(conflicts.matrix(b).sum()) for b in batches)


def test_mask_by_hand():
    # rows: (a, x), (a, y), (b, x), (c, z); and c is known to be answered by y
    conflicts = find_conflicts(list("aabc"), list("xyxz"), positives=[("c", "y"), ("c", "unknown"), ("nobody", "x")])
    expected = [
        [0, 1, 1, 0],  # a is answered by y of row 1 and by x of row 2
        [1, 0, 1, 0],
        [1, 0, 0, 0],  # b is answered by x of row 0
        [0, 1, 0, 0],  # c is answered by y of row 1
    ]
    np.testing.assert_array_equal(conflicts.matrix(np.arange(4)), np.array(expected, bool))
    # the mask follows the order of the rows
    np.testing.assert_array_equal(conflicts.matrix(np.array([3, 1])), [[False, True], [False, False]])


names = st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), min_size=1, max_size=40)


@settings(deadline=None, max_examples=60)
@given(names, names, st.integers(1, 8), st.integers(0, 3))
def test_dealt_is_a_partition_and_mask_is_the_definition(pairs, extra, size, seed):
    queries, documents = [q for q, _ in pairs], [d for _, d in pairs]
    conflicts = find_conflicts(queries, documents, positives=extra)
    known = set(pairs) | set(extra)
    rows = np.arange(len(pairs))
    expected = [[(queries[i], documents[j]) in known and i != j for j in rows] for i in rows]
    np.testing.assert_array_equal(conflicts.matrix(rows), np.array(expected))
    batches = separate_conflicts(rows, conflicts, batch_size=size, rng=np.random.default_rng(seed))
    assert sorted(batches.order.tolist()) == rows.tolist()


def test_dealt_defers_a_row_to_the_next_batch():
    conflicts = find_conflicts([0, 0, 1, 2, 3, 4], list(range(6)))
    batches = separate_conflicts(np.arange(6), conflicts, batch_size=3, rng=np.random.default_rng(0))
    np.testing.assert_array_equal(batches.order, [0, 2, 3, 1, 4, 5])


def test_repair_swaps_conflicts_away_and_never_adds_any():
    queries = np.repeat(np.arange(50), 4)
    conflicts = find_conflicts(queries.tolist(), list(range(200)))
    worst = Batches(np.arange(200), 20)
    assert contradictions(worst, conflicts) == 50 * 4 * 3
    assert contradictions(swap_conflicts(worst, conflicts, rng=np.random.default_rng(0)), conflicts) == 0


FAST = {"walks": {"candidates": 100, "neighbours": 20}, "b3": {"skip": 3, "ranks": 20}}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_keeps_known_positives_apart(name):
    # 2 rows per query, 4 rows per document: hard methods pull exactly these together
    queries, documents = clustered(400, 16, 20)
    who = np.random.default_rng(1).integers(400, size=800)
    what = who // 4 + 100 * np.random.default_rng(2).integers(2, size=800)
    pairs = queries[who], documents[what]
    conflicts = find_conflicts(who.tolist(), what.tolist())
    build, chosen = METHODS[name].build, {"batch_size": 32, **FAST.get(name, {})}
    free = build(*pairs, rng=np.random.default_rng(0), **chosen)
    kept = build(*pairs, rng=np.random.default_rng(0), conflicts=conflicts, **chosen)
    assert sorted(kept.order.tolist()) == list(range(800))
    assert contradictions(free, conflicts) > 10
    assert contradictions(kept, conflicts) == 0


def test_batches_must_be_a_partition():
    with pytest.raises(InputError, match="each of the rows 0 to 3 once"):
        Batches(np.array([0, 2, 2, 7]), 2)
    with pytest.raises(InputError, match="batch_size"):
        Batches(np.arange(3), 0)


def test_shuffled_keeps_batches_whole_and_the_short_one_last():
    batches = Batches(np.arange(50), 8)
    mixed = shuffled(batches, rng=np.random.default_rng(0))
    assert sorted(b.tolist() for b in mixed) == sorted(b.tolist() for b in batches)
    assert mixed[-1].tolist() == [48, 49]
    assert not np.array_equal(mixed.order, batches.order)
