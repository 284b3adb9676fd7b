"""The decision: which negatives to train on, none and random ones among them, and where that would turn.

`decide` goes five steps: draw (what is looked at), believe (how many of each source's negatives are
unlabelled answers), weigh (what each source is worth then), choose, and explain
(`foils.deciding.results`). `mine` is the verb, since the best of a ranking's ranks are a decision.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import expit, ndtri

from foils.data.collection import Collection, Rows
from foils.data.description import expected_recurrence
from foils.data.labels import Labels
from foils.data.negatives import Negatives, Recapture, negatives_table
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.run import ranks_within
from foils.data.tables import provenance
from foils.data.tokens import BM25Settings
from foils.deciding.benefit import DRAWS, FORM, HARM, MOST, Basis, Odds, Resampling, in_batch_odds
from foils.deciding.judged import Judged, Posterior, Source, posterior
from foils.deciding.results import NONE, RANDOM, BeliefSettings, Candidate, Decision, TurningPoint, list_length
from foils.deciding.unlabelled import Pooling, Relevance, Survey, signs_of_pooling, survey_pairs
from foils.encode.encoder import Encoder
from foils.encode.vectors import AT_128, EncodingSettings, VectorStore
from foils.mining.candidates import PLANTED, Mined, Miner
from foils.mining.methods import BEST, METHODS, MINING_NEEDS, FilterSettings, Models, WindowSettings, check_mining
from foils.runtime import seeds
from foils.runtime.errors import InputError
from foils.runtime.options import Option, door, spelled
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Table
from foils.scoring.gates import Float64s
from foils.scoring.measure import CONFIDENCE, Measured, measure
from foils.scoring.scores import REPLICATES, Scores, ScoreSettings, score_measured
from foils.scoring.triplets import CONTROL, first_distinct, make_records

WINDOWS = 10  # of as many ranks as negatives per query, that are looked at for the best one
RECORDS = 2_000  # queries of the split that are looked at, at most, drawn at random
DOCUMENTS = 100_000  # of the collection that ranks are counted among, at most, drawn at random
TAILS = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]  # of intervals
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
        sources: name -> negatives, random ones among them.
        settings: of the belief, its labels read.
        scoring: split, temperature and seed.
        trained: queries of the split with a positive.
        queries: (q,) rows of those that are looked at, ascending.
        documents: (M,) rows of the documents that ranks are counted among, ascending.
        rng: of what is drawn later.
    """

    sources: Mapping[str, Negatives]
    settings: BeliefSettings
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
        unlabelled: (G,) values of o, from 0 to the largest that is possible, ō; the middle one of
            the first `GRID` is half of the bound.
        pooled: why the labels look pooled, if they do.
        after: what is believed after labels; None: there are none.
        judged: pairs that were judged.
    """

    sources: Mapping[str, Source]
    logs: Float64s
    unlabelled: Float64s
    pooled: Pooling
    after: Posterior | None
    judged: int

    @property
    def likely(self) -> int:
        """Place of the o that sources are judged at without labels: half of the bound, or all of a pool."""
        return len(self.unlabelled) - 1 if self.pooled.ends else GRID // 2

    def expected(self) -> Float64s:
        """Return (m,) π of each triplet: at the likely o, or its mean after labels.

        A pair of several sources has their mean logit; what is drawn at random too is told by the
        others that have it.
        """
        held = {name: source.triplets for name, source in self.sources.items()}
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


@dataclass(frozen=True, eq=False)
class Weighed:
    """What one source, or none, is worth.

    Attributes:
        candidate: the same in numbers; its probability and verdict follow from the others.
        on_grid: (G,) benefit at each o. `shares`: (G,) φ there.
        drawn: (G, D) benefit at each o in each draw of the queries; with labels (1, D), in each
            draw of the belief.
        gains: as `drawn`, in points, with the errors of their form.
    """

    candidate: Candidate
    on_grid: Float64s
    shares: Float64s
    drawn: Float64s
    gains: Float64s


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
    of = make_records(collection, {}, split=split, control=False, beside=drawn.sources, queries=drawn.queries)
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
        InputError: what `foils.scoring.score_sources` or `decide` raises.
    """
    drawn = draw(collection, sources, settings, scoring)
    every = make_records(
        collection, sources, split=scoring.split, sample=scoring.sample, seed=scoring.seed, queries=drawn.queries,
        beside={name: table for name, table in drawn.sources.items() if name not in sources},
    )  # fmt: skip
    measured = measure(every, encoder, store, scoring.temperature, background=drawn.documents)
    published = measured.part(every.sampled, [*sources, CONTROL])
    scores = score_measured(published, encoder, scoring, replicates)
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
    trained = np.sort(collection.positives(scoring.split).query_rows)
    if len(trained) < 2:
        raise InputError(
            f"the split {scoring.split!r} has {len(trained)} queries with a positive; a decision needs two at least"
        )
    rng = np.random.default_rng([scoring.seed, seeds.MEASURED])
    queries = rng.permutation(trained)[:records]
    if settings.labels is not None:
        labels = Labels.of(settings.labels, collection)
        settings = replace(settings, labels=labels)
        queries = np.append(queries, np.intersect1d(collection.query_rows(labels.table["query_id"]), trained))
    documents = np.arange(len(collection.documents))
    if len(documents) > DOCUMENTS:
        documents = np.sort(rng.choice(documents, DOCUMENTS, replace=False))
    every = dict(sources)
    if RANDOM not in sources:
        # For each query as many as a source has on average, none of them a known positive.
        size = max(1, round(float(np.mean([list_length(each) for each in sources.values()])))) if sources else 1
        query = np.repeat(trained, size + 8)
        random = np.random.default_rng([scoring.seed, seeds.RANDOM])
        document = random.integers(len(collection.documents), size=len(query))
        kept = first_distinct(query, document, collection.known_positives.contain(query, document), size)
        query_ids = collection.queries["query_id"].take(pa.array(query[kept]))
        doc_ids = collection.documents["doc_id"].take(pa.array(document[kept]))
        rank = ranks_within(query[kept])
        every[RANDOM] = Negatives(negatives_table(query_ids, doc_ids, RANDOM, rank, np.full(len(rank), np.nan)))
    return Draw(
        sources=every,
        settings=settings,
        scoring=scoring,
        trained=len(trained),
        queries=np.unique(queries),
        documents=documents,
        rng=rng,
    )


def decided(drawn: Draw, measured: Measured, encoder: Encoder, candidates: Sequence[str] | None = None) -> Decision:
    """Return the decision from what was drawn, and measured of the queries and sources that were drawn."""
    settings, scoring = drawn.settings, drawn.scoring
    recurrence = None if settings.starts == "nothing" else 1.0
    if recurrence is not None and getattr(encoder, "static", False):
        recurrence = expected_recurrence(measured.records.collection, scoring.split)
    survey = survey_pairs(measured, measured.background, drawn.documents, drawn.rng)
    in_batch = in_batch_odds(measured, survey.unlabelled, settings.in_batch, scoring.temperature, settings.starts)
    resampling = Resampling.of(len(measured.records), len(drawn.queries), drawn.rng)
    belief = believe(drawn, measured, survey)
    basis = Basis(measured, belief.expected(), in_batch, scoring.temperature, recurrence)
    weighed = {
        name: weigh(drawn, name, source, place, belief, basis, resampling)
        for place, (name, source) in enumerate(belief.sources.items())
    }
    nothing = Source(np.zeros(0, np.int64), Odds(np.log([LEAST_RATIO])), rate=0.0, spread=0.0)
    weighed[NONE] = weigh(drawn, NONE, nothing, 0, belief, basis, resampling)  # any place: it has no negative
    return choose(drawn, weighed, belief, basis, candidates)


def believe(drawn: Draw, measured: Measured, survey: Survey) -> Belief:
    """Say how many of each source's negatives are unlabelled answers, by pairs, recaptures and labels."""
    relevance = Relevance.fit(survey, seed=drawn.scoring.seed)
    judged = Judged.of(drawn.settings.labels, measured.records)
    logs = np.log(np.maximum(relevance.ratio(survey.negatives), LEAST_RATIO))
    pooled = signs_of_pooling(measured.records.collection, drawn.queries, survey)
    in_pool = pooled.depth > 0 and judged is None
    if in_pool:  # what was judged and not labelled is no answer, and recaptured positives are all of the pool
        logs[pooled.judged(measured, survey)] = math.log(LEAST_RATIO)
    known = {
        name: _source(measured, bit, drawn.sources[name], logs, counted=not in_pool)
        for bit, name in enumerate(measured.records.names)
    }
    bound = max(SLACK * min(relevance.bound(survey), *(source.most for source in known.values())), 1e-9)
    unlabelled = np.linspace(0.0, bound, GRID)
    if pooled.sign:
        # No single o fits labels that prefer one retriever's documents: go on until all of each
        # source may be answers.
        rates = [source.share(bound) / bound for name, source in known.items() if name != RANDOM]
        most = max(bound, MOST / min((rate for rate in rates if rate > LEAST_RATE), default=1.0))
        unlabelled = np.append(unlabelled, np.geomspace(bound, most, GRID)[1:])
    after = None
    if judged is not None:
        after = posterior(judged, list(known.values()), logs, float(unlabelled[-1]), drawn.rng)
    return Belief(known, logs, unlabelled, pooled, after, 0 if judged is None else len(judged.triplets))


def _source(measured: Measured, bit: int, negatives: Negatives, logs: Float64s, *, counted: bool) -> Source:
    """What is known of a source before labels: its recaptured positives (if `counted`), or the pairs alone.

    Where fewer came back than what the count may be wrong by (half a positive at the least), that
    many may have been missed: three planted positives of which none comes back say little, two
    thousand say that nearly none would.
    """
    triplets = np.flatnonzero(measured.records.members >> bit & 1)
    if not len(triplets):
        return Source(triplets, Odds(np.log([LEAST_RATIO])), math.nan, UNCOUNTED)
    odds, recapture = Odds(logs[triplets]), Recapture.of(negatives)
    if recapture is None or not recapture.kept:
        outside = (np.asarray(measured.records.texts.rows)[measured.records.document[triplets]] < 0).mean()
        return Source(triplets, odds, math.nan, OUTSIDE if outside > 0.5 else UNCOUNTED)
    error = math.sqrt(recapture.returned) if recapture.standard_error is None else recapture.standard_error
    error = max(error, 0.5)
    returned = max(recapture.returned, error)
    rate, spread = returned / recapture.kept, math.hypot(error / returned, COUNTED)
    # no more answers than negatives
    most = math.exp(2.6 * spread) / rate if recapture.returned >= SURELY else math.inf
    return Source(triplets, odds, rate if counted else math.nan, spread, most)


def weigh(
    drawn: Draw, name: str, source: Source, place: int, belief: Belief, basis: Basis, resampling: Resampling
) -> Weighed:
    """Return what a source is worth at each o, or after labels in each draw of the belief.

    Args:
        drawn: what is looked at.
        name: of the source.
        source: what is known of it.
        place: of the source among those of the belief.
        belief: of unlabelled answers.
        basis: what was measured.
        resampling: of the queries.
    """
    record, added = basis.measured.records.record[source.triplets], basis.added_losses(source.triplets)
    strength = added * basis.learnabilities(source.triplets)
    block, blocks, queries = resampling.block[record], len(resampling.counts), resampling.counts.sum()
    by_block = partial(benefits_by_block, belief.logs[source.triplets], strength, block, blocks)
    shares = np.array([source.share(o) for o in belief.unlabelled.tolist()])
    sums = np.array([by_block(*source.odds.line(share))[0] for share in shares.tolist()])
    on_grid = sums.sum(axis=1) / queries
    if belief.after is None:
        benefits, benefit = resampling.means(sums), float(on_grid[belief.likely])
        share, low = math.nan, 0.0
        high = float(min(MOST, shares[-1] * np.exp(ndtri(TAILS[1]) * source.spread)))
    else:
        of_draws, means = zip(*(by_block(*line) for line in belief.after.lines[:, place]), strict=True)
        benefits = resampling.means(np.array(of_draws), of_draws=True)
        benefit, share = float(benefits.mean()), float(np.mean(means))
        low, high = np.quantile(means, TAILS).tolist()
        low = low if belief.after.seen_false[place] >= CONFIRMED else 0.0
    # Drawn by the source's name, so that its interval does not depend on the other sources.
    error = np.random.default_rng([drawn.scoring.seed, seeds.MEASURED, *name.encode()]).standard_t(3, DRAWS)
    form = FORM[drawn.settings.starts]
    benefit_low, benefit_high = _interval(benefits)
    candidate = Candidate(
        name=name,
        records=len(np.unique(record)),
        benefit=benefit,
        benefit_low=benefit_low,
        benefit_high=benefit_high,
        strength=float(strength.sum() / queries),
        learnability=1.0 if name == NONE else float(strength.sum() / max(added.sum(), 1e-300)),
        gain=float(form.mean(benefit)),
        false_share=share,
        false_share_low=low,
        false_share_high=high,
    )
    return Weighed(candidate, on_grid, shares, benefits, form.drawn(benefits, resampling.slope_error, error))


def benefits_by_block(
    logs: Float64s, strength: Float64s, block: Rows, blocks: int, constant: float, slope: float
) -> tuple[Float64s, float]:
    """Return (blocks,) sums of a source's benefit at logit π = constant + slope·log n_L/n_U, and mean π."""
    pi = expit(constant + slope * logs)
    sums = np.bincount(block, strength * (1 - (1 + HARM) * pi), blocks).astype(np.float64)
    return sums, float(pi.mean()) if len(pi) else 0.0


def choose(
    drawn: Draw, weighed: Mapping[str, Weighed], belief: Belief, basis: Basis, allowed: Sequence[str] | None
) -> Decision:
    """Choose the best candidate, or a cheaper one that loses little, and compare it with the others.

    Args:
        drawn: what was looked at.
        weighed: name -> the sources, then none.
        belief: of unlabelled answers.
        basis: what was measured.
        allowed: names that may be chosen; None: all.
    """
    form, labelled = FORM[drawn.settings.starts], belief.after is not None
    benefit = {name: each.candidate.benefit for name, each in weighed.items()}
    may = {name: each for name, each in weighed.items() if allowed is None or name in allowed}
    most = max(benefit[name] for name in may)
    near = [name for name in may if benefit[name] >= most - TOLERANCE * max(most, 0.0)]
    chosen = min(near, key=lambda name: (_cost(name, drawn.sources), -benefit[name]))
    ahead = {name: _interval(weighed[chosen].gains - each.gains) for name, each in weighed.items()}
    ties = tuple(name for name, (low, high) in ahead.items() if name != chosen and low <= 0 <= high)
    best = np.array([*may])[np.stack([each.gains[0] for each in may.values()]).argmax(axis=0)]
    candidates = []
    for name in sorted(weighed, key=lambda name: (name != chosen, -benefit[name])):
        low, high = _interval(weighed[name].gains - weighed[NONE].gains)
        if name == chosen:
            verdict = "good" if low > 0 else "chosen" if name != NONE else "the others may harm"
        elif high < 0 and name != NONE:
            verdict = "harmful"
        else:
            verdict = f"tie with {chosen}" if name in ties else "worse"
        wins = float((best == name).mean()) if labelled else math.nan
        candidate = replace(weighed[name].candidate, gain_low=low, gain_high=high, best_with_probability=wins)
        candidates.append(replace(candidate, verdict=verdict))
    # Points that the choice may lose for what is not known of unlabelled answers; the form's error
    # is left out.
    worth = {name: form.mean(each.drawn[0] if labelled else each.on_grid) for name, each in may.items()}
    lost = np.max([*worth.values()], axis=0) - worth[chosen]
    asks = float(lost.mean() if labelled else lost.max()) > WORTH_LABELS or (bool(belief.pooled.sign) and not labelled)
    away = np.abs(weighed[chosen].shares - candidates[0].false_share)
    today = int(away.argmin()) if labelled else belief.likely
    above, below = turning_points(chosen, may, belief.unlabelled, today)
    return Decision(
        source=None if chosen == NONE else chosen,
        candidates=tuple(candidates),
        best_with_probability=candidates[0].best_with_probability if labelled else None,
        runner_up=next((each.name for each in candidates[1:] if each.name in may), None),
        ties=ties,
        turns_at=above or below,
        turns_below=below if above else None,
        pooled=belief.pooled.sign,
        pool=belief.pooled.depth,
        queries=drawn.trained,
        label_next=LABELS if asks else 0,
        labels=belief.judged,
        unlabelled_most=float(belief.unlabelled[-1]),
        ability=_ability(basis.measured),
        recurrence=basis.recurrence,
        negatives=drawn.sources,
        basis=basis,
    )


def _interval(values: Float64s) -> tuple[float, float]:
    """The widest over what is not excluded; values are (K, D)."""
    low, high = np.quantile(values, TAILS, axis=1)
    return float(low.min()), float(high.max())


def _cost(name: str, sources: Mapping[str, Negatives]) -> int:
    """How costly a source is to mine, in order alone."""
    ways = ["none"] if name == NONE else sources[name].table["source"].unique().to_pylist()
    return max((COSTS.get(str(way), UNKNOWN_COST) for way in ways), default=UNKNOWN_COST)


def turning_points(
    chosen: str, may: Mapping[str, Weighed], unlabelled: Float64s, today: int
) -> tuple[TurningPoint | None, TurningPoint | None]:
    """Return where, nearest to what is believed, another candidate is better: with more answers, and fewer.

    Args:
        chosen: the choice, one of `may`.
        may: name -> the candidates that may be chosen.
        unlabelled: (G,) values of o.
        today: place of the o that is believed.
    """
    names, benefits = [*may], np.stack([each.on_grid for each in may.values()], axis=1)
    best = benefits.argmax(axis=1)
    stays = may[chosen].on_grid >= benefits.max(axis=1) * (1 - TOLERANCE)
    stays |= best == names.index(chosen)

    def turn(at: int, above: bool) -> TurningPoint:
        other, shares = names[best[at]], may[chosen].shares
        source, share = None if other == NONE else other, float(may[other].shares[at])
        return TurningPoint(float(unlabelled[at]), float(shares[at]), source, above, share)

    more, fewer = np.flatnonzero(~stays[today:]), np.flatnonzero(~stays[:today])
    return (
        turn(today + int(more[0]), above=True) if len(more) else None,
        turn(int(fewer[-1]), above=False) if len(fewer) else None,
    )


def _ability(measured: Measured) -> float:
    """Share of random negatives that the encoder puts below the positive; NaN without random ones."""
    records = measured.records
    rows = np.flatnonzero(records.members >> records.names.index(RANDOM) & 1)
    below = measured.similarities.s_n[rows] < measured.s_p[records.record[rows]]
    return float(below.mean()) if len(rows) else math.nan


@door(check=check_mining, needs=MINING_NEEDS)
def mine(
    collection: CollectionLike,
    method: Annotated[str, Option(flag="--with", names=METHODS)] = "bm25",
    *,
    window: WindowSettings,
    lexical: BM25Settings,
    filters: FilterSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Mined:
    """Mine negatives: the best-ranked documents that are not labelled relevant.

    Documents that equal or nearly equal a positive stay in the table, rejected with a reason. With
    the best ranks, it mines deep, shows what each window of ranks is worth for the training, and
    takes the best one.

    Args:
        method: What ranks the documents: random, bm25, dense, cross-encoder, ance or trisampler.

    Example:
        foils mine scifact/ --with bm25 --top 10 --split train -o bm25.parquet

    Raises:
        InputError: a collection that cannot be read, a split without positives, or options that
            have no effect.
        UnknownNameError: no such method.
    """
    loaded = reading.open(collection)
    models = Models(loaded, window, filters, encoding, lexical)
    (miner, facts), top = models.miner(method), window.top

    def mined(miner: Miner, **more: Any) -> Mined:
        ranks = {"ranks": miner.ranks} if miner.ranks != (0, None) else {}
        settings = {**facts, **ranks, **more}
        history = provenance("mine", settings, inputs={"collection": loaded.digest})
        return miner.mined(window.split, plant=PLANTED, made=history)

    if window.ranks != BEST:
        return mined(miner)
    windows = {f"ranks {at * top}–{(at + 1) * top}": (at * top, (at + 1) * top) for at in range(WINDOWS)}
    sources = {}
    for name, (first, end) in windows.items():
        source = mined(replace(miner, ranks=(first, end)))
        if pc.max(source.kept()["rank"]).as_py() == end - 1:  # the ranking goes on to its end
            sources[name] = source
    if len(sources) < 2:
        raise InputError(f"{len(sources)} windows of {top} ranks have negatives: lower {spelled('top')}")
    split, seed = window.split, window.seed
    decision = decide(loaded, sources, *models.encoder, split=split, seed=seed, candidates=list(sources))
    best_of = {"depth": WINDOWS * top, "source": decision.source, "sentence": decision.sentence,
               "candidates": decision.to_json()["candidates"]}  # fmt: skip
    best = mined(replace(miner, ranks=windows[str(decision.source)]), best_of=best_of)
    return MinedOfBest.of(best, decision=decision, **{each.name: getattr(best, each.name) for each in fields(best)})


@dataclass(frozen=True, kw_only=True)
class MinedOfBest(Mined):
    """Negatives of the best ranks.

    Attributes:
        decision: between windows of ranks.
    """

    decision: Decision

    def tables(self) -> list[Table]:
        """Return the counts, with the decision that the ranks were chosen by."""
        return [*super().tables(), self.decision.table()]

    def to_json(self) -> dict[str, Any]:
        """Return source, settings, counts and the decision."""
        return {**super().to_json(), "decision": self.decision.to_json()}
