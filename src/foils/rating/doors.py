"""The door of rating."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, as_source
from foils.encode.models import find_model
from foils.encode.opening import AT_128, EncodingSettings
from foils.llm import LLMSettings, Usage
from foils.llm.asking import ANSWER_TOKENS, announce
from foils.rating.distil import check_free, distil, save_judge
from foils.rating.judges import EnsembleJudge, Judge
from foils.rating.llm_judge import LLMJudge, QuestionSettings
from foils.rating.opening import (
    DistilSettings,
    JudgeSettings,
    Opening,
    RatingSettings,
    check_judges,
    open_between,
    open_judges,
    records_of,
)
from foils.rating.pairs import Pairs
from foils.rating.session import JudgeSession
from foils.rating.stage import Rated, rate_negatives
from foils.runtime.doors import door
from foils.runtime.options import Needs, Option
from foils.runtime.surroundings import ScaleSettings

log = logging.getLogger(__name__)


_ASKED: Needs = [{"judge": "llm"}, {"between_judge": "llm"}]


@door(
    needs={
        **dict.fromkeys(("question", "llm"), _ASKED),
        "distilling": {"distil": True},
        "between_judge": {"between": True},
    }
)
def rate(
    collection: CollectionLike,
    source: SourceLike,
    *,
    judging: JudgeSettings,
    split: str = "train",
    seed: Annotated[int, Option(least=0)] = 0,
    rating: RatingSettings,
    distilling: DistilSettings,
    question: QuestionSettings,
    llm: LLMSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> Rated:
    """Rate negatives by pairwise judgements: add elo, elo_se, gap and gap_se, in Elo points.

    A query's negatives and its positive, where it has one, are compared in pairs on a sparse random graph by a judge,
    and ratings are fitted to its answers. A stopped run continues where it was.

    Args:
        split: Split whose positives are rated; all: every split's.
        seed: Seed of the graphs of comparisons.

    Raises:
        InputError: a collection, source or judge that cannot be read, settings that no judge heeds, or nothing to rate.
        FailureError: a judge failed; what it answered is kept.
    """
    opening = Opening(judging, encoding, llm, question)
    check_judges(opening, distilling)
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    if distilling.distil is not None:
        check_free(Path(distilling.distil))
    judges = open_judges(opening, loaded)
    records = records_of(judges, loaded, named, judging.judgements)
    rated = rate_negatives(
        loaded,
        named.negatives,
        judges[0] if len(judges) == 1 else EnsembleJudge(judges),
        split=split,
        between_judge=open_between(opening, loaded),
        record=records[0] if len(judges) == 1 else records,
        seed=seed,
        announce=partial(_announce_costs, judges),
        name=named.name,
        digest=named.digest,
        **vars(rating),
    )
    for doubt in rated.summary.doubts:
        log.warning("%s", doubt)
    rated = rated.altered(models={name: replace(use, price=llm.price) for name, use in rated.models.items()})
    return _distilled(rated, distilling, seed, encoding.device)


def _announce_costs(judges: Sequence[Judge], asking: JudgeSession, pairs: Pairs) -> None:
    """Say what language models are about to be asked, and what that costs; ask on a terminal whether to go on.

    Raises:
        InputError: the person at the terminal does not want it.
    """
    unrated = int((pairs.degrees == 0).sum())
    if unrated > pairs.candidates / 2:
        log.warning("the budget leaves %d of %d candidates unrated; give more", unrated, pairs.candidates)
    usages = {}
    for judge in judges:
        if isinstance(judge, LLMJudge) and len(todo := asking.unknown(judge, pairs)):
            questions, tokens = 2 * len(todo), judge.tokens_of(asking.candidates, todo)
            usages[judge.client] = Usage(questions, round(questions * tokens), questions * ANSWER_TOKENS)
    announce(usages)


def _distilled(rated: Rated, settings: DistilSettings, seed: int, device: str | None) -> Rated:
    """The result with the judge that is trained on everything that was asked, and written to its folder."""
    if settings.distil is None:
        return rated
    folder = Path(settings.distil)
    distilled = distil(
        find_model(settings.distil_from),
        rated.candidates,
        rated.pairs,
        rated.preference,
        form=settings.distil_form,
        epochs=settings.distil_epochs,
        max_length=settings.distil_length,
        seed=seed,
        device=device,
        name=folder.name,
    )
    save_judge(distilled.judge, folder)
    log.info("use it: foils rate … --judge pairwise:%s", folder)
    return rated.altered(distilled=distilled, folder=str(folder))
