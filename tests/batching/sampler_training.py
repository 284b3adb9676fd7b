"""A small training for the tests of the trainer hook; as a program, one of several processes."""

import sys
from pathlib import Path

import numpy as np
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses as st_losses

sys.path.insert(0, str(Path(__file__).parents[1]))

from foils.batching.sampler import BatchPlanner
from train_models import WORDS, static_model

SIZE = 16


def data() -> Dataset:
    """90 pairs: 45 queries with 2 documents each, 60 documents."""
    rng = np.random.default_rng(0)
    queries = [" ".join(rng.choice(WORDS, 3)) for _ in range(45)]
    texts = [" ".join(rng.choice(WORDS, 8)) for _ in range(60)]
    return Dataset.from_dict(
        {"query": [queries[i // 2] for i in range(90)], "text": [texts[(7 * i) % 60] for i in range(90)]}
    )


class Watched(SentenceTransformer):
    """Notes which texts are embedded outside of training."""

    calls: list[str]

    def encode(self, texts, **settings):
        self.calls.append("query" if len(texts[0].split()) == 3 else "text")
        return super().encode(texts, **settings)


def train(planner, folder, *, epochs=2, lr=0.05, save=None, resume=None, dataset=None, evaluation=None, **more):
    """Train; what else is given are arguments of the trainer, or one of these."""
    watch, record, objective, callbacks = (
        more.pop(name, None) for name in ("watch", "record", "objective", "callbacks")
    )
    model = more.pop("model", None) or static_model()
    if watch is not None:
        model.__class__ = Watched
        model.calls = watch
    loss = more.pop("loss", "MultipleNegativesRankingLoss")
    settings = {"mini_batch_size": 5} if loss.startswith("Cached") else {}
    objective = getattr(st_losses, loss)(model, **settings) if objective is None else objective
    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=SIZE,
        learning_rate=lr,
        seed=3,
        save_strategy="no" if save is None else "steps",
        save_steps=save or 500,
        eval_strategy="no" if evaluation is None else "epoch",
        logging_steps=1,
        batch_sampler=planner,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        **more,
    )
    trainer = SentenceTransformerTrainer(
        model=model,
        args=args,
        train_dataset=data() if dataset is None else dataset,
        eval_dataset=evaluation,
        loss=objective,
        callbacks=callbacks,
    )
    if record is not None:
        trainer.data_collator = Recording(trainer.data_collator, record)
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def with_rows(dataset):
    """The data set with each row's number as its label, for `Recording`."""
    return dataset.add_column("label", list(range(len(dataset))))


class Recording:
    """Notes the row numbers of every batch that the data loader fetches, from the label column."""

    def __init__(self, collator, record):
        self.collator, self.record = collator, record
        self.valid_label_columns = collator.valid_label_columns

    def __call__(self, features):
        self.record.append([f["label"] for f in features])
        return self.collator(features)


def orders(planner, folder, *, epochs=2, dataset=None, **settings):
    """Train and return the batches that were really fetched, by epoch."""
    record = []
    dataset = with_rows(data()) if dataset is None else dataset
    trainer = train(planner, folder, epochs=epochs, dataset=dataset, record=record, **settings)
    steps = len(trainer.get_train_dataloader())
    return [record[e * steps : (e + 1) * steps] for e in range(epochs)]


def losses(trainer):
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


PLANNED = []


class Noting(BatchPlanner):
    """Notes the order of every epoch."""

    def on_epoch_begin(self, args, state, control, **given):
        super().on_epoch_begin(args, state, control, **given)
        PLANNED.append(self.sampler.batches().order)


def main() -> None:
    name, split, folder = sys.argv[1], sys.argv[2] == "1", Path(sys.argv[3])
    planner = Noting(name, {"seeds": 2, "candidates": 16})
    record = []
    trainer = train(
        planner,
        folder,
        save=4,
        dataset=with_rows(data()),
        record=record,
        accelerator_config={"split_batches": split},
        ddp_backend="gloo",
    )
    rank, steps = trainer.args.process_index, len(record) // 2
    np.save(folder / f"planned-{rank}.npy", np.stack(PLANNED))
    ragged = np.empty(2, object)
    ragged[:] = [record[:steps], record[steps:]]
    np.save(folder / f"trained-{rank}.npy", ragged, allow_pickle=True)


if __name__ == "__main__":
    main()
