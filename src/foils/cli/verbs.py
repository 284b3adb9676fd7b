"""The program's verbs: where their doors are, and what the program does beside them."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from foils.runtime.errors import FailureError, InputError
from foils.runtime.options import Option, Setting

Door = Callable[..., Any]
Values = Mapping[str, Any]
_ROOT = Path(__file__).parents[2]  # of the modules' files


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


def _file(name: str, text: str, write: str, **option: Any) -> Output:
    return Output(name, Path | None, Option(**{"metavar": "FILE", **option}), None, text, "Output", write=write)


JSON = _file("json", "Write the result as JSON to this file.", "write_json", program_wide=True)
REPORT = _file("report", "Write an HTML page to this file.", "report")
PAGE = _file("page", "Write the page to this file.", "report", flag="--output", short="-o")
RUNS = _file(
    "write_runs", "Write the run of each system, in TREC form, to this folder.", "write_runs", metavar="FOLDER"
)
PROMOTED = _file(
    "promoted",
    "Write the rows that are called positive to this file, as labels (.tsv, .csv, .jsonl or .parquet): give it to "
    "--add-judgements.",
    "promoted.write",
)
OPEN = Output(
    "open_report", bool | None, Option(flag="--open"), None,
    "Open the report in a browser (on a terminal). Default: yes.", "Output",
)  # fmt: skip


@dataclass(frozen=True)
class Verb:
    """What the program needs of a verb beside its door.

    Attributes:
        door: where the door is, as MODULE:FUNCTION.
        example: a command, for the help.
        writes: what `-o` is the name of, as "table of negatives"; empty: the result is not written.
        reports: whether the result has a page.
        more: options of the program alone.
        after: does what the program alone does with the result, once it is written and shown; it is given the result
            and the values of all options.
        alone: whether it can go without arguments; where not, it shows its help then.
        next: the command that mostly follows, in which {output} and other names of options stand for their values.
    """

    door: str
    example: str
    writes: str = ""
    reports: bool = False
    more: tuple[Output, ...] = ()
    after: Callable[[Any, Values], None] | None = None
    alone: bool = False
    next: str = ""

    def function(self) -> Door:
        """Import the door."""
        module, _, name = self.door.partition(":")
        function: Door = getattr(import_module(module), name)
        return function

    def outputs(self) -> list[Output]:
        """Return the options of the program alone."""
        text = f"Write the {self.writes} to this file."
        option, nothing = Option(short="-o", metavar="FILE"), inspect.Parameter.empty
        output = Output("output", Path, option, nothing, text, "Output", write="write")
        return [*([output] if self.writes else []), *self.more, JSON, *([REPORT] if self.reports else [])]

    def summary(self) -> str:
        """Return the first line of the door's docstring, read from its file: nothing is imported for `foils --help`."""
        module, _, name = self.door.partition(":")
        source = _ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
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


NEGATIVES = "table of negatives"
DOORS: dict[str, Verb] = {
    "describe": Verb(
        "foils.data.doors:describe",
        "foils describe pairs.csv --columns query=question,positive=answer",
        next="foils mine {collection} -o bm25.parquet",
    ),
    "export": Verb(
        "foils.data.doors:export",
        "foils export scifact/ rated.parquet --form flagembedding --scores elo -o train.jsonl",
        writes="records",
    ),
    "score": Verb(
        "foils.deciding.doors:score",
        "foils score scifact/ bm25.parquet dense.parquet llm=negatives.jsonl --report page.html --json scores.json",
        reports=True,
    ),
    "mine": Verb(
        "foils.deciding.mine:mine",
        "foils mine scifact/ --with bm25 --top 10 --split train -o bm25.parquet",
        after=_fail_where_empty,
        next="foils score {collection} {output}",
        writes=NEGATIVES,
    ),
    "generate": Verb(
        "foils.mining.doors:generate",
        "foils generate scifact/ --base-url http://localhost:8000/v1 --llm-model NAME --limit 100 -o llm.parquet",
        writes=NEGATIVES,
    ),
    "fuse": Verb(
        "foils.mining.doors:fuse",
        "foils fuse scifact/ bm25.parquet dense.parquet --method rrf -o both.parquet",
        next="foils score {collection} {sources} {output}",
        writes=NEGATIVES,
    ),
    "filter": Verb(
        "foils.mining.doors:filter",
        "foils filter scifact/ llm.parquet --scorer encoder --margin 0.05 -o filtered.parquet",
        next="foils score {collection} {output}",
        writes=NEGATIVES,
    ),
    "score-pairs": Verb(
        "foils.mining.doors:score_pairs",
        "foils score-pairs scifact/ bm25.parquet --teacher bi-encoder:all-MiniLM-L6-v2 -o taught.parquet",
        writes=NEGATIVES,
        next="foils train {collection} {output} --loss margin-mse -o model/",
    ),
    "study": Verb(
        "foils.experiments.doors:study",
        "foils study scifact/ bm25.parquet dense.parquet random.parquet --model static:all-MiniLM-L6-v2 -o study/",
        next="foils report {output} -o report.html",
    ),
    "report": Verb(
        "foils.experiments.doors:report",
        "foils report study/ other-study/ --measure RR@10 -o report.html",
        more=(PAGE,),
    ),
    "demo": Verb(
        "foils.experiments.doors:demo", "foils demo -o foils-demo/", more=(OPEN,), after=_open_report, alone=True
    ),
    "rate": Verb(
        "foils.rating.doors:rate",
        "foils rate scifact/ dense.parquet --judge cross-encoder:my-reranker/ --degree 6 -o rated.parquet",
        writes=NEGATIVES,
        next="foils select {output} -o train.parquet",
    ),
    "label": Verb(
        "foils.labelling.doors:label",
        "foils label scifact/ bm25.parquet dense.parquet -n 60 -o labels.tsv",
        next="foils score {collection} {sources} --labels {output}",
    ),
    "relabel": Verb(
        "foils.labelling.relabelling:relabel",
        "foils relabel scifact/ dense.parquet --judge llm:NAME --base-url http://localhost:8000/v1 "
        "--promoted found.tsv -o relabelled.parquet",
        writes=NEGATIVES,
        more=(PROMOTED,),
        next="foils train {collection} {output} -o model/",
    ),
    "select": Verb(
        "foils.selection.doors:select",
        "foils select rated.parquet --by mixture -o train.parquet",
        writes=NEGATIVES,
    ),
    "compose": Verb(
        "foils.selection.doors:compose",
        "foils compose scifact/ bm25.parquet dense.parquet --top 10 -o composed.parquet",
        next="foils train {collection} {output} -o model/",
        writes=NEGATIVES,
    ),
    "evaluate": Verb(
        "foils.evaluation.doors:evaluate",
        "foils evaluate scifact/ --model all-MiniLM-L6-v2 --model tuned=model/ --run bm25.trec --json result.json",
        more=(RUNS,),
    ),
    "batch": Verb(
        "foils.batching.plan:batch",
        "foils batch scifact/ bm25.parquet --with hobit --batch-size 32 -o plan.parquet",
        writes="plan",
    ),
    "search": Verb(
        "foils.searching.doors:search",
        "foils search scifact/ --tune train --run out.trec",
        next="foils evaluate {collection} --run {run}",
    ),
    "train": Verb(
        "foils.training.doors:train",
        "foils train scifact/ bm25.parquet --model all-MiniLM-L6-v2 --recipe eci-sem --batch-size 256 -o model/",
        next="foils evaluate {collection} --model {output}",
    ),
    "tune": Verb(
        "foils.experiments.doors:tune",
        "foils tune pairs.csv --model all-MiniLM-L6-v2 --minutes 30 -o better/",
        after=_fail_where_kept,
    ),
    "merge": Verb("foils.experiments.doors:merge", "foils merge all-MiniLM-L6-v2 better/model/ --alpha 0.5 -o merged/"),
    "cache": Verb("foils.upkeep:cache", "foils cache prune --keep 20GiB", alone=True),
}
