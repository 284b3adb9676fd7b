"""The random control: negatives drawn from the texts of the sources, beside which easy sources show themselves."""

from __future__ import annotations

import numpy as np

from foils.data.collection import Rows
from foils.data.run import ranks_within


def draw_control(
    sources: list[tuple[Rows, Rows]], corpus: Rows, labelled: Rows, rng: np.random.Generator
) -> tuple[Rows, Rows]:
    """Draw for each record as many texts of the corpus as the sources have on average, none of them a positive."""
    wanted = max(1, round(float(np.mean([len(record) / len(np.unique(record)) for record, _ in sources]))))
    have = np.unique(np.concatenate([record for record, _ in sources]))
    record = np.repeat(have, 2 * wanted + 8)
    document = corpus[rng.integers(len(corpus), size=len(record))]
    fresh = ~np.isin(pair_codes(record, document), labelled)
    _, first = np.unique(pair_codes(record, document), return_index=True)
    distinct = np.zeros(len(record), bool)
    distinct[first] = True
    record, document = record[fresh & distinct], document[fresh & distinct]
    enough = ranks_within(record) < wanted
    record, document = record[enough], document[enough]
    short = have[np.bincount(np.searchsorted(have, record), minlength=len(have)) < wanted]
    full = ~np.isin(record, short)
    records, documents = [record[full]], [document[full]]
    for each in short:  # a small corpus: draw from all that it has
        free = corpus[~np.isin(pair_codes(np.full(len(corpus), each), corpus), labelled)]
        documents.append(rng.permutation(free)[:wanted])
        records.append(np.full(len(documents[-1]), each))
    return np.concatenate(records), np.concatenate(documents)


def pair_codes(record: Rows, document: Rows) -> Rows:
    """Return one number for each pair of a record and a text, (n,)."""
    return (record << 32) | document
