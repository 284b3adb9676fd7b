"""Which options of foils search go together; one that would do nothing is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from foils.cli.groups import only, options_of, refuse
from foils.cli.llm_options import LLMOptions
from foils.cli.search_answers import FeedbackOptions
from foils.cli.search_options import DimensionOptions, IndexOptions

_CHOSEN = {*options_of(DimensionOptions)}
TAKES: dict[str, set[str]] = {
    "none": set(),
    "dime": {"--k-plus", "--share"},
    "rdime": {"--k-plus"},
    "eclipse": _CHOSEN,
}


def check_options(chosen: Mapping[str, Any], options: Mapping[str, object]) -> None:
    """Raise an InputError for options that have no effect beside the others, before anything is read.

    Args:
        chosen: every parameter's value, by its name.
        options: those that were given, by name as typed.
    """
    dimensions = chosen["dimensions"]
    if not options.get("--llm-model"):
        refuse(only(options, *options_of(LLMOptions), "--answer-prompt"), "without --llm-model; name the model")
    if options.get("--experiment"):
        _check_experiment(str(options["--experiment"]), options)
        return
    refuse(only(options, "--folds"), "without --experiment; give one")
    _check_feedback(dimensions, options)
    if options.get("--tune") is None:
        if options.get("--second-pass") != "retrieved":
            refuse(
                only(options, "--rerank-depth"),
                "without --second-pass retrieved, for all documents are ranked again; give it, or leave this out",
            )
        refuse(only(options, "--measure", "--reading"), "without --tune or --experiment; give one of them")
        idle = _CHOSEN - TAKES.get(dimensions, _CHOSEN)
        refuse(only(options, *idle), f"with --dimensions {dimensions}; leave it out")
        return
    refuse(
        only(options, "--feedback"),
        "on --tune, which chooses settings for feedback of the first pass; leave --tune out and give the settings",
    )
    grid = {"--moon-pool", "--reading"} if dimensions == "eclipse" else set()
    refuse(
        only(options, *(_CHOSEN | {"--reading"}) - grid),
        f"with --tune of {dimensions}, which chooses among the published settings; leave it or --tune out",
    )


def _check_feedback(dimensions: str, options: Mapping[str, object]) -> None:
    """Refuse what sun and moon would be made of where there are none, and a seed where nothing is drawn."""
    if dimensions == "none":
        refuse(
            only(options, *options_of(FeedbackOptions), "--llm-model", "--feedback-depth", "--second-pass"),
            "with --dimensions none, which searches once with all dimensions; leave it out",
        )
    if only(options, "--answers", "--llm-model"):
        refuse(
            only(options, "--k-plus"),
            "with answers (--answers or --llm-model), which are the sun in place of documents; leave it out",
        )
        if dimensions != "eclipse":
            refuse(
                only(options, "--feedback", "--feedback-depth"),
                f"with answers (--answers or --llm-model) and --dimensions {dimensions}, which has no moon; leave it "
                "out, or take --dimensions eclipse",
            )
    if not only(options, "--moon-pool", "--llm-model"):
        refuse(
            only(options, "--seed"),
            "where nothing is drawn; leave it out, or give --moon-pool, --llm-model or --experiment",
        )


def _check_experiment(name: str, options: Mapping[str, object]) -> None:
    refuse(
        only(options, "--run", "--tune", "--feedback", *options_of(IndexOptions)),
        "with --experiment, which writes no run and takes feedback from an exact first pass on --split; leave it out, "
        "or search without --experiment",
    )
    if name not in ("moons", "all"):
        refuse(
            only(options, "--dimensions", *_CHOSEN - {"--moon-pool"}),
            f"with --experiment {name}, which compares the published settings; leave it out",
        )
    if name == "depths":
        refuse(
            only(options, "--feedback-depth"),
            "with --experiment depths, which compares feedback of 50, 300, 1,000 and all documents; leave it out",
        )
