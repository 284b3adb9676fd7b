"""Who meets whom in a batch: HOBIT, its rivals, and the hook that hands their batches to a trainer."""

from foils.batching.batches import Batches, shuffled
from foils.batching.conflicts import (
    Conflicts,
    find_conflicts,
    no_conflicts,
    random_batches,
    random_order,
    separate_conflicts,
    swap_conflicts,
)
from foils.batching.hobit import hobit_batches, mutual_batches
from foils.batching.methods import METHODS, BatchChoice, BatchingMethod
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
from foils.batching.rivals import (
    b3_batches,
    balanced_clusters,
    batchsampler_batches,
    joined,
    ngame_batches,
    proximity_graph,
    rank_communities,
)

__all__ = [
    "METHODS",
    "BatchChoice",
    "Batches",
    "BatchingMethod",
    "Conflicts",
    "b3_batches",
    "balanced_clusters",
    "batch_hardness",
    "batchsampler_batches",
    "find_conflicts",
    "greedy",
    "hardness",
    "hobit_batches",
    "joined",
    "marginal_gain",
    "mean_hardness",
    "mixed_batches",
    "mutual_batches",
    "ngame_batches",
    "no_conflicts",
    "proximity_graph",
    "query_gradient",
    "random_batches",
    "random_order",
    "rank_communities",
    "separate_conflicts",
    "shuffled",
    "smooth_hardness",
    "swap_conflicts",
]
