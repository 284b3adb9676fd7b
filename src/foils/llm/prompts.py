"""Prompts: text with slots, from a file of one's own or from the package."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from foils.data.records import whole_text
from foils.runtime.errors import FormatError, InputError

_SLOT = re.compile(r"\{([a-z_]+)\}")


@dataclass(frozen=True)
class Template:
    """Text with slots, as {query}.

    Attributes:
        text: the whole prompt.
        version: what to call it in provenance.
        needed: slots that it must have.
        optional: slots that it may have.

    Raises:
        InputError: a slot that is needed is missing, or one is unknown.
    """

    text: str
    version: str
    needed: Sequence[str] = ()
    optional: Sequence[str] = ()

    def __post_init__(self) -> None:
        slots, known = self.slots, (*self.needed, *self.optional)
        if unknown := sorted(slots - set(known)):
            raise InputError(f"the template has unknown slots {', '.join(unknown)[:200]}; known are {', '.join(known)}")
        if missing := [slot for slot in self.needed if slot not in slots]:
            raise InputError(f"the template lacks {', '.join(f'{{{slot}}}' for slot in missing)}")

    @classmethod
    def of(
        cls,
        given: TemplateLike | None,
        package: str,
        version: str,
        *,
        needed: Sequence[str] = (),
        optional: Sequence[str] = (),
    ) -> Template:
        """Return a template as it is, that of a file, or for None prompts/VERSION.txt of a package.

        The name of a file, less the ending, is the version.

        Raises:
            InputError: no such file.
            FormatError: it is not UTF-8, or its slots are not those expected.
        """
        if isinstance(given, Template):
            return given
        if given is None:
            text = (files(package) / "prompts" / f"{version}.txt").read_text("utf-8")
            return cls(text, version, needed, optional)
        text = whole_text(given)
        try:
            return cls(text, Path(given).stem, needed, optional)
        except InputError as error:
            raise FormatError(str(error), given) from error

    @property
    def slots(self) -> set[str]:
        """The names of its slots."""
        return set(_SLOT.findall(self.text))

    def filled(self, **values: str) -> str:
        """Return the prompt; what stands in the values is never taken for a slot."""
        return _SLOT.sub(lambda slot: values[slot.group(1)], self.text)


if TYPE_CHECKING:
    TemplateLike = str | Path | Template
else:
    TemplateLike = str


def fenced(**texts: str) -> dict[str, str]:
    """Return texts between marks that nobody who wrote one of them can have written, for the slots of a prompt.

    The mark is another one for each question: a digest of all texts, so that the same question has the same prompt.
    """
    mark = hashlib.blake2b(repr(sorted(texts.items())).encode("utf-8", "replace"), digest_size=6).hexdigest()
    return {name: f"<{name}-{mark}>\n{text}\n</{name}-{mark}>" for name, text in texts.items()}
