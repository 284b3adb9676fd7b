"""How negatives are rated: which pairs are compared, by whom, and how ratings are fitted to the answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from foils.encode.models import DEFAULT_MODEL
from foils.rating.adaptive import ESTIMATORS
from foils.rating.judges import AUTO, Judge, Weights
from foils.rating.pairwise import KINDS, PAIRWISE
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, numbers_of, refuse, spelled
from foils.runtime.several import several

if TYPE_CHECKING:
    JudgeLike = str | Judge
    JudgesLike = JudgeLike | Sequence[JudgeLike]
else:
    JudgeLike = JudgesLike = str

RATING_ARGS, DISTIL_ARGS = "rating_args", "distil_args"  # options of the program that take settings as their keys
VALIDATIONS = ("none", "borderline", "all")
BI_ENCODER = "bi-encoder"


def parsed_prior(given: float | str) -> float | str:
    """Read `auto`, or a number above 0.

    Raises:
        InputError: it is neither.
    """
    try:
        value = AUTO if given == AUTO else float(given)
    except (TypeError, ValueError):
        value = 0.0
    if isinstance(value, float) and not value > 0:
        raise InputError(f"{spelled('prior_sd', given)}; expected {AUTO}, or a number above 0 (inf: no prior)")
    return value


def parsed_weights(given: str) -> tuple[float, ...] | str:
    """Read `auto`, or numbers with commas between them.

    Raises:
        InputError: it is neither.
    """
    return given if given == AUTO else numbers_of(float, "weights", f"{AUTO}, or numbers, as in 2,1,1", given)


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(Settings):
    """Who says which of two documents answers a query better.

    Attributes:
        judge: bi-encoder[:MODEL], cross-encoder:MODEL, pairwise:FOLDER, llm[:MODEL] or recorded:PATH; a bare MODEL is a
            bi-encoder. Its own settings may follow, as in llm:MODEL,base_url=URL. May be given several times: the mean
            of their answers. Default: bi-encoder. In Python also an object with the methods of `Judge`, or a list.
        between_judge: Judge between queries. Default: that of the ratings.
        weights: Weights of several judges, as 2,1,1, or auto. They are in the order of the judges; auto finds them from
            how three judges or more agree. Default: all count alike.
        temperature: What divides differences of scores. Default: 0.05 for a bi-encoder's cosines, 1 for logits.
        judgements: Folder that keeps judgements; none is asked for twice. Default: the cache.
    """

    judge: Annotated[JudgesLike, Option(metavar="JUDGE", parse=list, repeated=True)] = BI_ENCODER
    between_judge: Annotated[JudgeLike | None, Option(metavar="JUDGE", within=RATING_ARGS)] = None
    weights: Annotated[Weights, Option(parse=parsed_weights, metavar="WEIGHTS", within=RATING_ARGS)] = None
    temperature: Annotated[float | None, Option(above=0)] = None
    judgements: Annotated[str | Path | None, Option(metavar="FOLDER")] = None

    @property
    def everyone(self) -> list[JudgeLike]:
        """The judges, and that of the comparisons between queries where it is another."""
        return self.judges if self.between_judge is None else [*self.judges, self.between_judge]

    @property
    def judges(self) -> list[JudgeLike]:
        """The judges, one or several."""
        return several(self.judge)


@dataclass(frozen=True, kw_only=True)
class RatingSettings(Settings):
    """Which pairs are compared, and how ratings are fitted to the answers.

    Attributes:
        positives: Positives rated per query; the best counts.
        degree: Number of comparisons per candidate; even.
        pairs: Compare this many random pairs of each query instead.
        budget: Questions to ask in all; a pair in both orders is two.
        between: Comparisons with other queries; even. They give each query an offset.
        rounds: Rounds that choose later pairs where they tell most.
        model: Model of the ratings.
        prior_sd: Spread of the prior in probits or logits; auto fits it.
        validate: Negatives that are also compared with the positive directly; borderline is a gap of 80 to 150.
    """

    heading = "Rating"

    positives: Annotated[int, Option(least=1, within=RATING_ARGS)] = 1
    degree: Annotated[int, Option(least=2)] = 6
    pairs: Annotated[int | None, Option(least=1)] = None
    budget: Annotated[int | None, Option(least=1)] = None
    between: Annotated[int | None, Option(least=2, within=RATING_ARGS)] = None
    rounds: Annotated[int, Option(least=0, within=RATING_ARGS)] = 0
    model: Annotated[str, Option(names=tuple(ESTIMATORS), within=RATING_ARGS)] = "thurstone"
    prior_sd: Annotated[float | str, Option(parse=parsed_prior, metavar="SD", within=RATING_ARGS)] = AUTO
    validate: Annotated[str, Option(names=VALIDATIONS)] = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "prior_sd", parsed_prior(self.prior_sd))
        if self.pairs is not None:
            why = f"with {spelled('pairs', self.pairs)}, which are drawn at random; leave one of them out"
            refuse(self.changed("degree", "rounds"), why)
        if self.budget is not None:
            why = f"with {spelled('budget', self.budget)}, which further questions could exceed; leave one of them out"
            refuse(self.changed("validate", "between"), why)


@dataclass(frozen=True, kw_only=True)
class DistilSettings(Settings):
    """Training a small judge on the answers.

    Attributes:
        distil: Train a judge on the answers and write it here, for pairwise:FOLDER.
        distil_from: Transformer to start from: a folder or hub name.
        distil_form: Whether it reads both documents or scores each. One that scores learns from far fewer answers and
            costs one pass a document.
        distil_epochs: Number of passes over the answers.
        distil_learning_rate: Peak learning rate.
        distil_batch: Number of examples in a step; a judgement is two.
        distil_length: Maximum tokens of query and documents together.
    """

    heading = "Distillation"

    distil: Annotated[str | Path | None, Option(metavar="FOLDER")] = None
    distil_from: Annotated[str | Path, Option(flag="from", within=DISTIL_ARGS)] = DEFAULT_MODEL
    distil_form: Annotated[str, Option(flag="form", names=tuple(KINDS), within=DISTIL_ARGS)] = PAIRWISE
    distil_epochs: Annotated[int, Option(flag="epochs", least=1, within=DISTIL_ARGS)] = 1
    distil_learning_rate: Annotated[float, Option(flag="learning_rate", above=0, within=DISTIL_ARGS)] = 5e-5
    distil_batch: Annotated[int, Option(flag="batch", least=1, within=DISTIL_ARGS)] = 32
    distil_length: Annotated[int, Option(flag="length", least=16, within=DISTIL_ARGS)] = 256
