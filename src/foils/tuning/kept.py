"""Steps that are done once: each one's result is kept under a digest of what it depends on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foils.data import Negatives, Run
from foils.data.records import whole_json
from foils.data.tables import read_table, write_table
from foils.runtime.errors import FormatError
from foils.runtime.files import CHANGED, SEAL, intact, write_sealed

PASSING = "checkpoints"


class Kept:
    """A folder of finished steps. Killed, a tuning goes on from them.

    Args:
        folder: made when the first is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, name: str, key: object, ending: str = "") -> Path:
        """Return where a step's result lies: the same name and key, the same place."""
        text = json.dumps(key, sort_keys=True, ensure_ascii=False)
        return self.folder / f"{name}-{hashlib.blake2b(text.encode(), digest_size=6).hexdigest()}{ending}"

    def passing(self, name: str, key: object) -> Path:
        """Return where something lies until the tuning is done: a model of a short run, its checkpoints."""
        return self.path(f"{PASSING}/{name}", key)

    def facts(self, name: str, key: object, how: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Return a step's numbers and texts, as JSON holds them."""
        path = self.path(name, key, ".json")
        if not path.is_file():
            write_sealed(path, how())
        value = whole_json(path)
        if not isinstance(value, dict) or not intact(value):
            raise FormatError(f"{CHANGED}; remove it, and it is made again", path)
        return {key: each for key, each in value.items() if key != SEAL}

    def negatives(self, name: str, key: object, how: Callable[[], Negatives]) -> Negatives:
        """Return a step's table of negatives."""
        path = self.path(name, key, ".parquet")
        if not path.is_file():
            how().write(path)
        return Negatives.read(path)

    def run(self, name: str, key: object, how: Callable[[], Run]) -> Run:
        """Return a step's ranking."""
        path = self.path(name, key, ".parquet")
        if not path.is_file():
            write_table(path, how().table, {})
        return Run(read_table(path)[0], name)
