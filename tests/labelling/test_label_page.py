"""The page of labels: keys answer, answers are remembered, what is downloaded is read again; texts stay texts."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

import pytest
from label_world import sheet

from foils.data import Labels
from foils.data.labels import pair_keys
from foils.labelling import label_page
from foils.labelling.sheet import Pair
from hostile import ATTACK
from in_browser import assert_fits_everyone, in_chromium, needs_chromium

PRESS = """<script>
for (const key of KEYS) document.dispatchEvent(new KeyboardEvent("keydown", {key}));
const kept = JSON.parse(localStorage.getItem(data.key)), table = asTable();
answers = null;
begin();
const note = document.createElement("pre"); note.id = "outcome";
note.textContent = JSON.stringify({table, kept, again: asTable(), at, document: element("document").textContent});
document.body.append(note);
</script>"""


def pressed(page: str, keys: list[str], folder: Path) -> dict[str, object]:
    """What a browser makes of the page after these keys."""
    path = folder / "page.html"
    path.write_text(page.replace("</body>", f"{PRESS.replace('KEYS', json.dumps(keys))}</body>"), "utf-8")
    outcome = re.search(r'<pre id="outcome">(.*?)</pre>', in_chromium(path), re.S)
    assert outcome
    answer: dict[str, object] = json.loads(html.unescape(outcome[1]))
    return answer


@needs_chromium
def test_answers_are_remembered_and_read_again(tmp_path: Path) -> None:
    page = sheet(tmp_path / "labels.tsv")
    page.pairs[page.keys[1]].update(doc_id="llm-1", text=f'=1+1 "two"\n{ATTACK}')
    page.record(0, "anna", 1)
    outcome = pressed(label_page(page, "anna", title="world"), ["n", "s", "Y", "ArrowLeft", "n", "x"], tmp_path)
    assert outcome["kept"] == ["y", "n", "s", "n", None, None]
    (tmp_path / "answers.tsv").write_text(str(outcome["table"]), "utf-8", newline="")
    labels = Labels.read(tmp_path / "answers.tsv")
    assert labels.table["relevant"].to_pylist() == [1, 0, None, 0, None, None]
    assert labels.table["judge"].to_pylist() == ["anna"] * 4 + [None] * 2
    assert labels.table["probability"].to_pylist() == [row["probability"] for row in page.pairs.values()]
    assert labels.table["text"].to_pylist()[1] == page.pairs[page.keys[1]]["text"]
    assert pair_keys(labels.table.slice(2)).to_pylist() == list(page.keys[2:])
    assert outcome["again"] == outcome["table"], "a page that is opened again goes on"
    assert outcome["at"] == 4


@pytest.mark.slow
@needs_chromium
def test_everyone_can_read_it(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text(label_page(sheet(tmp_path / "labels.tsv"), "anna", title="world"), "utf-8")
    assert_fits_everyone(tmp_path / "page.html")


def test_the_page_fetches_nothing(tmp_path: Path) -> None:
    page = sheet(tmp_path / "labels.tsv")
    page.shown = [Pair(ATTACK, ATTACK, ATTACK)] * 6
    written = label_page(page, ATTACK, title=ATTACK)
    assert ATTACK not in written
    assert "default-src 'none'" in written
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", written)
    assert written == label_page(page, ATTACK, title=ATTACK)
