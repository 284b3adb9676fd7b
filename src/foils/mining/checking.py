"""What does not go together among the options of mining and filtering."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from foils.encode.models import OWN_KINDS
from foils.encode.opening import AT_128, OF_CROSS_ENCODERS, EncodingSettings
from foils.mining.best_ranks import BestRanksSettings
from foils.mining.methods import METHODS
from foils.mining.settings import BEST, RULES, FilterSettings, RankingSettings, WindowSettings
from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.options import refuse, spelled
from foils.runtime.surroundings import ScaleSettings

_OWN_VERBS = {"llm": "generate", "fuse": "fuse", "filter": "filter"}
_EMBEDS = {"dense", "ance", "trisampler", *OWN_KINDS.values()}
_DRAWS = {"random", "trisampler"}


def check_mining(
    method: str,
    window: WindowSettings,
    ranking: RankingSettings,
    filters: FilterSettings,
    best: BestRanksSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings,
) -> None:
    """Refuse a method that there is not, and options that do nothing beside the others."""
    flag = spelled("method")
    if method in _OWN_VERBS:
        raise InputError(
            f"{flag} {method}: mining ranks documents; use {_OWN_VERBS[method]}, which is a verb of its own"
        )
    if method not in METHODS:
        raise UnknownNameError(flag, method, METHODS)
    pools = ranking.pools() or [] if method == "cross-encoder" else []
    methods = {method, *pools}
    if method != "cross-encoder":
        refuse(ranking.changed("pool", "pool_depth"), f"with {flag} {method}; give it with {flag} cross-encoder")
    if "bm25" not in methods:
        refuse(ranking.changed("k1", "b"), f"with {flag} {method}, which does not rank by BM25; leave it out")
    if method == "trisampler":
        refuse(window.changed("draw"), f"with {flag} {method}, which draws by itself; leave it out")
    if methods.isdisjoint(_DRAWS) and window.draw == "top":
        draw = spelled("draw")
        refuse(
            window.changed("seed"),
            f"with {flag} {method}, which draws nothing; leave it out, or give {draw} uniform or {draw} simans",
        )
    _check_ranks(method, window, best)
    if method in OWN_KINDS.values():
        if filters.scorer == "encoder" or window.ranks == BEST:
            what = spelled("ranks", BEST) if window.ranks == BEST else spelled("scorer", "encoder")
            raise InputError(f"{what} needs an encoder's vectors, and {flag} {method} has none; leave it out")
        refuse(scale.changed("ray"), f"with {flag} {method}, which ranks in one process; leave it out")
    embeds = {*methods, "encoder"} if window.ranks == BEST else methods
    spread = {} if method == "random" and filters.scorer == "own" else scale.changed("ray")
    _check_models(filters, {**encoding.changed(base=AT_128), **spread}, embeds, f"{flag} {method}")


def _check_ranks(method: str, window: WindowSettings, best: BestRanksSettings) -> None:
    """Refuse what goes with the best ranks alone, and what does not go with them."""
    asked = spelled("ranks", BEST)
    if window.ranks != BEST:
        return refuse(best.changed(), f"without {asked}; give it, or leave it out")
    if method in _DRAWS:
        raise InputError(f"{asked}: {method} negatives are drawn, so that no ranks are better; leave it out")
    refuse(window.changed("draw"), f"with {asked}, which takes all of the best ranks; leave it out")
    if best.depth_of(window.top) < 2 * window.top:
        depth = spelled("best_depth", best.depth_of(window.top))
        raise InputError(f"{depth}; expected at least two windows of {window.top} ranks, {2 * window.top}")
    return None


def check_filtering(filters: FilterSettings, scale: ScaleSettings, encoding: EncodingSettings) -> None:
    """Refuse options that do nothing beside the others, and filtering without a rule."""
    _check_models(filters, {**encoding.changed(base=AT_128), **scale.changed("ray")}, set(), "filter")
    if not filters.changed(*RULES, "score_positives"):
        raise InputError(f"no rule to filter by; give {', '.join(map(spelled, RULES[:4]))}, …")


def _check_models(filters: FilterSettings, options: dict[str, Any], methods: Set[str], what: str) -> None:
    """Refuse models that nothing asks, and options of an encoder where nothing is embedded."""
    scorer, used = spelled("scorer"), {*methods, filters.scorer}
    if "cross-encoder" not in used:
        refuse(filters.changed("cross_encoder"), f"with {what}; it goes with {scorer} cross-encoder")
    if "encoder" in used or used & _EMBEDS:
        return
    of_others = {*OF_CROSS_ENCODERS, "vectors"} if "cross-encoder" in used else set()
    idle = {name: value for name, value in options.items() if name not in of_others}
    refuse(
        idle,
        f"with {what} and {scorer} {filters.scorer}, which embed no text; leave it out, or give {scorer} encoder",
    )
