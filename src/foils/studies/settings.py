"""How a study is made: what varies, what stays the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from foils.encode.similarity import SIMILARITIES
from foils.runtime.errors import InputError
from foils.runtime.keyed import settings_option
from foils.runtime.options import Option, Settings, spelled

STUDY_ARGS = "study_args"  # the program's option that takes rarely used settings as its keys
MEASURES = ("nDCG@10", "RR@10", "R@100")


def _ways_of_batching() -> Iterable[str]:
    from foils.training.settings import ways_of_batching

    return ways_of_batching()


def parsed_measures(text: str) -> tuple[str, ...]:
    """Return the names of measures that stand in a text, separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


@dataclass(frozen=True, kw_only=True)
class StudySettings(Settings):
    """What every training of a study has in common.

    Attributes:
        seeds: Trainings of each source; a seed draws the queries, the order and the dropout.
        queries: Training queries drawn by each seed, the same for all sources. Default: all.
        per_query: Negatives of a query, the first by rank, so that sources do not differ in size. In Python None takes
            all of them.
        hybrids: Also unite up to this many sources, taking turns; 1 unites none.
        measures: Measures, by ir_measures' names, separated by commas; predictors are compared with the first.
            Default: nDCG@10,RR@10,R@100. In Python also a list of names.
        split: Split of the judgements to train on.
        test_split: Split of the judgements to measure on.
        temperature: Temperature τ of the scores and of the loss, which divides similarities.
        similarity: How the model compares vectors, in scores, loss and measure: cosine or dot. Default: what it was
            made for.
        batches: How batches are filled.
        training: Setting of the training, as in epochs=2, batch_size, learning_rate or loss; may be given several
            times. In Python a dictionary; the names are those of `foils.training.settings.TrainSettings`.
        probe: Train this cheap model on each source too, as one more predictor; static:NAME takes seconds.
        probe_rows: Rows that the probe is trained on, at most.
        unlabelled: Number of relevant documents without a label per labelled one, where it is known. Default:
            estimated.
        estimate_with: Better encoder with which the number of unlabelled documents is estimated. Default: the model
            itself, before training.
        baselines: Also measure the model untrained, and trained on in-batch negatives alone.
        seed: Seed of the bootstraps; the same seed gives the same bytes. Trainings have the seeds 0, 1, and so on.
    """

    heading = "Study"

    seeds: Annotated[int, Option(least=1)] = 3
    queries: Annotated[int | None, Option(least=1)] = None
    per_query: Annotated[int | None, Option(least=1)] = 10
    hybrids: Annotated[int, Option(least=1)] = 1
    measures: Annotated[tuple[str, ...], Option(parse=parsed_measures, metavar="MEASURES")] = MEASURES
    split: str = "train"
    test_split: Annotated[str, Option(flag="--test", metavar="SPLIT")] = "test"
    temperature: Annotated[float, Option(above=0)] = 0.05
    similarity: Annotated[str | None, Option(names=SIMILARITIES, within=STUDY_ARGS)] = None
    batches: Annotated[str, Option(names=_ways_of_batching)] = "random"
    training: Annotated[Mapping[str, Any], settings_option("training", words=True)] = field(default_factory=dict)
    probe: Annotated[str | None, Option(metavar="MODEL")] = None
    probe_rows: Annotated[int, Option(least=1, within=STUDY_ARGS)] = 20_000
    unlabelled: Annotated[float | None, Option(least=0)] = None
    estimate_with: Annotated[str | None, Option(metavar="MODEL")] = None
    baselines: bool = True
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        if isinstance(self.measures, str):
            object.__setattr__(self, "measures", parsed_measures(self.measures))
        super().__post_init__()
        if not self.measures:
            raise InputError(f"{spelled('measures')}: no measure; expected names, as nDCG@10")
        if self.split == self.test_split:
            raise InputError(
                f"{spelled('test_split')} {self.test_split}: expected another split than the one to train on"
            )

    def of_a_training(self) -> dict[str, Any]:
        """Return what, beside source and seed, decides what a training gives."""
        names = ("split", "test_split", "measures", "queries", "per_query", "temperature", "batches", "training")
        chosen = {**{name: getattr(self, name) for name in names}, **self.changed("similarity")}
        return {**chosen, "measures": list(self.measures), "training": dict(self.training)}
