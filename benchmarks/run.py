"""Run a benchmark by its name, or write the page and the tables of the documentation from all results.

python benchmarks/run.py                     the names, each with what it measures
python benchmarks/run.py NAME [ARGUMENTS]    run one; --help shows what it takes
python benchmarks/run.py tables              write docs/benchmarks.md and the tables of other pages from results/
"""

from __future__ import annotations

import ast
import importlib
import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
FOLDERS = {
    "speed": "Speed", "memory": "Memory", "robustness": "Robustness", "evidence": "Evidence", "papers": "Papers",
}  # fmt: skip
PLACE = re.compile(
    r"(<!-- table: (\S+)(?: \| ([^|\n]*?))?(?: \| rows ([^\n]*?))?(?: \| columns ([\d ]+))? -->\n).*?(<!-- end -->)",
    re.S,
)


def scripts() -> dict[str, Path]:
    """Return the benchmarks by name, folder after folder."""
    return {path.stem: path for folder in FOLDERS for path in sorted((HERE / folder).glob("*.py"))}


def described(path: Path) -> list[str]:
    """Return the paragraphs of a script's docstring: what it measures first, then how it is run."""
    return (ast.get_docstring(ast.parse(path.read_text("utf-8"))) or "").split("\n\n")


def tables_of(name: str) -> dict[str, dict[str, Any]]:
    """Return the tables of a result file by caption."""
    from common import load

    return dict(load(name).get("tables", {}))


def written(table: Mapping[str, Any], rows: str = "", columns: Sequence[int] = ()) -> str:
    """Return a table as Markdown.

    Args:
        table: with columns and rows.
        rows: a pattern that stands in the cells of the rows to show, joined by blanks; empty: all rows.
        columns: numbers of the columns to show, in this order; empty: all columns.
    """
    from common import markdown

    shown = columns or range(len(table["columns"]))
    chosen = [row for row in table["rows"] if re.search(rows, " ".join(row))]
    headings = [table["columns"][at] for at in shown]
    return markdown({"columns": headings, "rows": [[row[at] for at in shown] for row in chosen]})


def page() -> str:
    """Return docs/benchmarks.md: every benchmark that has results, its question, its command and its tables."""
    parts = [
        "# Benchmarks",
        "This page is written by `python benchmarks/run.py tables` from `benchmarks/results/`. Speed and memory are "
        "ratios within one run, since machines are noisy; `make bench` measures them again.",
    ]
    for folder, heading in FOLDERS.items():
        parts.append(f"## {heading}")
        for name, path in scripts().items():
            if path.parent.name != folder or not (made := tables_of(name)):
                continue
            question, *usage = described(path)
            command = next((line.strip() for text in usage for line in text.splitlines() if "run.py" in line), "")
            parts += [f"### {name}", f"{question}", f"```console\n$ {command}\n```" if command else ""]
            parts += [f"{caption}\n\n{written(table)}".strip() for caption, table in made.items()]
    return "\n\n".join(filter(None, parts)) + "\n"


def write_tables() -> None:
    """Write the page of benchmarks, and in other pages what stands between marks.

    A mark is `<!-- table: NAME | CAPTION | rows PATTERN | columns 0 2 3 -->`; all after the name may be left out.
    """
    docs = HERE.parent / "docs"
    (docs / "benchmarks.md").write_text(page(), "utf-8")

    def filled(mark: re.Match[str]) -> str:
        made = tables_of(mark[2])
        table = made[mark[3]] if mark[3] else next(iter(made.values()))
        columns = [int(number) for number in (mark[5] or "").split()]
        return f"{mark[1]}\n{written(table, mark[4] or '', columns)}\n\n{mark[6]}"

    for path in [HERE.parent / "README.md", *docs.glob("*.md")]:
        text = path.read_text("utf-8")
        if (new := PLACE.sub(filled, text)) != text:
            path.write_text(new, "utf-8")


def main() -> None:
    known, name = scripts(), sys.argv[1] if len(sys.argv) > 1 else ""
    places = [
        str(HERE),
        *(str(HERE / folder) for folder in FOLDERS),
        *(str(HERE.parent / "tests" / part) for part in ("", "faults")),
    ]
    sys.path[:0] = places
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, os.environ.get("PYTHONPATH", "")])  # of child processes
    if name == "tables":
        write_tables()
    elif name in known:
        sys.argv[:] = sys.argv[1:]
        importlib.import_module(name).main()
    else:
        width = max(map(len, known))
        print("\n".join(f"{each:{width}}  {described(path)[0].splitlines()[0]}" for each, path in known.items()))
        sys.exit(2 if name else 0)


if __name__ == "__main__":
    main()
