"""The plan of a tuning: its decisions with their reasons, and how much is searched in the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from foils.data import Collection, Run
from foils.data.collection import SPLITS
from foils.data.description import drawn_judgements, with_documents
from foils.experiments.tasks import RerankerTask, Task
from foils.runtime import seeds
from foils.runtime.files import digest_of
from foils.runtime.results import Result, Table

Section = Mapping[str, Any]
HARD = 100  # documents of each query that BM25, and the base, rank first: a part of a collection holds them
MOST_DEV = {"encoder": 1_000, "reranker": 200}  # queries that are chosen on
WHOLE_SHARE, BASE_SHARE, DEV_SHARE, TEST_SHARE = 0.1, 0.2, 0.03, 0.15
"""Of the time: what embedding all documents may take for dev to have them all, and for the base to
embed them once; what one measurement on dev takes otherwise; and what test takes of a reranker."""
LEAST_DOCUMENTS, LEAST_QUERIES, LEAST_RERANKED = 2_000, 50, 20
MOST_TRAINED = 3.0
"""Times the time that is left in which a row of each training query has to fit, by what whole
documents and small batches take: that is two to four times what training takes."""
SAMPLE_TEXTS = {"processor": 32, "accelerator": 2_048}
"""Texts that are timed: one batch of an accelerator holds hundreds, and a few would not fill it."""
LEAST = {"train": 20, "dev": 10, "test": 20}
"""Queries of a split below which nothing can be learned, chosen or shown."""


@dataclass
class Plan(Result):
    """Decisions by section, in the order in which they were made; what is there already is not decided again.

    Attributes:
        sections: name → values, one of them the reason; `given` is what the tuning begins with.
    """

    sections: dict[str, Section] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Section:
        return self.sections[name]

    def decide(self, name: str, make: Callable[[], Section]) -> Section:
        """Return a section, made by `make` unless it is there."""
        if name not in self.sections:
            self.sections[name] = make()
        return self.sections[name]

    def to_json(self) -> dict[str, Any]:
        """Return the sections."""
        return {"plan": self.sections}

    def tables(self) -> list[Table]:
        """Return the decisions in words."""
        given = self["given"]
        counts = ", ".join(f"{name} {given[name]:,}" for name in SPLITS if name in given)
        rows = [("given", f"{given['model']} on {given['collection']}" + (f": queries {counts}" if counts else ""))]
        rows += [(name, str(section["reason"])) for name, section in self.sections.items() if name != "given"]
        return [Table("Plan", ["decision", "in words"], rows, words=frozenset({1}))]


def seconds_a_text(task: Task, collection: Collection, seed: int) -> float:
    """Return the seconds that the model takes to embed a document or, of rerankers, to score a pair."""
    from foils.encode.encoder import logits

    rng, model = np.random.default_rng([seed, seeds.TIMED]), task.load()
    count = SAMPLE_TEXTS["processor" if model.device.type == "cpu" else "accelerator"]
    texts = collection.document_texts(rng.integers(len(collection.documents), size=2 * count))
    queries = collection.query_texts(rng.integers(len(collection.queries), size=2 * count))
    for part in (slice(count), slice(count, None)):  # the first warms up
        begin = time.perf_counter()
        if isinstance(task, RerankerTask):
            logits(model, list(zip(queries[part], texts[part], strict=True)))
        else:
            task.encoder.encode(texts[part], "document")
    return (time.perf_counter() - begin) / count


def extent(task: Task, whole: Collection, *, seed: int, seconds: float = np.inf) -> Section:
    """Decide how many documents and queries are searched and trained on: section [data].

    Dev has all documents where embedding them takes a tenth of the time at most. Up to a fifth the
    base embeds them once, so that dev can be a part that is hard for it, too, and test has them
    all. Beyond, both are parts. All queries are trained on, as by `foils train`, unless there is no
    time for a row of each.

    Args:
        task: what is tuned.
        whole: the collection, with three splits.
        seed: of the texts that are timed.
        seconds: that are left; infinity: there is no limit.
    """
    from foils.training.models import FEWEST_STEPS, PLAIN_BATCHES

    reranker = isinstance(task, RerankerTask)
    positives = {name: whole.positives(name) for name in SPLITS}
    queries = {name: len(each) for name, each in positives.items()}
    documents = dev_documents = len(whole.documents)
    queries["dev"] = min(queries["dev"], MOST_DEV["reranker" if reranker else "encoder"])
    timed: dict[str, float] = {}
    reason = "there is no limit of time, so all documents are searched, on dev, too"
    if seconds < np.inf:
        text = seconds_a_text(task, whole, seed)
        fitting = int(MOST_TRAINED * seconds / seconds_a_row(task, text))
        queries["train"] = min(queries["train"], max(FEWEST_STEPS * PLAIN_BATCHES[task.kind], fitting))
        if reranker:
            of_query = text * task.depth
            queries["dev"] = min(queries["dev"], max(LEAST_RERANKED, int(DEV_SHARE * seconds / of_query)))
            queries["test"] = min(queries["test"], max(LEAST_QUERIES, int(TEST_SHARE * seconds / of_query)))
        elif documents * text > WHOLE_SHARE * seconds:
            dev_documents = min(documents, max(LEAST_DOCUMENTS, int(DEV_SHARE * seconds / text)))
            if documents * text > BASE_SHARE * seconds:
                documents = min(documents, max(LEAST_DOCUMENTS, int(WHOLE_SHARE * seconds / text)))
                dev_documents = min(dev_documents, documents)
        timed = {"seconds_a_text": float(f"{text:.3g}")}
        reason = f"reading a text takes {1000 * text:.2g} ms; {seconds:.0f} s are left"
    if queries["train"] < len(positives["train"]):
        reason += f"; {queries['train']:,} of {len(positives['train']):,} training queries are trained on"
    if documents < len(whole.documents):
        reason += f"; test is measured among {documents:,} of {len(whole.documents):,} documents"
    if dev_documents < len(whole.documents):
        hard = f"positives, what BM25 and the base rank first for the queries of dev and test ({HARD} each)"
        reason += f"; dev is measured among {dev_documents:,} or more: {hard}, and random ones"
    queries_of = {f"{name}_queries": count for name, count in queries.items()}
    return {"documents": documents, "dev_documents": dev_documents, **queries_of, **timed, "reason": reason}


def seconds_a_row(task: Task, text: float) -> float:
    """Return the seconds that training on a row takes: its texts or, of a reranker, the pairs of its list.

    Backward takes twice as long as forward.
    """
    return 3 * text * (1 + task.drawn if isinstance(task, RerankerTask) else 2)


def with_queries(collection: Collection, counts: Mapping[str, int], seed: int) -> Collection:
    """Return the collection with judgements of so many queries in some splits, drawn by the seed."""
    drawn = {name: drawn_judgements(collection, name, count, seed) for name, count in counts.items()}
    if all(table is collection.qrels[name] for name, table in drawn.items()):
        return collection
    digest = digest_of([collection.digest, dict(counts), seed], 16)
    return replace(collection, qrels={**collection.qrels, **drawn}, digest=digest)


def resembling(
    collection: Collection,
    kept: Sequence[str],
    ranked: Sequence[Run],
    count: int,
    seed: int,
    *,
    bound: bool = False,
) -> Collection:
    """Return a part of a collection in which searching is about as hard as in the whole.

    It has the positives of some splits, the documents of rankings, and random ones. Where the
    rankings of a system are among them, it has the same first documents in the part as in the
    whole.

    Args:
        collection: the whole.
        kept: splits whose positives are in it.
        ranked: rankings of queries that will be searched for, of BM25 and of the model before
            training: what is hard for one alone would make the other look better than it is.
        count: of documents; positives and what is ranked may be more.
        seed: of the random ones.
        bound: whether what is ranked has no more than three quarters of the room that the positives
            leave: all first ranks come before the second ones.
    """
    if count >= len(collection.documents):
        return collection
    positives = np.unique(np.concatenate([collection.positives(name).pairs()[1] for name in kept]))
    room = max(0, count - len(positives))
    listed = np.concatenate([collection.document_rows(run.table["doc_id"]) for run in ranked])
    ranks = np.concatenate([run.table["rank"].to_numpy() for run in ranked])
    listed = listed[np.argsort(ranks, kind="stable")]
    hard, first = np.unique(listed, return_index=True)
    hard = hard[np.argsort(first)]
    hard = hard[~np.isin(hard, positives)][: 3 * room // 4 if bound else None]
    rows = np.concatenate([positives, hard])
    others = np.setdiff1d(np.arange(len(collection.documents)), rows)
    drawn = np.random.default_rng([seed, seeds.COMPLETED]).permutation(others)[: max(0, count - len(rows))]
    return with_documents(collection, np.concatenate([rows, drawn]))
