"""What a tuning would do, and what that costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foils.runtime.results import Result, Table
from foils.tuning.plan import Plan


@dataclass(frozen=True)
class Explained(Result):
    """What a tuning would do.

    Attributes:
        plan: the decisions that can be made before anything runs.
        seconds: that it takes, about.
    """

    plan: Plan
    seconds: float

    def tables(self) -> list[Table]:
        """Return the plan, and what it costs."""
        later = "What is decided on the way: the negatives (by foils score), learning rate and epochs (on dev)."
        table = self.plan.table()
        return [Table(table.title, table.columns, table.rows, f"{later}\n{cost_sentence(self.seconds)}")]

    def to_json(self) -> dict[str, Any]:
        """Return the plan and the seconds."""
        return {"plan": self.plan.sections, "seconds": self.seconds}


def cost_sentence(seconds: float) -> str:
    """Return an estimate in words."""
    shown = f"{seconds:.0f} seconds" if seconds < 90 else f"{seconds / 60:.0f} minutes"
    return (
        f"It takes about {shown} on this machine, measured on a few texts and training steps; half or twice is usual."
    )
