"""Steps that are done once: what each gave is kept under a digest of what it depends on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foils.data import Negatives, Run
from foils.data.records import whole_json
from foils.data.tables import read_table, write_table
from foils.runtime.errors import FormatError
from foils.runtime.files import CHANGED, digest_of, unsealed, write_sealed

TEMPORARY = "checkpoints"  # folder of what is removed once all is done: models of short runs, their checkpoints


def read_sealed(path: Path) -> dict[str, Any]:
    """Read a JSON object that `write_sealed` wrote, without its checksum.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is damaged, has no checksum, or says something else than was written.
    """
    value = whole_json(path)
    try:
        return unsealed(value)
    except (ValueError, RecursionError) as error:  # also a number that no checksum can be taken of
        raise FormatError(f"{CHANGED}; remove it, and it will be made again", path) from error


class StepCache:
    """A folder of finished steps, from which work that was killed goes on.

    Args:
        folder: made when the first step is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str, key: object, ending: str = "") -> Path:
        """Return where a step's result lies: the same name and key, the same place."""
        return self.folder / f"{name}-{digest_of(key)}{ending}"

    def facts(self, name: str, key: object, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return a step's numbers and texts, as JSON holds them."""
        if not (path := self.path(name, key, ".json")).is_file():
            write_sealed(path, make())
        return read_sealed(path)

    def negatives(self, name: str, key: object, make: Callable[[], Negatives]) -> Negatives:
        """Return a step's table of negatives."""
        if not (path := self.path(name, key, ".parquet")).is_file():
            make().write(path)
        return Negatives.read(path)

    def run(self, name: str, key: object, make: Callable[[], Run]) -> Run:
        """Return a step's ranking."""
        if not (path := self.path(name, key, ".parquet")).is_file():
            write_table(path, make().table, {})
        return Run(read_table(path)[0], name)
