"""Steps that are done once: what each gave is kept under a digest of what it depends on.

What is damaged of it is removed, and the step is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from foils.data import Negatives, Run
from foils.data.records import whole_json
from foils.data.tables import read_table, write_table
from foils.runtime.errors import FormatError
from foils.runtime.files import CHANGED, DAMAGE, digest_of, discard, unsealed, write_sealed

Value = TypeVar("Value")
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
        path = self.path(name, key, ".json")
        return _kept(path, read_sealed, lambda: write_sealed(path, make()))

    def negatives(self, name: str, key: object, make: Callable[[], Negatives]) -> Negatives:
        """Return a step's table of negatives."""
        path = self.path(name, key, ".parquet")
        return _kept(path, Negatives.read, lambda: make().write(path))

    def run(self, name: str, key: object, make: Callable[[], Run]) -> Run:
        """Return a step's ranking."""
        path = self.path(name, key, ".parquet")
        read = partial(read_table, required=("query_id", "doc_id", "score", "rank"))
        return Run(_kept(path, read, lambda: write_table(path, make().table, {}))[0], name)


def _kept(path: Path, read: Callable[[Path], Value], write: Callable[[], object]) -> Value:
    """Read a file; where it is not there, or damaged, write it first."""
    if path.exists():
        try:
            return read(path)
        except DAMAGE as error:
            discard(path, "step", error)
    write()
    return read(path)
