"""Which negatives to look at, and what those that were looked at say of each source: `foils label`."""

from foils.labelling.drawing import Universe, pairs_of
from foils.labelling.errors import JudgeErrors
from foils.labelling.judging import RelevanceJudge
from foils.labelling.page import label_page
from foils.labelling.results import Labelled, SourceShare
from foils.labelling.sheet import Sheet
from foils.labelling.terminal import Dialogue

__all__ = [
    "Dialogue",
    "JudgeErrors",
    "Labelled",
    "RelevanceJudge",
    "Sheet",
    "SourceShare",
    "Universe",
    "label_page",
    "pairs_of",
]
