"""foils mine --with llm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foils.cli.mine_options import LLMOptions
from foils.cli.show import show_table

if TYPE_CHECKING:
    from foils.data import Collection, Negatives
    from foils.mine.llm import LLMMined


def write_by_model(
    loaded: Collection,
    llm: LLMOptions,
    split: str,
    number: int,
    seed: int,
    near_duplicate: float,
    output: Path,
    json: Path | None,
) -> Negatives | None:
    """Let the model write, show and store what came; None after a dry run."""
    from foils.data.store import cache_folder, provenance
    from foils.mine.llm import first_prompt, mine_llm

    asking = llm.asking(number, seed)
    if llm.dry_run:
        print(first_prompt(loaded, asking, split=split))
        return None
    client = llm.client()
    facts = {"with": "llm", "split": split, "limit": llm.limit, **client.describe(), **asking.describe()}
    mined = mine_llm(
        loaded,
        client,
        llm.log or cache_folder() / "llm" / loaded.digest[:16],
        split=split,
        asking=asking,
        limit=llm.limit,
        near_duplicate=near_duplicate,
        made=provenance("mine", facts, inputs={"collection": loaded.digest}),
    )
    mined.negatives.write(output)
    _show(mined, f"negatives of {loaded.name} ({split}) by {client.model} → {output}", number, llm, facts, json)
    return mined.negatives


def _show(
    mined: LLMMined, title: str, number: int, llm: LLMOptions, settings: dict[str, Any], json: Path | None
) -> None:
    from foils.data.store import write_json

    prices = llm.prices()
    cost = None if prices is None else mined.cost(prices)
    rows = [
        ("queries", f"{mined.queries:,}"),
        ("queries with negatives", f"{mined.answered:,}"),
        (f"queries with fewer than {number}", f"{mined.short:,}"),
        ("negatives", f"{int(mined.negatives.keep.sum()):,}"),
        *((f"failed: {reason}", f"{count:,}") for reason, count in mined.failed.items()),
        *((f"turned away: {reason}", f"{count:,}") for reason, count in mined.turned_away.items()),
        *((f"rejected: {reason}", f"{count:,}") for reason, count in mined.negatives.rejected().items()),
        ("requests", f"{mined.requests:,}"),
        ("tokens of prompts", f"{mined.tokens[0]:,}"),
        ("tokens of answers", f"{mined.tokens[1]:,}"),
        *([("cost", f"{cost:,.2f}")] if cost is not None else []),
    ]
    show_table(title, ["", "count"], rows)
    if json:
        facts = {
            "queries": mined.queries, "answered": mined.answered, "short": mined.short, "failed": mined.failed,
            "turned_away": mined.turned_away, "rejected": mined.negatives.rejected(), "requests": mined.requests,
            "tokens": list(mined.tokens), "cost": cost,
        }  # fmt: skip
        write_json(json, {"source": "llm", "settings": settings, **facts})
