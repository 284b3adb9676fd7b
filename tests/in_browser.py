"""A page in a browser: what chromium makes of it, and what axe-core finds wrong with it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import escape, unescape
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")

WIDTHS = (1300, 400)  # pixels

CHECK = """<script>
const frames = [...document.querySelectorAll("iframe")];
async function check(frame) {
  const page = frame.contentDocument;
  page.querySelectorAll("details").forEach(each => { each.open = true; });
  await new Promise(done => setTimeout(done, 2000));  // the figures are drawn
  frame.contentWindow.eval(AXE);
  const {violations} = await frame.contentWindow.axe.run(page);
  return {
    drawn: page.querySelectorAll(".plot .main-svg").length > 0,
    wide: page.documentElement.scrollWidth - frame.clientWidth,
    dark: frame.contentWindow.matchMedia("(prefers-color-scheme: dark)").matches,
    wrong: violations.map(each => [each.impact, each.id, each.nodes[0].html]),
  };
}
addEventListener("load", async () => {
  const found = [];
  for (const frame of frames) found.push(await check(frame));
  const note = document.createElement("pre");
  note.id = "found";
  note.textContent = JSON.stringify(found);
  document.body.append(note);
});
</script>"""


def in_chromium(page: Path, *options: str) -> str:
    """Return what a browser makes of a page, twenty seconds of its own time after it was opened."""
    quiet = ["--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
             "--disable-component-update", "--disable-sync"]  # fmt: skip
    command = ["chromium", "--headless", "--no-sandbox", *quiet, f"--user-data-dir={page.parent / 'user'}"]
    shown = [*command, *options, "--virtual-time-budget=20000", "--dump-dom", page.as_uri()]
    return subprocess.run(shown, capture_output=True, text=True, timeout=240, check=True).stdout


def found_in(page: Path, *, dark: bool = False) -> list[dict[str, Any]]:
    """Return what was found at each of WIDTHS: figures drawn, pixels too wide, dark, axe-core's violations."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy".*?>', "", page.read_text("utf-8"))
    axe = json.dumps(files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")).replace("<", "\\u003c")
    frames = [f'<iframe srcdoc="{escape(text)}" style="width:{width}px;height:900px"></iframe>' for width in WIDTHS]
    around = page.with_name(f"around-{page.name}")
    checks = CHECK.replace("AXE", axe, 1)
    around.write_text(f'<!DOCTYPE html><html lang="en"><body>{"".join(frames)}{checks}</body></html>', "utf-8")
    shown = in_chromium(around, f"--blink-settings=preferredColorScheme={0 if dark else 1}")
    note = re.search(r'<pre id="found">(.*?)</pre>', shown, re.S)
    assert note, "the page was not checked to the end"
    found: list[dict[str, Any]] = json.loads(unescape(note[1]))
    return found


def assert_fits_everyone(page: Path) -> None:
    """The page is small; wide and narrow, light and dark, nothing sticks out and axe-core finds nothing serious."""
    assert page.stat().st_size < 1.5e6
    for dark in (False, True):
        for width, found in zip(WIDTHS, found_in(page, dark=dark), strict=True):
            assert found["dark"] == dark
            assert found["wide"] <= 0, f"wider than {width} pixels"
            assert [each for each in found["wrong"] if each[0] in ("serious", "critical")] == []
            assert found["drawn"] == ('id="figure-0"' in page.read_text("utf-8"))
