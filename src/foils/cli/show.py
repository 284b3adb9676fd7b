"""What people see while a verb works: messages and progress, on stderr."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from foils.runtime.progress import Advance

_EVERY = 10.0  # seconds between lines of progress where stderr is no terminal
_LEAST = 2.0  # seconds of a task that leaves a line


def say(message: str) -> None:
    """Print a line to stderr."""
    print(f"foils: {message}", file=sys.stderr)


class _Messages(logging.Handler):
    """Prints what the library has to say."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


@contextmanager
def messages() -> Iterator[None]:
    """Print what the library logs, from INFO on, to stderr."""
    logger, handler = logging.getLogger("foils"), _Messages()
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class Progress:
    """Shows the tasks of the library: bars on a terminal, a line every ten seconds elsewhere.

    Tasks that end within two seconds leave no trace.
    """

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
        )

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._bars.stop()

    @contextmanager
    def task(self, description: str, total: int | None, unit: str) -> Iterator[Advance]:
        """Show one task."""
        start = last = time.monotonic()
        done = 0
        bar = self._bars.add_task(description, total=total, rate="") if self._console.is_terminal else None
        if bar is not None:
            self._bars.start()

        def advance(count: int) -> None:
            nonlocal done, last
            done += count
            now = time.monotonic()
            rate = f"{done / max(now - start, 1e-9):,.0f} {unit}/s"
            if bar is not None:
                self._bars.update(bar, advance=count, rate=rate)
            elif now - last >= _EVERY:
                last = now
                say(f"{description}: {_of(done, total)} {unit}, {rate}{_left(done, total, now - start)}")

        try:
            yield advance
        finally:
            spent = time.monotonic() - start
            if bar is not None:
                self._bars.remove_task(bar)
                if not self._bars.task_ids:  # the terminal is free, for whoever asks or prints
                    self._bars.stop()
            if spent > _LEAST:
                say(f"{description}: {done:,} {unit} in {spent:,.0f} s")


def _of(done: int, total: int | None) -> str:
    return f"{done:,}" if total is None else f"{done:,} of {total:,}"


def _left(done: int, total: int | None, spent: float) -> str:
    return f", {spent * (total - done) / done:,.0f} s left" if total and done else ""
