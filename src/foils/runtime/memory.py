"""How much memory blocks of work may take: one budget, which whatever chooses the size of a block obeys.

It is for what blocks hold beside the data: products, candidates, copies of vectors. Library code says
`memory.rows_at_once(bytes_of_a_row, most=4096)`. The environment variable FOILS_MEMORY sets it, as
500MB or 4GiB.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from foils.runtime.errors import InputError

Value = TypeVar("Value")

LEAST = 2**20
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}


@contextmanager
def holding(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Let a variable have a value for everything inside the context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def budget() -> int:
    """Return how many bytes a block may take: what FOILS_MEMORY says, or else 1 GiB.

    Raises:
        InputError: it is less than 1 MiB, or FOILS_MEMORY is no size.
    """
    size = parsed_size(os.environ.get("FOILS_MEMORY") or "1GiB")
    if size < LEAST:
        raise InputError(f"a memory budget of {size} bytes; expected at least 1 MiB")
    return size


def rows_at_once(row: float, *, most: int) -> int:
    """Return how many rows of so many bytes each a block may have: at least 1, at most `most`."""
    return max(1, min(most, int(budget() / max(row, 1.0))))


def parsed_size(text: str) -> int:
    """Return the bytes that a text as 2GiB, 500 MB or 1073741824 says.

    Raises:
        InputError: it is not of this form.
    """
    size = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", text)
    unit = "" if size is None else size[2].upper()
    if size is None or unit not in _UNITS:
        raise InputError(f"{text!r} is not a size; expected a number with a unit, as in 2GiB or 500MB")
    return int(float(size[1]) * _UNITS[unit])
