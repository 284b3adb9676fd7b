"""Which options go with which way of mining; one that would do nothing is refused."""

from __future__ import annotations

from collections.abc import Mapping

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
_MARGINS = ("--margin", "--relative-margin", "--share-of-positive")
_INSTEAD = {
    "llm": ", which ranks no documents; mark what it wrote by rules with --with filter --source FILE --scorer encoder",
    "fuse": ", which takes the rows of its sources as they are; give it where each source is mined, or mark the union "
    "by rules with --with filter --source FILE",
    "filter": ", which marks the rows of its source and takes no others; give it where the source is mined",
}


def check_combination(method: str, options: Mapping[str, object], *, sources: bool, exports: bool) -> None:
    """Raise an InputError for options that have no effect beside the others, before anything is read.

    Args:
        method: the way of mining.
        options: those that were given, by name as typed; None: not given. Those of the encoder and the seed, which many
            commands may share, are no part of them.
        sources: whether there are sources.
        exports: whether the kept rows are exported.
    """
    taken = TAKES[method] | ({"--split"} if exports else set())
    idle = {name: value for name, value in options.items() if name not in taken and value is not None}
    fit = [other for other, names in TAKES.items() if set(idle) <= names]
    instead = f"; give it with --with {', '.join(fit)}" if fit else "; leave it out"
    refuse(idle, f"with --with {method}{_INSTEAD.get(method, instead)}")
    if "cross-encoder" not in (method, options.get("--scorer")):
        refuse(only(options, "--cross-encoder"), "without --with or --scorer cross-encoder; give one of them")
    if method == "cross-encoder" and sources:
        refuse(only(options, "--pool"), "with a --source, which is the pool; leave one of them out")
    if not only(options, *_MARGINS):
        refuse(only(options, "--against"), f"without a margin; give one of {', '.join(_MARGINS)}")
    for name, way in (("--rrf-k", "rrf"), ("--weight", "weighted")):
        if options.get("--method") != way:
            refuse(only(options, name), f"without --method {way}; give it, or leave {name} out")
