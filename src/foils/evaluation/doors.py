"""The door of evaluation, and runs of systems on one split: made, measured alike, and compared."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from foils.data import Collection, Run
from foils.data.read import CollectionLike, CollectionSettings, identical_ids_caption
from foils.data.run import FUSED_DEPTH, Fusion, check_ids, deployed, fuse_runs, without_identical
from foils.data.tokens import BM25Settings
from foils.encode import EmbeddingSettings, Encoder, EncoderSettings, VectorStore, as_encoder
from foils.encode.encoder import logits
from foils.encode.vectors import OF_CROSS_ENCODERS, EmbeddingModel, EncoderLike, PairModel
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError
from foils.runtime.files import FOLDER
from foils.runtime.options import Option, Settings, door, several, spelled
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Result, Table, number, p_value, signed
from foils.searching import DimensionSettings, embed_collection, search_collection
from foils.searching.runs import bm25_run as bm25_run
from foils.statistics import Comparison, bootstrap_interval, compare_systems
from foils.statistics.measures import DEFAULT_MEASURES, Measured, Qrels, Rankings, measure_rankings, parsed_names

SystemLike = str | Path | Run | Encoder | EmbeddingModel | PairModel
SystemsLike = Mapping[str, SystemLike] | Sequence[SystemLike] | SystemLike
DEPTH = 100
PAIRS = 256  # handed to a reranker at a time
PairScorer = Callable[[Sequence[tuple[str, str]]], npt.ArrayLike]

BM25: Literal["bm25"] = "bm25"
Kind = Literal["encoder", "bm25", "run", "reranker"]
log = logging.getLogger(__name__)


def dense_run(
    model: EncoderLike,
    collection: Collection,
    split: str,
    *,
    depth: int = DEPTH,
    store: VectorStore | None = None,
    name: str = "",
) -> Run:
    """Search exactly for every judged query of a split.

    A document that has the query's own id is left out (`Collection.identical`).

    Args:
        model: a name, a folder, a SentenceTransformer with its own prompts, length and similarity,
            or an `Encoder`.
        collection: what is searched.
        split: whose queries.
        depth: documents of each ranking.
        store: keeps the vectors; None: encode now, keep nothing, as for a model in training.
        name: of the run; empty: the encoder's.

    Raises:
        UnknownNameError: no such split.
        InputError: a model that cannot be loaded.
    """
    encoder = as_encoder(model, EncoderSettings())
    embedded = embed_collection(collection, encoder, store, split=split)
    return search_collection(embedded, DimensionSettings("none"), k=depth, name=name or encoder.name).run


def first_documents(run: Run, collection: Collection, depth: int, *, split: str | None = None) -> Run:
    """Return the first `depth` documents of each query of a run, the query's own id left out before.

    Args:
        run: of the first stage.
        collection: that the run was made on.
        depth: how many documents of each query, at least 1.
        split: whose judged queries are kept; None: all queries of the run are.

    Raises:
        InputError: ids of the run that the collection does not have, or no query of the split in it.
        UnknownNameError: no such split.
    """
    table = without_identical(run, collection).table
    if split is not None:
        judged = collection.judgements(split)["query_id"].combine_chunks().unique()
        table = table.filter(pc.is_in(table["query_id"], value_set=judged.cast(table["query_id"].type)))
        if not len(table):
            raise InputError(_why_silent(run, collection, split))
    table = table.filter(pc.less(table["rank"], depth))
    known = np.stack([collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])]) >= 0
    unknown = np.flatnonzero(~known.all(axis=0))
    if len(unknown):
        first = table.slice(unknown[0], 1).to_pylist()[0]
        pair = f"query {first['query_id']}, document {first['doc_id']}"
        raise InputError(f"{run.name}: {len(unknown)} rows ({pair}) not in {collection.name}; use its own")
    return replace(run, table=table)


def rerank_run(
    run: Run, collection: Collection, scorer: PairScorer, *, depth: int = 100, name: str = "reranked"
) -> Run:
    """Score the first `depth` documents of each query again and sort them; the rest is left out.

    So is a document that has the query's own id (`Collection.identical`), before the first are counted.

    Args:
        run: of the first stage.
        collection: holds the texts.
        scorer: list of (query text, document text) → one score a pair, higher is better; as a
            sentence-transformers CrossEncoder's `predict`.
        depth: how many documents of each query, at least 1.
        name: of the new run.

    Returns:
        A run of at most `depth` documents a query; ties keep the first stage's order.

    Raises:
        InputError: ids of the run that the collection does not have.
        FailureError: the scorer gave another number of scores, or one that is not finite.
    """
    table = first_documents(run, collection, depth).table
    queries, documents = collection.query_rows(table["query_id"]), collection.document_rows(table["doc_id"])
    scores = np.empty(len(queries))
    with progress.task("reranking", total=len(scores), unit="pairs") as advance:
        for start in range(0, len(scores), PAIRS):
            part = slice(start, start + PAIRS)
            texts = zip(collection.query_texts(queries[part]), collection.document_texts(documents[part]), strict=True)
            of_block = np.asarray(scorer(list(texts)), np.float64)
            if of_block.shape != scores[part].shape or not np.isfinite(of_block).all():
                bad = f"scores of shape {of_block.shape}, {(~np.isfinite(of_block)).sum()} not finite"
                raise FailureError(f"the reranker gave {bad}; expected one of {len(scores[part])} pairs each")
            scores[part] = of_block
            advance(len(of_block))
    return Run.ranked(table["query_id"], table["doc_id"], scores, name=name, facts=run.facts)


def qrels_of(collection: Collection, split: str) -> Qrels:
    """Return a split's judgements as query id → document id → grade, queries in the judgements' order."""
    table = collection.judgements(split)
    qrels: dict[str, dict[str, int]] = {}
    columns = (table[name].to_pylist() for name in ("query_id", "doc_id", "relevance"))
    for query, document, grade in zip(*columns, strict=True):
        qrels.setdefault(query, {})[document] = grade
    return qrels


def rankings_of(run: Run) -> Rankings:
    """Return a run as query id → document ids, best first."""
    rankings: dict[str, list[str]] = {}
    columns = run.table["query_id"].to_pylist(), run.table["doc_id"].to_pylist()
    for query, document in zip(*columns, strict=True):
        rankings.setdefault(query, []).append(document)
    return rankings


def measure_run(run: Run, collection: Collection, split: str, measures: Sequence[str]) -> Measured:
    """Measure a run on a split; all judged queries count, and documents count in the run's own order.

    Args:
        run: as `dense_run`, `bm25_run` and `rerank_run` make it.
        collection: with judgements of the split.
        split: whose queries.
        measures: ir_measures' names, none that looks deeper than the run.

    Raises:
        UnknownNameError: no such split.
        InputError: what `measure_rankings` refuses.
    """
    return measure_rankings(rankings_of(run), qrels_of(collection, split), measures, name=run.name)


def measure_encoder(
    model: EncoderLike, collection: Collection, split: str, measures: Sequence[str], **how: Any
) -> Measured:
    """Measure exact search by a model over the whole collection: `dense_run` (with `how`), then `measure_run`."""
    return measure_run(dense_run(model, collection, split, **how), collection, split, measures)


@dataclass(frozen=True)
class NamedSystem:
    """One system to evaluate.

    Attributes:
        kind: `encoder`, `bm25`, `run` or `reranker`.
        what: a name, a path or an object.
        name: what it is called; empty: it is called by what it is.
    """

    kind: Kind
    what: Any
    name: str = ""


@dataclass(frozen=True)
class Evaluation(Result):
    """What systems score on a split, and how they differ.

    Attributes:
        split: whose judgements were used.
        systems: each system's measures, in the order given.
        intervals: system → measure → bootstrap interval of the mean.
        comparisons: every pair of systems under every measure; empty for one system.
        identical_ids: queries of the split for which the document of the query's own id was left
            out of every run.
        collection: its name.
        runs: what was measured, one run a system.
    """

    split: str
    systems: tuple[Measured, ...]
    intervals: dict[str, dict[str, tuple[float, float]]]
    comparisons: tuple[Comparison, ...]
    identical_ids: int = 0
    collection: str = ""
    runs: tuple[Run, ...] = field(default=(), repr=False, compare=False)

    @property
    def brief(self) -> str:
        """Each system's first measure, for `repr`."""
        measure = next(iter(self.systems[0].per_query))
        means = ", ".join(f"{system.name!r} {number(system.means[measure], 4)}" for system in self.systems)
        return f"{self.collection} ({self.split}): {measure} of {means}"

    def tables(self) -> list[Table]:
        """Return the systems' means with their intervals, and the comparisons."""
        measures = list(self.systems[0].per_query)
        rows: list[tuple[str, ...]] = []
        for system in self.systems:
            values, ends = system.means, self.intervals[system.name].items()
            shown = [f"{values[name]:.4f} [{number(low)}, {number(high)}]" for name, (low, high) in ends]
            rows.append((system.name, *shown, f"{len(system.unanswered):,}"))
        count = len(self.systems[0].query_ids)
        title = f"{self.collection} ({self.split}), {count:,} queries, mean and 95 % interval"
        columns = ["system", *measures, "unanswered"]
        means = Table(title, columns, rows, identical_ids_caption(self.identical_ids))
        if not self.comparisons:
            return [means]
        rows = []
        for c in self.comparisons:
            ps = [p_value(p) for p in (c.p_randomised, c.p_randomised_holm, c.p)]
            rows.append((f"{c.a} − {c.b}", c.measure, signed(c.difference, 4), *ps[:2], c.test, ps[2]))
        columns = ["systems", "measure", "difference", "p (randomised)", "p (Holm)", "test", "p (test)"]
        caption = "p (randomised) and its Holm correction are about mean differences, Wilcoxon's about ranks"
        return [means, Table("Differences", columns, rows, caption)]

    def write_runs(self, folder: str | Path) -> None:
        """Write each system's run in TREC form, as NAME.trec in the folder; what no file's name holds is `_`.

        Raises:
            InputError: two systems whose files would have one name.
        """
        files = [re.sub(r"[/\\:\x00-\x1f]", "_", run.name).lstrip(".") + ".trec" for run in self.runs]
        if len(set(files)) < len(files):
            raise InputError(f"systems whose files have one name: {', '.join(sorted(files))}; rename them")
        for run, file in zip(self.runs, files, strict=True):
            run.write(Path(folder) / file)

    def to_json(self) -> dict[str, Any]:
        """Return plain values: split, systems (what ranked, measures, per query), comparisons."""
        facts, systems = {run.name: run.facts for run in self.runs}, []
        for system in self.systems:
            ids, name = system.query_ids, system.name
            intervals = {measure: list(ends) for measure, ends in self.intervals[name].items()}
            value = {"name": name, **facts.get(name, {}), "measures": system.means, "intervals": intervals}
            columns = system.per_query.items()
            per_query = {each: dict(zip(ids, values.tolist(), strict=True)) for each, values in columns}
            systems.append({**value, "unanswered": list(system.unanswered), "per_query": per_query})
        value = {"split": self.split, "identical_ids": self.identical_ids, "systems": systems}
        return {**value, "comparisons": [vars(comparison) for comparison in self.comparisons]}


def evaluate_runs(
    collection: Collection,
    runs: Sequence[Run],
    *,
    rng: np.random.Generator,
    split: str = "test",
    measures: Sequence[str] = DEFAULT_MEASURES,
    against: Sequence[str] | None = None,
) -> Evaluation:
    """Measure runs on a split and compare them.

    A document that has the query's own id is left out of each run before it is measured
    (`Collection.identical`).

    Args:
        collection: holds the judgements.
        runs: one a system, names distinct.
        rng: source of the bootstrap's draws.
        split: whose queries; all of them count, answered or not.
        measures: ir_measures' names.
        against: compare every other system with each of these; None: all pairs.

    Raises:
        InputError: no run, a name twice, a run that answers no query of the split, or what the
            measures refuse.
        UnknownNameError: an unknown split.
        MissingExtraError: ir-measures is not installed.
    """
    names = [run.name for run in runs]
    if not runs or len(set(names)) != len(names):
        raise InputError(f"expected at least one run, with names that differ; found {names}")
    qrels = qrels_of(collection, split)
    systems = tuple(
        measure_rankings(rankings_of(without_identical(run, collection)), qrels, measures, name=run.name)
        for run in runs
    )
    for run, system in zip(runs, systems, strict=True):
        if len(system.unanswered) == len(system.query_ids):
            raise InputError(_why_silent(run, collection, split))
    intervals = {
        system.name: {name: bootstrap_interval(values, rng=rng) for name, values in system.per_query.items()}
        for system in systems
    }
    values = {system.name: system.per_query for system in systems}
    comparisons = compare_systems(values, rng=rng, against=against)
    identical = collection.identical_ids(split)
    return Evaluation(split, systems, intervals, tuple(comparisons), identical, collection.name, tuple(runs))


def _why_silent(run: Run, collection: Collection, split: str) -> str:
    """Say that a run answers no query of a split, and what to do."""
    bm25, reads = run.facts.get("bm25"), ""
    if bm25:
        reads = f"; no document shares a term with one by {bm25['analyser']}, {spelled('language', bm25['language'])}"
    problem = f"{run.name} ranks no document for any query of the split {split!r} of {collection.name}{reads}"
    return f"{problem}; check the split (there are {', '.join(collection.splits)}) and the query ids"


def named_systems(systems: SystemsLike | None, kind: Kind | None = None) -> list[NamedSystem]:
    """Return systems with their names.

    Args:
        systems: name → system, systems, or one; a text is [NAME=]MODEL or [NAME=]FILE.
        kind: of all of them; None: runs are `Run` objects and files, rerankers are cross-encoders
            that are loaded, `bm25` is BM25 (a folder of this name is `./bm25`), as is a folder of
            `foils tune` that found it best, and the others are encoders.
    """
    if systems is None:
        return []
    pairs = [*systems.items()] if isinstance(systems, Mapping) else map(_parted, several(systems))
    return [NamedSystem(kind or _kind(each), each, name) for name, each in pairs]


def runs_of(
    systems: Sequence[NamedSystem],
    collection: Collection,
    embedding: EmbeddingSettings,
    *,
    split: str,
    top: int,
    rerank_depth: int,
    lexical: BM25Settings | None = None,
) -> list[Run]:
    """Return each system's run, in their order: an encoder's exact search, BM25's, a run, a reranked run.

    Every model is opened and every file read before the first text is embedded.

    Args:
        systems: rerankers score the documents of the first run or, where there is none, of the
            first encoder or BM25; a folder of `foils tune --reranker` puts its scores and the first
            stage's together, where it says so.
        collection: what encoders search.
        embedding: how encoders and cross-encoders are loaded, and where vectors are kept.
        split: whose queries encoders and BM25 search for.
        top: documents that they return for each query.
        rerank_depth: documents of each query that a reranker scores.
        lexical: how BM25 reads and scores texts; what it leaves open is as a folder of `foils tune` says.

    Raises:
        InputError: there is no encoder and no run, or one that cannot be read.
    """
    if all(system.kind == "reranker" for system in systems):
        raise InputError(f"nothing to evaluate; give {spelled('systems')} MODEL or {spelled('run')} FILE")
    lengths: dict[str, int] = {}

    def opened(system: NamedSystem) -> Callable[..., Any]:
        """What makes a system's run, its model loaded, or scores pairs."""
        if system.kind == "reranker":
            return partial(logits, embedding.open_cross_encoder(system.what))
        if system.kind == "run":
            run = _read(system)
            return lambda: run
        name, fusion = system.name or _file_name(system.what), Fusion.of(system.what)
        fuses = fusion is not None and fusion.deploys == "both"
        depth = max(top, FUSED_DEPTH) if fuses else top
        reads = (lexical or BM25Settings()).over({} if fusion is None else fusion.bm25)
        by_bm25 = partial(bm25_run, collection, split, depth=depth, name=name, lexical=reads)
        if system.kind == BM25:
            return by_bm25
        encoder, store = embedding.open_encoder(system.what, collection), embedding.open_store()
        dense_name = (system.name if fusion is None else name) or encoder.name
        length = getattr(encoder, "max_length", None)
        if length is not None:
            lengths[dense_name] = length
            log.info("%s: texts cut after %s tokens", encoder.name, length)
        dense = partial(dense_run, encoder, collection, split, depth=depth, store=store, name=dense_name)
        if fusion is None or not fuses:
            return dense
        return lambda: fuse_runs([by_bm25(), dense()], name=name, **fusion.how).first(top)

    makers = [opened(each) for each in systems]
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name}: {limit}" for name, limit in lengths.items())
        one = f"{spelled('max_length', 'TOKENS')} measures all at one"
        log.warning("the systems differ in the tokens after which they cut texts (%s), too; %s", listed, one)
    runs = [None if system.kind == "reranker" else make() for system, make in zip(systems, makers, strict=True)]
    files = [run for system, run in zip(systems, runs, strict=True) if system.kind == "run"]
    first = next(run for run in [*files, *runs] if run is not None)
    for place, system in enumerate(systems):
        if system.kind == "reranker":
            name = system.name or f"{first.name} + {_file_name(system.what) or 'reranker'}"
            run = rerank_run(first, collection, makers[place], depth=rerank_depth, name=name)
            fusion = Fusion.of(system.what)
            if fusion and fusion.deploys == "both":  # with the order that it reranks
                stage = first_documents(first, collection, rerank_depth)
                run = fuse_runs([stage, run], name=name, **fusion.how)
            runs[place] = run
    return [run for run in runs if run is not None]


def _read(system: NamedSystem) -> Run:
    if isinstance(system.what, Run):
        return replace(system.what, name=system.name or system.what.name)
    return replace(Run.read(system.what), name=system.name or _file_name(system.what).partition(".")[0])


def _kind(system: SystemLike) -> Kind:
    if isinstance(system, Run) or (isinstance(system, (str, Path)) and Path(system).is_file()):
        return "run"
    if deployed(system) == BM25:
        return BM25
    return "reranker" if hasattr(system, "predict") and not hasattr(system, "encode") else "encoder"


def _parted(system: Any) -> tuple[str, Any]:
    """The name and the rest of [NAME=]REST; a file's own name may have an equals sign."""
    name, equals, rest = system.partition("=") if isinstance(system, str) else ("", "", "")
    return (name, rest) if equals and name and not Path(str(system)).exists() else ("", system)


def _file_name(system: SystemLike) -> str:
    return Path(system).name if isinstance(system, (str, Path)) else ""


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings(Settings):
    """How systems are measured and compared.

    Attributes:
        split: Split of the judgements to measure on.
        measures: Measures, by ir_measures' names, separated by commas. In Python also a list of
            names. Default: nDCG@10,R@100,RR@10,AP.
        top: Number of documents that an encoder or BM25 returns for each query.
        rerank_depth: Number of documents of each query that a reranker scores.
        against: Compare the other systems with this system alone; may be given several times.
            Default: compare all.
        write_runs: Write the run of each system, in TREC form, to this folder.
        seed: Seed of the intervals; the same seed gives the same bytes.
    """

    split: str = "test"
    measures: Annotated[tuple[str, ...], Option(parse=parsed_names, metavar="MEASURES")] = DEFAULT_MEASURES
    top: Annotated[int, Option(least=1)] = 1000
    rerank_depth: Annotated[int, Option(least=1)] = 100
    against: Annotated[list[str] | None, Option(metavar="NAME")] = None
    write_runs: Annotated[str | Path | None, Option(metavar="FOLDER", writes=(FOLDER,))] = None
    seed: Annotated[int, Option(least=0)] = 0


def _among(*kinds: Kind) -> Callable[[Any], bool]:
    """Whether one of the systems is of one of these kinds, as a condition on `systems`."""
    return lambda systems: any(each.kind in kinds for each in named_systems(systems))


def _ranks_by_bm25(systems: Any) -> bool:
    """Whether BM25 ranks in one of the systems."""
    every = [each for each in named_systems(systems) if each.kind in ("encoder", BM25)]
    return any(deployed(each.what) != "model" for each in every)


@door(
    needs={
        "lexical": {"systems": _ranks_by_bm25},
        "top": {"systems": _among("encoder", "bm25")},
        "rerank_depth": [{"reranker": True}, {"systems": _among("reranker")}],
        "scale": {"systems": _among("encoder")},
        **{each.name: {"systems": _among("encoder")} for each in fields(EmbeddingSettings)},
        **{name: [{"systems": _among("encoder", "reranker")}, {"reranker": True}] for name in OF_CROSS_ENCODERS},
    }
)
def evaluate(
    collection: CollectionLike,
    systems: Annotated[SystemsLike | None, Option(flag="--model", metavar="[NAME=]MODEL", repeated=True)] = None,
    *,
    run: Annotated[SystemsLike | None, Option(metavar="[NAME=]FILE", repeated=True)] = None,
    reranker: Annotated[SystemsLike | None, Option(metavar="[NAME=]MODEL", repeated=True)] = None,
    evaluation: EvaluationSettings,
    lexical: BM25Settings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    embedding: EmbeddingSettings,
) -> Evaluation:
    """Measure systems on a split and compare them.

    Every judged query counts, answered or not. Differences of means are tested pair by pair by the
    paired randomisation test, with Holm's correction. Beside it stands the published protocol:
    Shapiro–Wilk, then the paired t-test or Wilcoxon's.

    Args:
        systems: Encoder to search with, exactly, or bm25; may be given several times. In Python a
            dictionary by name, or a list, of encoders (names or objects), bm25, runs (files or
            `Run` objects) and cross-encoders.
        run: TREC run to measure; may be given several times. In Python also a dictionary, or `Run` objects.
        reranker: Cross-encoder that reranks the first run or, without one, that of the first
            encoder or of bm25; a folder of foils tune --reranker puts the first stage's scores to
            its own where it says so. May be given several times. In Python also a dictionary, or
            objects.

    Example:
        foils evaluate scifact/ --model all-MiniLM-L6-v2 --model tuned=model/ --run bm25.trec --json
        result.json

    Raises:
        InputError: nothing to evaluate, something that cannot be read or measured, or options without effect.
        UnknownNameError: an unknown split or system.
    """
    loaded = reading.open(collection)
    if evaluation.write_runs is not None:
        check_ids(loaded.queries["query_id"], loaded.documents["doc_id"])
    depths = {"top": evaluation.top, "rerank_depth": evaluation.rerank_depth}
    split, against = evaluation.split, evaluation.against
    every = [*named_systems(systems), *named_systems(run, "run"), *named_systems(reranker, "reranker")]
    runs = runs_of(every, loaded, embedding, split=split, lexical=lexical, **depths)
    rng = np.random.default_rng(evaluation.seed)
    measured = evaluate_runs(loaded, runs, rng=rng, split=split, measures=evaluation.measures, against=against)
    if evaluation.write_runs is not None:
        measured.write_runs(evaluation.write_runs)
    return measured
