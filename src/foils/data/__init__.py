"""What flows: collections, negatives, runs, and the files they live in."""

from foils.data.collection import Collection, Positives
from foils.data.labels import Labels
from foils.data.negatives import Negatives, Recapture
from foils.data.read import load_collection
from foils.data.run import Run

__all__ = ["Collection", "Labels", "Negatives", "Positives", "Recapture", "Run", "load_collection"]
