"""Values that hold inside a context alone, as the memory budget, who shows progress, and where shards are done."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Value = TypeVar("Value")


@contextmanager
def holding(variable: ContextVar[Value], value: Value) -> Iterator[None]:
    """Let a variable have a value for everything inside the context."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
