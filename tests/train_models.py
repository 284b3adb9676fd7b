"""Small models and data for the tests of training."""

import copy
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from tokenizers import Tokenizer, normalizers
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
    Qwen3ForSequenceClassification,
    Qwen3Model,
    TrainerCallback,
)

from foils.data import Collection, Negatives
from foils.data.negatives import negatives_table
from foils.training.data import PairFacts, TrainingSet, training_set
from rated_rows import with_positives

WORDS = [f"{a}{b}" for a in "bcdfghklmn" for b in "aeiou"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def words_tokenizer(words: Sequence[str] = WORDS) -> Tokenizer:
    tokenizer = Tokenizer(WordLevel({w: i for i, w in enumerate([*SPECIAL, *words])}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.normalizer = normalizers.Lowercase()
    return tokenizer


def static_model(
    seed: int = 0, dimension: int = 16, *, words: Sequence[str] = WORDS, **options: Any
) -> SentenceTransformer:
    torch.manual_seed(seed)
    table = StaticEmbedding(words_tokenizer(words), embedding_dim=dimension)
    return SentenceTransformer(modules=[table], device="cpu", **options)


def _save_tokenizer(folder: Path) -> None:
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=words_tokenizer(), **special).save_pretrained(folder)


def _bert(folder: Path, kind: type, dropout: float, **more: int) -> None:
    torch.manual_seed(0)
    _save_tokenizer(folder)
    config = BertConfig(
        vocab_size=len(SPECIAL) + len(WORDS),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        **more,
    )
    kind(config).save_pretrained(folder)


def bert_model(folder: Path, *, dropout: float = 0.0) -> SentenceTransformer:
    _bert(folder, BertModel, dropout)
    return SentenceTransformer(modules=[Transformer(str(folder)), Pooling(16)], device="cpu")


def cross_encoder(folder: Path) -> CrossEncoder:
    _bert(folder, BertForSequenceClassification, 0.0, num_labels=1)
    return CrossEncoder(str(folder), device="cpu", max_length=32)


def masked_language_model(folder: Path) -> None:
    """Write a language model that nobody trained, with its masked-language head."""
    _bert(folder, BertForMaskedLM, 0.0)


def _qwen3(folder: Path, kind: type) -> None:
    torch.manual_seed(0)
    _save_tokenizer(folder)
    sizes = {"hidden_size": 16, "head_dim": 8, "intermediate_size": 32, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64}
    config = Qwen3Config(vocab_size=len(SPECIAL) + len(WORDS), pad_token_id=0, num_labels=1, **sizes, **heads)
    kind(config).save_pretrained(folder)


def decoder(folder: Path) -> SentenceTransformer:
    """Make an encoder of a decoder, whose vector is that of the last token."""
    _qwen3(folder, Qwen3Model)
    return SentenceTransformer(modules=[Transformer(str(folder)), Pooling(16, pooling_mode="lasttoken")], device="cpu")


def scoring_decoder(folder: Path) -> CrossEncoder:
    """Make a reranker of a decoder, whose head scores the last token."""
    _qwen3(folder, Qwen3ForSequenceClassification)
    return CrossEncoder(str(folder), device="cpu", max_length=32)


def answering_decoder(folder: Path) -> CrossEncoder:
    """Make a reranker of a decoder that answers with one word or another."""
    _qwen3(folder, Qwen3ForCausalLM)
    asked = Transformer(str(folder), transformer_task="text-generation", max_seq_length=32)
    words = asked.tokenizer.convert_tokens_to_ids(["ba", "be"])
    return CrossEncoder(modules=[asked, LogitScore(*words)], device="cpu")


def made_up(queries: int = 40, documents: int = 80, seed: int = 0) -> Collection:
    """Each query shares words with its positive; train has the first half of the queries, dev and test the others."""
    rng = np.random.default_rng(seed)
    texts = {f"d{i}": " ".join(rng.choice(WORDS, 6)) for i in range(documents)}
    asked = {f"q{i}": " ".join(texts[f"d{i}"].split()[:3]) for i in range(queries)}
    half, quarter = queries // 2, 3 * queries // 4
    parts = {"train": range(half), "dev": range(half, quarter), "test": range(quarter, queries)}
    qrels = {split: {f"q{i}": {f"d{i}": 1} for i in rows} for split, rows in parts.items()}
    return Collection.from_dicts("made-up", texts, asked, qrels)


def made_up_folder(
    beir_folder: Callable[..., Path], collection: Collection | None = None, name: str = "made-up"
) -> Path:
    """Write a collection, `made_up`, as a BEIR folder."""
    collection = collection or made_up()
    documents = dict(zip(*(collection.documents[c].to_pylist() for c in ("doc_id", "text")), strict=True))
    queries = dict(zip(*(collection.queries[c].to_pylist() for c in ("query_id", "text")), strict=True))
    qrels = {
        split: {query: {query.replace("q", "d"): 1} for query in judged["query_id"].to_pylist()}
        for split, judged in collection.qrels.items()
    }
    texts = {name: ("", text) for name, text in documents.items()}
    return beir_folder(name, documents=texts, queries=queries, qrels=qrels)


def table(collection: Collection, *, per_query: int = 4, rated: bool = False, seed: int = 0) -> Negatives:
    """Random negatives of the train queries; rated: with elo, elo_se, gap, weight."""
    rng = np.random.default_rng(seed)
    ids = collection.documents["doc_id"].to_pylist()
    positives = dict(zip(*(collection.qrels["train"][c].to_pylist() for c in ("query_id", "doc_id")), strict=True))
    drawn = [rng.choice([d for d in ids if d != own], per_query, replace=False) for own in positives.values()]
    query_ids, doc_ids = np.repeat(list(positives), per_query).tolist(), np.concatenate(drawn).tolist()
    ranks = np.tile(np.arange(per_query), len(positives))
    found = Negatives(negatives_table(query_ids, doc_ids, "made", ranks, -ranks.astype(float)))
    if not rated:
        return found
    gap, weight = rng.uniform(120, 700, len(ranks)), rng.uniform(0.2, 1.0, len(ranks))
    columns = {"elo": 1800 - gap, "elo_se": np.full(len(ranks), 30.0), "gap": gap, "weight": weight}
    ids, own = pa.array([*positives]), pa.array([*positives.values()])
    return with_positives(found.with_columns(columns), ids, own, {"elo": np.full(len(ids), 1800.0)})


def unpaired(facts: PairFacts, rows: np.ndarray) -> np.ndarray:
    """(b, (1 + k)·b): whether a candidate is left out for a query in a batch of these rows."""
    block = facts.log_weights(rows, 0, len(rows))
    return np.zeros((len(rows), facts.documents.shape[1] * len(rows)), bool) if block is None else np.isneginf(block)


@cache
def rows_of(form: str = "triplets", *, rated: bool = True, without: str = "") -> TrainingSet:
    """The rows of a table of `made_up`, without one of its columns."""
    collection = made_up()
    made = table(collection, rated=rated)
    return training_set(collection, Negatives(made.table.drop_columns(without)) if without else made, form=form)


def weights(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def gradients(module: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


def second_gradients(loss: Any, *given: Any) -> torch.Tensor:
    """The gradients of a second step: GradNorm moves its weights after the first."""
    for _ in range(2):
        loss.model.zero_grad()
        loss(*given).backward()
    return gradients(loss)


def features(model: Any, batch: dict[str, list[str]]) -> list[dict[str, torch.Tensor]]:
    return [model.preprocess(batch[name]) for name in batch if name != "label"]


def evaluated(loss: Any, batch: dict[str, Any], labels: Any = None, *, seed: int | None = None, scale: float = 1.0):
    """The value of a loss and the gradients of all that learns, by name, on copies: nothing is left behind.

    Without a seed the model has no dropout.
    """
    loss = copy.deepcopy(loss).train()
    if seed is None:
        loss.model.eval()
    else:
        torch.manual_seed(seed)
    value = loss(features(loss.model, batch), None if labels is None else torch.tensor(labels))
    (value * scale).backward()
    return value.item(), {n.split("model.")[-1]: p.grad for n, p in loss.named_parameters() if p.grad is not None}


def same(a: Any, b: Any, atol: float = 5e-5) -> None:
    """Alike up to float32: cosines are off by 1e-7, twenty times that over a temperature of 0.05, added up by texts."""
    assert a[0] == pytest.approx(b[0], rel=1e-5, abs=1e-5)
    assert a[1].keys() == b[1].keys()
    for name, gradient in a[1].items():
        assert torch.allclose(gradient, b[1][name], atol=atol), name


class KilledError(Exception):
    pass


class Kill(TrainerCallback):
    """Ends the process, as it were, after a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise KilledError


def resumed_exactly(train: Callable[..., Any], folder: Path, step: int) -> Any:
    """Train whole, and killed after a step and resumed: the same weights and history. The second is returned.

    `train` takes a folder, callbacks and whether to resume.
    """
    whole = train(folder / "whole")
    with pytest.raises(KilledError):
        train(folder / "cut", callbacks=[Kill(step)])
    again = train(folder / "cut", callbacks=[], resume=True)
    assert torch.equal(weights(again.model), weights(whole.model))
    assert again.history == whole.history
    return again
