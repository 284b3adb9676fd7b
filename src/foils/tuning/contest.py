"""Are the negatives that were decided on better than none? A training tells."""

from __future__ import annotations

from foils.tuning.plan import Plan
from foils.tuning.sections import pairs_alone
from foils.tuning.trials import Trainings, Trial, order


def contest(trainings: Trainings, best: Trial, plan: Plan, *, static: bool) -> tuple[Trainings, Trial, Trial]:
    """Make the best run on pairs alone, too; where that is better on dev, no mined negatives are trained on.

    What negatives are worth is foreseen before training, from the encoder as it is; this looks at a training.

    Args:
        trainings: on the negatives that were decided on.
        best: of the runs with them.
        plan: whose section [negatives] gets what was measured as a reason and, where pairs alone are better, no source.
        static: whether the model is a static embedding.

    Returns:
        The trainings and the run that are better, and the run on pairs alone. The model of the other one is removed.
    """
    section = plan["negatives"]
    alone = trainings.without_negatives(pairs_alone(section, "", static=static))
    trial = alone.run(best.learning_rate, best.epochs, best.queries)
    measured = f"{trial.dev:.4f} with in-batch negatives alone, {best.dev:.4f} with those of {best.source}"
    if order(trial) <= order(best):
        alone.forget([trial])
        plan.sections["negatives"] = {**section, "reason": f"{section['reason']} On dev it held: {measured}."}
        return trainings, best, trial
    trainings.forget([best])
    reason = f"{section['reason']} On dev it did not hold: {measured}."
    plan.sections["negatives"] = pairs_alone(section, reason, static=static)
    return alone, trial, trial
