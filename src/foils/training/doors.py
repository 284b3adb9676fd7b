"""The door of training."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from foils.batching.methods import METHODS
from foils.data import Collection, Run
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike
from foils.data.tables import provenance
from foils.data.training_rows import RowSettings
from foils.encode.models import DEFAULT_MODEL, SIMILARITIES
from foils.runtime.doors import door
from foils.runtime.errors import InputError, require
from foils.runtime.options import Option, Settings, refuse, spelled
from foils.training.multi_dataset import DataSets, MixtureSettings, read_data_sets
from foils.training.results import Trained
from foils.training.settings import (
    CHECKPOINTS,
    MINED_ANEW,
    OPEN,
    PROGRESS,
    TRAINING_ARGS,
    MethodSettings,
    Recipe,
    TrainSettings,
    check_batches,
    completed,
)

if TYPE_CHECKING:
    from foils.training.data import TrainingSet
    from foils.training.refresh import Refresh

    ModelLike = str | Path | Any  # Any: a SentenceTransformer or a CrossEncoder
    RunLike = str | Path | Run
else:
    ModelLike = RunLike = str

MEASURE = "nDCG@10"


@dataclass(frozen=True, kw_only=True)
class DevSettings(Settings):
    """How the best model is chosen, and training stops.

    Attributes:
        dev: Split of the judgements by whose nDCG@10 the best of the checkpoints is chosen.
        dev_run: TREC run on the dev split that a reranker ranks anew. In Python also a `Run`.
    """

    heading = "Dev"

    dev: Annotated[str | None, Option(metavar="SPLIT")] = None
    dev_run: Annotated[RunLike | None, Option(metavar="FILE", needs={"dev": True, "reranker": True})] = None

    def score(self, collection: Collection, *more: Collection) -> Callable[[Any], float] | None:
        """Return the function from a model to its measure on dev, the mean over collections; None without dev."""
        from foils.encode.cross_encoders import logits
        from foils.evaluation import measure_encoder, measure_run, rerank_run

        if (dev := self.dev) is None:
            return None
        if self.dev_run is None:
            each = [one for one in (collection, *more) if dev in one.splits] or [collection]
            return lambda model: fmean(measure_encoder(model, one, dev, [MEASURE]).means[MEASURE] for one in each)
        run = self.dev_run if isinstance(self.dev_run, Run) else Run.read(self.dev_run)

        def reranked(model: Any) -> float:
            order = rerank_run(run, collection, partial(logits, model))
            return measure_run(order, collection, dev, [MEASURE]).means[MEASURE]

        return reranked


def _check(
    source: SourceLike | None,
    model: ModelLike,
    reranker: bool,
    method: MethodSettings,
    steps: TrainSettings,
    rows: RowSettings,
    evaluation: DevSettings,
    mixing: MixtureSettings,
) -> None:
    """Refuse what does not go together, before anything is read."""
    if not isinstance(model, (str, Path)) and reranker != _is_cross_encoder(model):
        raise InputError(
            f"a model of type {type(model).__name__}, and {spelled('reranker')} {reranker}; expected a "
            "CrossEncoder with reranker=True, or a SentenceTransformer"
        )
    if steps.lora is not None:
        require("peft", "lora")
    if reranker and evaluation.dev is not None and evaluation.dev_run is None:
        raise InputError(f"{spelled('dev')} needs a run for the reranker to rerank: give {spelled('dev_run')}")
    batches = method.batches or method.base().batches
    check_batches(batches, method.batch_settings)
    if mixing.also and batches not in METHODS:
        raise InputError(f"{spelled('batches', batches)} takes one data set; with {spelled('also')} give one of "
                         f"{', '.join(METHODS)}")  # fmt: skip
    form = _completed_rows(rows, method, reranker=reranker, negatives=mixing.has_sources(source)).form
    if form == "pairs":
        refuse({"refresh": method.refresh}, "with pairs: it mines the negatives of triplets or lists; leave it out")


@door(
    check=_check,
    needs={
        "similarity": {"reranker": False, "why": "which has no vectors"},
        "document_prompt": {"reranker": False, "why": "which has one prompt for a pair, query_prompt"},
    },
)
def train(
    collection: CollectionLike,
    source: Annotated[SourceLike | None, Option(metavar="SOURCE")] = None,
    *,
    model: Annotated[ModelLike, Option(metavar="MODEL")] = DEFAULT_MODEL,
    output: Annotated[str | Path, Option(short="-o", metavar="FOLDER")],
    reranker: bool = False,
    method: MethodSettings,
    mixing: MixtureSettings,
    similarity: Annotated[str | None, Option(names=SIMILARITIES, within=TRAINING_ARGS)] = None,
    query_prompt: Annotated[str | None, Option(within=TRAINING_ARGS)] = None,
    document_prompt: Annotated[str | None, Option(within=TRAINING_ARGS)] = None,
    trust_remote_code: Annotated[bool, Option(within=TRAINING_ARGS)] = False,
    steps: TrainSettings = OPEN,
    rows: RowSettings,
    evaluation: DevSettings,
    resume: bool = False,
    device: str | None = None,
    reading: CollectionSettings,
) -> Trained:
    """Train a model on a source of negatives, and write it with a card that says how.

    The folder holds the model, a card with data, settings and scores, and foils_training.json with the loss over time.
    Checkpoints lie in it until the model is written.

    Args:
        source: Negatives to train on, [NAME=]PATH. Without them, pairs alone are trained on. In Python also a table of
            negatives or a DataFrame.
        model: Model to train: a folder, a hub name, the embedded all-MiniLM-L6-v2, or static:NAME for the word table of
            one. In Python also a SentenceTransformer or a CrossEncoder, which is changed.
        output: Folder to write the model to.
        reranker: Train a cross-encoder instead of an encoder.
        resume: Continue from the last checkpoint in the folder.
        similarity: How the model compares vectors from now on: cosine, or dot (inner product, vectors as they are).
            Default: what it was made for.
        query_prompt: Text put before each query, of a reranker before each pair, in training and by the model from now
            on, or @NAME, the model's prompt of that name. Default: the model's own.
        document_prompt: The same for documents.
        trust_remote_code: Run code that comes with the model.
        device: torch device, e.g. cuda:0. Default: the first one available.

    Raises:
        InputError: something that cannot be read, options that have no effect together, nothing to train on, or
            checkpoints in the folder that are not to be resumed.
        UnknownNameError: no such split, recipe, loss, way of filling batches, or setting of one.
        FailureError: the loss is not a finite number, or a file cannot be written.
    """
    from foils.training.fit import save_model
    from foils.training.models import with_defaults
    from foils.training.train import train_model

    rows = _completed_rows(rows, method, reranker=reranker, negatives=mixing.has_sources(source))
    settings = completed(steps, method.base(), evaluated=evaluation.dev is not None)
    batching = method.describe()
    sets = read_data_sets(collection, source, mixing, reading)
    compared = {"similarity": similarity, "query_prompt": query_prompt, "document_prompt": document_prompt}
    own: dict[str, Any] = {"device": device, "trust_remote_code": trust_remote_code}
    load = partial(_trainable, model, settings, reranker=reranker, compared=compared, **own)
    data, refresh = _training_data(sets, rows, method, load)
    trainable = load()
    settings = with_defaults(settings, trainable)
    described = {"model": _name(model), "reranker": reranker, **batching, **vars(rows), **settings.describe()}
    described |= {**compared, **mixing.describe()}
    history = provenance("train", described, inputs=sets.inputs, seed=settings.seed)
    score, checkpoints = evaluation.score(*sets.collections.values()), Path(output) / CHECKPOINTS
    before = score(trainable) if score else None
    how = {name: batching[name] for name in ("batches", "batch_settings")} | {"score": score, "resume": resume}
    run = train_model(trainable, data, checkpoints, settings=settings, refresh=refresh, **how)
    known = {when: value for when, value in (("before", before), ("after", run.best)) if value is not None}
    scores = {f"{MEASURE} on {evaluation.dev} {when}": value for when, value in known.items()}
    trained = Trained(run.model, Path(output), run, history, data.counts, scores)
    if not int(os.environ.get("RANK", "0")):  # under torchrun the first process writes
        save_model(trained)
        if (checkpoints / "runs").is_dir():  # TensorBoard's
            shutil.copytree(checkpoints / "runs", trained.path / "runs", dirs_exist_ok=True)
        shutil.rmtree(checkpoints, ignore_errors=True)
    return trained


def _completed_rows(rows: RowSettings, method: MethodSettings, *, reranker: bool, negatives: bool) -> RowSettings:
    """Return which rows are trained on: what is open is the recipe's, or what suits the model and the source."""
    recipe: Recipe = method.base()
    usual = "triplets" if negatives or method.refresh else "pairs"
    rows = rows.completed("lists" if reranker else recipe.form or usual, max_positives=recipe.max_positives)
    return replace(rows, per_query=rows.per_query or MINED_ANEW) if method.refresh else rows


def _training_data(
    sets: DataSets, rows: RowSettings, method: MethodSettings, load: Callable[[], Any]
) -> tuple[TrainingSet, Refresh | None]:
    """Return what is trained on, and how it is mined anew.

    Args:
        sets: the data sets. Where one has no negatives: pairs alone or, where negatives are mined anew, those of the
            untrained model.
        rows: which are trained on.
        method: says how often negatives are mined anew, and how batches are filled.
        load: loads the untrained model.
    """
    from foils.training.refresh import ance_refresh, mined
    from foils.training.tiers import outside_danger

    negatives, refresh = {name: each.negatives for name, each in sets.sources.items()}, None
    if method.refresh is None:
        sets.check_negatives(rows.form)
    else:
        refresh = ance_refresh(sets, rows, every=method.refresh)
        if bare := sets.bare:
            negatives |= mined(bare, rows, load())
    data = sets.training_set(sets.joined(negatives) if negatives else None, **vars(rows))
    return (outside_danger(data) if method.batches == PROGRESS else data), refresh


def _trainable(
    model: ModelLike, settings: TrainSettings, *, reranker: bool, compared: Mapping[str, Any], **own: Any
) -> Any:
    """Return the model to train, a reranker once its loss is known to exist.

    `compared`: how an encoder embeds and compares texts from now on; `own`: of the loaders.
    """
    if not reranker:
        from foils.training.models import load_trainable

        return load_trainable(model, **compared, **own)
    from foils.encode.cross_encoders import load_cross_encoder
    from foils.training.reranker import with_prompt
    from foils.training.reranker_losses import reranker_loss

    reranker_loss(settings.loss or "listnet", settings.loss_settings, settings.target)
    if not isinstance(model, (str, Path)):
        return with_prompt(model, compared["query_prompt"])
    load = partial(load_cross_encoder, model, new_head=True, **own)
    return with_prompt(load(seed=settings.seed), compared["query_prompt"])


def _is_cross_encoder(model: Any) -> bool:
    return any(kind.__name__ == "CrossEncoder" for kind in type(model).__mro__)


def _name(model: ModelLike) -> str:
    if isinstance(model, (str, Path)):
        return str(model)
    card = getattr(model, "model_card_data", None)
    return str(getattr(card, "base_model", None) or type(model).__name__)
