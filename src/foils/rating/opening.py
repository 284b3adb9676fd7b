"""The judges by name: how each is opened, and which settings each heeds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from foils.data.collection import Collection
from foils.data.sources import NamedSource
from foils.encode.opening import AT_128, EncodingSettings
from foils.llm import LLMSettings
from foils.rating.judges import Judge
from foils.rating.llm_judge import LLMJudge
from foils.rating.pairwise import load_pairwise_judge
from foils.rating.question import QuestionSettings
from foils.rating.records import JudgementRecord, RecordedJudge
from foils.rating.score_judges import BiEncoderJudge, load_cross_encoder_judge
from foils.rating.settings import BI_ENCODER, DistilSettings, JudgeLike, JudgeSettings
from foils.runtime.errors import InputError
from foils.runtime.files import cache_folder
from foils.runtime.keyed import parsed_keys, without_keys
from foils.runtime.options import refuse, settings_of, spelled


@dataclass(frozen=True)
class Opening:
    """What judges are opened with.

    Attributes:
        judges: who judges.
        encoding: encoder and store of a bi-encoder; length and device of the others.
        llm: which language model.
        question: what it is asked.
    """

    judges: JudgeSettings
    encoding: EncodingSettings
    llm: LLMSettings
    question: QuestionSettings

    def temperature_or(self, usual: float) -> float:
        """Return the temperature that was given, or the usual one."""
        return usual if self.judges.temperature is None else self.judges.temperature

    def with_own(self, settings: Mapping[str, Any]) -> Opening:
        """Return these with one judge's own settings in the place of those of all."""
        groups: dict[str, Any] = {"judges": self.judges, "llm": self.llm, "question": self.question}
        for place, group in groups.items():
            changed = {name: value for name, value in settings.items() if hasattr(group, name)}
            groups[place] = replace(group, **changed) if changed else group
        return replace(self, **groups)


@dataclass(frozen=True)
class JudgeKind:
    """A kind of judge.

    Attributes:
        open: makes the judge, of what stands behind the colon ("": nothing), for a collection.
        heeds: names of the settings that it heeds.
    """

    open: Callable[[str, Opening, Collection], Judge]
    heeds: frozenset[str] = frozenset()


def _bi_encoder(model: str, opening: Opening, collection: Collection) -> Judge:
    encoding = replace(opening.encoding, encoder=model) if model else opening.encoding
    encoder, store = encoding.open(collection)
    return BiEncoderJudge(encoder, temperature=opening.temperature_or(0.05), store=store)


def _cross_encoder(model: str, opening: Opening, collection: Collection) -> Judge:
    if not model:
        raise InputError(f"{spelled('judge')} cross-encoder needs its model: cross-encoder:MODEL")
    return load_cross_encoder_judge(
        model,
        temperature=opening.temperature_or(1.0),
        max_length=opening.encoding.max_length,
        device=opening.encoding.device,
        trust_remote_code=opening.encoding.trust_remote_code,
    )


def _pairwise(folder: str, opening: Opening, collection: Collection) -> Judge:
    if not folder:
        raise InputError(
            f"{spelled('judge')} pairwise needs its folder: pairwise:FOLDER, written by {spelled('distil')} FOLDER"
        )
    return load_pairwise_judge(folder, temperature=opening.temperature_or(1.0), device=opening.encoding.device)


def _language_model(model: str, opening: Opening, collection: Collection) -> Judge:
    llm = replace(opening.llm, llm_model=model) if model else opening.llm
    if not llm.llm_model:
        raise InputError(
            f"{spelled('judge')} llm needs the model's name on the server: llm:MODEL, or {spelled('llm_model', 'NAME')}"
        )
    place, asked = llm.folder(collection), opening.question
    return LLMJudge(llm.client(), place, asked, llm.sampling(), asked.batch)


def _recorded(path: str, opening: Opening, collection: Collection) -> Judge:
    if not path:
        raise InputError(f"{spelled('judge')} recorded needs its file or folder: recorded:PATH")
    return RecordedJudge(path)


OWN = (JudgeSettings, LLMSettings, QuestionSettings)  # whose settings a judge may have of its own
SHARED = ("llm_model", "price", "weights")
"""Of them those that it may not: its model stands in its name, prices and weights are of the run."""


def _names(*groups: type) -> frozenset[str]:
    return frozenset(each.name for group in groups for each in fields(group))


JUDGES: dict[str, JudgeKind] = {
    BI_ENCODER: JudgeKind(_bi_encoder, _names(EncodingSettings) | {"temperature"}),
    "cross-encoder": JudgeKind(_cross_encoder, frozenset({"temperature", "max_length", "device", "trust_remote_code"})),
    "pairwise": JudgeKind(_pairwise, frozenset({"temperature", "device"})),
    "llm": JudgeKind(_language_model, _names(LLMSettings, QuestionSettings)),
    "recorded": JudgeKind(_recorded),
}


def open_judges(opening: Opening, collection: Collection) -> list[Judge]:
    """Return the judges of the ratings that are named; an object stays as it is."""
    return [_opened(each, opening, collection) for each in opening.judges.judges]


def open_between(opening: Opening, collection: Collection) -> Judge | None:
    """Return the judge of the comparisons between queries; None where it is that of the ratings."""
    judge = opening.judges.between_judge
    return None if judge is None else _opened(judge, opening, collection)


def _opened(judge: JudgeLike, opening: Opening, collection: Collection) -> Judge:
    if not isinstance(judge, str):
        return judge
    kind, where = _kind(judge)
    return JUDGES[kind].open(where, opening.with_own(_own(judge)), collection)


def check_judges(opening: Opening, distilling: DistilSettings) -> None:
    """Raise an InputError for settings that none of the judges heeds, before anything is read."""
    names = [each for each in opening.judges.everyone if isinstance(each, str)]
    named = [_kind(each) for each in names]
    for each in names:
        opening.with_own(_own(each))  # refuses what cannot be read
    kinds = {kind for kind, _ in named}
    heeded = {name for kind in kinds for name in JUDGES[kind].heeds}
    if (BI_ENCODER, "") not in named:
        heeded -= {"encoder"}
    if distilling.distil is not None:
        heeded |= _names(DistilSettings) | {"device"}
    flag, shown = spelled("judge"), ", ".join(sorted(kinds)) or "an object"

    def idle(settings: Any, **base: Any) -> dict[str, Any]:
        return {name: value for name, value in settings.changed(**base).items() if name not in heeded}

    judges = idle(opening.judges)
    if "temperature" in judges:
        instead = f"for a model's sampling give {spelled('llm_temperature')}"
        why = f"with {flag} {shown}, which gives preferences and no scores to divide; leave it out, or {instead}"
        refuse({"temperature": judges["temperature"]}, why)
    refuse({**idle(opening.question), **idle(opening.llm)}, f"without {flag} llm; give it")
    if kinds == {"recorded"} and len(named) == len(opening.judges.everyone):
        why = f"with {flag} recorded, whose judgements are kept already; leave it out"
        refuse({"judgements": opening.judges.judgements}, why)
    refuse(idle(distilling), f"without {spelled('distil')} FOLDER; give it")
    encoding = idle(opening.encoding, base=AT_128)
    why = f"without {flag} {BI_ENCODER}, whose model it names; leave one of them out"
    refuse({"encoder": encoding.pop("encoder", None)}, why)
    refuse(encoding, f"with {flag} {shown}, which embeds no text; leave it out")


def records_of(
    judges: Sequence[Judge], collection: Collection, source: NamedSource, folder: str | Path | None
) -> list[JudgementRecord | None]:
    """Return where each judge's judgements on a source are kept; None where they are recorded as it is.

    Args:
        judges: who judges.
        collection: that the source was made from.
        source: the negatives.
        folder: for the judgements, one inside it for each of several judges; None: the cache.
    """

    def record(judge: Judge) -> JudgementRecord | None:
        if isinstance(judge, RecordedJudge):
            return None
        key = {"judge": judge.fingerprint, "collection": collection.digest}
        if "text" in source.negatives.table.column_names:  # its ids name texts of its own
            key["source"] = source.digest
        if folder is not None:
            return JudgementRecord(Path(folder) / judge.fingerprint[:16] if len(judges) > 1 else folder, key)
        return JudgementRecord(cache_folder() / "judgements" / "-".join(value[:16] for value in key.values()), key)

    return [record(judge) for judge in judges]


def _kind(judge: str) -> tuple[str, str]:
    """The kind of judge that a name is of, and what stands behind the colon; a bare model is a bi-encoder's."""
    name, _ = without_keys(judge)
    kind, _, where = name.partition(":")
    return (kind, where) if kind in JUDGES else (BI_ENCODER, name)


def _own(judge: str) -> dict[str, Any]:
    """The settings that a judge's name ends with, as in llm:MODEL,base_url=URL,temperature=0.7.

    Raises:
        InputError: a value that is not of its key's type, or a kind of judge that has no settings of its own.
        UnknownNameError: an unknown key.
    """
    (kind, _), (name, keys) = _kind(judge), without_keys(judge)
    if not keys:
        return {}
    known = [each for group in OWN for each in settings_of(group) if each.name in JUDGES[kind].heeds - {*SHARED}]
    if not known:
        raise InputError(f"{spelled('judge', judge)}: {name} has no settings; leave {keys} out")
    return parsed_keys([keys], keys=known, option=f"{spelled('judge')} {kind}")
