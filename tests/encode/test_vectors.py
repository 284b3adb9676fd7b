"""The store of vectors, in which nothing is embedded twice whatever happens to it, and exact search over them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes import HashingEncoder
from foils.data import Collection
from foils.data.collection import DocumentTexts
from foils.encode import Kind, Vectors, VectorStore, nearest, vectors
from foils.encode.nearest import rank_rows, top_inner_products
from foils.encode.vectors import text_keys
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError
from refusals import refused

TEXTS = [f"text number {i} of the wind" for i in range(40)]


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "BLOCK", 4)
    monkeypatch.setattr(vectors, "SLICE", 10)


def expected(texts: Sequence[str], encoder: HashingEncoder | None = None) -> np.ndarray:
    return (encoder or HashingEncoder()).encode(texts, "document")


def stored(folder: Path, name: str = "vectors") -> Path:
    (path,) = folder.rglob(name)
    return path


def test_vectors_come_in_the_order_of_the_texts(tmp_path: Path, encoder: HashingEncoder) -> None:
    found = VectorStore(tmp_path).embed(encoder, TEXTS, "document")
    assert len(found) == 40
    assert found.dimension == 32
    np.testing.assert_array_equal(found.take(np.arange(40)), expected(TEXTS))
    assert [len(call) for call in encoder.calls] == [4, 4, 2] * 4, "slices of 10 in blocks of 4"
    VectorStore(tmp_path).embed(longest := HashingEncoder(), ["x" * length for length in (3, 9, 1, 7, 5)], "document")
    assert [len(text) for call in longest.calls for text in call] == [9, 7, 5, 3, 1]


def test_nothing_is_embedded_twice(tmp_path: Path, encoder: HashingEncoder) -> None:
    store = VectorStore(tmp_path)
    store.embed(encoder, TEXTS[:25], "document")
    assert encoder.encoded == 25
    again = store.embed(encoder, TEXTS, "query")  # no prompts, one tower: a query's vector is the document's
    assert encoder.encoded == 40
    later = VectorStore(tmp_path).embed(encoder, TEXTS[::-1], "document")
    assert encoder.encoded == 40
    np.testing.assert_array_equal(again.take(np.arange(40)), later.take(np.arange(40))[::-1])


def test_progress_counts_each_distinct_text_once(tmp_path: Path, encoder: HashingEncoder) -> None:
    told: list[list[int]] = []

    def reporter(_: str, total: int | None, unit: str) -> AbstractContextManager[progress.Advance]:
        told.append([total or 0])
        return nullcontext(told[-1].append)

    store = VectorStore(tmp_path)
    with progress.reporting(reporter):
        store.embed(encoder, ["a", "b", "a", "b", "c", "a"], "document")
        store.embed(encoder, ["d", "a", "a", "e", "d", "d"], "document")
    assert [(total, sum(done)) for total, *done in told] == [(3, 3), (3, 3)]
    assert told[1][1] == 1, "what is there already counts at once"


def test_only_spread_rows_have_a_vector() -> None:
    spread = Vectors.of(np.eye(2, dtype=np.float32)).spread([3, 1], 5)
    assert len(spread) == 5
    assert spread.take([1, 3, 1]).tolist() == [[0, 1], [1, 0], [0, 1]]
    for taken in (lambda: spread.take([1, 0]), lambda: spread.select([1, 4]).take(slice(None))):
        refused("1 of 2 rows have no vector", taken)


def test_texts_are_told_apart_exactly(tmp_path: Path, encoder: HashingEncoder) -> None:
    texts = ["wind", "Wind", "wind ", " wind", "", " ", "wind\n", "w\x1find"]
    VectorStore(tmp_path).embed(encoder, texts, "document")
    assert encoder.encoded == len(texts)
    assert len(np.unique(text_keys(texts, ""), axis=0)) == len(texts)
    assert not (text_keys(["ab"], "") == text_keys(["b"], "a")).all()


def test_no_texts(tmp_path: Path, encoder: HashingEncoder) -> None:
    found = VectorStore(tmp_path).embed(encoder, [], "query")
    assert len(found) == 0
    assert found.take([]).shape == (0, 32)
    assert list(found.blocks(3)) == []


def test_another_model_or_prompt_never_meets_these_vectors(tmp_path: Path) -> None:
    store, tuned = VectorStore(tmp_path), HashingEncoder(salt="tuned")
    prompted = HashingEncoder(prompts={"query": "a "})
    store.embed(HashingEncoder(), TEXTS, "document")
    found = store.embed(tuned, TEXTS, "document")
    assert tuned.encoded == 40
    np.testing.assert_array_equal(found.take([0, 9]), expected([TEXTS[0], TEXTS[9]], HashingEncoder(salt="tuned")))
    store.embed(prompted, TEXTS[:5], "document")
    assert prompted.encoded == 0
    found = store.embed(prompted, TEXTS[:5], "query")
    assert prompted.encoded == 5
    np.testing.assert_array_equal(found.take([1]), expected([f"a {TEXTS[1]}"]))


class Killed(HashingEncoder):
    """Dies at the given call."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at

    def encode(self, texts: Sequence[str], kind: Kind) -> np.ndarray:
        if len(self.calls) == self.at:
            raise KeyboardInterrupt
        return super().encode(texts, kind)


@pytest.mark.parametrize("at", [0, 3])
def test_after_a_kill_only_the_rest_is_encoded(tmp_path: Path, at: int) -> None:
    killed = Killed(at)
    with pytest.raises(KeyboardInterrupt):
        VectorStore(tmp_path).embed(killed, TEXTS, "document")
    encoder = HashingEncoder()
    found = VectorStore(tmp_path).embed(encoder, TEXTS, "document")
    assert encoder.encoded == 40 - killed.encoded
    np.testing.assert_array_equal(found.take(np.arange(40)), expected(TEXTS))


@pytest.mark.parametrize(("name", "left"), [
    ("vectors", -1), ("vectors", -130), ("keys", -1), ("keys", -24), ("keys", 0), ("vectors keys", None),
])  # fmt: skip
def test_what_is_half_written_is_written_again(
    tmp_path: Path, encoder: HashingEncoder, name: str, left: int | None
) -> None:
    """`left` are the bytes that stay, from the end; None: it is a file of something else."""
    VectorStore(tmp_path).embed(encoder, TEXTS[:20], "document")
    for path in (stored(tmp_path, each) for each in name.split()):
        path.write_bytes(np.random.default_rng(0).bytes(9_999) if left is None else path.read_bytes()[:left])
    fresh = HashingEncoder()
    found = VectorStore(tmp_path).embed(fresh, TEXTS, "document")
    assert fresh.encoded == (22 if left else 40), "the last block is one of two texts"
    np.testing.assert_array_equal(found.take(np.arange(40)), expected(TEXTS))
    VectorStore(tmp_path).embed(fresh, TEXTS, "document")
    assert fresh.encoded <= 40


@pytest.mark.parametrize("name", ["vectors", "keys"])
@pytest.mark.parametrize("at", [0, 9, 500, -1])
def test_a_block_that_changed_is_embedded_again(tmp_path: Path, encoder: HashingEncoder, name: str, at: int) -> None:
    store = VectorStore(tmp_path)
    store.embed(encoder, TEXTS, "document")
    path = stored(tmp_path, name)
    data = bytearray(path.read_bytes())
    data[at] ^= 0x80
    path.write_bytes(data)
    fresh = HashingEncoder()
    for count in (40, 40, 1):
        found = VectorStore(tmp_path).embed(fresh, TEXTS[:count], "document")
        assert 1 <= fresh.encoded <= 8, "a key that changed may cut its block in two"
        np.testing.assert_array_equal(found.take(np.arange(count)), expected(TEXTS[:count]))


def test_only_the_blocks_that_are_asked_for_are_read(
    tmp_path: Path, encoder: HashingEncoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    VectorStore(tmp_path).embed(encoder, TEXTS, "document")
    read: list[int] = []
    checksum = vectors._checksum
    monkeypatch.setattr(vectors, "_checksum", lambda start, *of: read.append(int(start)) or checksum(start, *of))
    store = VectorStore(tmp_path)
    for _ in range(2):
        store.embed(encoder, TEXTS[:1], "document")
    assert len(read) == 1, "once in a process"


class Fixed(HashingEncoder):
    """Gives what it is told to."""

    def __init__(self, values: np.ndarray) -> None:
        super().__init__(2)
        self.values = values

    def encode(self, texts: Sequence[str], kind: Kind) -> np.ndarray:
        return self.values


def test_vectors_that_are_not_finite_are_refused_and_not_kept(tmp_path: Path) -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(FailureError, match=r"1 vectors of hashing are NaN or infinite \(first text: 'b'\)"):
            VectorStore(tmp_path).embed(Fixed(np.array([[1, 0], [0, bad]], np.float32)), ["a", "b"], "document")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shape", [(1, 2), (2, 3), (2,)])
def test_an_encoder_that_gives_another_shape_than_it_says(tmp_path: Path, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match=r"hashing gave vectors of shape .* for 2 texts; expected \(2, 2\)"):
        VectorStore(tmp_path).embed(Fixed(np.ones(shape, np.float32)), ["a", "b"], "document")
    assert not list(tmp_path.iterdir())


def test_two_stores_that_know_nothing_of_each_other_agree(tmp_path: Path) -> None:
    first, second = VectorStore(tmp_path), VectorStore(tmp_path)
    one, two = HashingEncoder(), HashingEncoder()
    first.embed(one, TEXTS[:3], "document")
    second.embed(two, TEXTS[20:], "document")
    first.embed(one, TEXTS, "document")  # it has not seen what the second wrote meanwhile
    found = second.embed(two, TEXTS, "document")
    np.testing.assert_array_equal(found.take(np.arange(40)), expected(TEXTS))
    fresh = HashingEncoder()
    VectorStore(tmp_path).embed(fresh, TEXTS, "document")
    assert fresh.encoded == 0


WRITER = """
import sys
sys.path.insert(0, sys.argv[1])
from fakes import HashingEncoder
from foils.encode import VectorStore, vectors
vectors.BLOCK = 3
start, stop = int(sys.argv[3]), int(sys.argv[4])
texts = [f"text number {i} of the wind" for i in range(start, stop)]
for at in range(0, len(texts), 10):
    VectorStore(sys.argv[2]).embed(HashingEncoder(), texts[at:at + 10], "document")
"""


def test_two_processes_write_at_once(tmp_path: Path) -> None:
    tests = str(Path(__file__).parents[1])
    ranges = [("0", "200"), ("100", "300"), ("0", "300")]
    running = [
        subprocess.Popen([sys.executable, "-c", WRITER, tests, str(tmp_path), *span], stderr=subprocess.PIPE)
        for span in ranges
    ]
    for process in running:
        _, said = process.communicate(timeout=120)
        assert process.returncode == 0, said.decode()
    texts = [f"text number {i} of the wind" for i in range(300)]
    encoder = HashingEncoder()
    found = VectorStore(tmp_path).embed(encoder, texts, "document")
    assert encoder.encoded == 0
    np.testing.assert_array_equal(found.take(np.arange(300)), expected(texts))


def test_document_texts_are_read_in_slices(small: Collection, tmp_path: Path, encoder: HashingEncoder) -> None:
    every = DocumentTexts(small)
    assert len(every) == 10
    assert every[0] == "Sailing A sailing boat turns its bow through the wind to change tack."
    assert every[3:5] == small.document_texts([3, 4])
    some = DocumentTexts(small, np.array([7, 2]))
    assert list(some[0:5]) == small.document_texts([7, 2])
    assert some[1] == small.document_texts([2])[0]
    found = VectorStore(tmp_path).embed(encoder, every, "document")
    np.testing.assert_array_equal(found.take([9, 0]), expected([every[9], every[0]]))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 20), st.data(), st.sampled_from([np.float16, np.float32, np.float64]))
def test_vectors_are_indexed_as_an_array(total: int, data: st.DataObject, kind: type) -> None:
    array = np.arange(total * 3, dtype=kind).reshape(total, 3)
    rows = data.draw(st.lists(st.integers(0, total - 1), max_size=12) if total else st.just([]))
    held = Vectors(array, np.asarray(rows, np.int64))
    plain = array[np.asarray(rows, np.int64)].astype(np.float64 if kind is np.float64 else np.float32)
    assert (len(held), held.dimension) == (len(rows), 3)
    chosen = data.draw(st.lists(st.integers(-len(rows), len(rows) - 1), max_size=8) if rows else st.just([]))
    for found in (held.take(chosen), held.select(chosen).take(np.arange(len(chosen)))):
        np.testing.assert_array_equal(found, plain[np.asarray(chosen, np.int64)])
        assert found.dtype == plain.dtype
    start, stop = data.draw(st.integers(0, 12)), data.draw(st.integers(0, 12))
    np.testing.assert_array_equal(held.take(slice(start, stop)), plain[start:stop])
    blocks = list(held.blocks(2))
    assert [first for first, _ in blocks] == list(range(0, len(rows), 2))
    np.testing.assert_array_equal(np.concatenate([plain[:0], *(block for _, block in blocks)]), plain)


@pytest.mark.parametrize("vector", [[0.0, 0.0, 0.0], [0.6, 0.8, 0.0]])
def test_an_encoder_that_gives_every_text_one_vector_is_refused(tmp_path: Path, vector: list[float]) -> None:
    class Collapsed(HashingEncoder):
        def encode(self, texts, kind):
            return np.tile(np.resize(np.float32(vector), self.dimension), (len(texts), 1))

    store, texts = VectorStore(tmp_path), [f"text {at}" for at in range(40)]
    refused("the same vector", store.embed, Collapsed(), texts, "document")
    assert len(store.embed(Collapsed(), texts[:10], "document")) == 10, "few texts may be alike"


def test_a_full_disk_is_called_so(tmp_path: Path) -> None:
    """A limit on the size of files stands for the disk; np.save would say how many bytes it could not write."""
    program = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[2])\n"
        "from fakes import HashingEncoder; from foils.encode import VectorStore\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "VectorStore(sys.argv[1]).embed(HashingEncoder(), [f'text {at}' for at in range(5_000)], 'document')"
    )
    command = [sys.executable, "-c", program, str(tmp_path), str(Path(__file__).parents[1])]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "FailureError: cannot write" in done.stderr
    assert "File too large" in done.stderr


# Exact search: the same bits however the work is cut, and what a plain sort finds


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


def searched(asked, held, depth, *, block, **more):
    """What `top_inner_products` returns when it multiplies this many documents at once."""
    with pytest.MonkeyPatch.context() as patch:
        for size in ("BLOCK", "DEVICE_BLOCK"):
            patch.setattr(nearest, size, block)
        return top_inner_products(asked, held, depth, **more)


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
    assert bits(searched(asked, held, depth, block=block)) == whole
    alone = [searched(asked[[row]], held, depth, block=block) for row in range(queries)]
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
        rows, scores = searched(asked, Vectors.of(held), depth, block=50)
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
            assert bits(searched(asked, held, depth, block=90, device="cpu")) == whole
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert set(multiplied) == {"highest"}


@pytest.mark.parametrize("kind", ["plain", "ties", "copies"])
def test_a_device_finds_what_numpy_finds_and_multiplies_few_again(kind, monkeypatch):
    """Whole numbers make products exact: against a stable sort of all of them. Blocks stay between calls."""
    rng, again = np.random.default_rng(2), []
    numbers = rng.integers(*((-1, 2) if kind == "ties" else (-400, 400)), (3_000, 6)).astype(np.float32)
    held = Vectors.of(np.tile(numbers[:1], (3_000, 1)) if kind == "copies" else numbers)
    asked = rng.integers(-3, 4, (40, 6)).astype(np.float32)
    products = asked @ held.array.T
    best = np.argsort(-products, axis=1, kind="stable")
    original = rank_rows

    def counting(queries, documents, lists):
        again.append(sum(map(len, lists)))
        return original(queries, documents, lists)

    monkeypatch.setattr(nearest, "rank_rows", counting)
    monkeypatch.setattr(nearest, "PRODUCTS", 7 * 500)  # strips of seven queries
    read, take = [], Vectors.take
    monkeypatch.setattr(Vectors, "blocks", lambda own, size: (read.append(len(own)), blocks_of(own, size))[1])

    def blocks_of(own, size):
        return ((start, take(own, slice(start, start + size))) for start in range(0, len(own), size))

    for depth in (1, 10, 200):
        again.clear()
        rows, scores = searched(asked, held, depth, block=500, device="cpu")
        np.testing.assert_array_equal(rows, best[:, :depth])
        np.testing.assert_array_equal(scores, np.take_along_axis(products, rows, axis=1))
        if kind == "plain":  # in whole numbers next to nothing is within the bound of rounding
            assert sum(again) <= 40 * (depth + 8)
            assert sum(read) == 3_000, "read once, for all three depths"


@pytest.mark.parametrize("kind", ["plain", "near copies"])
def test_strips_and_groups_do_not_change_one_bit(kind, monkeypatch):
    """Seven strips of queries, and groups of one query or a few, side by side."""
    rng = np.random.default_rng(8)
    held, asked = Vectors.of(made(rng, 400, 16, kind=kind)), made(rng, 20, 16, kind="plain")
    whole = bits(searched(asked, held, 9, block=64))
    lists = [rng.permutation(400)[: rng.integers(0, 60)] for _ in range(20)]
    ranked = rank_rows(asked, held, lists)
    for strip, together in ((3, 1), (3, 4), (20, 1)):
        monkeypatch.setattr(nearest, "STRIP", strip)
        monkeypatch.setattr(nearest, "TOGETHER", together)
        assert bits(searched(asked, held, 9, block=64)) == whole
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
    assert bits(searched(asked, held, 7, block=9)) == bits(expected)
    np.testing.assert_array_equal(held.take([3, 9, 3]), stored[order[[3, 9, 3]]])
    with pytest.raises(IndexError):
        held.take(np.array([50]))


def test_ties_are_thinned_out():
    """Equal documents crowd the screen of every query."""
    held = Vectors.of(np.ones((600, 4), np.float32))
    screen = nearest._Screen(np.ones((300, 4), np.float32), held, 5)
    screen.add(0, held.take(slice(None)))
    assert [row.tolist() for row in screen.rows()] == [[0, 1, 2, 3, 4]] * 300
