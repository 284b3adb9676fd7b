"""ECI_sem and ECI written plainly: one triplet at a time, in float64, from the papers' equations alone.

Nothing of foils is imported. This is the specification that the fast code is held against, so it is written for
reading: a record is a query, its labelled positives, and the texts that a source offers as negatives.
"""

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from types import SimpleNamespace

import numpy as np

Vector = np.ndarray
Tokens = Callable[[str], set[str]]
Idf = Callable[[str], float]


@dataclass(frozen=True)
class Record:
    """One query: its text, the texts of all its labelled positives (the first counts), a source's negatives."""

    query: str
    positives: tuple[str, ...]
    negatives: tuple[str, ...]


def tokens(text: str) -> set[str]:
    """The set of case-folded alphanumeric tokens."""
    return set(re.findall(r"[^\W_]+", text.casefold()))


def deduplicated(record: Record) -> Record:
    """Distinct negatives, without those whose text is a labelled positive's."""
    distinct = dict.fromkeys(text for text in record.negatives if text not in record.positives)
    return Record(record.query, record.positives, tuple(distinct))


def usable(records: Iterable[Record]) -> list[Record]:
    """Records with at least one negative that counts."""
    return [kept for kept in map(deduplicated, records) if kept.negatives]


def united(*sources: Sequence[Record]) -> list[Record]:
    """For each query the union of the sources' negatives; the sources list the same queries."""
    return [
        Record(parts[0].query, parts[0].positives, tuple(itertools.chain(*(part.negatives for part in parts))))
        for parts in zip(*sources, strict=True)
    ]


def pooled_documents(sources: Iterable[Sequence[Record]]) -> list[str]:
    """The distinct first positives and negatives of all sources scored together."""
    found: dict[str, None] = {}
    for records in sources:
        for record in usable(records):
            found.update(dict.fromkeys([record.positives[0], *record.negatives]))
    return list(found)


def idf_of(corpus: Iterable[str], tokens: Tokens = tokens) -> Idf:
    """idf(a) = ln((M + 1)/(df(a) + 1)) + 1."""
    sets = [tokens(text) for text in corpus]

    def idf(token: str) -> float:
        return math.log((len(sets) + 1) / (sum(token in each for each in sets) + 1)) + 1

    return idf


def coverage(query: str, document: str, idf: Idf, tokens: Tokens = tokens) -> float:
    """C, eq. 7."""
    whole = sum(idf(token) for token in tokens(query))
    return sum(idf(token) for token in tokens(query) & tokens(document)) / whole if whole else 0.0


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def minus_log_sigmoid(x: float) -> float:
    return math.log1p(math.exp(-x)) if x >= 0 else -x + math.log1p(math.exp(x))


def log_det(matrix: np.ndarray) -> float:
    """log det(Id + matrix)."""
    sign, value = np.linalg.slogdet(np.eye(len(matrix)) + matrix)
    assert sign > 0
    return float(value)


@dataclass
class Triplet:
    """Everything about one (query, positive, negative)."""

    rho: float
    eta: float
    coverage: float
    pair_loss: float
    direction: Vector
    gap: Vector

    @property
    def psi(self) -> float:
        return 1 - self.coverage

    @property
    def weight(self) -> float:
        return self.rho * self.eta * self.psi


def triplet(u: Vector, positive: Vector, negative: Vector, covered: float, temperature: float) -> Triplet:
    gap = positive - negative
    length = math.sqrt(float(gap @ gap))
    margin = float(u @ positive - u @ negative) / temperature
    return Triplet(
        rho=sigmoid(margin),
        eta=sigmoid(float(positive @ negative - u @ negative) / temperature),
        coverage=covered,
        pair_loss=minus_log_sigmoid(margin),
        direction=gap / length if length > 0 else np.zeros_like(gap),
        gap=gap,
    )


def score(
    records: Sequence[Record],
    queries: Mapping[str, Vector],
    documents: Mapping[str, Vector],
    idf: Idf,
    *,
    temperature: float = 0.05,
    regularization: float = 1.0,
    tokens: Tokens = tokens,
) -> SimpleNamespace:
    """Score one source, one triplet at a time; the names are those of the result."""
    kept = usable(records)

    def of(record: Record, text: str) -> Triplet:
        u, positive = queries[record.query], documents[record.positives[0]]
        return triplet(u, positive, documents[text], coverage(record.query, text, idf, tokens), temperature)

    flat = [of(record, text) for record in kept for text in record.negatives]
    n = len(flat)
    d = len(flat[0].gap)

    def information(omega: Callable[[Triplet], float]) -> np.ndarray:
        matrix = np.zeros((d, d))
        for each in flat:
            matrix += omega(each) * np.outer(each.direction, each.direction)
        return matrix / n

    def mean(value: Callable[[Triplet], float]) -> float:
        return math.fsum(value(each) for each in flat) / n

    def percent(condition: Callable[[Triplet], bool]) -> float:
        return 100 * sum(map(condition, flat)) / n

    def energy(each: Triplet) -> float:
        return (1 - each.rho) ** 2 / temperature**2 * float(each.gap @ each.gap)

    whole = information(lambda each: each.weight)
    eci_sem = log_det(whole / regularization)
    near = similarities(records, queries, documents)
    signal = math.fsum(s for of, _ in near for s in of) / n
    sizes = [len(of) for of, _ in near]
    margins = {"": [best - np.mean(of) for of, best in near], "_list": [best - max(of) for of, best in near]}
    means = {"": np.average(margins[""], weights=sizes), "_list": np.mean(margins["_list"])}
    lists = [[documents[text] for text in (record.positives[0], *record.negatives)] for record in kept]
    listwise = [listwise_of(queries[record.query], of, temperature) for record, of in zip(kept, lists, strict=True)]
    return SimpleNamespace(
        records=len(kept),
        negatives=n,
        eci_sem=eci_sem,
        eci_sem_per_dim=eci_sem / d,
        trace=float(np.trace(whole / regularization)),
        information=whole,
        signal=signal,
        **{f"margin{by}": max(0.0, mean) for by, mean in means.items()},
        **{f"eci{by}": eci(max(0.0, signal), mean, n / len(kept)) for by, mean in means.items()},
        **{name: mean(attrgetter(name)) for name in ("rho", "eta", "coverage", "psi", "pair_loss")},
        inversion_rate=mean(lambda each: float(each.rho < 0.5)),
        buckets={
            "inverted": percent(lambda each: each.rho < 0.5),
            "not_local": percent(lambda each: each.eta <= 0.25),
            "high_coverage": percent(lambda each: each.coverage >= 0.5),
            "valid_high_coverage": percent(lambda each: each.rho >= 0.75 and each.eta >= 0.75 and each.coverage >= 0.5),
            "valid_not_local": percent(lambda each: each.rho >= 0.75 and each.psi >= 0.75 and each.eta <= 0.25),
        },
        gradient_energy=math.fsum(g for g, _, _ in listwise) / len(kept),
        mnrl_proxy=math.fsum(loss for _, loss, _ in listwise) / len(kept),
        ambiguity=sum(above for _, _, above in listwise) / len(kept),
        residual_only=log_det(information(lambda _: 1.0) / regularization),
        gradient_weighted=log_det(information(lambda each: energy(each) * each.eta * each.psi) / regularization),
        margin_hardness=log_det(information(energy) / regularization),
    )


def listwise_of(u: Vector, candidates: list[Vector], temperature: float) -> tuple[float, float, bool]:
    """‖g‖², −log P_+, and whether some negative scores above the positive; the positive comes first."""
    similarities = [float(u @ each) for each in candidates]
    largest = max(similarities)
    shares = [math.exp((each - largest) / temperature) for each in similarities]
    total = math.fsum(shares)
    expected = sum(share / total * each for share, each in zip(shares, candidates, strict=True))
    gradient = (expected - candidates[0]) / temperature
    loss = math.log(total) - (similarities[0] - largest) / temperature
    return float(gradient @ gradient), loss, max(similarities[1:]) > similarities[0]


def eci(signal: float, margin: float, negatives: float) -> float:
    """ECI = ln(1 + |N|) · 2·S·Δ'/(S + Δ')."""
    margin = max(0.0, margin)
    mean = 2 * signal * margin / (signal + margin) if margin else 0.0
    return math.log(1 + negatives) * mean


def similarities(
    records: Sequence[Record], queries: Mapping[str, Vector], documents: Mapping[str, Vector]
) -> list[tuple[list[float], float]]:
    """Of each record the similarities of its negatives, and its best positive's."""
    return [
        (
            [float(queries[record.query] @ documents[text]) for text in record.negatives],
            max(float(queries[record.query] @ documents[text]) for text in record.positives),
        )
        for record in usable(records)
    ]
