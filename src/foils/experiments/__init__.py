"""Experiments: tune a model and prove it, and study whether a score predicts the training."""

from foils.experiments.analysis import StudyAnalysis, analyse
from foils.experiments.study import PREDICTORS, Cell, StudySettings, open_study, read_cells, run_cells

__all__ = ["PREDICTORS", "Cell", "StudyAnalysis", "StudySettings", "analyse", "open_study", "read_cells", "run_cells"]
