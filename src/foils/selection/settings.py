"""What negatives are selected by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from foils.data.resolve import SourcesLike
from foils.runtime.keyed import parsed_settings
from foils.runtime.options import Option, Settings
from foils.scoring.gates import WEIGHTINGS
from foils.selection.stage import RULES

COMPOSITION = "composition"


@dataclass(frozen=True, kw_only=True)
class RuleSettings(Settings):
    """What negatives are selected by.

    Attributes:
        by: How negatives are selected: by a rule on their ratings, or by composition, which takes from several sources
            the negatives that together are most informative.
        settings: A setting of the rule, as margin=0.1; may be given several times. In Python a dictionary.
    """

    by: Annotated[str, Option(names=(*RULES, COMPOSITION))] = "table"
    settings: Annotated[
        Mapping[str, Any] | None, Option(flag="--set", metavar="NAME=VALUE", parse=parsed_settings, repeated=True)
    ] = None


@dataclass(frozen=True, kw_only=True)
class CompositionSettings(Settings):
    """How negatives of several sources are composed.

    Attributes:
        sources: Sources to choose from, [NAME=]PATH; may be given several times. In Python also tables of negatives or
            DataFrames, by name.
        top: Negatives per query.
        regularization: λ of log det(Id + I/λ); the smaller it is, the more diversity counts.
        weight: Weight of a negative. The gates prefer easy negatives; gradient_weighted prefers hard ones.
        temperature: Temperature τ, which divides similarities.
    """

    heading = "Composition"

    sources: Annotated[SourcesLike, Option(flag="--source", metavar="SOURCE", repeated=True)] = ()
    top: Annotated[int, Option(least=1)] = 10
    regularization: Annotated[float, Option(flag="--lambda", above=0)] = 0.1
    weight: Annotated[str, Option(names=WEIGHTINGS)] = "gated"
    temperature: Annotated[float, Option(above=0)] = 0.05
