"""Sparse and multi-vector models of random weights, saved where tests may load them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path


def tiny_sparse_and_multi_vector(place: Path, words: Sequence[str]) -> tuple[Path, Path]:
    """Save a SparseEncoder (SPLADE) and a MultiVectorEncoder (ColBERT) of one layer over the same words."""
    import torch
    from sentence_transformers import MultiVectorEncoder, SparseEncoder
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Normalize
    from transformers import BertConfig, BertForMaskedLM, BertModel, BertTokenizerFast

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    config = BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=64, initializer_range=1.0,
    )  # fmt: skip
    for name, kind in (("masked", BertForMaskedLM), ("plain", BertModel)):
        torch.manual_seed(0)
        (place / name).mkdir(parents=True)
        (place / name / "vocab.txt").write_text("\n".join(vocabulary))
        kind(config).save_pretrained(place / name)
        BertTokenizerFast(vocab=str(place / name / "vocab.txt")).save_pretrained(place / name)
    SparseEncoder(str(place / "masked"), device="cpu").save(str(place / "splade"))
    torch.manual_seed(1)
    tokens = {"module_input_name": "token_embeddings"}
    projected = Dense(16, 8, bias=False, activation_function=torch.nn.Identity(), **tokens)
    modules = [Transformer(str(place / "plain")), projected, MultiVectorMask(), Normalize(**tokens)]
    MultiVectorEncoder(modules=modules, device="cpu", prompts={"query": "w0 ", "document": ""}).save(
        str(place / "colbert")
    )
    return place / "splade", place / "colbert"
