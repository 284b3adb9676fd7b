"""Names of retrieval measures, as ir_measures reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from foils.runtime.errors import InputError, require

_EXAMPLES = "nDCG@10, R@100, RR@10, AP, P@5"


def parse_measures(names: Sequence[str]) -> list[Any]:
    """Return ir_measures' measure of each name.

    Raises:
        InputError: no name at all, or names that it does not know or has no means to compute; all are listed.
        MissingExtraError: ir-measures is not installed.
    """
    ir_measures = require("ir_measures", "evaluate")
    if not names:
        raise InputError(f"no measure; expected names as in {_EXAMPLES}")
    parsed, wrong = [], []
    for name in names:
        try:
            measure = ir_measures.parse_measure(name)
            ir_measures.evaluator([measure], {"query": {"document": 1}})
        except AssertionError:  # so it says that a parameter is missing or unknown
            wrong.append(f"{name!r} (a cut-off or another parameter is missing, or is not the measure's)")
        except (NameError, ValueError, TypeError, RuntimeError) as error:
            wrong.append(f"{name!r} ({str(error).strip()})")
        else:
            parsed.append(measure)
    if wrong:
        raise InputError(f"{'; '.join(wrong)}; expected ir_measures' names, as in {_EXAMPLES} (capitals matter)")
    return parsed
