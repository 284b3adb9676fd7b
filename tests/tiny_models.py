"""Models of a few thousand random weights, saved where tests may load them."""

from collections.abc import Sequence
from pathlib import Path

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def _bert(place: Path, kind: str, words: Sequence[str], **sizes: float) -> Path:
    """Save a BERT of width 16 over these words."""
    import torch
    import transformers

    vocabulary = list(dict.fromkeys([*SPECIAL, *words]))
    place.mkdir(parents=True, exist_ok=True)
    (place / "vocab.txt").write_text("\n".join(vocabulary))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_attention_heads=2, max_position_embeddings=64, **sizes
    )
    getattr(transformers, kind)(config).save_pretrained(place)
    transformers.BertTokenizerFast(vocab=str(place / "vocab.txt")).save_pretrained(place)
    return place


def tiny_cross_encoder(place: Path, texts: Sequence[str], *, outputs: int = 1) -> Path:
    """Save a BERT of two layers, over the words of texts, that gives so many numbers for a pair."""
    words = sorted({word for text in texts for word in text.lower().replace(".", "").replace(",", "").split()})
    sizes = {"num_hidden_layers": 2, "intermediate_size": 32, "initializer_range": 0.5, "num_labels": outputs}
    return _bert(place, "BertForSequenceClassification", [".", ",", "'", "s", *words], **sizes)


def tiny_encoder(place: Path, texts: Sequence[str]) -> Path:
    """Save a sentence-transformers model with a random vector of 16 numbers for each word of texts."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    words = sorted({word for text in texts for word in text.lower().split()})
    tokenizer = Tokenizer(models.WordLevel({word: at for at, word in enumerate(["[UNK]", *words])}, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    torch.manual_seed(1)
    SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=16)], device="cpu").save(str(place))
    return place


def decoder_without_separator(place: Path, words: Sequence[str]) -> Path:
    """Save a Qwen3 of one layer that scores pairs, with a tokenizer over these words that has no separator."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForSequenceClassification

    known = {word: at for at, word in enumerate(dict.fromkeys(["<pad>", "<unk>", "\n\n", *words]))}
    tokenizer = Tokenizer(models.WordLevel(known, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n\n", "isolated"), pre_tokenizers.Split(" ", "removed")]
    )
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>").save_pretrained(place)
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=len(known), pad_token_id=0, num_labels=1, hidden_size=16, intermediate_size=16, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, head_dim=8,
    )  # fmt: skip
    Qwen3ForSequenceClassification(config).save_pretrained(place)
    return place


def tiny_sparse_and_multi_vector(place: Path, words: Sequence[str]) -> tuple[Path, Path]:
    """Save a SparseEncoder (SPLADE) and a MultiVectorEncoder (ColBERT) of one layer over the same words."""
    import torch
    from sentence_transformers import MultiVectorEncoder, SparseEncoder
    from sentence_transformers.base.modules import Dense, Transformer
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Normalize

    sizes = {"num_hidden_layers": 1, "intermediate_size": 16, "initializer_range": 1.0}
    masked = _bert(place / "masked", "BertForMaskedLM", words, **sizes)
    plain = _bert(place / "plain", "BertModel", words, **sizes)
    SparseEncoder(str(masked), device="cpu").save(str(place / "splade"))
    torch.manual_seed(1)
    tokens = {"module_input_name": "token_embeddings"}
    projected = Dense(16, 8, bias=False, activation_function=torch.nn.Identity(), **tokens)
    modules = [Transformer(str(plain)), projected, MultiVectorMask(), Normalize(**tokens)]
    prompts = {"query": "w0 ", "document": ""}
    MultiVectorEncoder(modules=modules, device="cpu", prompts=prompts).save(str(place / "colbert"))
    return place / "splade", place / "colbert"
