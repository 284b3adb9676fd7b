"""The program `foils`: the library's doors as verbs; it parses, prints, and gives an exit status."""


def main() -> None:
    """Run the program."""
    from foils.cli.app import main as run  # nothing is loaded before it is known what is wanted

    run()
