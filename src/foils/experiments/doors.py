"""The doors of tunings, of studies and of the demo."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, cast

from foils.data import load_collection
from foils.data.collection import SPLITS
from foils.data.description import describe, with_three_splits
from foils.data.read import CollectionLike, CollectionSettings, identical_ids_caption
from foils.data.records import read_sealed
from foils.data.sources import SourcesLike, as_sources
from foils.data.tokens import BM25Settings
from foils.deciding.decision import mine
from foils.encode.models import DEFAULT_MODEL, STATIC
from foils.experiments.analysis import StudyAnalysis, analyse
from foils.experiments.plan import LEAST, Plan
from foils.experiments.score import Scored, score
from foils.experiments.study import StudySettings, open_study, read_cells, run_cells
from foils.experiments.tune import PAGE, Tuning
from foils.experiments.tuned import Tuned
from foils.runtime.errors import InputError
from foils.runtime.files import FOLDER, fill_folder, write_json, write_sealed
from foils.runtime.options import Option, Settings, door, several, spelled
from foils.runtime.results import Result, Table

StudiesLike = Annotated[str | Path | Sequence[str | Path], Option(metavar="STUDY", repeated=True)]
TestsLike = CollectionLike | Sequence[CollectionLike]

GIVEN = "given.json"
PACKAGES = "networkx", "scipy"
"""Whose documentation the demo reads: a part of pydocs; a transformer takes half a minute on two cores."""
MINUTES = 0.5  # of the demo's tuning

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TuneSettings(Settings):
    """How much is tried.

    Attributes:
        minutes: Time that the tuning may take, about. Where there is no time for the plain training,
            its texts are cut to 128 tokens, then it has fewer steps, but at least 100, which are
            finished even where they take longer. Default: as long as other settings are better on
            dev.
        max_length: Tokens after which a text is cut in training. The model that is written keeps
            its own maximum, and everything is measured at that. Default: the shortest of 64, 128,
            256, 512 and the model's own maximum that cuts fewer than 5 % of the documents' tokens.
        lora: Rank of low-rank adapters (LoRA), which are trained in the place of the model's own
            weights, then merged into them, with activations computed again: less memory for large
            models. Needs the extra lora.
        trust_remote_code: Run code that comes with the models.
        reranker: Tune a cross-encoder instead of an encoder; without a trained head, as from a
            masked language model, it is measured against the first stage.
        first_stage: What a reranker reranks, the first 50 documents of each query: bm25, an
            encoder, a folder of foils tune, or a TREC run of the queries of dev and test. Default:
            bm25.
        seed: Seed of what is drawn and of training; the same seed gives the same bytes.
    """

    heading = "Tuning"

    minutes: Annotated[float | None, Option(above=0)] = None
    max_length: Annotated[int | None, Option(metavar="TOKENS", least=2)] = None
    lora: Annotated[int | None, Option(metavar="RANK", least=1)] = None
    trust_remote_code: bool = False
    reranker: bool = False
    first_stage: Annotated[str | None, Option(metavar="bm25|MODEL|RUN", needs={"reranker": True})] = None
    seed: Annotated[int, Option(least=0)] = 0


@door
def tune(
    collection: CollectionLike,
    *,
    model: Annotated[str, Option(metavar="MODEL")] = DEFAULT_MODEL,
    output: Annotated[Path | None, Option(short="-o", metavar="FOLDER", writes=(FOLDER,))] = None,
    explain: bool = False,
    settings: TuneSettings,
    lexical: BM25Settings,
    device: str | None = None,
    reading: CollectionSettings,
) -> Tuned | Plan:
    """Make a model better by pairs: train plainly, try other settings, choose on dev, report on test.

    BM25, the model and both together are candidates alike, and what to deploy is chosen on dev. The
    folder gets retriever.json, by which foils search FOLDER answers new queries, report.html,
    tune.json (every decision with its reason), the negatives and, where dev took a trained model,
    the folder model. Else the base is kept, and the program ends with status 1. A tuning that was
    stopped goes on where it was, by the same command.

    Args:
        collection: Pairs to tune on, as foils describe reads them; about 200 or more.
        model: Model to tune: a folder, a hub name, the embedded all-MiniLM-L6-v2, or static:NAME
            for the word table of one.
        output: Folder for everything.
        explain: Show the plan, and stop; nothing is written.
        device: torch device, e.g. cuda:0. Default: the first one available.

    Example:
        foils tune pairs.csv --model all-MiniLM-L6-v2 --minutes 30 -o better/

    Raises:
        InputError: too few pairs, a collection or model that cannot be read, or a folder that holds
            another tuning.
        FailureError: the loss is not a finite number, or a file cannot be written.
    """
    if output is None and not explain:
        raise InputError(f"no folder to write to; give {spelled('output')} FOLDER")
    whole = with_three_splits(reading.open(collection))
    counts = {name: len(whole.labels(name)) for name in LEAST}
    if any(counts[name] < least for name, least in LEAST.items()):
        shown = ", ".join(f"{name} has {counts[name]:,} ({least} are needed)" for name, least in LEAST.items())
        raise InputError(f"{whole.name}: too few queries with a positive: {shown}; give about 200 pairs")
    read = {name: each for name, each in reading.changed().items() if isinstance(each, (str, Path, Mapping, bool))}
    given = {
        "collection": str(collection) if isinstance(collection, (str, Path)) else whole.name,
        **{**read, "digest": whole.digest, "model": model, **settings.changed()},
        **{"minutes": settings.minutes, "seed": settings.seed},
        **{name: len(whole.positives(name)) for name in SPLITS},
        "bm25": lexical.resolved(whole).facts,
        "reason": "train is trained on, dev chooses, test is reported as it comes",
    }
    plan = Plan({"given": json.loads(json.dumps(given, default=str))})
    warnings = describe(whole).warnings
    for each in warnings:
        log.info("warning: %s", each)
    if output is None or explain:
        with TemporaryDirectory() as folder:
            Tuning(whole, plan, Path(folder), device).schedule()
        return plan
    _claim(Path(output), plan["given"])
    return Tuning(whole, plan, Path(output), device, warnings=list(warnings)).run()


def _claim(folder: Path, given: Mapping[str, Any]) -> None:
    """Note in the folder what the tuning is given, unless another one has finished a step there.

    Raises:
        InputError: the folder holds a tuning that was given something else.
    """
    path = folder / "work" / GIVEN
    if not path.is_file() or [*path.parent.iterdir()] == [path]:
        write_sealed(path, given)
    elif (before := read_sealed(path)) != given:
        names = [name for name in {**before, **given} if before.get(name) != given.get(name)]
        other = f"{folder} holds another tuning, with another {', '.join(names)}"
        raise InputError(f"{other}; the same command goes on with it, for this one give another folder")


@dataclass(frozen=True)
class Merged(Result):
    """A merge of two models.

    Attributes:
        path: the folder that it is written to.
        base: name of the first model. `tuned`: of the second. `alpha`: share of the second's weights.
    """

    path: Path
    base: str
    tuned: str
    alpha: float

    def tables(self) -> list[Table]:
        """Return what was merged."""
        rows = [(self.base, f"{1 - self.alpha:g}"), (self.tuned, f"{self.alpha:g}")]
        return [Table(f"Merged → {self.path}", ["model", "share of the weights"], rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the attributes."""
        return {**vars(self), "path": str(self.path)}


@door
def merge(
    base: Annotated[str, Option(metavar="BASE")],
    tuned: Annotated[str, Option(metavar="TUNED")],
    *,
    output: Annotated[Path, Option(short="-o", metavar="FOLDER", writes=(FOLDER,))],
    alpha: Annotated[float, Option(least=0, most=1)] = 0.5,
    reranker: bool = False,
    device: str | None = None,
) -> Merged:
    """Merge a model with one that was trained from it: each weight lies between theirs.

    A merge often keeps more of what the base knew, at little cost of what was learned.

    Args:
        base: Model that was trained further: a folder, a hub name, the embedded all-MiniLM-L6-v2,
            or static:NAME.
        tuned: What became of it, another model of the same architecture.
        output: Folder to write the merged model to.
        alpha: Share of the tuned model's weights; 0 gives the base, 1 the tuned model.
        reranker: Merge cross-encoders instead of encoders.
        device: torch device, e.g. cuda:0. Default: the first one available.

    Example:
        foils merge all-MiniLM-L6-v2 better/model/ --alpha 0.5 -o merged/

    Raises:
        InputError: a model that cannot be loaded, or two of different architectures.
        FailureError: the folder cannot be written.
    """
    from foils.encode.models import load_cross_encoder, load_model, seal_weights
    from foils.training.fit import add_to_card, writing_weights
    from foils.training.models import merged

    load: Callable[..., Any] = load_cross_encoder if reranker else load_model
    untrained = {} if reranker else {"new_head": True}  # of the base its weights alone are taken
    model = merged(load(base, device=device, **untrained), load(tuned, device=device), alpha)
    folder = Path(output)
    with writing_weights(folder), fill_folder(folder) as aside:
        model.save_pretrained(str(aside))
        seal_weights(aside)
        add_to_card(aside, f"## Merged with foils\n\n{1 - alpha:g} × `{base}` + {alpha:g} × `{tuned}`\n")
    return Merged(folder, str(base), str(tuned), alpha)


@door
def study(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    models: Annotated[list[str], Option(flag="--model", metavar="MODEL", repeated=True)],
    output: Annotated[Path, Option(short="-o", metavar="FOLDER", writes=(FOLDER,))],
    test_on: Annotated[TestsLike | None, Option(metavar="COLLECTION", repeated=True)] = None,
    all_predictors: Annotated[bool, Option(flag="--all")] = False,
    settings: StudySettings,
    device: str | None = None,
    reading: CollectionSettings,
) -> StudyAnalysis:
    """Train on each source with several seeds, measure, and say which predictor foresaw the results' order.

    Every call adds a collection, sources, models or seeds to the study in the folder. What is there
    is not done again, and a study that was stopped goes on where it was. The folder gets
    results.json and report.html.

    Args:
        models: What to train: a folder, a hub name, all-MiniLM-L6-v2, or static:NAME for the word
            table of one; may be given several times.
        output: Folder of the study; a call adds to it.
        test_on: Collection to measure on; may be given several times, and then the means are
            averaged. In Python also Collection objects. Default: the one that is trained on.
        all_predictors: Show the table of all predictors even where the study cannot tell them apart.
        device: torch device, e.g. cuda:0. Default: the first one available.

    Example:
        foils study scifact/ bm25.parquet dense.parquet random.parquet --model static:all-MiniLM-L6-v2 -o study/

    Raises:
        InputError: fewer than two sources, a source that cannot be trained on, a model that cannot
            be loaded, or settings out of range; before anything is trained.
        UnknownNameError: an unknown split, loss or way of filling batches.
    """
    names = [str(each) for each in ([models] if isinstance(models, (str, Path)) else models)]
    folder, loaded = Path(output), reading.open(collection)
    given = () if test_on is None else several(cast("Any", test_on))
    tests = [reading.open(each) for each in given]
    for tested in tests or [loaded]:
        if remark := identical_ids_caption(tested.identical_ids(settings.test_split)):
            log.info(remark)
    tables = {source.name: source.negatives for source in as_sources(sources, loaded)}
    run_cells(open_study(folder, loaded, tables, names, settings, tests=tests, device=device))
    analysis: StudyAnalysis = report(folder, all_predictors=all_predictors)
    write_json(folder / "results.json", analysis.to_json())
    analysis.report(folder / PAGE)
    log.info("report: %s", folder / PAGE)
    return analysis


@door
def report(
    studies: StudiesLike,
    *,
    measure: str | None = None,
    seed: Annotated[int, Option(least=0)] = 0,
    all_predictors: Annotated[bool, Option(flag="--all")] = False,
) -> StudyAnalysis:
    """Compare predictors with what was measured, in one study or in several together.

    A study that still runs can be looked at: what is finished is shown.

    Args:
        studies: Folder of a study; several may be given.
        measure: Compare predictors with this measure. Default: the first of the study.
        seed: Seed of the bootstraps; the same seed gives the same bytes.
        all_predictors: Show the table of all predictors even where the study cannot tell them apart.

    Example:
        foils report study/ other-study/ --measure RR@10 -o report.html

    Raises:
        InputError: no study in a folder, or nothing finished in any.
    """
    cells = [cell for each in several(cast("Any", studies)) for cell in read_cells(Path(each))]
    return replace(analyse(cells, measure=measure, seed=seed), all_predictors=all_predictors)


@dataclass(frozen=True)
class Demo(Result):
    """What the demo shows: a decision, and a proof.

    Attributes:
        scores: Random, BM25 and dense negatives, and which of them to train the encoder on.
        tuned: The model before and after tuning.
    """

    scores: Scored
    tuned: Tuned

    def tables(self) -> list[Table]:
        """Return the tables of the scores, and the proof."""
        return [*self.scores.tables(), self.tuned.tables()[0]]

    def to_json(self) -> dict[str, Any]:
        """Return both."""
        return {"scores": self.scores.to_json(), "tuned": self.tuned.to_json()}


@door
def demo(
    output: Annotated[Path, Option(flag="--output", short="-o", metavar="FOLDER", writes=(FOLDER,))] = Path(
        "foils-demo"
    ),
    *,
    encoder: Annotated[str, Option(metavar="MODEL")] = DEFAULT_MODEL,
    model: Annotated[str, Option(metavar="MODEL")] = f"{STATIC}{DEFAULT_MODEL}",
    seed: Annotated[int, Option(least=0)] = 0,
) -> Demo:
    """Mine negatives from the documentation of two packages, decide which to train on, and tune a model.

    It needs no network and no data: the texts are read from the installed packages, and the encoder
    comes with one.

    Args:
        output: Folder for the tables of negatives, scores.json, report.html and, in tuned/, what
            foils tune writes.
        encoder: Encoder that mines the dense negatives and that the decision is made for.
        model: Model that is tuned. Default: a static embedding, the word table of all-MiniLM-L6-v2,
            which trains in seconds on any machine.
        seed: Seed of random negatives, of the scores and of training; the same seed gives the same bytes.

    Example:
        foils demo -o foils-demo/
    """
    read, folder = f"pydocs:{','.join(PACKAGES)}", Path(output)
    collection = load_collection(read)
    options: dict[str, dict[str, Any]] = {"random": {"seed": seed}, "bm25": {}, "dense": {"encoder": encoder}}
    sources = {method: mine(collection, method, **more) for method, more in options.items()}
    for method, negatives in sources.items():
        negatives.write(folder / f"{method}.parquet")
    scores: Scored = score(collection, sources, encoder=encoder, seed=seed)
    write_json(folder / "scores.json", scores.to_json())
    scores.report(folder / PAGE)
    log.info("report: %s", folder / PAGE)
    tuned = tune(read, model=model, output=folder / "tuned", minutes=MINUTES, seed=seed)
    return Demo(scores, cast("Tuned", tuned))
