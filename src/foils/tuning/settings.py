"""How a tuning is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from foils.runtime.options import Option, Settings

MEASURE = "nDCG@10"
MEASURES = (MEASURE, "RR@10", "R@100")
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
        seed: Seed of what is drawn and of training; the same seed gives the same bytes.
    """

    heading = "Tuning"

    minutes: Annotated[float | None, Option(above=0)] = None
    max_length: Annotated[int | None, Option(metavar="TOKENS", least=2)] = 128
    keep: Annotated[str, Option(metavar="COLLECTION")] = PYDOCS
    seed: Annotated[int, Option(least=0)] = 0
