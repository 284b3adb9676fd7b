"""`python -m foils` is the program `foils`."""

from foils.cli import main

main()
