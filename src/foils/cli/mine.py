"""foils mine: from a collection to a table of negatives."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.groups import takes
from foils.cli.llm_options import LLMOptions
from foils.cli.mine_llm import write_by_model
from foils.cli.mine_methods import METHODS, Settings, exported, scorer_of
from foils.cli.mine_options import RuleOptions, WritingOptions, named_numbers, positive_scores, window
from foils.cli.show import show_table
from foils.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from foils.data import Collection, Negatives
    from foils.mine import Mined
    from foils.mine.pairs import Draw

OTHERS = ("llm", "fuse", "filter")
DRAWS = ("top", "uniform", "simans")


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
    near_duplicate: Annotated[
        float,
        typer.Option(min=0.0, help="Reject documents whose token sets have this Jaccard similarity to a positive's."),
    ] = 0.9,
    ranks: Annotated[
        str | None,
        typer.Option(metavar="FROM-TO", help="Take negatives from these ranks alone, counted from 0, TO not included."),
    ] = None,
    draw: Annotated[
        str, typer.Option(help="How they are taken there: top, uniform, or simans (a, b as in simans:100,-0.1).")
    ] = "top",
    k1: Annotated[float, typer.Option(min=0.0, help="BM25: saturation of the term frequency.")] = 1.2,
    b: Annotated[float, typer.Option(min=0.0, max=1.0, help="BM25: weight of the document length.")] = 0.75,
    cross_encoder: Annotated[
        str | None, typer.Option(metavar="MODEL", help="A sentence-transformers cross-encoder.")
    ] = None,
    pool: Annotated[str, typer.Option(help="With cross-encoder: what it ranks anew: random, bm25, dense.")] = "bm25",
    pool_depth: Annotated[int, typer.Option(min=1, help="How many documents of the pool for each query.")] = 100,
    fusion: Annotated[str, typer.Option("--method", help="With fuse: union, interleave, rrf, or weighted.")] = "union",
    rrf_k: Annotated[float, typer.Option("--rrf-k", min=0.0, help="With rrf: its constant.")] = 60.0,
    weight: Annotated[
        list[str] | None, typer.Option("--weight", metavar="NAME=NUMBER", help="With weighted: of a source.")
    ] = None,
    export: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FORM=FILE",
            help="Write the kept rows for training too: triplets, tuples, labelled-pairs, labelled-lists, tevatron, "
            "flagembedding, trec.",
        ),
    ] = None,
    seed: opt.Seed = 0,
    chosen: RuleOptions,
    writing: WritingOptions,
    llm: LLMOptions = LLMOptions(llm_temperature=0.8),
    encoding: opt.EncoderOptions,
    json: opt.Json = None,
) -> None:
    """Mine negatives: the best-ranked documents that are not labelled relevant.

    Documents that equal or nearly equal a positive stay in the table, rejected with a reason.

    Example: foils mine scifact/ --with bm25 --top 10 --split train -o bm25.parquet
    """
    from foils.data import load_collection

    if method not in (*METHODS, *OTHERS):
        raise UnknownNameError("way of mining", method, [*METHODS, *OTHERS])
    sources, exports = source or [], [exported(spec) for spec in export or []]
    if sources and method not in ("fuse", "filter", "cross-encoder"):
        raise InputError("--source goes with --with fuse, filter or cross-encoder")
    if method in ("filter", "cross-encoder") and len(sources) > 1:
        raise InputError(f"--with {method} takes one --source, found {len(sources)}")
    loaded = load_collection(collection)
    settings = Settings(seed, k1, b, encoding, cross_encoder, pool, pool_depth, sources[0] if sources else None)
    if method == "fuse":
        negatives = _fuse(loaded, sources, output, json, fusion, top, rrf_k, weight or [])
    elif method == "filter":
        negatives = _filter(loaded, settings, chosen, split, output, json)
    elif method == "llm":
        found = write_by_model(loaded, llm, writing, split, top or 10, seed, near_duplicate, output, json)
        if found is None:
            return
        negatives = found
    else:
        if method == "trisampler" and ranks is None:
            ranks = f"0-{10 * (top or 10)}"
        negatives = _mine(
            loaded, method, settings, chosen, split, top or 10, near_duplicate, window(ranks), draw, output, json
        )
    for form, path in exports:
        from foils.data.export import export as write

        write(negatives, loaded, path, form=form, split=split)


def _mine(
    loaded: Collection,
    method: str,
    settings: Settings,
    chosen: RuleOptions,
    split: str,
    top: int,
    near_duplicate: float,
    ranks: tuple[int, int | None],
    draw: str,
    output: Path,
    json: Path | None,
) -> Negatives:
    from foils.data.store import provenance
    from foils.mine import mine as mine_negatives

    made = METHODS[method](loaded, settings)
    scorer, described = scorer_of(chosen.scorer, loaded, settings)
    positives = positive_scores(loaded, split, scorer, made.retriever)
    facts = {"with": method, "top": top, "split": split, "near_duplicate": near_duplicate, **made.settings, **described}
    rules = [*made.rules, *chosen.make(loaded, positives)]
    extra = chosen.describe() if rules or scorer else {}
    facts |= {"rules": extra} if extra else {}
    facts |= {"ranks": ranks} if ranks != (0, None) else {}
    facts |= {"draw": draw, "seed": settings.seed} if draw != "top" or made.draw else {}
    mined = mine_negatives(
        loaded,
        made.retriever,
        split=split,
        top=top,
        near_duplicate=near_duplicate,
        ranks=ranks,
        rules=rules,
        scorer=scorer,
        fill=not chosen.keep_short,
        draw=made.draw or _draw(draw, positives),
        seed=settings.seed,
        made=provenance("mine", facts, inputs={"collection": loaded.digest}),
    )
    mined.negatives.write(output)
    _show(mined, f"{made.retriever.name} negatives of {loaded.name} ({split}) → {output}", top)
    if json:
        _write_facts(mined, json, made.retriever.name, facts)
    return mined.negatives


def _draw(spec: str, positives: Any) -> Draw | None:
    from foils.mine.sampling import SimANS, Uniform

    name, _, numbers = spec.partition(":")
    if name not in DRAWS:
        raise UnknownNameError("way of taking", name, DRAWS)
    if name != "simans":
        return None if name == "top" else Uniform()
    try:
        a, b = map(float, numbers.split(",")) if numbers else (SimANS.a, SimANS.b)
    except ValueError as error:
        raise InputError(f"--draw {spec}: expected simans:A,B, as in simans:100,-0.1") from error
    return SimANS(positives(), a=a, b=b)


def _show(mined: Mined, title: str, top: int) -> None:
    kept = int(mined.negatives.keep.sum())
    rows = [
        ("queries", f"{mined.queries:,}"),
        ("negatives", f"{kept:,}"),
        ("per query", f"{kept / mined.queries:.2f}"),
        ("labelled positives left out", f"{mined.positives_left_out:,}"),
        *((f"rejected: {reason}", f"{count:,}") for reason, count in mined.rejected.items()),
        *((f"queries with fewer than {top}: {reason}", f"{count:,}") for reason, count in mined.short.items()),
    ]
    show_table(title, ["", "count"], rows)


def _write_facts(mined: Mined, json: Path, name: str, settings: dict[str, Any]) -> None:
    from foils.data.store import write_json

    facts = {
        "queries": mined.queries,
        "negatives": int(mined.negatives.keep.sum()),
        "positives_left_out": mined.positives_left_out,
        "rejected": mined.rejected,
        "short": mined.short,
    }
    write_json(json, {"source": name, "settings": settings, **facts})


def _filter(
    loaded: Collection, settings: Settings, chosen: RuleOptions, split: str, output: Path, json: Path | None
) -> Negatives:
    from foils.data import Negatives
    from foils.data.sources import read_source
    from foils.data.store import provenance, write_json
    from foils.mine.filters import filter_negatives

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
    negatives.write(output)
    kept = int(negatives.keep.sum())
    rows = [("rows", f"{len(negatives):,}"), ("kept", f"{kept:,}")]
    rows += [(f"rejected: {reason}", f"{count:,}") for reason, count in negatives.rejected().items()]
    show_table(f"{given.name}, filtered → {output}", ["", "count"], rows)
    if json:
        write_json(json, {"settings": facts, "rows": len(negatives), "kept": kept, "rejected": negatives.rejected()})
    return negatives


def _fuse(
    loaded: Collection,
    specs: list[str],
    output: Path,
    json: Path | None,
    method: str,
    top: int | None,
    k: float,
    weights: list[str],
) -> Negatives:
    from foils.data.sources import read_sources
    from foils.data.store import write_json
    from foils.mine.fuse import fuse

    if len(specs) < 2:
        raise InputError(f"--with fuse needs at least two --source, found {len(specs)}")
    sources = read_sources(specs, loaded)
    fused = fuse(
        {source.name: source.negatives for source in sources},
        method=method,
        top=top,
        k=k,
        weights=named_numbers(weights, "--weight"),
        digests={source.name: source.digest for source in sources},
    )
    fused.write(output)
    rows = [(source.name, f"{len(source.negatives):,}") for source in sources]
    rows.append(("+".join(source.name for source in sources), f"{len(fused):,}"))
    show_table(f"{method} of {len(sources)} sources → {output}", ["source", "rows"], rows)
    if json:
        write_json(json, {"sources": {source.name: len(source.negatives) for source in sources}, "rows": len(fused)})
    return fused
