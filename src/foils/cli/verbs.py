"""The program's verbs, and where their doors are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foils.cli.verb import Verb, option
from foils.runtime.errors import FailureError, InputError
from foils.runtime.options import refuse


def _fail_where_damaged(result: Any, given: Mapping[str, Any]) -> None:
    """End `foils cache verify` with status 1 where it found damage."""
    if damaged := getattr(result, "damaged", {}):
        raise FailureError(
            f"{len(damaged)} of the cache's files are damaged; remove them, and what they held is made again"
        )


def _forms(texts: Sequence[str]) -> dict[str, Path]:
    from foils.data.formats import parsed_exports

    return parsed_exports(texts)


def _fail_where_kept(result: Any, given: Mapping[str, Any]) -> None:
    """End `foils tune` with status 1 where it kept the base."""
    if not getattr(result, "better", True):
        raise FailureError("no better model: the base is kept")


EXPORT = option(
    "export",
    dict,
    "Write the kept rows for training, too: triplets, tuples, labelled-pairs, labelled-lists, flagembedding, tevatron, "
    "nemo, ms-swift, ms-swift-pairs or trec; may be given several times. With scores: foils export.",
    metavar="FORM=FILE",
    parse=_forms,
    repeated=True,
)


def export_kept(result: Any, given: Mapping[str, Any]) -> None:
    """Write the files that `--export` names; `result` has an `export(path, form=…)`."""
    for form, path in given.get("export", {}).items():
        result.export(path, form=form)


def _check_split(given: Mapping[str, Any]) -> None:
    """Refuse, of `foils fuse`, a split that no export asks for."""
    if not given.get("export") and (split := given.get("split", "train")) != "train":
        refuse({"split": split}, "without --export, which takes the positives of the split; leave it out")


def _write_page(result: Any, given: Mapping[str, Any]) -> None:
    """Write the page of `foils report`, where one is wanted."""
    from foils.cli.show import say

    if page := given.get("page"):
        result.report(page)
        say(f"report: {page}")


def _open_report(result: Any, given: Mapping[str, Any]) -> None:
    """Open the report of `foils demo` in a browser, where there is somebody to look at it."""
    import webbrowser

    if given.get("open_report", True) and sys.stdout.isatty():
        webbrowser.open((given.get("output", Path("foils-demo")) / "report.html").resolve().as_uri())


def _check_texts(given: Mapping[str, Any]) -> None:
    """Refuse, of `foils select`, a page or exports without texts, and what nothing but these needs."""
    from foils.selection.doors import refuse_seed

    by, report = given.get("by", "table"), given.get("report")
    if by == "benefit":
        return refuse({"report": report}, "with --by benefit; foils score shows what the chosen table is worth")
    shown = report or given.get("export")
    if shown and given.get("collection") is None:
        raise InputError("--report and --export need the texts: give the --collection that was rated")
    elif not shown:
        split = given.get("split")
        idle = {"collection": given.get("collection"), "split": None if split == "train" else split}
        refuse(
            {**idle, "keep_identical_ids": given.get("keep_identical_ids") or None},
            "without --report or --export, which need the texts; give one of them, or leave it out",
        )
    if not report:
        refuse_seed(by, given.get("seed", 0))
    return None


WRITE_RUNS = option("write_runs", Path, "Write the run of each system, in TREC form, to this folder.", metavar="FOLDER")


def _write_runs(result: Any, given: Mapping[str, Any]) -> None:
    if folder := given.get("write_runs"):
        result.write_runs(folder)


def _check_run(given: Mapping[str, Any]) -> None:
    """Refuse a search whose result nobody sees."""
    if given.get("run") is None:
        raise InputError("nothing to write; give --run FILE")


PROMOTED = option(
    "promoted",
    Path,
    "Write the rows that are called positive to this file, as labels (.tsv, .csv, .jsonl or .parquet): give it to "
    "--add-judgements.",
    metavar="FILE",
)


def _write_promoted(result: Any, given: Mapping[str, Any]) -> None:
    """Write what `--promoted` and `--export` name."""
    if path := given.get("promoted"):
        result.promoted.write(path)
    export_kept(result, given)


PAGE = option("page", Path, "Write the page to this file.", flag="--output", short="-o", metavar="FILE")


def _negatives(door: str, example: str, **more: Any) -> Verb:
    """A verb whose result is a table of negatives, which may be exported."""
    return Verb(door, example, writes="table of negatives", after=export_kept, more=(EXPORT,), **more)


DOORS: dict[str, Verb] = {
    "describe": Verb(
        "foils.data.doors:describe",
        example="foils describe pairs.csv --columns query=question,positive=answer",
    ),
    "export": Verb(
        "foils.data.doors:export",
        example="foils export scifact/ rated.parquet --form flagembedding --scores elo -o train.jsonl",
        writes="records",
    ),
    "score": Verb(
        "foils.scoring.doors:score",
        example="foils score scifact/ bm25.parquet dense.parquet llm=negatives.jsonl --report page.html "
        "--json scores.json",
        reports=True,
    ),
    "mine": _negatives(
        "foils.mining.doors:mine",
        example="foils mine scifact/ --with bm25 --top 10 --split train -o bm25.parquet",
    ),
    "generate": _negatives(
        "foils.mining.doors:generate",
        example="foils generate scifact/ --base-url http://localhost:8000/v1 --llm-model NAME --limit 100 "
        "-o llm.parquet",
    ),
    "fuse": _negatives(
        "foils.mining.doors:fuse",
        example="foils fuse scifact/ bm25.parquet dense.parquet --method rrf -o both.parquet",
        before=_check_split,
    ),
    "filter": _negatives(
        "foils.mining.doors:filter",
        example="foils filter scifact/ llm.parquet --scorer encoder --margin 0.05 -o filtered.parquet",
    ),
    "score-pairs": Verb(
        "foils.mining.doors:score_pairs",
        example="foils score-pairs scifact/ bm25.parquet --teacher bi-encoder:all-MiniLM-L6-v2 -o taught.parquet",
        writes="table of negatives",
    ),
    "study": Verb(
        "foils.experiments.doors:study",
        example="foils study scifact/ bm25.parquet dense.parquet random.parquet --model static:all-MiniLM-L6-v2 "
        "-o study/",
    ),
    "report": Verb(
        "foils.experiments.doors:report",
        example="foils report study/ other-study/ --measure RR@10 -o report.html",
        after=_write_page,
        more=(PAGE,),
    ),
    "demo": Verb(
        "foils.tuning.demo:demo",
        example="foils demo -o foils-demo/",
        after=_open_report,
        more=(
            option("open_report", bool, "Open the report in a browser (on a terminal). Default: yes.", flag="--open"),
        ),
        alone=True,
    ),
    "rate": Verb(
        "foils.rating.doors:rate",
        example="foils rate scifact/ dense.parquet --judge cross-encoder:my-reranker/ --degree 6 -o rated.parquet",
        writes="table of negatives",
        reports=True,
    ),
    "label": Verb(
        "foils.labelling.doors:label",
        example="foils label scifact/ bm25.parquet dense.parquet -n 60 -o labels.tsv",
        reports=True,
    ),
    "relabel": Verb(
        "foils.labelling.doors:relabel",
        example="foils relabel scifact/ dense.parquet --judge llm:NAME --base-url http://localhost:8000/v1 "
        "--promoted found.tsv -o relabelled.parquet",
        writes="table of negatives",
        reports=True,
        more=(PROMOTED, EXPORT),
        after=_write_promoted,
    ),
    "select": _negatives(
        "foils.selection.doors:select",
        example="foils select rated.parquet --by mixture -o train.parquet",
        reports=True,
        before=_check_texts,
    ),
    "compose": _negatives(
        "foils.selection.doors:compose",
        example="foils compose scifact/ bm25.parquet dense.parquet --top 10 -o composed.parquet",
    ),
    "evaluate": Verb(
        "foils.evaluation.doors:evaluate",
        example="foils evaluate scifact/ --model all-MiniLM-L6-v2 --model tuned=model/ --run bm25.trec "
        "--json result.json",
        more=(WRITE_RUNS,),
        after=_write_runs,
    ),
    "batch": Verb(
        "foils.batching.doors:batch",
        example="foils batch scifact/ bm25.parquet --with hobit --batch-size 32 --report page.html -o plan.parquet",
        writes="plan",
        reports=True,
    ),
    "search": Verb(
        "foils.searching.doors:search",
        example="foils search scifact/ --tune train --run eclipse.trec",
        before=_check_run,
        moved={
            "--experiment": "compare with foils sweep COLLECTION EXPERIMENT",
            "--folds": "it is one of foils sweep",
            "--report": "it is one of foils sweep",
            "--rebuild-index": "remove the file of the index, and it is built again",
            **dict.fromkeys(
                ("--llm-model", "--base-url", "--answer-prompt", "--llm-args"),
                "let foils answer write the answers to a file, and give --answers FILE",
            ),
        },
    ),
    "answer": Verb(
        "foils.searching.doors:answer",
        example="foils answer scifact/ --base-url http://localhost:8000/v1 --llm-model NAME -o answers.jsonl",
        writes="answers",
    ),
    "sweep": Verb(
        "foils.searching.doors:sweep",
        example="foils sweep scifact/ filters --model all-MiniLM-L6-v2 --report sweep.html",
        reports=True,
    ),
    "train": Verb(
        "foils.training.doors:train",
        example="foils train scifact/ bm25.parquet --model all-MiniLM-L6-v2 --recipe eci-sem --batch-size 256 "
        "-o model/",
    ),
    "tune": Verb(
        "foils.tuning.doors:tune",
        example="foils tune pairs.csv --model all-MiniLM-L6-v2 --minutes 30 -o better/",
        after=_fail_where_kept,
    ),
    "merge": Verb(
        "foils.tuning.doors:merge",
        example="foils merge all-MiniLM-L6-v2 better/model/ --alpha 0.5 -o merged/",
    ),
    "push": Verb(
        "foils.data.doors:push",
        example="foils push bm25.parquet hf:me/scifact-bm25 --license cc-by-4.0",
    ),
    "cache": Verb(
        "foils.upkeep.doors:cache",
        example="foils cache prune --keep 20GiB",
        after=_fail_where_damaged,
        alone=True,
    ),
}
