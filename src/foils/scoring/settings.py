"""How sources are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from foils.data.labels import LabelsLike
from foils.data.tokens import TOKENIZERS
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, refuse, spelled
from foils.scoring.lexical import IDF_CORPORA
from foils.scoring.worth import STARTS

RANKED_BY = ("benefit", "eci_sem", "eci")

if TYPE_CHECKING:
    LabelsGiven = LabelsLike
else:
    LabelsGiven = str


@dataclass(frozen=True)
class ScoreSettings(Settings):
    """How sources are scored.

    Attributes:
        split: Split of the judgements whose positives are used.
        hybrids: Score unions of up to this many sources; 1 scores none.
        temperature: Temperature τ, which divides similarities; 0.05 is 1/20, the scale of multiple-negatives ranking.
        regularization: λ of log det(Id + I/λ); the smaller it is, the more diversity counts.
        sample: Score a seeded sample of this many records, those that every source covers first. Default: all records.
        shared: Score only the records that every source covers.
        tokenizer: Tokenizer of the lexical coverage.
        idf_corpus: Texts over which inverse document frequencies are counted.
        control: Also score random negatives, as a control; a source that scores like them is easy.
        replicates: Replicates of the bootstrap over blocks of records; 0 gives no intervals.
        confidence: Confidence of the intervals, a share.
        seed: Seed of sample, control, blocks and bootstrap; the same seed gives the same bytes.
    """

    split: str = "train"
    hybrids: Annotated[int, Option(least=1)] = 2
    temperature: Annotated[float, Option(above=0)] = 0.05
    regularization: Annotated[float, Option(flag="--lambda", above=0)] = 1.0
    sample: Annotated[int | None, Option(least=1)] = None
    shared: bool = False
    tokenizer: Annotated[str, Option(names=TOKENIZERS)] = "alphanumeric"
    idf_corpus: Annotated[str, Option(flag="--idf", names=IDF_CORPORA)] = "pooled"
    control: bool = True
    replicates: Annotated[int, Option(least=0)] = 1000
    confidence: Annotated[float, Option(above=0, most=1)] = 0.95
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.confidence < 1:
            raise InputError(f"{spelled('confidence')} {self.confidence:g}; expected a share below 1")

    def preparation(self) -> dict[str, Any]:
        """Return the settings that `prepare` takes."""
        names = ("split", "sample", "shared", "control", "tokenizer", "idf_corpus", "seed")
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class BeliefSettings(Settings):
    """What is believed of the training and of false negatives.

    Attributes:
        labels: File of judged pairs, as `foils label` writes it. In Python also Labels, or a DataFrame.
        starts: What the training starts from: the encoder that scores, or nothing, as a reranker from a masked language
            model does.
        in_batch: Negatives that a query has in its batch anyway, as random documents; 0 for a loss of the list alone.
        recurrence: Share of later queries whose positives training queries have, too; below 1 hard negatives count for
            less. Default: for a static embedding what the collection's splits show, for other models 1.

    Raises:
        InputError: a recurrence where the training starts from nothing.
    """

    heading = "Decision"

    labels: Annotated[LabelsGiven | None, Option(metavar="FILE")] = None
    starts: Annotated[str, Option(names=STARTS)] = "encoder"
    in_batch: Annotated[int, Option(least=0)] = 127
    recurrence: Annotated[float | None, Option(least=0, most=1)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.starts == "nothing":
            why = f"with {spelled('starts', 'nothing')}, where easy negatives are what is learned from; leave it out"
            refuse({"recurrence": self.recurrence}, why)


@dataclass(frozen=True)
class DecisionSettings(BeliefSettings):
    """How the decision is made.

    Attributes:
        rank_by: What the ranking goes by: the benefit, or a published score. By a published score nothing is decided,
            and the collection's other documents need no vectors, unless labels are given.
    """

    rank_by: Annotated[str, Option(names=RANKED_BY)] = "benefit"
