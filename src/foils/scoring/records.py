"""Records for scoring: the sources' negatives of each query as one set of distinct triplets.

A triplet (query, positive, negative) that several sources hold is kept once, with the set of its sources as bits. So a
hybrid is a union of bits, and every text is embedded, and every triplet measured, once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations

import numpy as np
import numpy.typing as npt

from foils.data.collection import Collection, Rows
from foils.data.texts import DocumentTexts

CONTROL = "random control"

Marks = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Target:
    """A source, or a hybrid of sources, to be scored.

    Attributes:
        name: the source's, or the parts' joined by +.
        bits: which bits of `Records.members` count as its negatives.
        parts: number of sources united.
    """

    name: str
    bits: int
    parts: int = 1

    def of(self, members: npt.NDArray[np.int64]) -> Marks:
        """Return which triplets are this target's."""
        marks: Marks = (members & self.bits) != 0
        return marks


@dataclass(frozen=True)
class Records:
    """T records with m distinct triplets, sorted by record.

    Attributes:
        collection: that the sources were made from.
        queries: (T,) query rows.
        positives: (T,) pool index of each record's first labelled positive.
        all_positives: (p,) pool indices of all labelled positives, and `positive_record` (p,) their records.
        record: (m,) the record of each triplet, ascending.
        document: (m,) pool index of the negative.
        members: (m,) bit s is set where source s holds the triplet.
        texts: the pool of distinct texts.
        names: of the sources, by bit; the control, where there is one, is the last.
        dropped: source name -> reason -> number of negatives (of queries, where the reason says so) left out.
        corpus: (c,) pool indices of the distinct positives and negatives of the sources, the control's left out.
    """

    collection: Collection
    queries: Rows
    positives: Rows
    all_positives: Rows
    positive_record: Rows
    record: Rows
    document: Rows
    members: npt.NDArray[np.int64]
    texts: DocumentTexts
    names: tuple[str, ...]
    corpus: Rows
    dropped: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def sources(self) -> tuple[str, ...]:
        """The sources' names, without the control's."""
        return tuple(name for name in self.names if name != CONTROL)

    def shared(self) -> Rows:
        """Return the records for which every source has a negative, ascending."""
        everywhere = np.ones(len(self), bool)
        for bit in range(len(self.sources)):
            here = np.zeros(len(self), bool)
            here[self.record[(self.members >> bit & 1) == 1]] = True
            everywhere &= here
        return np.flatnonzero(everywhere)

    def subset(self, chosen: Rows) -> tuple[Records, Rows, Rows]:
        """Return these records (ascending) with their triplets and texts alone.

        Returns:
            The records; which triplets they are of these, (k,); which texts of the pool they use, (p,).
        """
        triplets = np.flatnonzero(np.isin(self.record, chosen))
        of_chosen = np.isin(self.positive_record, chosen)
        used = np.unique(np.concatenate([self.document[triplets], self.all_positives[of_chosen]]))

        def numbered(texts: Rows) -> Rows:
            return np.searchsorted(used, texts)

        records = replace(
            self,
            queries=self.queries[chosen],
            positives=numbered(self.positives[chosen]),
            all_positives=numbered(self.all_positives[of_chosen]),
            positive_record=np.searchsorted(chosen, self.positive_record[of_chosen]),
            record=np.searchsorted(chosen, self.record[triplets]),
            document=numbered(self.document[triplets]),
            members=self.members[triplets],
            texts=self.texts.select(used),
            corpus=numbered(self.corpus[np.isin(self.corpus, used)]),
        )
        return records, triplets, used

    def targets(self, hybrids: int = 2) -> list[Target]:
        """Return the sources that have a triplet, then their unions of 2, …, `hybrids`, then the control, if any."""
        bits = {name: 1 << index for index, name in enumerate(self.names)}
        present = [name for name in self.sources if (self.members & bits[name]).any()]
        targets = [
            Target("+".join(chosen), sum(bits[name] for name in chosen), size)
            for size in range(1, max(1, hybrids) + 1)
            for chosen in combinations(present, size)
        ]
        return targets + ([Target(CONTROL, bits[CONTROL])] if CONTROL in bits else [])
