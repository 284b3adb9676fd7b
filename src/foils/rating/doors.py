"""The door of rating."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, as_source
from foils.data.tables import provenance
from foils.encode.models import find_model
from foils.encode.opening import AT_128, EncodingSettings
from foils.llm import LLMSettings, Usage
from foils.llm.asking import ANSWER_TOKENS, announce
from foils.rating.cross_query import answers_between, between_judges, fit_offsets, pairs_between
from foils.rating.distil import check_free, distil, save_judge
from foils.rating.graph import candidate_keys, query_keys
from foils.rating.judges import fingerprint_of
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
from foils.rating.stage import (
    Fit,
    Rated,
    answered,
    direct_answers,
    gaps_of,
    pairs_of,
    rateable,
    rated_table,
    refuse_silence,
    spread_that_fits,
    summaries_of,
    summary_of,
)
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
    and ratings are fitted to its answers. A gap is the positive's rating less the negative's; of a query without a
    positive that of the candidate rated best. A stopped run continues where it was.

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
    judges, other = open_judges(opening, loaded), open_between(opening, loaded)
    of_between = judges if other is None else [other]
    if rating.between is not None:
        between_judges(of_between)
    rows = rateable(loaded, named.negatives, split)
    shown, keys = rows.candidates, candidate_keys(rows.candidates, seed)
    asking = JudgeSession(judges, shown, records_of(judges, loaded, named, judging.judgements))
    pairs = pairs_of(asking, rating, keys)
    _announce_costs(asking, pairs)
    known, heard = answered(asking, pairs, rating)
    refuse_silence(judges, len(heard))
    fit = Fit.of(known, heard, spread_that_fits(asking, known, heard, rating), rating.model)
    best, more = rows.references(fit.ratings.elo), {}
    if rating.validate != "none":
        gap = gaps_of(fit.ratings, best, shown.offsets)
        more["preference"] = direct_answers(asking, gap, best, everywhere=rating.validate == "all")
        fit = Fit.of(*asking.answered(), fit.spread, rating.model)
    every, judgements = asking.everything()
    ratings, gap = fit.ratings, gaps_of(fit.ratings, best, shown.offsets)
    gap_error, between = fit.gap_errors(best, gap, every, judgements), None
    tops = best[~rows.labelled & np.isfinite(ratings.elo[best])]
    unrated = int(np.isnan(gap[rows.candidate]).sum())
    gap[tops] = gap_error[tops] = np.nan
    if rating.between is not None:
        drawn = pairs_between(
            shown.offsets, keys, query_keys(shown.query_ids, seed), np.isfinite(ratings.elo), rating.between
        )
        between = fit_offsets(shown, drawn, answers_between(of_between, shown, *drawn.T), ratings)
        more["offset"] = np.repeat(between.offset, np.diff(shown.offsets))
    columns = {"elo": ratings.elo, "elo_se": ratings.elo_error, "gap": gap, "gap_se": gap_error, **more}
    models = [each for each in dict.fromkeys([*judges, *of_between]) if isinstance(each, LLMJudge)]
    name = "+".join(each.name for each in judges)
    settings: dict[str, Any] = {"split": split, "judge": name, **vars(rating)}
    settings |= {"between_judge": other.name} if other is not None else {}
    settings |= {"language_models": [each.describe() for each in models]} if models else {}
    inputs = {"collection": loaded.digest, "source": named.digest, "judge": fingerprint_of(judges)}
    summary = summary_of(every, judgements, rows, unrated, fit)
    rated = Rated.of(
        rated_table(named.negatives, rows, columns, ratings, tops),
        provenance=provenance("rate", settings, inputs=inputs, seed=seed, before=named.negatives.provenance),
        title=f"{named.name} rated by {name} ({rating.model})", collection=loaded, split=split, source=named.name,
        summary=replace(summary, judges=summaries_of(asking), between=between),
        candidates=shown, pairs=every, preference=judgements.preference,
        models={each.name: replace(each.asked.use(), price=llm.price) for each in models},
    )  # fmt: skip
    for doubt in rated.summary.doubts:
        log.warning("%s", doubt)
    return _distilled(rated, distilling, seed, encoding.device)


def _announce_costs(asking: JudgeSession, pairs: Pairs) -> None:
    """Say what language models are about to be asked, and what that costs; ask on a terminal whether to go on.

    Raises:
        InputError: the person at the terminal does not want it.
    """
    unrated = int((pairs.degrees == 0).sum())
    if unrated > pairs.candidates / 2:
        log.warning("the budget leaves %d of %d candidates unrated; give more", unrated, pairs.candidates)
    usages = {}
    for judge in asking.judges:
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
