"""Ablations, composition, certainty and audit, each against something that is not itself."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import numpy as np
import plain
import pytest
from score_world import ExactStore, NoEncoder, World, negatives, random_world, vector

from fakes import HashingEncoder
from foils.data import Collection
from foils.data.tokens import TOKENIZERS
from foils.encode import Vectors, VectorStore
from foils.mining.fusion import fuse_sources
from foils.runtime.errors import InputError
from foils.scoring import Scores, ScoreSettings, ablate, audit, compose, composed, measure, prepare, score_sources
from foils.scoring.certainty import Boundary, record_influence, score_until
from foils.scoring.compose import NOT_CHOSEN, greedy_log_det
from foils.scoring.gates import gated
from foils.scoring.information import Moments, log_det
from foils.scoring.measure import Geometry, information_matrix
from foils.scoring.records import CONTROL

TOKENS = {
    "alphanumeric": plain.tokens,
    "alphanumeric-2": lambda text: set(re.findall(r"[^\W_]{2,}", text.casefold())),
    "whitespace": lambda text: set(text.casefold().split()),
    "trigrams": lambda text: {
        joined[i : i + 3] for joined in [" ".join(text.casefold().split())] for i in range(max(1, len(joined) - 2))
    },
}


def exact(world: World, **chosen: object) -> Scores:
    settings = ScoreSettings(**{"replicates": 0, "control": False, **chosen})  # type: ignore[arg-type]
    return score_sources(world.collection, world.sources, NoEncoder(), ExactStore(), settings)  # type: ignore[arg-type]


class Texts(dict):
    """Vectors of texts, made when asked for."""

    def __missing__(self, text: str) -> np.ndarray:
        return vector(text)


def plainly(world: World, name: str, idf: plain.Idf, **chosen: object) -> plain.Scored:
    records = plain.united(*(world.plainly[part] for part in name.split("+")))
    return plain.score(records, Texts(), Texts(), idf, **chosen)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def world() -> World:
    return random_world(3)


@pytest.fixture(scope="module")
def scores(world: World) -> Scores:
    return exact(world)


@pytest.fixture(scope="module")
def tables(scores: Scores) -> dict[str, object]:
    return {table.name: table for table in ablate(scores).tables}


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


def test_temperatures_are_the_plain_ones(world, tables):
    for setting, of in tables["temperature"].scores.items():
        for name in NAMES:
            expected = plainly(world, name, pooled(world), temperature=float(setting))
            assert of[name] == pytest.approx(expected.eci_sem, abs=1e-9)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_tokenizers_are_the_plain_ones(world, tables, tokenizer):
    tokens = TOKENS[tokenizer]
    for name in NAMES:
        expected = plainly(world, name, pooled(world, tokens), tokens=tokens)
        assert tables["tokenizer"].scores[tokenizer][name] == pytest.approx(expected.eci_sem, abs=1e-9)


def test_idf_corpora_are_the_plain_ones(world, tables):
    queries = [record.query for record in world.plainly["a"] if any_source_has(world, record.query)]
    documents = plain.pooled_documents(world.plainly.values())
    corpora = {
        "pooled": lambda _: plain.idf_of(documents),
        "pooled+queries": lambda _: plain.idf_of([*documents, *queries]),
        "uniform": lambda _: lambda token: 1.0,
        "own": lambda name: plain.idf_of(
            plain.pooled_documents([plain.united(*(world.plainly[part] for part in name.split("+")))])
        ),
    }
    for corpus, idf in corpora.items():
        for name in NAMES:
            expected = plainly(world, name, idf(name))
            assert tables["idf corpus"].scores[corpus][name] == pytest.approx(expected.eci_sem, abs=1e-9)


def any_source_has(world: World, query: str) -> bool:
    return any(record.query == query for of in world.plainly.values() for record in plain.usable(of))


def test_samples_grow_to_the_whole(scores, tables):
    table = tables["sample size"]
    assert list(table.scores) == ["25 %", "50 %", "75 %", "100 %"]
    for score in scores.sources:
        assert table.scores["100 %"][score.name] == pytest.approx(score.eci_sem, abs=1e-9)
        assert table.scores["25 %"][score.name] != pytest.approx(score.eci_sem, abs=1e-6)


def test_lambda_decomposes_the_score(world, scores):
    spectra = {spectrum.name: spectrum for spectrum in ablate(scores).spectra}
    for name in NAMES:
        whole = plainly(world, name, pooled(world)).information
        spectrum = spectra[name]
        for key, score in spectrum.score.items():
            assert score == pytest.approx(plain.log_det(whole / float(key)), rel=1e-9)
            assert spectrum.trace[key] == pytest.approx(np.trace(whole) / float(key), rel=1e-9)
            assert 0 <= spectrum.diversity[key] < 1
            assert 0 < spectrum.volume[key] <= 1 + 1e-12
        kept = list(spectrum.diversity.values())
        assert kept == sorted(kept), "a smaller λ lets repetition count more"


def test_volume_is_one_where_every_direction_weighs_the_same():
    identity = np.eye(5) * 0.3
    assert log_det(identity, 0.1) == pytest.approx(5 * math.log1p(3))


def test_old_scores_are_the_plain_ones(world, scores):
    old = {each.name: each for each in ablate(scores).eci}
    for name in NAMES:
        records = plain.usable(plain.united(*(world.plainly[part] for part in name.split("+"))))
        sims = [[float(vector(r.query) @ vector(text)) for text in r.negatives] for r in records]
        best = [max(float(vector(r.query) @ vector(text)) for text in r.positives) for r in records]
        signal = float(np.mean([s for of in sims for s in of]))
        margin = float(np.mean([b - s for b, of in zip(best, sims, strict=True) for s in of]))
        by_list = float(np.mean([b - max(of) for b, of in zip(best, sims, strict=True)]))
        size = float(np.mean([len(of) for of in sims]))
        assert old[name].arithmetic == pytest.approx(plain.eci(signal, margin, size, arithmetic=True))
        assert old[name].eci == pytest.approx(plain.eci(signal, margin, size))
        assert old[name].by_list_arithmetic == pytest.approx(plain.eci(signal, by_list, size, arithmetic=True))
        assert old[name].by_list == pytest.approx(plain.eci(signal, by_list, size))
        assert old[name].gradient_norm == pytest.approx(size * math.exp(signal / 0.05))
        assert old[name].variance == pytest.approx(0.5 * (np.mean([max(of) for of in sims]) - signal) ** 2)
        three = [sorted(of, reverse=True)[:3] for of in sims]
        signal3, size3 = float(np.mean([s for of in three for s in of])), float(np.mean([len(of) for of in three]))
        margin3 = float(np.mean([b - s for b, of in zip(best, three, strict=True) for s in of]))
        assert old[name].hardest_3 == pytest.approx(plain.eci(signal3, margin3, size3))
        assert old[name].by_list_hardest_3 == pytest.approx(plain.eci(signal3, by_list, size3))


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


@pytest.mark.parametrize("seed", range(5))
def test_greedy_keeps_its_guarantee(seed):
    vectors = np.random.default_rng(seed).standard_normal((8, 3))
    step, gain = greedy_log_det((vectors @ vectors.T)[None], 3)
    reached = objective(vectors, tuple(np.flatnonzero(step[0] >= 0)))
    best = max(objective(vectors, chosen) for chosen in itertools.combinations(range(8), 3))
    assert (1 - 1 / math.e) * best <= reached <= best + 1e-12
    assert np.nansum(gain) == pytest.approx(reached)


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


def test_what_has_no_weight_is_never_chosen_and_bad_settings_are_refused():
    documents = Vectors.of(np.eye(4))
    geometry = Geometry(Vectors.of(np.eye(4)[:1]), documents, np.array([0]), np.zeros(3, np.int64), np.array([1, 2, 3]))
    assert compose(geometry, np.array([0.0, 1, 0]), count=3).order.tolist() == [-1, 0, -1]
    for wrong in ({"count": 0}, {"count": 1, "regularization": 0.0}):
        with pytest.raises(InputError):
            compose(geometry, np.ones(3), **wrong)
    with pytest.raises(InputError, match="not negative"):
        compose(geometry, np.array([1.0, -1, 0]), count=1)


def test_a_composed_table_keeps_what_was_chosen(world):
    united = fuse_sources(world.sources)
    prepared = prepare(world.collection, {"union": united}, control=False)
    measured = measure(prepared, NoEncoder(), ExactStore(), 0.05)  # type: ignore[arg-type]
    weights = gated(measured.similarities, 0.05)
    chosen = compose(measured.geometry, weights, count=2)
    table = composed(united, measured.records, chosen, weights)
    assert len(table) == len(united)
    assert int(table.keep.sum()) == int((chosen.order >= 0).sum())
    assert table.rejected()[NOT_CHOSEN] == len(united) - int(table.keep.sum())
    per_query = np.unique(table.kept()["query_id"].to_pylist(), return_counts=True)[1]
    assert per_query.max() == 2
    again = prepare(world.collection, {"composed": table}, control=False)
    assert len(again.records.record) == int(table.keep.sum()), "the kept rows are the chosen triplets"


# Certainty


def false_claims(draw, *, records: int = 1024, repeats: int = 150) -> tuple[float, float]:
    """How often some pair of equal targets is called apart at some look: by the boundary, and by 1.96 every time."""
    pairs = list(itertools.combinations(range(3), 2))
    ours = naive = 0
    for repeat in range(repeats):
        values = draw(np.random.default_rng([repeat, 1]), records)
        boundary = Boundary(records, 0.95, np.random.default_rng([repeat, 2]), paths=1000)
        wrong = wrong_naive = False
        for size in (128, 256, 512, 1024):
            differences = np.stack([values[:size, a] - values[:size, b] for a, b in pairs], axis=1)
            mean = differences.mean(axis=0)
            critical = boundary.next(differences - mean)
            z = np.abs(mean) / (differences.std(axis=0) / np.sqrt(size))
            wrong |= bool((z > critical).any())
            wrong_naive |= bool((z > 1.96).any())
        ours += wrong
        naive += wrong_naive
    return ours / repeats, naive / repeats


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["normal", "skewed"])
def test_looking_again_does_not_inflate_certainty(shape):
    draw = {
        "normal": lambda rng, n: rng.standard_normal((n, 3)),
        "skewed": lambda rng, n: rng.gamma(1.0, size=(n, 3)) + rng.standard_normal((n, 1)),
    }[shape]
    ours, naive = false_claims(draw, repeats=400)
    assert 0.01 <= ours <= 0.08, "95 % confidence, less three standard errors of the simulation"
    assert naive > 0.15


def test_the_boundary_widens_with_pairs_and_confidence():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((512, 6))

    def critical(columns: int, confidence: float) -> float:
        return Boundary(512, confidence, np.random.default_rng(1)).next(values[:, :columns])

    assert critical(1, 0.95) == pytest.approx(1.96, abs=0.1), "one pair, one look at everything: the usual value"
    assert critical(1, 0.95) < critical(6, 0.95) < critical(6, 0.99)


def test_influence_is_the_derivative_of_the_score(world, scores):
    settings = ScoreSettings(control=False)
    targets = scores.measured.records.targets(2)
    found = record_influence(scores.measured, targets, settings)
    assert found.mean(axis=0) == pytest.approx(np.zeros(len(targets)), abs=1e-9)
    geometry, records = scores.measured.geometry, scores.measured.records
    weights = gated(scores.measured.similarities, 0.05)
    step = 1e-6
    for index, target in enumerate(targets):
        rows = np.flatnonzero(target.of(records.members))
        for record in range(len(records)):
            mine = rows[records.record[rows] == record]
            part = information_matrix(geometry, weights, mine)
            whole = Moments(information_matrix(geometry, weights, rows), len(rows))
            moved = (whole.matrix + step * part) / (whole.count + step * len(mine))
            slope = (log_det(moved) - log_det(whole.information())) / step
            assert found[record, index] == pytest.approx(len(records) * slope, abs=1e-4)


def clear_world(queries: int = 64) -> Collection:
    """Each query shares its words with its positive; `easy` documents share nothing with it."""
    documents = {f"p{i}": f"topic{i} alpha{i} beta{i}" for i in range(queries)}
    documents |= {f"h{i}": f"topic{i} alpha{i} gamma{i}" for i in range(queries)}
    documents |= {f"e{i}": f"other{i} far{i}" for i in range(queries)}
    asked = {f"q{i}": f"topic{i} alpha{i} what" for i in range(queries)}
    return Collection.from_dicts("clear", documents, asked, {"train": {f"q{i}": {f"p{i}": 1} for i in range(queries)}})


def test_scoring_stops_when_certain_and_never_embeds_the_rest(tmp_path: Path):
    collection = clear_world()
    sources = {
        "hard": negatives([(f"q{i}", f"h{i}", None) for i in range(64)]),
        "easy": negatives([(f"q{i}", f"e{i}", None) for i in range(64)]),
    }
    encoder = HashingEncoder()
    settings = ScoreSettings(control=False, replicates=50)
    found = score_until(collection, sources, encoder, VectorStore(tmp_path), settings, first=16)
    assert found.certain
    assert found.looks[-1].records < 64
    used = found.looks[-1].records
    assert encoder.encoded == 4 * used, "query, positive and two negatives of the records looked at"
    assert found.scores.ranking[0] == "easy"
    assert found.to_json()["records_needed"] == used


@pytest.mark.parametrize("few", [1, 3])
def test_a_source_of_few_records_is_never_certain_and_has_no_false_interval(tmp_path: Path, few: int):
    """One source covers 64 queries, the other few: samples without it are no error, and nothing is claimed."""
    sources = {
        "every": negatives([(f"q{i}", f"h{i}", None) for i in range(64)]),
        "some": negatives([(f"q{i}", f"e{i}", None) for i in range(few)]),
    }
    settings = ScoreSettings(control=False, replicates=50)
    found = score_until(clear_world(), sources, HashingEncoder(), VectorStore(tmp_path), settings, first=16)
    assert not found.certain
    assert found.looks[-1].records == 64
    assert all("some" in str(look.undecided) for look in found.looks)
    of = {score.name: score for score in found.scores.sources}
    assert (of["some"].records, of["every"].records) == (few, 64)
    assert math.isnan(of["some"].eci_sem_low) == (few == 1)
    assert not of["some"].interval_covers or few > 1
    assert any("shared" in warning for warning in found.scores.warnings)
    sampled = next(table for table in ablate(found.scores).tables if table.name == "sample size")
    assert math.isnan(sampled.scores["25 %"]["some"]) or few > 1
    assert math.isfinite(sampled.scores["100 %"]["some"])


def test_equal_sources_are_never_certain(tmp_path: Path):
    rng = np.random.default_rng(0)
    collection = clear_world()
    shuffled = [rng.permutation(64) for _ in range(2)]
    sources = {
        name: negatives([(f"q{i}", f"e{j}", None) for i, j in enumerate(order)])
        for name, order in zip("ab", shuffled, strict=True)
    }
    settings = ScoreSettings(control=False, hybrids=1, replicates=0)
    found = score_until(collection, sources, HashingEncoder(), VectorStore(tmp_path), settings, first=16)
    assert not found.certain
    assert [look.records for look in found.looks] == [16, 32, 64]
    assert found.looks[-1].undecided
    with pytest.raises(InputError, match="at least 16"):
        score_until(collection, sources, HashingEncoder(), VectorStore(tmp_path), settings, first=3)


# Audit


def test_a_planted_false_negative_is_suspected_first(tmp_path: Path):
    collection = clear_world(8)
    documents = {row["doc_id"]: row["text"] for row in collection.documents.to_pylist()}
    documents["hidden"] = "topic3 alpha3 beta3 what"  # answers q3 as its positive does, and nobody labelled it
    asked = {row["query_id"]: row["text"] for row in collection.queries.to_pylist()}
    planted = Collection.from_dicts("planted", documents, asked, {"train": {f"q{i}": {f"p{i}": 1} for i in range(8)}})
    rows = [(f"q{i}", f"h{i}", None) for i in range(8)] + [("q3", "hidden", None)]
    sources = {"one": negatives(rows), "two": negatives([("q3", "hidden", None), *rows[:8]])}
    scores = score_sources(
        planted, sources, HashingEncoder(), VectorStore(tmp_path), ScoreSettings(replicates=0, control=True)
    )
    found = audit(scores, sources, top=3)
    assert [found[0].query_id, found[0].doc_id] == ["q3", "hidden"]
    assert found[0].sources == ("one", "two")
    assert any("nearer the query" in reason for reason in found[0].reasons)
    assert any("2 sources" in reason for reason in found[0].reasons)
    amounts = [suspect.suspicion for suspect in found]
    assert amounts == sorted(amounts, reverse=True)
    assert len(found) == 3
    assert all(suspect.sources for suspect in audit(scores, sources, top=50)), "none is the control's alone"
    assert CONTROL in scores.measured.records.names
