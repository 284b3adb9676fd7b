"""What a scoring says of each source, and the sources' order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foils.runtime.files import without_nan, write_text
from foils.runtime.results import Result, Table
from foils.scoring.eci import MARGINS
from foils.scoring.information import TargetMoments
from foils.scoring.intervals import Bootstrap
from foils.scoring.prepared import Measured
from foils.scoring.settings import ScoreSettings

if TYPE_CHECKING:
    from foils.scoring.ablations import Ablations
    from foils.scoring.audit import Suspect
    from foils.scoring.certainty import Certainty
    from foils.scoring.curve import Curve
    from foils.scoring.deciding import Decided
    from foils.scoring.decision import Decision
    from foils.scoring.until import Settled

_OF_WORTH = (
    "false_share", "false_share_low", "false_share_high", "strength", "learnability", "benefit", "benefit_low",
    "benefit_high", "best_with_probability", "verdict", "false_share_by_labels", "false_share_by_labels_low",
    "false_share_by_labels_high", "contradicted", "false_share_skewed", "outside",
)  # fmt: skip
LONGER = 1.5  # times the negatives a query of the shortest source, above which benefits are of different lengths
ALIKE = 0.9  # share of the records that every source has, below which their scores are of different queries


@dataclass(frozen=True)
class SourceScore:
    """Everything said of one source, hybrid or control; the fields are those of scores.json.

    Attributes:
        records: with at least one of its negatives. `negatives`: N. `dropped`: reason -> number left out (see
            `make_records`).
        eci_sem: log det(Id + I/λ). `eci_sem_low`, `eci_sem_high`: interval of the score that many records like these
            would have (NaN: fewer than two blocks of records). `eci_sem_bias`: eci_sem less that score, as the
            jackknife estimates it. `interval_covers`: whether the interval covers as often as `confidence` says, which
            it does not where the bias is above 2 standard errors (a small λ, few records).
        trace: tr I/λ, what the score would be without diversity. `diversity`: their difference, in [0, trace].
        effective_rank: of I.
        eci, signal, margin: ECI of the data set, with the margin of triplets, the reading that fits the published
            tables. `eci_per_query`: mean of each record's own. `eci_list`, `eci_list_per_query`, `margin_list`: the
            same with the margin of the list's hardest negative, the published text (`foils.scoring.eci.MARGINS`).
        control_ratio: score over the control's, with its interval; NaN without a control.
        easy: the score is not clearly below the control's: such negatives are easy, not good. A hybrid is easy,
            too, when one of its parts is: the score of a union is about the mean of its parts' scores.
        false_share, …, verdict: what the decision says of it (`SourceWorth`); NaN and empty where nothing was decided.
    """

    name: str
    hybrid: bool
    records: int
    negatives: int
    dropped: dict[str, int]
    eci_sem: float
    eci_sem_low: float
    eci_sem_high: float
    eci_sem_bias: float
    interval_covers: bool
    eci_sem_per_dim: float
    trace: float
    diversity: float
    effective_rank: float
    eci: float
    eci_per_query: float
    signal: float
    margin: float
    eci_list: float
    eci_list_per_query: float
    margin_list: float
    rho: float
    eta: float
    coverage: float
    psi: float
    pair_loss: float
    inversion_rate: float
    gradient_energy: float
    mnrl_proxy: float
    ambiguity: float
    buckets: dict[str, float]
    control_ratio: float = math.nan
    control_ratio_low: float = math.nan
    control_ratio_high: float = math.nan
    easy: bool = False
    false_share: float = math.nan
    false_share_low: float = math.nan
    false_share_high: float = math.nan
    strength: float = math.nan
    learnability: float = math.nan
    benefit: float = math.nan
    benefit_low: float = math.nan
    benefit_high: float = math.nan
    best_with_probability: float = math.nan
    verdict: str = ""
    false_share_by_labels: float = math.nan
    false_share_by_labels_low: float = math.nan
    false_share_by_labels_high: float = math.nan
    contradicted: bool = False
    false_share_skewed: float = math.nan
    outside: float = 0.0

    def interval_text(self) -> str:
        """Return the interval of ECI_sem as text: an en dash where there is none, a remark where it falls short."""
        if math.isnan(self.eci_sem_low):
            return "–"
        text = f"{self.eci_sem_low:.4f}–{self.eci_sem_high:.4f}"
        return text if self.interval_covers else f"{text} (does not cover)"

    def to_json(self) -> dict[str, Any]:
        """Return the fields, with null for what is NaN or infinite."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }


@dataclass(frozen=True)
class Scores(Result):
    """Scores of several sources.

    Attributes:
        settings: they were made with. `encoder`: name, fingerprint and dimension.
        sources: the sources, then the hybrids.
        control: the random control, or None.
        idf_corpus: kind, number of texts, digest.
        collection: name and digest.
        measured: what lies behind, not part of scores.json.
        moments: information sums, for other λ. `replicates`: of the bootstrap.
        certainty: how the ranking, or the decision, became certain, where samples were scored until it was.
        ablations: the scores under other settings, where they were asked for.
        suspects: negatives that look most like unlabelled positives, where they were asked for.
        decided: the decision and what it rests on, where it was made.
        curves: what parts of sources are worth, where that was asked for.
        rank_by: what the ranking goes by: benefit, eci_sem or eci.
    """

    settings: ScoreSettings
    encoder: Mapping[str, Any]
    sources: list[SourceScore]
    control: SourceScore | None
    idf_corpus: Mapping[str, Any]
    collection: Mapping[str, str]
    measured: Measured = field(repr=False)
    moments: TargetMoments = field(repr=False)
    replicates: Bootstrap = field(repr=False)
    certainty: Certainty | Settled | None = field(default=None, repr=False)
    ablations: Ablations | None = field(default=None, repr=False)
    suspects: Sequence[Suspect] = field(default=(), repr=False)
    decided: Decided | None = field(default=None, repr=False)
    curves: Sequence[Curve] = field(default=(), repr=False)
    rank_by: str = "eci_sem"

    @property
    def decision(self) -> Decision | None:
        """What to train on, how surely, and where that would turn; None where nothing was decided."""
        return None if self.decided is None else self.decided.decision

    def with_decision(self, decided: Decided, rank_by: str) -> Scores:
        """Return the scores with a decision, and each source with what the decision says of it."""

        def with_worth(score: SourceScore) -> SourceScore:
            worth = decided.decision.worths.get(score.name)
            return score if worth is None else replace(score, **{name: getattr(worth, name) for name in _OF_WORTH})

        control = None if self.control is None else with_worth(self.control)
        return replace(
            self,
            sources=[with_worth(score) for score in self.sources],
            control=control,
            decided=decided,
            rank_by=rank_by,
        )

    @property
    def unequal_lengths(self) -> list[str]:
        """What a reader of the decision has to know where the sources' lists are of different lengths; else nothing."""
        lengths = [each.negatives / max(1, each.records) for each in self.sources if not each.hybrid]
        if not self.decision or max(lengths) <= LONGER * min(lengths):
            return []
        return [
            f"the sources have {min(lengths):.0f} to {max(lengths):.0f} negatives a query, and a longer list is worth "
            "more for its length alone; decide between lists of equal length, as the training takes them"
        ]

    @property
    def warnings(self) -> list[str]:
        """What a reader of the scores has to know, in sentences."""
        found = []
        records = self.measured.records
        if (shared := len(records.shared())) < ALIKE * len(records):
            found.append(
                f"the sources do not cover the same records: {shared:,} of {len(records):,} are in every source; "
                "compare scores with the numbers of records in view, or score the shared records alone (--shared)"
            )
        found += self.unequal_lengths
        every = [*self.sources, *([self.control] if self.control else [])]
        if short := [each.name for each in every if not math.isnan(each.eci_sem_low) and not each.interval_covers]:
            found.append(
                f"does not cover: at λ {self.settings.regularization:g} the score of so few records lies more than two "
                f"standard errors below that of many, and the interval is too narrow ({', '.join(short)}); score more "
                "records or choose a larger λ"
            )
        return found

    @property
    def ranking(self) -> list[str]:
        """Names of sources and hybrids by what `rank_by` says, highest first, ties in the order given."""
        return [score.name for score in self.ranked]

    @property
    def ranked(self) -> list[SourceScore]:
        """Sources and hybrids in that order."""
        return sorted(self.sources, key=lambda score: -_finite(getattr(score, self.rank_by)))

    def tables(self) -> list[Table]:
        """Return how certain the ranking is, the ranking, ablations and suspects, those that there are."""
        from foils.scoring.curve_shown import curve_table
        from foils.scoring.tables import (
            ablation_tables,
            decision_table,
            ranking_table,
            suspects_table,
        )

        return [
            *([decision_table(self)] if self.decision else []),
            *(curve_table(curve, self.settings.confidence) for curve in self.curves),
            *([self.certainty.table()] if self.certainty else []),
            ranking_table(self),
            *(ablation_tables(self.ablations) if self.ablations else []),
            *([suspects_table(self.suspects)] if self.suspects else []),
        ]

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        from foils.scoring.page import score_page

        write_text(path, score_page(self))

    def to_json(self) -> dict[str, Any]:
        """Return scores.json."""
        more = {
            **({"certainty": self.certainty.to_json()} if self.certainty else {}),
            **({"curves": [curve.to_json() for curve in self.curves]} if self.curves else {}),
            **({"ablations": self.ablations.to_json()} if self.ablations else {}),
            **({"audit": [suspect.to_json() for suspect in self.suspects]} if self.suspects else {}),
        }
        return {
            "encoder": self.encoder["name"],
            "fingerprint": self.encoder["fingerprint"],
            "dim": self.encoder["dimension"],
            "collection": dict(self.collection),
            "split": self.settings.split,
            "temperature": self.settings.temperature,
            "lambda": self.settings.regularization,
            "records": len(self.measured.records),
            "shared_records": len(self.measured.records.shared()),
            "sample": self.settings.sample,
            "shared": self.settings.shared,
            "seed": self.settings.seed,
            "confidence": self.settings.confidence,
            "tokenizer": self.settings.tokenizer,
            "idf_corpus": dict(self.idf_corpus),
            "warnings": self.warnings,
            "margins": {"eci": MARGINS["triplet"], "eci_list": MARGINS["list"]},
            "sources": [score.to_json() for score in self.sources],
            "control": self.control.to_json() if self.control else None,
            "ranked_by": self.rank_by,
            "ranking": self.ranking,
            **without_nan({"decision": self.decision.to_json() if self.decision else None, **more}),
        }


def _finite(value: float) -> float:
    """The value, or −∞ where it is NaN: what is not known comes last."""
    return -math.inf if math.isnan(value) else value
