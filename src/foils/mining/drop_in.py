"""sentence-transformers' `mine_hard_negatives`, made of what mines here, for people who change one import."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection, Rows
from foils.data.pair_index import Positives
from foils.data.pairs import SPLIT, collection_of_texts
from foils.data.records import arrow_table
from foils.data.run import ranks_within
from foils.data.tables import provenance, take
from foils.data.texts import ColumnTexts
from foils.encode.cross_encoders import load_cross_encoder
from foils.encode.encoder import PROMPT_NAMES, EncoderSettings, Kind, SentenceEncoder
from foils.encode.forward import in_processes
from foils.encode.models import SIMILARITIES, load_model
from foils.encode.opening import StoreSettings
from foils.mining.candidates import QUERIES, mine_negatives
from foils.mining.cross_encoder import CrossEncoderRetriever, CrossEncoderScorer
from foils.mining.pairs import Marks, Rule, Scores
from foils.mining.results import Mined
from foils.mining.retrievers import DenseRetriever
from foils.mining.rules import Margin, PositiveScores, ScoreAbove, ScoreBelow, Uniform
from foils.runtime import progress
from foils.runtime.errors import InputError, UnknownNameError, require
from foils.runtime.options import refuse
from foils.runtime.results import Table, number
from foils.runtime.terminal import print_tables

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder, SentenceTransformer

log = logging.getLogger(__name__)
STRATEGIES = ("top", "random")
WITH_SCORES = "n-tuple-scores"  # an old name
PIECE = 1_000  # queries whose texts are copied at once: an Arrow array of strings ends at 2 GiB


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
    near_duplicate: float | None = None,
    table: str | Path | None = None,
) -> Dataset:
    """Mine negatives of (query, positive) pairs, as sentence-transformers' function of this name does.

    Arguments, defaults, columns and negatives are those of sentence-transformers 6.2; what differs stands in
    docs/from-sentence-transformers.md. Equal texts are one query, and one document. Documents are ranked by the cosine
    of their vectors with the query's; the positives of the query, and what a threshold rejects, are left out. Vectors
    are kept, so that a stopped call goes on where it was.

    Args:
        dataset: pairs, one a row; a `datasets.Dataset`, or a DataFrame or Arrow table.
        model: a SentenceTransformer; or a name, as `foils.load_encoder` takes it.
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
        relative_margin: reject negatives that score within this share (at most 1) of the lowest positive's magnitude.
        num_negatives: negatives of each query, at least 1.
        sampling_strategy: top takes the first of the window; random draws from it, each with the same chance.
        query_prompt_name: name of the model's prompt that goes before queries.
        query_prompt: text that goes before queries, in the place of a name's.
        corpus_prompt_name: name of the model's prompt that goes before documents.
        corpus_prompt: text that goes before documents, in the place of a name's.
        include_positives: let positives stay in the lists; the form is then n-tuple, or n-list.
        output_format: triplet, n-tuple, labeled-pair, labeled-list; or n-list: columns of the query, the positive and
            a list of negatives, however short, so that no pair is left out.
        output_scores: with a column of scores: score for labeled-pair, in the place of labels for labeled-list.
        batch_size: texts, or pairs of a cross-encoder, that are computed at once.
        faiss_batch_size: queries that are ranked at once.
        use_faiss: changes nothing: the search is exact, and in blocks, with and without it.
        use_multi_process: compute in several processes: a list of torch devices, or True for all.
        verbose: show progress, and print counts, reasons of rejection and scores.
        cache_folder: where vectors are kept. Default: the cache of foils.
        as_triplets: old name of an output format: True is triplet, False n-tuple.
        margin: old name of `absolute_margin`.
        seed: of the draws. Default: drawn from Python's `random`, which `random.seed` fixes.
        near_duplicate: reject documents whose token sets have at least this Jaccard similarity to those of a positive,
            in (0, 1]; above 1 those alone that equal one but for case and punctuation.
        table: file to write all candidates to, as `foils.mine` does: Parquet, with a reason for each rejected one.

    Returns:
        A `datasets.Dataset` in memory: triplet (anchor, positive, negative); n-tuple (anchor, positive, negative_1, …,
        negative_n; pairs with fewer are left out); labeled-pair (anchor, document, label); labeled-list (anchor, list
        of documents, list of labels; the positive first). The first two columns are called as in `dataset`.

    Raises:
        InputError: arguments that do not fit together, columns that there are not, rows without a text, or a model that
            compares by a distance. It is a ValueError.
        UnknownNameError: no such form, strategy, or prompt of the model.
        FailureError: a vector that is NaN or infinite.
    """
    form, scored = _form(output_format, output_scores, include_positives, as_triplets)
    anchor, positive, collection, most = _pairs(dataset, anchor_column_name, positive_column_name, corpus)
    if margin is not None:
        log.warning("margin is an old name; give absolute_margin=%g", margin)
    limits = {
        "absolute": absolute_margin if margin is None else margin, "relative": relative_margin, "most": max_score,
        "least": min_score,
    }  # fmt: skip
    if cross_encoder is not None and set(limits.values()) == {None}:
        log.warning("cross_encoder has no effect without a margin, max_score or min_score, as in sentence-transformers")
        cross_encoder = None
    wide = any(limits[name] is not None for name in limits if name != "least" or cross_encoder is not None)
    end = _window_end(range_max, range_min, num_negatives, wide=wide, most=most)
    for name, count in (("batch_size", batch_size), ("faiss_batch_size", faiss_batch_size)):
        if count < 1:
            raise InputError(f"{name} {count}; expected at least 1")
    seed = _seed(seed, sampling_strategy)
    prompts: Mapping[Kind, tuple[str | None, str | None]] = {
        "query": (query_prompt, query_prompt_name),
        "document": (corpus_prompt, corpus_prompt_name),
    }
    encoder = _opened(model, batch_size, prompts)
    if isinstance(cross_encoder, (str, Path)):
        cross_encoder = load_cross_encoder(cross_encoder)
    facts = {
        "encoder": encoder.describe(), "top": num_negatives, "ranks": (range_min, end), "limits": limits,
        **({"draw": "uniform", "seed": seed} if sampling_strategy == "random" else {}),
        **({} if near_duplicate is None else {"near_duplicate": near_duplicate}),
    }  # fmt: skip
    positives, depth = collection.positives(SPLIT), end + most  # room for the positives of every query
    with progress.bars() if verbose else nullcontext(), ExitStack() as stack:
        store = StoreSettings(vectors=cache_folder).open_store()
        with in_processes(encoder, use_multi_process):
            asked = store.embed(encoder, ColumnTexts(collection.queries["text"]), "query")
            dense = DenseRetriever(asked, store.embed(encoder, ColumnTexts(collection.documents["text"]), "document"))
        retriever: DenseRetriever | CrossEncoderRetriever = dense
        if cross_encoder is not None:
            scorer = CrossEncoderScorer(cross_encoder, store, batch_size=batch_size, as_predicted=True)
            stack.enter_context(scorer.in_processes(use_multi_process))
            leave_out = not include_positives
            retriever = CrossEncoderRetriever(collection, scorer, dense, depth=depth, leave_out_positives=leave_out)
        scores = PositiveScores.of(collection, retriever, positives.query_rows)
        mined = mine_negatives(
            collection,
            retriever,
            split=SPLIT,
            top=num_negatives,
            near_duplicate=near_duplicate,
            ranks=(range_min, end),
            rank_rejected=False,
            depth=depth,
            leave_out_positives=not include_positives,
            rules=_rules(limits, scores),
            draw=Uniform() if sampling_strategy == "random" else None,
            seed=seed,
            at_once=min(faiss_batch_size, QUERIES),
            made=provenance("mine_hard_negatives", facts, inputs={"collection": collection.digest}),
        )
    lists = _Lists.of(mined, collection, positives, scores.scores, num_negatives)
    if table is not None:
        mined.write(table)
    if verbose:
        print_tables([*mined.tables(), lists.scores_table()])
    columns = (pa.table(FORMS[form](piece, anchor, positive, scored)) for piece in lists.pieces())
    made: Dataset = require("datasets", "train").Dataset(pa.concat_tables(columns))
    return made


def _form(form: str, scored: bool, include_positives: bool, as_triplets: bool | None) -> tuple[str, bool]:
    """The form, and whether it has scores; older names are taken with a warning."""
    if as_triplets is not None:
        form = "triplet" if as_triplets else "n-tuple"
        log.warning("as_triplets is an old name; give output_format=%r", form)
    if form not in (*FORMS, WITH_SCORES):
        raise UnknownNameError("output_format", form, FORMS)
    if include_positives and form not in ("n-tuple", "n-list"):
        log.warning("include_positives: the form is n-tuple, in the place of %s", form)
        form = "n-tuple"
    if form == WITH_SCORES:
        log.warning("output_format=%r is an old name; give 'n-tuple' and output_scores=True", WITH_SCORES)
        form, scored = "n-tuple", True
    return form, scored


def _pairs(
    dataset: Any, anchor: str | None, positive: str | None, corpus: Sequence[str] | None
) -> tuple[str, str, Collection, int]:
    """The names of two columns, those given or the first and the second, their texts, and the most rows of a query."""
    if isinstance(dataset, Mapping):
        raise InputError(f"a data set of the splits {', '.join(map(str, dataset))}; give one of them")
    stored = hasattr(dataset, "select_columns") and hasattr(dataset, "__len__")
    table = dataset if stored else arrow_table(dataset)
    names = list(table.column_names)
    for what, name in (("anchor_column_name", anchor), ("positive_column_name", positive)):
        if name is not None and name not in names:
            raise UnknownNameError(what, name, names)
    if len(names) < 2:
        raise InputError(f"the data set has the columns {names}; expected two, of queries and of positives")
    anchor, positive = anchor or names[0], positive or names[1]
    if anchor == positive:
        raise InputError(f"the column {anchor} is both that of the queries and that of the positives; name two")
    columns = arrow_table((table.select_columns if stored else table.select)([anchor, positive]))
    more = None
    if corpus is not None:
        if isinstance(corpus, str):
            raise InputError("the corpus is one text; expected a list of texts")
        try:
            more = pa.chunked_array([pa.array(list(corpus), pa.large_string())])
        except (pa.ArrowException, TypeError) as error:
            raise InputError(f"the corpus is no list of texts: {error}") from error
    collection = collection_of_texts(columns[anchor], columns[positive], more, name="the data set")
    most = int(pc.max(pc.value_counts(columns[anchor]).field("counts")).as_py())
    return anchor, positive, collection, most


def _window_end(given: int | None, first: int, count: int, *, wide: bool, most: int) -> int:
    """The end of the window of ranks; by default ten times as many as wanted where some are rejected (`wide`)."""
    if count < 1:
        raise InputError(f"num_negatives {count}; expected at least 1")
    if first < 0:
        raise InputError(f"range_min {first}; expected at least 0")
    end = first + count * (10 if wide else 1) + most if given is None else given
    if count > end - first:
        raise InputError(
            f"range_min {first} and range_max {end} leave {max(end - first, 0)} ranks for {count} negatives; "
            "raise range_max, or ask for fewer"
        )
    return end


def _seed(seed: int | None, strategy: str) -> int:
    """The seed of the draws: what is given, or, where something is drawn, a number of Python's generator."""
    if strategy not in STRATEGIES:
        raise UnknownNameError("sampling_strategy", strategy, STRATEGIES)
    if strategy == "top":
        refuse({"seed": seed}, "with sampling_strategy='top', which draws nothing; leave it out")
        return 0
    if seed is not None and seed < 0:
        raise InputError(f"seed {seed}; expected at least 0")
    return random.getrandbits(32) if seed is None else seed


def _rules(limits: Mapping[str, float | None], scores: PositiveScores) -> list[Rule]:
    """The rules, in the order in which sentence-transformers asks them."""
    made: dict[str, Callable[[float], Rule]] = {
        "absolute": lambda limit: Margin(scores, absolute=limit),
        "relative": lambda limit: Margin(scores, relative=limit),
        "most": ScoreAbove,
        "least": ScoreBelow,
    }
    return [made[name](limit) for name, limit in limits.items() if limit is not None]


def _opened(model: Any, batch_size: int, prompts: Mapping[Kind, tuple[str | None, str | None]]) -> SentenceEncoder:
    """The encoder that `encode_query` and `encode_document` of a model are, in the precision that it has."""
    from sentence_transformers import SentenceTransformer

    name = str(model) if isinstance(model, (str, Path)) else ""
    opened = load_model(model) if name else model
    if not isinstance(opened, SentenceTransformer):
        raise InputError(f"a model of type {type(model).__name__}; expected a SentenceTransformer, or the name of one")
    if opened.similarity_fn_name not in (None, *SIMILARITIES):
        raise InputError(
            f"the model compares by {opened.similarity_fn_name} distance, and documents are ranked by the cosine here; "
            "set its similarity_fn_name to 'cosine' if that is what you want"
        )
    texts = {kind: _prompt(opened, kind, *chosen) for kind, chosen in prompts.items()}
    settings = EncoderSettings(
        query_prompt=texts["query"], document_prompt=texts["document"], similarity="cosine", precision="auto",
        encode_batch=batch_size,
    )  # fmt: skip
    return SentenceEncoder(opened, settings, name=Path(name).name)


def _prompt(model: Any, kind: Kind, text: str | None, name: str | None) -> str:
    """A prompt as `EncoderSettings` takes it: an @ that it begins with is doubled."""
    prompts: dict[str, str | None] = dict(model.prompts or {})
    if text is not None and name is not None:
        log.warning("a prompt %r goes before the %s texts; the name %r is not used", text, kind, name)
    elif name is not None and name not in prompts:
        raise UnknownNameError(f"prompt of the model for a {kind}", name, prompts)
    if text is None:
        names = [name] if name is not None else [*PROMPT_NAMES[kind], model.default_prompt_name]
        text = next((prompts[each] for each in names if each in prompts), "") or ""
    return f"@{text}" if text.startswith("@") else text


@dataclass(frozen=True)
class _Lists:
    """Pairs of a query and a positive, of some queries, and the negatives of each query, best first.

    Attributes:
        collection: its queries are those of the pairs, in their order.
        queries, documents, scores: (m,) of the pairs.
        offsets: (n + 1,) where each query's negatives begin and end.
        negatives, negative_scores: (k,) rows of documents, and their scores.
        wanted: negatives that each query should have.
    """

    collection: Collection
    queries: Rows
    documents: Rows
    scores: Scores
    offsets: Rows
    negatives: Rows
    negative_scores: Scores
    wanted: int

    @classmethod
    def of(cls, mined: Mined, collection: Collection, positives: Positives, scores: Scores, wanted: int) -> _Lists:
        kept = mined.kept()
        offsets = np.searchsorted(collection.query_rows(kept["query_id"]), np.arange(len(positives) + 1))
        negatives = collection.document_rows(kept["doc_id"])
        of_negatives = np.asarray(kept["score"].to_numpy())
        return cls(collection, *positives.pairs(), scores, offsets, negatives, of_negatives, wanted)

    def pieces(self) -> Iterator[_Lists]:
        """Yield the pairs of some queries at a time."""
        for start in range(0, max(len(self.offsets) - 1, 1), PIECE):
            part = slice(*np.searchsorted(self.queries, [start, start + PIECE]))
            yield self.where(np.arange(part.start, part.stop))

    def where(self, rows: Rows | Marks) -> _Lists:
        """Return these of the pairs."""
        pairs = (self.queries[rows], self.documents[rows], self.scores[rows])
        return _Lists(self.collection, *pairs, self.offsets, self.negatives, self.negative_scores, self.wanted)

    def spans(self, queries: Rows) -> tuple[Rows, Rows]:
        """Return how many negatives each of these queries has, and their places, all in a row."""
        counts = self.offsets[queries + 1] - self.offsets[queries]
        each = np.repeat(np.arange(len(queries)), counts)
        return counts, self.offsets[queries][each] + ranks_within(each)

    def query_texts(self, rows: Rows) -> pa.ChunkedArray:
        return pa.chunked_array([take(self.collection.queries["text"], rows)]).cast(pa.string())

    def texts(self, rows: Rows) -> pa.ChunkedArray:
        return pa.chunked_array([take(self.collection.documents["text"], rows)]).cast(pa.string())

    def mixed(self, owners: Rows, queries: Rows) -> tuple[Rows, Rows, Scores, Rows]:
        """Return owner, document, score and label of the pairs' positives, and of the negatives of the owners' queries.

        Args:
            owners: (m,) of the pairs, ascending.
            queries: of each distinct owner.
        """
        counts, places = self.spans(queries)
        every = np.concatenate([owners, np.repeat(np.unique(owners), counts)])
        order = np.argsort(every, kind="stable")
        documents = np.concatenate([self.documents, self.negatives[places]])
        scores = np.concatenate([self.scores, self.negative_scores[places]])
        labels = np.repeat(np.array([1, 0]), [len(owners), len(places)])
        return every[order], documents[order], scores[order], labels[order]

    def scores_table(self) -> Table:
        """Return the distribution of the scores: of positives, of negatives, and of their differences."""
        counts, places = self.spans(self.queries)
        differences = np.repeat(self.scores, counts) - self.negative_scores[places]
        kinds = {"positives": self.scores, "negatives": self.negative_scores, "differences": differences}
        rows = [
            (name, f"{len(of):,}", *map(number, (of.mean(), *np.percentile(of, (0, 25, 50, 75, 100)))))
            for name, of in kinds.items()
            if len(of)
        ]
        return Table("scores", ("", "count", "mean", "least", "25 %", "median", "75 %", "most"), rows)


_Columns = dict[str, pa.Array | pa.ChunkedArray]


def _triplet(lists: _Lists, anchor: str, positive: str, scored: bool) -> _Columns:
    counts, places = lists.spans(lists.queries)
    scores = _matrix(np.repeat(lists.scores, counts), lists.negative_scores[places])
    return {
        anchor: lists.query_texts(np.repeat(lists.queries, counts)),
        positive: lists.texts(np.repeat(lists.documents, counts)),
        "negative": lists.texts(lists.negatives[places]),
        **({"scores": scores} if scored else {}),
    }


def _tuple(lists: _Lists, anchor: str, positive: str, scored: bool) -> _Columns:
    lists = lists.where(lists.spans(lists.queries)[0] == lists.wanted)
    places = lists.offsets[lists.queries][:, None] + np.arange(lists.wanted)
    return {
        anchor: lists.query_texts(lists.queries),
        positive: lists.texts(lists.documents),
        **{f"negative_{at}": lists.texts(lists.negatives[column]) for at, column in enumerate(places.T, 1)},
        **({"scores": _matrix(lists.scores, *lists.negative_scores[places].T)} if scored else {}),
    }


def _labelled_pair(lists: _Lists, anchor: str, positive: str, scored: bool) -> _Columns:
    owners, documents, scores, labels = lists.mixed(lists.queries, np.unique(lists.queries))
    column = {"score": pa.array(scores)} if scored else {"label": pa.array(labels)}
    return {anchor: lists.query_texts(owners), positive: lists.texts(documents), **column}


def _labelled_list(lists: _Lists, anchor: str, positive: str, scored: bool) -> _Columns:
    lists = lists.where(lists.spans(lists.queries)[0] > 0)
    owners, documents, scores, labels = lists.mixed(np.arange(len(lists.queries)), lists.queries)
    ends = np.searchsorted(owners, np.arange(len(lists.queries) + 1))
    column = {"scores": _listed(ends, pa.array(scores))} if scored else {"labels": _listed(ends, pa.array(labels))}
    return {
        anchor: lists.query_texts(lists.queries), positive: _listed(ends, lists.texts(documents)), **column,
    }  # fmt: skip


def _ragged(lists: _Lists, anchor: str, positive: str, scored: bool) -> _Columns:
    counts, places = lists.spans(lists.queries)
    ends = np.concatenate([[0], np.cumsum(counts)])
    columns: _Columns = {
        anchor: lists.query_texts(lists.queries),
        positive: lists.texts(lists.documents),
        "negatives": _listed(ends, lists.texts(lists.negatives[places])),
    }
    if scored:
        _, _, scores, _ = lists.mixed(np.arange(len(lists.queries)), lists.queries)
        columns["scores"] = _listed(ends + np.arange(len(ends)), pa.array(scores))
    return columns


FORMS: dict[str, Callable[[_Lists, str, str, bool], _Columns]] = {
    "triplet": _triplet,
    "n-tuple": _tuple,
    "labeled-pair": _labelled_pair,
    "labeled-list": _labelled_list,
    "n-list": _ragged,
}


def _listed(ends: Rows, values: pa.Array | pa.ChunkedArray) -> pa.Array:
    flat = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), flat)


def _matrix(*columns: Scores) -> pa.Array:
    values = np.stack(columns, axis=1)
    return _listed(np.arange(len(values) + 1) * len(columns), pa.array(values.ravel()))
