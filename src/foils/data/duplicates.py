"""Finds texts that are nearly equal: every pair whose sets of tokens have a Jaccard similarity over a threshold."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence

from foils.runtime.errors import InputError


def near_pairs(sets: Sequence[Collection[str]], *, threshold: float) -> list[tuple[int, int]]:
    """Return every pair of token sets that are nearly equal.

    Jaccard(x, y) = |x ∩ y| / |x ∪ y|. A pair at or over the threshold t shares at least ⌈t·|x|⌉ of x's tokens.
    With one order for all tokens, rarest first, it therefore shares one among the first |x| − ⌈t·|x|⌉ + 1 of x
    and one among those of y, and only pairs that meet in such a prefix are compared. The result is exact.

    Args:
        sets: n sets of tokens; a token that is repeated counts once. An empty set is near to none.
        threshold: in (0, 1]; 1 gives the equal sets alone.

    Returns:
        (i, j) with i < j, by j, then i.

    Raises:
        InputError: a threshold outside (0, 1].

    Source: prefix filtering as in Bayardo, Ma and Srikant, "Scaling up all pairs similarity search" (WWW 2007).
    """
    if not 0 < threshold <= 1:
        raise InputError(f"threshold must be in (0, 1], not {threshold}")
    tokens = [frozenset(each) for each in sets]
    count = Counter(token for each in tokens for token in each)
    holders: defaultdict[str, list[int]] = defaultdict(list)
    pairs: list[tuple[int, int]] = []
    for j, mine in enumerate(tokens):
        ordered = sorted(mine, key=lambda token: (count[token], token))
        needed = math.ceil(threshold * len(mine) - 1e-9)
        prefix = ordered[: len(mine) - needed + 1]
        for i in sorted({i for token in prefix for i in holders[token]}):
            if _similar(tokens[i], mine, threshold):
                pairs.append((i, j))
        for token in prefix:
            holders[token].append(j)
    return pairs


def _similar(x: frozenset[str], y: frozenset[str], threshold: float) -> bool:
    smaller, larger = sorted((len(x), len(y)))
    if smaller < threshold * larger - 1e-9:
        return False
    shared = len(x & y)
    return shared >= threshold * (len(x) + len(y) - shared) - 1e-9
