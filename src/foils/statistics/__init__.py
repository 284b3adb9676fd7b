"""Statistics: measures of rankings, paired tests, intervals, rank correlations, samples and estimates.

The names stand in `__init__.pyi`, and are loaded when they are first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
