"""The program `foils`: the library's doors as verbs; it parses, prints, and gives an exit status."""

from foils.cli.app import main as main
