"""The plan: every decision of a tuning with its reason, as a TOML file that runs again."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foils.data.records import whole_text
from foils.runtime.errors import FormatError
from foils.runtime.files import write_text
from foils.runtime.results import Table

Section = Mapping[str, Any]
REASON = "reason"
SECTIONS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "given": {"collection": str, "model": str, "seed": int},
    "documents": {"count": int, "train_queries": int},
    "sources": {"names": list, "queries": int},
    "negatives": {"source": str, "per_query": int, "max_positives": int},
    "batches": {"way": str, "size": int},
    "trials": {"learning_rates": list, "epochs": list, "queries": int, "final_epochs": int, "dev_documents": int},
    "training": {"learning_rate": (int, float), "epochs": int},
    "keep": {"collection": str, "alpha": (int, float)},
}
"""Sections in their order, and what each holds at least."""
HEAD = (
    "# The decisions of foils tune, each with its reason. This runs them again as they stand:\n"
    "#   foils tune --plan plan.toml -o FOLDER\n"
    "# Values may be changed. A section that is taken out is decided anew ([given] has to stay).\n"
)


@dataclass
class Plan:
    """Decisions by section; those that are there already are not made again.

    Attributes:
        sections: name → values, one of them the reason.
    """

    sections: dict[str, Section] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Section:
        return self.sections[name]

    def decide(self, name: str, how: Callable[[], Section]) -> Section:
        """Return a section, made by `how` unless it is there."""
        if name not in self.sections:
            self.sections[name] = how()
        return self.sections[name]

    def to_toml(self) -> str:
        """Return the file's text, sections in their order."""
        parts = [HEAD]
        for name in SECTIONS:
            if name in self.sections:
                lines = [f"{key} = {_value(value)}" for key, value in self.sections[name].items() if value is not None]
                parts.append("\n".join([f"[{name}]", *lines]) + "\n")
        return "\n".join(parts)

    def write(self, path: str | Path) -> None:
        """Write the file whole."""
        write_text(path, self.to_toml())

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a plan.

        Raises:
            InputError: there is no such file.
            FormatError: not TOML, an unknown section, or a value that is missing or of another type.
        """
        try:
            read = tomllib.loads(whole_text(path))
        except tomllib.TOMLDecodeError as error:
            raise FormatError(f"not a plan: {error}; expected TOML as foils tune writes it", path) from error
        wrong = [f"[{name}] is no section of a plan" for name in read if name not in SECTIONS]
        if "given" not in read:
            wrong.append("[given] is missing")
        for name, kinds in SECTIONS.items():
            section = read.get(name, {})
            if not isinstance(section, dict):
                wrong.append(f"{name} is no section")
                continue
            for key, kind in kinds.items() if section else ():
                if isinstance(section.get(key), bool) or not isinstance(section.get(key), kind):
                    names = " or ".join(each.__name__ for each in (kind if isinstance(kind, tuple) else (kind,)))
                    wrong.append(f"{key} of [{name}] is {section.get(key)!r}; expected {names}")
        if wrong:
            raise FormatError(f"not a plan of foils tune: {'; '.join(wrong)}", path)
        return cls({name: read[name] for name in SECTIONS if name in read})

    def table(self) -> Table:
        """Return the decisions as a table: section, values, reason."""
        rows = [
            (name, ", ".join(f"{key} {_shown(value)}" for key, value in section.items() if _is_shown(key, value)),
             section.get(REASON, ""))
            for name, section in ((name, self.sections[name]) for name in SECTIONS if name in self.sections)
        ]  # fmt: skip
        return Table("Plan", ["decision", "what", "why"], rows, words=frozenset({1, 2}))


def _is_shown(key: str, value: Any) -> bool:
    return key not in (REASON, "digest") and value not in (None, [], {})


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_shown(each)}" for key, each in value.items())
    return (
        f"{value:,}"
        if isinstance(value, int) and value > 9999
        else f"{value:g}"
        if isinstance(value, float)
        else str(value) or "none"
    )


def _value(value: Any) -> str:
    """A value as TOML."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_value(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")
