"""What a distilled judge learns from: triples in both orders, or differences of two scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from foils.rating.candidates import Candidates
from foils.rating.pairs import Floats, Pairs
from foils.rating.pairwise import Triples, texts_of
from foils.runtime.errors import require

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder


def examples(candidates: Candidates, pairs: Pairs, w: Floats, triples: Triples) -> Dataset:
    """Return both orders of each judged pair, with labels w and 1 − w, as a data set to train on.

    It holds numbers of candidates; texts are looked up when a batch is read.
    """

    def looked_up(batch: dict[str, Any]) -> dict[str, Any]:
        texts = triples.of(*texts_of(candidates, np.array(batch["first"]), np.array(batch["second"])))
        return {"query": [q for q, _ in texts], "documents": [d for _, d in texts], "label": batch["label"]}

    first, second = np.append(pairs.first, pairs.second), np.append(pairs.second, pairs.first)
    columns = {"first": first, "second": second, "label": np.append(w, 1 - w)}
    return require("datasets", "train").Dataset(pa.table(columns)).with_transform(looked_up)


def differences(candidates: Candidates, pairs: Pairs, w: Floats) -> Dataset:
    """Return each judged pair once, with label w, as a data set to train on; texts as `examples` looks them up."""

    def looked_up(batch: dict[str, Any]) -> dict[str, Any]:
        queries, first, second = texts_of(candidates, np.array(batch["first"]), np.array(batch["second"]))
        return {"query": queries, "first": first, "second": second, "label": batch["label"]}

    columns = {"first": pairs.first, "second": pairs.second, "label": w}
    return require("datasets", "train").Dataset(pa.table(columns)).with_transform(looked_up)


def difference_loss(model: CrossEncoder) -> Any:
    """Return the loss −w log σ(s_i − s_j) − (1 − w) log(1 − σ(s_i − s_j)), s the model's logits, as a module.

    Source: Burges et al. 2005 (RankNet), with soft labels; Bradley–Terry (ANMI 2.0 eq. 22) with scores for ratings.
    """
    import torch

    class DifferenceLoss(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(
            self,
            inputs: Sequence[Sequence[str]],
            labels: torch.Tensor,
            prompt: str | None = None,
            task: str | None = None,
        ) -> torch.Tensor:
            queries, first, second = inputs
            pairs = list(zip([*queries, *queries], [*first, *second], strict=True))
            tokens = self.model.preprocess(pairs, prompt=prompt, task=task)
            tokens = {k: v.to(model.device) if isinstance(v, torch.Tensor) else v for k, v in tokens.items()}
            one, other = self.model(tokens)["scores"].view(2, -1).float()
            return torch.nn.functional.binary_cross_entropy_with_logits(one - other, labels.to(one))

    return DifferenceLoss()
