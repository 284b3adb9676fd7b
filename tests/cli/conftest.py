"""The program run in this process, with an encoder that needs no model."""

import json
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import pytest

from fakes import HashingEncoder
from foils.cli.app import run


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended."""

    status: int
    out: str
    err: str


SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


@pytest.fixture
def foils(capfd):
    """Run `foils` with arguments; give back its status and what it wrote. What `--json` writes is of its schema."""

    def ran(*arguments):
        capfd.readouterr()
        words = [str(argument) for argument in arguments]
        status = run(words)
        out, err = capfd.readouterr()
        if status == 0 and "--json" in words:
            schema, written = SCHEMAS / f"{words[0]}.json", Path(words[words.index("--json") + 1])
            given = (json.loads(path.read_text("utf-8")) for path in (written, schema))
            jsonschema.validate(*given, jsonschema.Draft202012Validator)
        return Ended(status, out, err)

    return ran


@pytest.fixture
def loaded(monkeypatch):
    """Let every encoder that a verb loads be the hashing one; gives back what was asked for."""
    asked: list[tuple[str, object]] = []

    def load(name, settings=None):
        asked.append((str(name), settings))
        return HashingEncoder()

    monkeypatch.setattr("foils.encode.load_encoder", load)
    monkeypatch.setattr("foils.encode.vectors.load_encoder", load)
    return asked
