"""Completion of verbs and options in a shell."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_args

from foils.cli.program import Shell, program
from foils.cli.verb import UsageError
from foils.runtime.errors import UnknownNameError


def completion(option: str, shell: str = "", *rest: str) -> int:
    """Install the script that completes the program's verbs and options, or print it; return the exit status.

    Args:
        option: `--install-completion` or `--show-completion`.
        shell: its name. Default: that of the shell that is used, by $SHELL.
        rest: nothing may follow.

    Raises:
        UsageError: no such shell, or more arguments than one.
    """
    shell = shell or Path(os.environ.get("SHELL", "")).name
    if shell not in get_args(Shell):
        raise UsageError(str(UnknownNameError(f"shell; give {option} SHELL:", shell, get_args(Shell))))
    if rest:
        raise UsageError(f"{option} takes the name of a shell alone; found {' '.join(rest)}")
    app: Any = program()
    if option == "--show-completion":
        print(app.generate_completion(shell=shell))
    else:
        print(f"{app.install_completion(shell=shell)} is read by new shells")
    return 0
