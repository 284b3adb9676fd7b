"""All that is said of a source, against the plain implementation of the papers' equations, in float64."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import plain
import pytest
from score_world import ExactStore, NoEncoder, Texts, random_world, score

from foils.scoring.triplets import CONTROL

MEANS = ("rho", "eta", "coverage", "psi", "pair_loss", "inversion_rate")
PER_RECORD = ("gradient_energy", "mnrl_proxy", "ambiguity")
SCORES = ("eci_sem", "eci_sem_per_dim", "trace")


def scored(world, **settings):
    return score(world.collection, world.sources, NoEncoder(), ExactStore(), **settings)


def plainly(records, idf, **settings):
    return plain.score(records, Texts(), Texts(), idf, **settings)


def check(found, expected, tolerance=1e-9):
    assert (found.records, found.negatives) == (expected.records, expected.negatives)
    for name in (*SCORES, *MEANS, *PER_RECORD):
        assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=tolerance, rel=tolerance), name
    assert found.buckets == pytest.approx(expected.buckets)


@pytest.mark.parametrize("seed", range(6))
def test_every_figure_of_sources_and_hybrids_equals_the_plain_loop(seed):
    world = random_world(seed)
    scores = scored(world, hybrids=3)
    idf = plain.idf_of(plain.pooled_documents(world.plainly.values()))
    parts = [names for size in (1, 2, 3) for names in combinations(world.sources, size)]
    assert [found.name for found in scores.sources] == ["+".join(names) for names in parts]
    for found, names in zip(scores.sources, parts, strict=True):
        check(found, plainly(plain.united(*(world.plainly[name] for name in names)), idf))
    assert scores.ranking == sorted(
        (found.name for found in scores.sources),
        key=lambda name: -next(found.eci_sem for found in scores.sources if found.name == name),
    )


@pytest.mark.parametrize("temperature", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("regularization", [1e-4, 0.1, 7.0])
def test_temperature_and_lambda_as_in_the_plain_loop(temperature, regularization):
    world = random_world(11)
    found = scored(world, temperature=temperature, regularization=regularization, hybrids=1).sources[0]
    idf = plain.idf_of(plain.pooled_documents(world.plainly.values()))
    check(found, plainly(world.plainly["a"], idf, temperature=temperature, regularization=regularization))


@pytest.mark.parametrize("seed", range(4))
def test_eci_and_its_per_query_form(seed):
    world = random_world(seed, queries=20)
    for found in scored(world, hybrids=1).sources:
        each = plain.similarities(world.plainly[found.name], Texts(), Texts())
        sizes = [len(of) for of, _ in each]
        signal = sum(sum(of) for of, _ in each) / sum(sizes)
        assert found.signal == pytest.approx(signal, rel=1e-9)
        by_triplet = [best - sum(of) / len(of) for of, best in each]
        by_list = [best - max(of) for of, best in each]
        for value, own, margin, expected, of_each in (
            (found.eci, found.eci_per_query, found.margin, np.average(by_triplet, weights=sizes), by_triplet),
            (found.eci_list, found.eci_list_per_query, found.margin_list, np.mean(by_list), by_list),
        ):
            assert margin == pytest.approx(max(0.0, expected), rel=1e-9)
            assert value == pytest.approx(plain.eci(max(0.0, signal), expected, np.mean(sizes)), rel=1e-9)
            signals = [max(0.0, sum(of) / len(of)) for of, _ in each]
            assert own == pytest.approx(np.mean(list(map(plain.eci, signals, of_each, sizes))), rel=1e-9)


def test_the_control_is_scored_like_a_source_of_its_triplets():
    world = random_world(15)
    scores = scored(world, hybrids=1)
    records = scores.measured.records
    control = records.targets(1)[-1]
    assert control.name == CONTROL
    member = control.of(records.members)
    drawn = [
        plain.Record(
            records.collection.query_texts([records.queries[t]])[0],
            (records.texts[int(records.positives[t])],),
            tuple(records.texts[int(d)] for d in records.document[member & (records.record == t)]),
        )
        for t in range(len(records))
    ]
    assert scores.control is not None
    check(scores.control, plainly(drawn, plain.idf_of(plain.pooled_documents(world.plainly.values()))))
