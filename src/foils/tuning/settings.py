"""How a tuning is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from foils.runtime.options import Option, Settings, numbers_of, refuse, spelled

MEASURE = "nDCG@10"
DIMENSIONS = partial(numbers_of, int, "matryoshka", "whole numbers with commas between, as 384,256,128")
MEASURES = (MEASURE, "RR@10", "R@100")
RERANKING = MEASURES[:2]  # of rerankers, which see the first documents alone
RERANK_DEPTH = 50
OF_RERANKERS = ("reranker", "first_stage", "rerank_depth", "score_with")
TRAINING_ARGS = "training_args"  # as foils train has it
OF_TRAINING = ("lora", "gradient_checkpointing")
OF_LOADING = ("trust_remote_code",)
BASE, FIRST_STAGE, TUNED = "base", "first stage", "tuned"  # names of the systems
PYDOCS, NONE = "pydocs", "none"  # what is kept unless another collection is named; no collection
LEVEL = 0.05
"""p below which a difference on test counts."""


@dataclass(frozen=True, kw_only=True)
class TuneSettings(Settings):
    """How much is tried.

    Attributes:
        minutes: Time that the tuning may take, about. Less time tries and trains less, and may measure on fewer
            documents. Default: as long as longer training is better on dev.
        max_length: Tokens after which a text is cut, in training and in all measures, of the model as it is too.
        keep: Another collection, which must not be forgotten: a part of it is measured before and after, and merges
            with the base's weights are tried, which are taken where they are at least as good on dev and keep more.
            none leaves this out.
        matryoshka: Dimensions at which vectors may be cut later, as 384,256,128: trained for, and measured before and
            after. In Python a tuple.
        lora: Rank of low-rank adapters (LoRA), which are trained in the place of the model's own weights, then merged
            into them: less memory for large models. Needs the extra lora.
        gradient_checkpointing: Compute activations again in the backward pass: less memory, more time.
        trust_remote_code: Run code that comes with the models.
        reranker: Tune a cross-encoder instead of an encoder; without a trained head, as from a masked language model,
            it is measured against the first stage.
        first_stage: What a reranker reranks: bm25, an encoder, or a TREC run of the queries of dev and test. Default:
            bm25.
        rerank_depth: Number of documents of each query that a reranker scores. Default: 50.
        score_with: Encoder that mines and decides between negatives of a reranker. Default: the first stage, or the
            word table of all-MiniLM-L6-v2.
        seed: Seed of what is drawn and of training; the same seed gives the same bytes.
    """

    heading = "Tuning"

    minutes: Annotated[float | None, Option(above=0)] = None
    max_length: Annotated[int | None, Option(metavar="TOKENS", least=2)] = 128
    keep: Annotated[str, Option(metavar="COLLECTION")] = PYDOCS
    matryoshka: Annotated[tuple[int, ...] | None, Option(parse=DIMENSIONS, metavar="DIMENSIONS", least=1)] = None
    lora: Annotated[int | None, Option(metavar="RANK", least=1)] = None
    gradient_checkpointing: Annotated[bool, Option(within=TRAINING_ARGS)] = False
    trust_remote_code: Annotated[bool, Option(within=TRAINING_ARGS)] = False
    reranker: bool = False
    first_stage: Annotated[str | None, Option(metavar="bm25|MODEL|RUN")] = None
    rerank_depth: Annotated[int | None, Option(least=10)] = None
    score_with: Annotated[str | None, Option(metavar="ENCODER")] = None
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.reranker:
            refuse({"matryoshka": self.matryoshka}, f"with {spelled('reranker')}, which has no vectors; leave it out")
        else:
            why = f"without {spelled('reranker')}: encoders search, and decide, by themselves; leave it out"
            refuse(self.changed(*OF_RERANKERS), why)


def some_of(given: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Return those of the named values of a plan's section [given] that are set: `OF_TRAINING`, or `OF_LOADING`."""
    return {name: given[name] for name in names if given.get(name)}
