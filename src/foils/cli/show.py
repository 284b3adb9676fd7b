"""What people see while a verb works: messages and progress, on stderr."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from foils.runtime.progress import Advance
from foils.runtime.results import counted

_LEAST = 2.0  # seconds of a task that leaves a line


def say(message: str) -> None:
    """Print a line to stderr, above the bars that are there."""
    from tqdm import tqdm

    tqdm.write(f"foils: {message}", file=sys.stderr)


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
    """Shows the tasks of the library that take longer than two seconds: by bars, and by a line when they end."""

    @contextmanager
    def task(self, description: str, total: int | None, unit: str) -> Iterator[Advance]:
        """Show one task."""
        from tqdm import tqdm

        start, done = time.monotonic(), 0
        every = 0.1 if sys.stderr.isatty() else 10.0  # seconds between the states of a bar
        look: Any = {"unit": f" {unit}", "delay": _LEAST, "mininterval": every, "leave": False, "disable": False}
        with tqdm(total=total, desc=description, file=sys.stderr, **look) as bar:

            def advance(count: int) -> None:
                nonlocal done
                done += count
                bar.update(count)

            try:
                yield advance
            finally:
                spent = time.monotonic() - start
                bar.close()
                if spent > _LEAST:
                    say(f"{description}: {counted(done, unit)} in {spent:,.0f} s")
