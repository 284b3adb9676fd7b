"""A text that attacks the page which shows it, and what holds of a page that it does no harm to."""

from __future__ import annotations

import re
from html import escape

ATTACK = "</script><script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"


def outside_plotly(page: str) -> str:
    """Return the page less the library in its head, which has markup of its own."""
    return re.sub(r"<script>.*?</script>", "", page, count=1, flags=re.S)


def assert_harmless(page: str) -> None:
    """The attack stands in the page as text alone, the one script is the page's own, and nothing is fetched."""
    rest = outside_plotly(page)
    assert escape(ATTACK, quote=False).replace('"', "&#34;").replace("'", "&#39;") in rest
    assert ATTACK not in rest
    assert "<img" not in rest
    assert rest.count("<script") == rest.count("</script>") == 1, "the drawing code alone"
    assert not re.search(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//""", rest)
    assert "default-src 'none'" in rest
