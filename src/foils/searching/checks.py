"""Which options of a search go together; one that would have no effect is refused."""

from __future__ import annotations

from foils.runtime.errors import InputError
from foils.runtime.options import refuse, settings_of, spelled
from foils.searching.answers import AnswersLike
from foils.searching.ranks import check_measure
from foils.searching.settings import (
    TUNABLE,
    ImportanceSettings,
    IndexSettings,
    Method,
    RunLike,
    SearchSettings,
    SweepSettings,
    TuneSettings,
    chosen_method,
)

TRUST = ("lead", "agreement")
TAKES: dict[str, tuple[str, ...]] = {
    "none": (),
    "dime": ("k_plus", "share"),
    "rdime": ("k_plus",),
    "eclipse": tuple(setting.name for setting in settings_of(ImportanceSettings) if setting.name not in TRUST),
    "selective": ("k_plus", *TRUST),
}


def check_search(
    dimensions: Method | None,
    searching: SearchSettings,
    importance: ImportanceSettings,
    feedback: RunLike | None,
    answers: AnswersLike | None,
    index: IndexSettings,
    tuning: TuneSettings,
) -> None:
    """Raise an InputError for options of a search that do not go together, before anything is read."""
    dimensions = chosen_method(dimensions, tune=tuning.tune, answered=answers is not None)
    flag, depth = spelled("dimensions"), searching.changed("feedback_depth")
    given: dict[str, object] = {"feedback": feedback}
    if dimensions == "none":
        idle = {**depth, **given, "answers": answers, **index.changed("second_pass")}
        refuse(idle, f"with {flag} none, which searches once with all dimensions; leave it out")
    if dimensions == "selective":
        refuse({"answers": answers}, f"with {flag} selective, which judges the feedback; take {flag} rdime")
    if answers is not None:
        taken = spelled("answers")
        refuse(importance.changed("k_plus"), f"with {taken}, which are the sun in place of documents; leave it out")
        if dimensions != "eclipse":
            why = f"with {taken} and {flag} {dimensions}, which has no moon; leave it out, or take {flag} eclipse"
            refuse({**depth, **given}, why)
    if importance.moon_pool is None:
        why = f"where nothing is drawn; leave it out, or give {spelled('moon_pool')}"
        refuse(searching.changed("seed"), why)
    if tuning.tune is not None:
        _check_tuning(dimensions, searching, importance, given, tuning)
        check_measure(tuning.measure)
        return
    if index.second_pass != "retrieved":
        why = f"without {spelled('second_pass')} retrieved, for all are ranked again; give it, or leave this out"
        refuse(searching.changed("rerank_depth"), why)
    refuse(tuning.changed("measure", "reading"), f"without {spelled('tune')}; give it")
    other = "" if dimensions == "eclipse" else f", or take {flag} eclipse"
    _refuse_weights(importance, TAKES[dimensions], f"with {flag} {dimensions}; leave it out{other}")


def check_sweep(
    experiment: str, searching: SearchSettings, importance: ImportanceSettings, sweeping: SweepSettings
) -> None:
    """Raise an InputError for options of a sweep that have no effect on its experiment, or an unknown measure."""
    check_measure(sweeping.measure)
    if experiment not in ("moons", "all"):
        why = f"with the experiment {experiment}, which compares the published settings; leave it out"
        _refuse_weights(importance, ("moon_pool",), why)
    if experiment == "depths":
        why = "with the experiment depths, which compares feedback of 50, 300, 1,000 and 50,000 documents; leave it out"
        refuse(searching.changed("feedback_depth"), why)


def _check_tuning(
    dimensions: Method,
    searching: SearchSettings,
    importance: ImportanceSettings,
    feedback: dict[str, object],
    tuning: TuneSettings,
) -> None:
    flag, tune, split = spelled("tune"), tuning.tune, searching.split
    if dimensions not in TUNABLE:
        raise InputError(f"{spelled('dimensions')} {dimensions} has nothing to tune; leave {flag} out")
    if tune == split:
        raise InputError(
            f"{flag} {tune} {spelled('split')} {split}: settings chosen on the queries that are searched for say "
            "nothing of others; tune on another split, or see the verb sweep for cross-validation"
        )
    refuse(
        feedback,
        f"on {flag}, which chooses settings for feedback of the first pass; leave {flag} out and give the settings",
    )
    why = f"with {flag} of {dimensions}, which chooses among the published settings; leave it or {flag} out"
    _refuse_weights(importance, ("moon_pool",) if dimensions == "eclipse" else (), why)
    if dimensions == "dime":
        refuse(tuning.changed("reading"), why)


def _refuse_weights(importance: ImportanceSettings, taken: tuple[str, ...], why: str) -> None:
    refuse({name: value for name, value in importance.changed().items() if name not in taken}, why)
