"""The gates of ECI_sem, its simplifications, and what lies behind a score. Symbols follow the paper.

The coverage C says how much of a query's tokens, by idf, a negative repeats.

s_p = u·v⁺, s_n = u·v⁻, s_pn = v⁺·v⁻ are inner products of unit vectors; every array is (m,), one
entry a triplet.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import expit, log_expit

from foils.data.collection import Rows
from foils.data.tokens import TOKENIZERS, inverse_document_frequency
from foils.encode.tokens import Texts
from foils.encode.vectors import text_keys
from foils.runtime import progress
from foils.scoring.triplets import Records

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import CountVectorizer

_SLICE = 10_000  # texts that are tokenised together
_TRIPLETS = 65_536  # whose tokens are compared together

Float64s = npt.NDArray[np.float64]
Marks = npt.NDArray[np.bool_]


def target_consistency(s_p: Float64s, s_n: Float64s, temperature: float) -> Float64s:
    """Return ρ = σ((s_p − s_n)/τ) in [0, 1]: does the encoder prefer the positive? (ECI_sem eq. 5)."""
    return np.asarray(expit((s_p - s_n) / temperature))


def semantic_locality(s_pn: Float64s, s_n: Float64s, temperature: float) -> Float64s:
    """Return η = σ((s_pn − s_n)/τ) in [0, 1]: is the negative nearer the positive than the query?

    ECI_sem eq. 6.
    """
    return np.asarray(expit((s_pn - s_n) / temperature))


def pair_loss(s_p: Float64s, s_n: Float64s, temperature: float) -> Float64s:
    """Return −log ρ, the two-document contrastive loss, in a form that does not overflow."""
    return np.asarray(-log_expit((s_p - s_n) / temperature))


@dataclass(frozen=True)
class Similarities:
    """Similarities and gates of triplets, on which a weighting may depend.

    Attributes:
        s_p, s_n, s_pn: (m,) u·v⁺, u·v⁻ and v⁺·v⁻.
        coverage: (m,) C in [0, 1].
        distance: (m,) ‖v⁺ − v⁻‖².
        temperature: τ of the gates.
    """

    s_p: Float64s
    s_n: Float64s
    s_pn: Float64s
    coverage: Float64s
    distance: Float64s
    temperature: float

    @cached_property
    def rho(self) -> Float64s:
        """(m,) ρ, the target consistency."""
        return target_consistency(self.s_p, self.s_n, self.temperature)

    @cached_property
    def eta(self) -> Float64s:
        """(m,) η, the semantic locality."""
        return semantic_locality(self.s_pn, self.s_n, self.temperature)

    @property
    def psi(self) -> Float64s:
        """(m,) ψ = 1 − C (ECI_sem eq. 8)."""
        return 1 - self.coverage


def gated(similarities: Similarities) -> Float64s:
    """Return w = ρ·η·ψ: full ECI_sem (before eq. 10)."""
    return similarities.rho * similarities.eta * similarities.psi


def residual_only(similarities: Similarities) -> Float64s:
    """Return ω = 1 (Table 4)."""
    return np.ones_like(similarities.s_n)


def margin_hardness(similarities: Similarities) -> Float64s:
    """Return ω = (1−ρ)²/τ² · ‖v⁺ − v⁻‖², the energy of the local query gradient (eq. 24, Table 4)."""
    return ((1 - similarities.rho) / similarities.temperature) ** 2 * similarities.distance


def gradient_weighted(similarities: Similarities) -> Float64s:
    """Return ω = (1−ρ)²/τ² · ‖v⁺ − v⁻‖² · η · ψ (Table 4)."""
    return margin_hardness(similarities) * similarities.eta * similarities.psi


WEIGHTINGS: dict[str, Callable[[Similarities], Float64s]] = {
    "gated": gated,
    "residual_only": residual_only,
    "gradient_weighted": gradient_weighted,
    "margin_hardness": margin_hardness,
}


BUCKETS: dict[str, Callable[[Similarities], Marks]] = {
    "inverted": lambda gates: gates.rho < 0.5,
    "not_local": lambda gates: gates.eta <= 0.25,
    "high_coverage": lambda gates: gates.coverage >= 0.5,
    "valid_high_coverage": lambda gates: (gates.rho >= 0.75) & (gates.eta >= 0.75) & (gates.coverage >= 0.5),
    "valid_not_local": lambda gates: (gates.rho >= 0.75) & (gates.psi >= 0.75) & (gates.eta <= 0.25),
}
"""Failure buckets of Table 7, in its order: ρ < 0.5; η ≤ 0.25; C ≥ 0.5; and two that the gates may wrong."""


def triplet_means(gates: Similarities, member: Marks) -> dict[str, Any]:
    """Average the gates over one source's triplets, by the names of scores.json; `member` (m,) marks them.

    Mean ρ, η, C, ψ and −log ρ (`pair_loss`), the share with ρ < 0.5 (`inversion_rate`), and
    `buckets`, in percent.
    """
    means = {name: float(getattr(gates, name)[member].mean()) for name in ("rho", "eta", "coverage", "psi")}
    means["pair_loss"] = float(pair_loss(gates.s_p[member], gates.s_n[member], gates.temperature).mean())
    means["inversion_rate"] = float((gates.rho[member] < 0.5).mean())
    return {**means, "buckets": {name: 100 * float(rule(gates)[member].mean()) for name, rule in BUCKETS.items()}}


def mnrl_proxy(record: Rows, s_n: Float64s, s_p: Float64s, temperature: float) -> Float64s:
    """Return −log P_+ of each record that has a negative: the listwise loss at τ over positive and negatives.

    Args:
        record: (k,) record of each of a source's negatives, ascending.
        s_n: (k,) similarity of query and negative.
        s_p: (T,) similarity of query and positive.
        temperature: τ.
    """
    records, start = np.unique(record, return_index=True)
    positive = s_p[records] / temperature
    logits = s_n / temperature
    top = np.maximum(np.maximum.reduceat(logits, start), positive)
    spread = np.exp(logits - np.repeat(top, np.diff(np.r_[start, len(record)])))
    return np.asarray(top + np.log(np.add.reduceat(spread, start) + np.exp(positive - top)) - positive)


def ambiguous(record: Rows, s_n: Float64s, s_p: Float64s) -> Marks:
    """Return for each record that has a negative whether one of them scores above the positive."""
    records, start = np.unique(record, return_index=True)
    return np.asarray(np.maximum.reduceat(s_n, start) > s_p[records])


@dataclass(frozen=True)
class Lexicon:
    """Token sets of the records' queries and of the pooled texts, over the queries' vocabulary.

    Only tokens of queries count in the coverage, so no other is kept.

    Attributes:
        queries: (T, vocabulary) sparse, 1 where the query has the token; the tokens are in the
            order in which they first come.
        texts: (P, vocabulary) the same of the pooled texts.
    """

    queries: sparse.csr_array
    texts: sparse.csr_array

    @classmethod
    def of(cls, records: Records, *, tokenizer: str = "alphanumeric") -> Lexicon:
        """Tokenise queries and pooled texts, by a name of `foils.data.tokens.TOKENIZERS`."""
        from sklearn.feature_extraction.text import CountVectorizer

        tokens, queries = TOKENIZERS[tokenizer], records.collection.query_texts(records.queries)
        # sklearn wants at least one word.
        words = [*dict.fromkeys(token for query in queries for token in tokens(query))] or [""]
        counter = CountVectorizer(analyzer=tokens, vocabulary=words, binary=True, dtype=np.float64)
        return cls(*(_sets(texts, counter) for texts in (queries, records.texts)))

    def coverage(self, records: Records, idf: Float64s) -> Float64s:
        """Return C = Σ_{a∈T(q)∩T(n)} idf(a) / Σ_{a∈T(q)} idf(a) of triplets, (m,) in [0, 1] (ECI_sem eq. 7).

        0 where the query has no token. Weights are non-negative, since idf ≥ 1 − ln 2 > 0.
        """
        shared, below = np.empty(len(records.record)), (self.queries @ idf)[records.record]
        for start in range(0, len(shared), _TRIPLETS):
            part = slice(start, start + _TRIPLETS)
            both = self.queries[records.record[part]].multiply(self.texts[records.document[part]])
            shared[part] = both @ idf
        coverage: Float64s = np.divide(shared, below, out=np.zeros(len(shared)), where=below > 0)
        return np.minimum(coverage, 1.0)

    def idf(self, corpus: Rows) -> Float64s:
        """Return idf (vocabulary,) over texts of the pool.

        Args:
            corpus: (c,) their places; published scores take `Records.corpus`.
        """
        texts = self.texts[corpus]
        return inverse_document_frequency(np.bincount(texts.indices, minlength=texts.shape[1]), len(corpus))


def digest_of_texts(texts: Texts) -> str:
    """Return a digest of texts in any order."""
    keys = [text_keys(texts[start : start + _SLICE], "") for start in range(0, len(texts), _SLICE)]
    every = np.concatenate(keys) if keys else np.zeros((0, 2), np.uint64)
    return hashlib.blake2b(every[np.lexsort(every.T)].tobytes(), digest_size=16).hexdigest()


def _sets(texts: Texts, counter: CountVectorizer) -> sparse.csr_array:
    def every() -> Iterator[str]:
        with progress.task("tokenising", total=len(texts), unit="texts") as advance:
            for start in range(0, len(texts), _SLICE):
                part = texts[start : start + _SLICE]
                yield from part
                advance(len(part))

    return sparse.csr_array(counter.transform(every()))
