"""A JSON file that is one list of objects, read object by object: no more of it is in memory than the largest one."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from foils.data.lines import DAMAGE, LONGEST_LINE, Complaints, check_utf8, each_key_once, open_binary
from foils.runtime.errors import FormatError

PIECE = 1 << 20  # bytes that are read at once, and more where an object is longer
ESCAPE = 16  # characters at the end of what was read in which a malformed value may be a cut one
BLANK = " \t\r\n"


def first_character(path: Path) -> str:
    """Return the first character of a text file that is no white space, "" where there is none.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is not UTF-8, or damaged.
    """
    with open_binary(path) as opened:
        return _Text(path, opened).next()


def listed_objects(path: Path, complaints: Complaints) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (line where it begins, object) for each object of a JSON list; other values in it are complaints.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is no JSON list, not UTF-8, or an object has more than 64 MiB.
    """
    with open_binary(path) as opened:
        text = _Text(path, opened)
        mark = text.expect("[", "a list")
        while mark != "]":
            if text.next() == "]" and mark == "[":
                mark = text.expect("]", "]")
                continue
            line, value = text.line, text.value()
            if isinstance(value, dict):
                yield line, value
            else:
                complaints.add(f"expected a list of JSON objects, found {type(value).__name__} in it", line)
            mark = text.expect(",]", ", or ] after an object")
        complaints.settle()
        text.expect("", "nothing after the list")


class _Text:
    """The text of a file, read on where it is needed.

    Attributes:
        line: 1-based, of the place that was reached.
    """

    def __init__(self, path: Path, opened: IO[bytes]) -> None:
        self.path, self.line = path, 1
        self._opened, self._first, self._ended = opened, True, False
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self._parser = json.JSONDecoder(object_pairs_hook=each_key_once)
        self._text, self._at = "", 0

    def next(self) -> str:
        """Go on to the next character that is no white space, and return it; "" at the end."""
        while True:
            begin = self._at
            while self._at < len(self._text) and self._text[self._at] in BLANK:
                self._at += 1
            self.line += self._text.count("\n", begin, self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_on():
                return ""

    def expect(self, marks: str, what: str) -> str:
        """Go past the next character, which is one of these, or the end, and return it."""
        mark = self.next()
        if mark not in marks or (marks and not mark):
            given = f"{self._text[self._at : self._at + 20]!r}" if mark else "the end of the file"
            raise FormatError(f"malformed JSON: found {given}, expected {what}", self.path, self.line)
        self._at += len(mark)
        return mark

    def value(self) -> Any:
        """Go past the value that begins here, and return it."""
        while True:
            try:
                value, end = self._parser.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                place = getattr(error, "pos", self._at)
                cut = place >= len(self._text) - ESCAPE or "Unterminated string" in str(error)
                if isinstance(error, json.JSONDecodeError) and cut and self._read_on():
                    continue
                line = self.line + self._text.count("\n", self._at, place)
                said = getattr(error, "msg", str(error).partition("\n")[0])
                raise FormatError(f"malformed JSON ({said}); make it again", self.path, line) from error
            if end == len(self._text) and not isinstance(value, (dict, list, str)) and self._read_on():
                continue  # a number may go on
            self.line += self._text.count("\n", self._at, end)
            self._at = end
            return value

    def _read_on(self) -> bool:
        """Read at least as much as there is left; tell whether there was more."""
        rest = self._text[self._at :]
        if self._ended:
            return False
        if len(rest) > LONGEST_LINE:
            raise FormatError(f"an object of more than {LONGEST_LINE >> 20} MiB; cut its text", self.path, self.line)
        try:
            raw = self._opened.read(max(PIECE, len(rest)))
        except DAMAGE as error:
            raise FormatError(f"damaged data ({error}); get the file again", self.path, self.line) from error
        self._ended = not raw
        if self._first:
            check_utf8(raw, self.path)
            self._first = False
        try:
            self._text, self._at = rest + self._decoder.decode(raw, final=self._ended), 0
        except UnicodeDecodeError as error:
            line = self.line + rest.count("\n") + raw[: error.start].count(b"\n")
            raise FormatError("not UTF-8; convert the file", self.path, line) from error
        return not self._ended
