"""The model's card: what the training says of itself, and what it was measured to gain."""

from __future__ import annotations

from foils.runtime.results import p_value, signed
from foils.tuning.results import Tuned


def with_proof(card: str, tuned: Tuned) -> str:
    """Return a card with the measures on test before and after, and the plan's decisions, at its end."""
    systems = tuned.evaluation.systems
    lines = [card.rstrip(), "", "## Measured with foils tune", "", tuned.sentence.partition(" The model is in")[0], ""]
    lines += ["| measure on test | before | after | difference | p |", "|---|---:|---:|---:|---:|"]
    for each in tuned.evaluation.comparisons:
        before, after = (system.means[each.measure] for system in systems)
        lines.append(
            f"| {each.measure} | {before:.4f} | {after:.4f} | {signed(each.difference, 4)} | {p_value(each.p)} |"
        )
    lines += ["", *(f"- {each}" for each in tuned.warnings)] if tuned.warnings else []
    lines += ["", "| decision | why |", "|---|---|"]
    lines += [f"| {name} | {_cell(section.get('reason', ''))} |" for name, section in tuned.plan.sections.items()]
    return "\n".join(lines) + "\n"


def _cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
