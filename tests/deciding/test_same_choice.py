"""Every verb names the same choice on the same pairs, model and split."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

from decided_world import WorldEncoder, mined
from foils.data import Negatives
from foils.deciding import Decision, decide
from foils.deciding.doors import score
from foils.deciding.mine import best_window, windows_of
from foils.encode import VectorStore
from foils.mining import mine_negatives
from foils.selection.doors import select
from hidden_positives import hidden_world


@pytest.fixture(scope="module")
def world():
    return hidden_world(7, labelled=0.5)


def test_score_and_select_choose_as_studies_and_tunings_do(world, tmp_path):
    sources = {name: Negatives(table.table, table.provenance) for name, table in mined(world).items()}
    encoder, store = WorldEncoder(world), VectorStore(tmp_path / "v")
    models = {"encoder": encoder, "vectors": store, "temperature": 0.1}
    alone = decide(world.collection, sources, encoder, store, temperature=0.1)  # what studies and tunings call
    scored = score(world.collection, sources, sample=50, **models)
    selected = select(sources, by="benefit", collection=world.collection, **models)
    decisions: list[Decision] = [alone, scored.decision, selected.decision]
    assert len({each.sentence for each in decisions}) == len({each.source for each in decisions}) == 1
    assert len({json.dumps(each.to_json()) for each in decisions}) == 1
    assert scored.ranking[0] == alone.source
    assert [table.title for table in scored.tables()] == [alone.sentence]


def test_mine_chooses_between_ranks_as_score_does_between_the_same_tables(world, tmp_path):
    deep = mine_negatives(world.collection, world.dense(), split="train", top=20)
    encoder, store = WorldEncoder(world), VectorStore(tmp_path / "v")
    decision, (first, end) = best_window(world.collection, deep, encoder, store, size=5, temperature=0.1)
    rank = np.asarray(deep.table["rank"])
    windows = {
        f"ranks {low}–{high}": Negatives(deep.table.filter(pa.array(deep.keep & (rank >= low) & (rank < high))))
        for low, high in windows_of(0, 20, 5)
    }
    scored = score(world.collection, windows, encoder=encoder, vectors=store, temperature=0.1).decision
    assert scored is not None
    assert decision.worths == {name: scored.worths[name] for name in decision.worths}
    assert decision.source == scored.source == f"ranks {first}–{end}"
