"""The few exchanges between training processes. With one process each of them does nothing."""

from __future__ import annotations

import os
from typing import Any

from foils.batching.hobit_c import EmbeddingCache


def rank_and_count() -> tuple[int, int]:
    """Return this process' number and how many there are (0 and 1 without torch.distributed)."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_initialized()):
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def processes_to_come() -> int:
    """Return how many processes train: those there are or, before they have met, those that torchrun has started."""
    return max(rank_and_count()[1], int(os.environ.get("WORLD_SIZE", "1")))


def broadcast(value: Any) -> Any:
    """Return process 0's value in every process."""
    rank, count = rank_and_count()
    if count == 1:
        return value
    import torch.distributed as dist

    box = [value if rank == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]


def share_cache(cache: EmbeddingCache) -> None:
    """Give every process the vectors that any of them has stored since the last call, block by block."""
    _, count = rank_and_count()
    parts = cache.fresh()
    if count == 1:
        for _ in parts:
            pass
        return
    import torch.distributed as dist

    while True:
        box: list[Any] = [None] * count
        dist.all_gather_object(box, next(parts, None))
        if all(part is None for part in box):
            break
        for part in box:
            if part is not None:
                cache.update(*part)
    for _ in cache.fresh():
        pass
