"""foils search: a run, with each query's useful dimensions; and the experiments behind the choice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.groups import takes
from foils.cli.llm_options import LLMOptions
from foils.cli.search_answers import FeedbackOptions
from foils.cli.search_combinations import check_options
from foils.cli.search_experiments import ExperimentOptions
from foils.cli.search_options import DepthOptions, DimensionOptions, IndexOptions, TuneOptions
from foils.cli.show import show_table
from foils.runtime.errors import InputError

if TYPE_CHECKING:
    from numpy.random import Generator

    from foils.encode import Encoder
    from foils.searching import DimensionSettings, Embedded

USUAL = "eclipse"
__all__ = ["check_options", "search"]


@takes(DimensionOptions, "chosen")
@takes(FeedbackOptions, "feedback")
@takes(DepthOptions, "depths")
@takes(IndexOptions, "index")
@takes(TuneOptions, "tuning")
@takes(ExperimentOptions, "trial")
@takes(LLMOptions, "llm")
@takes(opt.EncoderOptions, "encoding", without=["encoder"])
def search(
    collection: opt.CollectionName,
    *,
    model: Annotated[str, typer.Option("--model", metavar="MODEL", help="The encoder.")] = opt.DEFAULT_ENCODER,
    dimensions: Annotated[str, typer.Option(help="none (keep all), dime, eclipse, or rdime.")] = USUAL,
    run: Annotated[Path | None, typer.Option("--run", metavar="FILE", help="Write the run in TREC form.")] = None,
    split: opt.Split = "test",
    depths: DepthOptions,
    chosen: DimensionOptions,
    feedback: FeedbackOptions,
    index: IndexOptions,
    tuning: TuneOptions,
    trial: ExperimentOptions,
    seed: opt.Seed = 0,
    llm: LLMOptions,
    encoding: opt.EncoderOptions = opt.MODELS_OWN_LENGTH,
    keep_identical_ids: opt.KeepIdenticalIds = False,
    json: opt.Json = None,
) -> None:
    """Search with the dimensions of each query's vector that help it, estimated from what a first pass returns.

    No training and no change to the index. rdime has nothing to tune; dime and eclipse have, so choose their settings
    on another split (--tune), or look at the experiments, which tell honest numbers from oracle ones.

    Example: foils search scifact/ --dimensions eclipse --tune train --run eclipse.trec
    """
    import numpy as np

    from foils.data import load_collection
    from foils.data.store import write_json
    from foils.searching import embed_collection

    trial.check()
    index.check()
    depths.check()
    tuning.check(split)
    if run is None and trial.experiment is None:
        raise InputError("nothing to write; give --run FILE, or an --experiment")
    feedback.check(llm)
    settings = chosen.settings(dimensions)
    loaded = load_collection(collection, keep_identical_ids=keep_identical_ids)
    tuning.check_queries(loaded, split)
    splits = [split, *([tuning.tune] if tuning.tune else [])]
    texts, asked = feedback.texts(loaded, splits, llm, seed)
    encoder, store = replace(encoding, encoder=model).open(loaded)
    embedded = partial(embed_collection, loaded, encoder, store, answers=texts)
    rng = np.random.default_rng(seed)
    result: dict[str, Any]
    if trial.experiment:
        result = trial.run(embedded(split=split), settings, tuning, encoder=encoder.name, depths=depths, rng=rng)
    else:
        if tuning.tune:
            settings = tuning.chosen(embedded(split=tuning.tune), settings, depths=depths, rng=rng)
        result = _search(embedded(split=split), settings, run, feedback, index, depths, rng, encoder)
        reranks = index.second_pass == "retrieved" or tuning.tune is not None
        result |= {"tune": tuning.facts(), **depths.facts(reranks=reranks)}
    if json:
        head = {"collection": loaded.name, "split": split, "encoder": encoder.describe(), "dimensions": dimensions}
        write_json(json, {**head, "seed": seed, **asked, **result})


def _search(
    embedded: Embedded,
    settings: DimensionSettings,
    run: Path | None,
    feedback: FeedbackOptions,
    index: IndexOptions,
    depths: DepthOptions,
    rng: Generator,
    encoder: Encoder,
) -> dict[str, Any]:
    """Search, write the run, show what was kept, and return it for JSON."""
    from foils.searching import search_collection

    searched = search_collection(
        embedded,
        settings,
        index=index.open(embedded.documents, encoder.fingerprint),
        k=depths.top,
        feedback_depth=depths.feedback_depth,
        rerank_depth=depths.rerank_depth if index.second_pass == "retrieved" else None,
        feedback=feedback.run(),
        second_pass=index.second_pass,  # type: ignore[arg-type]  # checked by search_vectors
        rng=rng,
        name=f"{encoder.name}-{settings.method}",
    )
    searched.run.write(str(run))
    rows = [
        ("queries", f"{len(embedded.query_ids):,}"),
        ("documents ranked", f"{searched.run.table.num_rows:,}"),
        ("dimensions kept", f"{100 * searched.kept:.1f} %"),
        ("queries that kept all, for want of feedback or answer", f"{len(searched.short):,}"),
    ]
    title = f"{settings.method} search of {embedded.collection.name} ({embedded.split}) → {run}"
    identical = embedded.collection.identical_ids(embedded.split)
    show_table(title, ["", ""], rows, caption=opt.left_out(identical))
    return {
        "settings": vars(settings), "kept": searched.kept, "short": searched.short, "identical_ids": identical,
        "run": str(run), "feedback": str(feedback.feedback) if feedback.feedback else None, **index.facts(),
    }  # fmt: skip
