"""Reading JSON out of what a model said, in time of its length: a model that repeats itself must not stop a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

STARTS = 1000
"""How many brackets of an answer are tried as the beginning of its JSON."""


def without_thoughts(said: str) -> str:
    """Return an answer without what stands between <think> and </think>; thoughts without an end stay."""
    kept: list[str] = []
    while True:
        before, _, rest = said.partition("<think>")
        _, closed, after = rest.partition("</think>")
        if not closed:
            return "".join([*kept, said])
        kept.append(before)
        said = after


def json_values(said: str) -> Iterator[Any]:
    """Yield the JSON object or list that begins at each bracket, inner ones after those around them.

    Brackets that begin no JSON are passed over; after STARTS brackets no more are tried.
    """
    decoder = json.JSONDecoder()
    for start in islice((match.start() for match in re.finditer(r"[\[{]", said)), STARTS):
        try:
            value, _ = decoder.raw_decode(said, start)
        except (ValueError, RecursionError):
            continue
        yield value
