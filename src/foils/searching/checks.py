"""Which options of a search go together; one that would have no effect is refused."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True)
class _Options:
    dimensions: Method
    searching: SearchSettings
    importance: ImportanceSettings
    feedback: FeedbackSettings
    index: IndexSettings
    trial: TrialSettings
    llm: LLMSettings

    def refuse_weights(self, taken: tuple[str, ...], why: str) -> None:
        """Refuse settings of dimensions other than these."""
        refuse({name: value for name, value in self.importance.changed().items() if name not in taken}, why)


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
    options = _Options(dimensions, searching, importance, feedback, index, trial, llm)
    if not llm.llm_model:
        idle = {**llm.changed(base=ANSWERING), **feedback.changed("answer_prompt")}
        refuse(idle, f"without {spelled('llm_model')}; name the model")
    if trial.experiment is not None:
        _check_experiment(options, run)
    else:
        refuse(trial.changed("folds"), f"without {spelled('experiment')}; give one")
        _check_feedback(options)
        if trial.tune is not None:
            _check_tuning(options)
        else:
            _check_settings(options)
    if feedback.answers is not None and llm.llm_model:
        raise InputError(f"{spelled('answers')} and {spelled('llm_model')} both bring answers; give one of them")


def _check_experiment(options: _Options, run: str | Path | None) -> None:
    experiment, name = spelled("experiment"), options.trial.experiment
    other = {
        "run": run, **options.trial.changed("tune"), **options.feedback.changed("feedback"), **options.index.changed(),
    }  # fmt: skip
    refuse(
        other,
        f"with {experiment}, which writes no run and takes feedback from an exact first pass on {spelled('split')}; "
        f"leave it out, or search without {experiment}",
    )
    dimensions = None if options.dimensions == USUAL else options.dimensions
    refuse({"dimensions": dimensions}, f"with {experiment} {name}, which compares all of them; leave it out")
    if name not in ("moons", "all"):
        why = f"with {experiment} {name}, which compares the published settings; leave it out"
        options.refuse_weights(("moon_pool",), why)
    if name == "depths":
        refuse(
            options.searching.changed("feedback_depth"),
            f"with {experiment} {name}, which compares feedback of 50, 300, 1,000 and all documents; leave it out",
        )


def _check_feedback(options: _Options) -> None:
    """Refuse what sun and moon would be made of where there are none, and a seed where nothing is drawn."""
    dimensions, feedback, writing = options.dimensions, options.feedback, options.llm.changed("llm_model")
    depth = options.searching.changed("feedback_depth")
    if dimensions == "none":
        refuse(
            {**depth, **feedback.changed(), **options.index.changed("second_pass"), **writing},
            f"with {spelled('dimensions')} none, which searches once with all dimensions; leave it out",
        )
    if writing or feedback.answers is not None:
        answers = f"answers ({spelled('answers')} or {spelled('llm_model')})"
        sun = f"with {answers}, which are the sun in place of documents; leave it out"
        refuse(options.importance.changed("k_plus"), sun)
        if dimensions != "eclipse":
            flag = spelled("dimensions")
            moonless = (
                f"with {answers} and {flag} {dimensions}, which has no moon; leave it out, or take {flag} eclipse"
            )
            refuse({**depth, **feedback.changed("feedback")}, moonless)
    if not writing and options.importance.moon_pool is None:
        drawing = ", ".join(map(spelled, ("moon_pool", "llm_model")))
        refuse(
            options.searching.changed("seed"),
            f"where nothing is drawn; leave it out, or give {drawing} or {spelled('experiment')}",
        )


def _check_tuning(options: _Options) -> None:
    tune, split, dimensions = options.trial.tune, options.searching.split, options.dimensions
    flag = spelled("tune")
    if dimensions not in ("dime", "eclipse"):
        raise InputError(f"{spelled('dimensions')} {dimensions} has nothing to tune; leave {flag} out")
    if tune == split:
        raise InputError(
            f"{flag} {tune} {spelled('split')} {split}: settings chosen on the queries that are searched for say "
            f"nothing of others; tune on another split, or see {spelled('experiment')} for cross-validation"
        )
    refuse(
        options.feedback.changed("feedback"),
        f"on {flag}, which chooses settings for feedback of the first pass; leave {flag} out and give the settings",
    )
    why = f"with {flag} of {dimensions}, which chooses among the published settings; leave it or {flag} out"
    options.refuse_weights(("moon_pool",) if dimensions == "eclipse" else (), why)
    if dimensions == "dime":
        refuse(options.trial.changed("reading"), why)


def _check_settings(options: _Options) -> None:
    """Refuse what is only for ranking again, for choosing settings, or for other dimensions."""
    if options.index.second_pass != "retrieved":
        second = spelled("second_pass")
        why = f"without {second} retrieved, for all documents are ranked again; give it, or leave this out"
        refuse(options.searching.changed("rerank_depth"), why)
    either = f"{spelled('tune')} or {spelled('experiment')}"
    refuse(options.trial.changed("measure", "reading"), f"without {either}; give one of them")
    dimensions = options.dimensions
    options.refuse_weights(TAKES[dimensions], f"with {spelled('dimensions')} {dimensions}; leave it out")
