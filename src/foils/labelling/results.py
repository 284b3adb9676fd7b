"""What a labelling returns: the labels, and what they say of each source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.labels import Labels, is_program
from foils.labelling.drawing import Universe
from foils.labelling.errors import JudgeErrors
from foils.labelling.sheet import Shown
from foils.llm import ModelUse
from foils.pages.page import Example, Examples, Section, render_page, shortened
from foils.runtime.files import without_nan, write_text
from foils.runtime.results import Result, Table, number
from foils.statistics.survey import Floats, Rows, Share, estimate_share

PEOPLE = "people"
READ = 20  # documents on the page, of each kind


@dataclass(frozen=True)
class SourceShare:
    """What the labels of some judges say of a source.

    Attributes:
        source: its name.
        judge: `people`, or the name of a program.
        negatives: how many pairs the source holds.
        drawn: how many of them were drawn.
        relevant: how many of these were judged relevant.
        share: of the source's negatives that are relevant, as judged.
        corrected: the same, the program's errors taken into account; None: they are not known.
    """

    source: str
    judge: str
    negatives: int
    drawn: int
    relevant: int
    share: Share
    corrected: Share | None = None

    @property
    def best(self) -> Share:
        """The corrected share, where there is one."""
        return self.corrected or self.share

    def to_json(self) -> dict[str, Any]:
        """Return the counts and shares."""
        facts: dict[str, Any] = {name: getattr(self, name) for name in ("source", "judge", "negatives", "drawn")}
        corrected = None if self.corrected is None else self.corrected.to_json()
        return {**facts, "relevant": self.relevant, **self.share.to_json(), "corrected": corrected}


@dataclass(frozen=True)
class Labelled(Result):
    """Labels of negatives that were drawn from sources.

    Attributes:
        labels: of the drawn pairs, and what the file held beside them.
        universe: the pairs that they were drawn from.
        drawn: (k,) rows of the universe that were drawn.
        shown: (k,) their texts.
        errors: program -> how often it is right.
        models: name -> use, of a language model that judged.
        facts: settings, seed and collection, for JSON.
        output: the file of the labels.
        belief: (N,) of the universe's pairs, that the draw and the shares make use of; None: equal for all.
        notes: what to do next, in words.
    """

    labels: Labels
    universe: Universe = field(repr=False)
    drawn: Rows = field(repr=False)
    shown: Sequence[Shown] = field(repr=False)
    errors: Mapping[str, JudgeErrors]
    models: Mapping[str, ModelUse]
    facts: Mapping[str, Any]
    output: Path
    belief: Floats | None = field(default=None, repr=False)
    notes: Sequence[str] = ()

    @cached_property
    def shares(self) -> list[SourceShare]:
        """The share of false negatives of each source, by people, and by each program that judged."""
        names = [name for name in self.labels.table["judge"].unique().to_pylist() if name is not None]
        programs = [name for name in names if is_program(name)]
        judges = [*([None] if len(names) > len(programs) or not names else []), *programs]
        return [share for judge in judges for share in self._by(judge)]

    def tables(self) -> list[Table]:
        """Return for each source how many pairs were drawn and judged, and the share of false negatives."""
        columns = ("source", "negatives", "judged", "relevant", "false negatives", "95 % interval")
        rows = [
            (
                each.source if each.judge == PEOPLE else f"{each.source}, by {each.judge}",
                f"{each.negatives:,}", f"{each.share.judged} of {each.drawn}", each.relevant,
                number(each.best.share), f"{number(each.best.low)}–{number(each.best.high)}",
            )
            for each in self.shares
        ]  # fmt: skip
        caption = "\n".join([*self._remarks(), *self.notes])
        used = [Table(name, ("", "value"), use.rows(name)) for name, use in self.models.items()]
        return [Table(f"Labels → {self.output}", columns, rows, caption), *used]

    def to_json(self) -> dict[str, Any]:
        """Return the settings, each source's counts and shares, and the errors of programs."""
        errors = {name: each.to_json() for name, each in self.errors.items()}
        sources = [each.to_json() for each in self.shares]
        more = {name: use.usage.to_json(use.price) for name, use in self.models.items()}
        facts = {**self.facts, "pairs": len(self.drawn), "sources": sources, "judges": errors}
        return dict(without_nan({**facts, **({"language_models": more} if more else {})}))

    def report(self, path: str | Path) -> None:
        """Write a page: the shares, and the documents that were judged relevant, and others, to read.

        Raises:
            FailureError: the file cannot be written.
        """
        read = [self._examples(1, "Judged relevant"), self._examples(0, "Judged not relevant")]
        page = render_page(
            "How many of the negatives are false?",
            subtitle=f"{self.facts['collection']}: {len(self.drawn)} of {len(self.universe):,} pairs drawn",
            verdict=" ".join(_sentence(each) for each in self.shares),
            sections=[
                Section("Sources", self.tables()),
                Section("Documents", [each for each in read if each.examples]),
            ],
        )
        write_text(path, page)

    def _by(self, judge: str | None) -> list[SourceShare]:
        relevant, probability = self.labels.match(self.universe.table, judge=judge)
        judged, errors = np.isfinite(relevant) & np.isfinite(probability), self.errors.get(judge or "")
        shares = []
        for name, rows in self.universe.members.items():
            here = rows[judged[rows]]
            belief, everyone = (None, None) if self.belief is None else (self.belief[here], self.belief[rows])
            share = estimate_share(relevant[here], probability[here], belief=belief, population=everyone)
            corrected = None if errors is None else errors.corrected(share, seed=int(self.facts["seed"]))
            counts = (len(rows), int(np.isin(rows, self.drawn).sum()), int(relevant[here].sum()))
            shares.append(SourceShare(name, judge or PEOPLE, *counts, share, corrected))
        return shares

    def _remarks(self) -> list[str]:
        """What is said of programs: their errors, or that these are not known."""
        remarks = []
        for name in dict.fromkeys(each.judge for each in self.shares if each.judge != PEOPLE):
            errors = self.errors.get(name)
            if errors is None or not errors.known:
                remarks.append(f"{name}: its errors are not known, and not corrected for; judge some pairs yourself")
                continue
            (hits, of), (passed, others) = errors.sensitivity, errors.specificity
            remarks.append(
                f"{name}: corrected by its errors on {errors.basis}: {hits} of {of} relevant ones and {passed} of "
                f"{others} others judged rightly"
            )
            if errors.bounds:
                remarks.append(
                    "Negatives are harder to judge than documents drawn at random, so that these are upper bounds; "
                    "judge some pairs yourself for more"
                )
        return remarks

    def _examples(self, relevant: int, heading: str) -> Examples:
        pairs = self.universe.table.take(pa.array(self.drawn))
        by_judge = {judge: self.labels.match(pairs, judge=judge)[0] for judge in (None, *self.errors)}
        places = [at for at in range(len(self.drawn)) if any(each[at] == relevant for each in by_judge.values())]
        examples = [
            Example(
                shortened(self.shown[at].query, 200),
                {"positive": shortened(self.shown[at].positive), "document": shortened(self.shown[at].document)},
                ", ".join(f"{judge or PEOPLE}" for judge, each in by_judge.items() if each[at] == relevant),
            )
            for at in places[:READ]
        ]
        return Examples(f"{heading}: {len(places)}", examples)


def _sentence(share: SourceShare) -> str:
    best = share.best
    if not share.share.judged:
        return f"{share.source}: nothing is judged yet."
    known = "unknown" if best.share != best.share else f"{100 * best.share:.0f} %"
    interval = f"{100 * best.low:.0f} to {100 * best.high:.0f} %"
    return f"{share.source}: {known} of the negatives are false ({interval}, judged by {share.judge})."
