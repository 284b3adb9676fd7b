"""sentence-transformers' `mine_hard_negatives`, made of what mines here, for people who change one import."""

from __future__ import annotations

import logging
import random
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foils.data.pairs import SPLIT
from foils.data.tables import Provenance, provenance
from foils.data.texts import ColumnTexts
from foils.encode.cross_encoders import load_cross_encoder
from foils.encode.encoder import SentenceEncoder
from foils.encode.opening import StoreSettings
from foils.encode.processes import in_processes
from foils.encode.vectors import VectorStore
from foils.mining.candidates import QUERIES, mine_negatives
from foils.mining.cross_encoder import CrossEncoderRetriever, CrossEncoderScorer
from foils.mining.drop_in_arguments import Limits, Pairs, Prompts, chosen_form, opened_encoder, window_end
from foils.mining.drop_in_forms import Lists, arrow_of
from foils.mining.results import Mined
from foils.mining.retrievers import DenseRetriever
from foils.mining.rules import PositiveScores, Uniform
from foils.runtime import progress
from foils.runtime.errors import InputError, UnknownNameError, require
from foils.runtime.options import refuse
from foils.runtime.terminal import print_tables

if TYPE_CHECKING:
    from datasets import Dataset
    from sentence_transformers import CrossEncoder, SentenceTransformer

log = logging.getLogger(__name__)
STRATEGIES = ("top", "random")


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
    form, scored = chosen_form(output_format, output_scores, include_positives, as_triplets)
    pairs = Pairs.of(dataset, anchor_column_name, positive_column_name, corpus)
    limits = Limits.of(absolute_margin, relative_margin, max_score, min_score, margin=margin)
    if cross_encoder is not None and not limits.any():
        log.warning("cross_encoder has no effect without a margin, max_score or min_score, as in sentence-transformers")
        cross_encoder = None
    wide = limits.any(least=cross_encoder is not None)
    end = window_end(range_max, range_min, num_negatives, wide=wide, most=pairs.most)
    for name, count in (("batch_size", batch_size), ("faiss_batch_size", faiss_batch_size)):
        if count < 1:
            raise InputError(f"{name} {count}; expected at least 1")
    prompts: Prompts = {
        "query": (query_prompt, query_prompt_name),
        "document": (corpus_prompt, corpus_prompt_name),
    }
    way = _Way(
        pairs=pairs,
        encoder=opened_encoder(model, batch_size, prompts),
        cross_encoder=load_cross_encoder(cross_encoder) if isinstance(cross_encoder, (str, Path)) else cross_encoder,
        limits=limits,
        number=num_negatives,
        window=(range_min, end),
        random=sampling_strategy == "random",
        seed=_seed(seed, sampling_strategy),
        near_duplicate=near_duplicate,
        leave_out_positives=not include_positives,
        batch_size=batch_size,
        at_once=min(faiss_batch_size, QUERIES),
        devices=use_multi_process,
    )
    with progress.bars() if verbose else nullcontext():
        mined, lists = way.mine(StoreSettings(vectors=cache_folder).open_store())
    if table is not None:
        mined.write(table)
    if verbose:
        print_tables([*mined.tables(), *lists.tables()])
    rows = arrow_of(lists, form, pairs.anchor, pairs.positive, scored=scored)
    made: Dataset = require("datasets", "train").Dataset(rows)
    return made


def _seed(seed: int | None, strategy: str) -> int:
    """Return the seed of the draws: what is given, or, where something is drawn, a number of Python's generator.

    Raises:
        UnknownNameError: no such strategy.
        InputError: a seed below 0, or where nothing is drawn.
    """
    if strategy not in STRATEGIES:
        raise UnknownNameError("sampling_strategy", strategy, STRATEGIES)
    if strategy == "top":
        refuse({"seed": seed}, "with sampling_strategy='top', which draws nothing; leave it out")
        return 0
    if seed is not None and seed < 0:
        raise InputError(f"seed {seed}; expected at least 0")
    return random.getrandbits(32) if seed is None else seed


@dataclass(frozen=True, kw_only=True)
class _Way:
    """How to mine: `mine_hard_negatives`' arguments, checked and opened."""

    pairs: Pairs
    encoder: SentenceEncoder
    cross_encoder: CrossEncoder | None
    limits: Limits
    number: int
    window: tuple[int, int]
    random: bool
    seed: int
    near_duplicate: float | None
    leave_out_positives: bool
    batch_size: int
    at_once: int
    devices: Sequence[str] | bool

    def mine(self, store: VectorStore) -> tuple[Mined, Lists]:
        """Return the table of candidates, and the lists that forms are made of; vectors and logits are in the store."""
        collection, positives = self.pairs.collection, self.pairs.positives
        depth = self.window[1] + self.pairs.most  # room for the positives of every query
        with ExitStack() as stack:
            dense = self._dense(store)
            retriever: DenseRetriever | CrossEncoderRetriever = dense
            if self.cross_encoder is not None:
                scorer = CrossEncoderScorer(self.cross_encoder, store, batch_size=self.batch_size, as_predicted=True)
                stack.enter_context(scorer.in_processes(self.devices))
                retriever = CrossEncoderRetriever(
                    collection, scorer, dense, depth=depth, leave_out_positives=self.leave_out_positives
                )
            scores = PositiveScores.of(collection, retriever, positives.query_rows)
            mined = mine_negatives(
                collection,
                retriever,
                split=SPLIT,
                top=self.number,
                near_duplicate=self.near_duplicate,
                ranks=self.window,
                rank_rejected=False,
                depth=depth,
                leave_out_positives=self.leave_out_positives,
                rules=self.limits.rules(scores),
                draw=Uniform() if self.random else None,
                seed=self.seed,
                at_once=self.at_once,
                made=self._provenance(),
            )
        return mined, Lists.of(mined, collection, positives, scores.scores, self.number)

    def _dense(self, store: VectorStore) -> DenseRetriever:
        tables = self.pairs.collection.queries, self.pairs.collection.documents
        queries, documents = (ColumnTexts(table["text"]) for table in tables)
        with in_processes(self.encoder, self.devices):
            asked = store.embed(self.encoder, queries, "query")
            return DenseRetriever(asked, store.embed(self.encoder, documents, "document"))

    def _provenance(self) -> Provenance:
        facts = {
            "encoder": self.encoder.describe(),
            "top": self.number,
            "ranks": self.window,
            "limits": asdict(self.limits),
            **({"draw": "uniform", "seed": self.seed} if self.random else {}),
            **({} if self.near_duplicate is None else {"near_duplicate": self.near_duplicate}),
        }
        return provenance("mine_hard_negatives", facts, inputs={"collection": self.pairs.collection.digest})
