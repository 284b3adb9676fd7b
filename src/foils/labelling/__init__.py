"""Which negatives to look at, and what those that were looked at say of each source: `foils label`."""

from foils.labelling.dialogue import Dialogue, label_page
from foils.labelling.doors import Labelled, SourceShare
from foils.labelling.judging import JudgeErrors, RelevanceJudge
from foils.labelling.sheet import LabelSheet, PairPool, pairs_of

__all__ = [
    "Dialogue",
    "JudgeErrors",
    "LabelSheet",
    "Labelled",
    "PairPool",
    "RelevanceJudge",
    "SourceShare",
    "label_page",
    "pairs_of",
]
