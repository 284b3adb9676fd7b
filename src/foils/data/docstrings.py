"""Reads a docstring as a person would: the summary sentence, and the prose that follows it.

Sections, parameters and notes stay; what only a renderer or an interpreter wants goes (underlines, directives,
roles and quotes of reStructuredText and Markdown, doctests and fenced code, placeholders of templates).
"""

from __future__ import annotations

import re

_UNDERLINE = re.compile(r"\s*([-=~^\"*+#])\1{2,}\s*")
_CODE_DIRECTIVE = re.compile(r"\s*\.\.\s*(?:code|code-block|sourcecode|plot|testcode|doctest)\s*::")
_SILENT_DIRECTIVE = re.compile(
    r"\s*\.\.\s*(?:(?:versionadded|versionchanged|deprecated|autosummary|toctree|index)\s*::|_[^:]*:)"
)
_ADMONITION = re.compile(r"^(\s*)(?:\.\.\s+(?:[\w-]+\s*::)?|[!?]{3}\+?|>(?:\s*\[!\w+\])?)\s*")
_BULLET = re.compile(r"\s*(?:[-*+•]|\(?\w{1,2}[.)]|:\w+ [^:]*:)\s")
_EXAMPLES = re.compile(r"\W*(?:examples?|usage)\W*", re.IGNORECASE)
_SECTION = re.compile(
    r"(?:(?:keyword |other )?(?:args|arguments|parameters|params)|inputs?|outputs?|returns?|yields?|raises|notes?"
    r"|examples?|usage|attributes|shapes?|references|see also|warnings?|methods)\s*::?",
    re.IGNORECASE,
)

# Each pattern with a text that is present wherever it matches.
_MARKUP: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("%(", re.compile(r"%\([^)]*\)[sd]"), " "),  # a template's placeholder
    (":`", re.compile(r":[\w:+-]+:`~[^`<>]*?([^`.<>]+)`"), r"\1"),  # :class:`~torch.nn.ReLU` shows ReLU
    (":`", re.compile(r":[\w:+-]+:`([^`<>]+?)\s*<[^`>]*>`"), r"\1"),  # :ref:`text <target>`
    (":`", re.compile(r":[\w:+-]+:`!?([^`]+)`"), r"\1"),
    (">`_", re.compile(r"`([^`<>]+?)\s*<[^`>]*>`_{1,2}"), r"\1"),  # `text <address>`_
    ("[`", re.compile(r"\[+`~?([^`]*)`\]+(?:\([^)]*\))?"), r"\1"),  # [`Class`](address)
    ("](", re.compile(r"\[([^\]\[]+)\]\([^)]*\)"), r"\1"),  # [text](address)
    ("]_", re.compile(r"(?:\s*\[#?\w+\]_)+"), ""),  # a citation's mark
    ("`~", re.compile(r"`~[^`]*?([^`.]+)`"), r"\1"),
    ("`", re.compile(r"`+([^`]*)`+_{0,2}"), r"\1"),
    ("*", re.compile(r"(?<![\w*])(\*{1,2})(?![\s*])([^*]+?)(?<!\s)\1(?![\w*])"), r"\2"),  # emphasis
    ("::", re.compile(r"::(?=\s|$)"), ":"),
)
_SENTENCE_END = re.compile(r"(?<!\.)[.!?][\"')\]]*(?=\s+[\"'`(\[]*[A-Z0-9])")
_ABBREVIATION = re.compile(r"(?:^|[\s(\[])(?:(?:\w\.)+|(?:cf|resp|vs|etc|eq|fig|al|approx|no)\.)$", re.IGNORECASE)
_SIGNATURE = re.compile(r"[\w.]+\s*\(.*\)\s*(?:->.*|:)?|.*\)\s*->.*", re.DOTALL)
_FIELD = re.compile(r"\*{0,2}[\w.]+\*{0,2}\s*(?:\(.*?\))?\s*:(?:\s|$)")


def split_docstring(docstring: str) -> tuple[str, str] | None:
    """Split a docstring into its summary and the rest, both as plain text.

    The summary is the first sentence of the first paragraph, on one line. The rest is everything after it, one
    paragraph, list item or parameter a line; it may be empty.

    Args:
        docstring: dedented, as `ast.get_docstring` gives it.

    Returns:
        (summary, rest), or None where the docstring does not open with a sentence: a signature, a parameter, a
        section, code, or words that announce a list or a formula (they end in a colon).
    """
    lines = docstring.strip().split("\n")
    end = next((i for i in range(1, len(lines)) if _ends_summary(lines, i)), len(lines))
    paragraph = " ".join(line.strip() for line in lines[:end])
    if (
        paragraph.startswith("```")
        or _SECTION.match(paragraph)
        or _SIGNATURE.fullmatch(paragraph)
        or _FIELD.match(paragraph)
    ):
        return None
    sentence, remainder = _first_sentence(paragraph)
    summary = plain(sentence)
    if not summary or not summary[0].isalnum() or summary.endswith(":") or ">>>" in summary:
        return None
    rest = readable(lines[end:])
    return summary, "\n".join(part for part in (plain(remainder), rest) if part)


def _ends_summary(lines: list[str], i: int) -> bool:
    line = lines[i].strip()
    return (
        not line
        or line.startswith((":param", ">>>", ".. ", "```"))
        or bool(_SECTION.fullmatch(line) or _BULLET.match(line))
        or (i + 1 < len(lines) and bool(_UNDERLINE.fullmatch(lines[i + 1])))
    )


def _first_sentence(paragraph: str) -> tuple[str, str]:
    for match in _SENTENCE_END.finditer(paragraph):
        if not _ABBREVIATION.search(paragraph[: match.start() + 1]):
            return paragraph[: match.end()], paragraph[match.end() :].strip()
    return paragraph, ""


def plain(text: str) -> str:
    """Return text on one line, without inline markup."""
    for present, pattern, replacement in _MARKUP:
        if present in text:
            text = pattern.sub(replacement, text)
    return " ".join(text.split())


def readable(lines: list[str]) -> str:
    """Join lines into paragraphs, list items and parameters, one a line, without code, directives or underlines.

    A line continues the one before it unless a blank line or a heading stands between them, it opens a list
    item, or it is less indented: "x : float", its indented description and the next parameter come apart.
    """
    blocks: list[list[str]] = []
    joined, indent = False, 0
    for line in _prose(lines):
        if not line.strip():
            joined = False
            continue
        depth = len(line) - len(line.lstrip())
        if joined and depth >= indent and not _BULLET.match(line):
            blocks[-1].append(line)
        else:
            blocks.append([line])
        joined, indent = True, depth
    return "\n".join(text for block in blocks if (text := plain("\n".join(block))))


def _prose(lines: list[str]) -> list[str]:
    """Put blank lines for doctests, fenced code, code directives and underlines, and around headings."""
    out: list[str] = []
    fenced = doctest = False
    code: int | None = None  # how far the code directive is indented whose body is being left out
    for i, line in enumerate(lines):
        stripped = line.strip()
        depth = len(line) - len(line.lstrip())
        if code is not None and stripped and depth <= code:
            code = None
        doctest = bool(stripped) and (doctest or stripped.startswith(">>>"))
        fence = stripped.startswith(("```", "~~~")) and not _UNDERLINE.fullmatch(line)
        fenced ^= fence
        if fence or fenced or doctest or code is not None or not stripped:
            out.append("")
        elif _CODE_DIRECTIVE.match(line):
            code = depth
        elif _SILENT_DIRECTIVE.match(line) or _UNDERLINE.fullmatch(line) or _EXAMPLES.fullmatch(stripped):
            out.append("")
        elif i + 1 < len(lines) and _UNDERLINE.fullmatch(lines[i + 1]):
            out += ["", line, ""]
        else:
            out.append(_ADMONITION.sub(r"\1", line))
    return out
