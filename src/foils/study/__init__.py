"""All of it, for several sources: does a score predict the training?"""

from foils.study.analysis import StudyAnalysis, analyse
from foils.study.benefit import Recapture
from foils.study.cells import Cell, read_cells
from foils.study.measuring import encoder_score, measure_encoder, reranker_score
from foils.study.page import write_study_report
from foils.study.predictors import PREDICTORS
from foils.study.run import open_study, run_study
from foils.study.settings import StudySettings
from foils.study.training import train_encoder
from foils.study.unlabelled import estimate_unlabelled

__all__ = [
    "PREDICTORS",
    "Cell",
    "Recapture",
    "StudyAnalysis",
    "StudySettings",
    "analyse",
    "encoder_score",
    "estimate_unlabelled",
    "measure_encoder",
    "open_study",
    "read_cells",
    "reranker_score",
    "run_study",
    "train_encoder",
    "write_study_report",
]
