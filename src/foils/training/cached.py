"""The contrastive losses in small memory: GradCache around the same pure loss (Gao et al. 2021).

(1) Embed the batch in pieces, without gradients. (2) Compute the loss in blocks of queries, its gradients up to the
embeddings and the loss's own parameters. (3) In the backward pass, embed each piece again and pass its gradients on.
Steps 1 and 3 are sentence-transformers'; step 2 is here. Needs torch and sentence-transformers.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from sentence_transformers.base.losses.gradcache import CachedLossMixin, has_static_embedding_input
from torch import Tensor

from foils.runtime.errors import InputError
from foils.training.gathering import Share
from foils.training.losses import Batch, ContrastiveLoss


class CachedContrastiveLoss(CachedLossMixin, ContrastiveLoss):  # type: ignore[misc]
    """`ContrastiveLoss` with memory for `mini_batch_size` texts' activations, whatever the batch size.

    Same value and gradients as `ContrastiveLoss` beyond rounding, at about a fifth more time.

    Args:
        model: a SentenceTransformer with a transformer (a static embedding cannot be cut into pieces, and need not be).
        mini_batch_size: texts embedded at once, and queries in a block of the loss.
        settings: of `ContrastiveLoss`.

    Raises:
        InputError: a size below 1, a static embedding, or what `ContrastiveLoss` refuses.
    """

    def __init__(self, model: Any, *, mini_batch_size: int = 32, **settings: Any) -> None:
        if mini_batch_size < 1:
            raise InputError(f"mini-batches of {mini_batch_size}; expected at least 1 text")
        if has_static_embedding_input(model):
            raise InputError("a static embedding cannot be embedded in pieces; use the loss without a mini-batch size")
        super().__init__(model, **settings)
        self.mini_batch_size = mini_batch_size
        self._own_gradients: list[Tensor | None] = []

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Return the loss of a batch, as `ContrastiveLoss.forward`; its gradients follow in the backward pass."""
        loss = self.forward_cached(list(sentence_features), labels)
        if torch.is_grad_enabled():
            own = list(zip(self.own_parameters(), self._own_gradients, strict=True))

            def pass_on(scale: Tensor) -> None:
                for parameter, gradient in own:
                    if gradient is not None:
                        share = (gradient * scale).to(parameter)
                        parameter.grad = share if parameter.grad is None else parameter.grad + share

            loss.register_hook(pass_on)
        return loss

    def calculate_loss(
        self, reps: list[list[Tensor]], labels: Tensor | None = None, *, with_backward: bool = False
    ) -> Tensor:
        """Return the loss of embeddings in pieces; with `with_backward`, leave each piece's gradient in its `grad`."""
        share = Share.of(sum(map(len, reps[0])), gather=with_backward)
        facts = self.facts_of([column[0] for column in reps], labels, share)
        with torch.autocast(reps[0][0].device.type, enabled=False):
            queries, *columns = (self.compared(torch.cat(column)) for column in reps)
            documents = share.columns([column.detach() for column in columns])
            batch = self.batch_of(queries, documents, facts, share)
            if not with_backward:
                sums = [self.sums(queries[a:b], documents, a, b, batch) for a, b in self._blocks(len(queries))]
                losses = torch.stack(sums).sum(0)
                return self.total(losses / self.counts(len(queries), batch).to(losses), None)
            loss, (of_queries, of_documents) = self._gradients(queries, documents, batch, share)
            torch.autograd.backward((queries, torch.cat(columns)), (of_queries, share.own_of(of_documents)))
            return loss

    def _blocks(self, size: int) -> list[tuple[int, int]]:
        return [(begin, min(begin + self.mini_batch_size, size)) for begin in range(0, size, self.mini_batch_size)]

    def _gradients(
        self, queries: Tensor, documents: Tensor, batch: Batch, share: Share
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Step 2: gradients of each mean loss by itself, then of what they are mixed to.

        Returns:
            the loss, and its gradients of the own queries and of all documents.
        """
        own = self.own_parameters()
        leaf = documents.detach().requires_grad_()
        sums: Tensor | None = None
        per_loss: list[list[Tensor]] = []
        for begin, end in self._blocks(len(queries)):
            block = queries[begin:end].detach().requires_grad_()
            part = self.sums(block, leaf, share.begin + begin, share.begin + end, batch)
            if sums is None:
                sums = torch.zeros_like(part.detach())
                per_loss = [[torch.zeros_like(t) for t in (queries, leaf, *own)] for _ in part]
            sums += part.detach()
            for index, (loss, gradients) in enumerate(zip(part, per_loss, strict=True)):
                more = index < len(part) - 1
                new = torch.autograd.grad(loss, (block, leaf, *own), retain_graph=more, allow_unused=True)
                _add([gradients[0][begin:end], *gradients[1:]], new)
        if sums is None:
            raise InputError("an empty batch has no loss")
        means = self.counts(share.size, batch).to(sums) / share.count
        per_loss = [
            [gradient / mean for gradient in gradients] for gradients, mean in zip(per_loss, means, strict=True)
        ]
        norms = torch.stack([share.norm(*gradients[:2]) for gradients in per_loss])
        losses = share.averaged(sums / means).requires_grad_()
        loss = self.total(losses, norms)
        shares, *mixed = torch.autograd.grad(loss, (losses, *own), allow_unused=True)
        of_queries, of_documents, *joined = (
            sum(weight * g for weight, g in zip(shares, of, strict=True)) for of in zip(*per_loss, strict=True)
        )
        _add(joined, mixed)
        self._own_gradients = joined
        return loss.detach(), (of_queries, of_documents)


def _add(to: Sequence[Tensor], gradients: Sequence[Tensor | None]) -> None:
    for total, gradient in zip(to, gradients, strict=True):
        if gradient is not None:
            total += gradient
