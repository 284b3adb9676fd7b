"""What flows: collections, negatives, runs, and the files they live in."""

from foils.data.collection import Collection
from foils.data.labels import Labels
from foils.data.negatives import Negatives
from foils.data.pair_index import Positives
from foils.data.read import load_collection
from foils.data.recapture import Recapture
from foils.data.run import Run

__all__ = ["Collection", "Labels", "Negatives", "Positives", "Recapture", "Run", "load_collection"]
