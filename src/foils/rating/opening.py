"""Settings of a rating, and the judges by name: how each is opened, and which settings each heeds."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from foils.data.collection import Collection
from foils.encode.models import load_cross_encoder
from foils.encode.opening import OF_CROSS_ENCODERS, EncodingSettings
from foils.llm import LLMSettings, Purse, RelevanceQuestions
from foils.rating.estimators import ESTIMATORS
from foils.rating.judges import (
    ORDER,
    RELEVANCE,
    BiEncoderJudge,
    CrossEncoderJudge,
    Judge,
    ListJudge,
    LLMJudge,
    PointwiseJudge,
    QuestionSettings,
)
from foils.rating.session import RecordedJudge
from foils.runtime.errors import InputError, check_names
from foils.runtime.options import Needs, Option, Settings, key_values, settings_of, several, spelled

if TYPE_CHECKING:
    JudgeLike = str | Judge
    JudgesLike = JudgeLike | Sequence[JudgeLike]
else:
    JudgeLike = JudgesLike = str

log = logging.getLogger(__name__)

UNBOUNDED: Needs = {"budget": False, "why": "further questions could exceed it"}
BI_ENCODER = "bi-encoder"


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(Settings):
    """Who says which of two documents answers a query better.

    Attributes:
        judge: bi-encoder[:MODEL], cross-encoder:MODEL, llm[:MODEL] or recorded:FILE; a bare MODEL
            is a bi-encoder. Its own settings may follow, as in
            llm:MODEL,base_url=URL,key_variable=NAME,price=2/8. May be given several times: the mean
            of their answers. Default: bi-encoder. In Python also an object with the methods of
            `Judge`, or a list.
        between_judge: Judge between queries. Default: that of the ratings.
        temperature: What divides differences of scores. Default: 0.05 for a bi-encoder's cosines, 1
            for logits.
        accept_judge: Rate even where the answers do not clearly prefer labelled positives, or
            contradict themselves when the order of the documents is reversed.
    """

    judge: Annotated[JudgesLike, Option(metavar="JUDGE", parse=list, repeated=True)] = BI_ENCODER
    between_judge: Annotated[JudgeLike | None, Option(metavar="JUDGE")] = None
    temperature: Annotated[float | None, Option(above=0)] = None
    accept_judge: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "judge", [_named(each) for each in self.judges])
        if self.between_judge is not None:
            object.__setattr__(self, "between_judge", _named(self.between_judge))

    @property
    def judges(self) -> list[JudgeLike]:
        """The judges, one or several."""
        return several(self.judge)


@dataclass(frozen=True, kw_only=True)
class RatingSettings(Settings):
    """Which pairs are compared, and how ratings are fitted to the answers.

    Attributes:
        degree: Number of comparisons per candidate; even.
        budget: Questions to ask in all; a pair in both orders is two.
        between: Comparisons with other queries; even. They give each query an offset.
        model: Model of the ratings.
        prior_sd: Spread of the prior in probits or logits. Default: fitted to the answers.
        validate: Negatives that are also compared with the positive directly; borderline is a gap
            of 80 to 150.
    """

    heading = "Rating"

    degree: Annotated[int, Option(least=2)] = 6
    budget: Annotated[int | None, Option(least=1)] = None
    between: Annotated[int | None, Option(least=2, needs=UNBOUNDED)] = None
    model: Annotated[str, Option(flag="--rating-model", names=tuple(ESTIMATORS))] = "thurstone"
    prior_sd: Annotated[float | None, Option(above=0, metavar="SD")] = None
    validate: Annotated[str, Option(names=("none", "borderline", "all"), needs=UNBOUNDED)] = "none"


@dataclass(frozen=True)
class Opening:
    """What judges are opened with.

    Attributes:
        judges: who judges.
        encoding: encoder and store of a bi-encoder; length and device of the others.
        llm: which language model.
        question: what it is asked.
        purse: what all language models together may cost.
    """

    judges: JudgeSettings
    encoding: EncodingSettings
    llm: LLMSettings
    question: QuestionSettings
    purse: Purse = field(default_factory=Purse)

    @cached_property
    def key_server(self) -> tuple[str, str]:
        """Scheme and host of the server that the run's key goes to: the run's, or that of the first model without one.

        A key that was given for one server is sent to no other: a judge with another server names its own
        `key_variable`.
        """
        every = [each for each in (*self.judges.judges, self.judges.between_judge) if isinstance(each, str)]
        own = [_own(each) for each in every if each.partition(":")[0] == "llm"]
        addresses = [each.get("base_url") for each in own if "key_variable" not in each]
        address = self.llm.base_url or os.environ.get("OPENAI_BASE_URL")
        if not address and addresses and None not in addresses:
            address = addresses[0]
        return urlsplit(address or "")[:2]

    def with_own(self, settings: Mapping[str, Any]) -> Opening:
        """Return these with one judge's own settings in the place of those of all."""
        own = dict(settings)
        if "base_url" in own and "key_variable" not in own and urlsplit(own["base_url"])[:2] != self.key_server:
            own["key_variable"] = ""
            if os.environ.get(self.llm.key_variable):
                log.warning(
                    "%s gets no key: that of %s is for another server; give the judge its own, as key_variable=NAME",
                    urlsplit(own["base_url"]).netloc.rpartition("@")[2], self.llm.key_variable,
                )  # fmt: skip
        groups = {name: getattr(self, name) for name in ("judges", "encoding", "llm", "question")}
        changed: dict[str, Any] = {
            place: replace(group, **{name: value for name, value in own.items() if hasattr(group, name)})
            for place, group in groups.items()
        }
        return replace(self, **changed)


@dataclass(frozen=True)
class JudgeKind:
    """A kind of judge.

    Attributes:
        make: makes the judge, of what stands behind the colon ("": nothing), for a collection.
        heeds: names of the settings that it heeds.
        form: of its name, where something has to stand behind the colon.
    """

    make: Callable[[str, Opening, Collection], Judge]
    heeds: frozenset[str] = frozenset()
    form: str = ""


def _bi_encoder(model: str, opening: Opening, collection: Collection) -> Judge:
    encoding = replace(opening.encoding, encoder=model) if model else opening.encoding
    encoder, store = encoding.open(collection)
    return BiEncoderJudge(encoder, temperature=opening.judges.temperature or 0.05, store=store)


def _cross_encoder(model: str, opening: Opening, collection: Collection) -> Judge:
    how = {name: getattr(opening.encoding, name) for name in OF_CROSS_ENCODERS}
    loaded = load_cross_encoder(model, **how)
    store = opening.encoding.open_store()
    return CrossEncoderJudge(loaded, temperature=opening.judges.temperature or 1.0, name=Path(model).name, store=store)


def _language_model(model: str, opening: Opening, collection: Collection) -> Judge:
    llm = replace(opening.llm, llm_model=model) if model else opening.llm
    if not llm.llm_model:
        raise InputError(f"llm needs the model's name on the server: llm:MODEL, or {spelled('llm_model', 'NAME')}")
    client, folder = llm.client(), llm.folder(collection)
    question = opening.question
    how: dict[str, Any] = {"sampling": llm.sampling(), "purse": opening.purse}
    if question.answer == RELEVANCE:
        return PointwiseJudge(RelevanceQuestions(client, folder, question.question, domain=question.domain, **how))
    kind = ListJudge if question.answer == ORDER else LLMJudge
    return kind(client, folder, question, **how)


def _names(*groups: type) -> frozenset[str]:
    return frozenset(each.name for group in groups for each in fields(group))


JUDGES: dict[str, JudgeKind] = {
    BI_ENCODER: JudgeKind(_bi_encoder, _names(EncodingSettings) | {"temperature"}),
    "cross-encoder": JudgeKind(
        _cross_encoder, frozenset({"temperature", "vectors", *OF_CROSS_ENCODERS}), "cross-encoder:MODEL"
    ),
    "llm": JudgeKind(_language_model, _names(LLMSettings, QuestionSettings)),
    "recorded": JudgeKind(lambda path, *_: RecordedJudge(path), form="recorded:FILE"),
}


def open_judge(judge: JudgeLike, opening: Opening, collection: Collection) -> Judge:
    """Return the judge of a name; an object stays as it is.

    Raises:
        InputError: nothing stands behind the colon, or what stands there cannot be opened.
    """
    if not isinstance(judge, str):
        return judge
    kind, _, where = key_values(judge)[0].partition(":")
    if (form := JUDGES[kind].form) and not where:
        raise InputError(f"{kind} needs its {form.partition(':')[2].lower()}: {form}")
    opening = opening.with_own(_own(judge))
    return JUDGES[kind].make(where, opening, collection)


def heeding(name: str) -> list[dict[str, Any]]:
    """Return what a setting needs to have an effect: a judge who heeds it, of ratings or between queries."""
    kinds = [kind for kind, each in JUDGES.items() if name in each.heeds]
    return [{"judge": kinds}, {"between_judge": kinds}]


def _named(judge: JudgeLike) -> JudgeLike:
    """A judge whose name begins with its kind, a bare model being a bi-encoder's; its own settings are read."""
    if not isinstance(judge, str):
        return judge
    named = judge if key_values(judge)[0].partition(":")[0] in JUDGES else f"{BI_ENCODER}:{judge}"
    _own(named)
    return named


def _own(judge: str) -> dict[str, Any]:
    """The settings that a judge's name ends with, as in llm:MODEL,base_url=URL,temperature=0.7.

    Raises:
        InputError: a value that is not of its key's type, or a kind of judge that has no settings of its own.
        UnknownNameError: an unknown key.
    """
    name, values = key_values(judge)
    kind = name.partition(":")[0]
    if not values:
        return {}
    heeded = JUDGES[kind].heeds - {"llm_model"}  # it stands in the name
    groups = (JudgeSettings, LLMSettings, QuestionSettings)
    own = (each for group in groups for each in settings_of(group) if each.name in heeded)
    known = {each.name.removeprefix("llm_"): each for each in own}
    if not known:
        raise InputError(f"{spelled('judge', judge)}: {name} has no settings; leave {', '.join(values)} out")
    check_names(f"key of {spelled('judge')} {kind}", values, known)
    return {known[key].name: known[key].checked(value) for key, value in values.items()}
