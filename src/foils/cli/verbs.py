"""The program's verbs, and where their doors are."""

from __future__ import annotations

from foils.cli.program import Verb

DOORS: dict[str, Verb] = {}
