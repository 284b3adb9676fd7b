"""Programs that judge pairs, and how often they err."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np

from foils.data.collection import Collection
from foils.encode.opening import AT_128, EncodingSettings
from foils.labelling.settings import BY_PEOPLE, UNCERTAIN, Answer, LabelSettings
from foils.labelling.sheet import Shown
from foils.llm import LLMSettings, PairQuestions, ValueForm
from foils.llm.prompts import TemplateLike
from foils.rating import Candidates, Judge, JudgeSettings, Pairs, QuestionSettings, ask
from foils.rating.opening import JUDGES, Opening
from foils.runtime.errors import InputError
from foils.runtime.options import refuse, spelled

POINTWISE = ("bi-encoder", "cross-encoder", "pairwise", "llm")
VERSION = "relevance-1"
RELEVANT = ValueForm(
    "relevant",
    {"type": "boolean"},
    kind="relevance",
    prompt=("foils.labelling", VERSION),
    words='Answer in JSON: {"relevant": true} or {"relevant": false}.',
    accepts=lambda value: isinstance(value, bool),
    unreadable="an answer that does not say whether the document is relevant",
)


class PairJudge(Protocol):
    """Judges pairs one by one."""

    @property
    def name(self) -> str:
        """What to call it; there is a colon in it."""
        ...

    def judge(self, pairs: Sequence[Shown]) -> list[bool | None]:
        """Return for each pair whether its document is relevant; None where there is no answer."""
        ...


@dataclass(frozen=True)
class AgainstPositive:
    """A judge of `foils rate`, who compares the document with the labelled positive.

    A document is relevant where P(document ≻ positive) ≥ ½. A pair without a positive has no answer.
    """

    name: str
    compared: Judge

    def judge(self, pairs: Sequence[Shown]) -> list[bool | None]:
        """Return the judge's answers, asked in both orders where order can matter."""
        places = [place for place, pair in enumerate(pairs) if pair.positive]
        lists = [[("positive", pairs[place].positive), ("document", pairs[place].document)] for place in places]
        candidates = Candidates.of_lists(
            [str(place) for place in places], [pairs[place].query for place in places], lists
        )
        first = np.arange(len(places)) * 2
        preference = ask(self.compared, candidates, Pairs(candidates.offsets, first + 1, first)).preference
        answers: list[bool | None] = [None] * len(pairs)
        for place, p in zip(places, preference.tolist(), strict=True):
            answers[place] = None if np.isnan(p) else p >= 0.5
        return answers


@dataclass(frozen=True)
class ByFunction:
    """A function of query, labelled positive and document that answers True, False, or None for no answer."""

    function: Answer

    @property
    def name(self) -> str:
        """The function's name, after a colon: it is a program."""
        return f"function:{getattr(self.function, '__name__', type(self.function).__name__)}"

    def judge(self, pairs: Sequence[Shown]) -> list[bool | None]:
        """Return its answers.

        Raises:
            InputError: it answers anything else.
        """
        return [checked_answer(self.function(pair.query, pair.positive, pair.document)) for pair in pairs]


def checked_answer(given: Any) -> bool | None:
    """Return what a function answered.

    Raises:
        InputError: it is neither a truth value nor None.
    """
    if given is not None and not isinstance(given, (bool, np.bool_)) and given not in (0, 1):
        raise InputError(f"the function answered {given!r}; expected True, False, or None to skip a pair")
    return None if given is None else bool(given)


class RelevanceJudge(PairQuestions):
    """A language model that is asked about each pair by itself whether the document is relevant to the query."""

    form = RELEVANT

    def judge(self, pairs: Sequence[Shown]) -> list[bool | None]:
        """Return the model's answers; None where none came, or none that can be read.

        Raises:
            InputError: the server refuses the key, or does not know the model.
            FailureError: question after question failed, or the log cannot be written; what was answered is kept.
            MissingExtraError: the openai package is not installed.
        """
        return self.answers([(pair.query, pair.document) for pair in pairs])


def open_judge(
    given: str | Judge,
    collection: Collection,
    *,
    encoding: EncodingSettings,
    llm: LLMSettings,
    question: TemplateLike | None = None,
) -> PairJudge:
    """Return the judge of this name, `KIND:MODEL` as for `foils rate`, or one of its objects, for pairs.

    Raises:
        InputError: no such kind of judge, or no model.
    """
    if not isinstance(given, str):
        return AgainstPositive(f"judge:{given.name}", given)
    kind, where = kind_of(given)
    if kind == "llm":
        named = LLMSettings(**{**vars(llm), "llm_model": where or llm.llm_model})
        if not named.llm_model:
            raise InputError(f"{spelled('ask', 'llm')} needs the model's name: llm:MODEL, or {spelled('llm_model')}")
        return RelevanceJudge(named.client(), llm.folder(collection), question, llm.sampling())
    opening = Opening(JudgeSettings(judge=given), encoding, llm, QuestionSettings())
    opened = JUDGES[kind].open(where, opening, collection)
    return AgainstPositive(f"{kind}:{opened.name}", opened)


def check_settings(labelling: LabelSettings, llm: LLMSettings, encoding: EncodingSettings) -> None:
    """Raise an InputError for a judge that there is not, and settings that whoever judges does not heed."""
    who, flag = labelling.ask, spelled("ask")
    kind = kind_of(who)[0] if isinstance(who, str) and who not in BY_PEOPLE else None
    program = kind is not None or is_judge(who)
    shown = f"with {flag} {kind or ('a judge' if program else 'a person')}"
    if program:
        refuse(labelling.changed("labeller"), f"{shown}, which has a name of its own; leave it out")
    else:
        refuse(labelling.changed("checks"), f"{shown}, who is taken to be right; leave it out")
    if kind != "llm":
        refuse({**labelling.changed("question"), **llm.changed()}, f"without {flag} llm; give it")
    if labelling.draw == UNCERTAIN:  # the draw heeds all of the encoder's settings
        return
    refuse(labelling.changed("split"), f"without {spelled('draw', UNCERTAIN)}; give it")
    heeded = JUDGES[kind].heeds if kind in JUDGES else frozenset()
    if who != "bi-encoder":  # the model of bi-encoder:MODEL stands there
        heeded -= {"encoder"}
    idle = {name: value for name, value in encoding.changed(base=AT_128).items() if name not in heeded}
    uncertain = f"{spelled('draw', UNCERTAIN)}, which asks first about the pairs that an encoder cannot tell"
    refuse(idle, f"{shown}, where nothing is embedded by it; leave it out, or give {uncertain}")


def is_judge(who: Any) -> TypeGuard[Judge]:
    """Tell whether an object is a judge of `foils rate`."""
    return hasattr(who, "judge")


def kind_of(name: str, option: str = "ask") -> tuple[str, str]:
    """Return the kind of a judge that is named, and what stands behind the colon.

    Raises:
        InputError: no such kind.
    """
    kind, _, where = name.partition(":")
    if kind not in POINTWISE:
        ways = [*(BY_PEOPLE if option == "ask" else ()), *(f"{each}:MODEL" for each in POINTWISE)]
        raise InputError(f"{spelled(option, name)}: nobody is called that; expected one of {', '.join(ways)}")
    return kind, where
