"""The report of the experiments on a query's dimensions: which filter helps, how much is kept, from how deep a list."""

from __future__ import annotations

from foils.pages.page import Section, render_page
from foils.searching.figures import depth_curves, gains, moon_means, share_curves
from foils.searching.findings import Findings
from foils.searching.tables import (
    SIGNIFICANT,
    compared_table,
    depth_tables,
    example_table,
    half_against_dime,
    half_table,
    moon_table,
    share_table,
)


def findings_page(findings: Findings) -> str:
    """Return the report as HTML."""
    sections, measures = [], findings.measures
    if systems := findings.filters:
        figures = [gains(systems, measure, findings) for measure in measures]
        sections.append(Section("Filters", [*figures, compared_table("Filters", systems, findings)], _FILTERS))
    if findings.shares:
        curves = [share_curves(measure, findings) for measure in findings.shares]
        halves = [half_table(findings), half_against_dime(findings)]
        tables = [*(share_table(measure, findings) for measure in findings.shares), *halves]
        sections.append(Section("Share of dimensions kept", [*curves, *tables], _SHARES))
    if systems := findings.depths:
        figures = [depth_curves(measure, findings) for measure in findings.depth_shares]
        table = compared_table("Length of the feedback list", systems, findings)
        tables = [table, *depth_tables(findings)]
        sections.append(Section("Length of the feedback list", [*figures, *tables], _DEPTHS))
    if findings.moons:
        figures = [moon_means(measure, findings) for measure in measures]
        sections.append(Section("Moons drawn at random", [*figures, moon_table(findings)], _MOONS))
    if findings.examples is not None:
        sections.append(Section("Queries that Eclipse changes most", [example_table(findings)], _EXAMPLES))
    return render_page(
        "Search with the query's useful dimensions",
        subtitle=f"{findings.collection}, split {findings.split}: {findings.queries:,} queries · encoder "
        f"{findings.encoder}",
        verdict=_verdict(findings),
        sections=[*sections, Section("How to read this", (), _READING, folded=True)],
    )


def _verdict(findings: Findings) -> str:
    sentences = []
    fair = [system for system in findings.filters if system.kind != "oracle" and system is not findings.filters[0]]
    for measure in findings.measures if fair else ():
        best = max(fair, key=lambda system: system.means[measure])
        test = findings.comparisons.get((best.name, best.kind, measure))
        sure = test is not None and test.p_holm < SIGNIFICANT
        gain = best.means[measure] - findings.baseline.means[measure]
        if gain <= 0:
            sentences.append(
                f"{measure}: no filter beats keeping all dimensions ({findings.baseline.means[measure]:.4f})."
            )
        else:
            sentences.append(
                f"{measure}: {best.title} is best, {best.means[measure]:.4f} against "
                f"{findings.baseline.means[measure]:.4f} with all dimensions; the gain is "
                f"{'significant' if sure else 'not significant'}"
                + (f" ({_p(test.p_holm)} after Holm's correction)." if test is not None else ".")
            )
    return " ".join(sentences) or "Experiments on the dimensions that a query keeps."


def _p(value: float) -> str:
    return f"p {value:.3f}" if value >= 0.001 else "p < 0.001"


_FILTERS = (
    "PRF: the sun is made of the best documents of the first search. LLM: it is the vector of an answer text. "
    "RDIME, and selective, which leaves queries alone whose feedback is not trusted, have nothing to tune. DIME and "
    "Eclipse have, and come twice.",
)
_SHARES = (
    "At each share the other settings are chosen: on these very queries (oracle), or on other folds (honest). "
    "At share 1 nothing is left out.",
)
_DEPTHS = ("The moon comes from the end of the feedback list, so its length matters to Eclipse alone.",)
_MOONS = (
    "The moon's documents, drawn at random from the bottom of the feedback list instead of being its very last, with "
    "the settings that are best with the last.",
)
_EXAMPLES = ("What changes in a single query: the documents that DIME and Eclipse rank first.",)
_READING = (
    "honest: settings chosen by cross-validation over queries, and measured on the queries held out.",
    "oracle: settings chosen on the queries they are measured on, as published. Where the grid contains share 1, the "
    "oracle can never fall below the baseline, however useless the method.",
    "Documents are ranked again within those that the first search retrieved.",
)
