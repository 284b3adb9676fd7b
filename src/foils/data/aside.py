"""What is written aside until it is whole: where, locked while its writer lives, and removed once it is dead."""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from foils.runtime.errors import FailureError, InputError

try:
    import fcntl
except ImportError:  # not on Windows: what a killed writer left aside stays there
    fcntl = None  # type: ignore[assignment]

ASIDE = re.compile(r"\..+\.\d+-[0-9a-f]{8}\.part")


def place_aside(path: Path) -> Path:
    """Return where to write aside, beside the path; the folder is made, what is dead in it removed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot make the folder {path.parent}: {error.strerror}; choose another place") from error
    remove_dead(path.parent)
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")


@contextmanager
def held(aside: Path, *, folder: bool = False) -> Iterator[None]:
    """Make what is written aside, and hold a lock on it that ends with this process: others see whether it lives."""
    if fcntl is None:
        aside.mkdir() if folder else aside.touch()
        yield
        return
    while True:
        if folder:
            aside.mkdir(exist_ok=True)
        handle = os.open(aside, os.O_RDONLY if folder else os.O_RDWR | os.O_CREAT, 0o666)
        with suppress(OSError):  # a file system without locks: nobody can take it for dead
            fcntl.flock(handle, fcntl.LOCK_EX)
        with suppress(OSError):
            if os.path.samestat(os.fstat(handle), aside.stat()):
                break
        os.close(handle)  # another process took it for dead before the lock
    try:
        yield
    finally:
        os.close(handle)


def remove_dead(folder: Path) -> None:
    """Remove what writers that were killed left aside: that on which nobody holds a lock."""
    for left in folder.glob(".*.part") if fcntl else ():
        if not ASIDE.fullmatch(left.name):
            continue
        with suppress(OSError):
            handle = os.open(left, os.O_RDONLY)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            finally:
                os.close(handle)


def lock_alone(opened: IO[bytes], path: str | Path) -> None:
    """Lock an open file until it is closed, for what only one process may write.

    Raises:
        FailureError: another process has it.
    """
    if fcntl is not None:
        try:
            fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise FailureError(f"{path} is being written by another process; wait until it has ended") from error
        except OSError:
            return  # a file system without locks
