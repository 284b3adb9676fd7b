"""What can go wrong, as a small tree of exceptions.

::

    FoilsError
    ├── InputError            the caller's data, file or option is not usable (exit status 2)
    │   ├── FormatError       a file that does not say what it should; carries file and line
    │   ├── UnknownNameError  a name that is not one of the known ones; lists them
    │   └── MissingExtraError an optional dependency is not installed; names the extra
    └── FailureError          the work itself failed (exit status 1)
        └── ConvergenceError  an estimator did not reach its tolerance

Every message says what was given, what was expected and what to do.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any


class FoilsError(Exception):
    """Root of every error that foils raises on purpose."""

    def __str__(self) -> str:
        """Return the message; what is no valid Unicode in it is written as an escape, so that any log can hold it."""
        return super().__str__().encode("utf-8", "backslashreplace").decode()

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it travel between processes, whatever its class is made of."""
        return type(self).__new__, (type(self), *self.args), vars(self)


class InputError(FoilsError, ValueError):
    """The caller's data, file or option is not usable."""


class FormatError(InputError):
    """A file does not say what it should.

    Args:
        message: what was found, what was expected, what to do.
        path: the file.
        line: 1-based line number, where there is one.
    """

    def __init__(self, message: str, path: str | Path, line: int | None = None) -> None:
        self.path, self.line = Path(path), line
        where = f"{path}:{line}" if line is not None else f"{path}"
        super().__init__(f"{where}: {message}")


class UnknownNameError(InputError):
    """A name is not one of the known ones; the message lists them and the nearest.

    Args:
        what: the kind of thing that is named, for the message.
        name: that was given.
        known: the names that there are.
        option: by which another is given, where the message should say so.
    """

    def __init__(self, what: str, name: object, known: Iterable[str], option: str = "") -> None:
        names = sorted(known)
        near = get_close_matches(str(name), names, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        way = f" Give one with {option}." if option else ""
        super().__init__(f"unknown {what} {name!r}; expected one of: {', '.join(names)}.{hint}{way}")


class MissingExtraError(InputError):
    """An optional dependency is not installed; the message names the extra that brings it."""


class FailureError(FoilsError, RuntimeError):
    """The work itself failed, on input that was fine."""


class ConvergenceError(FailureError):
    """An estimator did not reach its tolerance; the message says how far it came."""


def check_names(what: str, names: Iterable[object], known: Collection[str]) -> None:
    """Refuse a name that is not one of the known ones.

    Raises:
        UnknownNameError: the first such name.
    """
    for name in names:
        if name not in known:
            raise UnknownNameError(what, name, known)


def require(package: str, extra: str) -> ModuleType:
    """Import and return an optional package, or say which extra of foils installs it.

    Raises:
        MissingExtraError: the package is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != package.partition(".")[0]:
            raise
        problem = f"this needs the package {package!r}, which is not installed and comes with foils[{extra}]"
        raise MissingExtraError(f"{problem}; run in the clone of foils: pip install -e '.[{extra}]'") from error
