"""A page in a browser: what chromium makes of it, and what axe-core finds wrong with it."""

import html
import json
import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
COMMAND = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
           "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip

LOOK = """(async () => {
    document.querySelectorAll("details").forEach(each => { each.open = true; });
    const {violations} = await axe.run(document);
    parent.postMessage({
        drawn: [...document.querySelectorAll(".line u")].filter(each => each.getBoundingClientRect().width > 5).length,
        wide: document.documentElement.scrollWidth - innerWidth,
        cut: [...document.querySelectorAll("caption span")]
            .filter(each => each.offsetWidth > each.closest(".scroll").clientWidth).map(each => each.textContent),
        dark: matchMedia("(prefers-color-scheme: dark)").matches,
        wrong: violations.filter(each => ["serious", "critical"].includes(each.impact))
            .map(each => [each.id, each.nodes[0].html]),
    }, "*");
})()"""
FRAME = """<!doctype html><pre></pre><iframe src="looked.html" width="{width}" height="900"></iframe><script>
addEventListener("message", ({{data}}) => {{ document.querySelector("pre").textContent = JSON.stringify(data); }});
</script>"""


def in_chromium(page: Path, *options: str) -> str:
    """Return what a browser makes of a page, twenty seconds of its own time after it was opened."""
    shown = [*COMMAND, f"--user-data-dir={page.parent / 'user'}", *options, "--virtual-time-budget=20000"]
    shown += ["--dump-dom", page.as_uri()]
    return subprocess.run(shown, capture_output=True, text=True, timeout=240, check=True).stdout


def assert_fits_everyone(page: Path) -> None:
    """The page is small; wide and narrow, light and dark, nothing sticks out, and axe-core is content."""
    assert page.stat().st_size < 2e5
    text, axe = page.read_text("utf-8"), files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    assert policy.search(text)
    looked = policy.sub("", text).replace("</body>", f"<script>{axe}</script><script>{LOOK}</script></body>")
    (page.parent / "looked.html").write_text(looked, "utf-8")
    for width in (1300, 400):  # pixels
        for dark in (False, True):
            (page.parent / "frame.html").write_text(FRAME.format(width=width), "utf-8")
            scheme = f"--blink-settings=preferredColorScheme={int(not dark)}"
            shown = in_chromium(page.parent / "frame.html", scheme, "--window-size=1400,1000")
            found = json.loads(html.unescape(re.search(r"<pre>(.*?)</pre>", shown, re.S)[1]))
            expected = {"drawn": text.count('class="line"'), "cut": [], "dark": dark, "wrong": []}
            assert {key: found[key] for key in expected} == expected
            assert found["wide"] <= 0, f"wider than {width} pixels"
