"""How sources are scored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from foils.errors import InputError
from foils.score.gates import check_temperature
from foils.score.information import check_regularization


@dataclass(frozen=True)
class ScoreSettings:
    """How sources are scored.

    Attributes:
        split: whose positives.
        hybrids: score unions of up to this many sources; 1: none.
        temperature: τ, divides similarities.
        regularization: λ of log det(Id + I/λ).
        sample: number of records, seeded, those that every source covers first; None: all.
        shared: only the records that every source covers.
        tokenizer: of the lexical coverage, a name of `foils.data.tokens.TOKENIZERS`.
        idf_corpus: a name of `foils.score.lexical.IDF_CORPORA`.
        control: score random negatives beside the sources.
        replicates: of the bootstrap over blocks of records.
        confidence: of the intervals.
        seed: of sample, control, blocks and bootstrap.
    """

    split: str = "train"
    hybrids: int = 2
    temperature: float = 0.05
    regularization: float = 1.0
    sample: int | None = None
    shared: bool = False
    tokenizer: str = "alphanumeric"
    idf_corpus: str = "pooled"
    control: bool = True
    replicates: int = 1000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        check_temperature(self.temperature)
        check_regularization(self.regularization)
        if not 0 < self.confidence < 1:
            raise InputError(f"confidence {self.confidence}; expected a share between 0 and 1")
        if self.hybrids < 1:
            raise InputError(f"hybrids {self.hybrids}; expected 1 (none) or the largest number of sources to unite")
        if self.sample is not None and self.sample < 1:
            raise InputError(f"sample {self.sample}; expected at least 1 record")
        if self.replicates < 0:
            raise InputError(f"replicates {self.replicates}; expected 0 (no intervals) or more")
        if self.seed < 0:
            raise InputError(f"seed {self.seed}; expected 0 or above")

    def preparation(self) -> dict[str, Any]:
        """Return the settings that `prepare` takes."""
        names = ("split", "sample", "shared", "control", "tokenizer", "idf_corpus", "seed")
        return {name: getattr(self, name) for name in names}
