"""foils rate: how hard each negative really is, from pairwise judgements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.groups import only, options_of, refuse, takes
from foils.cli.judges import JUDGES, DistilOptions, JudgeOptions, QuestionOptions, language_models, usage_rows
from foils.cli.llm_options import LLMOptions
from foils.cli.show import number, say, show_table

if TYPE_CHECKING:
    from foils.rating import Rated, RatingReport


@dataclass(frozen=True)
class RatingOptions:
    """Which pairs are compared, and how ratings are fitted to answers, as `foils.rating.rate_negatives` names it."""

    positives: Annotated[
        int, typer.Option(min=1, help="Labelled positives of a query that are rated; the best one counts for the gap.")
    ] = 1
    degree: Annotated[int, typer.Option(min=2, help="Comparisons per candidate, even.")] = 6
    rounds: Annotated[
        int, typer.Option(min=0, help="Choose later pairs, in so many rounds, where they tell most; 0: all at random.")
    ] = 0
    model: Annotated[str, typer.Option(help="thurstone or bradley-terry.")] = "thurstone"
    prior_sd: Annotated[
        float, typer.Option(help="Of the weak Gaussian prior, in probits or logits; more is weaker.")
    ] = 10.0
    validate: Annotated[
        str, typer.Option(help="Compare with the positive directly: none, borderline (gap 80–150), or all.")
    ] = "none"


@takes(JudgeOptions, "judges")
@takes(RatingOptions, "rating")
@takes(DistilOptions, "distilling")
@takes(QuestionOptions, "question")
@takes(LLMOptions, "llm")
@takes(opt.EncoderOptions, "encoding")
def rate(
    collection: opt.CollectionName,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Negatives: [NAME=]PATH.", show_default=False)],
    *,
    output: opt.Output,
    judges: JudgeOptions,
    rating: RatingOptions,
    split: opt.Split = "train",
    seed: opt.Seed = 0,
    distilling: DistilOptions,
    question: QuestionOptions,
    llm: LLMOptions,
    encoding: opt.EncoderOptions,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write a page: gaps, errors, signal and risk.")
    ] = None,
    keep_identical_ids: opt.KeepIdenticalIds = False,
    json: opt.Json = None,
) -> None:
    """Rate negatives: add elo, elo_se, gap = e_positive − e_d and gap_se, in Elo points.

    Each query's negatives and its positive are compared in pairs on a sparse random graph by a judge, and the ratings
    fitted to its answers. A stopped run continues where it was.

    Example: foils rate scifact/ dense.parquet --judge cross-encoder:my-reranker/ --degree 6 -o rated.parquet
    """
    from foils.data import load_collection
    from foils.data.sources import read_source
    from foils.data.store import provenance, without_nan, write_json
    from foils.rating import EnsembleJudge, rate_negatives

    loaded = load_collection(collection, keep_identical_ids=keep_identical_ids)
    named = read_source(source, loaded)
    distilling.check()
    opened = judges.open(loaded, encoding, llm, question)
    judge, models = opened[0] if len(opened) == 1 else EnsembleJudge(opened), language_models(opened)
    settings: dict[str, Any] = {"split": split, "judge": judge.name, **vars(rating)}
    settings |= {"language_models": [each.describe() for each in models]} if models else {}
    inputs = {"collection": loaded.digest, "source": named.digest, "judge": judge.fingerprint}
    made = provenance("rate", settings, inputs=inputs, seed=seed, before=named.negatives.provenance)
    records = judges.records(opened, loaded, named)
    record = records if len(opened) > 1 else records[0]
    rated = rate_negatives(
        loaded, named.negatives, judge, split=split, record=record, seed=seed, made=made, **vars(rating)
    )
    rated.negatives.write(output)
    _show(rated, f"{named.name} rated by {judge.name} ({rating.model}) → {output}", usage_rows(models, llm))
    facts = {"source": named.name, "settings": settings, "seed": seed, **asdict(rated.report)}
    if models:
        facts["language_models"] = {each.name: llm.usage_facts(each.asked.usage) for each in models}
    facts |= distilling.train(rated, seed, encoding.device)
    if json:
        write_json(json, without_nan(facts))
    if report:
        from foils.data.store import write_text
        from foils.rating.tables import report_table
        from foils.selection.page import gap_report

        done = report_table(rated.report)
        write_text(report, gap_report(loaded, rated.negatives, split=split, rating=done, seed=seed))
        say(f"report: {report}")


def check_options(chosen: Mapping[str, Any], options: Mapping[str, object]) -> None:
    """Raise an InputError for options that these judges have no use for, before anything is read.

    Args:
        chosen: every parameter's value, by its name.
        options: those that were given, by name as typed.
    """
    specs = chosen["judge"] or ["bi-encoder"]
    kinds = {spec.partition(":")[0] for spec in specs}
    if kinds <= {"llm", "recorded"}:
        refuse(
            only(options, "--temperature"),
            "with --judge llm or recorded, which give preferences and no scores to divide; leave it out, or for a "
            "model's sampling give --llm-temperature",
        )
    if "llm" not in kinds:
        refuse(only(options, *options_of(QuestionOptions), *options_of(LLMOptions)), "without --judge llm; give it")
    if kinds == {"recorded"}:
        refuse(only(options, "--judgements"), "with --judge recorded, whose judgements are kept already; leave it out")
    if "--distil" not in options:
        refuse(only(options, *options_of(DistilOptions)), "without --distil FOLDER; give it")
    if not {"bi-encoder", "bi-encoder:"} & {*specs}:
        refuse(only(options, "--encoder"), "without --judge bi-encoder, whose model it names; leave one of them out")
    if kinds <= {*JUDGES} - {"bi-encoder"}:
        used = [*(opt.OF_CROSS_ENCODERS if "cross-encoder" in kinds else ()), "--ray"]
        used += ["--device"] if "pairwise" in kinds or "--distil" in options else []
        idle = only(options, *{*opt.EMBEDDING} - {*used})
        refuse(idle, f"with --judge {', '.join(sorted(kinds))}, which embeds no text; leave it out")


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
