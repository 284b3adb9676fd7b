"""The forms that training tools read: one dictionary, and for each form a small function of a query's group.

A record's texts are what the group has: texts in files, references in a data set that reads them later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from foils.data.training_data import Group, Passage

Record = dict[str, Any]


@dataclass(frozen=True)
class Form:
    """A form of JSON lines.

    Attributes:
        tool: what reads it.
        records: yields the records of a group; the number is of negatives in an n-tuple.
        by_positive: whether a group is a labelled pair with its negatives, or a query with all its positives.
        flat: whether texts stand in columns of their own, so that a data set can hold references in their place.
        scores: what it does with scores: they "may" go along, "must", or "cannot".
    """

    tool: str
    records: Callable[[Group, int], Iterator[Record]]
    by_positive: bool = False
    flat: bool = True
    scores: str = "may"


def triplets(group: Group, _: int) -> Iterator[Record]:
    """Yield anchor, positive, negative: one for each negative; with scores, the positive's and its own."""
    (positive,) = group.positives
    for each in group.negatives:
        record = {"anchor": group.query, "positive": positive.whole, "negative": each.whole}
        yield {**record, **_scores(group, [positive.score, each.score])}


def tuples(group: Group, number: int) -> Iterator[Record]:
    """Yield anchor, positive, negative_1 … negative_n, where there are n; with scores, theirs, the positive's first."""
    if len(group.negatives) >= number:
        chosen = group.negatives[:number]
        named = {f"negative_{at}": each.whole for at, each in enumerate(chosen, 1)}
        record = {"anchor": group.query, "positive": group.positives[0].whole, **named}
        yield {**record, **_scores(group, [each.score for each in (*group.positives, *chosen)])}


def labelled_pairs(group: Group, _: int) -> Iterator[Record]:
    """Yield anchor, document, label: each positive with 1, then each negative with 0; or its score."""
    for label, documents in ((1, group.positives), (0, group.negatives)):
        for each in documents:
            record = {"anchor": group.query, "document": each.whole}
            yield {**record, **({"score": each.score} if group.scored else {"label": label})}


def labelled_lists(group: Group, _: int) -> Iterator[Record]:
    """Yield anchor, documents, labels: positives (1) before negatives (0); or their scores."""
    documents = [each.whole for each in (*group.positives, *group.negatives)]
    labels = {"labels": [1] * len(group.positives) + [0] * len(group.negatives)}
    yield {"anchor": group.query, "documents": documents, **(_scores(group, group.scores) or labels)}


def flagembedding(group: Group, _: int) -> Iterator[Record]:
    """Yield query, pos, neg; with scores, pos_scores and neg_scores."""
    record = {"query": group.query, "pos": _texts(group.positives), "neg": _texts(group.negatives)}
    if group.scored:
        record["pos_scores"] = [each.score for each in group.positives]
        record["neg_scores"] = [each.score for each in group.negatives]
    yield record


def tevatron(group: Group, _: int) -> Iterator[Record]:
    """Yield query_id, query, positive_passages, negative_passages: docid, title, text, and a score if there is one."""

    def passage(each: Passage) -> Record:
        score = {"score": each.score} if np.isfinite(each.score) else {}
        return {"docid": each.doc_id, "title": each.title, "text": each.text, **score}

    yield {
        "query_id": group.query_id,
        "query": group.query,
        "positive_passages": [passage(each) for each in group.positives],
        "negative_passages": [passage(each) for each in group.negatives],
    }


def nemo(group: Group, _: int) -> Iterator[Record]:
    """Yield question_id, query, pos_doc, neg_doc, each document with id and text, and with scores, its score."""

    def document(each: Passage) -> Record:
        return {"id": each.doc_id, "text": each.whole, **({"score": each.score} if group.scored else {})}

    yield {
        "question_id": group.query_id,
        "query": group.query,
        "pos_doc": [document(each) for each in group.positives],
        "neg_doc": [document(each) for each in group.negatives],
    }


def ms_swift(group: Group, _: int) -> Iterator[Record]:
    """Yield messages, positive_messages, negative_messages, for InfoNCE, which learns from no scores."""
    yield {
        "messages": _message(group.query),
        "positive_messages": [_message(each.whole) for each in group.positives],
        "negative_messages": [_message(each.whole) for each in group.negatives],
    }


def ms_swift_pairs(group: Group, number: int) -> Iterator[Record]:
    """Yield messages, positive_messages, label: each document in positive_messages, with 1 or 0, or its score."""
    for pair in labelled_pairs(group, number):
        texts = {"messages": _message(pair["anchor"]), "positive_messages": [_message(pair["document"])]}
        yield {**texts, "label": pair.get("label", pair.get("score"))}


def pylate(group: Group, _: int) -> Iterator[Record]:
    """Yield query_id, document_ids, scores: positives before negatives; the texts stand in tables of their own."""
    ids = [each.doc_id for each in (*group.positives, *group.negatives)]
    yield {"query_id": group.query_id, "document_ids": ids, "scores": group.scores}


FORMS: dict[str, Form] = {
    "triplets": Form("sentence-transformers", triplets, by_positive=True),
    "tuples": Form("sentence-transformers", tuples, by_positive=True),
    "labelled-pairs": Form("sentence-transformers", labelled_pairs),
    "labelled-lists": Form("sentence-transformers", labelled_lists),
    "flagembedding": Form("FlagEmbedding", flagembedding),
    "tevatron": Form("Tevatron", tevatron, flat=False),
    "pylate": Form("PyLate", pylate, flat=False, scores="must"),
    "nemo": Form("NeMo AutoModel", nemo, flat=False),
    "ms-swift": Form("ms-swift", ms_swift, by_positive=True, flat=False, scores="cannot"),
    "ms-swift-pairs": Form("ms-swift", ms_swift_pairs, flat=False),
}
"""By name; `foils.data.export` writes them, and of `pylate` the tables of texts, too."""


def _texts(passages: tuple[Passage, ...]) -> list[Any]:
    return [each.whole for each in passages]


def _message(text: str) -> list[Record]:
    return [{"role": "user", "content": text}]


def _scores(group: Group, scores: list[float]) -> Record:
    return {"scores": scores} if group.scored else {}
