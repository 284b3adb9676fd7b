"""The decision: which negatives to train on, none and random ones among them, and where that would turn.

`decide` goes five steps: draw (what is looked at), believe (how many of each source's negatives are
unlabelled answers), weigh (what each source is worth then), choose, and explain
(`foils.deciding.results`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from scipy.special import expit, ndtri, stdtrit

from foils.data.collection import Collection, Rows
from foils.data.labels import Labels
from foils.data.negatives import Negatives, Recapture, negatives_table
from foils.data.splitting import expected_recurrence
from foils.deciding.benefit import (
    FORM,
    HARM,
    MOST,
    Odds,
    Points,
    added_losses,
    in_batch_odds,
    learnabilities,
    seen_similarities,
)
from foils.deciding.judged import Judged, Posterior, Source, posterior
from foils.deciding.results import (
    NONE,
    RANDOM,
    Basis,
    BeliefSettings,
    Candidate,
    Decision,
    TurningPoint,
    list_length,
)
from foils.deciding.unlabelled import Pooling, Relevance, Survey, signs_of_pooling, survey_pairs
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.runtime import seeds
from foils.runtime.errors import InputError
from foils.scoring.gates import Float64s
from foils.scoring.measure import Measured, measure
from foils.scoring.scores import REPLICATES, Scores, ScoreSettings, score_sources
from foils.scoring.triplets import make_records

RECORDS = 2_000  # queries of the split that are looked at, at most, drawn at random
DOCUMENTS = 100_000  # of the collection that ranks are counted among, at most, drawn at random
BLOCKS = 64  # of records, that are resampled
DRAWS = 400  # resamplings
TAILS = [(1 - 0.95) / 2, (1 + 0.95) / 2]  # of intervals
GRID = 41  # values of o from 0 to its bound
LEAST_RATE = 1e-6  # share of a source's negatives that are answers, for each o, at least
LEAST_RATIO = 1e-12  # n_L/n_U, at least
SLACK, SURELY = 1.05, 10.0  # of the bound of o; recaptured positives of a source whose rate bounds it
COUNTED, UNCOUNTED, OUTSIDE = 0.05, 0.6, 1.0  # what the logarithm of a rate may be wrong by beside chance
CONFIRMED = 0.975  # probability of an answer among the judged from which on a share has a lower end above 0
TOLERANCE = 0.05  # share of the best benefit that a cheaper source may lose; the choice cells allow 5 to 20 %
WORTH_LABELS = 0.1  # points of nDCG that the choice may lose before labels are asked for
LABELS = 60  # that are asked for at a time
COSTS = {NONE: 0, RANDOM: 1, "bm25": 2, "dense": 3, "trisampler": 3, "ance": 4, "cross-encoder": 5, "llm": 6}
UNKNOWN_COST = 4


@dataclass(frozen=True)
class Draw:
    """What a decision looks at, and what it was asked.

    Attributes:
        collection: documents, queries, judgements.
        sources: name -> negatives, random ones among them.
        settings: of the belief. `labels`: its judged pairs, or None.
        scoring: split, temperature and seed.
        trained: how many queries of the split have a positive.
        queries: (q,) rows of those that are looked at, ascending.
        documents: (M,) rows of the documents that ranks are counted among, ascending.
        rng: of what is drawn later.
    """

    collection: Collection
    sources: Mapping[str, Negatives]
    settings: BeliefSettings
    labels: Labels | None
    scoring: ScoreSettings
    trained: int
    queries: Rows
    documents: Rows
    rng: np.random.Generator


@dataclass(frozen=True)
class Belief:
    """What is believed of unlabelled answers.

    Attributes:
        sources: name -> what is known of each before labels.
        logs: (m,) log n_L/n_U of each triplet.
        unlabelled: (G,) values of o, from 0 to the largest that is possible; the middle one of the
            first `GRID` is half of the bound.
        most: ō, the bound.
        pooled: why the labels look pooled, if they do.
        after: what is believed after labels; None: there are none.
        judged: pairs that were judged.
        likely: place of the o that sources are judged at without labels: half of the bound or, of
            labels that end with a pool, the largest.
    """

    sources: Mapping[str, Source]
    logs: Float64s
    unlabelled: Float64s
    most: float
    pooled: Pooling
    after: Posterior | None
    judged: int
    likely: int = GRID // 2

    def expected(self) -> Float64s:
        """Return (m,) π of each triplet: at the likely o, or its mean after labels.

        A pair of several sources has their mean logit; what is drawn at random too is told by the
        others that have it.
        """
        held = {name: source.triplets for name, source in self.sources.items()}
        if RANDOM in held:
            others = [np.zeros(0, np.int64), *(rows for name, rows in held.items() if name != RANDOM)]
            held[RANDOM] = np.setdiff1d(held[RANDOM], np.concatenate(others))
        holders = np.bincount(np.concatenate(list(held.values())), minlength=len(self.logs))
        if self.after is None:
            likely = float(self.unlabelled[self.likely])
            lines = np.array([[source.odds.line(source.share(likely)) for source in self.sources.values()]])
        else:
            lines = self.after.lines[:: len(self.after.lines) // 50]
        expected = np.zeros(len(self.logs))
        for of_sources in lines:
            logits = np.zeros(len(self.logs))
            for (constant, slope), rows in zip(of_sources, held.values(), strict=True):
                logits[rows] += constant + slope * self.logs[rows]
            expected += expit(logits / np.maximum(holders, 1)) / len(lines)
        return expected


@dataclass(frozen=True)
class Resampling:
    """Blocks of records, and how often each is drawn.

    Attributes:
        block: (T,) of each record.
        counts: (B,) queries of each block.
        weights: (D, B) how often each is drawn.
    """

    block: Rows
    counts: Float64s
    weights: Float64s

    @classmethod
    def of(cls, records: int, queries: int, rng: np.random.Generator) -> Resampling:
        """Deal records into blocks, and draw these; queries without a record belong to blocks evenly."""
        block = rng.permutation(np.arange(records) % min(BLOCKS, records))
        blocks = int(block.max()) + 1
        counts = np.bincount(block, minlength=blocks).astype(np.float64) * (queries / records)
        weights = rng.multinomial(blocks, np.full(blocks, 1 / blocks), size=DRAWS).astype(np.float64)
        return cls(block, counts, weights)

    def means(self, sums: Float64s, *, of_draws: bool = False) -> Float64s:
        """Return means over queries in each draw, of sums by block: (G, D) of (G, B), (1, D) of draws' own.

        The deviations of B blocks fall short by √((B − 1)/B), and their normal tails by those of
        Student's t with B − 1 degrees of freedom; they are widened by both.

        Args:
            sums: (G, B) the same for all draws.
            of_draws: sums are (D, B), a row for each draw.
        """
        totals = np.einsum("db,b->d", self.weights, self.counts)
        # einsum: a product of matrices sums in an order that the number of threads decides
        drawn = np.einsum("db,db->d" if of_draws else "gb,db->gd", sums, self.weights) / totals
        blocks, whole = len(self.counts), sums.sum(axis=1) / self.counts.sum()
        widening = 1.0  # a single block does not vary
        if blocks > 1:
            widening = math.sqrt(blocks / (blocks - 1)) * stdtrit(blocks - 1, 0.975) / ndtri(0.975)
        whole = whole[None] if of_draws else whole[:, None]
        return np.asarray(whole + widening * (drawn - whole))


@dataclass(frozen=True, eq=False)
class Weighed:
    """What one source, or none, is worth.

    Attributes:
        records: that it has a negative for.
        strength: benefit without unlabelled answers. `learnability`: mean ℓ, weighted by a.
        on_grid: (G,) benefit at each o. `shares`: (G,) φ there.
        drawn: (G, D) benefit at each o in each draw of the queries; with labels (1, D), in each
            draw of the belief.
        drawn_shares: (D,) φ with labels; None without.
        confirmed: whether an answer was surely seen among its judged negatives.
        spread: what the logarithm of its share may be wrong by, without labels.
        error: (D,) what the form of the benefit is wrong by.
        likely: place in the grid that the source is judged at without labels.
    """

    name: str
    records: int
    strength: float
    learnability: float
    on_grid: Float64s
    shares: Float64s
    drawn: Float64s
    drawn_shares: Float64s | None
    confirmed: bool
    spread: float
    error: Float64s
    likely: int = GRID // 2

    @property
    def benefit(self) -> float:
        """B: with labels the mean over the belief, else at the likely o."""
        return float(self.on_grid[self.likely] if self.drawn_shares is None else self.drawn.mean())

    def share_ends(self) -> tuple[float, float]:
        """Return the interval of φ; without labels, and where no answer was seen, from 0."""
        if self.drawn_shares is None:
            return 0.0, float(min(MOST, self.shares[-1] * np.exp(ndtri(TAILS[1]) * self.spread)))
        low, high = np.quantile(self.drawn_shares, TAILS)
        return float(low) if self.confirmed else 0.0, float(high)


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
    candidates: Sequence[str] | None = None,
    records: int | None = RECORDS,
) -> Decision:
    """Decide which negatives to train on: one of the sources, random ones, or none.

    Each candidate's benefit is a mean over the same queries of the split; a query that a source has
    no negative for counts as none. Without labels the share of unlabelled answers is known up to a
    bound alone. Chosen is the candidate with the largest benefit at half of it, or a cheaper one
    that loses at most 5 % of that; where labels end with a pool nothing bounds the share, and it is
    the one with the largest benefit if all mined negatives are answers. Said is up to which share
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
        candidates: names that may be chosen, `random` and `none` among them; None: all.
        records: queries to look at, at most, drawn at random, with those that have labels; None: all.

    Raises:
        InputError: fewer than two queries, no negatives, or labels that cannot be read or belong to
            other pairs.
    """
    scoring = ScoreSettings(split=split, temperature=temperature, seed=seed)
    drawn = draw(collection, sources, settings or BeliefSettings(), scoring, records)
    of = make_records(collection, drawn.sources, split=split, control=False, queries=drawn.queries)
    measured = measure(of, encoder, store, temperature, background=drawn.documents)
    return decided(drawn, measured, encoder, candidates)


def score_and_decide(
    collection: Collection,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    scoring: ScoreSettings,
    settings: BeliefSettings,
    *,
    replicates: int = REPLICATES,
) -> tuple[Scores, Decision]:
    """Return the published scores of sources and the decision between them, of one measurement.

    Args:
        collection: documents, queries, judgements.
        sources: name -> negatives.
        encoder: that the training starts from.
        store: of vectors.
        scoring: split, temperature and seed of both, and what else published scores need.
        settings: of the decision.
        replicates: of the published scores' bootstrap.

    Raises:
        InputError: what `score_sources` or `decide` raises.
    """
    drawn = draw(collection, sources, settings, scoring)
    beside = {name: table for name, table in drawn.sources.items() if name not in sources}
    how: dict[str, Any] = {name: getattr(scoring, name) for name in ("split", "sample", "seed")}
    every = make_records(collection, sources, **how, queries=drawn.queries, beside=beside)
    measured = measure(every, encoder, store, scoring.temperature, background=drawn.documents)
    scores = score_sources(collection, sources, encoder, store, scoring, replicates=replicates, measured=measured)
    looked_at = np.flatnonzero(np.isin(every.queries, drawn.queries))
    return scores, decided(drawn, measured.part(looked_at, list(drawn.sources)), encoder)


def draw(
    collection: Collection,
    sources: Mapping[str, Negatives],
    settings: BeliefSettings,
    scoring: ScoreSettings,
    records: int | None = RECORDS,
) -> Draw:
    """Draw the queries and documents that a decision looks at, and random negatives if they are no source."""
    if NONE in sources:
        raise InputError(f"a source is called {NONE!r}, which stands for no mined negatives; give it another name")
    split, seed = scoring.split, scoring.seed
    labels = None if settings.labels is None else Labels.of(settings.labels, collection)
    every = (
        dict(sources) if RANDOM in sources else {**sources, RANDOM: random_negatives(collection, sources, split, seed)}
    )
    rng, trained = np.random.default_rng([seed, seeds.MEASURED]), np.sort(collection.positives(split).query_rows)
    if len(trained) < 2:
        raise InputError(
            f"the split {split!r} has {len(trained)} queries with a positive; a decision needs at least two"
        )
    queries = rng.permutation(trained)[:records]
    if labels is not None:
        queries = np.append(queries, np.intersect1d(collection.query_rows(labels.table["query_id"]), trained))
    documents = np.arange(len(collection.documents))
    if len(documents) > DOCUMENTS:
        documents = np.sort(rng.choice(documents, DOCUMENTS, replace=False))
    return Draw(
        collection=collection,
        sources=every,
        settings=settings,
        labels=labels,
        scoring=scoring,
        trained=len(trained),
        queries=np.unique(queries),
        documents=documents,
        rng=rng,
    )


def decided(drawn: Draw, measured: Measured, encoder: Encoder, candidates: Sequence[str] | None = None) -> Decision:
    """Return the decision from what was drawn, and measured of the queries and sources that were drawn."""
    starts, static = drawn.settings.starts, getattr(encoder, "static", False)
    recurrence = None if starts == "nothing" else 1.0
    if static and recurrence is not None:
        recurrence = expected_recurrence(drawn.collection, drawn.scoring.split)
    survey = survey_pairs(measured, measured.background, drawn.documents, drawn.rng)
    in_batch = in_batch_odds(measured, survey.unlabelled, drawn.settings.in_batch, drawn.scoring.temperature, starts)
    resampling = Resampling.of(len(measured.records), len(drawn.queries), drawn.rng)
    slope_error = drawn.rng.standard_t(3, DRAWS)
    belief = believe(drawn, measured, survey)
    basis = Basis(
        measured=measured,
        expected=belief.expected(),
        in_batch=in_batch,
        settings=drawn.settings,
        recurrence=recurrence,
    )
    weighed = [weigh(drawn, name, place, belief, basis, resampling) for place, name in enumerate(belief.sources)]
    weighed.append(weigh_none(drawn, weighed[0]))
    return choose(drawn, weighed, belief, basis, slope_error, candidates)


def believe(drawn: Draw, measured: Measured, survey: Survey) -> Belief:
    """Say how many of each source's negatives are unlabelled answers, by pairs, recaptures and labels."""
    relevance = Relevance.fit(survey, seed=drawn.scoring.seed)
    judged = Judged.of(drawn.labels, measured.records)
    logs = np.log(np.maximum(relevance.ratio(survey.negatives), LEAST_RATIO))
    known = {name: _source(measured, bit, drawn.sources[name], logs) for bit, name in enumerate(measured.records.names)}
    bounds = [relevance.bound(survey)]
    for name, source in known.items():
        recapture = Recapture.of_table(drawn.sources[name])
        if not math.isnan(source.rate) and recapture is not None and recapture.returned >= SURELY:
            bounds.append(math.exp(2.6 * source.spread) / source.rate)  # no more answers than negatives
    most = SLACK * min(bounds)
    unlabelled = np.linspace(0.0, max(most, 1e-9), GRID)
    pooled = signs_of_pooling(drawn.collection, drawn.queries, survey)
    if pooled.depth and judged is None:
        # What was judged and not labelled is no answer, and recaptured positives are all of the pool.
        logs[pooled.judged(measured, survey)] = math.log(LEAST_RATIO)
        known = {
            name: replace(source, odds=Odds(logs[source.triplets]), rate=math.nan) if len(source.triplets) else source
            for name, source in known.items()
        }
    if pooled.sign:
        # No single o fits labels that prefer one retriever's documents: go on until all of each
        # source may be answers.
        bound = float(unlabelled[-1])
        mined = [source for name, source in known.items() if len(source.triplets) and name != RANDOM]
        rates = [source.share(bound) / bound for source in mined]
        most = max(bound, MOST / min((rate for rate in rates if rate > LEAST_RATE), default=1.0))
        unlabelled = np.append(unlabelled, np.geomspace(bound, most, GRID)[1:])
    after = None
    if judged is not None:
        after = posterior(judged, list(known.values()), logs, float(unlabelled[-1]), drawn.rng)
    return Belief(
        sources=known,
        logs=logs,
        unlabelled=unlabelled,
        most=most,
        pooled=pooled,
        after=after,
        judged=0 if judged is None else len(judged.triplets),
        likely=len(unlabelled) - 1 if pooled.ends else GRID // 2,
    )


def weigh(drawn: Draw, name: str, place: int, belief: Belief, basis: Basis, resampling: Resampling) -> Weighed:
    """Return what a source is worth at each o, or after labels in each draw of the belief.

    Args:
        drawn: what is looked at.
        name: of the source.
        place: of the source among those of the belief.
        belief: of unlabelled answers.
        basis: what was measured.
        resampling: of the queries.
    """
    source, measured, starts = belief.sources[name], basis.measured, drawn.settings.starts
    record = measured.records.record[source.triplets]
    learned = learnabilities(measured, source.triplets, starts, basis.recurrence)
    s_n, s_p = seen_similarities(measured, source.triplets, starts)
    added = added_losses(record, s_n, s_p, basis.in_batch, drawn.scoring.temperature)
    strength, logs = added * learned, belief.logs[source.triplets]
    block, blocks, queries = resampling.block[record], len(resampling.counts), resampling.counts.sum()
    shares = np.array([source.share(o) for o in belief.unlabelled.tolist()])
    by_block = partial(benefits_by_block, logs, strength, block, blocks)
    on_grid = np.array([by_block(*source.odds.line(share))[0] for share in shares.tolist()])
    drawn_shares = None
    if belief.after is None:
        benefits = resampling.means(on_grid)
    else:
        lines = belief.after.lines[:, place]
        sums, means = zip(*(by_block(*line) for line in lines), strict=True)
        benefits = resampling.means(np.array(sums), of_draws=True)
        drawn_shares = np.array(means)
    return Weighed(
        name=name,
        records=len(np.unique(record)),
        strength=float(strength.sum() / queries),
        learnability=float(strength.sum() / max(added.sum(), 1e-300)),
        on_grid=on_grid.sum(axis=1) / queries,
        shares=shares,
        drawn=benefits,
        drawn_shares=drawn_shares,
        confirmed=belief.after is not None and bool(belief.after.seen_false[place] >= CONFIRMED),
        spread=source.spread,
        error=_error(name, drawn.scoring.seed),
        likely=belief.likely,
    )


def weigh_none(drawn: Draw, like: Weighed) -> Weighed:
    """Return what no mined negatives are worth: nothing, at every o; arrays have the shapes of `like`."""
    nothing: dict[str, Any] = {
        name: None if (value := getattr(like, name)) is None else 0 * value
        for name in ("records", "strength", "on_grid", "shares", "drawn", "drawn_shares", "spread")
    }
    return replace(
        like, **nothing, name=NONE, learnability=1.0, confirmed=False, error=_error(NONE, drawn.scoring.seed)
    )


def _error(name: str, seed: int) -> Float64s:
    """(D,) errors drawn by the source's name, so that its interval does not depend on the other sources."""
    return np.random.default_rng([seed, seeds.MEASURED, *name.encode()]).standard_t(3, DRAWS)


def benefits_by_block(
    logs: Float64s, strength: Float64s, block: Rows, blocks: int, constant: float, slope: float
) -> tuple[Float64s, float]:
    """Return (blocks,) sums of a source's benefit at logit π = constant + slope·log n_L/n_U, and mean π."""
    pi = expit(constant + slope * logs)
    sums = np.bincount(block, strength * (1 - (1 + HARM) * pi), blocks).astype(np.float64)
    return sums, float(pi.mean()) if len(pi) else 0.0


def choose(
    drawn: Draw,
    weighed: Sequence[Weighed],
    belief: Belief,
    basis: Basis,
    slope_error: Float64s,
    allowed: Sequence[str] | None,
) -> Decision:
    """Choose the best candidate, or a cheaper one that loses little, and compare it with the others.

    Args:
        drawn: what was looked at.
        weighed: the sources, then none.
        belief: of unlabelled answers.
        basis: what was measured.
        slope_error: (D,) what the slope of the points is wrong by.
        allowed: names that may be chosen; None: all.
    """
    form, labelled = FORM[drawn.settings.starts], belief.after is not None
    may = [each for each in weighed if allowed is None or each.name in allowed]
    most = max(each.benefit for each in may)
    near = [each for each in may if each.benefit >= most - TOLERANCE * max(most, 0.0)]
    chosen = min(near, key=lambda each: (_cost(each.name, drawn.sources), -each.benefit))
    gains = {each.name: form.drawn(each.drawn, slope_error, each.error) for each in weighed}
    best = np.stack([gains[each.name][0] for each in may]).argmax(axis=0)
    ranked = sorted(weighed, key=lambda each: (each is not chosen, -each.benefit))
    wins = {each.name: float((best == place).mean()) for place, each in enumerate(may)}
    candidates = [
        _candidate(each, chosen, gains, form, wins.get(each.name, 0.0) if labelled else math.nan) for each in ranked
    ]
    # Points that the choice may lose for what is not known of unlabelled answers; the form's error
    # is left out.
    worth = {each.name: form.mean(each.drawn[0] if labelled else each.on_grid) for each in may}
    lost = np.max([*worth.values()], axis=0) - worth[chosen.name]
    asks = float(lost.mean() if labelled else lost.max()) > WORTH_LABELS or (bool(belief.pooled.sign) and not labelled)
    above, below = turning_points(chosen, may, belief.unlabelled)
    others = [each.name for each in ranked[1:] if each in may]
    return Decision(
        source=None if chosen.name == NONE else chosen.name,
        candidates=tuple(candidates),
        best_with_probability=candidates[0].best_with_probability if labelled else None,
        runner_up=others[0] if others else None,
        ties=tuple(each.name for each in weighed if _tied(each, chosen, gains)),
        turns_at=above or below,
        turns_below=below if above else None,
        pooled=belief.pooled.sign,
        pool=belief.pooled.depth,
        queries=drawn.trained,
        label_next=LABELS if asks else 0,
        labels=belief.judged,
        unlabelled_most=belief.most,
        ability=_ability(basis.measured),
        recurrence=basis.recurrence,
        curve={
            "unlabelled": belief.unlabelled.tolist(),
            "benefit": {each.name: each.on_grid.tolist() for each in weighed},
        },
        negatives=drawn.sources,
        basis=basis,
    )


def _candidate(
    weighed: Weighed, chosen: Weighed, gains: Mapping[str, Float64s], form: Points, best_with_probability: float
) -> Candidate:
    low, high = _interval(gains[weighed.name] - gains[NONE])
    benefit_low, benefit_high = _interval(weighed.drawn)
    share_low, share_high = weighed.share_ends()
    if weighed is chosen:
        verdict = "good" if low > 0 else "chosen" if weighed.name != NONE else "the others may harm"
    elif high < 0 and weighed.name != NONE:
        verdict = "harmful"
    else:
        verdict = f"tie with {chosen.name}" if _tied(weighed, chosen, gains) else "worse"
    return Candidate(
        name=weighed.name,
        records=weighed.records,
        benefit=weighed.benefit,
        benefit_low=benefit_low,
        benefit_high=benefit_high,
        strength=weighed.strength,
        learnability=weighed.learnability,
        gain=float(form.mean(weighed.benefit)),
        gain_low=low,
        gain_high=high,
        false_share=math.nan if weighed.drawn_shares is None else float(weighed.drawn_shares.mean()),
        false_share_low=share_low,
        false_share_high=share_high,
        best_with_probability=best_with_probability,
        verdict=verdict,
    )


def _interval(values: Float64s) -> tuple[float, float]:
    """The widest over what is not excluded; values are (K, D)."""
    low, high = np.quantile(values, TAILS, axis=1)
    return float(low.min()), float(high.max())


def _tied(weighed: Weighed, chosen: Weighed, gains: Mapping[str, Float64s]) -> bool:
    """Whether the interval does not tell a candidate from the chosen one."""
    low, high = _interval(gains[chosen.name] - gains[weighed.name])
    return weighed is not chosen and low <= 0 <= high


def _cost(name: str, sources: Mapping[str, Negatives]) -> int:
    """How costly a source is to mine, in order alone."""
    ways = ["none"] if name == NONE else sources[name].table["source"].unique().to_pylist()
    return max((COSTS.get(str(way), UNKNOWN_COST) for way in ways), default=UNKNOWN_COST)


def turning_points(
    chosen: Weighed, may: Sequence[Weighed], unlabelled: Float64s
) -> tuple[TurningPoint | None, TurningPoint | None]:
    """Return where, nearest to what is believed, another candidate is better: with more answers, and fewer.

    Args:
        chosen: the choice, one of `may`.
        may: the candidates that may be chosen.
        unlabelled: (G,) values of o.
    """
    today = chosen.likely
    if chosen.drawn_shares is not None:
        today = int(np.abs(chosen.shares - chosen.drawn_shares.mean()).argmin())
    benefits = np.stack([each.on_grid for each in may], axis=1)
    best = benefits.argmax(axis=1)
    stays = chosen.on_grid >= benefits.max(axis=1) * (1 - TOLERANCE)
    stays |= best == [each.name for each in may].index(chosen.name)

    def turn(at: int, above: bool) -> TurningPoint:
        other = may[best[at]]
        return TurningPoint(
            unlabelled=float(unlabelled[at]),
            false_share=float(chosen.shares[at]),
            source=None if other.name == NONE else other.name,
            above=above,
            share_of_other=float(other.shares[at]),
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
    rows = np.flatnonzero(records.members >> records.names.index(RANDOM) & 1)
    below = measured.similarities.s_n[rows] < measured.s_p[records.record[rows]]
    return float(below.mean()) if len(rows) else math.nan


def random_negatives(collection: Collection, sources: Mapping[str, Negatives], split: str, seed: int) -> Negatives:
    """Random documents for each query of the split, as many as a source's mean, none a known positive."""
    size = max(1, round(float(np.mean([list_length(each) for each in sources.values()])))) if sources else 1
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

    Where fewer came back than what the count may be wrong by (half a positive at the least), that
    many may have been missed: three planted positives of which none comes back say little, two
    thousand say that nearly none would.
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
