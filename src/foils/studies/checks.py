"""What would end a study after hours is looked for before anything is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

import numpy as np

from foils.data import Collection, Negatives
from foils.encode import EncoderSettings, load_encoder
from foils.evaluation import parse_measures
from foils.evaluation.measuring import DEPTH
from foils.runtime.errors import InputError
from foils.runtime.options import spelled
from foils.studies.cells import BASELINES
from foils.studies.reliability import MOST_SEEDS
from foils.studies.settings import BM25, StudySettings
from foils.studies.sources import drawn_queries

if TYPE_CHECKING:
    from foils.training.settings import TrainSettings

OWN = {"seed", "loss_settings", "patience", "matryoshka", "trackers"}


def checked_settings(
    settings: StudySettings, collection: Collection, tests: Sequence[Collection], *, device: str | None = None
) -> StudySettings:
    """Return the settings with measures named as they will be found in the results, having tried all that can be.

    Args:
        settings: of the study.
        collection: to train on.
        tests: collections to test on.
        device: that models are loaded on.

    Raises:
        UnknownNameError: an unknown split or loss.
        InputError: collections to test on of one name, a run for several of them, a measure that does not exist or
            looks deeper than the search, a setting of the training that does not exist, is the study's own or is out of
            range, or a model for the probe or the scores that cannot be loaded.
    """
    from foils.training.models import load_trainable

    collection.judgements(settings.split)
    names = [each.name for each in tests if each.judgements(settings.test_split, "test_split") is not None]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InputError(f"two collections to test on are called {', '.join(twice)}; rename one")
    if len(tests) > 1 and settings.first_stage not in (None, BM25):
        raise InputError(
            f"{spelled('first_stage')}: a run is of one collection, and there are {len(tests)} to test on; leave it "
            "out, and BM25 searches each"
        )
    measures, depth = parse_measures(settings.measured), settings.depth if settings.reranker else DEPTH
    deep = [str(each) for each in measures if each.params.get("cutoff", 0) > depth]
    if deep:
        looks = "a reranker orders" if settings.reranker else "a study searches"
        raise InputError(f"{', '.join(deep)}: {looks} the first {depth} documents; take measures of these")
    train_settings(settings, 0)
    if settings.probe is not None:
        load_trainable(settings.probe, device=device)
    if settings.score_with is not None:
        load_encoder(settings.score_with, EncoderSettings(device=device))
    return replace(settings, measures=tuple(str(each) for each in measures))


def train_settings(settings: StudySettings, seed: int) -> TrainSettings:
    """Return the settings of one training.

    Raises:
        InputError: a setting that does not exist, is the study's own, is of another type, or is out of range.
    """
    from foils.training.settings import TrainSettings

    hints = get_type_hints(TrainSettings)
    known = {each.name for each in fields(TrainSettings)} - OWN
    if unknown := sorted(set(settings.training) - known):
        raise InputError(f"training settings {', '.join(unknown)}; known are {', '.join(sorted(known))}")
    wrong = [f"{name} {value!r}" for name, value in settings.training.items() if not _fits(value, hints[name])]
    if wrong:
        raise InputError(f"training settings of another type: {'; '.join(wrong)}; see foils.training.settings")
    usual: dict[str, Any] = {"loss": "listnet"} if settings.reranker else {}
    own = {} if settings.reranker else {"temperature": settings.temperature}
    return TrainSettings(**{**usual, **settings.training}, seed=seed, loss_settings=own)


def _fits(value: Any, hint: Any) -> bool:
    kinds = get_args(hint) or (hint,)
    if value is None or isinstance(value, bool):
        return type(value) in kinds
    return isinstance(value, (int, float) if float in kinds else tuple(kinds))


def check_sources(sources: Mapping[str, Negatives], collection: Collection, settings: StudySettings) -> None:
    """Refuse sources that cannot be trained on.

    Raises:
        InputError: a name that is a baseline's, too few sources for what is asked, or sources without a kept negative
            for any query that a seed draws.
    """
    if settings.until_reliable and len(sources) < 3:
        raise InputError(
            f"{spelled('until_reliable')}: {len(sources)} sources have no order that could repeat; give three or more"
        )
    if taken := sorted(set(sources) & set(BASELINES)):
        raise InputError(f"the name {taken[0]!r} is a baseline's; give the source another")
    seeds = max(settings.seeds, MOST_SEEDS) if settings.until_reliable else settings.seeds
    drawn = [
        drawn_queries(collection, settings.split, settings.queries, seed).positives(settings.split).query_rows
        for seed in range(seeds if settings.queries else 1)
    ]
    lacking = []
    for name, negatives in sources.items():
        query_rows, _ = negatives.rows_in(collection)
        covered = [bool(np.isin(queries, query_rows[negatives.keep]).any()) for queries in drawn]
        if not all(covered):
            lacking.append(f"{name} (seed {covered.index(False)})")
    if lacking:
        raise InputError(
            f"sources without a negative for any training query of a seed: {', '.join(lacking)}; mine them for more "
            f"queries of the split {settings.split!r}, or let a seed draw more queries"
        )
