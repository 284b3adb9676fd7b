"""foils score: which source of negatives to train on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foils.cli import options as opt
from foils.cli.groups import takes
from foils.cli.show import number, say, show_table

if TYPE_CHECKING:
    from foils.score import Ablations, Certainty, Scores, Suspect


@dataclass(frozen=True)
class ScoringOptions:
    """How sources are scored, as `foils.score.ScoreSettings` names it."""

    hybrids: Annotated[int, typer.Option(min=1, help="Score unions of up to so many sources; 1: none.")] = 2
    temperature: Annotated[float, typer.Option(help="Divides similarities; 0.05 is 1/20, MNRL's scale.")] = 0.05
    regularization: Annotated[
        float, typer.Option("--lambda", help="Of log det(Id + I/λ); the smaller, the more diversity counts.")
    ] = 1.0
    sample: Annotated[
        int | None, typer.Option(min=1, help="Score a seeded sample of records, those that every source covers first.")
    ] = None
    shared: Annotated[bool, typer.Option("--shared", help="Score only the records that every source covers.")] = False
    split: opt.Split = "train"
    tokenizer: Annotated[
        str, typer.Option(help="Of the lexical coverage: alphanumeric, alphanumeric-2, whitespace, trigrams.")
    ] = "alphanumeric"
    idf_corpus: Annotated[
        str, typer.Option("--idf", help="Texts that idf is counted over: pooled, collection, pooled+queries, uniform.")
    ] = "pooled"
    control: Annotated[
        bool, typer.Option(help="Score random negatives beside the sources; what scores like them is easy.")
    ] = True
    replicates: Annotated[
        int, typer.Option(min=0, help="Replicates of the bootstrap over blocks of records; 0: no intervals.")
    ] = 1000
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95


@takes(ScoringOptions, "scoring")
@takes(opt.EncoderOptions, "encoding")
def score(
    collection: opt.CollectionName,
    source: opt.SourceNames,
    *,
    scoring: ScoringOptions,
    seed: opt.Seed = 0,
    encoding: opt.EncoderOptions,
    until: Annotated[
        float | None,
        typer.Option(help="Score growing samples until the ranking is certain at this confidence, as 0.95."),
    ] = None,
    ablations: Annotated[
        bool, typer.Option("--ablations", help="Also under other weights, samples, τ, tokenizers, idf corpora and λ.")
    ] = False,
    audit: Annotated[
        int, typer.Option(min=0, help="List so many negatives that look most like unlabelled positives.")
    ] = 0,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help="Write an HTML page.")] = None,
    keep_identical_ids: opt.KeepIdenticalIds = False,
    json: opt.Json = None,
) -> None:
    """Rank sources of negatives by ECI_sem, before any training, with the encoder that training starts from.

    Use the prompts and the maximum length of the training. Each source also shows what lies behind its score.

    Example: foils score scifact/ bm25.parquet dense.parquet llm=negatives.jsonl --report page.html --json scores.json
    """
    from foils.data import load_collection
    from foils.data.sources import read_sources
    from foils.data.store import without_nan, write_json
    from foils.score import ScoreSettings, ablate, score_sources, score_until
    from foils.score import audit as find_suspects

    settings = ScoreSettings(**vars(scoring), seed=seed)
    loaded = load_collection(collection, keep_identical_ids=keep_identical_ids)
    sources = {found.name: found.negatives for found in read_sources(source, loaded)}
    result: dict[str, object] = {}
    if until is None:
        scores = score_sources(loaded, sources, *encoding.open(loaded), settings)
    else:
        certainty = score_until(loaded, sources, *encoding.open(loaded), settings, confidence=until)
        scores, result["certainty"] = certainty.scores, certainty.to_json()
        show_certainty(certainty)
    show_scores(scores)
    analyses = ablate(scores) if ablations else None
    suspects = find_suspects(scores, sources, top=audit) if audit else []
    if analyses:
        show_ablations(analyses)
        result["ablations"] = analyses.to_json()
    if suspects:
        show_suspects(suspects)
        result["audit"] = [suspect.to_json() for suspect in suspects]
    if json:
        write_json(json, {**scores.to_json(), **without_nan(result)})
    if report:
        from foils.report import write_score_report

        write_score_report(report, scores, analyses, suspects)
        say(f"report: {report}")


def show_scores(scores: Scores) -> None:
    """Print the ranking, best first, with what lies behind it."""
    from foils.score.eci import MARGINS

    by_name = {found.name: found for found in scores.sources}
    rows = [
        (
            found.name,
            number(found.eci_sem, 4),
            found.interval_text(),
            number(found.control_ratio, 2),
            number(found.rho),
            number(found.eta),
            number(found.psi),
            f"{100 * found.inversion_rate:.1f} %",
            number(found.mnrl_proxy),
            number(found.eci),
            number(found.eci_list),
            f"{found.records:,}",
            f"{found.negatives:,}",
            "easy" if found.easy else "",
        )
        for found in [*(by_name[name] for name in scores.ranking), *([scores.control] if scores.control else [])]
    ]
    confidence = f"{100 * scores.settings.confidence:g} % interval"
    columns = ["source", "ECI_sem", confidence, "÷ control", "ρ", "η", "ψ", "inverted", "MNRL", "ECI", "ECI, list",
               "records", "negatives", ""]  # fmt: skip
    notes = [
        f"{len(scores.measured.records):,} records of {scores.collection['name']} ({scores.settings.split}), "
        f"{scores.encoder['name']}, τ {scores.settings.temperature:g}, λ {scores.settings.regularization:g}",
        f"the margin of ECI: {MARGINS['triplet']}; of ECI, list: {MARGINS['list']}",
    ]
    if any(found.easy for found in scores.sources):
        notes.append("easy: not clearly below random negatives, so its score speaks of easiness, not of quality")
    notes += scores.warnings
    for found in scores.sources:
        if found.dropped:
            notes.append(f"{found.name}: left out " + ", ".join(f"{n:,} {why}" for why, n in found.dropped.items()))
    show_table("Sources of negatives by ECI_sem", columns, rows, caption="\n".join(notes))


def show_certainty(certainty: Certainty) -> None:
    """Print how the ranking became certain, or did not."""
    rows = [
        (f"{look.records:,} records", f"{look.critical:.2f}", "; ".join(f"{a} / {b}" for a, b in look.undecided) or "–")
        for look in certainty.looks
    ]
    used, had = certainty.looks[-1].records, certainty.available
    verdict = "certain" if certainty.certain else "not certain"
    title = f"Ranking {verdict} at {100 * certainty.confidence:g} % with {used:,} of {had:,} records"
    show_table(title, ["look", "critical value", "not yet apart"], rows)


def show_ablations(analyses: Ablations) -> None:
    """Print every ablation as a table."""
    for table in analyses.tables:
        names = list(table.scores[table.base])
        rows = [
            (
                f"{setting} (base)" if setting == table.base else setting,
                *(number(of[name], 4) for name in names),
                *(number(table.stability[setting][group], 2) for group in ("sources", "hybrids")),
            )
            for setting, of in table.scores.items()
        ]
        columns = [table.name, *names, "stability: sources", "hybrids"]
        show_table(f"ECI_sem by {table.name}", columns, rows)
    rows = [
        (f"{spectrum.name}, λ {key}", number(spectrum.score[key], 4), number(spectrum.trace[key], 4),
         f"{100 * spectrum.diversity[key]:.2f} %", number(spectrum.volume[key]), number(spectrum.effective_rank, 1))
        for spectrum in analyses.spectra
        for key in spectrum.score
    ]  # fmt: skip
    show_table("What λ does", ["", "score", "trace", "lost to repetition", "volume", "effective rank"], rows)
    rows = [
        (old.name, number(old.eci), number(old.arithmetic), number(old.hardest_3), number(old.per_query),
         number(old.by_list), number(old.by_list_arithmetic), number(old.by_list_hardest_3),
         f"{old.gradient_norm:,.0f}", number(old.variance, 4))
        for old in analyses.eci
    ]  # fmt: skip
    columns = ["", "ECI", "arithmetic", "3 hardest", "per query", "list", "list, arithmetic", "list, 3 hardest",
               "gradient norm", "variance"]  # fmt: skip
    show_table("ECI and its rivals", columns, rows)


def show_suspects(suspects: list[Suspect]) -> None:
    """Print the suspected false negatives."""
    rows = [
        (number(found.suspicion), found.query_id, found.doc_id or "–", "; ".join(found.reasons), found.text[:60])
        for found in suspects
    ]
    show_table("Suspected false negatives", ["suspicion", "query", "document", "why", "text"], rows)
