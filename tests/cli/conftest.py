"""The program run in this process, with an encoder that needs no model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from fakes import HashingEncoder
from foils.cli.app import run


@dataclass(frozen=True)
class Ended:
    """How a run of the program ended."""

    status: int
    out: str
    err: str


Foils = Callable[..., Ended]


@pytest.fixture
def foils(capfd: pytest.CaptureFixture[str]) -> Foils:
    """Run `foils` with arguments; give back its status and what it wrote."""

    def ran(*arguments: object) -> Ended:
        capfd.readouterr()
        status = run([str(argument) for argument in arguments])
        out, err = capfd.readouterr()
        return Ended(status, out, err)

    return ran


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, object]]:
    """Let every encoder that a verb loads be the hashing one; gives back what was asked for."""
    asked: list[tuple[str, object]] = []

    def load(name: str, settings: object = None) -> HashingEncoder:
        asked.append((str(name), settings))
        return HashingEncoder()

    monkeypatch.setattr("foils.encode.load_encoder", load)
    monkeypatch.setattr("foils.encode.opening.load_encoder", load)
    return asked
