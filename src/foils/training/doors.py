"""The door of training."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated, Any

from foils.batching.methods import METHODS, method_named
from foils.data import Collection, Run
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import RowSettings, SourceLike
from foils.data.tables import provenance
from foils.encode.models import CROSS_ENCODER, DEFAULT_MODEL, ENCODER, SIMILARITIES, check_kind
from foils.encode.vectors import EmbeddingModel, PairModel
from foils.runtime.errors import InputError
from foils.runtime.files import FOLDER, check_writable
from foils.runtime.options import Option, Settings, door, spelled
from foils.runtime.results import counted
from foils.training.settings import (
    CHECKPOINTS,
    OPEN,
    PROGRESS,
    MethodSettings,
    Trained,
    TrainSettings,
)

if TYPE_CHECKING:
    from foils.training.data import TrainingSet

ModelLike = str | Path | EmbeddingModel | PairModel
RunLike = str | Path | Run
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
        """Return a function from a model to its measure on dev, a mean over collections; without dev None."""
        from foils.encode.encoder import logits
        from foils.evaluation import measure_encoder, measure_run, rerank_run

        dev = self.dev
        if dev is None:
            return None
        run = self.dev_run if isinstance(self.dev_run, Run | None) else Run.read(self.dev_run)
        each = [one for one in (collection, *more) if dev in one.splits] or [collection]

        def measured(model: Any) -> float:
            if run is None:
                return fmean(measure_encoder(model, one, dev, [MEASURE]).means[MEASURE] for one in each)
            order = rerank_run(run, collection, partial(logits, model))
            return measure_run(order, collection, dev, [MEASURE]).means[MEASURE]

        return measured


@door(needs={name: {"reranker": False} for name in ("method", "similarity", "document_prompt")})
def train(
    collection: CollectionLike,
    source: Annotated[SourceLike | None, Option(metavar="SOURCE")] = None,
    *,
    model: Annotated[ModelLike, Option(metavar="MODEL")] = DEFAULT_MODEL,
    output: Annotated[str | Path, Option(short="-o", metavar="FOLDER", writes=(FOLDER,))],
    reranker: bool = False,
    method: MethodSettings,
    similarity: Annotated[str | None, Option(names=SIMILARITIES)] = None,
    query_prompt: str | None = None,
    document_prompt: str | None = None,
    trust_remote_code: bool = False,
    training: TrainSettings = OPEN,
    rows: RowSettings,
    evaluation: DevSettings,
    resume: bool = False,
    device: str | None = None,
    reading: CollectionSettings,
) -> Trained:
    """Train a model on a source of negatives, and write it with a card that says how.

    The folder holds the model, a card with data, settings and scores, and foils_training.json with
    the loss over time. Checkpoints lie in it until the model is written.

    Args:
        source: Negatives to train on, [NAME=]PATH. Without them, pairs alone are trained on. In
            Python also a table of negatives or a DataFrame.
        model: Model to train: a folder, a hub name, the embedded all-MiniLM-L6-v2, or static:NAME
            for the word table of one. In Python also a SentenceTransformer or a CrossEncoder, which
            is changed.
        output: Folder to write the model to.
        reranker: Train a cross-encoder instead of an encoder.
        resume: Continue from the last checkpoint in the folder, with the arguments that it was made by.
        similarity: How the model compares vectors from now on: cosine, or dot (inner product,
            vectors as they are). Default: what it was made for.
        query_prompt: Text put before each query, of a reranker before each pair, in training and by
            the model from now on, or @NAME, the model's prompt of that name. Default: the model's
            own.
        document_prompt: The same for documents.
        trust_remote_code: Run code that comes with the model.
        device: torch device, e.g. cuda:0. Default: the first one available.

    Example:
        foils train scifact/ bm25.parquet --model all-MiniLM-L6-v2 --loss weighted --batch-size 128 -o model/

    Raises:
        InputError: something that cannot be read, options that have no effect together, nothing to
            train on, a folder that cannot be written, or checkpoints in it that are not to be
            resumed, or were made by other arguments.
        UnknownNameError: no such split, loss, way of filling batches, or setting of one.
        FailureError: the loss is not a finite number, or a file cannot be written.
    """
    # 0. What cannot be done is refused before anything is read.
    check_writable(output)
    if not isinstance(model, (str, Path)):
        check_kind(model, CROSS_ENCODER if reranker else ENCODER)
    if reranker and evaluation.dev is not None and evaluation.dev_run is None:
        raise InputError(f"{spelled('dev')} needs a run to rerank: give {spelled('dev_run')}")
    if method.batches in METHODS:
        method_named(method.batches, method.batch_settings or {})
    negatives = source is not None or any(isinstance(each, tuple) for each in method.also)
    rows = rows.completed("lists" if reranker else "triplets" if negatives else "pairs")

    from foils.encode.encoder import weights_digest
    from foils.training.data import read_data_sets
    from foils.training.fit import check_resumed, save_model, train_model
    from foils.training.models import cast, load_trainable, types_of

    # 1. The rows to train on, the model, and settings that suit both.
    data, collections, inputs = read_data_sets(collection, source, method, reading, **vars(rows))
    compared: dict[str, Any] = {
        "similarity": similarity, "query_prompt": query_prompt, "document_prompt": document_prompt
    }  # fmt: skip
    if method.batches == PROGRESS:
        from foils.training.tiers import outside_danger

        data = outside_danger(data)
    trainable = load_trainable(
        model, reranker=reranker, seed=training.seed, device=device, trust_remote_code=trust_remote_code, **compared
    )
    beside_pairs = negatives and not (reranker or method.also)
    settings, remarks = _settings_for(data, trainable, training, reranker=reranker, beside_pairs=beside_pairs)

    # 2. What provenance says; checkpoints of other arguments are refused.
    name = model if isinstance(model, (str, Path)) else trainable.model_card_data.base_model or type(model).__name__
    described = {
        "model": str(name), "reranker": reranker, "batches": method.batches,
        "batch_settings": dict(method.batch_settings or {}), **vars(rows), **settings.describe(), **compared,
    }  # fmt: skip
    history = provenance("train", described, inputs=inputs, seed=settings.seed)
    score, checkpoints = evaluation.score(*collections), Path(output) / CHECKPOINTS
    decides = {**described, "model": weights_digest(trainable), **history["inputs"], "seed": settings.seed}
    check_resumed(checkpoints, {**decides, "dev": evaluation.dev, "dev_run": str(evaluation.dev_run)}, resume=resume)

    # 3. Train, measure and write.
    before, types = None, types_of(trainable)
    if score is not None:
        before = score(trainable.float())
        cast(trainable, types)
    run = train_model(
        trainable, data, checkpoints, settings=settings, batches=method.batches, batch_settings=method.batch_settings,
        score=score, resume=resume,
    )  # fmt: skip
    measured = {"before": before, "after": run.best}
    scores = {f"{MEASURE} on {evaluation.dev} {at}": each for at, each in measured.items() if each is not None}
    trained = Trained(
        model=run.model, path=Path(output), run=run, provenance=history, counts=data.counts, scores=scores,
        remarks=remarks,
    )  # fmt: skip
    if not int(os.environ.get("RANK", "0")):  # under torchrun the first process writes
        save_model(trained)
        if (checkpoints / "runs").is_dir():  # TensorBoard's
            shutil.copytree(checkpoints / "runs", trained.path / "runs", dirs_exist_ok=True)
        shutil.rmtree(checkpoints, ignore_errors=True)
    return trained


def _settings_for(
    data: TrainingSet, trainable: Any, training: TrainSettings, *, reranker: bool, beside_pairs: bool
) -> tuple[TrainSettings, list[str]]:
    """Return the settings with what suits the rows and the model, and remarks on what is cut and on steps.

    Args:
        data: what is trained on.
        trainable: the model.
        training: what was chosen; None is open.
        reranker: whether the model is a CrossEncoder.
        beside_pairs: whether to compare the steps with those of the pairs alone.

    Raises:
        InputError: the rows do not fill a batch that the pairs would fill.
    """
    from foils.training.models import plain_recipe

    count, pointwise = len(data), False
    if reranker:
        from foils.training.reranker import reranker_loss

        loss = training.loss or "listnet"
        pointwise = reranker_loss(loss, training.loss_settings, training.target).pointwise
        count = data.documents if pointwise else count
    settings, remarks = plain_recipe(count, trainable, training, pointwise=pointwise), list[str]()
    if beside_pairs:
        rows, pairs = count, data.counts["pairs"]
        of_pairs = plain_recipe(pairs, trainable, training)
        if rows < of_pairs.batch_size <= pairs:
            raise InputError(
                f"{rows:,} of {pairs:,} pairs have a negative that is kept, fewer than a batch of "
                f"{of_pairs.batch_size:,}: a training would end after a step or two; keep more rows (foils "
                "describe counts them), or train without the table, on in-batch negatives alone"
            )
        steps, alone = counted(settings.steps_of(rows), "steps"), of_pairs.steps_of(pairs)
        if alone != settings.steps_of(rows):
            advice = f"to compare, train both for {steps} (--steps)"
            remarks.append(f"{steps}; in-batch negatives alone would have {alone:,}: {advice}")
    length = data.length_for(trainable, training.max_length)
    if length.cut > 0:
        share = f"{length.cut:.1%} of their tokens"
        remarks = [f"documents are cut after {length.tokens} tokens in training: {share}", *remarks]
    return replace(settings, max_length=length.tokens), remarks
