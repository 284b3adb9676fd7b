"""foils search: a run, with each query's useful dimensions; and the experiments behind the choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.model_options import takes_models
from foils.cli.show import number, say, show_table
from foils.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    import numpy as np

    from foils.encode import Vectors
    from foils.search import Embedded, Grid, Index, System

EXPERIMENTS = ("filters", "shares", "depths", "moons")
INDEXES = ("exact", "flat", "hnsw", "ivf")
READINGS = "few-irrelevant (k⁻ in 2..6), few-relevant (k⁺ in 2..6), or both"


@takes_models
def search(
    collection: opt.CollectionName,
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="The encoder.")] = opt.DEFAULT_ENCODER,
    dimensions: Annotated[str, typer.Option(help="none (keep all), dime, eclipse, or rdime.")] = "eclipse",
    run: Annotated[Path | None, typer.Option("--run", metavar="FILE", help="Write the run in TREC form.")] = None,
    split: opt.Split = "test",
    top: Annotated[int, typer.Option("--top", min=1, help="Documents of a query (k).")] = 1000,
    k_plus: Annotated[
        int | None, typer.Option(min=1, help="Best documents that make the sun. [default: eclipse 2, others 1]")
    ] = None,
    k_minus: Annotated[int, typer.Option(min=1, help="Last documents that make the moon (eclipse).")] = 5,
    alpha: Annotated[float, typer.Option(help="Weight of the sun (eclipse).")] = 1.0,
    beta: Annotated[float, typer.Option(help="Weight of the moon (eclipse).")] = 0.5,
    share: Annotated[float, typer.Option(help="Share of dimensions kept (dime, eclipse).")] = 0.8,
    moon_pool: Annotated[int | None, typer.Option(min=1, help="Draw the moon from so many last documents.")] = None,
    feedback: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Take sun and moon from this TREC run (as of BM25).")
    ] = None,
    feedback_depth: Annotated[int | None, typer.Option(min=1, help="Length of the feedback; default: --top.")] = None,
    answers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help='JSONL of {"query_id", "answer"}: texts whose vectors make the sun.'),
    ] = None,
    second_pass: Annotated[
        str, typer.Option(help="index: rank all documents again; retrieved: only those of the first pass.")
    ] = "index",
    index: Annotated[str, typer.Option(help="exact; or of faiss: flat, hnsw, ivf.")] = "exact",
    index_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Load the faiss index from here, or build and save it.")
    ] = None,
    tune: Annotated[
        str | None,
        typer.Option(metavar="SPLIT", help="Choose the settings on this split, by the published grid (dime, eclipse)."),
    ] = None,
    measure: Annotated[str, typer.Option(help="To choose settings by: nDCG@10, AP, RR@10, …")] = "nDCG@10",
    reading: Annotated[str, typer.Option(help=f"Of the published grid: {READINGS}.")] = "both",
    experiment: Annotated[
        str | None, typer.Option(help="In place of a search: filters, shares, depths, or moons.")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Of the cross-validation in experiments.")] = 5,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="With --experiment shares: an HTML plot.")] = None,
    seed: opt.Seed = 0,
    encoding: opt.EncoderOptions = opt.DEFAULTS,
    json: opt.Json = None,
) -> None:
    """Search with the dimensions of each query's vector that help it, estimated from what a first pass returns.

    No training and no change to the index. rdime has nothing to tune; dime and eclipse have, so choose their settings
    on another split (--tune), or look at the experiments, which tell honest numbers from oracle ones.

    Example: foils search scifact/ --dimensions eclipse --tune train --run eclipse.trec
    """
    import numpy as np

    from foils.data import Run, load_collection
    from foils.data.store import write_json
    from foils.search import DimensionSettings, choose_settings, embed_collection, search_collection

    if experiment is not None and experiment not in EXPERIMENTS:
        raise UnknownNameError("experiment", experiment, EXPERIMENTS)
    if index not in INDEXES:
        raise UnknownNameError("index", index, INDEXES)
    if run is None and experiment is None:
        raise InputError("nothing to write; give --run FILE, or an --experiment")
    k_plus = k_plus or (2 if dimensions == "eclipse" else 1)
    settings = DimensionSettings(dimensions, k_plus, k_minus, alpha, beta, share, moon_pool)  # type: ignore[arg-type]
    loaded = load_collection(collection)
    encoder, store = replace(encoding, encoder=model).open(loaded)
    texts = read_answers(answers) if answers else None
    embedded = embed_collection(loaded, encoder, store, split=split, answers=texts)
    rng = np.random.default_rng(seed)
    if experiment:
        result = _experiment(experiment, embedded, settings, reading, measure, top, folds, plot, rng)
    else:
        if tune:
            tuning = embed_collection(loaded, encoder, store, split=tune, answers=texts)
            settings = choose_settings(
                tuning, _grid(dimensions, reading, moon_pool), measure=measure, k=feedback_depth or top, rng=rng
            )
            say(f"chosen on {tune}: {settings}")
        found = search_collection(
            embedded,
            settings,
            index=_index(index, index_file, embedded.documents),
            k=top,
            feedback_depth=feedback_depth,
            feedback=Run.read(feedback) if feedback else None,
            second_pass=second_pass,  # type: ignore[arg-type]  # checked by search_vectors
            rng=rng,
            name=f"{encoder.name}-{dimensions}",
        )
        found.run.write(str(run))
        rows = [
            ("queries", f"{len(embedded.query_ids):,}"),
            ("documents ranked", f"{found.run.table.num_rows:,}"),
            ("dimensions kept", f"{100 * found.kept:.1f} %"),
            ("queries with too short feedback, which kept all", f"{len(found.short):,}"),
        ]
        show_table(f"{dimensions} search of {loaded.name} ({split}) → {run}", ["", ""], rows)
        result = {"settings": vars(settings), "kept": found.kept, "short": found.short, "run": str(run)}
    if json:
        head = {"collection": loaded.name, "split": split, "encoder": encoder.describe(), "dimensions": dimensions}
        write_json(json, {**head, **result})


def read_answers(path: Path) -> dict[str, str]:
    """Read {"query_id": …, "answer": …} lines."""
    from foils.data.lines import Complaints, json_objects, text_field

    complaints, found = Complaints(path), {}
    for line, record in json_objects(path, complaints):
        query, answer = text_field(record.get("query_id")), text_field(record.get("answer"))
        if query is None or not (answer or "").strip():
            complaints.add('expected {"query_id": string, "answer": a text that is not empty}', line)
        else:
            found[query] = str(answer)
    complaints.settle()
    return found


def _grid(dimensions: str, reading: str, moon_pool: int | None) -> Grid:
    from foils.search import dime_grid, published_grid

    if dimensions == "dime":
        return dime_grid()
    if dimensions != "eclipse":
        raise InputError(f"--dimensions {dimensions} has nothing to tune; leave --tune out")
    return published_grid(reading, moon_pool=moon_pool)  # type: ignore[arg-type]  # checked there


def _index(kind: str, path: Path | None, documents: Vectors) -> Index:
    from foils.search import ExactIndex, FaissIndex

    if kind == "exact":
        if path:
            raise InputError("--index-file goes with --index flat, hnsw or ivf; exact search needs no file")
        return ExactIndex(documents)
    if path and path.is_file():
        return FaissIndex.load(path)
    built = FaissIndex.build(documents, kind)  # type: ignore[arg-type]  # one of INDEXES
    if path:
        built.save(path)
    return built


def _experiment(
    name: str,
    embedded: Embedded,
    settings: Any,
    reading: str,
    measure: str,
    top: int,
    folds: int,
    plot: Path | None,
    rng: np.random.Generator,
) -> dict[str, Any]:
    from foils.evaluate import compare_systems
    from foils.search import MEASURES, by_depth, by_moon, compare_filters, dime_grid, prepare

    measures = list(dict.fromkeys([*MEASURES, measure]))
    bench = prepare(embedded, k=top, depth=len(embedded.documents) if name == "depths" else None)
    if name == "moons":
        table = by_moon(bench, settings, rng=rng, measures=measures)
        systems = [system for of in table.values() for system in of]
        _show(f"Moons, {settings}", systems, measures, {})
        return {"experiment": name, "systems": [_plain(system) for system in systems]}
    grid = _grid("eclipse", reading, settings.moon_pool)
    if name == "shares":
        return _shares(bench, {"Eclipse": grid, "DIME": dime_grid()}, measures, measure, plot, rng)
    if name == "depths":
        systems = by_depth(bench, grid, rng=rng, measures=measures, folds=folds)
    else:
        grids = {"DIME": dime_grid(), "Eclipse": grid}
        systems = compare_filters(bench, grids, rng=rng, measures=measures, folds=folds)
    comparisons = []
    for kind in ("honest", "oracle") if name == "filters" else ():  # each kind with a correction of its own
        chosen = {_label(s): s.per_query for s in systems if s.kind == kind or (s.kind == "fixed" and kind == "honest")}
        chosen = {"baseline": systems[0].per_query, **chosen}
        comparisons += compare_systems(chosen, rng=rng, against=["baseline"], alternative="greater")
    p = {(c.a, c.measure): c.p_holm for c in comparisons}
    _show(f"{name} of {embedded.collection.name} ({embedded.split})", systems, measures, p)
    return {
        "experiment": name,
        "systems": [_plain(system) for system in systems],
        "comparisons": [vars(c) for c in comparisons],
    }


def _shares(
    bench: Any, grids: dict[str, Grid], measures: list[str], measure: str, plot: Path | None, rng: np.random.Generator
) -> dict[str, Any]:
    import numpy as np

    from foils.search import by_share, grid_values, mask_values, share_figure

    found = {
        name: grid_values(bench, grid, measures=measures, answers=bench.embedded.answers, rng=rng)
        for name, grid in grids.items()
    }
    curves = {name: by_share(values, measure) for name, values in found.items()}
    baseline = float(mask_values(bench, np.ones(bench.embedded.queries.shape, bool), [measure])[measure].mean())
    for name, curve in curves.items():
        _show(f"{name} (oracle) by share of dimensions kept", list(curve.values()), [measure], {})
    if plot:
        share_figure(curves, measure, baseline=baseline).write_html(plot, include_plotlyjs=True)
    points = {
        name: {f"{share:g}": system.means[measure] for share, system in curve.items()} for name, curve in curves.items()
    }
    return {"experiment": "shares", "measure": measure, "baseline": baseline, "oracle": points}


def _label(system: System) -> str:
    return system.name if system.kind == "fixed" else f"{system.name} ({system.kind})"


def _plain(system: System) -> dict[str, Any]:
    settings = {measure: [vars(one) for one in of] for measure, of in system.settings.items()}
    values = {measure: of.tolist() for measure, of in system.per_query.items()}
    facts = {"name": system.name, "kind": system.kind, "means": system.means, "kept": system.kept}
    return {**facts, "settings": settings, "per_query": values}


def _show(title: str, systems: list[System], measures: list[str], p: dict[tuple[str, str], float]) -> None:
    rows = []
    for system in systems:
        cells = []
        for measure in measures:
            holm = p.get((_label(system), measure))
            cells.append(f"{system.means[measure]:.4f}" + (f" (p {number(holm)})" if holm is not None else ""))
        rows.append((_label(system), *cells))
    note = "oracle: settings chosen on these very queries; honest: on other folds. p: one-sided, Holm."
    show_table(title, ["system", *measures], rows, caption=note)
