"""Vectors of texts by a sentence-transformers model in batches of tokens.

Texts are sorted by length and tokenised in windows, each text once; the texts of a window are sorted again, by their
tokens, and cut where a batch is full: little padding, and activations that stay in a processor's cache. Windows and
batches change speed, not vectors beyond rounding.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Floats = npt.NDArray[np.float32]


def pads_texts(model: SentenceTransformer) -> bool:
    """Tell whether a model makes padded batches of texts, so that they may be cut anew: a plain transformer."""
    first = model[0]
    return (
        type(first).__name__ == "Transformer"
        and not getattr(first, "can_flatten_inputs", False)
        and getattr(first, "query_expansion", None) is None
    )


def batched_vectors(
    model: SentenceTransformer,
    texts: Sequence[str],
    kind: str,
    prompt: str,
    *,
    dimension: int,
    size: int | None,
) -> Floats:
    """Return (n, d) vectors of texts in batches of tokens, on a processor one batch on each core at a time.

    Args:
        model: `pads_texts`.
        texts: (n,).
        kind: "query" or "document".
        prompt: put before each.
        dimension: d, of which the model may give more.
        size: texts of a batch; None: as many as its tokens allow (`tokens_on`).
    """
    import torch

    vectors = np.empty((len(texts), dimension), np.float32)
    device = model.device

    def forward(batch: Batch) -> None:
        rows, features = batch
        with torch.inference_mode():
            moved = {name: value.to(device) if hasattr(value, "to") else value for name, value in features.items()}
            out = model(moved, task=kind)["sentence_embedding"]
            vectors[rows] = out[:, :dimension].float().cpu().numpy()

    batches = token_batches(
        texts,
        lambda part: model.preprocess(part, prompt=prompt, task=kind),
        tokens=tokens_on(device.type),
        size=size,
    )
    model.eval()
    spread = device.type == "cpu" and _without_state(model)
    side_by_side(forward, batches, threads=torch.get_num_threads() if spread else 1)
    return vectors


def _without_state(model: SentenceTransformer) -> bool:
    """Tell whether several threads may run the model: none of its code is its own, no rotation grows with the text."""
    config: Any = model[0].auto_model.config
    rotations = str([getattr(config, name, None) for name in ("rope_parameters", "rope_scaling")])
    ours = type(model[0].auto_model).__module__.startswith("transformers.")
    return ours and "dynamic" not in rotations and "longrope" not in rotations


Rows = npt.NDArray[np.intp]
Features = Mapping[str, Any]
Batch = tuple[Rows, Features]  # rows of the texts, and their features
Preprocess = Callable[[list[str]], Features]

WINDOW = 1_024  # texts tokenised together; with more the share of padding falls no further
TOKENS = {"cpu": 1_024}  # of a batch, with padding, by type of device
ON_OTHERS = 16_384


def tokens_on(device: str) -> int:
    """Return how many tokens a batch holds on a type of device, as "cpu" or "cuda"."""
    return TOKENS.get(device, ON_OTHERS)


def token_batches(
    texts: Sequence[str], preprocess: Preprocess, *, tokens: int, size: int | None = None, window: int = WINDOW
) -> Iterator[Batch]:
    """Yield (rows, features) of batches that hold each text once, the longest texts first.

    Args:
        texts: (n,) of any lengths.
        preprocess: makes tensors of texts, `attention_mask` (B, L) among them, padded on either side.
        tokens: of a batch at most, padding counted, at least one text.
        size: texts of a batch, instead of tokens.
        window: texts tokenised, and sorted by their tokens, together.

    Yields:
        (b,) rows of `texts`, and their features, without columns that are padding in all of them.
    """
    order = np.argsort([-len(text) for text in texts], kind="stable")
    for start in range(0, len(order), window):
        rows = order[start : start + window]
        features = preprocess([texts[row] for row in rows])
        mask = features["attention_mask"]
        lengths = mask.sum(1).numpy()
        sorted_rows = np.argsort(-lengths, kind="stable")
        at = 0
        while at < len(sorted_rows):
            count = size or max(1, tokens // max(1, int(lengths[sorted_rows[at]])))
            chosen = sorted_rows[at : at + count]
            yield rows[chosen], _taken(features, mask, chosen)
            at += count


def _taken(features: Features, mask: Any, rows: Rows) -> Features:
    """These rows of the features, cut to the columns that one of them uses, at least one."""
    columns = mask[rows].bool().any(0)
    columns[0] |= not columns.any()
    return {
        name: value[rows][:, columns] if getattr(value, "shape", None) == mask.shape else value
        for name, value in features.items()
    }


def side_by_side(work: Callable[[Batch], None], batches: Iterator[Batch], *, threads: int) -> None:
    """Do the work of each batch: in as many threads of one core each, where there are as many batches.

    One batch on all cores waits for the slowest of them at every operation; batches side by side wait once, at the
    end. Fewer batches than threads are done one after the other, each on all cores.
    """
    ahead = list(islice(batches, threads)) if threads > 1 else []
    if len(ahead) < max(2, threads):
        for batch in chain(ahead, batches):
            work(batch)
        return
    import torch

    before, running = torch.get_num_threads(), deque[Future[None]]()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for batch in chain(ahead, batches):
                running.append(pool.submit(work, batch))
                if len(running) > 2 * threads:
                    running.popleft().result()
            for each in running:
                each.result()
    finally:
        torch.set_num_threads(before)  # the threads of the pool have set it to one
