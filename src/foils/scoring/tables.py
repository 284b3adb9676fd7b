"""What a scoring shows: the ranking with what lies behind it, how certain it is, ablations, suspected negatives."""

from __future__ import annotations

from collections.abc import Sequence

from foils.runtime.results import Table, number
from foils.scoring.ablations import Ablations
from foils.scoring.audit import Suspect
from foils.scoring.certainty import Certainty
from foils.scoring.eci import MARGINS
from foils.scoring.results import Scores


def ranking_table(scores: Scores) -> Table:
    """Return the ranking, best first, with what lies behind it."""
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
    return Table("Sources of negatives by ECI_sem", columns, rows, caption="\n".join(notes))


def certainty_table(certainty: Certainty) -> Table:
    """Return how the ranking became certain, or did not."""
    rows = [
        (f"{look.records:,} records", f"{look.critical:.2f}", "; ".join(f"{a} / {b}" for a, b in look.undecided) or "–")
        for look in certainty.looks
    ]
    used, had = certainty.looks[-1].records, certainty.available
    verdict = "certain" if certainty.certain else "not certain"
    title = f"Ranking {verdict} at {100 * certainty.confidence:g} % with {used:,} of {had:,} records"
    return Table(title, ["look", "critical value", "not yet apart"], rows)


def ablation_tables(analyses: Ablations) -> list[Table]:
    """Return every ablation as a table."""
    tables = []
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
        tables.append(Table(f"ECI_sem by {table.name}", columns, rows))
    rows = [
        (f"{spectrum.name}, λ {key}", number(spectrum.score[key], 4), number(spectrum.trace[key], 4),
         f"{100 * spectrum.diversity[key]:.2f} %", number(spectrum.volume[key]), number(spectrum.effective_rank, 1))
        for spectrum in analyses.spectra
        for key in spectrum.score
    ]  # fmt: skip
    columns = ["", "score", "trace", "lost to repetition", "volume", "effective rank"]
    tables.append(Table("What λ does", columns, rows))
    rows = [
        (old.name, number(old.eci), number(old.arithmetic), number(old.hardest_3), number(old.per_query),
         number(old.by_list), number(old.by_list_arithmetic), number(old.by_list_hardest_3),
         f"{old.gradient_norm:,.0f}", number(old.variance, 4))
        for old in analyses.eci
    ]  # fmt: skip
    columns = ["", "ECI", "arithmetic", "3 hardest", "per query", "list", "list, arithmetic", "list, 3 hardest",
               "gradient norm", "variance"]  # fmt: skip
    return [*tables, Table("ECI and its rivals", columns, rows)]


def suspects_table(suspects: Sequence[Suspect]) -> Table:
    """Return the suspected false negatives."""
    rows = [
        (number(found.suspicion), found.query_id, found.doc_id or "–", "; ".join(found.reasons), found.text[:60])
        for found in suspects
    ]
    return Table("Suspected false negatives", ["suspicion", "query", "document", "why", "text"], rows)
