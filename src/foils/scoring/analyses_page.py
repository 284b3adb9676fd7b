"""Sections of a scoring's report: its ablations, and the negatives that look like positives."""

from __future__ import annotations

from collections.abc import Sequence

from foils.pages.page import PALETTE, Example, Examples, Figure, Section, Table, label, shortened
from foils.scoring.ablations import Ablation, Ablations, Spectrum
from foils.scoring.audit import Suspect


def ablation_section(analyses: Ablations) -> Section:
    """Return every ablation as a plot and a table, folded."""
    blocks: list[Figure | Table] = []
    for table in analyses.tables:
        blocks += [_plot(table), _table(table)]
    blocks += [_lambda_plot(analyses.spectra), _lambda_table(analyses.spectra), _eci_table(analyses)]
    prose = (
        "Stability is the share of pairs, within sources and within hybrids, that keep the order of the base setting.",
        "λ: the smaller it is, the more a direction that many negatives share counts only once. At λ = 1 the score is "
        "nearly the mean weight; what repetition takes away is the diversity part.",
    )
    return Section("Ablations", blocks, prose, folded=True)


def audit_section(suspects: Sequence[Suspect]) -> Section:
    """Return the suspected false negatives, to be read."""
    examples = [
        Example(
            f"{found.query_id} · {found.doc_id or 'own text'} · suspicion {found.suspicion:.3f}",
            {
                "query": found.query,
                "positive": shortened(found.positive),
                "negative": shortened(found.text),
            },
            f"{'; '.join(found.reasons)} · in {', '.join(found.sources)} · cosine to the query {found.to_query:.3f}, "
            f"to its positives {found.to_positives:.3f}",
        )
        for found in suspects
    ]
    prose = ("Negatives that look most like positives nobody labelled. Read them before you train on them.",)
    return Section("Suspected false negatives", [Examples(f"{len(examples)} to read", examples)], prose)


def _plot(table: Ablation) -> Figure:
    settings = list(table.scores)
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": label(name),
            "x": [label(setting) for setting in settings],
            "y": [table.scores[setting][name] for setting in settings],
            "line": {"color": PALETTE[index % len(PALETTE)]},
        }
        for index, name in enumerate(table.scores[table.base])
    ]
    layout = {
        "xaxis": {"title": {"text": table.name}, "type": "category"},
        "yaxis": {"title": {"text": "ECI_sem"}, "type": "log" if table.name == "simplification" else "linear"},
    }
    return Figure(data, layout, f"ECI_sem by {table.name}; the base is {table.base}.", height=320)


def _table(table: Ablation) -> Table:
    names = list(table.scores[table.base])
    rows = [
        (
            setting,
            *(f"{of[name]:.4f}" for name in names),
            *(_or_dash(table.stability[setting][group]) for group in ("sources", "hybrids")),
        )
        for setting, of in table.scores.items()
    ]
    return Table("", [table.name, *names, "stability: sources", "hybrids"], rows, f"Base: {table.base}.")


def _lambda_plot(spectra: Sequence[Spectrum]) -> Figure:
    data = [
        {
            "type": "scatter",
            "mode": "lines+markers",
            "name": label(spectrum.name),
            "x": [float(key) for key in spectrum.diversity],
            "y": [100 * value if value == value else None for value in spectrum.diversity.values()],
            "line": {"color": PALETTE[index % len(PALETTE)]},
        }
        for index, spectrum in enumerate(spectra)
    ]
    layout = {
        "xaxis": {"title": {"text": "λ"}, "type": "log", "autorange": "reversed"},
        "yaxis": {"title": {"text": "% of the trace"}, "rangemode": "tozero"},
    }
    return Figure(data, layout, "What repeated directions take away from the score, by λ.", height=320)


def _lambda_table(spectra: Sequence[Spectrum]) -> Table:
    keys = list(spectra[0].score) if spectra else []
    rows = [
        (spectrum.name, f"{spectrum.effective_rank:.1f}", *(f"{spectrum.score[key]:.4f}" for key in keys))
        for spectrum in spectra
    ]
    return Table("", ["source", "effective rank", *(f"λ {key}" for key in keys)], rows, "log det(Id + I/λ).")


def _eci_table(analyses: Ablations) -> Table:
    rows = [
        (old.name, f"{old.eci:.3f}", f"{old.arithmetic:.3f}", f"{old.hardest_3:.3f}", f"{old.per_query:.3f}",
         f"{old.by_list:.3f}", f"{old.by_list_arithmetic:.3f}", f"{old.by_list_hardest_3:.3f}",
         f"{old.gradient_norm:,.0f}", f"{old.variance:.4f}")
        for old in analyses.eci
    ]  # fmt: skip
    columns = ["source", "ECI", "arithmetic mean", "3 hardest", "per query", "list", "list, arithmetic mean",
               "list, 3 hardest", "gradient norm", "score variance"]  # fmt: skip
    note = "ECI, its variants, with the margin of triplets and of lists, and the heuristics it was compared with."
    return Table("", columns, rows, note)


def _or_dash(value: float) -> str:
    return "–" if value != value else f"{value:.2f}"
