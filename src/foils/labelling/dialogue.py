"""How a person judges the pairs of a sheet: at the terminal, or on a page in a browser."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import IO

from foils.labelling.sheet import LabelSheet, Pair
from foils.llm import digest
from foils.pages.page import script_json, shortened

QUESTION = "Is the document relevant, too?   y yes   n no   s skip   u undo   q quit"
LONGEST = 1_500  # characters of a text that are shown
_RELEVANT = {"y": 1, "n": 0, "s": None}


@dataclass
class Dialogue:
    """Asks about the open pairs of a sheet; every answer is written before the next question.

    Attributes:
        key: returns what was pressed or typed, "" at the end of the input.
        out: where the texts are shown.
        width: of a line, in characters.
    """

    key: Callable[[], str]
    out: IO[str]
    width: int = 100

    def go_through(self, sheet: LabelSheet, judge: str) -> None:
        """Ask until no pair is open, or the person quits; what was answered is in the file."""
        places, at = sheet.open(judge), 0
        done = len(sheet.keys) - len(places)
        while at < len(places):
            self._show(sheet.shown[places[at]], done + at + 1, len(sheet.keys))
            answer = self._answer()
            if answer == "q":
                break
            if answer == "u":
                at = max(at - 1, 0)
                sheet.forget(places[at], judge)
            else:
                sheet.record(places[at], judge, _RELEVANT[answer])
                at += 1
            sheet.write()
        self._say(f"{done + at} of {len(sheet.keys)} pairs; the answers are in {sheet.path}")

    def _answer(self) -> str:
        """The first key that means something; the end of the input means to quit."""
        while True:
            pressed = self.key()
            answer = pressed.strip().lower()[:1] if pressed else "q"
            if answer in (*_RELEVANT, "u", "q"):
                return answer
            self._say(QUESTION)

    def _show(self, shown: Pair, number: int, of: int) -> None:
        self._say(f"\n─── {number} of {of} " + "─" * 40)
        for name, text in (("query", shown.query), ("positive", shown.positive), ("document", shown.document)):
            if text:
                self._say(self._block(name, text))
        self._say(QUESTION)

    def _block(self, name: str, text: str) -> str:
        harmless = "".join(each if each.isprintable() else " " for each in shortened(text, LONGEST))
        indent = " " * 10
        return textwrap.fill(harmless, self.width, initial_indent=f"{name:<10}", subsequent_indent=indent)

    def _say(self, text: str) -> None:
        self.out.write(f"{text}\n")
        self.out.flush()


@contextmanager
def on_terminal() -> Iterator[Dialogue]:
    """Give the dialogue on this terminal: a key is enough where the terminal gives keys, a line elsewhere."""
    width = min(shutil.get_terminal_size().columns, 120)
    try:
        import termios
        import tty

        before = termios.tcgetattr(sys.stdin) if sys.stdin.isatty() else None
    except ImportError:  # not on Windows
        before = None
    if before is None:
        yield Dialogue(sys.stdin.readline, sys.stderr, width)
        return
    try:
        tty.setcbreak(sys.stdin)
        yield Dialogue(lambda: sys.stdin.read(1), sys.stderr, width)
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


_KEYS = {1: "y", 0: "n", None: "s"}


def label_page(sheet: LabelSheet, judge: str, *, title: str, file: str = "answers.tsv") -> str:
    """Return the page as HTML: the drawn pairs, with this judge's answers so far.

    It takes the keys y, n, s and the arrows, remembers answers in the browser's own storage, and downloads them as a
    file of labels (TSV).

    Args:
        sheet: of the drawn pairs.
        judge: name of the person.
        title: what is judged.
        file: name of the file that is downloaded.
    """
    answers = [_KEYS[known[judge]] if judge in (known := sheet.answers.get(key, {})) else None for key in sheet.keys]
    data = {
        "title": title,
        "judge": judge,
        "file": file,
        "key": f"foils-{digest('label page', judge, sheet.keys)}",
        "answers": answers,
        "pairs": [{**sheet.pairs[key], **vars(shown)} for key, shown in zip(sheet.keys, sheet.shown, strict=True)],
    }
    template = files("foils.pages").joinpath("templates", "label.html").read_text("utf-8")
    return template.replace(">DATA<", f">{script_json(data)}<")
