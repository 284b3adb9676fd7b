"""`foils --help`: what the program is for and its verbs, without loading any of them."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable

PURPOSE = (
    "Hard negatives for retrievers and rerankers: mine them, decide before any training which to train on, and measure "
    "whether it helped."
)
OPTIONS = {
    "-h, --help": "Show this help; foils VERB --help shows a verb's.",
    "--version": "Print the version.",
    "--install-completion": "Complete verbs and options in this shell from now on (bash, zsh, fish, powershell).",
    "--show-completion SHELL": "Print the script that does.",
}


def overview() -> str:
    """Return the help of the program, as wide as the terminal."""
    from foils.cli.verbs import DOORS

    width = min(shutil.get_terminal_size().columns, 120)
    verbs = {name: verb.summary() for name, verb in DOORS.items()}
    return "\n".join(
        [
            "Usage: foils VERB [ARGUMENTS] [OPTIONS]",
            "",
            textwrap.fill(PURPOSE, width),
            "",
            "Verbs:",
            *_aligned(verbs.items(), width),
            "",
            "Options:",
            *_aligned(OPTIONS.items(), width),
            "",
            "Start with: foils demo",
        ]
    )


def _aligned(rows: Iterable[tuple[str, str]], width: int) -> list[str]:
    rows = list(rows)
    first = max(len(name) for name, _ in rows) + 4
    texts = [textwrap.wrap(text, max(width - first, 20)) for _, text in rows]
    indent = "\n" + " " * first
    return [f"  {name}".ljust(first) + indent.join(lines) for (name, _), lines in zip(rows, texts, strict=True)]
