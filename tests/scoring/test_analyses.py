"""Ablations and composition, each against something that is not itself."""

import math
import re

import numpy as np
import plain
import pytest
from score_world import ExactStore, NoEncoder, Texts, World, random_world, score

from foils.data.tokens import TOKENIZERS
from foils.encode import Vectors
from foils.mining.fusion import fuse_sources
from foils.scoring import ablate, compose, composed, eci_variants, make_records, measure
from foils.scoring.compose import NOT_CHOSEN, greedy_log_det
from foils.scoring.gates import gated
from foils.scoring.measure import Geometry

TOKENS = {
    "alphanumeric": plain.tokens,
    "alphanumeric-2": lambda text: set(re.findall(r"[^\W_]{2,}", text.casefold())),
    "whitespace": lambda text: set(text.casefold().split()),
    "trigrams": lambda text: {
        joined[i : i + 3] for joined in [" ".join(text.casefold().split())] for i in range(max(1, len(joined) - 2))
    },
}


def plainly(world, name, idf, **chosen):
    records = plain.united(*(world.plainly[part] for part in name.split("+")))
    return plain.score(records, Texts(), Texts(), idf, **chosen)


@pytest.fixture(scope="module")
def world():
    return random_world(3)


@pytest.fixture(scope="module")
def scores(world):
    return score(world.collection, world.sources, NoEncoder(), ExactStore(), control=False)


@pytest.fixture(scope="module")
def tables(scores):
    return {table.name: table for table in ablate(scores)}


def pooled(world: World, tokens: plain.Tokens = plain.tokens) -> plain.Idf:
    return plain.idf_of(plain.pooled_documents(world.plainly.values()), tokens)


NAMES = ["a", "b", "c", "a+b", "a+c", "b+c"]


def test_simplifications_are_the_plain_ones(world, tables):
    table = tables["simplification"]
    for name in NAMES:
        expected = plainly(world, name, pooled(world))
        assert table.scores["gated"][name] == pytest.approx(expected.eci_sem, abs=1e-9)
        for weighting in ("residual_only", "gradient_weighted", "margin_hardness"):
            assert table.scores[weighting][name] == pytest.approx(getattr(expected, weighting), rel=1e-9)
    assert table.stability["gated"] == {"sources": 1.0, "hybrids": 1.0}


def agree(of, world, idf, names=NAMES, **chosen):
    for name in names:
        assert of[name] == pytest.approx(plainly(world, name, idf, **chosen).eci_sem, abs=1e-9)


def test_temperatures_are_the_plain_ones(world, tables):
    for setting, of in tables["temperature"].scores.items():
        agree(of, world, pooled(world), temperature=float(setting))


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_tokenizers_are_the_plain_ones(world, tables, tokenizer):
    tokens = TOKENS[tokenizer]
    agree(tables["tokenizer"].scores[tokenizer], world, pooled(world, tokens), tokens=tokens)


def test_idf_corpora_are_the_plain_ones(world, tables):
    queries = [record.query for record in world.plainly["a"] if any_source_has(world, record.query)]
    documents, found = plain.pooled_documents(world.plainly.values()), tables["idf corpus"].scores
    agree(found["pooled"], world, plain.idf_of(documents))
    agree(found["pooled+queries"], world, plain.idf_of([*documents, *queries]))
    agree(found["uniform"], world, lambda token: 1.0)
    for name in NAMES:
        own = plain.pooled_documents([plain.united(*(world.plainly[part] for part in name.split("+")))])
        agree(found["own"], world, plain.idf_of(own), [name])


def any_source_has(world: World, query: str) -> bool:
    return any(record.query == query for of in world.plainly.values() for record in plain.usable(of))


def test_every_lambda_is_the_plain_one(world, tables):
    for name in NAMES:
        whole = plainly(world, name, pooled(world)).information
        for key, of in tables["lambda"].scores.items():
            assert of[name] == pytest.approx(plain.log_det(whole / float(key)), rel=1e-9)


def averages(each):
    """S and Δ over the triplets, and the negatives of a record."""
    margins = [best - s for of, best in each for s in of]
    return np.mean([s for of, _ in each for s in of]), np.mean(margins), len(margins) / len(each)


def test_old_scores_are_the_plain_ones(world, scores):
    targets = {target.name: target for target in scores.measured.records.targets(2)}
    for name in NAMES:
        old = eci_variants(scores, targets[name])
        records = plain.united(*(world.plainly[part] for part in name.split("+")))
        each = plain.similarities(records, Texts(), Texts())
        signal, margin, size = averages(each)
        signal3, margin3, size3 = averages([(sorted(of, reverse=True)[:3], best) for of, best in each])
        _, by_list, _ = averages([([max(of)], best) for of, best in each])
        highest = np.mean([max(of) for of, _ in each])
        assert old["arithmetic"] == pytest.approx(plain.eci(signal, margin, size, arithmetic=True))
        assert old["eci"] == pytest.approx(plain.eci(signal, margin, size))
        assert old["list_arithmetic"] == pytest.approx(plain.eci(signal, by_list, size, arithmetic=True))
        assert old["list_eci"] == pytest.approx(plain.eci(signal, by_list, size))
        assert old["gradient_norm"] == pytest.approx(size * math.exp(signal / 0.05))
        assert old["variance"] == pytest.approx(0.5 * (highest - signal) ** 2)
        assert old["hardest_3"] == pytest.approx(plain.eci(signal3, margin3, size3))
        assert old["list_hardest_3"] == pytest.approx(plain.eci(signal3, by_list, size3))


# Composition


def objective(vectors: np.ndarray, chosen: tuple[int, ...]) -> float:
    matrix = np.eye(vectors.shape[1])
    for index in chosen:
        matrix += np.outer(vectors[index], vectors[index])
    return float(np.linalg.slogdet(matrix)[1])


def plain_greedy(vectors: np.ndarray, count: int) -> tuple[list[int], list[float]]:
    chosen: list[int] = []
    gains = []
    for _ in range(count):
        best = max(
            (i for i in range(len(vectors)) if i not in chosen),
            key=lambda i: (objective(vectors, (*chosen, i)), -i),
        )
        gains.append(objective(vectors, (*chosen, best)) - objective(vectors, tuple(chosen)))
        chosen.append(best)
    return chosen, gains


@pytest.mark.parametrize("seed", range(5))
def test_greedy_without_determinants_is_greedy_with_them(seed):
    vectors = np.random.default_rng(seed).standard_normal((3, 9, 4))
    step, gain = greedy_log_det(np.einsum("bnd,bmd->bnm", vectors, vectors), 5)
    for row in range(3):
        chosen, gains = plain_greedy(vectors[row], 5)
        assert [int(np.flatnonzero(step[row] == at)[0]) for at in range(5)] == chosen
        assert gain[row, chosen] == pytest.approx(gains)


def test_composition_by_hand():
    # Positive at (1, 0, 0); negatives: two at nearly one place, one elsewhere. With small λ the second of the twins
    # adds little, so the third is taken; with λ large the weights alone decide.
    documents = np.array([[1, 0, 0], [0, 1, 0], [0, 1, 0.001], [0, 0, 1]], np.float64)
    documents /= np.linalg.norm(documents, axis=1, keepdims=True)
    geometry = Geometry(
        Vectors.of(np.array([[1.0, 0, 0]])), Vectors.of(documents), np.array([0]), np.zeros(3, np.int64),
        np.array([1, 2, 3]),
    )  # fmt: skip
    weights = np.array([1.0, 0.9, 0.5])
    assert compose(geometry, weights, count=2, regularization=1e-3).order.tolist() == [0, -1, 1]
    assert compose(geometry, weights, count=2, regularization=1e3).order.tolist() == [0, 1, -1]


def test_a_composed_table_keeps_what_was_chosen(world):
    united = fuse_sources(world.sources)
    records = make_records(world.collection, {"union": united}, split="train", control=False)
    measured = measure(records, NoEncoder(), ExactStore(), 0.05)
    weights = gated(measured.similarities, 0.05)
    chosen = compose(measured.geometry, weights, count=2)
    table = composed(united, measured.records, chosen, weights)
    assert len(table) == len(united)
    assert int(table.keep.sum()) == int((chosen.order >= 0).sum())
    assert table.rejected()[NOT_CHOSEN] == len(united) - int(table.keep.sum())
    per_query = np.unique(table.kept()["query_id"].to_pylist(), return_counts=True)[1]
    assert per_query.max() == 2
    again = make_records(world.collection, {"composed": table}, split="train", control=False)
    assert len(again.record) == int(table.keep.sum()), "the kept rows are the chosen triplets"
