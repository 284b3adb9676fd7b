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

from foils.searching.bench import Bench, grid_values, mask_values, prepare
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
    return System("baseline", "fixed", mask_values(bench, np.ones(bench.embedded.queries.shape, bool)), kept=1.0)


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
    fixed = [_fixed(f"{sun} RDIME", bench, RDIME, answers) for sun, answers in bench.suns.items()]
    fixed.append(_fixed("PRF selective", bench, SELECTIVE, None))
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
        columns = np.flatnonzero([setting.share == share for setting in grid.settings])
        values = {name: of[:, columns] for name, of in grid.values.items()}
        part = GridValues([grid.settings[c] for c in columns], values, grid.short[:, columns], len(columns))
        if deal is None:
            best = oracle(part, measure)
        else:
            best = cross_validate(part, measure, rng=np.random.default_rng(deal), folds=folds)
        short = dict.fromkeys(best.per_query, best.short)
        curve[share] = System(f"share {share:g}", best.kind, best.per_query, {measure: best.settings}, share, short)
    return curve


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
    settings: DimensionSettings,
    *,
    rng: np.random.Generator,
    pools: Sequence[int | None] = (*POOLS, None),
    runs: int = 5,
) -> dict[str, list[System]]:
    """Compare moons drawn at random from the bottom of the list with the last k⁻, at one setting, over several runs.

    Args:
        bench: of `prepare`.
        settings: of eclipse; the pool is set by `pools`.
        rng: source of the draws.
        pools: how many of the last documents to draw from; None: take the last k⁻.
        runs: draws of each pool.

    Returns:
        `PRF bottom 30` and so on → one system a run (`PRF exact` → one).

    Source: Eclipse, Table 3.
    """
    table: dict[str, list[System]] = {}
    for sun, answers in bench.suns.items():
        for pool in pools:
            name = "exact" if pool is None else f"bottom {pool}"
            drawn = replace(settings, moon_pool=pool)
            times = range(1 if pool is None else runs)
            table[f"{sun} {name}"] = [_fixed(name, bench, drawn, answers, rng) for _ in times]
    return table


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
    settings: DimensionSettings,
    answers: npt.NDArray[np.floating] | None,
    rng: np.random.Generator | None = None,
) -> System:
    """The system of one setting."""
    lists = [rows[: bench.feedback_depth] for rows in bench.lists]
    vectors = bench.embedded
    masks, short = query_masks(vectors.queries, vectors.documents, lists, settings, answers=answers, rng=rng)
    values = mask_values(bench, masks)
    return System(name, "fixed", values, kept=float(masks.mean()), short=dict.fromkeys(values, short))


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
        )
        for kind, by in both.items()
    ]
