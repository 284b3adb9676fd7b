"""foils mine --with llm."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from foils.cli.llm_options import LLMOptions
from foils.cli.mine_options import WritingOptions
from foils.cli.show import show_table

if TYPE_CHECKING:
    from foils.data import Collection, Negatives
    from foils.mine.llm import LLMMined


def write_by_model(
    loaded: Collection,
    llm: LLMOptions,
    writing: WritingOptions,
    split: str,
    number: int,
    seed: int,
    near_duplicate: float,
    output: Path,
    json: Path | None,
) -> Negatives | None:
    """Let the model write, show and store what came; None after a dry run."""
    from foils.data.store import provenance
    from foils.mine.llm import first_prompt, mine_llm

    asking = writing.asking(number, llm.llm_temperature, seed, llm.most_tokens)
    if writing.dry_run:
        print(first_prompt(loaded, asking, split=split))
        return None
    client = llm.client()
    facts = {"with": "llm", "split": split, "limit": writing.limit, **client.describe(), **asking.describe()}
    mined = mine_llm(
        loaded,
        client,
        llm.folder(loaded),
        split=split,
        asking=asking,
        limit=writing.limit,
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

    rows = [
        ("queries", f"{mined.queries:,}"),
        ("queries with negatives", f"{mined.answered:,}"),
        (f"queries with fewer than {number}", f"{mined.short:,}"),
        ("negatives", f"{int(mined.negatives.keep.sum()):,}"),
        *((f"failed: {reason}", f"{count:,}") for reason, count in mined.failed.items()),
        *((f"turned away: {reason}", f"{count:,}") for reason, count in mined.turned_away.items()),
        *((f"rejected: {reason}", f"{count:,}") for reason, count in mined.negatives.rejected().items()),
        *llm.usage_rows(mined.usage),
    ]
    show_table(title, ["", "count"], rows)
    if json:
        facts = {
            "queries": mined.queries, "answered": mined.answered, "short": mined.short, "failed": mined.failed,
            "turned_away": mined.turned_away, "rejected": mined.negatives.rejected(), **llm.usage_facts(mined.usage),
        }  # fmt: skip
        write_json(json, {"source": "llm", "settings": settings, **facts})
