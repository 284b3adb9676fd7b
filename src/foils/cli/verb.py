"""What the program knows of a verb beside its door, and what it can say of one without loading it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from foils.runtime.errors import InputError
from foils.runtime.options import Option, Setting

Door = Callable[..., Any]
_ROOT = Path(__file__).parents[2]  # of the modules' files


class UsageError(InputError):
    """A command that the program does not understand."""


@dataclass(frozen=True)
class Verb:
    """What the program needs of a verb beside its door.

    Attributes:
        door: where the door is, as MODULE:FUNCTION.
        example: a command, for the help.
        writes: what `-o` is the name of, as "table of negatives"; empty: the result is not written.
        reports: whether the result has a page.
        before: raises an InputError for options that do not go together, some of the program alone; it is given what
            the door will be given, and the program's own options.
        after: does what the program alone does with the result, once it is shown and written; it is given the result
            and what the door was given.
        more: options of the program alone, for `after`.
        moved: what to give in place of options that the verb had once.
        alone: whether it can go without arguments; where not, it shows its help then.
    """

    door: str
    example: str
    writes: str = ""
    reports: bool = False
    before: Callable[[Mapping[str, Any]], None] | None = None
    after: Callable[[Any, Mapping[str, Any]], None] | None = None
    more: tuple[Setting, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False

    def function(self) -> Door:
        """Import the door."""
        module, _, name = self.door.partition(":")
        function: Door = getattr(import_module(module), name)
        return function

    def summary(self) -> str:
        """Return the first line of the door's docstring, read from its file: nothing is imported for `foils --help`."""
        module, _, name = self.door.partition(":")
        source = _ROOT.joinpath(*module.split(".")).with_suffix(".py").read_text("utf-8")
        docstring = re.search(rf'^def {name}\(.*?"""(.*?)$', source, re.DOTALL | re.MULTILINE)
        return docstring[1].strip() if docstring else ""


def option(name: str, kind: Any, text: str, **more: Any) -> Setting:
    """Return an option of the program alone, which is not given where nobody gives it."""
    return Setting(name, kind | None, Option(**more), None, text, "Output")
