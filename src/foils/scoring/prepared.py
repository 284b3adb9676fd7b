"""What is ready before a vector is looked at, and what is measured when it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from foils.data.collection import Collection, Rows
from foils.data.negatives import Negatives
from foils.data.tokens import Vocabulary
from foils.encode.encoder import Encoder
from foils.encode.vectors import VectorStore
from foils.scoring.diagnostics import Gates
from foils.scoring.gates import Float64s, Similarities
from foils.scoring.lexical import Lexicon, texts_digest
from foils.scoring.measure import Geometry, pair_similarities, triplet_similarities
from foils.scoring.records import Records
from foils.scoring.uniting import make_records

NO_WORDS = Lexicon(*([Vocabulary().sets([])] * 2))


@dataclass(frozen=True)
class Prepared:
    """Records with the lexical side done.

    Attributes:
        records: the triplets. `lexicon`: their token sets. `coverage`: (m,) C of each triplet.
        idf_corpus: kind, number of texts and digest of the corpus that idf was counted over.
    """

    records: Records
    lexicon: Lexicon
    coverage: Float64s
    idf_corpus: Mapping[str, Any]

    def subset(self, chosen: Rows) -> Prepared:
        """Return these records (ascending) with their triplets and texts alone; their coverage stays what it is."""
        records, triplets, texts = self.records.subset(chosen)
        lexicon = Lexicon(self.lexicon.queries.take(chosen), self.lexicon.texts.take(texts))
        return replace(self, records=records, lexicon=lexicon, coverage=self.coverage[triplets])


@dataclass(frozen=True)
class Measured:
    """What was measured of the triplets, for reports, ablations and audits.

    Attributes:
        records: the triplets.
        geometry: their vectors.
        lexicon: their token sets.
        similarities: per triplet (s_p spread to triplets).
        s_p: (T,) similarity of query and positive. `best_positive`: (T,) of query and most similar positive.
        gates: at the settings' temperature.
    """

    records: Records
    geometry: Geometry
    lexicon: Lexicon
    similarities: Similarities
    s_p: Float64s
    best_positive: Float64s
    gates: Gates


def prepare(
    collection: Collection,
    sources: Mapping[str, Negatives],
    *,
    split: str = "train",
    sample: int | None = None,
    shared: bool = False,
    control: bool = True,
    tokenizer: str = "alphanumeric",
    idf_corpus: str = "pooled",
    seed: int = 0,
) -> Prepared:
    """Unite sources into records (`make_records`) and count their coverage (`Lexicon`); no text is embedded."""
    records = make_records(collection, sources, split=split, sample=sample, shared=shared, control=control, seed=seed)
    lexicon = Lexicon.of(records, tokenizer=tokenizer)
    idf, size = lexicon.idf(records, idf_corpus)
    corpus = {"kind": idf_corpus, "texts": size, "digest": _corpus_digest(records, idf_corpus)}
    return Prepared(records, lexicon, lexicon.coverage(records, idf), corpus)


def measure(prepared: Prepared, encoder: Encoder, store: VectorStore, temperature: float) -> Measured:
    """Embed what is not embedded yet, and measure every triplet once."""
    measured = measure_records(prepared.records, encoder, store, temperature, prepared.coverage)
    return replace(measured, lexicon=prepared.lexicon)


def measure_records(
    records: Records, encoder: Encoder, store: VectorStore, temperature: float, coverage: Float64s | None = None
) -> Measured:
    """Embed what is not embedded yet, and measure every triplet once; without a coverage it is 0."""
    queries = store.embed(encoder, records.collection.query_texts(records.queries), "query")
    documents = store.embed(encoder, records.texts, "document")
    geometry = Geometry(queries, documents, records.positives, records.record, records.document)
    s_p, s_n, s_pn, distance = triplet_similarities(geometry)
    every = pair_similarities(queries, records.positive_record, documents, records.all_positives)
    best = np.full(len(records), -np.inf)
    np.maximum.at(best, records.positive_record, every)
    similarities = Similarities(
        s_p[records.record], s_n, s_pn, np.zeros(len(s_n)) if coverage is None else coverage, distance
    )
    gates = Gates.of(similarities, temperature)
    return Measured(records, geometry, NO_WORDS, similarities, s_p, best, gates)


def _corpus_digest(records: Records, corpus: str) -> str:
    """Digest of the texts that idf was counted over; empty where it was not counted."""
    if corpus == "uniform":
        return ""
    if corpus == "collection":
        return records.collection.digest
    digest = texts_digest(records.texts.select(records.corpus))
    if corpus == "pooled+queries":
        digest += f"+{texts_digest(records.collection.query_texts(records.queries))}"
    return digest
