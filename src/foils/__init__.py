"""Hard negatives for retrievers and rerankers: mine, score, rate, select, batch, train, measure.

Each function is what the verb of its name does in the program. The names stand in `__init__.pyi`, and are loaded when
they are first used, so that importing foils loads nothing heavy.
"""

import lazy_loader

_homes: dict[str, list[str]] = {}
with open(f"{__file__}i", encoding="utf-8") as _stub:  # noqa: PTH123  # pathlib would take longer than all else
    for _words in map(str.split, _stub):
        if _words[:1] == ["from"]:
            _homes.setdefault(_words[1].removeprefix("."), []).append(_words[3])

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submod_attrs=_homes)
