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

Door = Any  # a function, with its settings by name
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


class Verb:
    """What the program needs of a verb beside its door.

    Args:
        outputs: options of the program alone, beside --json.
        after: does what the program alone does with the result, once it is written and shown; it is given the result
            and the values of all options.
        next: the command that mostly follows, in which {output} and other names of options stand for their values.
    """

    def __init__(
        self, *outputs: Output, after: Callable[[Any, Values], None] = lambda *_: None, next: str = ""
    ) -> None:
        self.outputs, self.after, self.next = outputs, after, next


def door_of(verb: str) -> Door:
    """Import the door of a verb."""
    return getattr(foils, verb.replace("-", "_"))


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
    "describe": Verb(next="foils mine {collection} -o bm25.parquet"),
    "export": Verb(RECORDS),
    "score": Verb(REPORT),
    "mine": Verb(NEGATIVES, after=_fail_where_empty, next="foils score {collection} {output}"),
    "generate": Verb(NEGATIVES),
    "fuse": Verb(NEGATIVES, next="foils score {collection} {sources} {output}"),
    "filter": Verb(NEGATIVES, next="foils score {collection} {output}"),
    "score-pairs": Verb(NEGATIVES, next="foils train {collection} {output} --loss margin-mse -o model/"),
    "study": Verb(next="foils report {output} -o report.html"),
    "report": Verb(PAGE),
    "demo": Verb(OPEN, after=_open_report),
    "rate": Verb(NEGATIVES, next="foils select {output} -o train.parquet"),
    "label": Verb(next="foils score {collection} {sources} --labels {output}"),
    "relabel": Verb(NEGATIVES, PROMOTED, next="foils train {collection} {output} -o model/"),
    "select": Verb(NEGATIVES),
    "compose": Verb(NEGATIVES, next="foils train {collection} {output} -o model/"),
    "evaluate": Verb(RUNS),
    "batch": Verb(PLAN),
    "search": Verb(next="foils evaluate {collection} --run {run}"),
    "train": Verb(next="foils evaluate {collection} --model {output}"),
    "tune": Verb(after=_fail_where_kept),
    "merge": Verb(),
    "cache": Verb(),
}
