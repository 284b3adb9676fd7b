"""Which of the scored negatives are judged, by whom, and with what answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Rows
from foils.data.labels import BETWEEN, CHECKS, Labels, pair_keys
from foils.data.negatives import Negatives, negatives_table
from foils.runtime.errors import InputError
from foils.scoring.answers import Programs
from foils.scoring.compose import triplets_of_rows
from foils.scoring.gates import Float64s
from foils.scoring.records import Records


@dataclass(frozen=True)
class Judged:
    """Judged triplets.

    Attributes:
        triplets: (j,) ascending, each once.
        relevant: (j,) 1 where people call the negative relevant, 0 where they do not, NaN where only programs judged.
        holders: of each the names of the sources from which it was drawn; empty where that is not known.
        probability: (j,) of being drawn and judged by people; NaN where that is not known.
        programs: that judged.
        answers: (j, P) theirs, 1, 0 or NaN.
    """

    triplets: Rows
    relevant: Float64s
    probability: Float64s
    holders: tuple[frozenset[str], ...]
    programs: Programs
    answers: Float64s

    @classmethod
    def of(cls, labels: Any, records: Records) -> Judged:
        """Return what labels, or a file of them, say of the records' triplets; None: nothing.

        Raises:
            InputError: labels that cannot be read, none that is judged, or none of these records.
        """
        if labels is None:
            return cls(np.zeros(0, np.int64), np.zeros(0), np.zeros(0), (), Programs(), np.zeros((0, 0)))
        given = Labels.of(labels, records.collection)
        names = given.programs()
        relevant, probability = given.match(given.table)
        answers = np.column_stack(
            [np.zeros((len(given), 0)), *(given.match(given.table, judge=name)[0] for name in names)]
        )
        anybody = ~np.isnan(relevant) | ~np.isnan(answers).all(axis=1) if names else ~np.isnan(relevant)
        if not anybody.any():
            raise InputError("labels without a judgement; judge some pairs first (foils label), or leave them out")
        triplet = _triplets(given, records)
        anybody &= [of not in CHECKS for of in given.table["sources"].to_pylist()]
        known = np.flatnonzero((triplet >= 0) & anybody)
        if not len(known):
            raise InputError(
                "none of the judged pairs is a negative of these sources; give the labels that belong to them"
            )
        triplets, first = np.unique(triplet[known], return_index=True)
        rows = known[first]
        checks = np.array([given.checks(name) for name in names], np.float64).reshape(-1, 2, 2)
        right, wrong = checks[:, :, 0], checks[:, :, 1] - checks[:, :, 0]
        programs = Programs(tuple(names), *(np.stack([right[:, at], wrong[:, at]], axis=1) for at in (0, 1)))
        drawn_from = given.table["sources"].to_pylist()
        holders = tuple(frozenset((drawn_from[row] or "").split(BETWEEN)) for row in rows)
        return cls(triplets, relevant[rows], probability[rows], holders, programs, answers[rows])


def _triplets(given: Labels, records: Records) -> Rows:
    """(n,) the triplet of each label, −1 where there is none."""
    codes = np.asarray(pair_keys(given.table).combine_chunks().dictionary_encode().indices, np.int64)
    _, first, pair = np.unique(codes, return_index=True, return_inverse=True)
    pairs, zeros = given.table.take(pa.array(first)), np.zeros(len(first), np.int64)
    table = negatives_table(pairs["query_id"], pairs["doc_id"], "labels", zeros, zeros)
    return triplets_of_rows(Negatives(table.append_column("text", pairs["text"])), records)[pair]
