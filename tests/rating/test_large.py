"""What a large rating costs, counted: work grows with the pairs, memory beside the data with the block alone."""

import numpy as np
import pyarrow as pa
import pytest
from judging import NumberJudge

from foils.rating import (
    Candidates,
    JudgementRecord,
    RecordedJudge,
    all_pairs,
    ask,
    lead_errors,
    regular_pairs,
    thurstone,
)
from foils.rating import pairs as pairs_module
from foils.runtime import memory

KEY = {"judge": "numbers"}
POOLS = []  # kept to the end of the process: what was taken from a pool may be given back late


def numbers(queries, documents=4, length=0):
    """Candidates whose texts are numbers, and ids of at least this many characters."""
    listed = [[(f"{q}-{i}".rjust(length, "x"), str(float(i))) for i in range(documents)] for q in range(queries)]
    return Candidates.of_lists([str(q).rjust(length, "y") for q in range(queries)], ["?"] * queries, listed)


@pytest.mark.parametrize("kept", ["record", "recorded"])
def test_no_array_of_strings_grows_with_the_pairs(tmp_path, kept, monkeypatch):
    """Arrow's peak: the largest array of ids is that of a block, so no number of pairs brings it to 2 GiB."""
    monkeypatch.setattr("foils.rating.graph._HASHED", 100)
    pool, peaks = pa.default_memory_pool(), []
    for queries in (50, 400):
        candidates, pairs = numbers(queries, length=100), all_pairs([4] * queries)
        folder = tmp_path / str(queries)
        seen = pa.proxy_memory_pool(pool)
        POOLS.append(seen)
        pa.set_memory_pool(seen)
        try:
            ask(NumberJudge(), candidates, pairs, record=JudgementRecord(folder, KEY), block=100)
            judge = RecordedJudge(folder) if kept == "recorded" else NumberJudge(name="nobody")
            record = JudgementRecord(folder, KEY) if kept == "record" else None
            assert not ask(judge, candidates, pairs, record=record).missing
        finally:
            pa.set_memory_pool(pool)
        peaks.append(seen.max_memory())
    assert peaks[1] < 1.5 * peaks[0]


def test_the_memory_budget_cuts_the_errors_and_changes_no_digit_of_them(monkeypatch):
    rng = np.random.default_rng(0)
    pairs = regular_pairs([60] * 20 + [59] * 3 + [5, 1, 0], degree=4, keys=rng)
    preference, leader = rng.random(len(pairs)), np.minimum(pairs.offsets[:-1], pairs.candidates - 1)

    def errors():
        ratings = thurstone(pairs, preference)
        return ratings.standard_error, lead_errors(pairs, ratings, leader, prior_sd=10.0)

    whole, sizes, plain = errors(), [], pairs_module.block_of
    monkeypatch.setattr(pairs_module, "block_of", lambda *given: sizes.append(len(given[1])) or plain(*given))
    with memory.limited(memory.LEAST):
        small = errors()
    np.testing.assert_array_equal(small, whole)
    assert sizes.count(4) == 2 * 5, "two passes over twenty queries, 4 of 60² cells in a block"
