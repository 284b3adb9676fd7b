"""Hard negatives for retrievers and rerankers: mine, score, rate, select, batch, train, measure.

Each function is what the verb of its name does in the program. The names stand in `__init__.pyi`, and are loaded when
they are first used, so that importing foils loads nothing heavy.
"""

import re
from pathlib import Path

import lazy_loader

_IMPORT = re.compile(r"^ *from \.(\S+) import (\w+) as", re.MULTILINE)
_homes: dict[str, list[str]] = {}
for _home, _name in _IMPORT.findall(Path(__file__).with_suffix(".pyi").read_text("utf-8")):
    _homes.setdefault(_home, []).append(_name)

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_homes)
