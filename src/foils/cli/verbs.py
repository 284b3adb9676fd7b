"""The program's verbs: the doors of `foils` by their names, and what the program does beside them."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import foils
from foils.runtime.errors import FailureError, InputError
from foils.runtime.options import Option, Setting

Door = Callable[..., Any]
Values = Mapping[str, Any]


class UsageError(InputError):
    """A command that the program does not understand."""


@dataclass(frozen=True)
class Output(Setting):
    """An option of the program alone, mostly what to write of the result; nothing where it is not given.

    Attributes:
        write: name of the result's method that writes to the value of the option; empty: the option is for
            `Verb.after`.
    """

    write: str = ""


def _output(text: str, *, name: str = "output", write: str = "write", needed: bool = False, **option: Any) -> Output:
    kind, default = (Path, inspect.Parameter.empty) if needed else (Path | None, None)
    return Output(name, kind, Option(**{"metavar": "FILE", **option}), default, text, "Output", write=write)


def _parquet(text: str) -> Path:
    from foils.data.tables import check_parquet_name  # loads pyarrow: not for `foils --help`

    check_parquet_name(text)
    return Path(text)


JSON = _output("Write the result as JSON to this file.", name="json", write="write_json")
REPORT = _output("Write an HTML page to this file.", name="report", write="report")
PAGE = _output("Write the page to this file.", name="page", write="report", flag="--output", short="-o")
NEGATIVES = _output("Write the table of negatives to this file.", needed=True, short="-o", parse=_parquet)
PLAN = _output("Write the plan to this file.", needed=True, short="-o", parse=_parquet)
RECORDS = _output("Write the records to this file.", needed=True, short="-o")
RUNS = _output(
    "Write the run of each system, in TREC form, to this folder.",
    name="write_runs",
    write="write_runs",
    metavar="FOLDER",
)
PROMOTED = _output(
    "Write the rows that are called positive to this file, as labels (.tsv, .csv, .jsonl or .parquet): give it to "
    "--add-judgements.",
    name="promoted",
    write="promoted.write",
)
OPEN = Output(
    "open_report", bool | None, Option(flag="--open"), None,
    "Open the report in a browser (on a terminal). Default: yes.", "Output",
)  # fmt: skip


@dataclass(frozen=True)
class Verb:
    """What the program needs of a verb beside its door.

    Attributes:
        example: a command, for the help.
        outputs: options of the program alone, beside --json.
        after: does what the program alone does with the result, once it is written and shown; it is given the result
            and the values of all options.
        next: the command that mostly follows, in which {output} and other names of options stand for their values.
    """

    example: str
    outputs: tuple[Output, ...] = ()
    after: Callable[[Any, Values], None] | None = None
    next: str = ""


def door_of(verb: str) -> Door:
    """Import the door of a verb."""
    function: Door = getattr(foils, verb.replace("-", "_"))
    return function


def summary(verb: str) -> str:
    """Return the first line of a door's docstring, read from its file: nothing is imported for `foils --help`."""
    name = verb.replace("-", "_")
    home = next(home for home, names in foils._homes.items() if name in names)
    source = Path(foils.__file__).parent.joinpath(*home.split(".")).with_suffix(".py").read_text("utf-8")
    docstring = re.search(rf'^def {name}\(.*?"""(.*?)$', source, re.DOTALL | re.MULTILINE)
    return docstring[1].strip() if docstring else ""


def _fail_where_empty(result: Any, _: Values) -> None:
    if not result.keep.any():
        raise FailureError("no row is kept: there is nothing to train on")


def _fail_where_kept(result: Any, _: Values) -> None:
    if not getattr(result, "better", True):
        raise FailureError("no better model: the base is kept")


def _open_report(_: Any, given: Values) -> None:
    """Open the report of `foils demo` in a browser, where there is somebody to look at it."""
    import webbrowser

    if given.get("open_report", True) and sys.stdout.isatty():
        webbrowser.open((given.get("output", Path("foils-demo")) / "report.html").resolve().as_uri())


DOORS: dict[str, Verb] = {
    "describe": Verb(
        "foils describe pairs.csv --columns query=question,positive=answer",
        next="foils mine {collection} -o bm25.parquet",
    ),
    "export": Verb("foils export scifact/ rated.parquet --form flagembedding --scores elo -o train.jsonl", (RECORDS,)),
    "score": Verb(
        "foils score scifact/ bm25.parquet dense.parquet llm=negatives.jsonl --report page.html --json scores.json",
        (REPORT,),
    ),
    "mine": Verb(
        "foils mine scifact/ --with bm25 --top 10 --split train -o bm25.parquet",
        (NEGATIVES,),
        after=_fail_where_empty,
        next="foils score {collection} {output}",
    ),
    "generate": Verb(
        "foils generate scifact/ --base-url http://localhost:8000/v1 --llm-model NAME --limit 100 -o llm.parquet",
        (NEGATIVES,),
    ),
    "fuse": Verb(
        "foils fuse scifact/ bm25.parquet dense.parquet --method rrf -o both.parquet",
        (NEGATIVES,),
        next="foils score {collection} {sources} {output}",
    ),
    "filter": Verb(
        "foils filter scifact/ llm.parquet --scorer encoder --margin 0.05 -o filtered.parquet",
        (NEGATIVES,),
        next="foils score {collection} {output}",
    ),
    "score-pairs": Verb(
        "foils score-pairs scifact/ bm25.parquet --teacher bi-encoder:all-MiniLM-L6-v2 -o taught.parquet",
        (NEGATIVES,),
        next="foils train {collection} {output} --loss margin-mse -o model/",
    ),
    "study": Verb(
        "foils study scifact/ bm25.parquet dense.parquet random.parquet --model static:all-MiniLM-L6-v2 -o study/",
        next="foils report {output} -o report.html",
    ),
    "report": Verb("foils report study/ other-study/ --measure RR@10 -o report.html", (PAGE,)),
    "demo": Verb("foils demo -o foils-demo/", (OPEN,), after=_open_report),
    "rate": Verb(
        "foils rate scifact/ dense.parquet --judge cross-encoder:my-reranker/ --degree 6 -o rated.parquet",
        (NEGATIVES,),
        next="foils select {output} -o train.parquet",
    ),
    "label": Verb(
        "foils label scifact/ bm25.parquet dense.parquet -n 60 -o labels.tsv",
        next="foils score {collection} {sources} --labels {output}",
    ),
    "relabel": Verb(
        "foils relabel scifact/ dense.parquet --judge llm:NAME --base-url http://localhost:8000/v1 "
        "--promoted found.tsv -o relabelled.parquet",
        (NEGATIVES, PROMOTED),
        next="foils train {collection} {output} -o model/",
    ),
    "select": Verb("foils select rated.parquet --by mixture -o train.parquet", (NEGATIVES,)),
    "compose": Verb(
        "foils compose scifact/ bm25.parquet dense.parquet --top 10 -o composed.parquet",
        (NEGATIVES,),
        next="foils train {collection} {output} -o model/",
    ),
    "evaluate": Verb(
        "foils evaluate scifact/ --model all-MiniLM-L6-v2 --model tuned=model/ --run bm25.trec --json result.json",
        (RUNS,),
    ),
    "batch": Verb("foils batch scifact/ bm25.parquet --with hobit --batch-size 32 -o plan.parquet", (PLAN,)),
    "search": Verb("foils search scifact/ --tune train --run out.trec", next="foils evaluate {collection} --run {run}"),
    "train": Verb(
        "foils train scifact/ bm25.parquet --model all-MiniLM-L6-v2 --recipe eci-sem --batch-size 256 -o model/",
        next="foils evaluate {collection} --model {output}",
    ),
    "tune": Verb("foils tune pairs.csv --model all-MiniLM-L6-v2 --minutes 30 -o better/", after=_fail_where_kept),
    "merge": Verb("foils merge all-MiniLM-L6-v2 better/model/ --alpha 0.5 -o merged/"),
    "cache": Verb("foils cache prune --keep 20GiB"),
}
