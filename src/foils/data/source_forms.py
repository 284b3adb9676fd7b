"""What a record of a training tool's form says of a query and its documents (see `foils.data.forms`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from foils.data.lines import text_field
from foils.data.pair_columns import NAMES, NEGATIVE, OF_SOURCE, plain


@dataclass(frozen=True)
class Given:
    """A document as a record gives it: text and id None where they are none, score None where there is none."""

    text: str | None
    doc_id: str | None = None
    score: float | None = None


@dataclass(frozen=True)
class Said:
    """What a record says.

    Attributes:
        query: its text; None: no text.
        positives, negatives: documents.
        unlabelled: documents of which it has scores, and not which they are; the collection knows the positives.
    """

    query: str | None
    positives: Sequence[Given] = ()
    negatives: Sequence[Given] = ()
    unlabelled: Sequence[Given] = ()


def holds_training(columns: Iterable[str]) -> bool:
    """Tell whether a table with these columns is one of `read_records`: labels or scores stand in lists, or alone."""
    names = set(columns)
    return bool(names & {"scores", "labels", "neg_scores", "pos_doc", "positive_messages"}) or (
        bool(names & {"label", "score"}) and {"anchor", "document"} <= names
    )


def read_record(record: Mapping[str, Any]) -> Said | str:
    """Return what a record says, or, as a text, what is wrong with it."""
    if "positive_messages" in record:
        said = _of_messages(record)
    elif {"pos_doc", "neg_doc"} & record.keys():
        said = _of_documents(record)
    elif {"label", "labels", "score"} & record.keys() or "documents" in record:
        said = _of_labels(record)
    else:
        said = _of_columns(record)
    if said is None or said.query is None:
        return (
            "expected query (or anchor, question), positive, and negative or negative_1, negative_2, …; or query, "
            "documents and as many labels, numbers of which 0 is a negative's, or scores. Say other names of columns: "
            f"{OF_SOURCE}"
        )
    if any(each.score is not None and each.score != each.score for each in (*said.positives, *said.negatives)):
        return "expected as many scores, finite numbers, as documents: the positive's, then the negatives'"
    return said


def _of_columns(record: Mapping[str, Any]) -> Said | None:
    """Triplets, n-tuples, FlagEmbedding: the texts of negative, negative_1, … or neg, in order."""
    columns = sorted(
        (key for key in record if plain(key) in NAMES["negative"] or NEGATIVE.fullmatch(plain(key))),
        key=lambda key: (len(key), key),
    )
    if not columns:
        return None
    positives, negatives = _texts(record, ["positive", "pos"]), _texts(record, columns)
    scores = record.get("scores")
    if scores is None:
        of_positives, of_negatives = record.get("pos_scores"), record.get("neg_scores")
    else:
        listed = scores if isinstance(scores, list) else []
        of_positives, of_negatives = listed[: len(positives)], listed[len(positives) :]
    return Said(_query(record), _with_scores(positives, of_positives), _with_scores(negatives, of_negatives))


def _of_labels(record: Mapping[str, Any]) -> Said | None:
    """Labelled pairs and lists: the documents whose label is 0; with scores in place of labels, all of them."""
    query = _query(record)
    several = {"labels", "scores", "documents"} & record.keys()
    documents = record.get("documents") if several else [record.get("document")]
    scored = not {"label", "labels"} & record.keys()
    names = ("scores", "score") if scored else ("labels", "label")
    values = record.get(names[0]) if several else [record.get(names[1])]
    if not isinstance(documents, list) or not isinstance(values, list) or len(documents) != len(values):
        return None
    numbers = [number(value) for value in values]
    texts = [text_field(text) for text in documents]
    if None in numbers:
        return None
    if scored:
        return Said(query, unlabelled=[Given(text, None, of) for text, of in zip(texts, numbers, strict=True)])
    return Said(query, negatives=[Given(text) for text, of in zip(texts, numbers, strict=True) if of == 0])


def _of_documents(record: Mapping[str, Any]) -> Said | None:
    """NeMo AutoModel: pos_doc and neg_doc, each a text, or a dictionary with a text, or a list of them."""

    def given(value: Any) -> list[Given]:
        listed = value if isinstance(value, list) else [] if value is None else [value]
        parts = [each if isinstance(each, dict) else {"text": each} for each in listed]
        return [
            Given(text_field(each.get("text")), text_field(each.get("id")) or None, _score(each.get("score")))
            for each in parts
        ]

    return Said(_query(record), given(record.get("pos_doc")), given(record.get("neg_doc")))


def _of_messages(record: Mapping[str, Any]) -> Said | None:
    """ms-swift: messages, positive_messages, negative_messages; or one document with a label.

    A whole number is 0 for a negative, anything else a score: 1.0 is one.
    """

    def content(messages: Any) -> str | None:
        last = messages[-1] if isinstance(messages, list) and messages else None
        return text_field(last.get("content")) if isinstance(last, dict) else None

    query = content(record.get("messages"))
    positives, negatives = record["positive_messages"], record.get("negative_messages") or []
    if not isinstance(positives, list) or not isinstance(negatives, list):
        return None
    documents = [Given(content(each)) for each in positives]
    if "label" not in record:
        return Said(query, documents, [Given(content(each)) for each in negatives])
    label = number(record["label"])
    if label is None or len(documents) != 1:
        return None
    if isinstance(record["label"], int):
        return Said(query, negatives=documents if label == 0 else ())
    return Said(query, unlabelled=[Given(documents[0].text, None, label)])


def _query(record: Mapping[str, Any]) -> str | None:
    """The text under the first key by which queries are known."""
    return next((text_field(value) for key, value in record.items() if plain(key) in NAMES["query"]), None)


def _texts(record: Mapping[str, Any], names: Sequence[str]) -> list[str | None]:
    values = [record[name] for name in names if name in record]
    return [text_field(each) for value in values for each in (value if isinstance(value, list) else [value])]


def _with_scores(texts: Sequence[str | None], scores: Any) -> list[Given]:
    """Texts with their scores; NaN for each where there are not as many numbers."""
    if scores is None:
        return [Given(text) for text in texts]
    if not isinstance(scores, list) or len(scores) != len(texts):
        return [Given(text, None, float("nan")) for text in texts]
    return [Given(text, None, _score(score, float("nan"))) for text, score in zip(texts, scores, strict=True)]


def _score(value: Any, otherwise: float | None = None) -> float | None:
    found = number(value)
    return otherwise if found is None else found


def number(value: object) -> float | None:
    """Return a JSON number, NaN included, as a float, or None for infinities and what is no number."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        known = float(value)
    except OverflowError:
        return None
    return None if np.isinf(known) else known
