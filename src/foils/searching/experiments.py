"""The experiments of Eclipse on a collection: filters, retained shares, depth of the feedback, random moons.

Every function returns systems with values per query, so that whoever calls can test differences. Documents are
ranked again within the k retrieved. Each number says whether it is *fixed* (no setting was chosen on these queries),
*honest* (chosen by cross-validation) or the *oracle* (chosen on the queries it is reported on, as published). What the
sun is made of stands before the name: `PRF`, the feedback; `LLM`, answers, where there are some.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from foils.data.collection import Rows
from foils.searching.bench import Bench, grid_values, mask_values, prepare
from foils.searching.dimensions import Mask
from foils.searching.grids import Grid
from foils.searching.masks import query_masks
from foils.searching.runs import Embedded
from foils.searching.settings import FEEDBACK_DEPTH, DimensionSettings
from foils.searching.systems import Kind, System
from foils.searching.tune import GridValues, Tuned, cross_validate, oracle

DEPTHS = (50, 300, 1000, 50_000)  # published
POOLS = (30, 100, 150)
RDIME = DimensionSettings("rdime")
SELECTIVE = DimensionSettings("selective")


def sun_values(
    bench: Bench, grids: Mapping[str, Grid], *, rng: np.random.Generator | None = None
) -> dict[str, GridValues]:
    """Evaluate each grid with every sun of a bench: `PRF Eclipse` and so on → values.

    Args:
        bench: of `prepare`.
        grids: name of the filter (`DIME`, `Eclipse`) → its grid.
        rng: source of the draws, where a grid has random moons.
    """
    return {
        f"{sun} {name}": grid_values(bench, grid, answers=answers, rng=rng)
        for name, grid in grids.items()
        for sun, answers in bench.suns.items()
    }


def everything(bench: Bench) -> System:
    """Return the baseline, which keeps all dimensions."""
    values = mask_values(bench, masks := np.ones(bench.embedded.queries.shape, bool))
    return System("baseline", "fixed", values, kept=1.0, whole=dict.fromkeys(values, masks[:, 0]))


def compare_filters(
    bench: Bench, values: Mapping[str, GridValues], *, rng: np.random.Generator, folds: int = 5
) -> list[System]:
    """Compare the baseline, RDIME with every sun, selective, and each grid, honest and oracle.

    Args:
        bench: of `prepare`.
        values: of `sun_values`.
        rng: deals queries to folds, the same deal for every filter and measure.
        folds: of the cross-validation.

    Source: Eclipse, Table 1.
    """
    fixed = [_fixed(f"{sun} RDIME", bench, [RDIME], answers) for sun, answers in bench.suns.items()]
    fixed.append(_fixed("PRF selective", bench, [SELECTIVE], None))
    return [everything(bench), *fixed, *honest_and_oracle(values, rng=rng, folds=folds)]


def by_share(
    grid: GridValues, measure: str, *, rng: np.random.Generator | None = None, folds: int = 5
) -> dict[float, System]:
    """Return, for each retained share of a grid, the best of its other settings: the published curves.

    Args:
        grid: what its settings score, of `grid_values`.
        measure: to choose by.
        rng: deals queries to folds, the same deal for every share, to choose by cross-validation (honest); None:
            choose on these very queries (oracle), as published.
        folds: of the cross-validation.

    Source: Eclipse, Figures 2 and 3; at share 0.5 its Table 2.
    """
    deal = None if rng is None else int(rng.integers(2**32))
    curve = {}
    for share in sorted({setting.share for setting in grid.settings}):
        part = grid.only(np.flatnonzero([setting.share == share for setting in grid.settings]))
        if deal is None:
            best = oracle(part, measure)
        else:
            best = cross_validate(part, measure, rng=np.random.default_rng(deal), folds=folds)
        curve[share] = _at_share(share, best)
    return curve


def at_best(grid: GridValues, measure: str) -> dict[float, System]:
    """Return, for each retained share, what the one setting scores that is best with a share of its own (oracle).

    Depths and weights are those of the oracle, the same at every share; `by_share` chooses them again at each.

    Args:
        grid: what its settings score, of `grid_values`.
        measure: to choose by.

    Source: Eclipse, Figures 2 and 3.
    """
    (best,) = oracle(grid, measure).settings
    columns = [at for at, each in enumerate(grid.settings) if replace(each, share=best.share) == best]
    return {
        grid.settings[at].share: _at_share(grid.settings[at].share, oracle(grid.only(np.array([at])), measure))
        for at in sorted(columns, key=lambda at: grid.settings[at].share)
    }


def _at_share(share: float, tuned: Tuned) -> System:
    short, whole = (dict.fromkeys(tuned.per_query, of) for of in (tuned.short, tuned.whole))
    settings = {tuned.measure: tuned.settings}
    return System(f"share {share:g}", tuned.kind, tuned.per_query, settings, share, short, whole)


def depth_values(
    bench: Bench, grid: Grid, *, rng: np.random.Generator, depths: Sequence[int] = DEPTHS
) -> dict[str, GridValues]:
    """Evaluate a grid for several lengths of the feedback, with every sun: `PRF k=50` and so on → values.

    Args:
        bench: of `prepare`.
        grid: its settings.
        rng: source of the draws of random moons.
        depths: lengths of the feedback; one that the collection does not have is `all` its documents.

    Source: Eclipse, Figures 2 and 3.
    """
    count = len(bench.embedded.documents)
    return {
        f"{sun} k={depth if depth < count else 'all'}": grid_values(
            replace(bench, feedback_depth=depth), grid, answers=answers, rng=rng
        )
        for sun, answers in bench.suns.items()
        for depth in dict.fromkeys(min(each, count) for each in depths)
    }


def honest_and_oracle(values: Mapping[str, GridValues], *, rng: np.random.Generator, folds: int = 5) -> list[System]:
    """Return two systems for each named grid: chosen by cross-validation, and chosen on these queries.

    Args:
        values: name → what the grid's settings score; each measure has the settings that are best by it.
        rng: deals queries to folds, the same deal for all.
        folds: of the cross-validation.
    """
    deal = int(rng.integers(2**32))
    return [system for name, of in values.items() for system in _both(name, of, folds, deal)]


def by_moon(
    bench: Bench,
    settings: Mapping[str, Sequence[DimensionSettings]],
    *,
    rng: np.random.Generator,
    fold: Rows | None = None,
    kind: Kind = "fixed",
    answers: npt.NDArray[np.floating] | None = None,
    pools: Sequence[int | None] = (*POOLS, None),
    runs: int = 5,
) -> dict[str, list[System]]:
    """Compare moons drawn at random from the bottom of the list with the last k⁻, all else being equal.

    Args:
        bench: of `prepare`.
        settings: measure → settings of eclipse for each fold; the pool is set by `pools`. Measures of the same settings
            have the same draws.
        rng: source of the draws.
        fold: (n,) whose settings each query takes; None: there is one fold.
        kind: how the settings were chosen.
        answers: (n, d) vectors of answers, for the sun; None: feedback.
        pools: how many of the last documents to draw from; None: take the last k⁻.
        runs: draws of each pool.

    Returns:
        `bottom 30` and so on → one system a run (`exact` → one).

    Raises:
        InputError: a pool below a setting's k⁻.

    Source: Eclipse, Table 3.
    """
    of_queries = np.zeros(len(bench.lists), np.int64) if fold is None else fold

    def drawn(pool: int | None) -> System:
        measured: dict[str, System] = {}
        for chosen in {tuple(of): None for of in settings.values()}:
            system = _fixed(
                _moon_name(pool), bench, [replace(of, moon_pool=pool) for of in chosen], answers, rng, of_queries
            )
            measured |= {measure: system for measure, of in settings.items() if tuple(of) == chosen}
        parts = [{m: getattr(of, part)[m] for m, of in measured.items()} for part in ("per_query", "short", "whole")]
        tuned = {measure: [*of] for measure, of in settings.items()}
        return System(_moon_name(pool), kind, parts[0], tuned, short=parts[1], whole=parts[2])

    return {_moon_name(pool): [drawn(pool) for _ in range(1 if pool is None else runs)] for pool in pools}


def _moon_name(pool: int | None) -> str:
    return "exact" if pool is None else f"bottom {pool}"


def choose_settings(
    embedded: Embedded,
    grid: Grid,
    *,
    measure: str = "nDCG@10",
    k: int = 1000,
    feedback_depth: int = FEEDBACK_DEPTH,
    rerank_depth: int | None = None,
    rng: np.random.Generator | None = None,
) -> DimensionSettings:
    """Return a grid's best settings on a split, to be used on another: the honest way where there is a dev split.

    Args:
        embedded: vectors of the split to choose on.
        grid: what to choose from.
        measure: to choose by.
        k: documents of a ranking that count.
        feedback_depth: length of the feedback.
        rerank_depth: documents ranked again, at least k; None: 1000, or k where that is more.
        rng: source of the draws, where the grid has random moons.
    """
    bench = prepare(embedded, k=k, feedback_depth=feedback_depth, rerank_depth=rerank_depth, measures=[measure])
    return oracle(grid_values(bench, grid, answers=bench.embedded.answers, rng=rng), measure).settings[0]


def _fixed(
    name: str,
    bench: Bench,
    settings: Sequence[DimensionSettings],
    answers: npt.NDArray[np.floating] | None,
    rng: np.random.Generator | None = None,
    fold: Rows | None = None,
) -> System:
    """The system of one setting, or of one for each fold of the queries."""
    vectors, count = bench.embedded, len(bench.lists)
    masks, short = np.ones(vectors.queries.shape, bool), np.zeros(count, bool)
    for at, each in enumerate(settings):
        rows = np.arange(count) if fold is None else np.flatnonzero(fold == at)
        lists = [bench.lists[row][: bench.feedback_depth] for row in rows]
        suns = None if answers is None else answers[rows]
        masks[rows], short[rows] = query_masks(
            vectors.queries[rows], vectors.documents, lists, each, answers=suns, rng=rng
        )
    values = mask_values(bench, masks)
    whole: dict[str, Mask] = dict.fromkeys(values, np.asarray(masks.all(axis=1)))
    return System(name, "fixed", values, kept=float(masks.mean()), short=dict.fromkeys(values, short), whole=whole)


def _both(name: str, values: GridValues, folds: int, deal: int) -> list[System]:
    both: dict[Kind, dict[str, Tuned]] = {
        "honest": {
            measure: cross_validate(values, measure, rng=np.random.default_rng(deal), folds=folds)
            for measure in values.values
        },
        "oracle": {measure: oracle(values, measure) for measure in values.values},
    }
    return [
        System(
            name,
            kind,
            {measure: tuned.per_query[measure] for measure, tuned in by.items()},
            {measure: tuned.settings for measure, tuned in by.items()},
            short={measure: tuned.short for measure, tuned in by.items()},
            whole={measure: tuned.whole for measure, tuned in by.items()},
        )
        for kind, by in both.items()
    ]
