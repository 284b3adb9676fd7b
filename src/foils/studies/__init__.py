"""All of it, for several sources: does a score predict the training?"""

from foils.studies.analysis import analyse
from foils.studies.cells import Cell, read_cells
from foils.studies.predictors import PREDICTORS
from foils.studies.results import StudyAnalysis
from foils.studies.run import open_study, run_study
from foils.studies.settings import StudySettings

__all__ = [
    "PREDICTORS",
    "Cell",
    "StudyAnalysis",
    "StudySettings",
    "analyse",
    "open_study",
    "read_cells",
    "run_study",
]
