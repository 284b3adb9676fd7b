"""The command line: one file per verb, which parses, calls the library, and prints."""

from foils.cli.app import main

__all__ = ["main"]
