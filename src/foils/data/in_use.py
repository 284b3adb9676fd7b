"""What lies in the cache and is used: a shared lock says so, and only what nobody uses is removed.

Whoever reads an entry of the cache (a folder) holds a shared lock on it for as long as it may read; a log is locked by
the one process that writes it. Who removes takes the lock alone, or leaves the entry where it is.
"""

from __future__ import annotations

import os
import secrets
import shutil
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from foils.data.aside import ASIDE
from foils.runtime.errors import FailureError

try:
    import fcntl
except ImportError:  # not on Windows: what is open there cannot be renamed, and so stays
    fcntl = None  # type: ignore[assignment]


def hold(folder: Path, *, by: object) -> None:
    """Say that a folder of the cache is used: now, by its time, and for as long as `by` lives, by a shared lock.

    A folder that is not there, that is another's, or that cannot be locked, is used all the same.
    """
    mark_used(folder)
    if fcntl is not None:
        with suppress(OSError):
            handle = os.open(folder, os.O_RDONLY)
            weakref.finalize(by, os.close, handle)
            fcntl.flock(handle, fcntl.LOCK_SH)


def mark_used(path: Path) -> None:
    """Give a file or folder the time of now, by which the least recently used is known."""
    with suppress(OSError):
        os.utime(path)


def remove_unused(path: Path) -> bool:
    """Remove a file or folder, of which others see the whole or nothing; tell whether it was removed.

    It stays where a process holds it, where one is writing into it, and where the file system has no locks to tell.

    Raises:
        FailureError: it may not be removed.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
    try:
        with _alone(path):
            for writing in path.glob(".*.part") if path.is_dir() else ():
                if ASIDE.fullmatch(writing.name):
                    with _alone(writing):
                        pass
            path.rename(aside)  # what a kill leaves of it, the next writer beside it removes
            shutil.rmtree(aside) if aside.is_dir() else aside.unlink()
    except _InUseError:
        return False
    except FileNotFoundError:
        return not path.exists()
    except OSError as error:
        if fcntl is None and isinstance(error, PermissionError):
            return False
        raise FailureError(f"cannot remove {path}: {error.strerror or error}; look at its permissions") from error
    return True


class _InUseError(Exception):
    """Another process holds it."""


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise _InUseError from error
        yield
    finally:
        os.close(handle)
