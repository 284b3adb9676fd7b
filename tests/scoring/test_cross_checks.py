"""What stands beside the belief: labels by themselves, other chances of a label, texts from outside the collection."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from test_decision import decided

from decided_world import WorldEncoder, mined, scored, true_share
from foils.data import Negatives
from foils.data.labels import Labels
from foils.labelling import pairs_of
from foils.scoring import DecisionSettings, decide_sources
from foils.scoring.cross_checks import skewed_logs
from foils.scoring.tables import decision_table
from hidden_positives import World, hidden_world


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> tuple:
    world = hidden_world(7, labelled=0.5)
    sources = mined(world)
    return world, sources, scored(world, sources, tmp_path_factory.mktemp("half"))


def drawn_labels(world: World, sources: dict[str, Negatives], n: int, seed: int) -> Labels:
    universe = pairs_of(sources)
    drawn = universe.draw(n, seed=seed)
    pairs = universe.table.take(pa.array(drawn.rows)).select(["query_id", "doc_id"]).to_pylist()
    rows = zip(pairs, drawn.probability.tolist(), universe.holders(drawn.rows), strict=True)
    judged = [
        {
            **pair,
            "relevant": int((pair["query_id"], pair["doc_id"]) in world.hidden),
            "probability": p,
            "sources": names,
        }
        for pair, p, names in rows
    ]
    return Labels(pa.Table.from_pylist(judged))


def test_labels_alone_hold_the_truth_and_a_right_belief_is_not_contradicted(half: tuple) -> None:
    world, sources, _ = half
    held = []
    for seed in range(4):
        worths = decided(half, labels=drawn_labels(world, sources, 120, seed)).decision.worths
        assert not any(worths[name].contradicted for name in sources)
        for name, source in sources.items():
            low, high = worths[name].false_share_by_labels_low, worths[name].false_share_by_labels_high
            held.append(low <= true_share(world, source) <= high)
    assert np.mean(held) > 0.85
    assert np.isnan(worths["hard+middle"].false_share_by_labels)
    assert np.isnan(decided(half).decision.worths["hard"].false_share_by_labels)


def test_a_belief_that_labels_contradict_says_so(half: tuple) -> None:
    """The table claims that mining it would never return a relevant document, and it is believed at first."""
    world, sources, (scores, encoder, store) = half
    recapture = {**sources["hard"].provenance["recapture"], "returned": 20_000, "standard_error": 1.0}
    wrong = Negatives(sources["drawn"].table, {**sources["drawn"].provenance, "recapture": recapture})
    claimed = {**sources, "drawn": wrong}
    settings = DecisionSettings(labels=drawn_labels(world, sources, 300, 1))
    decision = decide_sources(scores, claimed, encoder, store, settings).decision
    contradicted = {name for name, worth in decision.worths.items() if worth.contradicted}
    assert contradicted
    for name in contradicted:
        worth, true = decision.worths[name], true_share(world, sources[name])
        assert worth.false_share_by_labels_low <= true <= worth.false_share_by_labels_high
        assert any(f"The labels of {name} by themselves show" in line for line in decision.sentences)
    before = decide_sources(scores, claimed, encoder, store)
    table = decision_table(scores.with_decision(replace(before, decision=decision), "benefit"))
    assert sum("by labels" in str(row) for row in table.rows) == len(contradicted)


def test_labels_that_were_drawn_from_other_sources_say_nothing_by_themselves(half: tuple) -> None:
    world, sources, _ = half
    labels = drawn_labels(world, {name: sources[name] for name in ("hard", "random")}, 200, 0)
    worths = decided(half, labels=labels).decision.worths
    assert np.isfinite(worths["hard"].false_share_by_labels)
    assert np.isnan(worths["drawn"].false_share_by_labels), "it shares pairs with hard, but none was drawn from it"


def test_likeness_that_doubles_labels_by_hand() -> None:
    similarities = SimpleNamespace(s_n=np.array([-1.0, 0.0, 0.5, 1.0, 2.0]))
    measured = SimpleNamespace(s_p=np.linspace(-0.01 / 0.98, 1 + 0.01 / 0.98, 10_001), similarities=similarities)
    skewed = skewed_logs(measured, np.full(5, 3.0))  # type: ignore[arg-type]
    scale = (1 - 2**-1) / np.log(2)  # mean of 2^−t, t even over [0, 1]
    assert skewed == pytest.approx(3 - np.log(2) * np.array([0, 0, 0.5, 1, 1]) - np.log(scale), abs=2e-3)


def test_likeness_that_doubles_labels_takes_from_the_near_and_gives_to_the_far(half: tuple) -> None:
    worths = decided(half).decision.worths
    ratio = {name: worths[name].false_share_skewed / worths[name].false_share for name in ("hard", "middle")}
    assert 0.5 < ratio["hard"] < ratio["middle"] < 2
    assert ratio["hard"] < 1


def test_texts_from_outside_are_named(half: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world, sources, _ = half
    own, encode = (
        sources["middle"].kept().select(["query_id", "doc_id", "source", "rank", "score"]),
        WorldEncoder.encode,
    )
    rows = world.collection.document_rows(own["doc_id"])
    texts = [f"{text} again" for text in world.collection.document_texts(rows)]
    monkeypatch.setattr(
        WorldEncoder,
        "encode",
        lambda self, texts, kind: encode(self, [text.removesuffix(" again") for text in texts], kind),
    )
    ids = pa.array([f"own-{row}" for row in range(len(own))])
    written = own.set_column(1, "doc_id", ids).append_column("text", pa.array(texts, pa.large_string()))
    both = {"hard": sources["hard"], "written": Negatives(written)}
    decision = decided((world, both, scored(world, both, tmp_path))).decision
    assert (decision.worths["written"].outside, decision.worths["hard"].outside) == (1, 0)
    line = next(line for line in decision.sentences if "not in the collection" in line)
    assert line.startswith("100 % of written are texts")
