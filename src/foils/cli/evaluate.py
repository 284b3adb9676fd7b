"""foils evaluate: what encoders, runs and rerankers score, query by query, and whether they differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.groups import only, refuse, takes
from foils.cli.show import number, p_value, say, show_table
from foils.runtime.errors import InputError

if TYPE_CHECKING:
    from foils.data import Collection, Run
    from foils.evaluation import Evaluation


@dataclass(frozen=True)
class SystemOptions:
    """What is measured."""

    model: Annotated[
        list[str] | None,
        typer.Option("--model", metavar="[NAME=]MODEL", help="An encoder to search with, exactly; several times."),
    ] = None
    run: Annotated[
        list[str] | None, typer.Option("--run", metavar="[NAME=]FILE", help="A TREC run to measure; several times.")
    ] = None
    reranker: Annotated[
        list[str] | None,
        typer.Option(
            "--reranker",
            metavar="[NAME=]MODEL",
            help="A cross-encoder over the first --run, or without one the first --model; several times.",
        ),
    ] = None

    def runs(
        self, collection: Collection, encoding: opt.EncoderOptions, split: str, *, top: int, depth: int
    ) -> list[Run]:
        """Return the encoders' runs, the runs, and the rerankers' over the first run, or without one the first encoder.

        Raises:
            InputError: there is nothing that ranks all documents.
        """
        from foils.data import Run

        runs = []
        for name, path in map(_named, self.model or []):
            runs.append(_dense_run(collection, replace(encoding, encoder=path), split, top, name))
        for name, path in map(_named, self.run or []):
            found = Run.read(path)
            runs.append(Run(found.table, name or Path(path).name.partition(".")[0]))
        if not runs:
            raise InputError("nothing to evaluate; give --model MODEL or --run FILE")
        first = runs[len(self.model or []) if self.run else 0]
        for name, path in map(_named, self.reranker or []):
            runs.append(_reranked(first, collection, replace(encoding, encoder=path), depth, name))
        return runs


def check_options(chosen: Mapping[str, Any], options: Mapping[str, object]) -> None:
    """Raise an InputError for options that these systems have no use for, before anything is read.

    Args:
        chosen: every parameter's value, by its name.
        options: those that were given, by name as typed.
    """
    if not chosen["model"]:
        used = opt.OF_CROSS_ENCODERS if chosen["reranker"] else ()
        refuse(
            only(options, *{"--top", *opt.EMBEDDING} - {*used}),
            "without --model, for no text is embedded; leave it out, or give a model to search with",
        )
    if not chosen["reranker"]:
        refuse(only(options, "--rerank-depth"), "without --reranker; give one, or leave it out")
    if sum(len(chosen[name] or []) for name in ("model", "run", "reranker")) == 1:
        refuse(
            only(options, "--against", "--alternative"),
            "with one system, which is compared with nothing; give another, or leave it out",
        )


@takes(SystemOptions, "systems")
@takes(opt.EncoderOptions, "encoding", without=["encoder"])
def evaluate(
    collection: opt.CollectionName,
    systems: SystemOptions,
    split: opt.Split = "test",
    measures: Annotated[str, typer.Option(help="ir_measures' names, with commas.")] = "nDCG@10,R@100,RR@10,AP",
    top: Annotated[int, typer.Option(min=1, help="Documents that an encoder returns for a query.")] = 1000,
    rerank_depth: Annotated[int, typer.Option(min=1, help="Documents of a query that a reranker scores.")] = 100,
    against: Annotated[
        list[str] | None,
        typer.Option("--against", metavar="NAME", help="Compare the others with this system alone; several times."),
    ] = None,
    alternative: Annotated[
        str, typer.Option(help="Of the tests: two-sided, or greater (one-sided, as published for Eclipse).")
    ] = "two-sided",
    runs_folder: Annotated[
        Path | None, typer.Option("--write-runs", metavar="FOLDER", help="Write each system's run in TREC form.")
    ] = None,
    seed: opt.Seed = 0,
    encoding: opt.EncoderOptions = opt.MODELS_OWN_LENGTH,
    keep_identical_ids: opt.KeepIdenticalIds = False,
    json: opt.Json = None,
) -> None:
    """Measure systems on a split; every judged query counts, answered or not.

    Differences are tested pair by pair: Shapiro–Wilk, then the paired t-test or Wilcoxon's, with Holm's correction.

    Example: foils evaluate scifact/ --model all-MiniLM-L6-v2 --model tuned=model/ --run bm25.trec --json result.json
    """
    import numpy as np

    from foils.data import load_collection
    from foils.data.store import write_json
    from foils.evaluation import evaluate_runs

    loaded = load_collection(collection, keep_identical_ids=keep_identical_ids)
    runs = systems.runs(loaded, encoding, split, top=top, depth=rerank_depth)
    result = evaluate_runs(
        loaded,
        runs,
        rng=np.random.default_rng(seed),
        split=split,
        measures=[measure.strip() for measure in measures.split(",") if measure.strip()],
        against=against,
        alternative=alternative,  # type: ignore[arg-type]  # checked by paired_test
    )
    for written in runs if runs_folder else []:
        written.write(Path(str(runs_folder)) / f"{written.name}.trec")
    show_evaluation(result, loaded.name)
    if json:
        write_json(json, result.to_json())


def show_evaluation(result: Evaluation, collection: str) -> None:
    """Print the systems' means with their intervals, then the comparisons."""
    names = list(result.systems[0].per_query)
    rows = [
        (
            system.name,
            *(
                f"{system.means[m]:.4f} [{number(low)}, {number(high)}]"
                for m, (low, high) in result.intervals[system.name].items()
            ),
            f"{len(system.unanswered):,}",
        )
        for system in result.systems
    ]
    count = len(result.systems[0].query_ids)
    title = f"{collection} ({result.split}), {count:,} queries, mean and 95 % interval"
    show_table(title, ["system", *names, "unanswered"], rows, caption=opt.left_out(result.identical_ids))
    if result.comparisons:
        table = [
            (f"{c.a} − {c.b}", c.measure, f"{c.difference:+.4f}", c.test, p_value(c.p), p_value(c.p_holm))
            for c in result.comparisons
        ]
        show_table("Differences", ["systems", "measure", "difference", "test", "p", "p (Holm)"], table)


def _named(text: str) -> tuple[str | None, str]:
    name, equals, path = text.partition("=")
    return (name, path) if equals and name and not Path(text).exists() else (None, text)


def _dense_run(collection: Collection, encoding: opt.EncoderOptions, split: str, top: int, name: str | None) -> Run:
    from foils.searching import DimensionSettings, embed_collection, search_collection

    encoder, store = encoding.open(collection)
    if encoder.max_length is not None:
        say(f"{encoder.name}: texts cut after {encoder.max_length} tokens")
    embedded = embed_collection(collection, encoder, store, split=split)
    settings = DimensionSettings("none")
    return search_collection(embedded, settings, k=top, name=name or encoder.name).run


def _reranked(first: Run, collection: Collection, encoding: opt.EncoderOptions, depth: int, name: str | None) -> Run:
    from foils.encode.cross_encoders import logits
    from foils.evaluation import rerank_run

    scorer = partial(logits, encoding.cross_encoder(encoding.encoder))
    name = name or f"{first.name} + {Path(encoding.encoder).name}"
    return rerank_run(first, collection, scorer, depth=depth, name=name)
