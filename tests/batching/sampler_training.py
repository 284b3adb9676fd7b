"""A small training for the tests of the trainer hook; as a program, one of several processes."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses as st_losses
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from foils.batching.sampler import BatchPlanner

SIZE = 16
WORDS = [f"{a}{b}" for a in "abcdefgh" for b in "aeiou"]


def data() -> Dataset:
    """90 pairs: 45 queries with 2 documents each, 60 documents."""
    rng = np.random.default_rng(0)
    queries = [" ".join(rng.choice(WORDS, 3)) for _ in range(45)]
    texts = [" ".join(rng.choice(WORDS, 8)) for _ in range(60)]
    return Dataset.from_dict(
        {"query": [queries[i // 2] for i in range(90)], "text": [texts[(7 * i) % 60] for i in range(90)]}
    )


def small_model() -> SentenceTransformer:
    torch.manual_seed(0)
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate([*WORDS, *"abcd", "[UNK]"])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu")


def small_transformer(folder: Path) -> SentenceTransformer:
    """A BERT of one layer without dropout: a model that losses may embed with in small pieces."""
    torch.manual_seed(0)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(folder)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = BertConfig(
        vocab_size=len(words),
        hidden_dropout_prob=0,
        attention_probs_dropout_prob=0,
        max_position_embeddings=32,
        **sizes,
    )
    BertModel(config).save_pretrained(folder)
    transformer = Transformer(str(folder))
    return SentenceTransformer(modules=[transformer, Pooling(16)], device="cpu")


class Watched(SentenceTransformer):
    """Notes which texts are embedded outside of training."""

    calls: list[str]

    def encode(self, texts, **settings):
        self.calls.append("query" if len(texts[0].split()) == 3 else "text")
        return super().encode(texts, **settings)


def train(
    planner,
    folder,
    *,
    epochs=2,
    lr=0.05,
    seed=3,
    save=None,
    resume=None,
    evaluation=None,
    dataset=None,
    loss="MultipleNegativesRankingLoss",
    sampler=None,
    callbacks=None,
    objective=None,
    watch=None,
    workers=0,
    record=None,
    model=None,
    **more,
):
    model = small_model() if model is None else model
    if watch is not None:
        model.__class__ = Watched
        model.calls = watch
    settings = {"mini_batch_size": 5} if loss.startswith("Cached") else {}
    objective = getattr(st_losses, loss)(model, **settings) if objective is None else objective
    args = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        num_train_epochs=epochs,
        per_device_train_batch_size=SIZE,
        learning_rate=lr,
        seed=seed,
        save_strategy="no" if save is None else "steps",
        save_steps=save or 500,
        eval_strategy="no" if evaluation is None else "epoch",
        logging_steps=1,
        batch_sampler=planner if sampler is None else sampler,
        dataloader_num_workers=workers,
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
        callbacks=[planner] if callbacks is None else callbacks,
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
