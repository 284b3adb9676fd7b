"""Training of encoders and rerankers on sentence-transformers: arguments, checkpoints, history, folder.

Needs torch and sentence-transformers.
"""

from __future__ import annotations

import json
import logging
import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from sentence_transformers import CrossEncoder, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.base.evaluation import BaseEvaluator
from sentence_transformers.base.losses.gradcache import has_static_embedding_input
from sentence_transformers.base.training_args import BaseTrainingArguments
from sentence_transformers.cross_encoder.trainer import CrossEncoderTrainer
from sentence_transformers.cross_encoder.training_args import CrossEncoderTrainingArguments
from transformers import EarlyStoppingCallback, PrinterCallback, TrainerCallback

from foils.batching.batches import known_conflicts
from foils.batching.methods import TEACHER, method_named
from foils.batching.sampler import BatchHook, BatchPlanner, checkpoint_of
from foils.data.records import whole_json
from foils.encode import EmbeddingSettings
from foils.encode.encoder import Kind, prompt_of
from foils.encode.models import (
    at_length,
    check_one_output,
    is_routed,
    length_of,
    merge_adapters,
    seal_weights,
)
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError, check_names
from foils.runtime.files import fill_folder, write_json, write_text
from foils.runtime.options import refuse, spelled
from foils.training.data import TokenCollator, TrainingSet
from foils.training.losses import average_gradients, guide_vectors, make_loss, matryoshka_loss
from foils.training.models import AdapterCheckpoints, add_adapters, cast, restore, types_of, with_defaults
from foils.training.settings import CHANCE, PROGRESS, Trained, TrainingRun, TrainSettings

log = logging.getLogger(__name__)

LOSS_STATE = "foils_loss.safetensors"
WHOLE = "foils_checkpoint.json"
TRAINING, ARGUMENTS = "foils_training.json", "foils_arguments.json"
ONLY_REPORT = ("report_to", "run_name", "logging", "log_", "dataloader", "save_total_limit")
DEV = "dev"
FEW = 16
"""Texts that a processor embeds together: more are no faster there."""
OF_FOILS = frozenset({
    "output_dir", "num_train_epochs", "max_steps", "per_device_train_batch_size", "learning_rate", "seed",
    "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "resume_from_checkpoint",
    "restore_callback_states_from_checkpoint", "use_cpu", "accelerator_config", "batch_sampler", "prompts",
})  # fmt: skip
"""Arguments of the trainer that settings of foils decide."""
TORCH_WRITER = ("PytorchStreamWriter", "inline_container", "iostream error")


class Steps(TrainerCallback):  # type: ignore[misc]
    """What foils does at the steps of each training; the last of its callbacks.

    It tells the loss its epoch, keeps what the loss itself learns with each checkpoint and restores
    it on resuming, reports progress, ends a training whose loss is no number, and writes, after all
    that others write, which files a checkpoint has: so that one cut short is known. Of several
    processes, each of which has gradients of its own, what the loss itself learns takes their mean.

    Args:
        loss: the module; what belongs to its model is left to the trainer.
        reporting: where the task is opened once the trainer knows its number of steps; whoever made
            it closes it.
    """

    def __init__(self, loss: torch.nn.Module, reporting: ExitStack) -> None:
        self.loss, self.reporting = loss, reporting

    def own_state(self) -> dict[str, torch.Tensor]:
        """Return the loss' parameters and buffers, those of the model and of a guide left out."""
        state = self.loss.state_dict().items()
        return {name: each.contiguous() for name, each in state if _of_loss(name) and isinstance(each, torch.Tensor)}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Restore the loss' state where training resumes, and count the steps of before as done.

        Raises:
            FormatError: the checkpoint lacks it, or it is damaged, or another loss'.
        """
        learned = self.own_state()
        if state.global_step and learned:
            restore(learned, checkpoint_of(args, state) / LOSS_STATE, "state of the loss")
        self.advance = self.reporting.enter_context(progress.task("training", total=state.max_steps, unit="steps"))
        self.advance(state.global_step)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Tell the loss its epoch, counted from 1."""
        for part in self.loss.modules():
            if hasattr(part, "set_epoch"):
                part.set_epoch(math.floor((state.epoch or 0) + 1e-6) + 1)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Average gradients of the loss' own parameters over processes; torch does so for the model alone."""
        average_gradients([value for name, value in self.loss.named_parameters() if _of_loss(name)])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Advance by a step."""
        self.advance(1)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any) -> None:
        """Look at the loss, and show it.

        Raises:
            FailureError: it is NaN or infinite.
        """
        if logs is None or "loss" not in logs:
            return
        loss = logs["loss"]
        if not math.isfinite(loss):
            raise FailureError(
                f"a loss of {loss} at step {state.global_step}; lower the learning rate, or train in float32"
            )
        progress.note(f"loss {loss:.4f}")

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Write the loss' state into the checkpoint, then the list of its files, with their sizes."""
        from safetensors.torch import save_file

        if state.is_world_process_zero:
            folder = checkpoint_of(args, state)
            learned = self.own_state()
            if learned:
                save_file(learned, folder / LOSS_STATE)
            write_json(folder / WHOLE, _sizes(folder))


class StepTimes(TrainerCallback):  # type: ignore[misc]
    """When the steps of a training begin.

    Attributes:
        begins: seconds of a clock that only goes forward, one for each step.
    """

    def __init__(self) -> None:
        self.begins: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Note the time."""
        self.begins.append(time.perf_counter())


def _of_loss(name: str) -> bool:
    """Whether a tensor of this name is the loss' own, and not of the model or a guide in it."""
    return not {"model", "guide"} & {*name.split(".")}


def last_whole_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint that has all its files; None without any.

    One whose list of files is missing or damaged is passed over: nobody knows whether it is whole.
    """
    whole = {}
    for path in folder.glob("checkpoint-*"):
        try:
            step, listed = int(path.name.removeprefix("checkpoint-")), whole_json(path / WHOLE)
        except ValueError:  # another folder, or no list that can be read
            continue
        if isinstance(listed, dict) and listed and listed.items() <= _sizes(path).items():
            whole[step] = path
    return whole[max(whole)] if whole else None


def check_resumed(checkpoints: Path, decides: Mapping[str, Any], *, resume: bool) -> None:
    """Refuse to resume a training with other arguments than it began with; write down those of a new one.

    Args:
        checkpoints: folder of the checkpoints.
        decides: arguments that change the result, by name; those of the trainer that only report
            are left aside.
        resume: whether a training that left checkpoints there goes on.

    Raises:
        InputError: some differ; the message names them. Or what was written down cannot be read.
    """
    of_trainer = {name: value for name, value in decides["trainer"].items() if not name.startswith(ONLY_REPORT)}
    kept = {name: value for name, value in decides.items() if name != "mini_batch_size"}  # of memory alone
    now = json.loads(json.dumps({**kept, "trainer": of_trainer}, default=str))
    path = checkpoints / ARGUMENTS
    if last_whole_checkpoint(checkpoints) is None:
        write_json(path, now)
    elif resume and path.is_file():  # checkpoints of versions before 0.4 have none
        before = whole_json(path)
        names = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if names:
            changes = (f"{spelled(name)} was {before.get(name)}, is {now.get(name)}" for name in names)
            raise InputError(
                f"{checkpoints} holds a training with other arguments: {'; '.join(changes)}. Give those that "
                "it began with, or train into another folder"
            )


def _sizes(folder: Path) -> dict[str, int]:
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}


class DevEvaluator(BaseEvaluator):  # type: ignore[misc]
    """A score of the model on dev, higher is better, as sentence-transformers' trainer asks for it.

    Args:
        score: model → score.
        lengths: that it is saved with, see `at_length`.
    """

    def __init__(self, score: Callable[[Any], float], lengths: Mapping[Any, int]) -> None:
        super().__init__()
        self.score, self.lengths, self.primary_metric = score, lengths, DEV

    def __call__(self, model: Any, *_: Any, **__: Any) -> dict[str, float]:
        """Return the score under the name `dev`; the model is back in its mode afterwards.

        Raises:
            FailureError: the score is no finite number.
        """
        training = model.training
        try:
            with at_length(model, self.lengths):
                value = float(self.score(model))
        finally:
            model.train(training)
        if not math.isfinite(value):
            raise FailureError(f"the evaluation on dev gave {value}; expected a finite score")
        return {DEV: value}


def trainer_arguments(kind: type[Any] = BaseTrainingArguments) -> list[str]:
    """Return the names of the trainer's own arguments that may be set."""
    return [each.name for each in fields(kind) if each.init and each.name not in OF_FOILS]


def _arguments(model: Any, output: Path, settings: TrainSettings, *, evaluated: bool, **more: Any) -> dict[str, Any]:
    """Return the training arguments of sentence-transformers for these settings.

    What goes by the number of steps is given as a share of them: several processes, or batches of
    another size, make fewer steps of an epoch than rows / batch size, and the trainer alone knows
    how many. With `save_steps` among the trainer's own arguments the model is evaluated on dev as
    often as it is saved; else both happen once an epoch, or, where there is a number of steps, four
    times in all.
    """
    on, every = model.device.type, settings.trainer.get("save_steps", None if settings.steps is None else 0.25)
    strategy = "epoch" if every is None else "steps"
    at_once = FEW if on == "cpu" else max(FEW, settings.mini_batch_size or settings.batch_size)
    arguments: dict[str, Any] = dict(
        output_dir=str(output),
        num_train_epochs=settings.epochs,
        max_steps=settings.steps or -1,
        per_device_train_batch_size=settings.batch_size,
        per_device_eval_batch_size=at_once,
        learning_rate=settings.learning_rate,
        warmup_steps=0.1,  # below 1: a share
        seed=settings.seed,
        save_strategy=strategy,
        save_total_limit=2,
        eval_strategy=strategy if evaluated else "no",
        save_steps=every or 500,  # of no effect where every epoch is saved
        eval_steps=every,
        load_best_model_at_end=evaluated,
        metric_for_best_model=f"eval_{DEV}" if evaluated else None,
        greater_is_better=True if evaluated else None,
        restore_callback_states_from_checkpoint=True,
        logging_steps=0.01,  # a share of the steps: about a hundred entries
        logging_nan_inf_filter=False,
        report_to="none",
        disable_tqdm=True,
        use_cpu=on == "cpu",
        accelerator_config={"split_batches": True},  # of several processes each has its part of every batch
        **more,
    )
    if on == "cuda" and not {"bf16", "fp16"} & settings.trainer.keys():
        arguments["bf16" if torch.cuda.is_bf16_supported() else "fp16"] = True
    return {**arguments, **settings.trainer}


@contextmanager
def writing_weights(folder: Path) -> Iterator[None]:
    """Tell a disk that is full, or a folder that cannot be written, as such.

    Of a disk that refuses, Python raises OSError, safetensors an error of its own, and torch a
    RuntimeError that names its writer or its stream.

    Raises:
        FailureError: a file of weights or beside them could not be written.
    """
    try:
        yield
    except BrokenPipeError:  # of the terminal
        raise
    except (OSError, SafetensorError) as error:
        raise FailureError(f"cannot write {folder}: {getattr(error, 'strerror', None) or error}") from error
    except RuntimeError as error:
        if not any(word in str(error) for word in TORCH_WRITER):
            raise
        raise FailureError(f"cannot write {folder}: {str(error).splitlines()[0]}") from error


def _entry(log: dict[str, float]) -> dict[str, float]:
    """Return what the history has of the trainer's entry; nothing of one without a loss or a score on dev."""
    if not {"loss", f"eval_{DEV}"} & log.keys():
        return {}
    names = {"epoch": "epoch", "loss": "loss", "grad_norm": "gradient_norm", "learning_rate": "learning_rate"}
    names |= {f"eval_{DEV}": DEV, **{name: name for name in log if name.startswith(CHANCE)}}
    return {"step": log["step"], **{new: float(log[old]) for old, new in names.items() if old in log}}


def save_model(trained: Trained) -> None:
    """Write a model, its card, and `foils_training.json` (settings, losses over time), each file whole.

    Raises:
        FailureError: the folder cannot be written.
    """
    run, history = trained.run, trained.provenance
    card: Any = run.model.model_card_data  # the same, resumed or not: without the time it took, or a run's own losses
    card._training_start_time, card.evaluation_duration, card.training_logs = None, 0.0, []
    settings = {**history["settings"], **run.facts, "seed": history["seed"], "steps": run.steps}
    rows = [(name, each if isinstance(each, str) else json.dumps(each)) for name, each in settings.items()]
    rows += [(name, f"{count:,}") for name, count in trained.counts.items()]
    rows += [(name, f"digest `{digest}`") for name, digest in history["inputs"].items()]
    rows += [(name, f"{value:.4f}") for name, value in trained.scores.items()]
    cast(run.model, run.types)
    with writing_weights(trained.path), fill_folder(trained.path) as aside:
        trained.model.save_pretrained(str(aside))
        lines = [f"| {name} | {value} |" for name, value in rows]
        add_to_card(aside, "\n".join(["## Training with foils", "", "| setting | |", "|---|---|", *lines, ""]))
        write_json(aside / TRAINING, trained.to_json())
        seal_weights(aside)


def add_to_card(folder: Path, section: str) -> None:
    """Write a section at the end of the card of the model in a folder."""
    card = folder / "README.md"
    written = card.read_text(encoding="utf-8") if card.is_file() else ""
    write_text(card, f"{written.rstrip()}\n\n{section}")


def train_model(
    model: Any,
    data: TrainingSet,
    output: str | Path,
    *,
    settings: TrainSettings | None = None,
    batches: str | BatchHook = "random",
    batch_settings: Mapping[str, Any] | None = None,
    score: Callable[[Any], float] | None = None,
    callbacks: Sequence[TrainerCallback] = (),
    resume: bool = False,
) -> TrainingRun:
    """Train a model on a data set, by its sentence-transformers trainer; checkpoints go to `output`.

    Resuming goes on from the last checkpoint there and ends with the weights of a training that was
    not interrupted. The model's own prompts for queries and documents go before the texts. Weights
    of a smaller type are trained in float32, where small steps are not lost, and have their own type
    again at the end. With adapters only these are float32.

    Args:
        model: a SentenceTransformer, or a CrossEncoder with one output, on the device to train on;
            it is changed, and keeps its own maximum length, by which it is measured on dev.
        data: of `foils.training.data.training_set`, for a reranker of the form `lists`.
        output: folder for checkpoints.
        settings: how; the mini-batch size is not used where the model is a static embedding, which
            needs none. A batch of a reranker has `batch_size` pairs (pointwise losses) or lists.
        batches: one of `foils.training.settings.ways_of_batching`, or a hook of your own, as a
            `BatchPlanner`; `progress` needs rows as `foils.training.tiers.outside_danger` leaves
            them. Rerankers, whose lists do not meet, have random ones.
        batch_settings: of that way.
        score: model → score on dev, higher is better: chooses the model and stops the training early.
        callbacks: further ones of transformers.
        resume: go on where an earlier call with the same arguments stopped.

    Raises:
        InputError: settings that do not go together or do not fit the model or the data, an argument
            that the trainer refuses, or `output` holds checkpoints and is not to be resumed.
        UnknownNameError: no such loss, way of batching or argument of the trainer, or setting of one.
        FailureError: the loss is no finite number, or a checkpoint cannot be written.
    """
    settings, output = with_defaults(settings or TrainSettings(), model), Path(output)
    dataset = data.dataset
    if isinstance(model, CrossEncoder):
        kind, of_arguments = CrossEncoderTrainer, CrossEncoderTrainingArguments
        dataset, loss, more = _of_reranker(model, data, settings)
    else:
        kind, of_arguments = SentenceTransformerTrainer, SentenceTransformerTrainingArguments
        loss, more = _of_encoder(model, data, settings, batches, batch_settings)
    start, last = time.perf_counter(), last_whole_checkpoint(output) if resume else None
    if settings.patience is not None and score is None:
        raise InputError("patience counts evaluations on dev, and there is none; give one, or patience None")
    check_names("argument of the trainer", settings.trainer, trainer_arguments(of_arguments))
    if not resume and any(output.glob("checkpoint-*")):
        raise InputError(f"{output} holds checkpoints of another training; resume it, or take another folder")
    types = types_of(model)
    if settings.lora is None:
        model.float()
    else:
        add_adapters(model, settings.lora, seed=settings.seed)
        kind = type("AdapterTrainer", (AdapterCheckpoints, kind), {})
    with ExitStack() as reporting, warnings.catch_warnings(), at_length(model, settings.max_length) as lengths:
        served = max(lengths.values(), default=None)
        if served != length_of(model):
            message = "texts are cut after %s tokens in training; the written model cuts them after %s"
            log.info(message, length_of(model), served)
        # transformers calls gradient checkpointing otherwise than sentence-transformers does
        warnings.filterwarnings("ignore", ".*(gradient|activation)_checkpointing", FutureWarning)
        watching: list[Any] = [*callbacks]
        if settings.patience is not None:
            watching.append(EarlyStoppingCallback(early_stopping_patience=settings.patience))
        try:
            trainer = kind(
                model=model,
                args=of_arguments(**_arguments(model, output, settings, evaluated=score is not None, **more)),
                train_dataset=dataset,
                loss=loss,
                evaluator=None if score is None else DevEvaluator(score, lengths),
                callbacks=[*watching, Steps(loss, reporting)],
            )
        except (ImportError, RuntimeError, TypeError, ValueError) as error:
            if not settings.trainer:
                raise
            arguments = ", ".join(f"{name}={value}" for name, value in settings.trainer.items())
            raise InputError(f"{spelled('trainer')} {arguments}: {error}") from error
        args = trainer.args
        if settings.batch_size % args.world_size:
            raise InputError(
                f"{spelled('batch_size')} {settings.batch_size}, and {args.world_size} processes, which "
                "share each batch; give a multiple of their number"
            )
        trainer.remove_callback(PrinterCallback)
        if not isinstance(model, CrossEncoder) and not args.dataloader_num_workers:
            pool = reporting.enter_context(ThreadPoolExecutor(1))
            trainer.data_collator = TokenCollator(trainer.data_collator, model, pool)
            if settings.steps_of(len(dataset)) * settings.batch_size * settings.accumulated >= len(dataset):
                trainer.data_collator.fill(dataset)
        with writing_weights(output):
            trainer.train(resume_from_checkpoint=None if last is None else str(last))
    trained_in = str(model.dtype or torch.float32).removeprefix("torch.")
    if settings.lora is not None:
        merge_adapters(model)
        model.requires_grad_(True)
    cast(model, types)
    history = [entry for entry in map(_entry, trainer.state.log_history) if entry]
    losses = [entry["loss"] for entry in history if "loss" in entry]
    if losses and not any(losses):
        log.warning("The loss was 0 at every step, as no batch held a negative: nothing was learned.")
    return TrainingRun(
        model=model,
        history=history,
        best=trainer.state.best_metric,
        steps=int(trainer.state.global_step),
        seconds=time.perf_counter() - start,
        precision="bfloat16" if args.bf16 else "float16" if args.fp16 else trained_in,
        types=types,
    )


def _of_reranker(model: Any, data: TrainingSet, settings: TrainSettings) -> tuple[Any, Any, dict[str, Any]]:
    """Return pairs or lists, as a CrossEncoder's loss takes them, the loss, and the model's prompt."""
    from foils.training.reranker import learned_activation, reranker_loss, reranker_set

    alone = {"mask": settings.mask, "mini_batch_size": settings.mini_batch_size}
    refuse(alone, "on a reranker, whose loss compares no vectors; leave it out")
    check_one_output(model, "the reranker")
    kind = reranker_loss(str(settings.loss), settings.loss_settings, settings.target)
    dataset, loss = reranker_set(data, kind), kind.make(model)
    model.activation_fn = learned_activation(kind) or model.activation_fn
    loss.negatives = settings.draw_negatives
    if kind.pointwise:
        why = f"with {spelled('loss', settings.loss)}, which learns from pairs, not from lists; take listnet"
        refuse({"draw_negatives": settings.draw_negatives}, why)
    return dataset, loss, {"prompts": (model.prompts or {}).get(model.default_prompt_name) or None}


def _of_encoder(
    model: Any,
    data: TrainingSet,
    settings: TrainSettings,
    batches: str | BatchHook,
    of_batches: Mapping[str, Any] | None,
) -> tuple[Any, dict[str, Any]]:
    """Return an encoder's loss, and the trainer's batches, prompts and routes.

    A guide embeds once all else fits.
    """
    size, masked = settings.mini_batch_size, settings.mask is not None
    if size is not None:
        size = None if has_static_embedding_input(model) else min(size, settings.batch_size)
    how: dict[str, Any] = {"mini_batch_size": size, "masked": masked, "settings": settings.loss_settings}
    loss = make_loss(str(settings.loss), model, data, **how)
    as_trained = EmbeddingSettings(max_length=settings.max_length, device=str(model.device))  # of guide and teacher
    if settings.mask is not None:
        loss.guide = guide_vectors(settings.mask, data, settings=as_trained)
        loss.margin = settings.mask_margin or 0.0
    summed = matryoshka_loss(model, loss, settings.matryoshka) if settings.matryoshka else loss
    if isinstance(batches, BatchHook):
        hook = batches
    elif batches == PROGRESS:
        from foils.training.tiers import by_progress

        hook = by_progress(data)
    else:
        chosen, temperature = dict(of_batches or {}), settings.loss_settings.get("temperature")
        method, teacher = method_named(batches, chosen), chosen.pop(TEACHER, None)
        if "tau" in method.settings and isinstance(temperature, (int, float)) and temperature > 0:
            chosen.setdefault("tau", float(temperature))  # the loss' own, where none is set
        known, vectors = known_conflicts(data.texts.collection, data.rows[:, 0], data.rows[:, 1]), None
        if teacher is not None:
            vectors = guide_vectors(teacher, data, settings=as_trained).of_pairs()
        hook = BatchPlanner(batches, chosen, known=known, teacher=vectors, sources=data.facts.sources)
    roles: dict[str, Kind] = {column: "query" if column == "anchor" else "document" for column in data.columns}
    prompts = {column: prompt_of(model, kind, None) for column, kind in roles.items()}
    more = {
        "batch_sampler": hook,
        "prompts": {column: text for column, text in prompts.items() if text} or None,
        "router_mapping": roles if is_routed(model) else None,
    }
    return hook.wrapped(summed, model), more
