"""foils search: a run, with each query's useful dimensions; and the experiments behind the choice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.groups import takes
from foils.cli.llm_options import LLMOptions
from foils.cli.search_answers import answers_by_model, read_answers
from foils.cli.search_experiments import EXPERIMENTS, plain_findings, run_experiments, show_findings
from foils.cli.show import say, show_table
from foils.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.encode import Vectors
    from foils.search import Grid, Index

INDEXES = ("exact", "flat", "hnsw", "ivf")
READINGS = "few-irrelevant (k⁻ in 2..6), few-relevant (k⁺ in 2..6), both, or spread (2,280 settings of both)"


@takes(LLMOptions, "llm")
@takes(opt.EncoderOptions, "encoding", without=["encoder"])
def search(
    collection: opt.CollectionName,
    *,
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="The encoder.")] = opt.DEFAULT_ENCODER,
    dimensions: Annotated[str, typer.Option(help="none (keep all), dime, eclipse, or rdime.")] = "eclipse",
    run: Annotated[Path | None, typer.Option("--run", metavar="FILE", help="Write the run in TREC form.")] = None,
    split: opt.Split = "test",
    top: Annotated[int, typer.Option("--top", min=1, help="Documents of a query (k).")] = 1000,
    k_plus: Annotated[
        int | None, typer.Option(min=1, help="Best documents that make the sun. Default: eclipse 2, others 1.")
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
        str | None, typer.Option(help="In place of a search: filters, shares, depths, moons, or all of them.")
    ] = None,
    folds: Annotated[int, typer.Option(min=2, help="Of the cross-validation in experiments.")] = 5,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="With --experiment: tables and plots as one HTML page.")
    ] = None,
    answer_prompt: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Of the answers that --llm-model writes: a template with {query}."),
    ] = None,
    seed: opt.Seed = 0,
    llm: LLMOptions,
    encoding: opt.EncoderOptions = opt.MODELS_OWN_LENGTH,
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
    from foils.search import MEASURES, DimensionSettings, choose_settings, embed_collection, search_collection

    if experiment is not None and experiment not in EXPERIMENTS:
        raise UnknownNameError("experiment", experiment, EXPERIMENTS)
    if index not in INDEXES:
        raise UnknownNameError("index", index, INDEXES)
    if run is None and experiment is None:
        raise InputError("nothing to write; give --run FILE, or an --experiment")
    if report is not None and experiment is None:
        raise InputError("--report goes with --experiment")
    if answers and llm.llm_model:
        raise InputError("--answers FILE and --llm-model both bring answers; give one of them")
    k_plus = k_plus or (2 if dimensions == "eclipse" else 1)
    settings = DimensionSettings(dimensions, k_plus, k_minus, alpha, beta, share, moon_pool)  # type: ignore[arg-type]
    loaded = load_collection(collection)
    splits = [split, *([tune] if tune and not experiment else [])]
    asked: dict[str, Any] = {}
    texts = read_answers(answers) if answers else None
    if llm.llm_model:
        texts, asked = answers_by_model(loaded, splits, llm, answer_prompt, seed)
    encoder, store = replace(encoding, encoder=model).open(loaded)
    embedded = embed_collection(loaded, encoder, store, split=split, answers=texts)
    rng = np.random.default_rng(seed)
    if experiment:
        found = run_experiments(
            experiment,
            embedded,
            settings,
            _grid("eclipse", reading, moon_pool),
            encoder=encoder.name,
            measures=list(dict.fromkeys([*MEASURES, measure])),
            top=top,
            folds=folds,
            rng=rng,
        )
        show_findings(found)
        if report:
            from foils.report.search import write_search_report

            write_search_report(report, found)
        result = {"experiment": experiment, **plain_findings(found)}
    else:
        if tune:
            tuning = embed_collection(loaded, encoder, store, split=tune, answers=texts)
            settings = choose_settings(
                tuning, _grid(dimensions, reading, moon_pool), measure=measure, k=feedback_depth or top, rng=rng
            )
            say(f"chosen on {tune}: {settings}")
        searched = search_collection(
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
        searched.run.write(str(run))
        rows = [
            ("queries", f"{len(embedded.query_ids):,}"),
            ("documents ranked", f"{searched.run.table.num_rows:,}"),
            ("dimensions kept", f"{100 * searched.kept:.1f} %"),
            ("queries that kept all, for want of feedback or answer", f"{len(searched.short):,}"),
        ]
        show_table(f"{dimensions} search of {loaded.name} ({split}) → {run}", ["", ""], rows)
        result = {"settings": vars(settings), "kept": searched.kept, "short": searched.short, "run": str(run)}
    if json:
        head = {"collection": loaded.name, "split": split, "encoder": encoder.describe(), "dimensions": dimensions}
        write_json(json, {**head, **asked, **result})


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
