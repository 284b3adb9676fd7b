"""The door of evaluation."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np

from foils.data.analyser import BM25Settings
from foils.data.fusing import deployed
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.run import check_ids
from foils.encode.opening import OF_CROSS_ENCODERS, EmbeddingSettings
from foils.evaluation.systems import BM25, Evaluation, NamedSystem, SystemsLike, evaluate_runs, named_systems, runs_of
from foils.runtime.files import FOLDER
from foils.runtime.options import Option, Settings, door, refuse, spelled
from foils.runtime.parallel import ScaleSettings
from foils.statistics.measures import DEFAULT_MEASURES, parsed_names


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


def _refuse_idle(
    systems: SystemsLike | None,
    run: SystemsLike | None,
    reranker: SystemsLike | None,
    evaluation: EvaluationSettings,
    lexical: BM25Settings,
    scale: ScaleSettings,
    embedding: EmbeddingSettings,
) -> None:
    """Refuse options that these systems have no use for, before anything is read."""
    every = _every(systems, run, reranker)
    kinds = [system.kind for system in every]
    if all(system.kind in ("run", "reranker") or deployed(system.what) == "model" for system in every):
        refuse(lexical.changed(), f"without a system that ranks by BM25 ({spelled('systems')} bm25); give one")
    if "encoder" not in kinds:
        used = OF_CROSS_ENCODERS if "reranker" in kinds else ()
        idle = {name: value for name, value in embedding.changed().items() if name not in used}
        depth = {} if BM25 in kinds else evaluation.changed("top")
        why = f"without an encoder ({spelled('systems')} MODEL), for no text is embedded; leave it out, or give one"
        refuse({**depth, **idle, **scale.changed("ray")}, why)
    if "reranker" not in kinds:
        refuse(evaluation.changed("rerank_depth"), f"without {spelled('reranker')}; give one, or leave it out")
    if len(kinds) == 1:
        why = "with one system, which is compared with nothing; give another, or leave it out"
        refuse(evaluation.changed("against"), why)


def _every(systems: SystemsLike | None, run: SystemsLike | None, reranker: SystemsLike | None) -> list[NamedSystem]:
    return [*named_systems(systems), *named_systems(run, "run"), *named_systems(reranker, "reranker")]


@door(check=_refuse_idle)
def evaluate(
    collection: CollectionLike,
    systems: Annotated[SystemsLike | None, Option(flag="--model", metavar="[NAME=]MODEL")] = None,
    *,
    run: Annotated[SystemsLike | None, Option(metavar="[NAME=]FILE")] = None,
    reranker: Annotated[SystemsLike | None, Option(metavar="[NAME=]MODEL")] = None,
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
        check_ids(loaded.all_ids())
    depths = {"top": evaluation.top, "rerank_depth": evaluation.rerank_depth}
    split, against = evaluation.split, evaluation.against
    runs = runs_of(_every(systems, run, reranker), loaded, embedding, split=split, lexical=lexical, **depths)
    rng = np.random.default_rng(evaluation.seed)
    measured = evaluate_runs(loaded, runs, rng=rng, split=split, measures=evaluation.measures, against=against)
    if evaluation.write_runs is not None:
        measured.write_runs(evaluation.write_runs)
    return measured
