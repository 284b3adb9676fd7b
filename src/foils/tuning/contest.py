"""Are the negatives that were decided on better than none, or than others? A training tells."""

from __future__ import annotations

from foils.tuning.plan import Plan, Section
from foils.tuning.trials import Trainings, Trial, order


def contest(trainings: Trainings, others: Trainings, best: Trial, plan: Plan) -> tuple[Trainings, Trial, Trial]:
    """Make the best run with a rival's negatives, or without any, too; take the better of both on dev.

    What negatives are worth is foreseen before training, from the encoder as it is; this looks at a training.

    Args:
        trainings: on the negatives that were decided on.
        others: on the rival's, or on pairs alone.
        best: of the runs with the decided ones.
        plan: whose section [negatives] gets what was measured as a reason and, where the rival is better, its rows.

    Returns:
        The trainings and the run that are better, and the rival's run. The model of the other one is removed.
    """
    section = plan["negatives"]
    trial = others.run(best.learning_rate, best.epochs, best.queries)
    measured = f"{trial.dev:.4f} {with_negatives(others.rows)}, {best.dev:.4f} with those of {best.source}"
    if order(trial) <= order(best):
        others.forget([trial])
        plan.sections["negatives"] = {**section, "reason": f"{section['reason']} On dev it held: {measured}."}
        return trainings, best, trial
    trainings.forget([best])
    parts = [section["reason"], f"On dev it did not hold: {measured}.", others.rows["reason"]]
    plan.sections["negatives"] = {**others.rows, "reason": " ".join(filter(None, parts))}
    return others, trial, trial


def with_negatives(rows: Section) -> str:
    """Return what is trained on, in words."""
    return f"with those of {rows['source']}" if rows["source"] else "with in-batch negatives alone"
