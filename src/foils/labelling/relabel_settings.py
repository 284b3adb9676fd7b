"""How rows are relabelled: who judges, at what cost, and how sure a verdict has to be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from foils.data.labels import LabelsLike
from foils.labelling.settings import Answer
from foils.llm.prompts import TemplateLike
from foils.rating.judges import Judge
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, spelled
from foils.runtime.several import several

REJECT, KEEP = "reject", "keep"
SHARE = 0.05

if TYPE_CHECKING:
    JudgesLike = str | Judge | Answer | Sequence[str | Judge | Answer]
    AnswersLike = LabelsLike | Sequence[LabelsLike]
    BudgetsLike = float | Sequence[float]
else:
    JudgesLike = list[str]
    AnswersLike = list[str]
    BudgetsLike = list[float]


@dataclass(frozen=True, kw_only=True)
class RelabelSettings(Settings):
    """How rows are relabelled.

    Attributes:
        judge: Who is asked, in the order from the cheapest to the best: bi-encoder[:MODEL], cross-encoder:MODEL,
            pairwise:FOLDER or llm[:MODEL]; may be given several times. Each is asked where those before it leave most
            open. In Python also a judge of `foils.rate`, or a function of query, positive and document that returns
            True, False or None.
        budget: Rows that a judge is asked about: a share of the table up to 1, or a number above 1. Give one for each
            judge, in their order, or one for all. Default: 0.05.
        positive_precision: Wanted share of relevant documents among the rows that are called positive.
        negative_precision: Wanted share of documents that are not relevant among the rows that are called negative.
        unsure: What becomes of rows between the two: reject leaves them out of the training, keep trains on them.
        labels: File with answers that are there already, as foils label writes it; may be given several times. People's
            answers are taken for the truth, a program's for one more judge's. In Python also labels or a DataFrame.
        checks: Number of labelled positives, and of documents drawn at random, that each judge also judges, so that
            its errors can be estimated; 0 for none.
        question: Prompt of your own for a language model: a text file with {query} and {document}, and optionally
            {answer}. In Python also a `Template`.
        split: Split whose judgements are known, and to which positives are added.
        seed: Seed of the draws; the same seed asks the same questions.
    """

    heading = "Relabelling"

    judge: Annotated[JudgesLike, Option(metavar="JUDGE", parse=list, repeated=True)] = ()
    budget: Annotated[BudgetsLike, Option(metavar="ROWS", parse=list, repeated=True)] = (SHARE,)
    positive_precision: Annotated[float, Option(above=0, most=1)] = 0.9
    negative_precision: Annotated[float, Option(above=0, most=1)] = 0.95
    unsure: Annotated[str, Option(names=(REJECT, KEEP))] = REJECT
    labels: Annotated[AnswersLike, Option(metavar="FILE", parse=list, repeated=True)] = ()
    checks: Annotated[int, Option(least=0)] = 100
    question: Annotated[TemplateLike | None, Option(metavar="FILE")] = None
    split: str = "train"
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        budgets = self.budgets
        if not budgets or any(not each > 0 or (each > 1 and each != int(each)) for each in budgets):
            given = spelled("budget", " ".join(map(str, budgets)))
            raise InputError(f"{given}; expected shares above 0 and up to 1, or whole numbers")
        if len(budgets) not in (1, max(1, len(self.judges))):
            raise InputError(
                f"{len(budgets)} values of {spelled('budget')} for {len(self.judges)} judges; give one, or one for each"
            )

    @property
    def judges(self) -> list[str | Judge | Answer]:
        """The judges, from the cheapest to the best."""
        return several(self.judge)

    @property
    def budgets(self) -> list[float]:
        """The budgets as they were given."""
        return [float(each) for each in several(self.budget)]

    @property
    def files(self) -> list[LabelsLike]:
        """The labels that are there already, one or several."""
        return several(self.labels)

    def questions(self, rows: int) -> list[int]:
        """Return about how many of these rows each judge is asked."""
        budgets = self.budgets * len(self.judges) if len(self.budgets) == 1 else self.budgets
        return [max(1, round(each * rows)) if each <= 1 else min(rows, int(each)) for each in budgets]
