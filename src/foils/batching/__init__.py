"""Who meets whom in a batch: HOBIT, its rivals, and the hook that hands their batches to a trainer."""

from foils.batching.batches import Batches
from foils.batching.conflicts import Conflicts, find_conflicts, no_conflicts, random_order
from foils.batching.hobit import hobit_batches, mutual_batches
from foils.batching.methods import METHODS
from foils.batching.multi_dataset import mixed_batches
from foils.batching.objective import (
    batch_hardness,
    greedy,
    hardness,
    marginal_gain,
    mean_hardness,
    query_gradient,
    smooth_hardness,
)
from foils.batching.rivals import b3_batches, batchsampler_batches, ngame_batches

__all__ = [
    "METHODS",
    "Batches",
    "Conflicts",
    "b3_batches",
    "batch_hardness",
    "batchsampler_batches",
    "find_conflicts",
    "greedy",
    "hardness",
    "hobit_batches",
    "marginal_gain",
    "mean_hardness",
    "mixed_batches",
    "mutual_batches",
    "ngame_batches",
    "no_conflicts",
    "query_gradient",
    "random_order",
    "smooth_hardness",
]
