"""The stand-in encoder does what the store and the stages expect of an encoder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from fakes import HashingEncoder
from foils.encode import VectorStore


def test_unit_vectors_that_words_decide(encoder: HashingEncoder) -> None:
    vectors = encoder.encode(["a boat tacks", "A boat, tacks!", "bread rises", ""], "document")
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(vectors[0], vectors[1])
    same, alike, other = encoder.encode(["a boat tacks", "a boat gybes", "bees dance"], "query") @ vectors[0]
    assert same > 0.999 > alike > 0.5 > other
    assert encoder.encode([], "query").shape == (0, encoder.dimension)


def test_it_counts_what_it_encodes(encoder: HashingEncoder, tmp_path: Path) -> None:
    store = VectorStore(tmp_path)
    vectors = store.embed(encoder, ["a", "b", "a"], "document")
    store.embed(encoder, ["b", "c"], "query")
    assert encoder.encoded == 3
    assert sorted(map(sorted, encoder.calls)) == [["a", "b"], ["c"]]
    np.testing.assert_array_equal(vectors.take([0]), vectors.take([2]))


def test_prompts_and_salts_are_told_apart(encoder: HashingEncoder) -> None:
    prompted = HashingEncoder(prompts={"query": "query: "})
    assert prompted.route("query") != prompted.route("document") == encoder.route("query")
    assert (prompted.encode(["a"], "query") != encoder.encode(["a"], "query")).any()
    salted = HashingEncoder(salt="other")
    assert salted.fingerprint != encoder.fingerprint == HashingEncoder().fingerprint
    assert (salted.encode(["a"], "query") != encoder.encode(["a"], "query")).any()


def test_another_process_gives_the_same_vectors(encoder: HashingEncoder) -> None:
    program = "from fakes import HashingEncoder; print(HashingEncoder().encode(['a boat'], 'query').tobytes().hex())"
    done = subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert done.stdout.strip() == encoder.encode(["a boat"], "query").tobytes().hex()
