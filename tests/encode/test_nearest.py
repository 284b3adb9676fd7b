"""Exact search: the same bits however the work is cut, and what a plain sort finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foils.encode import Vectors, nearest
from foils.encode.nearest import rank_rows, top_inner_products


def made(rng, n, d, *, kind):
    """Vectors that are hard to tell apart: copies, near copies, lengths that grow, or nothing special."""
    x = rng.standard_normal((n, d)).astype(np.float32)
    if kind == "copies":
        x = x[rng.integers(0, max(1, n // 4), n)]
    elif kind == "near copies":
        x = x[rng.integers(0, max(1, n // 4), n)]
        x.view(np.int32)[:] += rng.integers(-2, 3, x.shape).astype(np.int32)  # the last digit
    elif kind == "growing":
        x *= np.geomspace(1e-3, 1e3, n, dtype=np.float32)[:, None]
    return x


def bits(found):
    rows, scores = found
    return rows.tobytes() + scores.tobytes()


@settings(max_examples=60)
@given(
    st.integers(1, 90), st.integers(1, 40), st.integers(1, 12), st.integers(1, 50), st.integers(1, 100),
    st.integers(0, 2**32 - 1), st.sampled_from(["plain", "copies", "near copies", "growing"]),
)  # fmt: skip
def test_blocks_do_not_change_one_bit(documents, d, queries, depth, block, seed, kind):
    rng = np.random.default_rng(seed)
    held, asked = Vectors.of(made(rng, documents, d, kind=kind)), made(rng, queries, d, kind="plain")
    whole = bits(top_inner_products(asked, held, depth))
    assert bits(top_inner_products(asked, held, depth, block=block)) == whole
    alone = [top_inner_products(asked[[row]], held, depth, block=block) for row in range(queries)]
    assert bits(tuple(np.concatenate(part) for part in zip(*alone, strict=True))) == whole


@pytest.mark.parametrize("kind", ["plain", "copies", "near copies", "growing"])
@pytest.mark.parametrize("many", [2, 256])
def test_what_is_found_are_the_best_of_all_pairs(kind, many, monkeypatch):
    """Against a sort of every pair's own product; `many` small lets crowded queries be thinned out again and again."""
    monkeypatch.setattr(nearest, "MANY", many)
    rng = np.random.default_rng(3)
    held, asked = made(rng, 700, 24, kind=kind), made(rng, 9, 24, kind="plain")
    every, products = rank_rows(asked, Vectors.of(held), [np.arange(700)] * 9)
    for depth in (1, 6, 300):
        rows, scores = top_inner_products(asked, Vectors.of(held), depth, block=50)
        np.testing.assert_array_equal(rows, np.array(every)[:, :depth])
        np.testing.assert_array_equal(scores, np.array(products)[:, :depth])
    true = asked.astype(np.float64) @ held.T.astype(np.float64)
    found = np.take_along_axis(true, np.array(every), axis=1)
    slack = 1e-6 * np.linalg.norm(asked, axis=1)[:, None] * np.linalg.norm(held, axis=1).max()
    assert (np.diff(found, axis=1) <= slack).all(), "falling, up to rounding"


@pytest.mark.parametrize("kind", ["plain", "copies", "near copies", "growing"])
@pytest.mark.parametrize("many", [2, 256])
def test_a_device_that_screens_does_not_change_one_bit(kind, many, monkeypatch):
    """Torch's processor stands in for a GPU; another order of the sum, as a GPU has one, for its rounding."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(nearest, "MANY", many)
    rng, multiplied = np.random.default_rng(5), []
    held, asked = Vectors.of(made(rng, 500, 24, kind=kind)), made(rng, 30, 24, kind="plain")
    original = torch.Tensor.__matmul__

    def backwards(one, other):
        multiplied.append(torch.get_float32_matmul_precision())
        return original(one.flip(1), other.flip(0))

    monkeypatch.setattr(torch.Tensor, "__matmul__", backwards)
    torch.set_float32_matmul_precision("high")
    try:
        for depth in (1, 7, 80, 600):
            whole = bits(top_inner_products(asked, held, depth))
            assert bits(top_inner_products(asked, held, depth, block=90, device="cpu")) == whole
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert set(multiplied) == {"highest"}


@pytest.mark.parametrize("kind", ["plain", "near copies"])
def test_strips_and_buffers_do_not_change_one_bit(kind, monkeypatch):
    """Seven strips of queries, and buffers for one query or a few, side by side."""
    rng = np.random.default_rng(8)
    held, asked = Vectors.of(made(rng, 400, 16, kind=kind)), made(rng, 20, 16, kind="plain")
    whole = bits(top_inner_products(asked, held, 9, block=64))
    lists = [rng.permutation(400)[: rng.integers(0, 60)] for _ in range(20)]
    ranked = rank_rows(asked, held, lists)
    for strip, buffer in ((3, 1), (3, 4 * 16 * 150), (20, 1)):
        monkeypatch.setattr(nearest, "STRIP", strip)
        monkeypatch.setattr(nearest, "BUFFER", buffer)
        assert bits(top_inner_products(asked, held, 9, block=64)) == whole
        again = rank_rows(asked, held, lists)
        assert [[each.tobytes() for each in part] for part in again] == [
            [each.tobytes() for each in part] for part in ranked
        ]


def test_zero_of_either_sign_is_one_score_and_negative_ones_come_last():
    held = np.array([[-1, 0], [-0.0, 1], [0, 1], [-2, 0], [1, 0]], np.float32)
    rows, products = rank_rows(np.array([[1, 0]], np.float32), Vectors.of(held), [np.array([4, 3, 2, 1, 0])])
    assert rows[0].tolist() == [4, 1, 2, 0, 3]
    assert products[0].tolist() == [1, 0, 0, -1, -2]
    assert not np.signbit(products[0][1:3]).any()


def test_a_pair_has_its_product_whoever_else_is_asked_for():
    rng = np.random.default_rng(0)
    held, asked = Vectors.of(made(rng, 300, 33, kind="plain")), made(rng, 40, 33, kind="plain")
    lists = [rng.permutation(300)[: rng.integers(0, 200)] for _ in range(40)]
    together = rank_rows(asked, held, lists)
    for row in range(40):
        alone = rank_rows(asked[[row]], held, [lists[row]])
        assert [part[0].tobytes() for part in alone] == [part[row].tobytes() for part in together]
        assert set(alone[0][0]) == set(lists[row])
    assert rank_rows(asked[:0], held, []) == ([], [])


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_vectors_are_read_as_they_are_stored(kind):
    rng = np.random.default_rng(1)
    stored, order = rng.standard_normal((50, 8)).astype(kind), rng.permutation(50)
    held = Vectors(stored, order)
    plain = stored[order].astype(np.float32)
    asked = rng.standard_normal((4, 8)).astype(np.float32)
    expected = top_inner_products(asked, Vectors.of(plain), 7)
    assert bits(top_inner_products(asked, held, 7, block=9)) == bits(expected)
    space = np.full((60, 8), np.nan, np.float32)
    assert np.shares_memory(held.take([3, 9, 3], out=space[:3]), space)
    np.testing.assert_array_equal(space[:3], plain[[3, 9, 3]])
    assert np.isnan(space[3:]).all()
    contiguous = Vectors.of(plain)
    np.testing.assert_array_equal(contiguous.take(np.array([4, 0]), out=space[:2]), plain[[4, 0]])
    with pytest.raises(IndexError):
        contiguous.take(np.array([50]), out=space[:1])


def test_ties_are_thinned_out():
    """Equal documents crowd the screen of every query."""
    held = Vectors.of(np.ones((600, 4), np.float32))
    screen = nearest._Screen(np.ones((300, 4), np.float32), held, 5)
    screen.add(0, held.take(slice(None)))
    assert [row.tolist() for row in screen.rows()] == [[0, 1, 2, 3, 4]] * 300
