"""JSON objects that carry a checksum of what they say, so that a changed digit is seen when they are read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xxhash

from foils.data.store import write_json

SEAL = "checksum"
CHANGED = "its contents have changed since they were written (their checksum is another)"


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON object with the checksum of what it says: xxh3_64 of its canonical text, as 16 hexadecimal digits.

    The canonical text is ASCII, has its keys sorted and no blanks; a float is its shortest form that reads the same.
    """
    read_again = json.loads(json.dumps(value))  # keys that are numbers become text, and sort as it does
    return {**value, SEAL: _checksum(read_again)}


def intact(value: Mapping[str, Any]) -> bool:
    """Tell whether a JSON object, as it was read, still says what its checksum was taken of.

    One without a checksum counts as intact: nothing is known of it.
    """
    return SEAL not in value or value[SEAL] == _checksum({key: each for key, each in value.items() if key != SEAL})


def write_sealed(path: str | Path, value: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum, whole; NaN is refused, since JSON has none."""
    write_json(path, sealed(value))


def _checksum(value: Mapping[str, Any]) -> str:
    return xxhash.xxh3_64(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
