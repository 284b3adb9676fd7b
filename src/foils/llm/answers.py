"""Reading JSON out of a model's answer, in time of its length: a model that repeats itself must not stop a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

_BRACKET = re.compile(r"[\[{]")
_TOKEN = re.compile(r'\s*+([\[\]{},:]|"(?:[^"\\]|\\.)*+"|-?\d[-+.eE\d]*+|true|false|null)', re.DOTALL)
_CUT = re.compile(r'\s*+("(?s:.)*+|-|t|tr|tru|f|fa|fal|fals|n|nu|nul)?')  # a token that lacks its end

STARTS = 1000
"""How many brackets of an answer are tried as the beginning of its JSON."""


def without_thoughts(text: str) -> str:
    """Return an answer without what stands between <think> and </think>; thoughts without an end stay.

    Where a </think> has no beginning, as under chat templates that open the thoughts in the prompt, all before it is
    thought.
    """
    kept: list[str] = []
    *thoughts, rest = text.split("</think>")
    for part in thoughts:
        before, begun, _ = part.partition("<think>")
        kept = [*kept, before] if begun else []
    return "".join([*kept, rest])


def json_values(text: str) -> Iterator[Any]:
    """Yield the JSON object or list that begins at each bracket, inner ones after those around them.

    Brackets that begin no JSON are passed over; after STARTS brackets no more are tried.
    """
    decoder = json.JSONDecoder()
    for start in islice((match.start() for match in _BRACKET.finditer(text)), STARTS):
        try:
            value, _ = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield value


def outer_values(text: str) -> Iterator[Any]:
    """Yield each outermost JSON object or list; the last one, where it is cut off, up to its last whole value.

    Line breaks inside strings are taken as they are. After STARTS brackets no more are tried.
    """
    decoder, at, walked = json.JSONDecoder(strict=False), 0, 0
    for _ in range(STARTS):
        bracket = _BRACKET.search(text, at)
        if bracket is None:
            return
        try:
            value, at = decoder.raw_decode(text, bracket.start())
        except (ValueError, RecursionError):
            at = bracket.end()
            if at > walked:  # no part of the text is walked over twice
                completed, walked = _completed(text, bracket.start())
                if completed == "":  # what is left is inside a string or has no whole value
                    return
                try:
                    value, at = decoder.decode(completed or ""), walked
                except (ValueError, RecursionError):
                    continue
                yield value
            continue
        yield value


def _completed(text: str, start: int) -> tuple[str | None, int]:
    """Return the JSON that begins here, cut after its last whole value and closed, and how far the walk over it came.

    None where it is not the end of the text that cuts it off; "" where no value is whole before that.
    """
    open_brackets: list[str] = []
    at, whole, depth, previous = start, start, 0, ""
    while token := _TOKEN.match(text, at):
        at, mark = token.end(), token.group(1)
        if mark in "[{":
            open_brackets.append(mark)
        elif mark in "]}":
            open_brackets.pop()
        if not open_brackets:
            return None, at
        if mark not in "[{,:" and (open_brackets[-1] == "[" or previous == ":" or mark in "]}"):
            whole, depth = at, len(open_brackets)
        previous = mark
    if not _CUT.fullmatch(text, at):
        return None, at
    closing = ["]" if bracket == "[" else "}" for bracket in reversed(open_brackets[:depth])]
    return text[start:whole] + "".join(closing), len(text)
