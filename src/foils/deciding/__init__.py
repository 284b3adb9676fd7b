"""Which negatives to train on: one decision, for every verb."""

from foils.deciding.decision import BeliefSettings, Candidate, Decision, Ground, Turn, decide

__all__ = ["BeliefSettings", "Candidate", "Decision", "Ground", "Turn", "decide"]
