"""Deciding in growing samples until the decision is certain, or until more records could not make it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.labels import Labels
from foils.data.negatives import Negatives
from foils.encode.encoder import Encoder
from foils.encode.similarity import check_temperature_of
from foils.encode.vectors import VectorStore
from foils.runtime.errors import InputError
from foils.runtime.results import Table
from foils.scoring.certainty import FIRST, sample_sizes
from foils.scoring.deciding import Decided, decide_sources
from foils.scoring.decision import Decision
from foils.scoring.prepared import prepare
from foils.scoring.ranking import score_prepared
from foils.scoring.records import CONTROL, Records
from foils.scoring.results import Scores
from foils.scoring.settings import DecisionSettings, ScoreSettings

FRUITLESS = 2  # looks in a row that say more records would not help, before that is believed


@dataclass(frozen=True)
class DecisionLook:
    """One look at a sample.

    Attributes:
        records: in the sample.
        source: the one to train on; None: no mined negatives.
        best_with_probability: of that source. `matters`: whether the choice changes the benefit by more than 2 %.
        attainable: probability of being the best that more records could well give to a source.
    """

    records: int
    source: str | None
    best_with_probability: float
    matters: bool
    attainable: float


@dataclass(frozen=True)
class Settled:
    """A decision that stopped when it was certain, when more records could not help, or when there were no more.

    Attributes:
        scores: of the last sample, with its decision. `looks`: in order.
        certain: whether the source is the best with probability `confidence`, or does not matter.
        available: records that there were.
        remark: why it stopped without certainty, in words; empty where it is certain.
    """

    scores: Scores
    looks: tuple[DecisionLook, ...]
    certain: bool
    confidence: float
    available: int
    remark: str

    def to_json(self) -> dict[str, object]:
        """Return how the decision became certain, or did not."""
        return {
            "confidence": self.confidence,
            "certain": self.certain,
            "records_needed": self.looks[-1].records,
            "records_available": self.available,
            "remark": self.remark,
            "looks": [vars(look) for look in self.looks],
        }

    def table(self) -> Table:
        """Return what each look said."""
        rows = [
            (
                f"{look.records:,} records",
                look.source or "in-batch negatives alone",
                f"{look.best_with_probability:.2f}" if look.matters else "does not matter",
                f"{look.attainable:.2f}",
            )
            for look in self.looks
        ]
        verdict = "certain" if self.certain else "not certain"
        used = self.looks[-1].records
        title = f"Decision {verdict} at {100 * self.confidence:g} % with {used:,} of {self.available:,} records"
        return Table(title, ["look", "train on", "P(best)", "with more records at most"], rows, self.remark)


def decide_until(
    collection: Collection,
    sources: Mapping[str, Negatives],
    encoder: Encoder,
    store: VectorStore,
    settings: ScoreSettings | None = None,
    deciding: DecisionSettings | None = None,
    *,
    confidence: float = 0.95,
    first: int = FIRST,
) -> Settled:
    """Decide from samples of 128, 256, 512, … records until one source is the best with this probability.

    It stops, too, where the choice does not matter; where two looks in a row say that more records could hardly make
    the decision so sure (`attainable`), since labels or trainings are what is missing; and where all records were
    looked at. The records come in a seeded random order, those that have labels first. What is believed after a look
    does not depend on how many looks there were, so that no error is spent on looking.

    Args:
        collection: documents, queries, judgements.
        sources: name -> negatives.
        encoder: that training starts from.
        store: of vectors; the collection's documents, 100,000 at most, are embedded for the first look.
        settings: as in `score_sources`; `sample` bounds the number of records.
        deciding: as in `decide_sources`.
        confidence: probability of being the best, in (0, 1).
        first: records of the first look, at least 16.

    Raises:
        InputError: confidence or `first` out of range, fewer than two records, or what `decide_sources` raises.
    """
    settings, deciding = settings or ScoreSettings(), deciding or DecisionSettings()
    check_temperature_of(getattr(encoder, "similarity", "cosine"), settings.temperature)
    if first < 16 or not 0 < confidence < 1:
        raise InputError(
            f"a first look at {first} records, confidence {confidence:g}; expected 16 or more, and a share"
        )
    labels = None if deciding.labels is None else Labels.of(deciding.labels, collection)
    deciding = replace(deciding, labels=labels)
    prepared = prepare(collection, sources, **settings.preparation())
    order = _in_order(prepared.records, labels, settings.seed)
    looks: list[DecisionLook] = []
    for size in sample_sizes(first, len(order)):
        part = prepared.subset(np.sort(order[:size]))
        scores = score_prepared(part, encoder, store, replace(settings, replicates=0))
        decided = decide_sources(scores, sources, encoder, store, deciding, records=size)
        looks.append(_look(decided, size))
        there = set(prepared.records.names) - {CONTROL} <= set(decided.decision.worths)
        certain = there and (looks[-1].best_with_probability >= confidence or not looks[-1].matters)
        fruitless = len(looks) >= FRUITLESS and all(look.attainable < confidence for look in looks[-FRUITLESS:])
        if certain or (there and fruitless):
            break
    remark = "" if certain else _remark(decided.decision, size < len(order))
    if remark:
        said = replace(decided.decision, sentences=(*decided.decision.sentences, remark))
        decided = replace(decided, decision=said)
    scores = score_prepared(part, encoder, store, settings).with_decision(decided, "benefit")
    return Settled(scores, tuple(looks), certain, confidence, len(order), remark)


def _in_order(records: Records, labels: Labels | None, seed: int) -> Rows:
    """Records in a random order, those whose query has a label first."""
    order = np.random.default_rng([seed, 7]).permutation(len(records))
    if labels is None:
        return order
    judged = np.isin(records.queries[order], records.collection.query_rows(labels.table["query_id"]))
    return np.concatenate([order[judged], order[~judged]])


def _look(decided: Decided, records: int) -> DecisionLook:
    decision = decided.decision
    return DecisionLook(
        records, decision.source, decision.best_with_probability, decision.matters, decision.attainable
    )  # fmt: skip


def _remark(decision: Decision, more: bool) -> str:
    """Why a decision is not certain, and what would help."""
    known = (
        f"More records would hardly make it surer: with any number of them no source is likely to be the best with a "
        f"probability above {decision.attainable:.2f}."
        if more
        else "All records were looked at."
    )
    if decision.label_next == 0:
        return f"{known} What is left is how well the benefit foresees training."
    return f"{known} What is missing is labels."
