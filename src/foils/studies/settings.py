"""How a study is made: what varies, what stays the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foils.data import Run
from foils.encode.similarity import SIMILARITIES
from foils.runtime.errors import InputError
from foils.runtime.keyed import settings_option
from foils.runtime.options import Option, Settings, refuse, spelled

if TYPE_CHECKING:
    FirstStage = str | Path | Run
else:
    FirstStage = str

STUDY_ARGS = "study_args"  # the program's option that takes rarely used settings as its keys
MEASURES = ("nDCG@10", "RR@10", "R@100")
RERANKING = MEASURES[:2]  # measures of rerankers, which see the first documents alone
BM25 = "bm25"
RERANK_DEPTH = 50


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
        until_reliable: Add seeds until half of them orders the sources as the other half does (τ at least 0.8, made
            that of all seeds), or the sources are shown to differ too little, or 64 seeds are there.
        minutes: Minutes after which no further training begins; the first seeds are trained anyway. Default: no limit.
        queries: Training queries drawn by each seed, the same for all sources. Default: all.
        per_query: Negatives of a query, the first by rank, so that sources do not differ in size. In Python None takes
            all of them.
        reranker: Train cross-encoders, on lists, instead of encoders.
        first_stage: What rerankers rerank on the test split: bm25, or a TREC run. In Python also a `Run`. Default:
            bm25.
        rerank_depth: Number of documents of each query that a reranker scores. Default: 50.
        score_with: Encoder that scores the sources. Default: the model itself, before training; of rerankers
            all-MiniLM-L6-v2.
        hybrids: Also unite up to this many sources, taking turns; 1 unites none.
        whole_hybrids: Let hybrids keep all negatives of their parts, as published (20 of two sources with 10 each), and
            not as many as one source has.
        measures: Measures, by ir_measures' names, separated by commas; predictors are compared with the first.
            Default: nDCG@10,RR@10,R@100, of rerankers nDCG@10,RR@10. In Python also a list of names.
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
        baselines: Also measure the model untrained, and trained on in-batch negatives alone; of rerankers, the first
            stage.
        seed: Seed of the bootstraps; the same seed gives the same bytes. Trainings have the seeds 0, 1, and so on.
    """

    heading = "Study"

    seeds: Annotated[int, Option(least=1)] = 3
    until_reliable: bool = False
    minutes: Annotated[float | None, Option(above=0)] = None
    queries: Annotated[int | None, Option(least=1)] = None
    per_query: Annotated[int | None, Option(least=1)] = 10
    reranker: bool = False
    first_stage: Annotated[FirstStage | None, Option(metavar="bm25|RUN")] = None
    rerank_depth: Annotated[int | None, Option(least=1, within=STUDY_ARGS)] = None
    score_with: Annotated[str | None, Option(metavar="ENCODER")] = None
    hybrids: Annotated[int, Option(least=1)] = 1
    whole_hybrids: Annotated[bool, Option(within=STUDY_ARGS)] = False
    measures: Annotated[tuple[str, ...] | None, Option(parse=parsed_measures, metavar="MEASURES")] = None
    split: str = "train"
    test_split: Annotated[str, Option(flag="--test", metavar="SPLIT")] = "test"
    temperature: Annotated[float, Option(above=0)] = 0.05
    similarity: Annotated[str | None, Option(names=SIMILARITIES, within=STUDY_ARGS)] = None
    batches: Annotated[str, Option(names=_ways_of_batching)] = "random"
    training: Annotated[Mapping[str, Any], settings_option("training", words=True)] = field(default_factory=dict)
    probe: Annotated[str | None, Option(metavar="MODEL")] = None
    probe_rows: Annotated[int, Option(least=1, within=STUDY_ARGS)] = 20_000
    baselines: bool = True
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        if isinstance(self.measures, str):
            object.__setattr__(self, "measures", parsed_measures(self.measures))
        super().__post_init__()
        if self.measures is not None and not self.measures:
            raise InputError(f"{spelled('measures')}: no measure; expected names, as nDCG@10")
        if self.split == self.test_split:
            raise InputError(
                f"{spelled('test_split')} {self.test_split}: expected another split than the one to train on"
            )
        if not self.until_reliable:
            refuse({"minutes": self.minutes}, f"without {spelled('until_reliable')}; give it, or leave this out")
        if self.hybrids == 1:
            refuse(self.changed("whole_hybrids"), f"without {spelled('hybrids')}, of 2 or more; leave it out")
        reranker = spelled("reranker")
        if self.reranker:
            idle = {**self.changed("similarity", "batches")}
            refuse(idle, f"with {reranker}, which has no vectors and no in-batch negatives; leave it out")
        else:
            why = f"without {reranker}: encoders search by themselves; leave it out"
            refuse(self.changed("first_stage", "rerank_depth"), why)

    @property
    def depth(self) -> int:
        """Number of documents of each query that a reranker scores."""
        return self.rerank_depth or RERANK_DEPTH

    @property
    def measured(self) -> tuple[str, ...]:
        """Names of the measures."""
        return tuple(self.measures or (RERANKING if self.reranker else MEASURES))

    def of_a_training(self) -> dict[str, Any]:
        """Return what, beside source, seed and first stage, decides what a training gives."""
        names = ["split", "test_split", "queries", "per_query", "temperature", "training"]
        own = {"reranker": True, "rerank_depth": self.depth} if self.reranker else {"batches": self.batches}
        chosen = {**{name: getattr(self, name) for name in names}, **own, **self.changed("similarity", "whole_hybrids")}
        return {**chosen, "measures": list(self.measured), "training": dict(self.training)}
