"""Simplifications, tokens and ECI, the earlier score, each against something that is not itself."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np
import plain
import pytest
from score_world import ExactStore, NoEncoder, Texts, World, random_world, score

from foils.data.tokens import TOKENIZERS
from foils.scoring.gates import WEIGHTINGS
from foils.scoring.information import log_det, target_moments
from foils.scoring.scores import MARGINS, eci, gradient_norm, score_variance, source_eci
from refusals import refused

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


def scored(world, **settings):
    return score(world.collection, world.sources, NoEncoder(), ExactStore(), control=False, **settings)


def pooled(world: World, tokens: plain.Tokens = plain.tokens) -> plain.Idf:
    return plain.idf_of(plain.pooled_documents(world.plainly.values()), tokens)


def agree(world, idf, given, **chosen):
    for found in scored(world, **given).sources:
        assert found.eci_sem == pytest.approx(plainly(world, found.name, idf, **chosen).eci_sem, abs=1e-9)


def test_simplifications_are_the_plain_ones(world):
    measured = scored(world).measured
    targets = measured.records.targets(2)
    for weighting in ("residual_only", "gradient_weighted", "margin_hardness"):
        weights = WEIGHTINGS[weighting](measured.similarities)
        moments = target_moments(measured.geometry, weights, measured.records.members, targets)
        for target in targets:
            expected = getattr(plainly(world, target.name, pooled(world)), weighting)
            assert log_det(moments[target.name].information()) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_tokenizers_are_the_plain_ones(world, tokenizer):
    tokens = TOKENS[tokenizer]
    agree(world, pooled(world, tokens), {"tokenizer": tokenizer}, tokens=tokens)


def test_idf_corpora_are_the_plain_ones(world):
    queries = [record.query for record in world.plainly["a"] if any_source_has(world, record.query)]
    documents = plain.pooled_documents(world.plainly.values())
    agree(world, plain.idf_of([*documents, *queries]), {"idf_corpus": "pooled+queries"})
    agree(world, lambda token: 1.0, {"idf_corpus": "uniform"})


def any_source_has(world: World, query: str) -> bool:
    return any(record.query == query for of in world.plainly.values() for record in plain.usable(of))


# ECI, the earlier score: published figures, cases by hand, and its ends


PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "published.json").read_text())["eci"]
POSITIVE = 0.780  # mean similarity of query and positive: S + Δ, where Δ is averaged over the triplets


def attainable(
    signal: tuple[float, float], margin: tuple[float, float], negatives: int, **options: str
) -> tuple[float, ...]:
    """The lowest and the highest ECI of any S and Δ in these ranges."""
    return tuple(eci(s, d, negatives, **options) for s, d in zip(signal, margin, strict=True))


def printed(value: float, digits: int = 3) -> tuple[float, float]:
    """The numbers that are printed as this one."""
    return value - 0.5 * 10**-digits, value + 0.5 * 10**-digits


def meet(a: Sequence[float], b: Sequence[float]) -> bool:
    return max(a[0], b[0]) <= min(a[1], b[1])


@pytest.mark.parametrize("name", ["cross_encoder", "bm25+cross_encoder"])
def test_published_figures_from_their_summary_statistics(name):
    found = PUBLISHED[name]
    ranges = printed(found["S_n"]), printed(found["delta_max"]), found["n"]
    assert meet(attainable(*ranges), printed(found["eci"], 2))
    if "arithmetic" in found:
        assert meet(attainable(*ranges, mean="arithmetic"), printed(found["arithmetic"], 2))


def test_signal_and_margin_add_up_to_one_number_only_where_the_margin_is_of_triplets():
    """Mean s_p − s_n and mean s_n add up to mean s_p, whatever the negatives are; the hardest negative's do not."""
    for name in ("cross_encoder", "bm25+cross_encoder"):
        found = PUBLISHED[name]
        assert found["S_n"] + found["delta_max"] == pytest.approx(POSITIVE, abs=0.00101), "two figures of ±0.0005"
    llm = PUBLISHED["llm"]
    signal = POSITIVE - llm["delta_max"]
    assert eci(signal, llm["delta_max"], llm["n"]) == pytest.approx(llm["eci"], abs=0.005)
    assert eci(signal, llm["delta_max"], 3) == pytest.approx(PUBLISHED["fixed_n3"]["llm"], abs=0.0005)


def test_unions_lie_between_their_parts_only_where_the_margin_is_of_triplets():
    """Cross-encoder + LLM at three each lies between .228 and .262. By lists the cross-encoder's three hardest keep
    their margin of .175, so ECI above .37, and no part of a union has a smaller margin than its union."""
    fixed, union, part = PUBLISHED["fixed_n3"], PUBLISHED["bm25+cross_encoder"], PUBLISHED["cross_encoder"]
    assert fixed["cross_encoder"] < fixed["cross_encoder+llm"] < fixed["llm"]
    assert eci(part["S_n"], part["delta_max"], 3) > 0.37 > fixed["cross_encoder"]
    assert union["delta_max"] > part["delta_max"], "which no union's margin by lists can be"


def test_two_of_three_published_unions_fit_neither_reading():
    """By triplets ECI grows with Δ at one |N| (below S = Δ), and a union's Δ is between those of its parts."""
    fixed = PUBLISHED["fixed_n3"]
    more = math.log(1 + 6) / math.log(1 + 3)  # of the two parts' negatives together, six instead of three
    fits = {}
    for union in ("bm25+cross_encoder", "llm+bm25", "cross_encoder+llm"):
        low, high = sorted(fixed[part] for part in union.split("+"))
        around = printed(fixed[union])
        fits[union] = meet(around, (low, high)) or meet(around, (more * low, more * high))
    assert fits == {"bm25+cross_encoder": False, "llm+bm25": False, "cross_encoder+llm": True}


RECORDS = np.array([0, 0, 2]), np.array([0.2, 0.4, 0.9]), np.array([0.8, 0.1, 1.0])


@pytest.mark.parametrize(
    ("margin", "delta", "value", "per_query"),
    [("triplet", 1.1 / 3, 0.387661, 0.268373), ("list", 0.25, 0.305430, 0.250717)],
)
def test_a_source_by_hand(margin, delta, value, per_query):
    """Record 0: negatives 0.2, 0.4; record 2: negative 0.9. Best positives 0.8 (and 0.1, of no record) and 1.0.

    S = 0.5, |N| = 1.5. By triplets Δ = ((0.8 − 0.2) + (0.8 − 0.4) + (1 − 0.9))/3 = 1.1/3.
    ECI = ln 2.5 · 2·0.5·Δ/(0.5 + Δ) = 0.387661.
    Per query: record 0: ln 3 · 2·0.3·0.5/0.8 = 0.411980; record 2: ln 2 · 2·0.9·0.1/1 = 0.124766. Mean 0.268373.
    By lists Δ = ((0.8 − 0.4) + (1 − 0.9))/2 = 0.25: ECI = ln 2.5 · 2·0.5·0.25/0.75 = 0.305430.
    Per query: record 0: ln 3 · 2·0.3·0.4/0.7 = 0.376667; record 2 as before. Mean 0.250717.
    """
    found = source_eci(*RECORDS, margin=margin)
    assert (found.signal, found.negatives, found.margin) == (pytest.approx(0.5), 1.5, pytest.approx(delta))
    assert (found.value, found.per_query) == pytest.approx((value, per_query), abs=1e-6)


def test_only_the_hardest_negatives_count_where_asked():
    """Table 4: the hardest of each record. S = (0.4 + 0.9)/2, |N| = 1; Δ = 0.25 by either margin."""
    arguments = np.array([0, 0, 0, 2]), np.array([0.2, 0.4, 0.1, 0.9]), np.array([0.8, 0.1, 1.0])
    for margin in MARGINS:
        found = source_eci(*arguments, hardest=1, margin=margin)
        assert (found.signal, found.negatives) == (pytest.approx(0.65), 1)
        assert found.margin == pytest.approx(0.25)
        assert found.value == pytest.approx(math.log(2) * 2 * 0.65 * 0.25 / 0.9)
        assert source_eci(*arguments, hardest=2).signal == pytest.approx(0.5)
        assert astuple(source_eci(*arguments, hardest=9)) == pytest.approx(astuple(source_eci(*arguments)))


def test_the_arithmetic_mean_on_each_path():
    """By triplets it is ln(1 + |N|)·MaxSim_p/2, the same for any negatives: why Table 5 finds it blind."""
    arguments = np.array([0, 0]), np.array([0.2, 0.4]), np.array([0.8])
    for margin, delta in (("triplet", 0.5), ("list", 0.4)):
        found = source_eci(*arguments, mean="arithmetic", margin=margin)
        assert found.value == pytest.approx(math.log(3) * (0.3 + delta) / 2)
        assert found.per_query == pytest.approx(found.value)
        assert source_eci(*arguments, margin=margin).value == pytest.approx(
            math.log(3) * 2 * 0.3 * delta / (0.3 + delta)
        )


def test_unsafe_sources_score_nothing():
    for signal, margin, negatives in ((0.5, -0.1, 10), (0.5, 0.0, 10), (0.0, 0.0, 10), (-0.2, 0.3, 10), (0.5, 0.1, 0)):
        assert eci(signal, margin, negatives) == 0


def test_heuristics():
    assert gradient_norm(0.6, 25, 0.05) == pytest.approx(25 * math.exp(12))
    assert score_variance(0.8, 0.6) == pytest.approx(0.02)


@pytest.mark.parametrize(("bad", "said"), [
    ({"mean": "geometric"}, "arithmetic, harmonic"), ({"margin": ""}, "list, triplet"), ({"hardest": 0}, "hardest"),
])  # fmt: skip
def test_an_unknown_setting_is_an_error(bad, said):
    refused(said, source_eci, np.array([0]), np.array([0.2]), np.array([0.8]), **bad)
