"""Exports with scores: every form by hand; read back as a source with its scores, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import foils as library
from foils.data import Collection, Negatives
from foils.data.formats import FORMS
from foils.data.negatives import LABELS, POSITIVE, negatives_table
from foils.data.sources import as_source
from foils.runtime.errors import FormatError, InputError, UnknownNameError

OWN = "Bread is bought."
OF_OWN = {"title": "", "text": OWN}
COSINES = {("q1", "d2"): 0.5, ("q1", "d10"): 0.25, ("q2", "d5"): 0.125, ("q2", "llm:1"): -0.5}
OF_POSITIVES = {("q1", "d1"): 0.75, ("q1", "d3"): 0.625, ("q2", "d4"): 1.0}


@pytest.fixture
def scored() -> Negatives:
    """Cosines of four negatives, one with a text of its own, and of three positives; one row rejected by a rule."""
    ids = [pa.array(column) for column in zip(*COSINES, ("q2", "d6"), strict=True)]
    table = negatives_table(*ids, "x", [0, 1, 0, 1, 2], np.full(5, np.nan))
    table = table.append_column("text", pa.array([None, None, None, OWN, None], pa.large_string()))
    table = table.append_column("cosine", pa.array([*COSINES.values(), 0.0]))
    negatives = Negatives(table).reject(np.arange(5) == 4, "near")
    of = [pa.array(column) for column in zip(*OF_POSITIVES, strict=True)]
    return negatives.with_rejected(*of, values={"cosine": list(OF_POSITIVES.values())})[0]


def text(small: Collection, identifier: str) -> str:
    return OWN if identifier == "llm:1" else small.document_texts(small.document_rows([identifier]))[0]


def by_hand(small: Collection) -> dict[str, list[dict[str, Any]]]:
    made: dict[str, list[dict[str, Any]]] = {form: [] for form in FORMS}
    stored = {row["doc_id"]: row for row in small.documents.to_pylist()}
    for query_id, query in zip(("q1", "q2"), small.query_texts([0, 1]), strict=True):
        positives, negatives = (
            [(key, text(small, key), score) for (of, key), score in scores.items() if of == query_id]
            for scores in (OF_POSITIVES, COSINES)
        )
        sides, anchor = {"pos": positives, "neg": negatives}, {"anchor": query}
        for _, positive, score in positives:
            made["triplets"] += [
                {**anchor, "positive": positive, "negative": each, "scores": [score, own]} for _, each, own in negatives
            ]
            named = {f"negative_{at}": each for at, (_, each, _) in enumerate(negatives, 1)}
            scores = [score, *(own for *_, own in negatives)]
            made["tuples"].append({**anchor, "positive": positive, **named, "scores": scores})
        both = [*positives, *negatives]
        made["labelled-pairs"] += [{**anchor, "document": each, "score": score} for _, each, score in both]
        lists = {"documents": [each for _, each, _ in both], "scores": [score for *_, score in both]}
        made["labelled-lists"].append({**anchor, **lists})
        texts = {name: [each for _, each, _ in side] for name, side in sides.items()}
        scored = {f"{name}_scores": [score for *_, score in side] for name, side in sides.items()}
        made["flagembedding"].append({"query": query, **texts, **scored})
        passages = {
            f"{name}_passages": [
                {"docid": key, **{of: stored.get(key, OF_OWN)[of] for of in ("title", "text")}, "score": score}
                for key, _, score in side
            ]
            for name, side in (("positive", positives), ("negative", negatives))
        }
        made["tevatron"].append({"query_id": query_id, "query": query, **passages})
    return made


@pytest.mark.parametrize("form", FORMS)
def test_records_by_hand(small: Collection, scored: Negatives, tmp_path: Path, form: str) -> None:
    exported = library.export(small, scored, form=form, scores="cosine")
    assert list(exported.records()) == by_hand(small)[form]
    assert exported.write(tmp_path / "out") == len(by_hand(small)[form])
    assert [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()] == by_hand(small)[form]
    assert exported.to_json() == {
        "form": form, "tool": FORMS[form].tool, "scores": "cosine", "split": "train", "queries": 2, "positives": 3,
        "negatives": 4, "records": len(by_hand(small)[form]), "rows_of_other_queries": 0,
    }  # fmt: skip


@pytest.mark.parametrize("form", ["tuples", "labelled-lists", "tevatron"])
def test_frames_and_data_sets(small: Collection, scored: Negatives, form: str) -> None:
    expected = by_hand(small)[form]
    exported = library.export(small, scored, form=form, scores="cosine")
    assert exported.to_arrow().to_pylist() == expected
    pytest.importorskip("datasets")
    assert [exported.dataset()[at] for at in range(len(expected))] == expected


@pytest.mark.parametrize("form", FORMS)
def test_scores_come_back(small: Collection, scored: Negatives, tmp_path: Path, form: str) -> None:
    """As a file and as a table; the positives' scores in rejected rows, so that the same can be exported again."""
    exported = library.export(small, scored, form=form, scores="cosine")
    exported.write(tmp_path / "out")
    for given in (tmp_path / "out", *([] if form == "tevatron" else [exported.to_arrow()])):
        negatives = as_source(given, small).negatives
        rows = [(row["query_id"], text(small, row["doc_id"]) if row["text"] is None else row["text"], row["score"])
                for row in negatives.kept().to_pylist()]  # fmt: skip
        assert rows == [(query, text(small, document), score) for (query, document), score in COSINES.items()]
        rejected = negatives.table.filter(pa.array(~negatives.keep))
        assert {(row["query_id"], row["doc_id"]): row["score"] for row in rejected.to_pylist()} == OF_POSITIVES
        assert {*rejected["source"].to_pylist(), *rejected["reason"].to_pylist()} == {LABELS, POSITIVE}
        again = library.export(small, negatives, form="triplets", scores="score")
        assert list(again.records()) == by_hand(small)["triplets"]


def test_what_cannot_be_exported(small: Collection, scored: Negatives) -> None:
    with pytest.raises(UnknownNameError, match="unknown column of scores 'elo'; expected one of: cosine, score"):
        library.export(small, scored, scores="elo")
    with pytest.raises(InputError, match=r"3 of 3 positives and 4 of 4 .* score both: score_pairs"):
        library.export(small, scored, scores="score")
    without = Negatives(scored.kept())
    with pytest.raises(InputError, match="3 of 3 positives and 0 of 4 negatives have no cosine"):
        library.export(small, without, scores="cosine")
    with pytest.raises(InputError, match=r"number 2: no effect with form triplets; it goes with form tuples"):
        library.export(small, scored, number=2)


@pytest.mark.parametrize(
    "record",
    [
        {"anchor": "Q", "positive": "x", "negative": "y", "scores": [1.0]},
        {"anchor": "Q", "positive": "x", "negative": "y", "scores": [1.0, "2"]},
        {"anchor": "Q", "positive": "x", "negative": "y", "scores": [1.0, float("nan")]},
        {"query": "Q", "pos": ["x"], "neg": ["y", "z"], "pos_scores": [1.0], "neg_scores": [1.0]},
    ],
)
def test_scores_that_are_not_those_of_the_documents(small: Collection, tmp_path: Path, record: dict[str, Any]) -> None:
    key = "query" if "query" in record else "anchor"
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({**record, key: small.query_texts([0])[0]}))
    with pytest.raises(
        FormatError, match=r"a.jsonl:1: (the scores .*; expected finite numbers|expected as many scores, or labels, as)"
    ):
        as_source(path, small)
