"""Result files that a person can read in a difference: a list of numbers stands on one line."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from foils.data.store import write_text

_NUMBERS = re.compile(r"\[\s+(-?[\d.][^\[\]{}\"a-df-zA-DF-Z]*?)\s+\]")


def write_result(path: Path, value: Any) -> None:
    """Write a result as JSON, every list of numbers on one line."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    write_text(path, _NUMBERS.sub(lambda found: "[" + re.sub(r"\s+", " ", found[1]) + "]", text) + "\n")
