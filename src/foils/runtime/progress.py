"""Progress of long work, reported to whoever listens.

Library code says `with progress.task("embedding", total=n, unit="texts") as advance: ... advance(k)`.
By default nobody listens; the command line installs a listener for the time of a command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import Protocol

Advance = Callable[[int], None]


class Reporter(Protocol):
    """What shows progress: opens a task and returns a function that advances it."""

    def task(self, description: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
        """Open a task of `total` units (None: unknown) and yield its advance function."""
        ...


class _Silent:
    @contextmanager
    def task(self, description: str, total: int | None, unit: str) -> Iterator[Advance]:
        yield lambda _: None


_reporter: ContextVar[Reporter] = ContextVar("foils_reporter", default=_Silent())  # noqa: B039 (stateless)


def task(description: str, total: int | None = None, unit: str = "items") -> AbstractContextManager[Advance]:
    """Open a task with the current reporter; the context's value advances it by a number of units."""
    return _reporter.get().task(description, total, unit)


@contextmanager
def reporting(reporter: Reporter) -> Iterator[None]:
    """Send the progress of everything inside the context to `reporter`."""
    token = _reporter.set(reporter)
    try:
        yield
    finally:
        _reporter.reset(token)


def quiet() -> AbstractContextManager[None]:
    """Report nothing of what happens inside the context: a part of a task that reports for itself."""
    return reporting(_Silent())


class _Bars:
    @contextmanager
    def task(self, description: str, total: int | None, unit: str) -> Iterator[Advance]:
        from tqdm.auto import tqdm

        with tqdm(total=total, desc=description, unit=f" {unit}", delay=2) as bar:
            yield bar.update


def bars() -> AbstractContextManager[None]:
    """Show bars of everything inside the context that takes two seconds or more, in a terminal or a notebook."""
    return reporting(_Bars())
