"""foils rate: how hard each negative really is, from pairwise judgements."""

from __future__ import annotations

from dataclasses import asdict
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foils.cli import options as opt
from foils.cli.groups import takes
from foils.cli.judges import (
    DistilOptions,
    Judging,
    QuestionOptions,
    language_models,
    made_judge,
    show_distilled,
    usage_rows,
)
from foils.cli.llm_options import LLMOptions
from foils.cli.show import number, say, show_table

if TYPE_CHECKING:
    from foils.data import Collection
    from foils.data.sources import NamedSource
    from foils.rate import Judge, JudgementRecord, Rated, RatingReport


@takes(DistilOptions, "distilling")
@takes(QuestionOptions, "question")
@takes(LLMOptions, "llm")
@takes(opt.EncoderOptions, "encoding")
def rate(
    collection: opt.CollectionName,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Negatives: [NAME=]PATH.", show_default=False)],
    *,
    output: opt.Output,
    judge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JUDGE",
            help="bi-encoder[:MODEL], cross-encoder:MODEL, pairwise:FOLDER, llm[:MODEL], or recorded:PATH; a bare "
            "MODEL is a bi-encoder. Several of them: their mean. Default: bi-encoder, with --encoder.",
        ),
    ] = None,
    positives: Annotated[
        int, typer.Option(min=1, help="Labelled positives of a query that are rated; the best one counts for the gap.")
    ] = 1,
    degree: Annotated[int, typer.Option(min=2, help="Comparisons per candidate, even.")] = 6,
    rounds: Annotated[
        int, typer.Option(min=0, help="Choose later pairs, in so many rounds, where they tell most; 0: all at random.")
    ] = 0,
    model: Annotated[str, typer.Option(help="thurstone or bradley-terry.")] = "thurstone",
    prior_sd: Annotated[
        float, typer.Option(help="Of the weak Gaussian prior, in probits or logits; more is weaker.")
    ] = 10.0,
    temperature: Annotated[
        float | None,
        typer.Option(help="Divides differences of scores. Default: 0.05 for cosines, 1 for a cross-encoder's logits."),
    ] = None,
    validate: Annotated[
        str, typer.Option(help="Compare with the positive directly: none, borderline (gap 80–150), or all.")
    ] = "none",
    judgements: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Where judgements are kept, so that none is asked twice. Default: the cache."
        ),
    ] = None,
    split: opt.Split = "train",
    seed: opt.Seed = 0,
    distilling: DistilOptions,
    question: QuestionOptions,
    llm: LLMOptions,
    encoding: opt.EncoderOptions,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write a page: gaps, errors, signal and risk.")
    ] = None,
    json: opt.Json = None,
) -> None:
    """Rate negatives: add elo, elo_se, gap = e_positive − e_d and gap_se, in Elo points.

    Each query's negatives and its positive are compared in pairs on a sparse random graph by a judge, and the ratings
    fitted to its answers. A stopped run continues where it was.

    Example: foils rate scifact/ dense.parquet --judge cross-encoder:my-reranker/ --degree 6 -o rated.parquet
    """
    from foils.data import load_collection
    from foils.data.sources import read_source
    from foils.data.store import provenance, write_json
    from foils.rate import EnsembleJudge, rate_negatives

    loaded = load_collection(collection)
    given = read_source(source, loaded)
    distilling.check()
    judging = Judging(loaded, temperature, encoding, llm, question)
    judges = [made_judge(spec, judging) for spec in judge or ["bi-encoder"]]
    asked = judges[0] if len(judges) == 1 else EnsembleJudge(judges)
    record = (
        None if any(spec.startswith("recorded") for spec in judge or []) else _record(judgements, asked, loaded, given)
    )
    models = language_models(judges)
    settings: dict[str, object] = {
        "split": split, "positives": positives, "judge": asked.name, "degree": degree,
        "rounds": rounds, "model": model, "prior_sd": prior_sd,
        "validate": validate,
    }  # fmt: skip
    settings |= {"language_models": [each.describe() for each in models]} if models else {}
    inputs = {"collection": loaded.digest, "source": given.digest, "judge": asked.fingerprint}
    rated = rate_negatives(
        loaded,
        given.negatives,
        asked,
        split=split,
        positives=positives,
        degree=degree,
        model=model,
        prior_sd=prior_sd,
        rounds=rounds,
        validate=validate,
        record=record,
        seed=seed,
        made=provenance("rate", settings, inputs=inputs, seed=seed, before=given.negatives.provenance),
    )
    rated.negatives.write(output)
    _show(rated, f"{given.name} rated by {asked.name} ({model}) → {output}", usage_rows(models, llm))
    more: dict[str, object] = {each.name: llm.usage_facts(each.asked.usage) for each in models}
    more = {"language_models": more} if more else {}
    if distilling.distil is not None:
        found = distilling.train(distilling.distil, rated, seed, encoding.device)
        shown = show_distilled(found, distilling.distil)
        more["distilled"] = {key: _plain(value) for key, value in shown.items()}
    if json:
        facts = {key: _plain(value) for key, value in asdict(rated.report).items()}
        write_json(json, {"source": given.name, "settings": settings, "seed": seed, **facts, **more})
    if report:
        from foils.report import write_ratings_report

        write_ratings_report(report, loaded, rated.negatives, split=split, rating=rated.report, seed=seed)
        say(f"report: {report}")


def _record(folder: Path | None, judge: Judge, collection: Collection, given: NamedSource) -> JudgementRecord:
    from foils.data.store import cache_folder
    from foils.rate import JudgementRecord

    key = {"judge": judge.fingerprint, "collection": collection.digest}
    if "text" in given.negatives.table.column_names:  # its ids name texts of its own
        key["source"] = given.digest
    place = folder or cache_folder() / "judgements" / "-".join(value[:16] for value in key.values())
    return JudgementRecord(place, key)


def _show(rated: Rated, title: str, used: list[tuple[str, str]]) -> None:
    import numpy as np

    report, gap = rated.report, rated.negatives.table["gap"].to_numpy()
    known = gap[np.isfinite(gap)]
    quartiles = np.percentile(known, [10, 25, 50, 75, 90]) if len(known) else np.full(5, np.nan)
    rows = [
        ("queries", f"{report.queries:,}"),
        ("comparisons", f"{report.comparisons:,}"),
        ("judgements missing", f"{report.missing:,}"),
        ("position bias", _bias(report)),
        ("negatives without a gap", f"{report.unrated:,}"),
        *((f"not rated: {why}", f"{count:,}") for why, count in report.skipped.items()),
        ("algebraic connectivity, mean", number(report.connectivity, 2)),
        ("diameter, largest", number(report.diameter, 0)),
        ("standard error, median, Elo", number(report.standard_error, 0)),
        ("gap, percentiles 10 25 50 75 90, Elo", "  ".join(number(value, 0) for value in quartiles)),
        *used,
    ]
    show_table(title, ["", "value"], rows)


def _bias(report: RatingReport) -> str:
    low, high = report.position_bias_interval
    if max(abs(report.position_bias), abs(low), abs(high)) < 1e-9:
        return f"{number(report.position_bias)} (none by construction)"
    return f"{number(report.position_bias)} (95 % interval {number(low)} to {number(high)})"


def _plain(value: object) -> object:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
