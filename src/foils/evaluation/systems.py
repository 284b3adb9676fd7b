"""Several systems over one split of a collection: what they are, measured alike, compared pair by pair."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from foils.data import Collection, Run
from foils.data.fusion import FUSED_DEPTH, Fusion, fuse_runs
from foils.data.read import identical_ids_caption
from foils.data.run import without_identical
from foils.encode import EmbeddingSettings
from foils.encode.cross_encoders import logits
from foils.encode.models import find_model, own_kind
from foils.evaluation.measuring import dense_run, qrels_of, rankings_of, rerank_run
from foils.runtime.errors import InputError
from foils.runtime.options import spelled
from foils.runtime.results import Result, Table, number, p_value
from foils.searching import own_run
from foils.searching.runs import bm25_run
from foils.statistics import Comparison, bootstrap_interval, compare_systems
from foils.statistics.measures import DEFAULT_MEASURES, Measured, measure_rankings

if TYPE_CHECKING:
    SystemLike = str | Path | Run | Any  # Any: an Encoder, a SentenceTransformer, a CrossEncoder
    SystemsLike = Mapping[str, SystemLike] | Sequence[SystemLike] | SystemLike
else:
    SystemsLike = list[str]

BM25: Literal["bm25"] = "bm25"
Kind = Literal["encoder", "bm25", "run", "reranker"]
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NamedSystem:
    """One system to evaluate.

    Attributes:
        kind: `encoder`, `bm25`, `run` or `reranker`.
        what: a name, a path or an object.
        name: what it is called; empty: it is called by what it is.
    """

    kind: Kind
    what: SystemLike
    name: str = ""


@dataclass(frozen=True)
class Evaluation(Result):
    """What systems score on a split, and how they differ.

    Attributes:
        split: whose judgements were used.
        systems: each system's measures, in the order given.
        intervals: system → measure → bootstrap interval of the mean.
        comparisons: every pair of systems under every measure; empty for one system.
        identical_ids: queries of the split for which the document of the query's own id was left out of every run.
        collection: its name.
        runs: what was measured, one run a system.
        remarks: what must be said of the runs.
    """

    split: str
    systems: tuple[Measured, ...]
    intervals: dict[str, dict[str, tuple[float, float]]]
    comparisons: tuple[Comparison, ...]
    identical_ids: int = 0
    collection: str = ""
    runs: tuple[Run, ...] = field(default=(), repr=False, compare=False)
    remarks: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        """Return the systems' means with their intervals, and the comparisons."""
        measures = list(self.systems[0].per_query)
        rows = [
            (
                system.name,
                *(
                    f"{system.means[measure]:.4f} [{number(low)}, {number(high)}]"
                    for measure, (low, high) in self.intervals[system.name].items()
                ),
                f"{len(system.unanswered):,}",
            )
            for system in self.systems
        ]
        count = len(self.systems[0].query_ids)
        title = f"{self.collection} ({self.split}), {count:,} queries, mean and 95 % interval"
        caption = "\n".join(filter(None, [identical_ids_caption(self.identical_ids), *self.remarks]))
        means = Table(title, ["system", *measures, "unanswered"], rows, caption)
        if not self.comparisons:
            return [means]
        rows = [
            (
                f"{c.a} − {c.b}", c.measure, f"{c.difference:+.4f}", c.test, p_value(c.p), p_value(c.p_holm),
                p_value(c.p_randomised),
            )
            for c in self.comparisons
        ]  # fmt: skip
        columns = ["systems", "measure", "difference", "test", "p", "p (Holm)", "p (randomised)"]
        return [means, Table("Differences", columns, rows)]

    def write_runs(self, folder: str | Path) -> None:
        """Write the run of each system in TREC form, as NAME.trec in the folder; what no file's name holds is `_`.

        Raises:
            InputError: two systems whose files would have one name.
        """
        files = [re.sub(r"[/\\:\x00-\x1f]", "_", run.name).lstrip(".") + ".trec" for run in self.runs]
        if len(set(files)) < len(files):
            raise InputError(f"systems whose files would have one name: {', '.join(sorted(files))}; give other names")
        for run, file in zip(self.runs, files, strict=True):
            run.write(Path(folder) / file)

    def to_json(self) -> dict[str, Any]:
        """Return the evaluation as plain values: split, systems (measures, per query), comparisons."""
        return {
            "split": self.split,
            "identical_ids": self.identical_ids,
            "systems": [
                {
                    "name": system.name,
                    "measures": system.means,
                    "intervals": {measure: list(ends) for measure, ends in self.intervals[system.name].items()},
                    "unanswered": list(system.unanswered),
                    "per_query": {
                        measure: dict(zip(system.query_ids, values.tolist(), strict=True))
                        for measure, values in system.per_query.items()
                    },
                }
                for system in self.systems
            ],
            "comparisons": [vars(comparison) for comparison in self.comparisons],
        }


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

    A document that has the query's own id is left out of each run before it is measured (`Collection.identical`).

    Args:
        collection: holds the judgements.
        runs: one a system, names distinct.
        rng: source of the bootstrap's draws.
        split: whose queries; all of them count, answered or not.
        measures: ir_measures' names.
        against: compare every other system with each of these; None: all pairs.

    Raises:
        InputError: no run, a name twice, a run that answers no query of the split, or what the measures refuse.
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
    silent = [system.name for system in systems if len(system.unanswered) == len(system.query_ids)]
    if silent:
        raise InputError(
            f"no query of the split {split!r} of {collection.name} is in: {', '.join(silent)}; "
            f"check the split (there are {', '.join(collection.splits)}) and the query ids"
        )
    intervals = {
        system.name: {measure: bootstrap_interval(values, rng=rng) for measure, values in system.per_query.items()}
        for system in systems
    }
    values = {system.name: system.per_query for system in systems}
    comparisons = compare_systems(values, rng=rng, against=against) if len(systems) > 1 else []
    identical = collection.identical_ids(split)
    return Evaluation(split, systems, intervals, tuple(comparisons), identical, collection.name, tuple(runs))


def tied_queries(run: Run) -> int:
    """Return for how many queries of a run two documents have one score, which trec_eval would order by their ids."""
    queries = run.table["query_id"].combine_chunks().dictionary_encode().indices.to_numpy()
    scores = run.table["score"].to_numpy().astype(np.float32)
    return len(np.unique(queries[1:][(queries[1:] == queries[:-1]) & (scores[1:] == scores[:-1])]))


def named_systems(systems: SystemsLike | None, kind: Kind | None = None) -> list[NamedSystem]:
    """Return systems with their names.

    Args:
        systems: name → system, systems, or one; a text is [NAME=]MODEL or [NAME=]FILE.
        kind: of all of them; None: runs are `Run` objects and files, rerankers are cross-encoders that are loaded,
            `bm25` is BM25 (a folder of this name is `./bm25`), and the others are encoders.
    """
    if systems is None:
        return []
    if isinstance(systems, Mapping):
        pairs = list(systems.items())
    else:
        if isinstance(systems, str) or not isinstance(systems, Sequence):
            systems = [systems]
        pairs = [_parted(each) if isinstance(each, str) else ("", each) for each in systems]
    return [NamedSystem(kind or _kind(each), each, name) for name, each in pairs]


def runs_of(
    systems: Sequence[NamedSystem],
    collection: Collection,
    embedding: EmbeddingSettings,
    *,
    split: str,
    top: int,
    rerank_depth: int,
) -> list[Run]:
    """Return the run of each system, in their order: an encoder's exact search, BM25's, a run, a reranked run.

    Every model is opened and every file read before the first text is embedded.

    Args:
        systems: rerankers score the documents of the first run or, where there is none, of the first encoder or BM25.
        collection: what encoders search.
        embedding: how encoders and cross-encoders are loaded, and where vectors are kept.
        split: whose queries encoders and BM25 search for.
        top: documents that they return for each query.
        rerank_depth: documents of each query that a reranker scores.

    Raises:
        InputError: there is no encoder and no run, or one that cannot be read.
    """
    if all(system.kind == "reranker" for system in systems):
        raise InputError(
            f"nothing to evaluate; give an encoder ({spelled('systems')} MODEL) or a run ({spelled('run')} FILE)"
        )
    opened = [_opened(system, collection, embedding, split=split, top=top) for system in systems]
    runs = [None if system.kind == "reranker" else run() for system, run in zip(systems, opened, strict=True)]
    files = [run for system, run in zip(systems, runs, strict=True) if system.kind == "run"]
    first = next(run for run in [*files, *runs] if run is not None)
    for place, system in enumerate(systems):
        if system.kind == "reranker":
            name = system.name or f"{first.name} + {_file_name(system.what) or 'reranker'}"
            runs[place] = rerank_run(first, collection, opened[place], depth=rerank_depth, name=name)
    return [run for run in runs if run is not None]


def _opened(
    system: NamedSystem, collection: Collection, embedding: EmbeddingSettings, *, split: str, top: int
) -> Callable[..., Any]:
    """What makes the run of a system whose model is loaded; of a reranker, what scores pairs."""
    if system.kind == "reranker":
        return partial(logits, embedding.open_cross_encoder(system.what))
    if system.kind == "run":
        run = _read(system)
        return lambda: run
    if system.kind == BM25:
        return partial(bm25_run, collection, split, depth=top, name=system.name or BM25)
    if fusion := Fusion.of(system.what):
        name = system.name or _file_name(system.what)
        opening = partial(_opened, collection=collection, embedding=embedding, split=split, top=max(top, FUSED_DEPTH))
        model = NamedSystem("encoder", find_model(str(system.what)), name)
        parts = {BM25: NamedSystem(BM25, BM25, name), "model": model}
        if fusion.deploys in parts:
            return opening(parts[fusion.deploys])
        lexical, dense = opening(parts[BM25]), opening(model)
        return lambda: fuse_runs([lexical(), dense()], name=name, **fusion.how).first(top)
    if own_kind(system.what):
        return partial(own_run, embedding.open_own(system.what), collection, split, depth=top, name=system.name)
    encoder = embedding.open_encoder(system.what, collection)
    if (length := getattr(encoder, "max_length", None)) is not None:
        log.info("%s: texts cut after %s tokens", encoder.name, length)
    return partial(dense_run, encoder, collection, split, depth=top, store=embedding.open_store(), name=system.name)


def _read(system: NamedSystem) -> Run:
    if isinstance(system.what, Run):
        return Run(system.what.table, system.name or system.what.name)
    return Run(Run.read(system.what).table, system.name or _file_name(system.what).partition(".")[0])


def _kind(system: SystemLike) -> Kind:
    if isinstance(system, Run) or (isinstance(system, (str, Path)) and Path(system).is_file()):
        return "run"
    if system == BM25:
        return BM25
    return "reranker" if hasattr(system, "predict") and not hasattr(system, "encode") else "encoder"


def _parted(text: str) -> tuple[str, str]:
    """The name and the rest of [NAME=]REST; a file's own name may have an equals sign."""
    name, equals, path = text.partition("=")
    return (name, path) if equals and name and not Path(text).exists() else ("", text)


def _file_name(system: SystemLike) -> str:
    return Path(system).name if isinstance(system, (str, Path)) else ""
