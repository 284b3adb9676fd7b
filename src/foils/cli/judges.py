"""The judges of foils rate: their names, their options, and what becomes of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli import options as opt
from foils.cli.groups import panel
from foils.cli.llm_options import LLMOptions
from foils.cli.show import number, say, show_table
from foils.runtime.errors import InputError

if TYPE_CHECKING:
    from foils.data import Collection
    from foils.data.sources import NamedSource
    from foils.rating import Distilled, Judge, JudgementRecord, Rated
    from foils.rating.llm_judge import LLMJudge


_llm = panel("Language model")
_distil = panel("Distillation")


@dataclass(frozen=True)
class QuestionOptions:
    """What a language model is asked about a pair."""

    question: Annotated[
        Path | None, _llm("--question", "A prompt of your own, with {query}, {first}, {second}.", metavar="FILE")
    ] = None
    answer: Annotated[str, _llm("--answer", "Its form: preference (a number) or choice (A, B or tie).")] = "preference"
    domain: Annotated[str, _llm("--domain", "The field of the collection, told to the model.")] = "general"
    asks: Annotated[int, _llm("--asks", "How often a question is asked until its answer can be read.", min=1)] = 2
    longest: Annotated[int, _llm("--longest", "Characters of a document that are shown.", min=1)] = 6000


@dataclass(frozen=True)
class DistilOptions:
    """Training a small judge on the answers."""

    distil: Annotated[
        Path | None,
        _distil("--distil", "Train a pairwise judge on the answers, for --judge pairwise:FOLDER.", metavar="FOLDER"),
    ] = None
    distil_from: Annotated[
        str, _distil("--distil-from", "The transformer to begin with: a folder or hub name.", metavar="MODEL")
    ] = opt.DEFAULT_ENCODER
    distil_epochs: Annotated[int, _distil("--distil-epochs", "Passes over the answers.", min=1)] = 1
    distil_rate: Annotated[float, _distil("--distil-learning-rate", "The peak of it.")] = 5e-5
    distil_length: Annotated[int, _distil("--distil-length", "Tokens of query and both documents.", min=16)] = 256

    def check(self) -> None:
        """Raise an InputError where the folder is taken, before anything is asked."""
        from foils.rating.pairwise import check_free

        if self.distil is not None:
            check_free(self.distil)

    def train(self, rated: Rated, seed: int, device: str | None) -> dict[str, Any]:
        """Train the judge on everything that was asked, save it, show how it does, and return that for JSON."""
        from foils.encode.models import find_model
        from foils.rating import distil

        if self.distil is None:
            return {}
        found = distil(
            find_model(self.distil_from),
            rated.candidates,
            rated.pairs,
            rated.preference,
            epochs=self.distil_epochs,
            learning_rate=self.distil_rate,
            max_length=self.distil_length,
            seed=seed,
            device=device,
            name=self.distil.name,
        )
        found.judge.save(self.distil)
        return {"distilled": _show_distilled(found, self.distil)}


@dataclass(frozen=True)
class Judging:
    """What the judges need of the command line."""

    collection: Collection
    temperature: float | None
    encoder: opt.EncoderOptions
    llm: LLMOptions
    question: QuestionOptions

    def made(self, spec: str) -> Judge:
        """Return the judge that a --judge names."""
        kind, _, where = spec.partition(":")
        return JUDGES[kind](where, self) if kind in JUDGES else _bi_encoder(spec, self)

    def temperature_or(self, usual: float) -> float:
        """Return the temperature that was given, or the usual one."""
        return usual if self.temperature is None else self.temperature


def _bi_encoder(where: str, judging: Judging) -> Judge:
    from foils.rating import BiEncoderJudge

    chosen = replace(judging.encoder, encoder=where) if where else judging.encoder
    encoder, store = chosen.open(judging.collection)
    return BiEncoderJudge(encoder, temperature=judging.temperature_or(0.05), store=store)


def _cross_encoder(where: str, judging: Judging) -> Judge:
    from foils.rating import load_cross_encoder_judge

    if not where:
        raise InputError("--judge cross-encoder needs its model: cross-encoder:MODEL")
    return load_cross_encoder_judge(
        where,
        temperature=judging.temperature_or(1.0),
        max_length=judging.encoder.max_length,
        device=judging.encoder.device,
        trust_remote_code=judging.encoder.trust_remote_code,
    )


def _pairwise(where: str, judging: Judging) -> Judge:
    from foils.rating import load_pairwise_judge

    if not where:
        raise InputError("--judge pairwise needs its folder: pairwise:FOLDER, made by --distil FOLDER")
    return load_pairwise_judge(where, temperature=judging.temperature_or(1.0), device=judging.encoder.device)


def _language_model(where: str, judging: Judging) -> Judge:
    from foils.llm import Sampling
    from foils.rating import LLMJudge, QuestionSettings

    llm, asked = judging.llm, judging.question
    if not (where or llm.llm_model):
        raise InputError("--judge llm needs the model's name on the server: llm:MODEL, or --llm-model")
    question = QuestionSettings(**vars(asked))
    sampling = Sampling(llm.llm_temperature, llm.most_tokens)
    client = replace(llm, llm_model=where or llm.llm_model).client()
    return LLMJudge(client, llm.folder(judging.collection) / "judge", question, sampling)


def _recorded(where: str, judging: Judging) -> Judge:
    from foils.rating import RecordedJudge

    if not where:
        raise InputError("--judge recorded needs its file or folder: recorded:PATH")
    return RecordedJudge(where)


JUDGES: dict[str, Callable[[str, Judging], Judge]] = {
    "bi-encoder": _bi_encoder,
    "cross-encoder": _cross_encoder,
    "pairwise": _pairwise,
    "llm": _language_model,
    "recorded": _recorded,
}


@dataclass(frozen=True)
class JudgeOptions:
    """Who says which of two documents answers better, and where that is kept."""

    judge: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JUDGE",
            help="bi-encoder[:MODEL], cross-encoder:MODEL, pairwise:FOLDER, llm[:MODEL], or recorded:PATH; a bare "
            "MODEL is a bi-encoder. Several of them: their mean. Default: bi-encoder, with --encoder.",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(help="Divides differences of scores. Default: 0.05 for cosines, 1 for a cross-encoder's logits."),
    ] = None
    judgements: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Where judgements are kept, so that none is asked twice; with several judges, in a folder for each "
            "inside it. Default: the cache.",
        ),
    ] = None

    def open(
        self, collection: Collection, encoder: opt.EncoderOptions, llm: LLMOptions, question: QuestionOptions
    ) -> list[Judge]:
        """Load the judges."""
        judging = Judging(collection, self.temperature, encoder, llm, question)
        return [judging.made(spec) for spec in self.judge or ["bi-encoder"]]

    def records(self, judges: list[Judge], collection: Collection, given: NamedSource) -> list[JudgementRecord | None]:
        """Return where each judge's judgements on a source are kept; None where they are recorded as it is."""
        from foils.data.store import cache_folder
        from foils.rating import JudgementRecord, RecordedJudge

        def record(judge: Judge) -> JudgementRecord | None:
            if isinstance(judge, RecordedJudge):
                return None
            key = {"judge": judge.fingerprint, "collection": collection.digest}
            if "text" in given.negatives.table.column_names:  # its ids name texts of its own
                key["source"] = given.digest
            own = self.judgements and (self.judgements / judge.fingerprint[:16] if len(judges) > 1 else self.judgements)
            place = own or cache_folder() / "judgements" / "-".join(value[:16] for value in key.values())
            return JudgementRecord(place, key)

        return [record(judge) for judge in judges]


def language_models(judges: list[Judge]) -> list[LLMJudge]:
    """Return those that are language models."""
    from foils.rating import LLMJudge

    return [judge for judge in judges if isinstance(judge, LLMJudge)]


def usage_rows(judges: list[LLMJudge], llm: LLMOptions) -> list[tuple[str, str]]:
    """Return what the language models used and where they failed, for a table."""
    rows = []
    for judge in judges:
        used = [*llm.usage_rows(judge.asked.usage)]
        used += [(f"failed: {why}", f"{count:,}") for why, count in judge.asked.failures.most_common()]
        rows += [(f"{judge.name}: {what}", value) for what, value in used]
    return rows


def _show_distilled(found: Distilled, folder: Path) -> dict[str, Any]:
    rows = [
        ("judgements trained on", f"{found.trained:,}"),
        ("judgements held out", f"{found.held_out:,}"),
        ("loss on them", number(found.loss)),
        ("the least it can be", number(found.least_loss)),
        ("prefers what its teachers do", number(found.agreement)),
        ("effect of the order, before averaging", number(found.order_effect)),
    ]
    show_table(f"distilled → {folder}", ["", "value"], rows)
    say(f"use it: foils rate … --judge pairwise:{folder}")
    names = ("trained", "held_out", "loss", "least_loss", "agreement", "order_effect")
    return {name: getattr(found, name) for name in names}
