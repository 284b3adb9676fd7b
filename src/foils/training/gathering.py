"""The batch of all training processes: vectors and row numbers, gathered so that its loss is that of one process.

Each of W processes has b rows of a batch of B = W·b, in the order of the processes. A loss compares its own queries
with the documents of all. Gradients of the model are averaged over processes by torch, so each process's loss is
W/B times the sum over its own queries, and a document's gradient is the sum of what all processes say of it. With one
process nothing is exchanged. Needs torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.nn.functional import all_gather as gather_with_gradients

from foils.batching.vectors import rank_and_count
from foils.runtime.errors import InputError


def _summed(values: Tensor) -> Tensor:
    total = values.clone()
    dist.all_reduce(total)
    return total


@dataclass(frozen=True)
class Share:
    """Which rows of the whole batch this process has.

    Attributes:
        rows: b, of this process.
        rank, count: its number, and W.
    """

    rows: int
    rank: int = 0
    count: int = 1

    @classmethod
    def of(cls, rows: int, *, gather: bool) -> Share:
        """Return this process's share; without `gather` its rows are the whole batch.

        Raises:
            InputError: processes have different numbers of rows.
        """
        rank, count = rank_and_count()
        if not gather or count == 1:
            return cls(rows)
        sizes: list[Any] = [None] * count
        dist.all_gather_object(sizes, rows)
        if len(set(sizes)) > 1:
            raise InputError(
                f"the processes have {sizes} rows of a batch; the loss gathers shares of one size: give a batch size "
                "that the number of processes divides, and dataloader_drop_last=True"
            )
        return cls(rows, rank, count)

    @property
    def size(self) -> int:
        """B, rows of the whole batch."""
        return self.rows * self.count

    @property
    def begin(self) -> int:
        """Row of the whole batch that is this process's first."""
        return self.rows * self.rank

    def gathered(self, own: Tensor) -> Tensor:
        """Return all processes' rows, (B, …) of (b, …); gradients of the own ones come from all processes."""
        return own if self.count == 1 else torch.cat(gather_with_gradients(own))

    def own_of(self, gradients: Tensor) -> Tensor:
        """Return ((1 + k)·b, …) the sum over processes of the own documents' gradients, of those of all documents."""
        if self.count == 1:
            return gradients
        total = _summed(gradients).unflatten(0, (-1, self.count, self.rows))
        return total[:, self.rank].flatten(0, 1)

    def averaged(self, losses: Tensor) -> Tensor:
        """Return losses with the value of their mean over processes, and the gradient of the own ones."""
        if self.count == 1:
            return losses
        return losses + (_summed(losses.detach()) / self.count - losses.detach())

    def norm(self, queries: Tensor | None, documents: Tensor | None) -> Tensor:
        """Return the length of a loss's gradient with respect to the whole batch's vectors, taken as one vector.

        Args:
            queries: (b, d) the own loss's gradient of the own queries; None counts as zeros.
            documents: ((1 + k)·B, d) its gradient of all documents.
        """
        squares = torch.zeros(()) if queries is None else queries.square().sum() / self.count**2
        if self.count > 1:
            squares = _summed(squares)
            documents = None if documents is None else _summed(documents) / self.count
        return torch.sqrt(squares if documents is None else squares.to(documents) + documents.square().sum())


def average_gradients(parameters: Sequence[Tensor]) -> None:
    """Replace the gradients of parameters that torch does not share by their mean over processes."""
    _, count = rank_and_count()
    for parameter in parameters if count > 1 else ():
        if parameter.grad is not None:
            parameter.grad = _summed(parameter.grad) / count
