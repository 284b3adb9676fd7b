"""The program's verbs, and where their doors are."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foils.cli.verb import Verb, option
from foils.runtime.errors import FailureError


def _fail_where_damaged(result: Any, given: Mapping[str, Any]) -> None:
    """End `foils cache verify` with status 1 where it found damage."""
    if damaged := getattr(result, "damaged", {}):
        raise FailureError(
            f"{len(damaged)} of the cache's files are damaged; remove them, and what they held is made again"
        )


def _forms(texts: Sequence[str]) -> dict[str, Path]:
    from foils.data.export import parsed_exports

    return parsed_exports(texts)


EXPORT = option(
    "export",
    dict,
    "Write the kept rows for training, too: triplets, tuples, labelled-pairs, labelled-lists, tevatron, flagembedding "
    "or trec; may be given several times.",
    metavar="FORM=FILE",
    parse=_forms,
    repeated=True,
)


def export_kept(result: Any, given: Mapping[str, Any]) -> None:
    """Write the files that `--export` names; `result` has an `export(path, form=…)`."""
    for form, path in given.get("export", {}).items():
        result.export(path, form=form)


def _open_report(result: Any, given: Mapping[str, Any]) -> None:
    """Open the report of `foils demo` in a browser, where there is somebody to look at it."""
    import webbrowser

    if given.get("open_report", True) and sys.stdout.isatty():
        webbrowser.open((given.get("output", Path("foils-demo")) / "report.html").resolve().as_uri())


DOORS: dict[str, Verb] = {
    "score": Verb(
        "foils.scoring.doors:score",
        example="foils score scifact/ bm25.parquet dense.parquet llm=negatives.jsonl --report page.html "
        "--json scores.json",
        reports=True,
    ),
    "demo": Verb(
        "foils.studies.doors:demo",
        example="foils demo -o foils-demo/",
        after=_open_report,
        more=(
            option("open_report", bool, "Open the report in a browser (on a terminal). Default: yes.", flag="--open"),
        ),
        alone=True,
    ),
    "cache": Verb(
        "foils.upkeep.doors:cache",
        example="foils cache prune --keep 20GiB",
        after=_fail_where_damaged,
        alone=True,
    ),
}
