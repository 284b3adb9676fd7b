"""The cache: what lies in it, whether it is whole, and how large it may grow."""

from foils.upkeep.doors import cache
from foils.upkeep.results import CacheCheck, CachePruned, CacheSize

__all__ = ["CacheCheck", "CachePruned", "CacheSize", "cache"]
