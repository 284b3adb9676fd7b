"""A page on which a person judges pairs in a browser, without a network, and downloads the answers."""

from __future__ import annotations

from importlib.resources import files

from foils.labelling.sheet import Sheet
from foils.llm import digest
from foils.pages.page import script_json

_KEYS = {1: "y", 0: "n", None: "s"}


def label_page(sheet: Sheet, judge: str, *, title: str, file: str = "answers.tsv") -> str:
    """Return the page as HTML: the drawn pairs, with this judge's answers so far.

    It takes the keys y, n, s and the arrows, remembers answers in the browser's own storage, and downloads them as a
    file of labels (TSV).

    Args:
        sheet: of the drawn pairs.
        judge: name of the person.
        title: what is judged.
        file: name of the file that is downloaded.
    """
    answers = [_KEYS[known[judge]] if judge in (known := sheet.answers.get(key, {})) else None for key in sheet.keys]
    data = {
        "title": title,
        "judge": judge,
        "file": file,
        "key": f"foils-{digest('label page', judge, sheet.keys)}",
        "answers": answers,
        "pairs": [{**row, **vars(shown)} for row, shown in zip(sheet.rows, sheet.shown, strict=True)],
    }
    template = files("foils.pages").joinpath("templates", "label.html").read_text("utf-8")
    return template.replace(">DATA<", f">{script_json(data)}<")
