"""foils mine --with llm."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from foils.cli.llm_options import LLMOptions
from foils.cli.made import Made
from foils.cli.mine_options import WritingOptions

if TYPE_CHECKING:
    from foils.data import Collection
    from foils.mining.results import Generated


def write_by_model(
    loaded: Collection,
    llm: LLMOptions,
    writing: WritingOptions,
    split: str,
    number: int,
    seed: int,
    near_duplicate: float,
) -> Made | None:
    """Let the model write negatives; None after a dry run."""
    from foils.data.store import provenance
    from foils.mining.generation import first_prompt, generate_negatives

    asking = writing.asking(number, llm.llm_temperature, seed, llm.most_tokens)
    if writing.dry_run:
        print(first_prompt(loaded, asking, split=split))
        return None
    client = llm.client()
    facts = {"with": "llm", "split": split, "limit": writing.limit, **client.describe(), **asking.describe()}
    mined = generate_negatives(
        loaded,
        client,
        llm.folder(loaded),
        split=split,
        asking=asking,
        limit=writing.limit,
        near_duplicate=near_duplicate,
        made=provenance("mine", facts, inputs={"collection": loaded.digest}),
    )
    counts: dict[str, Any] = {
        "queries": mined.queries, "answered": mined.answered, "short": mined.short, "failed": mined.failed,
        "turned_away": mined.turned_away, "rejected": mined.rejected(), **llm.usage_facts(mined.usage),
    }  # fmt: skip
    title = f"negatives of {loaded.name} ({split}) by {client.model}"
    told = {"source": "llm", "settings": facts, **counts}
    return Made(mined, title, _rows(mined, number, llm), told)


def _rows(mined: Generated, number: int, llm: LLMOptions) -> list[tuple[str, str]]:
    return [
        ("queries", f"{mined.queries:,}"),
        ("queries with negatives", f"{mined.answered:,}"),
        (f"queries with fewer than {number}", f"{mined.short:,}"),
        ("negatives", f"{int(mined.keep.sum()):,}"),
        *((f"failed: {reason}", f"{count:,}") for reason, count in mined.failed.items()),
        *((f"turned away: {reason}", f"{count:,}") for reason, count in mined.turned_away.items()),
        *((f"rejected: {reason}", f"{count:,}") for reason, count in mined.rejected().items()),
        *llm.usage_rows(mined.usage),
    ]
