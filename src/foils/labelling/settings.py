"""How pairs are labelled: how many, by whom, and where the answers go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from foils.data.labels import PERSON, LabelsLike, check_ending
from foils.llm.prompts import TemplateLike
from foils.rating.judges import Judge
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, spelled
from foils.runtime.several import several

Answer = Callable[[str, str, str], bool | None]
"""A function of query, labelled positive and document that says whether the document is relevant; None: skip."""
TERMINAL, PAGE, TABLE = "terminal", "page", "csv"
BY_PEOPLE = (TERMINAL, PAGE, TABLE)
EQUAL, UNCERTAIN = "equal", "uncertain"

if TYPE_CHECKING:
    AskLike = str | Judge | Answer
    AnswersLike = LabelsLike | Sequence[LabelsLike]
else:
    AskLike = str
    AnswersLike = list[str]


@dataclass(frozen=True, kw_only=True)
class LabelSettings(Settings):
    """How pairs are labelled.

    Attributes:
        n: Number of pairs to label. A larger number keeps all pairs of a smaller one.
        ask: Who judges: terminal asks you here, page writes an HTML page beside the labels, csv writes the texts and an
            empty column `relevant` for a spreadsheet, or a program: bi-encoder[:MODEL], cross-encoder:MODEL,
            pairwise:FOLDER or llm[:MODEL]. Default: terminal, where there is one and no --answers are given. In Python
            also a judge of `foils.rate`, or a function of query, positive and document that returns True, False or
            None.
        draw: Which pairs come first: equal gives all pairs of a source the same probability; uncertain prefers those
            that the encoder cannot tell, by what `foils score` believes of each pair before any label. Give the options
            of the encoder that scores.
        split: Split of the judgements that uncertain learns from.
        output: File of the labels: .tsv, .csv, .jsonl or .parquet. What it holds already is kept, and is not asked
            again.
        answers: File with answers to add, as the page or a spreadsheet gives it. May be given several times. In Python
            also labels or a DataFrame.
        labeller: Name under which a person's answers are kept.
        checks: Number of labelled positives, and of documents drawn at random, that a program also judges, so that its
            errors can be estimated; 0 for none.
        question: Prompt of your own for a language model: a text file with {query} and {document}, and optionally
            {answer}. In Python also a `Template`. Without {answer}, the form of the answer is explained at the end.
        seed: Seed of the draw; the same seed draws the same pairs.
    """

    heading = "Labels"

    n: Annotated[int, Option(flag="--number", short="-n", least=1)] = 60
    ask: Annotated[AskLike | None, Option(flag="--with", metavar="WHO")] = None
    draw: Annotated[str, Option(names=(EQUAL, UNCERTAIN))] = EQUAL
    split: str = "train"
    output: Annotated[str | Path, Option(short="-o", metavar="FILE")]
    answers: Annotated[AnswersLike, Option(metavar="FILE", parse=list, repeated=True)] = ()
    labeller: Annotated[str, Option(flag="--as", metavar="NAME")] = PERSON
    checks: Annotated[int, Option(least=0)] = 100
    question: Annotated[TemplateLike | None, Option(metavar="FILE")] = None
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ending(self.output)
        if self.ask == TABLE and Path(self.output).suffix.lower() not in (".csv", ".tsv"):
            raise InputError(f"{self.output}: {spelled('ask', TABLE)} is for spreadsheets; name the file .csv or .tsv")
        if not self.labeller.strip() or ":" in self.labeller:
            raise InputError(f"{spelled('labeller', self.labeller)}: expected a person's name, without a colon")

    @property
    def files(self) -> list[LabelsLike]:
        """The labels to add, one or several."""
        return several(self.answers)
