"""sentence-transformers' `mine_hard_negatives`, made of what mines here, for people who change one import."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import ALL_QUERIES, TRAIN, Collection, Rows
from foils.data.negatives import Negatives, labelled_lists, labelled_pairs, triplets, tuples
from foils.data.pairs import Example, Passage, read_pairs
from foils.data.records import arrow_table
from foils.data.tables import take
from foils.encode.encoder import PROMPT_NAMES, Encoder, EncoderSettings, Kind
from foils.encode.models import load_cross_encoder, load_model, similarity_of
from foils.encode.vectors import EmbeddingSettings, as_encoder
from foils.mining.candidates import Miner
from foils.mining.methods import FilterSettings
from foils.mining.retrievers import CrossEncoderRetriever, DenseRetriever
from foils.mining.rules import PositiveScores, Scores, Uniform
from foils.mining.scorers import CrossEncoderScorer
from foils.runtime import progress
from foils.runtime.errors import InputError, check_names, require
from foils.runtime.options import refuse
from foils.runtime.results import print_tables

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder, SentenceTransformer

log = logging.getLogger(__name__)
FORMS = {"triplet": triplets, "n-tuple": tuples, "labeled-pair": labelled_pairs, "labeled-list": labelled_lists}
Passages = list[Passage]
PIECE = 1_000  # texts, and records, that are read at once: an Arrow array of strings ends at 2 GiB


def mine_hard_negatives(
    dataset: Dataset,
    model: SentenceTransformer | str | Path,
    anchor_column_name: str | None = None,
    positive_column_name: str | None = None,
    corpus: Sequence[str] | None = None,
    cross_encoder: CrossEncoder | str | Path | None = None,
    range_min: int = 0,
    range_max: int | None = None,
    max_score: float | None = None,
    min_score: float | None = None,
    absolute_margin: float | None = None,
    relative_margin: float | None = None,
    num_negatives: int = 3,
    sampling_strategy: str = "top",
    query_prompt_name: str | None = None,
    query_prompt: str | None = None,
    corpus_prompt_name: str | None = None,
    corpus_prompt: str | None = None,
    include_positives: bool = False,
    output_format: str = "triplet",
    output_scores: bool = False,
    batch_size: int = 32,
    faiss_batch_size: int = 16_384,
    use_faiss: bool = False,
    use_multi_process: Sequence[str] | bool = False,
    verbose: bool = True,
    cache_folder: str | Path | None = None,
    as_triplets: bool | None = None,
    margin: float | None = None,
    *,
    seed: int | None = None,
) -> Dataset:
    """Mine negatives of (query, positive) pairs, as sentence-transformers' function of this name does.

    Names, defaults, columns and negatives are those of sentence-transformers 6.2; what differs stands in
    docs/from-sentence-transformers.md. Equal texts are one query, and one document. Documents are
    ranked by the cosine of their vectors with the query's; the positives of the query, and what a
    threshold rejects, are left out. Vectors are kept, so that a stopped call goes on where it was.

    Args:
        dataset: pairs, one a row; a `datasets.Dataset`, or a DataFrame or Arrow table.
        model: a SentenceTransformer, a name as `foils.load_encoder` takes it, or an `Encoder`.
        anchor_column_name: column of the queries. Default: the first.
        positive_column_name: column of the positives. Default: the second.
        corpus: texts of more documents.
        cross_encoder: scores the candidates anew where a threshold is given, by its `predict`; also a name.
        range_min: negatives left out at the top of each list, of those that no threshold rejects.
        range_max: end of the window of ranks. Default: `range_min` + `num_negatives` (10 times as many with a
            threshold) + the largest number of pairs of a query.
        max_score: reject negatives that score above this.
        min_score: reject negatives that score below this.
        absolute_margin: reject negatives that score within this margin of the query's lowest positive.
        relative_margin: reject negatives that score within this share (at most 1) of the lowest
            positive's magnitude.
        num_negatives: negatives of each query, at least 1.
        sampling_strategy: top takes the first of the window; random draws from it, each with the same chance.
        query_prompt_name: name of the model's prompt that goes before queries.
        query_prompt: text that goes before queries, in the place of a name's.
        corpus_prompt_name: name of the model's prompt that goes before documents.
        corpus_prompt: text that goes before documents, in the place of a name's.
        include_positives: let positives stand among the negatives, at their ranks; then the format
            is n-tuple.
        output_format: triplet, n-tuple, labeled-pair or labeled-list; n-tuple-scores is n-tuple
            with output_scores.
        output_scores: with a column of scores: score for labeled-pair, in the place of labels for
            labeled-list.
        batch_size: changes nothing: batches go by tokens.
        faiss_batch_size: changes nothing, as use_faiss.
        use_faiss: changes nothing: the search is exact, and in blocks, with and without it.
        use_multi_process: refused where it is given: one process computes, on the device of the model.
        verbose: show progress, and print counts and reasons of rejection.
        cache_folder: where vectors are kept. Default: the cache of foils.
        as_triplets: the old name of output_format, triplet or else n-tuple.
        margin: the old name of absolute_margin.
        seed: of the draws. Default: drawn from Python's `random`, which `random.seed` fixes.

    Returns:
        A `datasets.Dataset` in memory: triplet (anchor, positive, negative); n-tuple (anchor,
        positive, negative_1, …, negative_n; pairs with fewer are left out); labeled-pair (anchor,
        document, label); labeled-list (anchor, list of documents, list of labels; the positive
        first). The first two columns are called as in `dataset`.

    Raises:
        InputError: arguments that do not fit together, columns that there are not, rows without a
            text, or a model of another kind. It is a ValueError.
        UnknownNameError: no such form, strategy, or prompt of the model.
        FailureError: a vector that is NaN or infinite.
    """
    # 1. Old names, and what is mined from which ranks.
    if use_multi_process:
        refuse({"use_multi_process": use_multi_process}, "here, where one process computes all; leave it out")
    if margin is not None:
        refuse({"absolute_margin": absolute_margin}, "with margin, its old name; leave margin out")
        absolute_margin = margin
        log.warning("margin is an old name; give absolute_margin=%g", margin)
    output_format, output_scores = _form(output_format, output_scores, as_triplets, include_positives)
    check_names("sampling_strategy", [sampling_strategy], ("top", "random"))
    column_names, collection, most_pairs = _pairs(dataset, anchor_column_name, positive_column_name, corpus)
    limits = FilterSettings(
        margin=absolute_margin, relative_margin=relative_margin, max_score=max_score, min_score=min_score
    )
    if cross_encoder is not None and not limits.changed():
        # As in sentence-transformers.
        log.warning("cross_encoder has no effect without a margin, max_score or min_score")
        cross_encoder = None
    if range_max is None:
        wide = limits.changed() and (cross_encoder is not None or set(limits.changed()) != {"min_score"})
        range_max = range_min + num_negatives * (10 if wide else 1) + most_pairs
    if num_negatives < 1 or range_min < 0 or num_negatives > range_max - range_min:
        problem = f"range_min {range_min} and range_max {range_max} leave {max(range_max - range_min, 0)} ranks"
        raise InputError(f"{problem} for {num_negatives} negatives; give at least 1 and as many ranks from 0")
    if sampling_strategy == "top":
        refuse({"seed": seed}, "with sampling_strategy='top', which draws nothing; leave it out")
    elif seed is None:
        seed = random.getrandbits(32)

    # 2. Mining.
    if isinstance(model, (str, Path)):
        model = load_model(model)
    query_prompt = _prompt(model, "query", query_prompt, query_prompt_name)
    document_prompt = _prompt(model, "document", corpus_prompt, corpus_prompt_name)
    encoder = _encoder(model, query_prompt, document_prompt)
    if isinstance(cross_encoder, (str, Path)):
        cross_encoder = load_cross_encoder(cross_encoder)
    depth = range_max + most_pairs  # room for the positives of every query
    judged = replace(collection, qrels={}) if include_positives else collection
    with progress.reporting(progress.bars) if verbose else nullcontext():
        store = EmbeddingSettings(vectors=cache_folder).open_store()
        retriever: DenseRetriever | CrossEncoderRetriever = DenseRetriever.of_model(collection, encoder, store)
        if cross_encoder is not None:
            scorer = CrossEncoderScorer(cross_encoder, store, as_predicted=True)
            retriever = CrossEncoderRetriever(judged, scorer, retriever, depth=depth)
        of_positives = PositiveScores.of(collection, retriever, collection.positives(TRAIN).query_rows)
        miner = Miner(
            judged,
            retriever,
            top=num_negatives,
            near_duplicate=None,
            ranks=(range_min, range_max),
            rank_rejected=False,
            depth=depth,
            rules=limits.rules(lambda: of_positives),
            draw=None if seed is None else Uniform(),
            seed=seed or 0,
        )
        mined = miner.mined(ALL_QUERIES if include_positives else TRAIN)
    if verbose:
        print_tables(mined.tables())

    # 3. Records.
    examples = _examples(collection, of_positives, mined, output_scores)
    if output_format != "labeled-pair":  # a record for each positive with negatives
        fewest = num_negatives if output_format == "n-tuple" else 1
        full = (each for each in examples if len(each.negatives) >= fewest)
        examples = (each._replace(positives=[positive]) for each in full for positive in each.positives)
    return _data_set(examples, output_format, num_negatives, output_scores, column_names)


def _form(
    output_format: str, output_scores: bool, as_triplets: bool | None, include_positives: bool
) -> tuple[str, bool]:
    """Return the form of the records and whether they have scores; old names bring a warning.

    Raises:
        UnknownNameError: no such form.
    """
    if as_triplets is not None:
        output_format = "triplet" if as_triplets else "n-tuple"
        log.warning("as_triplets is an old name; give output_format=%r", output_format)
    if include_positives and output_format in {*FORMS, "n-tuple-scores"} - {"n-tuple"}:
        output_format = "n-tuple"
        log.warning("include_positives gives n-tuples, which show the order; give output_format='n-tuple'")
    if output_format == "n-tuple-scores":
        output_format, output_scores = "n-tuple", True
        log.warning("n-tuple-scores is an old name; give output_format='n-tuple' and output_scores=True")
    check_names("output_format", [output_format], FORMS)
    return output_format, output_scores


def _examples(
    collection: Collection, of_positives: PositiveScores, mined: Negatives, scored: bool
) -> Iterator[Example]:
    """Yield each query with its positives and its kept negatives, with their scores where these are asked for."""
    kept = mined.kept()
    rows = collection.query_rows(kept["query_id"]), collection.document_rows(kept["doc_id"])
    negatives = _by_query(collection, *rows, kept["score"].to_numpy() if scored else None)
    rows = of_positives.query_rows, of_positives.doc_rows
    positives = _by_query(collection, *rows, of_positives.scores if scored else None)
    return map(Example, collection.queries["text"].to_pylist(), positives, negatives)


def _data_set(
    examples: Iterable[Example], output_format: str, number: int, scored: bool, column_names: tuple[str, str]
) -> Dataset:
    """Return the records of examples, with the caller's names of the columns of queries and of positives."""
    form = FORMS[output_format]
    blank = [Passage("", score=0.0 if scored else None)] * number
    columns = pa.Table.from_pylist([*form(Example("", blank[:1], blank))]).slice(0, 0)
    records = (record for example in examples for record in form(example))
    parts = map(pa.Table.from_pylist, iter(lambda: list(islice(records, PIECE)), []))
    table = pa.concat_tables([columns, *parts])  # an empty data set has columns, too
    query, positive = column_names
    called = {"anchor": query, "positive": positive, "document": positive, "documents": positive}
    table = table.rename_columns([called.get(name, name) for name in table.column_names])
    data_set: Dataset = require("datasets", "train").Dataset(table)
    return data_set


def _pairs(
    dataset: Any, anchor: str | None, positive: str | None, corpus: Sequence[str] | None
) -> tuple[tuple[str, str], Collection, int]:
    """The names of two columns (given or the first two), their texts, and the most rows of a query."""
    table = arrow_table(dataset)
    names = table.column_names
    check_names("anchor_column_name", {anchor} - {None}, names)
    check_names("positive_column_name", {positive} - {None}, names)
    if len(names) < 2:
        raise InputError(f"the data set has the columns {names}; expected two, of queries and of positives")
    anchor, positive = anchor or names[0], positive or names[1]
    if isinstance(corpus, str):
        raise InputError(f"the corpus is {corpus[:80]!r}; expected a list of texts")
    more = None if corpus is None else pa.table({"text": pa.array(list(corpus), pa.large_string())})
    columns = {"query": anchor, "positive": positive}
    texts = table.select([anchor, positive])
    collection = read_pairs(texts, columns=columns, corpus=more, name="the data set", split=TRAIN)
    collection = replace(collection, keep_identical_ids=True)
    most = int(pc.max(pc.value_counts(table[anchor]).field("counts")).as_py())
    return (anchor, positive), collection, most


def _encoder(model: Any, query_prompt: str | None, document_prompt: str | None) -> Encoder:
    """The encoder of a loaded model, by the cosine, with prompts as `EncoderSettings` takes them.

    Raises:
        InputError: it compares by a distance, is another kind of model, or has prompts of its own.
    """
    if hasattr(model, "fingerprint"):
        prompts = {"query_prompt": query_prompt, "document_prompt": document_prompt}
        refuse(prompts, "with an encoder that has its own prompts; leave it out")
    settings = EncoderSettings(similarity="cosine", query_prompt=query_prompt, document_prompt=document_prompt)
    encoder = as_encoder(model, settings)
    if encoder is not model:
        similarity_of(model)  # one that was made for a distance is refused
    return encoder


def _prompt(model: Any, kind: Kind, text: str | None, name: str | None) -> str | None:
    """The text put before texts of a kind, as `EncoderSettings` takes it; None: what the model puts there by itself."""
    known = getattr(model, "prompts", None) or {}
    if name is None and not any(each in known for each in PROMPT_NAMES[kind]):
        name = getattr(model, "default_prompt_name", None)
    if text is None and name is not None:
        check_names(f"prompt of the model for a {kind}", [name], known)
        text = known[name]
    return f"@{text}" if text is not None and text.startswith("@") else text


def _by_query(collection: Collection, query_rows: Rows, documents: Rows, scores: Scores | None) -> Iterator[Passages]:
    """Yield the documents of each query, which lie by query, with their scores where there are any."""
    blocks = (documents[start : start + PIECE] for start in range(0, len(documents), PIECE))
    texts = (text for block in blocks for text in take(collection.documents["text"], block).to_pylist())
    passages = map(Passage, texts, repeat(None), repeat(""), repeat(None) if scores is None else scores.tolist())
    for count in np.bincount(query_rows, minlength=len(collection.queries)).tolist():
        yield list(islice(passages, count))
