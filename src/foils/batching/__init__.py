"""Who meets whom in a batch: HOBIT, its rivals, and the hook that hands their batches to a trainer."""

from foils.batching.b3 import b3_batches, community_batches, rank_communities
from foils.batching.batches import Batches, joined, shuffled
from foils.batching.conflicts import Conflicts, find_conflicts, no_conflicts
from foils.batching.hobit import hobit_batches
from foils.batching.methods import METHODS, BatchChoice, BatchingMethod
from foils.batching.mixture import mixed_batches, same_source
from foils.batching.mutual import mutual_batches
from foils.batching.ngame import balanced_clusters, ngame_batches
from foils.batching.objective import (
    batch_hardness,
    greedy,
    hardness,
    marginal_gain,
    mean_hardness,
    query_gradient,
    smooth_hardness,
)
from foils.batching.repair import dealt, random_batches, random_order, repaired
from foils.batching.walks import proximity_graph, walks_batches

__all__ = [
    "METHODS",
    "BatchChoice",
    "Batches",
    "BatchingMethod",
    "Conflicts",
    "b3_batches",
    "balanced_clusters",
    "batch_hardness",
    "community_batches",
    "dealt",
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
    "repaired",
    "same_source",
    "shuffled",
    "smooth_hardness",
    "walks_batches",
]
