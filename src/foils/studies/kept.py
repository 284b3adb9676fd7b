"""Reading the JSON files of a study: of the form that is expected, and as they were written."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from foils.data.records import whole_json
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import CHANGED, SEAL, intact

ANY = "*"
"""In a form, any key."""


def read_json(path: Path, form: Mapping[str, Any]) -> Any:
    """Read a JSON file of a study, without its checksum; a file that has none is read as it is.

    Args:
        path: of the file.
        form: what it must hold: keys and the forms of their values, `ANY` standing for every key; `[form]` is a list
            of one or more; `str` a text, a pattern one that it matches whole; `float` a finite number.

    Raises:
        InputError: there is no such file, or it may not be read.
        FormatError: it is damaged, or says something else than was written.
    """
    try:
        value = whole_json(path)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        wrong = misfit(value, form, "it") or (None if intact(value) else CHANGED)
    except FormatError as error:
        raise FormatError("malformed JSON; remove it, and it will be made again", path, error.line) from error
    except InputError:
        raise
    except (ValueError, RecursionError):
        wrong = "it holds NaN, infinity, or text that is no Unicode"
    if wrong:
        raise FormatError(f"{wrong}; remove it, and it will be made again", path)
    value.pop(SEAL, None)
    return value


def misfit(value: Any, form: Any, where: str) -> str | None:
    """Say what of a value is not of the form; None where all is."""
    if isinstance(form, list):
        fits = isinstance(value, list) and bool(value) and not any(misfit(each, form[0], "") for each in value)
        return None if fits else f"{where} is no list of {'texts' if form[0] is str else 'finite numbers'}"
    if form is str:
        return None if isinstance(value, str) else f"{where} is no text"
    if isinstance(form, re.Pattern):
        return None if isinstance(value, str) and form.fullmatch(value) else f"{where} is no digest"
    if form is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return None if number and abs(value) <= sys.float_info.max else f"{where} is no finite number"
    if not isinstance(value, dict):
        return f"{where} is no object"
    forms = dict.fromkeys(value, form[ANY]) if ANY in form else form
    misfits = (
        misfit(value[key], each, f"{key[:40]!r} of {where}") if key in value else f"{key!r} of {where} is missing"
        for key, each in forms.items()
    )
    return next((each for each in misfits if each), None)
