"""What to type next: the command that mostly follows a verb, made from what it was given and what it wrote."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from foils.cli.verbs import door_of
from foils.runtime.options import several

Values = Mapping[str, Any]

CARRIED = (
    "columns", "corpus", "add_judgements", "split", "device", "query_prompt", "document_prompt", "similarity",
    "trust_remote_code",
)  # fmt: skip
"""Settings that the next verb has to be given as well: how the collection is read, and how the model is used."""


def following(verb: str, result: Any, typed: Values) -> str:
    """Return the command that mostly follows a verb; empty where none does, or where what it needs is not known.

    Args:
        verb: that has ended.
        result: of the verb.
        typed: the values of its options, as they were typed.
    """
    return (ADVICE[verb](result, typed) if verb in ADVICE else None) or ""


def command(verb: str, arguments: list[Any], typed: Values, **options: Any) -> str | None:
    """Return a command in a shell's words; None where one of its arguments or options is not known.

    Args:
        verb: of the command.
        arguments: its arguments; a list stands for several.
        typed: the values of the verb before, of which `CARRIED` go on.
        options: by their names in the program, `output` for `-o`; a list stands for the option several times.
    """
    settings = door_of(verb).settings
    words = [str(word) for argument in arguments for word in several(argument)]
    flags = {"-o" if name == "output" else f"--{name.replace('_', '-')}": value for name, value in options.items()}
    for name in CARRIED:
        value = typed.get(name)
        if name in settings and value not in (None, settings[name].default):
            flags.setdefault(settings[name].flag, value)
    for flag, value in flags.items():
        for each in several(value):
            words += [flag] if each is True else [flag, str(each)]
    return None if "None" in words else shlex.join(["foils", verb, *words])


def _encoder(typed: Values) -> dict[str, Any]:
    """The encoder, where one was named."""
    return {name: typed[name] for name in ("encoder",) if typed.get(name)}


def _after_mine(_: Any, typed: Values) -> str | None:
    return command("score", [typed["collection"], typed["output"]], typed, **_encoder(typed))


def _after_fuse(_: Any, typed: Values) -> str | None:
    return command("score", [typed["collection"], typed["sources"], typed["output"]], typed)


def _after_score(result: Any, typed: Values) -> str | None:
    """Label where labels may settle a tie; else train on what was chosen: the sources are typed as [NAME=]PATH."""
    decision = result.decision
    if decision is None:
        return None
    if decision.tied and decision.label_next and not decision.labels:
        arguments = [typed["collection"], typed["sources"]]
        return command("label", arguments, typed, number=decision.label_next, output="labels.tsv")
    model = {"model": typed["encoder"]} if typed.get("encoder") else {}
    chosen = decision.source
    names = {
        word: word.partition("=")[0] if "=" in word else Path(word).name.split(".")[0] for word in typed["sources"]
    }
    source = [word for word, name in names.items() if name == chosen]
    if chosen is not None and not source:  # random ones, which no file holds
        return command("mine", [typed["collection"]], typed, output="random.parquet", **{"with": "random"})
    return command("train", [typed["collection"], *source], typed, **model, output="model")


def _after_label(_: Any, typed: Values) -> str | None:
    """Decide with the labels; or read the sheet back, once it is filled in, with the same draw."""
    draw = {name: typed[key] for name, key in (("number", "n"), ("seed", "seed")) if key in typed}
    sources = [typed["collection"], typed["sources"]]
    if typed.get("sheet"):
        output = typed.get("output") or "labels.tsv"
        return command("label", sources, typed, answers=typed["sheet"], **draw, output=output)
    if not typed.get("output"):
        return None
    return command("score", sources, typed, labels=typed["output"], **_encoder(typed))


def _train_on_output(_: Any, typed: Values, **options: Any) -> str | None:
    return command("train", [typed.get("collection"), typed["output"]], typed, **options, output="model")


def _after_relabel(_: Any, typed: Values) -> str | None:
    promoted = {"add_judgements": typed["promoted"]} if typed.get("promoted") else {}
    return _train_on_output(_, typed, **promoted)


def _after_train(_: Any, typed: Values) -> str | None:
    """Compare on test with what training started from; a reranker orders what BM25 returns."""
    model = door_of("train").settings["model"].default if typed.get("model") is None else typed["model"]
    if typed.get("reranker"):
        options: dict[str, Any] = {"model": "bm25", "reranker": typed["output"]}
    else:
        options = {"model": [f"base={model}", f"tuned={typed['output']}"]}
    return command("evaluate", [typed["collection"]], {**typed, "split": None}, **options)


ADVICE: dict[str, Callable[[Any, Values], str | None]] = {
    "describe": lambda _, typed: command("mine", [typed["collection"]], typed, output="bm25.parquet"),
    "mine": _after_mine,
    "generate": _after_mine,
    "filter": _after_mine,
    "fuse": _after_fuse,
    "score": _after_score,
    "score-pairs": lambda result, typed: _train_on_output(result, typed, loss="margin-mse"),
    "label": _after_label,
    "rate": lambda _, typed: command("select", [typed["output"]], {}, output="train.parquet"),
    "select": _train_on_output,
    "relabel": _after_relabel,
    "compose": _train_on_output,
    "train": _after_train,
    "search": lambda _, typed: command("evaluate", [typed["collection"]], typed, run=typed.get("run")),
    "study": lambda _, typed: command("report", [typed["output"]], {}, output="report.html"),
}
