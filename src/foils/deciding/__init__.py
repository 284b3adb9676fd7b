"""Which negatives to train on: one decision, for every verb."""

from foils.deciding.benefit import Basis
from foils.deciding.decision import decide, score_and_decide
from foils.deciding.results import BeliefSettings, Candidate, Decision, TurningPoint

__all__ = ["Basis", "BeliefSettings", "Candidate", "Decision", "TurningPoint", "decide", "score_and_decide"]
