"""Settings that take one value or several."""

from foils.runtime.options import several

__all__ = ["several"]
