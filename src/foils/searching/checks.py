"""Which options of a search go together; one that would have no effect is refused."""

from __future__ import annotations

from pathlib import Path

from foils.llm import LLMSettings
from foils.runtime.errors import InputError
from foils.runtime.options import refuse, settings_of, spelled
from foils.searching.answers import ANSWERING
from foils.searching.settings import (
    FeedbackSettings,
    ImportanceSettings,
    IndexSettings,
    Method,
    SearchSettings,
    TrialSettings,
)

EVERY = tuple(setting.name for setting in settings_of(ImportanceSettings))
TAKES: dict[str, tuple[str, ...]] = {"none": (), "dime": ("k_plus", "share"), "rdime": ("k_plus",), "eclipse": EVERY}
USUAL: Method = "eclipse"


def check_options(
    dimensions: Method,
    run: str | Path | None,
    searching: SearchSettings,
    importance: ImportanceSettings,
    feedback: FeedbackSettings,
    index: IndexSettings,
    trial: TrialSettings,
    llm: LLMSettings,
) -> None:
    """Raise an InputError for options that do not go together, before anything is read."""
    if not llm.llm_model:
        idle = {**llm.changed(base=ANSWERING), **feedback.changed("answer_prompt")}
        refuse(idle, f"without {spelled('llm_model')}; name the model")
    if trial.experiment is not None:
        other = {"run": run, **trial.changed("tune"), **feedback.changed("feedback"), **index.changed()}
        _check_experiment(trial.experiment, dimensions, importance, searching, other)
    else:
        refuse(trial.changed("folds"), f"without {spelled('experiment')}; give one")
        _check_feedback(dimensions, searching, importance, feedback, index, llm)
        if trial.tune is not None:
            _check_tuning(dimensions, searching, importance, feedback, trial)
        else:
            _check_settings(dimensions, searching, importance, index, trial)
    if feedback.answers is not None and llm.llm_model:
        raise InputError(f"{spelled('answers')} and {spelled('llm_model')} both bring answers; give one of them")


def _check_settings(
    dimensions: Method,
    searching: SearchSettings,
    importance: ImportanceSettings,
    index: IndexSettings,
    trial: TrialSettings,
) -> None:
    """Refuse what is only for ranking again, for choosing settings, or for other dimensions."""
    if index.second_pass != "retrieved":
        refuse(
            searching.changed("rerank_depth"),
            f"without {spelled('second_pass')} retrieved, for all documents are ranked again; give it, or leave this "
            "out",
        )
    either = f"{spelled('tune')} or {spelled('experiment')}"
    refuse(trial.changed("measure", "reading"), f"without {either}; give one of them")
    _refuse_weights(importance, TAKES[dimensions], f"with {spelled('dimensions')} {dimensions}; leave it out")


def _refuse_weights(importance: ImportanceSettings, taken: tuple[str, ...], why: str) -> None:
    refuse({name: value for name, value in importance.changed().items() if name not in taken}, why)


def _check_tuning(
    dimensions: Method,
    searching: SearchSettings,
    importance: ImportanceSettings,
    feedback: FeedbackSettings,
    trial: TrialSettings,
) -> None:
    tune = spelled("tune")
    if dimensions not in ("dime", "eclipse"):
        raise InputError(f"{spelled('dimensions')} {dimensions} has nothing to tune; leave {tune} out")
    if trial.tune == searching.split:
        raise InputError(
            f"{tune} {trial.tune} {spelled('split')} {searching.split}: settings chosen on the queries that are "
            f"searched for say nothing of others; tune on another split, or see {spelled('experiment')} for "
            "cross-validation"
        )
    refuse(
        feedback.changed("feedback"),
        f"on {tune}, which chooses settings for feedback of the first pass; leave {tune} out and give the settings",
    )
    why = f"with {tune} of {dimensions}, which chooses among the published settings; leave it or {tune} out"
    _refuse_weights(importance, ("moon_pool",) if dimensions == "eclipse" else (), why)
    if dimensions == "dime":
        refuse(trial.changed("reading"), why)


def _check_feedback(
    dimensions: Method,
    searching: SearchSettings,
    importance: ImportanceSettings,
    feedback: FeedbackSettings,
    index: IndexSettings,
    llm: LLMSettings,
) -> None:
    """Refuse what sun and moon would be made of where there are none, and a seed where nothing is drawn."""
    writing, answers = llm.changed("llm_model"), f"answers ({spelled('answers')} or {spelled('llm_model')})"
    deep = searching.changed("feedback_depth")
    if dimensions == "none":
        refuse(
            {**deep, **feedback.changed(), **index.changed("second_pass"), **writing},
            f"with {spelled('dimensions')} none, which searches once with all dimensions; leave it out",
        )
    if writing or feedback.answers is not None:
        why = f"with {answers}, which are the sun in place of documents; leave it out"
        refuse(importance.changed("k_plus"), why)
        if dimensions != "eclipse":
            refuse(
                {**deep, **feedback.changed("feedback")},
                f"with {answers} and {spelled('dimensions')} {dimensions}, which has no moon; leave it out, or take "
                f"{spelled('dimensions')} eclipse",
            )
    if not writing and importance.moon_pool is None:
        drawing = ", ".join(map(spelled, ("moon_pool", "llm_model")))
        refuse(
            searching.changed("seed"),
            f"where nothing is drawn; leave it out, or give {drawing} or {spelled('experiment')}",
        )


def _check_experiment(
    name: str, dimensions: Method, importance: ImportanceSettings, searching: SearchSettings, other: dict[str, object]
) -> None:
    experiment = f"{spelled('experiment')} {name}"
    refuse(
        other,
        f"with {spelled('experiment')}, which writes no run and takes feedback from an exact first pass on "
        f"{spelled('split')}; leave it out, or search without {spelled('experiment')}",
    )
    refuse(
        {"dimensions": None if dimensions == USUAL else dimensions},
        f"with {experiment}, which compares all of them; leave it out",
    )
    if name not in ("moons", "all"):
        _refuse_weights(
            importance, ("moon_pool",), f"with {experiment}, which compares the published settings; leave it out"
        )
    if name == "depths":
        refuse(
            searching.changed("feedback_depth"),
            f"with {experiment}, which compares feedback of 50, 300, 1,000 and all documents; leave it out",
        )
