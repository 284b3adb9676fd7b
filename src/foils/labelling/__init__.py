"""Which negatives to look at, and what those that were looked at say of each source: `foils label`."""

from foils.labelling.doors import JudgeErrors, Labelled, SourceShare
from foils.labelling.sheet import LabelSheet, PairPool, pairs_of

__all__ = [
    "JudgeErrors",
    "LabelSheet",
    "Labelled",
    "PairPool",
    "SourceShare",
    "pairs_of",
]
