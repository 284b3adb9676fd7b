"""Simplifications, tokens and ECI, the earlier score, each against something that is not itself."""

import json
import math
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import plain
import pytest
from score_world import ExactStore, NoEncoder, Texts, World, random_world, score

from foils.data.tokens import TOKENIZERS
from foils.scoring.gates import WEIGHTINGS, Lexicon, gated
from foils.scoring.measure import information_sums, log_det
from foils.scoring.scores import eci, source_eci

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


def dets_of(measured, weights):
    records, targets = measured.records, measured.records.targets(2)
    sums = information_sums(measured.geometry, weights, records.members, targets)
    return {each.name: log_det(sums[each.name] / np.count_nonzero(each.of(records.members))) for each in targets}


def test_simplifications_are_the_plain_ones(world):
    measured = scored(world).measured
    for weighting in ("residual_only", "gradient_weighted", "margin_hardness"):
        for name, det in dets_of(measured, WEIGHTINGS[weighting](measured.similarities)).items():
            assert det == pytest.approx(getattr(plainly(world, name, pooled(world)), weighting), rel=1e-9)


@pytest.mark.parametrize("tokenizer", TOKENIZERS)
def test_tokenizers_are_the_plain_ones(world, tokenizer):
    tokens, measured = TOKENS[tokenizer], scored(world).measured
    lexicon = Lexicon.of(measured.records, tokenizer=tokenizer)
    measured = measured.with_coverage(lexicon.coverage(measured.records, lexicon.idf(measured.records.corpus)))
    for name, det in dets_of(measured, gated(measured.similarities)).items():
        expected = plainly(world, name, pooled(world, tokens), tokens=tokens).eci_sem
        assert det == pytest.approx(expected, abs=1e-9)


# ECI, the earlier score: published figures, cases by hand, and its ends


PUBLISHED = json.loads((Path(__file__).parents[1] / "data" / "published.json").read_text())["eci"]
POSITIVE = 0.780  # mean similarity of query and positive: S + Δ, where Δ is averaged over the triplets


def attainable(signal: tuple[float, float], margin: tuple[float, float], negatives: int) -> tuple[float, ...]:
    """The lowest and the highest ECI of any S and Δ in these ranges."""
    return tuple(eci(s, d, negatives) for s, d in zip(signal, margin, strict=True))


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


@pytest.mark.parametrize(("margin", "delta", "value"), [("triplet", 1.1 / 3, 0.387661), ("list", 0.25, 0.305430)])
def test_a_source_by_hand(margin, delta, value):
    """Record 0: negatives 0.2, 0.4; record 2: negative 0.9. Best positives 0.8 (and 0.1, of no record) and 1.0.

    S = 0.5, |N| = 1.5. By triplets Δ = ((0.8 − 0.2) + (0.8 − 0.4) + (1 − 0.9))/3 = 1.1/3.
    ECI = ln 2.5 · 2·0.5·Δ/(0.5 + Δ) = 0.387661.
    By lists Δ = ((0.8 − 0.4) + (1 − 0.9))/2 = 0.25: ECI = ln 2.5 · 2·0.5·0.25/0.75 = 0.305430.
    """
    found = source_eci(*RECORDS, margin=margin)
    assert (found.signal, found.negatives, found.margin) == (pytest.approx(0.5), 1.5, pytest.approx(delta))
    assert found.value == pytest.approx(value, abs=1e-6)


def test_unsafe_sources_score_nothing():
    for signal, margin, negatives in ((0.5, -0.1, 10), (0.5, 0.0, 10), (0.0, 0.0, 10), (-0.2, 0.3, 10), (0.5, 0.1, 0)):
        assert eci(signal, margin, negatives) == 0
