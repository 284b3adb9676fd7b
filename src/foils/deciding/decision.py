"""The decision: which negatives to train on, none and random ones among them, and where that would turn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pyarrow as pa
from scipy.special import expit, ndtri

from foils.data.collection import Collection, DocumentTexts, Rows
from foils.data.labels import Labels, LabelsLike
from foils.data.negatives import Negatives, Recapture, negatives_table
from foils.data.splitting import expected_recurrence
from foils.deciding.benefit import FORM, HARM, MOST, STARTS, Odds, added_losses, in_batch_odds, learnabilities, pulls
from foils.deciding.judged import Judged, Posterior, Source, posterior
from foils.deciding.unlabelled import Relevance, Survey, survey_pairs
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.mining.retrievers import BM25Retriever
from foils.runtime import seeds
from foils.runtime.errors import InputError
from foils.runtime.files import without_nan
from foils.runtime.options import Option, Settings
from foils.runtime.results import Result, Table
from foils.scoring.gates import Float64s
from foils.scoring.measure import Measured, measure
from foils.scoring.triplets import make_records

if TYPE_CHECKING:
    LabelsGiven = LabelsLike
else:
    LabelsGiven = str

NONE, RANDOM = "none", "random"
RECORDS = 2_000  # queries of the split that are looked at, at most, drawn at random
RANKED = 400  # queries whose positives BM25 ranks, about
DOCUMENTS = 100_000  # of the collection that ranks are counted among, at most, drawn at random
BLOCKS = 64  # of records, that are resampled
DRAWS = 400  # resamplings
GRID = 41  # values of o from 0 to its bound
LEAST_RATE = 1e-6  # share of a source's negatives that are answers, for each o, at least
LEAST_RATIO = 1e-12  # n_L/n_U, at least
SLACK, SURELY = 1.05, 10.0  # of the bound of o; recaptured positives of a source whose rate bounds it
COUNTED, UNCOUNTED, OUTSIDE = 0.05, 0.6, 1.0  # what the logarithm of a rate may be wrong by beside chance
CONFIRMED = 0.975  # probability of an answer among the judged from which on a share has a lower end above 0
TOLERANCE = 0.05  # share of the best benefit that a cheaper source may lose; the choice cells allow 5 to 20 %
WORTH_LABELS = 0.1  # points of nDCG that the choice may lose before labels are asked for
LABELS = 60  # that are asked for at a time
ABLE = 0.75  # share of random documents below the positive from which on a model can learn from hard negatives
RECURRING = 0.995  # share of recurring positives from which on nothing is said of the others
ENOUGH = 50  # queries from which on nine choices of ten are those of all queries (`benchmarks/run.py decide few`)
POOLED = 0.99  # share of the labelled positives among a retriever's first documents that pooling leaves
CLIFF = 0.03  # share in the second half of these, of which a natural order leaves half as many beyond
POOLS = (5, 10, 20, 50, 100)  # first documents that are judged together
LEAST_POSITIVES = 20  # that pooling is told from
SHORT = 40  # words of a document, at most, whose neighbours often answer as well
LONGER = 1.5  # times the shortest source's negatives a query, above which benefits are of different lengths
COSTS = {NONE: 0, RANDOM: 1, "bm25": 2, "dense": 3, "trisampler": 3, "ance": 4, "cross-encoder": 5, "llm": 6}
UNKNOWN_COST = 4


@dataclass(frozen=True)
class BeliefSettings(Settings):
    """What is known of the training and of unlabelled answers.

    Attributes:
        labels: File of judged pairs, as `foils label` writes it. In Python also Labels, or a DataFrame.
        starts: What the training starts from: the encoder that scores, or nothing, as a reranker from a masked language
            model does.
        in_batch: Negatives that a query has in its batch anyway, as random documents; 0 for a loss of the list alone.
    """

    heading = "Decision"

    labels: Annotated[LabelsGiven | None, Option(metavar="FILE")] = None
    starts: Annotated[str, Option(names=STARTS)] = "encoder"
    in_batch: Annotated[int, Option(least=0)] = 127


@dataclass(frozen=True)
class Candidate:
    """What is expected of one source, of random negatives, or of none.

    Attributes:
        records: that it has a negative for, of those looked at.
        benefit: B, a mean over all records; without labels at half of what the pairs cannot exclude. `benefit_low`,
            `benefit_high`: its interval, without labels over all that they cannot exclude.
        strength: what the benefit would be without unlabelled answers. `learnability`: mean ℓ, weighted by a.
        gain: points of nDCG@10 expected over no mined negatives, with its interval.
        false_share: φ, its share of unlabelled answers; NaN without labels. `false_share_low`, `false_share_high`: its
            interval; without labels from 0 to what the pairs cannot exclude.
        best_with_probability: of all candidates; NaN without labels.
        verdict: good, tie with the chosen one, worse, harmful, or no better than none.
    """

    name: str
    records: int
    benefit: float
    benefit_low: float
    benefit_high: float
    strength: float
    learnability: float
    gain: float
    gain_low: float
    gain_high: float
    false_share: float
    false_share_low: float
    false_share_high: float
    best_with_probability: float
    verdict: str = ""


@dataclass(frozen=True)
class Turn:
    """Where the decision would be another.

    Attributes:
        unlabelled: o there. `false_share`: φ of the chosen source there. `source`: that is better then; None: no mined
            negatives. `above`: whether it is better with more unlabelled answers. `share_of_other`: its φ there.
    """

    unlabelled: float
    false_share: float
    source: str | None
    above: bool
    share_of_other: float = 0.0


@dataclass(frozen=True)
class Ground:
    """What a decision rests on.

    Attributes:
        measured: the triplets of the records that are looked at.
        expected: (m,) π of each triplet; without labels at half of what the pairs cannot exclude.
        in_batch: (T,) log(M·E[x]) of each record.
        settings: of the belief. `recurrence`: R; None: the training starts from nothing.
    """

    measured: Measured
    expected: Float64s
    in_batch: Float64s
    settings: BeliefSettings
    recurrence: float | None


@dataclass(frozen=True)
class Decision(Result):
    """What to train on.

    Attributes:
        source: the one to train on, `random` where no source of the name was given too; None: no mined negatives.
        candidates: sources, random negatives and none, best first.
        best_with_probability: of the chosen one, with labels; None without. `runner_up`: the second of the candidates.
        ties: candidates that the interval does not tell from the chosen one.
        turns_at: where another is better with more unlabelled answers than is believed, or, where none is, with fewer;
            None: nowhere up to the bound of o. `turns_below`: the end towards fewer answers, where there are two.
        pooled: why the labels look pooled, as the judged first documents of a retriever; empty: they do not. Then the
            bound of o means nothing, and all shares are thought possible.
        queries: of the split, with a positive. Fewer than 50 are too few to tell.
        label_next: labels that could change the choice by more than a tenth of a point; 0: none.
        labels: judged pairs that the decision rests on.
        unlabelled_most: ō, the bound of o, relevant documents without a label for each that has one.
        ability: share of random negatives that the encoder puts below the positive.
        recurrence: R, the share of the queries to come whose relevant documents are positives of training queries too;
            None: the training starts from nothing.
        curve: o from 0 to ō, and each candidate's benefit there.
        sentences: the decision in words, the answer first. `cautions`: what speaks against relying on it. `next`: what
            to type next.
        negatives: sources and random negatives, as tables to train on. `ground`: what it rests on.
    """

    source: str | None
    candidates: tuple[Candidate, ...]
    best_with_probability: float | None
    runner_up: str | None
    ties: tuple[str, ...]
    turns_at: Turn | None
    label_next: int
    labels: int
    unlabelled_most: float
    ability: float
    recurrence: float | None
    curve: Mapping[str, Any] = field(repr=False)
    negatives: Mapping[str, Negatives] = field(repr=False)
    ground: Ground = field(repr=False)
    turns_below: Turn | None = None
    pooled: str = ""
    queries: int = 0
    sentences: tuple[str, ...] = ()
    cautions: tuple[str, ...] = ()
    next: str = ""

    @property
    def worths(self) -> dict[str, Candidate]:
        """The candidates by name, none left out."""
        return {each.name: each for each in self.candidates if each.name != NONE}

    @property
    def sentence(self) -> str:
        """What to train on, in one sentence."""
        return self.sentences[0]

    def table(self) -> Table:
        """Return the candidates, best first, under the sentence, with the next command below."""
        labelled = self.labels > 0
        columns = ["source", "gain over none", "unlabelled answers", *["P(best)"] * labelled, "verdict"]
        rows = [
            (each.name, points(each.gain, each.gain_low, each.gain_high), percents(each),
             *[f"{each.best_with_probability:.2f}"] * labelled, each.verdict)
            for each in self.candidates
        ]  # fmt: skip
        chosen = frozenset(at for at, each in enumerate(self.candidates) if each.name == (self.source or NONE))
        return Table(self.sentence, columns, rows, "\n".join([*self.cautions, self.next]), chosen)

    def tables(self) -> list[Table]:
        """Return the one table that there is to see."""
        return [self.table()]

    def to_json(self) -> dict[str, Any]:
        """Return the decision as scores.json holds it."""
        hidden = ("curve", "negatives", "ground")
        plain = {key: value for key, value in vars(self).items() if key not in hidden}
        turns = {
            key: asdict(turn) if turn else None
            for key, turn in (("turns_at", self.turns_at), ("turns_below", self.turns_below))
        }
        candidates = [asdict(each) for each in self.candidates]
        return dict(without_nan({**plain, **turns, "candidates": candidates}))


def points(value: float, low: float, high: float) -> str:
    """Return a gain in points with its interval, as +0.8 [0.1, 1.6]."""
    return "0.0" if low == high == 0 else f"{value:+.1f} [{low:.1f}, {high:.1f}]"


def percents(each: Candidate) -> str:
    """Return the interval of a candidate's share of unlabelled answers."""
    low, high = percent(each.false_share_low), percent(each.false_share_high)
    return f"{low[:-2]}–{high}" if low != high else high


def percent(share: float) -> str:
    """Return a share for readers; what is above 0 is 0.01 % at the least."""
    return f"{max(100 * share, 0.01):.2g} %" if 0 < share < 0.1 else f"{100 * share:.0f} %"


def decide(
    collection: Collection,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    settings: BeliefSettings | None = None,
    *,
    split: str = "train",
    temperature: float = 0.05,
    seed: int = 0,
    confidence: float = 0.95,
    candidates: Sequence[str] | None = None,
    records: int | None = RECORDS,
) -> Decision:
    """Decide which negatives to train on: one of the sources, random ones, or none.

    Each candidate's benefit is a mean over the same queries of the split; a query that a source has no negative for
    counts as none. Without labels the share of unlabelled answers is known up to a bound alone. Chosen is the candidate
    with the largest benefit at half of it, or a cheaper one that loses at most 5 % of that; said is up to which share
    it stays the best. With labels benefits are means over what is believed after them.

    Args:
        collection: documents, queries, judgements.
        sources: name -> negatives. Random ones are drawn beside them, unless a source is called random.
        encoder: that the training starts from.
        store: of vectors; the collection's documents, 100,000 at most, are embedded where it lacks them.
        settings: labels, what the training starts from, and in-batch negatives.
        split: whose queries are trained on.
        temperature: τ of the training.
        seed: of all draws.
        confidence: of the intervals.
        candidates: names that may be chosen, `random` and `none` among them; None: all.
        records: queries to look at, at most, drawn at random, with those that have labels; None: all.

    Raises:
        InputError: fewer than two queries, no negatives, or labels that cannot be read or belong to other pairs.
    """
    settings = settings or BeliefSettings()
    labels = None if settings.labels is None else Labels.of(settings.labels, collection)
    every = dict(sources) if RANDOM in sources else {**sources, RANDOM: _random(collection, sources, split, seed)}
    if NONE in every:
        raise InputError(f"a source is called {NONE!r}, which stands for no mined negatives; give it another name")
    rng, trained = np.random.default_rng([seed, seeds.MEASURED]), np.sort(collection.positives(split).query_rows)
    if len(trained) < 2:
        raise InputError(
            f"the split {split!r} has {len(trained)} queries with a positive; a decision needs at least two"
        )
    queries = rng.permutation(trained)[:records]
    if labels is not None:
        queries = np.append(queries, np.intersect1d(collection.query_rows(labels.table["query_id"]), trained))
    queries = np.unique(queries)
    of = make_records(collection, every, split=split, control=False, queries=queries)
    measured = measure(of, encoder, store, temperature)
    rows = np.arange(len(collection.documents))
    if len(rows) > DOCUMENTS:
        rows = np.sort(rng.choice(rows, DOCUMENTS, replace=False))
    survey = survey_pairs(measured, store.embed(encoder, DocumentTexts(collection, rows), "document"), rows, rng)
    relevance = Relevance.fit(survey, seed=seed)
    logs = np.log(np.maximum(relevance.ratio(survey.negatives), LEAST_RATIO))
    recurrence = None
    if settings.starts != "nothing":
        recurrence = expected_recurrence(collection, split) if getattr(encoder, "static", False) else 1.0
    ground = Ground(
        measured, np.zeros(len(logs)), in_batch_odds(measured, survey.unlabelled, settings.in_batch, temperature,
        settings.starts), settings, recurrence,
    )  # fmt: skip
    known = {name: _source(measured, bit, every[name], logs) for bit, name in enumerate(of.names)}
    most = SLACK * min([relevance.bound(survey), *filter(None, map(_bound, known.values(), map(every.get, known)))])
    judged, listed, bound = Judged.of(labels, of), list(known.values()), max(most, 1e-9)
    # Benefits on a grid of o, and, with labels, draws of them; blocks of records are resampled.
    grid = np.linspace(0.0, bound, GRID)
    if pooled := signs_of_pooling(collection, queries, survey):
        # No single o fits labels that prefer one retriever's documents: go on until all of each source may be answers.
        held = [source for name, source in known.items() if len(source.triplets) and name != RANDOM]
        rate = min((source.share(bound) / bound for source in held), default=1.0)
        most = max(bound, MOST / max(rate, LEAST_RATE))
        grid = np.append(grid, np.geomspace(bound, most, GRID)[1:])
    block_of = rng.permutation(np.arange(len(of)) % min(BLOCKS, len(of)))
    blocks = int(block_of.max()) + 1
    counts = np.bincount(block_of, minlength=blocks) * (len(queries) / len(block_of))
    weights = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=DRAWS).astype(np.float64)
    # A source's errors are drawn by its name, so that its interval does not depend on the other sources.
    streams = [np.random.default_rng([seed, seeds.MEASURED, *name.encode()]) for name in (*known, NONE)]
    errors = (rng.standard_t(3, DRAWS), np.column_stack([stream.standard_t(3, DRAWS) for stream in streams]))
    after = None if judged is None else posterior(judged, listed, logs, grid[-1], rng)
    plain, shares = np.zeros((2, len(grid), len(listed) + 1))
    benefits = np.zeros((len(grid) if after is None else 1, DRAWS, len(listed) + 1))
    drawn_shares = np.zeros((DRAWS, len(listed) + 1))
    strengths, learnability, having = np.zeros(len(listed) + 1), np.ones(len(listed) + 1), []
    for at, source in enumerate(listed):
        own = source.triplets
        record = of.record[own]
        learned = learnabilities(measured, own, settings.starts, recurrence)
        added = added_losses(record, *pulls(measured, own, settings.starts), ground.in_batch, temperature)
        strength, block = added * learned, block_of[record]
        summed = partial(_summed, logs[own], strength, block, blocks)
        strengths[at], learnability[at] = strength.sum() / counts.sum(), strength.sum() / max(added.sum(), 1e-300)
        having.append(len(np.unique(record)))
        shares[:, at] = [source.share(o) for o in grid]
        on_grid = np.array([summed(*source.odds.line(share))[0] for share in shares[:, at].tolist()])
        plain[:, at] = on_grid.sum(axis=1) / counts.sum()
        if after is None:
            # einsum: a product of matrices sums in an order that the number of threads decides
            benefits[:, :, at] = np.einsum("ob,db->od", on_grid, weights) / np.einsum("db,b->d", weights, counts)
        else:
            for draw, (constant, slope) in enumerate(after.lines[:, at]):
                sums, drawn_shares[draw, at] = summed(constant, slope)
                benefits[0, draw, at] = weights[draw] @ sums / (weights[draw] @ counts)
    spreads = np.array([*(source.spread for source in listed), 0.0])
    seen = np.append(np.zeros(len(listed)) if after is None else after.seen_false, 0.0)
    weighed = _Weighed(
        (*known, NONE), (*having, 0), strengths, learnability, grid, plain, shares, benefits,
        None if after is None else drawn_shares, seen, spreads, errors, _expected(known, logs, bound / 2, after),
    )  # fmt: skip
    return _decided(weighed, ground, every, candidates, judged, most, confidence, pooled, len(trained))


def signs_of_pooling(collection: Collection, queries: Rows, survey: Survey) -> str:
    """Say why the labels look as if they had been chosen among likely documents; empty where nothing speaks for it.

    Signs are that the labelled positives reach evenly down to a rank of the encoder or of BM25 and end there, and one
    positive a query in a collection of short texts, where neighbours of an answer answer as well.

    Args:
        collection: documents, queries, judgements.
        queries: rows of the queries that are looked at; BM25 searches for 400 of them, at most.
        survey: the encoder's ranks of the labelled positives.
    """
    known = collection.known_positives
    some = queries[:: max(1, len(queries) // RANKED)]
    query = np.repeat(np.arange(len(some)), known.counts_of(some))
    if len(query) < LEAST_POSITIVES:
        return ""
    labelled = np.concatenate([known.of(int(place)) for place in known.places(some)])
    first, _ = BM25Retriever(collection).search(some, max(POOLS))
    hit = first[query] == labelled[:, None]
    ranks = {"BM25": np.where(hit.any(axis=1), hit.argmax(axis=1), np.inf), "the encoder": survey.labelled.rank}
    for depth in POOLS:
        for name, rank in ranks.items():
            last = float(((rank >= depth / 2) & (rank < depth)).mean())
            inside = float((rank < depth).mean())
            if len(collection.documents) > 10 * depth and inside >= POOLED and last >= CLIFF:
                return f"{percent(inside)} of the labelled positives are among the first {depth} of {name}"
    words = [len(text.split()) for text in collection.document_texts(labelled[:RANKED])]
    if len(query) == len(some) and np.median(words) <= SHORT:
        return f"Each query has one labelled positive, in texts of about {np.median(words):.0f} words"
    return ""


def _lengths(sources: Mapping[str, Negatives]) -> list[float]:
    """Negatives a query of each source."""
    return [len(kept) / max(1, len(kept["query_id"].unique())) for kept in map(Negatives.kept, sources.values())]


def _random(collection: Collection, sources: Mapping[str, Negatives], split: str, seed: int) -> Negatives:
    """As many random documents for each query of the split as the sources have on average, none a known positive."""
    size = max(1, round(float(np.mean(_lengths(sources))))) if sources else 1
    queries, documents = np.sort(collection.positives(split).query_rows), len(collection.documents)
    rng = np.random.default_rng([seed, seeds.RANDOM])
    query = np.repeat(queries, size + 8)
    document = rng.integers(documents, size=len(query))
    keep = ~collection.known_positives.contain(query, document)
    _, first = np.unique(query * documents + document, return_index=True)
    keep &= np.isin(np.arange(len(query)), first)
    query, document = query[keep], document[keep]
    rank = np.arange(len(query)) - np.searchsorted(query, query)
    query, document, rank = (each[rank < size] for each in (query, document, rank))
    query_ids = collection.queries["query_id"].take(pa.array(query))
    doc_ids = collection.documents["doc_id"].take(pa.array(document))
    return Negatives(negatives_table(query_ids, doc_ids, RANDOM, rank, np.full(len(rank), np.nan)))


def _source(measured: Measured, bit: int, negatives: Negatives, logs: Float64s) -> Source:
    """What is known of a source before labels: its recaptured positives, or the pairs alone.

    Where fewer came back than what the count may be wrong by (half a positive at the least), that many may have been
    missed: three planted positives of which none comes back say little, two thousand say that nearly none would.
    """
    triplets = np.flatnonzero(measured.records.members >> bit & 1)
    if not len(triplets):
        return Source(triplets, Odds(np.log([LEAST_RATIO])), math.nan, UNCOUNTED)
    odds = Odds(logs[triplets])
    recapture = Recapture.of_table(negatives)
    if recapture is None or not recapture.kept:
        outside = (np.asarray(measured.records.texts.rows)[measured.records.document[triplets]] < 0).mean()
        return Source(triplets, odds, math.nan, OUTSIDE if outside > 0.5 else UNCOUNTED)
    error = math.sqrt(recapture.returned) if recapture.standard_error is None else recapture.standard_error
    error = max(error, 0.5)
    counted = max(recapture.returned, error)
    return Source(triplets, odds, counted / recapture.kept, math.hypot(error / counted, COUNTED))


def _bound(source: Source, negatives: Negatives | None) -> float | None:
    """No source can have more unlabelled answers than it has negatives."""
    recapture = None if negatives is None or math.isnan(source.rate) else Recapture.of_table(negatives)
    if recapture is None or recapture.returned < SURELY:
        return None
    return math.exp(2.6 * source.spread) / source.rate


@dataclass(frozen=True)
class _Weighed:
    """Benefits and shares, of S sources and none, the last.

    Attributes:
        names: of sources and none. `records`: that each has a negative for.
        strengths: (S + 1,) benefits without unlabelled answers. `learnability`: (S + 1,).
        grid: (G,) values of o. `plain`: (G, S + 1) benefits there. `shares`: (G, S + 1).
        benefits: (K, D, S + 1) draws: without labels at each o of the grid, with labels K = 1.
        drawn_shares: (D, S + 1) with labels. `seen`: (S + 1,) whether an answer was seen among the judged.
        spreads: (S + 1,) what the logarithms of the shares without labels may be wrong by.
        errors: of the form of the benefit, (D,) and (D, S + 1). `expected`: (m,) π of each triplet.
    """

    names: tuple[str, ...]
    records: tuple[int, ...]
    strengths: Float64s
    learnability: Float64s
    grid: Float64s
    plain: Float64s
    shares: Float64s
    benefits: Float64s
    drawn_shares: Float64s | None
    seen: Float64s
    spreads: Float64s
    errors: tuple[Float64s, Float64s]
    expected: Float64s


def _summed(
    logs: Float64s, strength: Float64s, block: Rows, blocks: int, constant: float, slope: float
) -> tuple[Float64s, float]:
    """(blocks,) sums of a source's benefit where logit π = constant + slope·log n_L/n_U, and its share."""
    pi = expit(constant + slope * logs)
    sums = np.bincount(block, strength * (1 - (1 + HARM) * pi), blocks).astype(np.float64)
    return sums, float(pi.mean()) if len(pi) else 0.0


def _expected(sources: Mapping[str, Source], logs: Float64s, unlabelled: float, after: Posterior | None) -> Float64s:
    """(m,) π of each triplet: at `unlabelled`, or the mean after labels; of several sources, by their mean logit.

    What is drawn at random too is told by the others that have it.
    """
    plain = [[source.odds.line(source.share(unlabelled)) for source in sources.values()]]
    others = [np.zeros(0, np.int64), *(source.triplets for name, source in sources.items() if name != RANDOM)]
    held = {name: source.triplets for name, source in sources.items()}
    if RANDOM in held:
        held[RANDOM] = np.setdiff1d(held[RANDOM], np.concatenate(others))
    holders = np.bincount(np.concatenate(list(held.values())), minlength=len(logs))
    lines = np.array(plain) if after is None else after.lines[:: len(after.lines) // 50]
    expected = np.zeros(len(logs))
    for of in lines:
        logits = np.zeros(len(logs))
        for (constant, slope), rows in zip(of, held.values(), strict=True):
            logits[rows] += constant + slope * logs[rows]
        expected += expit(logits / np.maximum(holders, 1)) / len(lines)
    return expected


def _decided(
    weighed: _Weighed,
    ground: Ground,
    every: Mapping[str, Negatives],
    allowed: Sequence[str] | None,
    judged: Judged | None,
    most: float,
    confidence: float,
    pooled: str,
    queries: int,
) -> Decision:
    """Choose, compare, and say it in words."""
    form, names = FORM[ground.settings.starts], weighed.names
    drawn = weighed.drawn_shares
    labelled = drawn is not None
    benefit = weighed.benefits[0].mean(axis=0) if labelled else weighed.plain[GRID // 2]
    may = [at for at, name in enumerate(names) if allowed is None or name in allowed]
    tolerated = TOLERANCE * max(float(benefit[may].max()), 0.0)
    costs = [_cost(name, every) for name in names]
    near = [at for at in may if benefit[at] >= benefit[may].max() - tolerated]
    chosen = min(near, key=lambda at: (costs[at], -benefit[at]))
    gains = np.stack([form.drawn(each, weighed.errors) for each in weighed.benefits])  # (K, D, S + 1)
    none, tails = len(names) - 1, [(1 - confidence) / 2, (1 + confidence) / 2]

    def interval(values: Float64s) -> tuple[float, float]:
        """The widest over what is not excluded; values are (K, D)."""
        low, high = np.quantile(values, tails, axis=1)
        return float(low.min()), float(high.max())

    point = form.mean(benefit)
    winners = gains[0][:, may].argmax(axis=1)
    best_at = np.array(may)[weighed.plain[:, may].argmax(axis=1)]
    listed, ties = [], []
    for at, name in enumerate(names):
        low, high = interval(gains[:, :, at] - gains[:, :, none])
        if drawn is not None:
            share, (least, most_false) = float(drawn[:, at].mean()), np.quantile(drawn[:, at], tails)
            ends = (float(least) if weighed.seen[at] >= CONFIRMED else 0.0, float(most_false))
        else:
            bound = weighed.shares[-1, at] * np.exp(ndtri(tails[1]) * weighed.spreads[at])
            share, ends = math.nan, (0.0, float(min(MOST, bound)))
        apart = interval(gains[:, :, chosen] - gains[:, :, at])
        tied = at != chosen and apart[0] <= 0 <= apart[1]
        ties += [name] * tied
        verdict = "harmful" if high < 0 and name != NONE else f"tie with {names[chosen]}" if tied else "worse"
        if at == chosen:
            verdict = "good" if low > 0 else "chosen" if name != NONE else "the others may harm"
        listed.append(
            Candidate(
                name, weighed.records[at], float(benefit[at]), *interval(weighed.benefits[:, :, at]),
                float(weighed.strengths[at]), float(weighed.learnability[at]),
                float(point[at]), low, high, share, *ends,
                float((np.array(may)[winners] == at).mean()) if labelled else math.nan, verdict,
            )
        )  # fmt: skip
    # Points that the choice may lose for what is not known of unlabelled answers; the form's error is left out.
    worth = form.mean(weighed.benefits[0] if labelled else weighed.plain)
    lost = worth[:, may].max(axis=1) - worth[:, chosen]
    asks = float(lost.mean() if labelled else lost.max()) > WORTH_LABELS or (bool(pooled) and not labelled)
    above, below = _turns(weighed, chosen, best_at, listed[chosen].false_share)
    order = sorted(range(len(names)), key=lambda at: (at != chosen, -benefit[at]))
    others = [at for at in order if at != chosen and at in may]
    decision = Decision(
        source=None if chosen == none else names[chosen],
        candidates=tuple(listed[at] for at in order),
        best_with_probability=listed[chosen].best_with_probability if labelled else None,
        runner_up=names[others[0]] if others else None,
        ties=tuple(ties),
        turns_at=above or below,
        turns_below=below if above else None,
        pooled=pooled,
        queries=queries,
        label_next=LABELS if asks else 0,
        labels=0 if judged is None else len(judged.triplets),
        unlabelled_most=most,
        ability=_ability(ground.measured),
        recurrence=ground.recurrence,
        curve={"unlabelled": weighed.grid.tolist(), "benefit": dict(zip(names, weighed.plain.T.tolist(), strict=True))},
        negatives=every,
        ground=replace(ground, expected=weighed.expected),
    )
    sentences, cautions = (_answer(decision), *_remarks(decision)), tuple(_cautions(decision, every))
    table = "" if decision.source is None else f"{decision.source}.parquet "
    label = f"   (surer: foils label … -n {decision.label_next})" if decision.label_next else ""
    following = f"Next: foils train PAIRS {table}-o model/{label}"
    return replace(decision, sentences=sentences, cautions=cautions, next=following)


def _cost(name: str, every: Mapping[str, Negatives]) -> int:
    """How costly a source is to mine, in order alone."""
    ways = ["none"] if name == NONE else every[name].table["source"].unique().to_pylist()
    return max((COSTS.get(str(way), UNKNOWN_COST) for way in ways), default=UNKNOWN_COST)


def _turns(weighed: _Weighed, chosen: int, best_at: Rows, share: float) -> tuple[Turn | None, Turn | None]:
    """Where, nearest to what is believed, another candidate is better: with more answers, and with fewer."""
    today = GRID // 2 if math.isnan(share) else int(np.abs(weighed.shares[:, chosen] - share).argmin())
    rows = np.arange(len(weighed.grid))
    stays = weighed.plain[:, chosen] >= weighed.plain[rows, best_at] * (1 - TOLERANCE)
    stays |= best_at == chosen

    def turn(at: int, above: bool) -> Turn:
        other = int(best_at[at])
        return Turn(
            unlabelled=float(weighed.grid[at]),
            false_share=float(weighed.shares[at, chosen]),
            source=None if weighed.names[other] == NONE else weighed.names[other],
            above=above,
            share_of_other=float(weighed.shares[at, other]),
        )

    more, fewer = np.flatnonzero(~stays[today:]), np.flatnonzero(~stays[:today])
    return (
        turn(today + int(more[0]), above=True) if len(more) else None,
        turn(int(fewer[-1]), above=False) if len(fewer) else None,
    )


def _ability(measured: Measured) -> float:
    """Share of random negatives that the encoder puts below the positive; NaN without random ones."""
    records = measured.records
    if RANDOM not in records.names:
        return math.nan
    own = np.flatnonzero(records.members >> records.names.index(RANDOM) & 1)
    below = measured.similarities.s_n[own] < measured.s_p[records.record[own]]
    return float(below.mean()) if len(own) else math.nan


def _answer(decision: Decision) -> str:
    """What to train on, with its gain, and as long as what, or how surely."""
    chosen = decision.candidates[0]
    text = "Train without mined negatives" if decision.source is None else f"Train on {chosen.name}"
    if decision.queries < ENOUGH:
        text = f"Too few pairs to tell ({decision.queries} queries); as a guess, {text[0].lower()}{text[1:]}"
    if decision.source is not None:
        gain = points(chosen.gain, chosen.gain_low, chosen.gain_high).split(" ", 1)
        text += f": {gain[0]} points over none expected {gain[1]}{' (a tie)' * (NONE in decision.ties)}"
    if decision.best_with_probability is not None:
        text += f", best with probability {decision.best_with_probability:.2f}"
        shown = f"; {percents(chosen)} of it are unlabelled answers" if decision.source is not None else ""
        return f"{text}{shown}."
    ends = [turn for turn in (decision.turns_below, decision.turns_at) if turn is not None]
    if not ends:
        return f"{text}, if the labels were not pooled: no possible share of unlabelled answers changes the choice."
    # The larger share of the two at a turning point is easier to see.
    seen = [
        (turn.source or NONE, turn.share_of_other)
        if turn.share_of_other > turn.false_share
        else (chosen.name, turn.false_share)
        for turn in ends
    ]
    if len(ends) == 2 and seen[0][0] != seen[1][0]:
        seen = [(chosen.name, turn.false_share) for turn in ends]
    which = "it" if seen[0][0] == chosen.name else seen[0][0]
    others = [f"{'beyond' if turn.above else 'below'} that, {turn.source or NONE}" for turn in ends]
    if len(ends) == 2:
        bound = f"between {percent(seen[0][1])[:-2]} and {percent(seen[1][1])}"
    else:
        bound = f"{'at most' if ends[0].above else 'at least'} {percent(seen[0][1])}"
    return f"{text}, as long as {bound} of {which} are unlabelled answers; {'; '.join(others)}."


def _remarks(decision: Decision) -> list[str]:
    """What a reader of the decision has to know beside it, in sentences."""
    lines = []
    if decision.ties:
        chosen = decision.candidates[0].name
        lines.append(f"The interval does not tell {chosen} from {', '.join(decision.ties)}: these are ties.")
    if decision.label_next:
        labels = f"{decision.label_next} {'more ' * (decision.labels > 0)}labels"
        lines.append(f"About {labels} could change the choice (foils label).")
    if decision.recurrence is not None and decision.recurrence < RECURRING:
        lines.append(
            f"Of the positives of queries to come {percent(decision.recurrence)} are expected to be positives of "
            "training queries too, so that hard negatives count for less."
        )
    return lines


def _cautions(decision: Decision, every: Mapping[str, Negatives]) -> list[str]:
    """What speaks against relying on the decision as it stands, in sentences."""
    lines = []
    if decision.queries < ENOUGH:
        lines.append(
            f"A choice among so few as {decision.queries} queries often differs from that of all; from {ENOUGH} on it "
            "repeats nine times in ten."
        )
    if decision.pooled:
        lines.append(
            f"{decision.pooled}: such labels say nothing of the answers that nobody looked at, and any share of "
            "unlabelled answers is possible. Judge some negatives (foils label)."
        )
    if decision.ability < ABLE:
        lines.append(
            f"The encoder puts only {percent(decision.ability)} of random documents below the positive: a model that "
            "starts with so little learns from easy negatives first (--starts nothing)."
        )
    shortest, longest = min(lengths := _lengths(every)), max(lengths)
    if longest > LONGER * shortest:
        lines.append(
            f"The sources have {shortest:.0f} to {longest:.0f} negatives a query, and a longer list is worth more for "
            "its length alone; decide between lists of equal length."
        )
    return lines
