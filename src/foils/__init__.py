"""Hard negatives for retrievers and rerankers: mine, score, rate, select, batch, train, measure.

Each function is what the verb of its name does in the program. The names stand in `__init__.pyi`, and are loaded when
they are first used, so that importing foils loads nothing heavy.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
