"""Progress of long work, reported to whoever listens.

Library code says `with progress.task("embedding", total=n, unit="texts") as advance: ... advance(k)`.
By default nobody listens; the program listens with `bars` for the time of a command. `note` shows a
text beside the bar that is open, such as the loss of a training.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar

from foils.runtime.memory import holding
from foils.runtime.results import counted

Advance = Callable[[int], None]
Reporter = Callable[[str, int | None, str], AbstractContextManager[Advance]]
"""Opens a task: of its description, the total of its units (None: unknown) and their name."""

LEAST = 2.0  # seconds of a task that is shown

_note: ContextVar[Callable[[str], None]] = ContextVar("foils_note", default=lambda _: None)


def note(text: str) -> None:
    """Show a text beside the innermost task of this thread, in the place of the one before."""
    _note.get()(text)


def silent(description: str, total: int | None, unit: str) -> AbstractContextManager[Advance]:
    """Report nothing."""
    return nullcontext(lambda _: None)


@contextmanager
def bars(description: str, total: int | None, unit: str) -> Iterator[Advance]:
    """Show a task that takes two seconds or more, in a terminal or a notebook: a bar, and a line when it ends."""
    from tqdm.auto import tqdm

    # seconds between the states of a bar
    start, every = time.monotonic(), 0.1 if sys.stderr.isatty() else 10.0
    look = {"unit": f" {unit}", "delay": LEAST, "mininterval": every, "leave": False, "disable": False}
    with tqdm(total=total, desc=description, **look) as bar:
        try:
            with holding(_note, lambda text: bar.set_postfix_str(text, refresh=False)):
                yield bar.update
        finally:
            spent = time.monotonic() - start
            bar.close()
            if spent > LEAST:
                state = f"{description}: {counted(bar.n, unit)} in {spent:,.0f} s"
                say(", ".join(filter(None, [state, bar.postfix])))


def say(message: str) -> None:
    """Print a line to stderr, above the bars that are there."""
    from tqdm import tqdm

    tqdm.write(f"foils: {message}", file=sys.stderr)


_reporter: ContextVar[Reporter] = ContextVar("foils_reporter", default=silent)


def task(description: str, total: int | None = None, unit: str = "items") -> AbstractContextManager[Advance]:
    """Open a task with the current reporter; the context's value advances it by a number of units."""
    return _reporter.get()(description, total, unit)


def reporting(reporter: Reporter) -> AbstractContextManager[None]:
    """Send the progress of everything inside the context to `reporter`; `silent`: a part of a task reports nothing."""
    return holding(_reporter, reporter)
