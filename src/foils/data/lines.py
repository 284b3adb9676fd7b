"""Line-by-line reading of text files, plain or gzipped, that knows where it is.

Every reader in foils goes through here, so that each complaint names file and line, and a file's complaints are
raised together.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from foils.data.store import existing_file
from foils.errors import FormatError, InputError

SHOWN = 5
_DAMAGE = (EOFError, zlib.error, OSError)  # what reading a cut or damaged gzip file, or a bad disk, raises


class Complaints:
    """Collects what is wrong with a file and raises it all at once.

    Collecting stops at 1,000 complaints (the file is then plainly of another kind).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._found: list[tuple[int | None, str]] = []

    def add(self, message: str, line: int | None = None) -> None:
        """Note one complaint."""
        self._found.append((line, message))
        if len(self._found) >= 1000:
            self.settle()

    def settle(self) -> None:
        """Raise a FormatError if anything was noted: the first in full, then the next few by line."""
        if not self._found:
            return
        (line, message), *others = self._found
        if others:
            listed = [f"{self.path}:{at}: {said}" if at else said for at, said in others[: SHOWN - 1]]
            rest = f"\n(and {len(others) - len(listed)} more)" if len(others) > len(listed) else ""
            message += "\n" + "\n".join(listed) + rest
        raise FormatError(message, self.path, line)


def open_binary(path: str | Path) -> IO[bytes]:
    """Open a file for reading bytes, unpacking gzip where the file is gzip (by its first bytes).

    Raises:
        InputError: there is no such file, or it may not be read.
    """
    path = existing_file(path)
    try:
        opened = path.open("rb")
        magic = opened.read(2)
        opened.seek(0)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    return cast("IO[bytes]", gzip.GzipFile(fileobj=opened)) if magic == b"\x1f\x8b" else opened


def beginning(path: str | Path, size: int = 4096) -> bytes:
    """Return the first bytes of a file, at least `size` where it has them, to the end of a line.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: a gzip stream that is cut off or damaged.
    """
    with open_binary(path) as opened:
        try:
            return opened.read(size) + opened.readline()
        except _DAMAGE as error:
            raise FormatError(f"damaged data ({error}); get the file again", path) from error


def numbered_lines(path: str | Path, complaints: Complaints) -> Iterator[tuple[int, str]]:
    """Yield (1-based number, text without its end) for each line that is not blank.

    A byte order mark at the start is dropped, CRLF is accepted, bytes that are not UTF-8 are a complaint.

    Raises:
        FormatError: a gzip stream that is cut off or damaged.
    """
    with open_binary(path) as opened:
        number = 0
        while True:
            try:
                raw = opened.readline()
            except _DAMAGE as error:
                raise FormatError(f"damaged data ({error}); get the file again", path, number + 1) from error
            if not raw:
                return
            number += 1
            try:
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                complaints.add(f"not UTF-8 at byte {error.start} of the line; convert the file", number)
                continue
            if text.strip():
                yield number, text


def json_objects(path: str | Path, complaints: Complaints) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for each line of a JSONL file; lines that are no JSON object are complaints."""
    for number, text in numbered_lines(path, complaints):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError) as error:
            said = str(error).partition("\n")[0]
            complaints.add(f"malformed JSON ({said}); each line must be one JSON object", number)
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            complaints.add(f"expected a JSON object, found {type(value).__name__}", number)


def text_field(value: object) -> str | None:
    """Return a JSON value as text that Arrow can hold, or None: strings without lone surrogates; integers as ids."""
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    text = str(value)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return None
    return text
