"""The program's verbs: what each is beside its door, and the options that the program alone has."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import foils
from foils.runtime import files
from foils.runtime.errors import FailureError
from foils.runtime.options import Option, Setting

EVERYWHERE = {
    "--json FILE": "Write the result as JSON to this file; - is standard output, in the place of the table.",
    "--device DEVICE": "torch device, e.g. cuda:0. Default: the first one available.",
    "--ray ADDRESS": "Spread the work over Ray: local (this machine's processors), HOST:PORT (a cluster, by its head), "
    "or auto (the cluster of this machine). The result has the same bytes.",
    "--trust-remote-code": "Run code that comes with a model.",
}
SUMMARIES = {  # first lines of the doors' docstrings, which stand here so that `foils --help` imports no door
    "describe": "Show what a collection is: counts, lengths, splits, examples, leakage between splits, and warnings.",
    "export": "Export the kept negatives, with their queries and positives, in a form that a training tool reads.",
    "score": "Decide which negatives to train on, before any training, with the encoder that training starts from.",
    "mine": "Mine negatives: the best-ranked documents that are not labelled relevant.",
    "generate": "Let a language model write negatives: texts that resemble an answer to the query but are not one.",
    "fuse": "Fuse several sources of negatives into one, each document of a query once.",
    "filter": "Reject likely false negatives of a source by rules; no row is dropped.",
    "score-pairs": "Score kept negatives and labelled positives by a teacher: a column `teacher`, for "
    "losses that learn from one.",
    "study": "Train on each source with several seeds, measure, and say which predictor foresaw "
    "the order of the results.",
    "report": "Compare predictors with what was measured, in one study or in several together.",
    "demo": "Mine negatives from the documentation of two packages, decide which to train an encoder on, "
    "and tune a model.",
    "rate": "Rate negatives by pairwise judgements: add elo, elo_se, gap and gap_se, in Elo points.",
    "label": "Label a sample of negatives: which of them are relevant after all, and what share "
    "of each source that makes.",
    "relabel": "Relabel negatives: say of each row whether it is an answer after all, by a judge's answers about some.",
    "select": "Select the negatives to train on, by a rule on their ratings or by benefit: add "
    "keep, reason and weight.",
    "compose": "Compose one source of several: for each query the negatives that together are most informative.",
    "evaluate": "Measure systems on a split and compare them.",
    "batch": "Plan batches whose pairs are hard negatives for each other, and show how hard and clean they are.",
    "search": "Search with the queries as they are, or with queries sharpened by what they retrieve.",
    "train": "Train a model on a source of negatives, and write it with a card that says how.",
    "tune": "Make a model better by pairs, in one go: train plainly, try other settings, choose on dev, "
    "report on test.",
    "merge": "Merge a model with one that was trained from it: each weight lies between theirs.",
    "cache": "Show how large the cache is, or remove what was not used for long, while no other command runs.",
}
Door = Any  # a function, with its settings by name
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Output(Setting):
    """An option of the program alone, mostly what to write of the result; nothing where it is not given.

    Attributes:
        write: name of the result's method that writes to the value of the option; empty: the option is for
            `Verb.after`.
    """

    write: str = ""


def _output(
    text: str, writes: Sequence[str], *, name: str = "output", write: str = "write", needed: bool = False, **option: Any
) -> Output:
    kind, default = (Path, inspect.Parameter.empty) if needed else (Path | None, None)
    details = Option(**{"metavar": "FILE", "writes": writes, **option})
    return Output(name, kind, details, default, text, "Output", write=write)


JSON = _output(
    "Write the result as JSON to this file; - is standard output, in the place of the table.",
    files.JSON,
    name="json",
    write="write_json",
)
REPORT = _output("Write an HTML page to this file.", files.HTML, name="report", write="report")
PAGE = _output("Write the page to this file.", files.HTML, name="page", write="report", flag="--output", short="-o")
NEGATIVES = _output("Write the table of negatives to this file.", files.PARQUET, needed=True, short="-o")
PLAN = _output("Write the plan to this file.", files.PARQUET, needed=True, short="-o")
RECORDS = _output("Write the records to this file.", files.JSONL, needed=True, short="-o")
PROMOTED = _output(
    "Write the rows that are called positive to this file, as labels (.tsv, .csv, .jsonl or .parquet): give it to "
    "--add-judgements.",
    files.LABEL_FILES,
    name="promoted",
    write="promoted.write",
)
OPEN = Output(
    "open_report", bool | None, Option(flag="--open"), None,
    "Open the report in a browser (on a terminal). Default: yes.", "Output",
)  # fmt: skip


class Verb(NamedTuple):
    """What the program needs of a verb beside its door.

    Attributes:
        outputs: options of the program alone, beside --json.
        after: does what the program alone does with the result, once it is written and shown; it is
            given the result and the values of all options.
    """

    outputs: tuple[Output, ...] = ()
    after: Callable[[Any, Values], None] = lambda *_: None


def door_of(verb: str) -> Door:
    """Import the door of a verb."""
    return getattr(foils, verb.replace("-", "_"))


def _fail_where_empty(result: Any, _: Values) -> None:
    if not result.keep.any():
        raise FailureError("no row is kept: there is nothing to train on")


def _fail_where_kept(result: Any, _: Values) -> None:
    if not getattr(result, "better", True):
        raise FailureError("no better model: the base is kept")


def _open_report(_: Any, values: Values) -> None:
    """Open the report of `foils demo` in a browser, where there is somebody to look at it."""
    import webbrowser

    if values.get("open_report", True) and sys.stdout.isatty():
        webbrowser.open((values.get("output", Path("foils-demo")) / "report.html").resolve().as_uri())


DOORS: dict[str, Verb] = {
    "describe": Verb(),
    "export": Verb((RECORDS,)),
    "score": Verb((REPORT,)),
    "mine": Verb((NEGATIVES,), after=_fail_where_empty),
    "generate": Verb((NEGATIVES,)),
    "fuse": Verb((NEGATIVES,)),
    "filter": Verb((NEGATIVES,)),
    "score-pairs": Verb((NEGATIVES,)),
    "study": Verb(),
    "report": Verb((PAGE,)),
    "demo": Verb((OPEN,), after=_open_report),
    "rate": Verb((NEGATIVES,)),
    "label": Verb(),
    "relabel": Verb((NEGATIVES, PROMOTED)),
    "select": Verb((NEGATIVES,)),
    "compose": Verb((NEGATIVES,)),
    "evaluate": Verb(),
    "batch": Verb((PLAN,)),
    "search": Verb(),
    "train": Verb(),
    "tune": Verb(after=_fail_where_kept),
    "merge": Verb(),
    "cache": Verb(),
}
"""The verbs of the program, in the order in which `foils --help` shows them."""
