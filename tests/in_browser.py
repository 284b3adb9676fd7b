"""A page in a browser: what chromium makes of it, what axe-core finds wrong with it, and whether keys are enough."""

from __future__ import annotations

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from browser import COMMAND, Browser, browser

needs_chromium = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")

WIDTHS = (1300, 400)  # pixels

LOOK = """(async () => {
    document.querySelectorAll("details").forEach(each => { each.open = true; });
    await new Promise(done => setTimeout(done, 500));  // figures take their size
    const {violations} = await axe.run(document);
    return {
        drawn: document.querySelectorAll(".plot .main-svg").length > 0,
        wide: document.documentElement.scrollWidth - innerWidth,
        cut: [...document.querySelectorAll("caption span")]
            .filter(each => each.offsetWidth > each.closest(".scroll").clientWidth).map(each => each.textContent),
        dark: matchMedia("(prefers-color-scheme: dark)").matches,
        wrong: violations.map(each => [each.impact, each.id, each.nodes[0].html]),
    };
})()"""

# What a person can press, open or scroll, in the order of Tab.
STOPS = """[...document.querySelectorAll("a[href], button, input, select, textarea, summary, [tabindex='0']")]
    .filter(each => each.checkVisibility({visibilityProperty: true}) && !each.disabled)"""

FOCUSED = """(() => {
    const one = document.activeElement, style = getComputedStyle(one), box = one.getBoundingClientRect();
    if (one === document.body) return null;
    one.reached = true;
    return {
        html: one.outerHTML.slice(0, 200), outline: style.outlineStyle, width: parseFloat(style.outlineWidth),
        colours: [style.outlineColor, getComputedStyle(document.body).backgroundColor],
        shown: box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth,
        folds: one.tagName === "SUMMARY", open: one.parentElement.open,
        hides: one.tabIndex === 0 && one.scrollWidth > one.clientWidth + 1 && one.matches(".scroll"),
    };
})()"""

SCROLLED = """new Promise(done => {
    const look = () => document.activeElement.scrollLeft > 0 ? done(true) : setTimeout(look, 50);
    look();
    setTimeout(done, 60000, false);
})"""


def in_chromium(page: Path, *options: str) -> str:
    """Return what a browser makes of a page, twenty seconds of its own time after it was opened."""
    shown = [*COMMAND, f"--user-data-dir={page.parent / 'user'}", *options, "--virtual-time-budget=20000"]
    shown += ["--dump-dom", page.as_uri()]
    return subprocess.run(shown, capture_output=True, text=True, timeout=240, check=True).stdout


def assert_fits_everyone(page: Path) -> None:
    """The page is small; wide and narrow, light and dark, nothing sticks out, axe-core is content, and keys suffice."""
    assert page.stat().st_size < 1.5e6
    axe = files("axe_core_python").joinpath("axe.min.js").read_text("utf-8")
    with browser() as chromium:
        for dark in (False, True):
            for width in WIDTHS:
                chromium.open(page, width, dark=dark)
                if dark == (
                    width == max(WIDTHS)
                ):  # the buttons of figures are on wide pages, scrolling tables on narrow
                    assert_keys_suffice(chromium)
                chromium.run(axe)
                found: dict[str, Any] = chromium.run(LOOK)
                assert found["dark"] == dark
                assert found["wide"] <= 0, f"wider than {width} pixels"
                assert found["cut"] == []
                assert [each for each in found["wrong"] if each[0] in ("serious", "critical")] == []
                assert found["drawn"] == ('id="figure-0"' in page.read_text("utf-8"))


def assert_keys_suffice(chromium: Browser) -> None:
    """Tab comes to everything once and to its end, and back; where it is can be seen; folds open, tables scroll."""
    order: list[str] = []
    while focused := tabbed(chromium):
        order.append(focused["html"])
        assert len(order) < 500, "Tab does not come to an end"
        assert_seen(focused)
        if focused["folds"]:
            for key, opened in (("Enter", not focused["open"]), (" ", focused["open"]), ("Enter", not focused["open"])):
                chromium.press(key)
                assert chromium.run("document.activeElement.parentElement.open") == opened, f"{key!r} {focused['html']}"
        if focused["hides"]:
            chromium.press("ArrowRight")
            assert chromium.run(SCROLLED), f"the arrow does not scroll {focused['html']}"
    assert chromium.run(f"{STOPS}.filter(each => !each.reached).map(each => each.outerHTML.slice(0, 200))") == []
    assert len(order) == chromium.run(f"{STOPS}.length"), "Tab comes to something twice"
    back = [tabbed(chromium, shift=True) for _ in order]
    assert [each and each["html"] for each in back] == order[::-1], "Shift and Tab go another way back"


def tabbed(chromium: Browser, *, shift: bool = False) -> dict[str, Any] | None:
    """Return where the focus is after Tab; None: it left the page."""
    chromium.press("Tab", shift=shift)
    focused: dict[str, Any] | None = chromium.run(FOCUSED)
    return focused


def assert_seen(focused: dict[str, Any]) -> None:
    """What has the focus is in the window, with an outline of a contrast of 3 to 1 to the page (WCAG 1.4.11)."""
    assert focused["shown"], f"out of sight: {focused['html']}"
    assert focused["outline"] != "none", f"no outline: {focused['html']}"
    if focused["outline"] != "auto":  # the browser's own stands out on light and dark
        assert focused["width"] >= 1
        light, dark = sorted((luminance(colour) for colour in focused["colours"]), reverse=True)
        assert (light + 0.05) / (dark + 0.05) >= 3, f"pale outline: {focused}"


def luminance(colour: str) -> float:
    """Return the relative luminance of rgb(r, g, b), as WCAG defines it."""
    parts = [int(value) / 255 for value in re.findall(r"\d+", colour)[:3]]
    red, green, blue = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
