"""foils mine: from a collection to a table of negatives."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from foils.cli import options as opt
from foils.cli.export_options import ExportOptions
from foils.cli.groups import takes
from foils.cli.llm_options import LLMOptions
from foils.cli.made import Made
from foils.cli.mine_combinations import check_options
from foils.cli.mine_llm import write_by_model
from foils.cli.mine_methods import METHODS, RankingOptions, Settings, scorer_of
from foils.cli.mine_options import FuseOptions, RuleOptions, WindowOptions, WritingOptions, positive_scores
from foils.runtime.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.data import Collection
    from foils.mining import Mined

OTHERS = ("llm", "fuse", "filter")
__all__ = ["check_options", "mine"]
WRITER = LLMOptions(llm_temperature=0.8)


@takes(WindowOptions, "window")
@takes(RankingOptions, "ranking")
@takes(FuseOptions, "fusing")
@takes(ExportOptions, "exports")
@takes(RuleOptions, "chosen")
@takes(WritingOptions, "writing")
@takes(LLMOptions, "llm")
@takes(opt.EncoderOptions, "encoding")
def mine(
    collection: opt.CollectionName,
    *,
    output: opt.Output,
    method: Annotated[
        str,
        typer.Option("--with", help=f"{', '.join(METHODS)}, llm; fuse several sources, or filter one."),
    ] = "bm25",
    top: Annotated[
        int | None, typer.Option("--top", min=1, help="Negatives per query. Default: 10; with fuse: all.")
    ] = None,
    split: opt.Split = "train",
    source: Annotated[
        list[str] | None,
        typer.Option(
            "--source",
            metavar="SOURCE",
            help="With fuse: a source to unite, several times. With filter: the one to filter. With cross-encoder: "
            "the pool.",
        ),
    ] = None,
    window: WindowOptions,
    ranking: RankingOptions,
    fusing: FuseOptions,
    exports: ExportOptions,
    seed: opt.Seed = 0,
    chosen: RuleOptions,
    writing: WritingOptions,
    llm: LLMOptions = WRITER,
    encoding: opt.EncoderOptions,
    keep_identical_ids: opt.KeepIdenticalIds = False,
    json: opt.Json = None,
) -> None:
    """Mine negatives: the best-ranked documents that are not labelled relevant.

    Documents that equal or nearly equal a positive stay in the table, rejected with a reason.

    Example: foils mine scifact/ --with bm25 --top 10 --split train -o bm25.parquet
    """
    from foils.data import load_collection

    sources = _checked(source or [], method)
    exports.forms()  # a wrong one is told before anything is mined
    loaded = load_collection(collection, keep_identical_ids=keep_identical_ids)
    settings = Settings(ranking, encoding, seed, sources[0] if sources else None, split)
    made: Made | None
    if method == "fuse":
        made = fusing.fused(loaded, sources, top)
    elif method == "filter":
        made = _filter(loaded, settings, chosen, split)
    elif method == "llm":
        made = write_by_model(loaded, llm, writing, split, top or 10, seed, window.near_duplicate)
    else:
        made = _mine(loaded, method, settings, window, chosen, split, top or 10)
    if made is None:
        return
    made.write(output, json)
    exports.write(made.negatives, loaded, split)


def _checked(sources: list[str], method: str) -> list[str]:
    """Return the sources, where they go with the way of mining."""
    if method not in (*METHODS, *OTHERS):
        raise UnknownNameError("way of mining", method, [*METHODS, *OTHERS])
    if sources and method not in ("fuse", "filter", "cross-encoder"):
        raise InputError("--source goes with --with fuse, filter or cross-encoder")
    if method in ("filter", "cross-encoder") and len(sources) > 1:
        raise InputError(f"--with {method} takes one --source, found {len(sources)}")
    return sources


def _mine(
    loaded: Collection,
    method: str,
    settings: Settings,
    window: WindowOptions,
    chosen: RuleOptions,
    split: str,
    top: int,
) -> Made:
    from foils.data.store import provenance
    from foils.mining import mine_negatives

    if method == "trisampler" and window.ranks is None:
        window = replace(window, ranks=f"0-{10 * top}")
    ranks, seed = window.window(), settings.seed
    way = METHODS[method](loaded, settings)
    scorer, described = scorer_of(chosen.scorer, loaded, settings)
    positives = positive_scores(loaded, split, scorer, way.retriever)
    facts = {"with": method, "top": top, "split": split, "near_duplicate": window.near_duplicate}
    facts |= {**way.settings, **described}
    rules = [*way.rules, *chosen.make(loaded, positives)]
    extra = chosen.describe() if rules or scorer else {}
    facts |= {"rules": extra} if extra else {}
    facts |= {"keep_identical_ids": True} if loaded.keep_identical_ids else {}
    facts |= {"ranks": ranks} if ranks != (0, None) else {}
    facts |= {"draw": window.draw, "seed": seed} if window.draw != "top" or way.draw else {}
    mined = mine_negatives(
        loaded,
        way.retriever,
        split=split,
        top=top,
        near_duplicate=window.near_duplicate,
        ranks=ranks,
        rules=rules,
        scorer=scorer,
        fill=not chosen.keep_short,
        draw=way.draw or window.drawn(positives),
        seed=seed,
        made=provenance("mine", facts, inputs={"collection": loaded.digest}),
    )
    counts = {
        "queries": mined.queries,
        "negatives": int(mined.keep.sum()),
        "positives_left_out": mined.positives_left_out,
        "rejected": mined.rejected(),
        "short": mined.short,
    }
    name = way.retriever.name
    told = {"source": name, "settings": facts, **counts}
    return Made(mined, f"{name} negatives of {loaded.name} ({split})", _rows(mined, top), told)


def _rows(mined: Mined, top: int) -> list[tuple[str, str]]:
    kept = int(mined.keep.sum())
    return [
        ("queries", f"{mined.queries:,}"),
        ("negatives", f"{kept:,}"),
        ("per query", f"{kept / mined.queries:.2f}"),
        ("labelled positives left out", f"{mined.positives_left_out:,}"),
        *((f"rejected: {reason}", f"{count:,}") for reason, count in mined.rejected().items()),
        *((f"queries with fewer than {top}: {reason}", f"{count:,}") for reason, count in mined.short.items()),
    ]


def _filter(loaded: Collection, settings: Settings, chosen: RuleOptions, split: str) -> Made:
    from foils.data import Negatives
    from foils.data.sources import read_source
    from foils.data.store import provenance
    from foils.mining.filters import filter_negatives

    if settings.source is None:
        raise InputError("--with filter needs the --source to filter")
    given = read_source(settings.source, loaded)
    scorer, described = scorer_of(chosen.scorer, loaded, settings)
    rules = chosen.make(loaded, positive_scores(loaded, split, scorer, None))
    if not rules:
        raise InputError("--with filter needs a rule: --margin, --max-score, --answers, …")
    marked = filter_negatives(given.negatives, loaded, rules, scorer=scorer)
    facts = {"with": "filter", "split": split, "rules": chosen.describe(), **described}
    inputs = {"collection": loaded.digest, given.name: given.digest}
    made = provenance("mine", facts, inputs=inputs, before=given.negatives.provenance)
    negatives = Negatives(marked.table, made)
    kept, rejected = int(negatives.keep.sum()), negatives.rejected()
    rows = [("rows", f"{len(negatives):,}"), ("kept", f"{kept:,}")]
    rows += [(f"rejected: {reason}", f"{count:,}") for reason, count in rejected.items()]
    told = {"settings": facts, "rows": len(negatives), "kept": kept, "rejected": rejected}
    return Made(negatives, f"{given.name}, filtered", rows, told)
