"""Settings that take one value or several."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

Value = TypeVar("Value")


def several(given: Value | Sequence[Value]) -> list[Value]:
    """Return what was given as a list: the values of a sequence, or the one value; a text is one value."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        return list(given)
    return [given]
