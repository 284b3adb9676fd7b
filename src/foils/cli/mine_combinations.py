"""Which options go with which way of mining; one that would do nothing is refused."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Any

from foils.cli import options as opt
from foils.cli.groups import only, options_of, refuse
from foils.cli.llm_options import LLMOptions
from foils.cli.mine_methods import METHODS, RankingOptions
from foils.cli.mine_options import FuseOptions, RuleOptions, WindowOptions, WritingOptions

_RANKED = {*options_of(WindowOptions), *options_of(RuleOptions), "--cross-encoder", "--top", "--split"}
TAKES: dict[str, set[str]] = {
    **dict.fromkeys(METHODS, _RANKED),
    "bm25": _RANKED | {"--k1", "--b"},
    "cross-encoder": _RANKED | {*options_of(RankingOptions)},
    "trisampler": _RANKED - {"--draw"},
    "llm": {*options_of(WritingOptions), *options_of(LLMOptions), "--near-duplicate", "--top", "--split"},
    "fuse": {*options_of(FuseOptions), "--top"},
    "filter": {*options_of(RuleOptions), "--cross-encoder", "--split"} - {"--keep-short"},
}
_ALWAYS = {*opt.EMBEDDING, "--seed", "--with", "--source", "--output", "--export", "--json", "--memory"}
_ALWAYS |= {"--keep-identical-ids"}
_MARGINS = ("--margin", "--relative-margin", "--share-of-positive")
_INSTEAD = {
    "llm": ", which ranks no documents; mark what it wrote by rules with --with filter --source FILE --scorer encoder",
    "fuse": ", which takes the rows of its sources as they are; give it where each source is mined, or mark the union "
    "by rules with --with filter --source FILE",
    "filter": ", which marks the rows of its source and takes no others; give it where the source is mined",
}


def check_options(chosen: Mapping[str, Any], options: Mapping[str, object]) -> None:
    """Raise an InputError for options that have no effect beside the others, before anything is read.

    Args:
        chosen: every parameter's value, by its name.
        options: those that were given, by name as typed.
    """
    if (method := chosen["method"]) not in TAKES:
        return
    taken = TAKES[method] | _ALWAYS | ({"--split"} if chosen["export"] else set())
    idle = {name: value for name, value in options.items() if name not in taken}
    fit = [other for other, names in TAKES.items() if set(idle) <= names]
    instead = f"; give it with --with {', '.join(fit)}" if fit else "; leave it out"
    refuse(idle, f"with --with {method}{_INSTEAD.get(method, instead)}")
    if "cross-encoder" not in (method, chosen["scorer"]):
        refuse(only(options, "--cross-encoder"), "without --with or --scorer cross-encoder; give one of them")
    pool = [] if method != "cross-encoder" or chosen["source"] else chosen["pool"].split(",")
    if method == "cross-encoder" and not pool:
        refuse(only(options, "--pool"), "with a --source, which is the pool; leave one of them out")
    if not only(options, *_MARGINS):
        refuse(only(options, "--against"), f"without a margin; give one of {', '.join(_MARGINS)}")
    for name, way in (("--rrf-k", "rrf"), ("--weight", "weighted")):
        if options.get("--method") != way:
            refuse(only(options, name), f"without --method {way}; give it, or leave {name} out")
    ways = {method, *map(str.strip, pool)}
    _check_encoder(method, ways, chosen["scorer"], options)
    if ways.isdisjoint(("random", "trisampler", "llm")) and chosen["draw"] == "top":
        refuse(
            only(options, "--seed"),
            f"with --with {method}, which draws nothing; leave it out, or give --draw uniform or simans where "
            "documents are ranked",
        )


def _check_encoder(method: str, ways: Set[str], scorer: str, options: Mapping[str, object]) -> None:
    """Refuse what is of an encoder where nothing is embedded.

    Args:
        method: the way of mining.
        ways: this, and those of its pool.
        scorer: whose scores the rules see.
        options: as in `check_options`.
    """
    if scorer == "encoder" or ways & {"dense", "ance", "trisampler"}:
        return
    idle = {*opt.EMBEDDING}
    if "cross-encoder" in ways | {scorer}:
        idle -= {*opt.OF_CROSS_ENCODERS, "--vectors"}
    if ways == {"random"} and scorer == "own":
        idle -= {"--ray"}
    refuse(
        only(options, *idle),
        f"with --with {method} --scorer {scorer}, which embeds no text; leave it out, or give --with dense, ance or "
        "trisampler, or --scorer encoder",
    )
