"""Line-by-line reading of text files, plain or gzipped, that knows where it is.

Every reader in foils goes through here, so that each complaint names file and line, and a file's complaints are
raised together.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from foils.data.store import existing_file
from foils.runtime.errors import FormatError, InputError

SHOWN = 5
LONGEST_MESSAGE = 500
"""Characters of one complaint; of longer ones, which quote long ids, the beginning is shown."""
LONGEST_LINE = 1 << 26
"""Bytes of a line, unpacked: what a reader holds in memory at most, whatever a small gzip file unpacks to."""
NO_TEXT = {
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x04\x22\x4d\x18": "lz4",
    b"PK\x03\x04": "a zip archive or a workbook of Excel",
    b"\xd0\xcf\x11\xe0": "a workbook of Excel",
    b"PAR1": "Parquet",
    b"ARROW1": "Arrow",
}
"""What files begin with that are no text, plain or gzipped."""
INSTEAD = {
    **dict.fromkeys(("zstd", "bzip2", "xz", "lz4"), "unpack it, or pack it with gzip"),
    "a zip archive or a workbook of Excel": "unpack it, or save it as CSV in UTF-8",
    "a workbook of Excel": "save it as CSV in UTF-8",
    "Parquet": "name it .parquet",
    "Arrow": "write it as Parquet, or load it and give the table",
}
DAMAGE = (EOFError, zlib.error, OSError)  # what reading a cut or damaged gzip file, or a bad disk, raises


class Complaints:
    """Collects what is wrong with a file and raises it all at once.

    Collecting stops at 1,000 complaints (the file is then plainly of another kind).
    """

    def __init__(self, path: str | Path) -> None:
        self.path = path
        self._found: list[tuple[int | None, str]] = []

    def add(self, message: str, line: int | None = None) -> None:
        """Note one complaint."""
        message = message if len(message) <= LONGEST_MESSAGE else f"{message[:LONGEST_MESSAGE]}…"
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
        FormatError: it is packed otherwise, or a table of another program.
    """
    path = existing_file(path)
    begin = magic(path, 6)
    if kind := next((kind for mark, kind in NO_TEXT.items() if begin.startswith(mark)), ""):
        raise FormatError(f"{kind} by its first bytes, expected text, plain or gzipped; {INSTEAD[kind]}", path)
    try:
        return cast("IO[bytes]", gzip.open(path)) if begin.startswith(b"\x1f\x8b") else path.open("rb")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def magic(path: str | Path, size: int) -> bytes:
    """Return the first bytes of a file as they are, by which its kind is known.

    Raises:
        InputError: there is no such file, or it may not be read.
    """
    path = existing_file(path)
    try:
        with path.open("rb") as opened:
            return opened.read(size)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error


def whole_text(path: str | Path) -> str:
    """Return a text file's contents, UTF-8 with or without a byte order mark.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is not UTF-8, with the line, or has a line that is too long.
    """
    complaints = Complaints(path)
    text = "\n".join(line for _, line in every_line(path, complaints))
    complaints.settle()
    return text


def whole_json(path: str | Path) -> Any:
    """Return what a JSON file says.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is not JSON, not UTF-8, has a key twice, or is nested too deep.
    """
    try:
        return json_value(whole_text(path))
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        said = str(error).partition("\n")[0][:LONGEST_MESSAGE]
        raise FormatError(f"malformed JSON ({said}); make it again", path, getattr(error, "lineno", None)) from error


def numbered_lines(path: str | Path, complaints: Complaints) -> Iterator[tuple[int, str]]:
    """Yield (1-based number, text without its end) for each line that is not blank.

    A byte order mark at the start is dropped, CRLF is accepted, bytes that are not UTF-8 are a complaint.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: a gzip stream that is cut off or damaged, UTF-16, or a line above 64 MiB.
    """
    return ((number, text) for number, text in every_line(path, complaints) if text.strip())


def every_line(path: str | Path, complaints: Complaints) -> Iterator[tuple[int, str]]:
    """Yield (1-based number, text without its end) for each line; otherwise as `numbered_lines`."""
    with open_binary(path) as opened:
        number = 0
        while True:
            try:
                raw = opened.readline(LONGEST_LINE + 1)
            except DAMAGE as error:
                raise FormatError(f"damaged data ({error}); get the file again", path, number + 1) from error
            if not raw:
                return
            number += 1
            if len(raw) > LONGEST_LINE:
                raise FormatError(f"a line of more than {LONGEST_LINE >> 20} MiB; cut its text", path, number)
            if number == 1:
                check_utf8(raw, path)
            try:
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
            except UnicodeDecodeError as error:
                complaints.add(f"not UTF-8 at byte {error.start} of the line; convert the file", number)


def check_utf8(begin: bytes, path: str | Path) -> None:
    """Refuse a text that begins as UTF-16 or UTF-32 do: with their mark, or with letters and zero bytes by turns.

    Raises:
        FormatError: it does.
    """
    if begin.startswith((b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")) or _zero_by_turns(begin[:4]):
        raise FormatError("UTF-16 or UTF-32, by its first bytes; convert the file to UTF-8", path, 1)


def _zero_by_turns(begin: bytes) -> bool:
    """Tell whether every second byte of four is zero, or three of them."""
    zero = [not byte for byte in begin]
    return len(zero) == 4 and zero in ([False, True] * 2, [True, False] * 2, [False, True, True, True])


def json_objects(path: str | Path, complaints: Complaints) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line number, object) for each line of a JSONL file; lines that are no JSON object are complaints."""
    for number, text in numbered_lines(path, complaints):
        try:
            value = json_value(text)
        except (ValueError, RecursionError) as error:
            said = str(error).partition("\n")[0]
            if isinstance(error, json.JSONDecodeError):
                said = f"{error.msg}, character {error.pos + 1}"
            complaints.add(f"malformed JSON ({said}); each line must be one JSON object", number)
            continue
        if isinstance(value, dict):
            yield number, value
        else:
            complaints.add(f"expected a JSON object, found {type(value).__name__}", number)


def json_value(text: str | bytes) -> Any:
    """Return what a JSON text says; an object that says a key twice is refused, since one of the two would be lost.

    Raises:
        ValueError: it is not JSON, has a key twice, or an integer of more digits than Python reads.
        RecursionError: it is nested too deep.
    """
    return json.loads(text, object_pairs_hook=each_key_once)


def each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the pairs as a dictionary, as `json` makes its objects; ValueError: a key is there twice."""
    made = dict(pairs)
    if len(made) < len(pairs):
        counts = Counter(key for key, _ in pairs)
        raise ValueError(f"the key {counts.most_common(1)[0][0]!r} is there more than once")
    return made


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
