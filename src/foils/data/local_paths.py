"""Leaves paths of this machine out of what others will read: their last part stays."""

from __future__ import annotations

import json
import re
from pathlib import PurePath
from typing import Any

from foils.data.sealed import SEAL, sealed

_PART = r"[^\s/\\\"'`<>|:*?,;()\[\]{}]"
_PATH = re.compile(rf"(?<![\w:/.<~\\-])(?:~?/(?:{_PART}+/)+|[A-Za-z]:\\(?:{_PART}+\\)*)(?P<last>{_PART}*)")
_VOCABULARIES = ("tokenizer.json", "vocab", "merges", "added_tokens")


def last_parts(value: Any) -> Any:
    """Return JSON's value, or a text, with the last part in place of every absolute path in it."""
    if isinstance(value, dict):
        return {key: last_parts(each) for key, each in value.items()}
    if isinstance(value, list):
        return [last_parts(each) for each in value]
    return _PATH.sub(lambda path: path["last"] or "…", value) if isinstance(value, str) else value


def without_paths(name: str, content: bytes) -> bytes:
    """Return a text file without paths of this machine; the same bytes where there are none, and of a vocabulary.

    Args:
        name: of the file; one that ends in .json is read as JSON, and its checksum made anew.
        content: its bytes; what is not UTF-8 stays as it is.
    """
    if PurePath(name).name.startswith(_VOCABULARIES):
        return content
    try:
        text = content.decode()
        value = json.loads(text) if name.endswith(".json") else text
    except ValueError:
        return content
    cleaned = last_parts(value)
    if cleaned == value:
        return content
    if isinstance(cleaned, str):
        return cleaned.encode()
    if isinstance(cleaned, dict) and SEAL in cleaned:
        cleaned = sealed({key: each for key, each in cleaned.items() if key != SEAL})
    return (json.dumps(cleaned, indent=2, ensure_ascii=False) + "\n").encode()
