"""What a relabelling returns: the table with a verdict a row, the promoted rows, and what the judges cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection
from foils.data.formats import NegativesResult, rejected_rows
from foils.data.labels import Labels, with_judgements
from foils.labelling.relabelling import NEGATIVE, POSITIVE, UNSURE, JudgeUse
from foils.labelling.shares import LEAST
from foils.labelling.sheet import shown_of
from foils.llm import ModelUse
from foils.pages.page import Example, Examples, Section, render_page, shortened
from foils.runtime.errors import InputError
from foils.runtime.files import write_text
from foils.runtime.options import spelled
from foils.runtime.results import Table, number
from foils.statistics.survey import permanent_numbers

PROGRAM = "relabel:foils"  # who says in the labels that a promoted pair is relevant
IDS = ["query_id", "doc_id"]
MANY = 0.05  # share of the rows whose loss is worth a remark
READ = 10  # rows on the page, of each verdict


@dataclass(frozen=True, kw_only=True)
class Relabelled(NegativesResult):
    """A table with `relevance`, the probability that each row is relevant, and `verdict`.

    Attributes:
        judges: what each was asked, in that order.
        evidence: names of what is seen of a row, and the weight of each.
        high: probability from which on a row that nobody answered about is called positive, above 1: none is; low: up
            to which it is called negative, below 0: none is.
        lost: rows that are unsure, and rejected for it, and were called negative before anybody was asked.
        answers: of all judges, as labels.
        models: name -> use, of the language models among the judges.
    """

    judges: tuple[JudgeUse, ...]
    evidence: Mapping[str, float]
    high: float
    low: float
    lost: int
    answers: Labels = field(repr=False)
    models: Mapping[str, ModelUse] = field(default_factory=dict)

    @cached_property
    def promoted(self) -> Labels:
        """The rows that are called positive and whose document is in the collection, as labels."""
        table = self._of(POSITIVE)
        if "text" in table.column_names:
            table = table.filter(table["text"].is_null())
        columns = {name: table[name] for name in ("query_id", "doc_id")}
        relevant, judge = pa.repeat(pa.scalar(1), len(table)), pa.repeat(pa.scalar(PROGRAM), len(table))
        return Labels(pa.table({**columns, "relevant": relevant, "judge": judge}), self.provenance)

    def with_promoted(self) -> Collection:
        """Return the collection with the promoted rows as positives of the split.

        Raises:
            InputError: the collection is not known.
        """
        if self.collection is None:
            raise InputError("the collection of this table is not known; relabel it again")
        return with_judgements(self.collection, [self.promoted], split=self.split)

    def counts(self) -> dict[str, dict[str, Any]]:
        """Return for each verdict the number of rows, and the share of them that is expected to be relevant."""
        probability = self.table["relevance"].to_numpy()
        verdicts = np.asarray(self.table["verdict"].fill_null("").to_numpy(zero_copy_only=False))
        of = {name: probability[verdicts == name] for name in (POSITIVE, UNSURE, NEGATIVE)}
        return {name: {"rows": len(p), "relevant": float(p.mean()) if len(p) else None} for name, p in of.items()}

    def tables(self) -> list[Table]:
        """Return the verdicts, and what each judge was asked."""
        rows = [
            (name, f"{of['rows']:,}", number(of["relevant"]), said)
            for (name, of), said in zip(self.counts().items(), self._bars(), strict=True)
        ]
        without = self.table["verdict"].null_count
        notes = [f"{without:,} rows without a verdict: their query has no positive in the split, or they are positives"]
        notes = notes if without else []
        notes += [f"{name}: {count}" for name, count in rejected_rows(self)]
        if not len(self.answers):
            ways = f"{spelled('judge')} or {spelled('labels')}"
            notes.append(f"Nobody was asked: the probabilities are a belief. Give a {ways}.")
        elif self.high > 1 and self.low < 0:
            notes.append(
                "The answers do not tell which rows are which: ask about more rows, ask a better judge, or label some "
                "yourself, so that the judge's errors are known."
            )
        notes += self._doubts()
        verdicts = Table(self.title, ("verdict", "rows", "relevant, expected", "probability"), rows, "\n".join(notes))
        return [verdicts, *([self._judges()] if self.judges else [])]

    def _doubts(self) -> list[str]:
        """What to do about judges that were not heeded, or whom nobody confirmed and who cost many rows."""
        confirm = f"label {LEAST} of the same rows yourself ({spelled('labels')}) or ask a better judge after it"
        unheeded = [each.name for each in self.judges if each.answered and not each.heeded]
        doubted = [each.name for each in self.judges if each.heeded and not each.confirmed]
        notes = []
        if unheeded:
            notes.append(
                f"{', '.join(unheeded)}: not heeded, for the answers do not tell what share of the rows is relevant; "
                f"ask about more rows, or {confirm}."
            )
        if doubted and self.lost >= MANY * len(self):
            notes.append(
                f"{self.lost:,} rows that were called negative before anybody was asked are unsure now, and left out "
                f"of the training. Nobody confirmed {', '.join(doubted)}: {confirm}, leave it out, or give "
                f"{spelled('unsure', 'keep')}."
            )
        return notes

    def _bars(self) -> tuple[str, str, str]:
        """From which probability on a row that nobody answered about has each verdict."""
        return (f"≥ {self.high:.2f}" if self.high <= 1 else "–", "", f"≤ {self.low:.2f}" if self.low >= 0 else "–")

    def _judges(self) -> Table:
        columns = ("judge", "asked", "answered", "sensitivity", "specificity", "wrong before", "wrong after")
        rows = [
            (each.name, f"{each.asked:,}", f"{each.answered:,}", number(each.sensitivity), number(each.specificity),
             f"{each.open_before:,.0f}", f"{each.open_after:,.0f}")
            for each in self.judges
        ]  # fmt: skip
        rows += [
            (name, value, "", "", "", "", "") for model, use in self.models.items() for name, value in use.rows(model)
        ]
        return Table("Judges", columns, rows, "wrong: rows that a best guess is expected to get wrong")

    def to_json(self) -> dict[str, Any]:
        """Return verdicts, thresholds, what the judges were asked and how often they err, and the settings."""
        used = {name: use.usage.to_json(use.price) for name, use in self.models.items()}
        return {
            "settings": self.provenance.get("settings", {}),
            "verdicts": self.counts(),
            "thresholds": {
                "positive": self.high if self.high <= 1 else None,
                "negative": self.low if self.low >= 0 else None,
            },
            "promoted": len(self.promoted),
            "lost": self.lost,
            "judges": [
                {name: None if value != value else value for name, value in asdict(each).items()}
                for each in self.judges
            ],
            "evidence": dict(self.evidence),
            "rejected": self.rejected(),
            **({"language_models": used} if used else {}),
        }

    def report(self, path: str | Path) -> None:
        """Write a page: verdicts, judges, and rows of each verdict to read.

        Raises:
            InputError: the collection is not known.
        """
        if self.collection is None:
            raise InputError("the texts of this table are not known; relabel it again")
        counts = self.counts()
        read = [self._examples(name) for name in (POSITIVE, UNSURE, NEGATIVE) if counts[name]["rows"]]
        called = ", ".join(f"{of['rows']:,} {name}" for name, of in counts.items())
        page = render_page(
            "Which negatives are answers after all?",
            subtitle=f"{self.title}: {len(self):,} rows",
            verdict=f"Called: {called}.",
            sections=[Section("Verdicts", self.tables()), Section("Documents", read)],
        )
        write_text(path, page)

    def _of(self, verdict: str) -> pa.Table:
        return self.table.filter(pc.fill_null(pc.equal(self.table["verdict"], verdict), False))

    def _examples(self, verdict: str) -> Examples:
        """Some rows of a verdict, those of the smallest permanent numbers."""
        table = self._of(verdict)
        numbers = permanent_numbers([f"{row['query_id']}\0{row['doc_id']}" for row in table.select(IDS).to_pylist()])
        table = table.take(pa.array(np.sort(np.argsort(numbers)[:READ])))
        if "text" not in table.column_names:
            table = table.append_column("text", pa.nulls(len(table), pa.large_string()))
        pairs = table.select([*IDS, "text", "relevance"]).to_pylist()
        shown = [] if self.collection is None else shown_of(self.collection, pairs)
        examples = [
            Example(
                shortened(each.query, 200),
                {"positive": shortened(each.positive), "document": shortened(each.document)},
                f"relevant with probability {number(pair['relevance'], 2)}",
            )
            for pair, each in zip(pairs, shown, strict=True)
        ]
        return Examples(f"{verdict}: {len(self._of(verdict)):,} rows", examples)
