"""foils score: which source of negatives to train on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foils.cli import options as opt
from foils.cli.show import number, say, show_table

if TYPE_CHECKING:
    from foils.score import Scores


@opt.takes_encoder
def score(
    collection: opt.CollectionName,
    source: opt.SourceNames,
    hybrids: Annotated[int, typer.Option(min=1, help="Score unions of up to so many sources; 1: none.")] = 2,
    temperature: Annotated[float, typer.Option(help="Divides similarities; 0.05 is 1/20, MNRL's scale.")] = 0.05,
    regularization: Annotated[
        float, typer.Option("--lambda", help="Of log det(Id + I/λ); the smaller, the more diversity counts.")
    ] = 1.0,
    sample: Annotated[int | None, typer.Option(min=1, help="Score a seeded sample of so many records.")] = None,
    split: opt.Split = "train",
    tokenizer: Annotated[
        str, typer.Option(help="Of the lexical coverage: alphanumeric, alphanumeric-2, whitespace, trigrams.")
    ] = "alphanumeric",
    idf: Annotated[
        str, typer.Option(help="Texts that idf is counted over: pooled, collection, pooled+queries, uniform.")
    ] = "pooled",
    control: Annotated[
        bool, typer.Option(help="Score random negatives beside the sources; what scores like them is easy.")
    ] = True,
    replicates: Annotated[int, typer.Option(min=0, help="Of the bootstrap over blocks of records.")] = 1000,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    seed: opt.Seed = 0,
    encoding: opt.EncoderOptions = opt.DEFAULTS,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page.")] = None,
    json: opt.Json = None,
) -> None:
    """Rank sources of negatives by ECI_sem, before any training, with the encoder that training starts from.

    Use the prompts and the maximum length of the training. Each source also shows what lies behind its score.

    Example: foils score scifact/ bm25.parquet dense.parquet llm=negatives.jsonl --report page.html --json scores.json
    """
    from foils.data import load_collection
    from foils.data.sources import read_sources
    from foils.data.store import write_json
    from foils.score import ScoreSettings, score_sources

    settings = ScoreSettings(
        split=split,
        hybrids=hybrids,
        temperature=temperature,
        regularization=regularization,
        sample=sample,
        tokenizer=tokenizer,
        idf_corpus=idf,
        control=control,
        replicates=replicates,
        confidence=confidence,
        seed=seed,
    )
    loaded = load_collection(collection)
    sources = {found.name: found.negatives for found in read_sources(source, loaded)}
    scores = score_sources(loaded, sources, *encoding.open(loaded), settings)
    show_scores(scores)
    if json:
        write_json(json, scores.to_json())
    if report:
        from foils.report import write_score_report

        write_score_report(report, scores)
        say(f"report: {report}")


def show_scores(scores: Scores) -> None:
    """Print the ranking, best first, with what lies behind it."""
    by_name = {found.name: found for found in scores.sources}
    rows = [
        (
            found.name,
            number(found.eci_sem, 4),
            f"{number(found.eci_sem_low, 4)}–{number(found.eci_sem_high, 4)}",
            number(found.control_ratio, 2),
            number(found.rho),
            number(found.eta),
            number(found.psi),
            f"{100 * found.inversion_rate:.1f} %",
            number(found.mnrl_proxy),
            number(found.eci),
            f"{found.negatives:,}",
            "easy" if found.easy else "",
        )
        for found in [*(by_name[name] for name in scores.ranking), *([scores.control] if scores.control else [])]
    ]
    confidence = f"{100 * scores.settings.confidence:g} % interval"
    columns = ["source", "ECI_sem", confidence, "÷ control", "ρ", "η", "ψ", "inverted", "MNRL", "ECI", "negatives", ""]
    notes = [
        f"{len(scores.measured.records):,} records of {scores.collection['name']} ({scores.settings.split}), "
        f"{scores.encoder['name']}, τ {scores.settings.temperature:g}, λ {scores.settings.regularization:g}"
    ]
    if any(found.easy for found in scores.sources):
        notes.append("easy: not clearly below random negatives, so its score speaks of easiness, not of quality")
    for found in scores.sources:
        if found.dropped:
            notes.append(f"{found.name}: left out " + ", ".join(f"{n:,} {why}" for why, n in found.dropped.items()))
    show_table("Sources of negatives by ECI_sem", columns, rows, caption="\n".join(notes))
