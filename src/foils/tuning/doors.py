"""The door of tuning."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from foils.data import Collection
from foils.data.description import describe_collection
from foils.data.read import CollectionLike, CollectionSettings, is_pairs
from foils.data.records import whole_json
from foils.data.splitting import SPLITS, with_three_splits
from foils.encode.models import DEFAULT_MODEL, STATIC
from foils.encode.opening import StoreSettings
from foils.runtime.doors import door
from foils.runtime.errors import InputError, require
from foils.runtime.files import fill_folder, write_json, write_sealed
from foils.runtime.options import Option, refuse, spelled
from foils.runtime.surroundings import MemorySettings
from foils.tuning.explained import Explained
from foils.tuning.parts import check_sizes, shares_of
from foils.tuning.plan import Plan
from foils.tuning.results import Merged, Tuned
from foils.tuning.run import PLANNED, Tuning
from foils.tuning.settings import OF_LOADING, OF_RERANKERS, OF_TRAINING, TuneSettings

PAGE, RESULT = "report.html", "tune.json"
OF_DATA = ("split_shares", "digest", *SPLITS)  # what of a tuning is given by its data
OF = "given.json"  # in the folder of what is kept: what the tuning there was given

log = logging.getLogger(__name__)


def _check(
    collection: CollectionLike | None,
    model: str | None,
    output: Path | None,
    plan: Path | None,
    explain: bool,
    settings: TuneSettings,
    reading: CollectionSettings,
) -> None:
    """Refuse what does not go together, before anything is read."""
    if plan is not None:
        why = f"with {spelled('plan')}, which holds it; change it there, or leave it out"
        refuse({"model": model, **settings.changed(), **reading.changed()}, why)
    elif collection is None:
        raise InputError(f"nothing to tune on; give a collection, or {spelled('plan')} FILE")
    elif output is None and not explain:
        raise InputError(f"no folder to write to; give {spelled('output')} FOLDER")
    if (model or "").startswith(STATIC):
        why = f"with {spelled('model')} {model}, a bag of words, whose training takes little memory; leave it out"
        refuse(settings.changed(*OF_TRAINING), why)


@door(check=_check)
def tune(
    collection: Annotated[CollectionLike | None, Option(metavar="COLLECTION")] = None,
    *,
    model: Annotated[str | None, Option(metavar="MODEL")] = None,
    output: Annotated[Path | None, Option(short="-o", metavar="FOLDER")] = None,
    plan: Annotated[Path | None, Option(metavar="FILE")] = None,
    explain: bool = False,
    settings: TuneSettings,
    device: str | None = None,
    reading: CollectionSettings,
    storing: StoreSettings,
    memory: MemorySettings,
) -> Tuned | Explained:
    """Make a model better by pairs, in one go: mine, decide, choose on dev, train, and prove it on test.

    The folder gets plan.toml (every decision with its reason), report.html, tune.json, the negatives and, only where it
    is significantly better on test, the folder model. Else the base is kept, and the program ends with status 1. A
    tuning that was stopped goes on where it was, by the same command.

    Args:
        collection: Pairs to tune on, as foils describe reads them; about 200 or more. With plan: the plan's.
        model: Model to tune: a folder, a hub name, the embedded all-MiniLM-L6-v2, or static:NAME for the word table of
            one. Default: all-MiniLM-L6-v2.
        output: Folder for everything. With plan: its folder.
        plan: Run the decisions of this plan.toml; a section that was taken out of it is decided anew.
        explain: Show the plan and what it costs, and stop; nothing is written.
        device: torch device, e.g. cuda:0. Default: the first one available.

    Raises:
        InputError: too few pairs, a collection, model or plan that cannot be read, or a folder that holds another
            tuning.
        FailureError: the loss is not a finite number, or a file cannot be written.
    """
    decisions = Plan() if plan is None else Plan.read(Path(plan))
    if settings.lora is not None or decisions.sections.get("given", {}).get("lora"):
        require("peft", "lora")
    shares: Any = reading.split_shares
    if plan is not None:
        given = decisions["given"]
        read = {name: given.get(name) for name in ("columns", "corpus")}
        reading = replace(reading, **read, keep_identical_ids=bool(given.get("keep_identical_ids", False)))
        shares = given.get("split_shares")
        collection = given["collection"] if collection is None else collection
    whole, shares = _with_splits(collection, reading, shares)
    if plan is None:
        decisions.sections["given"] = _given(collection, whole, model or DEFAULT_MODEL, settings, reading, shares)
    elif decisions["given"].get("digest") not in (None, whole.digest):
        raise InputError(
            f"{whole.name} holds other data than when {plan} was made; take the digest out of it to run it all the same"
        )
    folder = Path(output or (Path(plan).parent if plan is not None else ""))
    warnings = describe_collection(whole).warnings
    for each in warnings:
        log.info("warning: %s", each)
    tuning = Tuning(whole, decisions, folder, storing.open_store(), device, warnings)
    if explain:
        return Explained(decisions, tuning.schedule(keep=False))
    _claim(folder, decisions, plan)
    tuned = tuning.run()
    write_json(folder / RESULT, tuned.to_json())
    tuned.report(folder / PAGE)
    tuning.tidy()
    log.info("report: %s", folder / PAGE)
    return tuned


@door
def merge(
    base: Annotated[str, Option(metavar="BASE")],
    tuned: Annotated[str, Option(metavar="TUNED")],
    *,
    output: Annotated[Path, Option(short="-o", metavar="FOLDER")],
    alpha: Annotated[float, Option(least=0, most=1)] = 0.5,
    reranker: bool = False,
    device: str | None = None,
) -> Merged:
    """Merge a model with one that was trained from it: each weight lies between theirs.

    A merge often keeps more of what the base knew, at little cost of what was learned. foils tune --keep tries several.

    Args:
        base: Model that was trained further: a folder, a hub name, the embedded all-MiniLM-L6-v2, or static:NAME.
        tuned: What became of it, another model of the same architecture.
        output: Folder to write the merged model to.
        alpha: Share of the tuned model's weights; 0 gives the base, 1 the tuned model.
        reranker: Merge cross-encoders instead of encoders.
        device: torch device, e.g. cuda:0. Default: the first one available.

    Raises:
        InputError: a model that cannot be loaded, or two of different architectures.
        FailureError: the folder cannot be written.
    """
    from foils.encode.cross_encoders import load_cross_encoder
    from foils.encode.models import load_model
    from foils.training.merging import merged
    from foils.training.trainer import writing_weights

    load: Callable[..., Any] = load_cross_encoder if reranker else load_model
    model = merged(load(base, device=device), load(tuned, device=device), alpha)
    folder = Path(output)
    with writing_weights(folder), fill_folder(folder) as aside:
        model.save_pretrained(str(aside))
        card = aside / "README.md"
        note = f"## Merged with foils\n\n{1 - alpha:g} × `{base}` + {alpha:g} × `{tuned}`\n"
        card.write_text(f"{card.read_text('utf-8').rstrip()}\n\n{note}", encoding="utf-8", newline="\n")
    return Merged(folder, str(base), str(tuned), alpha)


def _with_splits(given: Any, reading: CollectionSettings, shares: Any) -> tuple[Collection, tuple[float, ...]]:
    """Return the collection with three splits, and the shares by which those that it lacks are split off."""
    loaded = replace(reading, split_shares=None).open(given)
    shares = tuple(shares or shares_of(len(loaded.known_positives)))
    if is_pairs(given):
        loaded = replace(reading, split_shares=shares).open(given)
    whole = with_three_splits(loaded, shares)
    check_sizes(whole)
    return whole, shares


def _given(
    collection: Any, whole: Collection, model: str, settings: TuneSettings, reading: CollectionSettings,
    shares: tuple[float, ...],
) -> dict[str, Any]:  # fmt: skip
    """Section [given]: what the tuning begins with."""
    counts = {name: len(whole.positives(name)) for name in SPLITS}
    texts = isinstance(collection, (str, Path))
    named = ("matryoshka", *OF_TRAINING, *OF_LOADING, *OF_RERANKERS)
    read = {
        name: _plain(value)
        for name, value in reading.changed().items()
        if isinstance(value, (str, Path, Mapping, bool))
    }
    return {
        "collection": str(collection) if texts else whole.name,
        **read,
        "split_shares": list(shares),
        "digest": whole.digest,
        "model": model,
        "minutes": settings.minutes,
        "max_length": settings.max_length,
        "keep": settings.keep,
        "seed": settings.seed,
        **{name: _plain(value) for name, value in settings.changed(*named).items()},
        "train": counts["train"],
        "dev": counts["dev"],
        "test": counts["test"],
        "reason": "train is trained on, dev chooses, test is looked at once, at the end",
    }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return str(value) if isinstance(value, Path) else dict(value) if isinstance(value, Mapping) else value


def _claim(folder: Path, decisions: Plan, plan: Path | None) -> None:
    """Note in the folder what the tuning is given, unless another one has finished a step there.

    Raises:
        InputError: the folder holds a tuning that was given something else.
    """
    path, planned = folder / "work" / OF, folder / "work" / PLANNED
    given = {key: value for key, value in decisions["given"].items() if value is not None}
    text = "" if plan is None else decisions.to_toml()
    if not path.is_file() or [*path.parent.iterdir()] == [path]:
        write_sealed(path, {"given": given, "plan": text})
        return
    before = whole_json(path)
    same = before.get("given") == given and before.get("plan") == text
    if not same and not (plan is not None and planned.is_file() and whole_json(planned).get("plan") == text):
        raise InputError(
            f"{folder} holds another tuning, {_unlike(before.get('given', {}), given)}; the same command goes on with "
            f"it; for this one give another folder ({spelled('output')}), or remove that one"
        )


def _unlike(before: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Say what a tuning was given that this one is not."""
    names = [name for name in {**before, **given} if before.get(name) != given.get(name) and name not in OF_DATA]
    if names:
        return "given " + ", ".join(
            f"{name} {before.get(name, 'none')} in place of {given.get(name, 'none')}" for name in names
        )
    return "of other data" if before != given else "of another plan"
