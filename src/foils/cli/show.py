"""What people see while a verb works: messages and progress, on stderr."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from foils.runtime.progress import Advance
from foils.runtime.results import counted

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
        console = Console(stderr=True)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=30), MofNCompleteColumn(),
                   TextColumn("{task.fields[rate]}"), TimeRemainingColumn())  # fmt: skip
        self._bars = Bars(*columns, console=console, transient=True) if console.is_terminal else None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: Any) -> None:
        if self._bars is not None:
            self._bars.stop()

    @contextmanager
    def task(self, description: str, total: int | None, unit: str) -> Iterator[Advance]:
        """Show one task."""
        start = last = time.monotonic()
        done, bars = 0, self._bars
        if bars is not None:
            bar = bars.add_task(description, total=total, rate="")
            bars.start()

        def advance(count: int) -> None:
            nonlocal done, last
            done += count
            now = time.monotonic()
            rate = _rate(done, now - start, unit)
            if bars is not None:
                bars.update(bar, advance=count, rate=rate)
            elif now - last >= _EVERY:
                last = now
                left = f", {(now - start) * (total - done) / done:,.0f} s left" if total and done else ""
                of = "" if total is None else f"{done:,} of "
                say(f"{description}: {of}{counted(total or done, unit)}, {rate}{left}")

        try:
            yield advance
        finally:
            spent = time.monotonic() - start
            if bars is not None:
                bars.remove_task(bar)
                if not bars.task_ids:  # the terminal is free, for whoever asks or prints
                    bars.stop()
            if spent > _LEAST:
                say(f"{description}: {counted(done, unit)} in {spent:,.0f} s")


def _rate(done: int, seconds: float, unit: str) -> str:
    """Units a second, or seconds a unit where one takes longer than a second."""
    rate = done / max(seconds, 1e-9)
    return f"{1 / rate:,.1f} s/{counted(1, unit)[2:]}" if 0 < rate < 1 else f"{rate:,.0f} {unit}/s"
