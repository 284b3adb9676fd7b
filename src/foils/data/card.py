"""Cards of the hub: what a table, a model or a study is, from what it says of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pyarrow.compute as pc

from foils.data.hub_sources import TABLE
from foils.data.negatives import Negatives
from foils.runtime.errors import InputError
from foils.runtime.options import spelled

_SIZES = ((10**3, "n<1K"), (10**4, "1K<n<10K"), (10**5, "10K<n<100K"), (10**6, "100K<n<1M"), (10**7, "1M<n<10M"))
_LICENCE = re.compile(r"[a-z0-9][a-z0-9.-]*")
TAGS = ["foils", "hard-negatives"]


def table_card(negatives: Negatives, name: str, license: str | None, *, digest: str) -> str:
    """Return the card of a table: what it holds, its numbers, how it was made, and how it is read again.

    Args:
        negatives: the table.
        name: of the repository, OWNER/NAME.
        license: an identifier of the hub's.
        digest: SHA-256 of the file.
    """
    from huggingface_hub import DatasetCardData

    rows = len(negatives)
    head = DatasetCardData(
        license=licence(license),
        tags=TAGS,
        task_categories=["text-retrieval"],
        size_categories=[next((size for most, size in _SIZES if rows < most), "10M<n<100M")],
        configs=[{"config_name": "default", "data_files": TABLE}],
    ).to_yaml()
    by_source = pc.value_counts(negatives.table["source"]).to_pylist()
    numbers: list[tuple[str, int]] = [
        ("rows", rows),
        ("queries", pc.count_distinct(negatives.table["query_id"]).as_py()),
        ("documents", pc.count_distinct(negatives.table["doc_id"]).as_py()),
        ("kept", int(negatives.keep.sum())),
        *((f"rejected: {reason}", count) for reason, count in negatives.rejected().items()),
        *((f"from {each['values']}", each["counts"]) for each in by_source),
    ]
    made = negatives.provenance
    lines = [
        f"---\n{head}\n---",
        f"# {name.rpartition('/')[2]}",
        "Hard negatives: one row for each query and document, with its source, its rank (from 0) and its score (the "
        "source's own, higher is better). A row with `keep` false is rejected, for its `reason`. Ids are those of the "
        "collection that it was mined from.",
        f"Columns: {', '.join(f'`{column}`' for column in negatives.table.column_names)}.",
        _table("", "count", [(key, f"{count:,}") for key, count in numbers]),
        f"```console\n$ foils score COLLECTION hf:{name}\n```",
        "## How it was made",
        f"```json\n{json.dumps(made, indent=2, ensure_ascii=False, sort_keys=True)}\n```",
        f"SHA-256 of `{TABLE}`: `{digest}`",
    ]
    return "\n\n".join(lines) + "\n"


def model_card(written: str, name: str, license: str | None) -> str:
    """Return the card that a model's folder has, with a licence and tags in its header.

    Raises:
        InputError: neither it nor the caller names a licence.
    """
    from huggingface_hub import ModelCard

    card = ModelCard(written or f"---\nlibrary_name: sentence-transformers\n---\n\n# {name.rpartition('/')[2]}\n")
    data: Any = card.data
    data.license = licence(license or data.license)
    data.tags = list(dict.fromkeys([*(data.tags or ()), TAGS[0]]))
    return str(card)


def study_card(name: str, license: str | None, files: Sequence[str]) -> str:
    """Return the card of a study: its cells, and how its page is made from it."""
    from huggingface_hub import DatasetCardData

    head = DatasetCardData(license=licence(license), tags=TAGS).to_yaml()
    cells = sorted({file.split("/")[1] for file in files if file.startswith("cells/")})
    trained = {cell: sum(file.startswith(f"cells/{cell}/trained/") for file in files) for cell in cells}
    title = name.rpartition("/")[2]
    lines = [
        f"---\n{head}\n---",
        f"# {title}",
        "A study of hard negatives: for each collection and model, sources of negatives, what predictors say of them, "
        "and what training on them gave.",
        _table("collection and model", "trainings", list(trained.items())),
        f"```console\n$ hf download --repo-type dataset {name} --local-dir {title}\n$ foils report {title}/\n```",
    ]
    return "\n\n".join(lines) + "\n"


def licence(given: str | None) -> str:
    """Return a licence's identifier.

    Raises:
        InputError: there is none, or it is not of this form.
    """
    option = spelled("license")
    if given is None:
        raise InputError(
            f"no licence; give {option}, an identifier of the hub's as apache-2.0, mit or cc-by-4.0; that of the texts "
            "may decide it"
        )
    if not _LICENCE.fullmatch(given):
        raise InputError(f"{option} {given}; expected an identifier of the hub's, as apache-2.0, mit or cc-by-4.0")
    return given


def _table(name: str, value: str, rows: Sequence[tuple[str, object]]) -> str:
    return "\n".join([f"| {name} | {value} |", "|---|---:|", *(f"| {key} | {each} |" for key, each in rows)])
