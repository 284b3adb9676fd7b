"""Models to train: what a folder or hub name holds, or the word table of one as a static embedding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from foils.encode.models import find_model, loading
from foils.encode.similarity import similarity_of
from foils.errors import InputError

STATIC = "static:"


def load_trainable(
    name: str, *, device: str | None = None, trust_remote_code: bool = False, similarity: str | None = None
) -> Any:
    """Return a SentenceTransformer to train.

    `static:NAME` is a bag of words that begins with the (input) word vectors of the model NAME: the mean of the
    vectors of a text's tokens. It trains in seconds.

    Args:
        name: a folder, a hub name, the embedded all-MiniLM-L6-v2, or `static:` before one of them.
        device: as torch names it; None: what sentence-transformers chooses.
        trust_remote_code: run code that the model brings along.
        similarity: cosine or dot: how it compares vectors from now on, in loss, measure and the saved model; None: its
            own.

    Raises:
        InputError: there is no such model, or it has no word table.
        UnknownNameError: an unknown similarity.
    """
    model = _loaded(name, device, trust_remote_code)
    if similarity is not None:
        model.similarity_fn_name = similarity_of(model, similarity)
    return model


def _loaded(name: str, device: str | None, trust_remote_code: bool) -> Any:
    from sentence_transformers import SentenceTransformer

    with loading("model", name):
        if name.startswith(STATIC):
            return static_embedding(find_model(name.removeprefix(STATIC)), device=device)
        return SentenceTransformer(
            str(find_model(name)),
            device=device,
            trust_remote_code=trust_remote_code,
            model_kwargs={"use_safetensors": True},
        )


def static_embedding(folder: Path | str, *, device: str | None = None) -> Any:
    """Return a StaticEmbedding of a transformer's word table, read from its safetensors and tokenizer.json.

    Raises:
        InputError: no folder with both, or no table of words in it.
    """
    from safetensors import safe_open
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    weights, tokens = Path(folder) / "model.safetensors", Path(folder) / "tokenizer.json"
    if not (weights.is_file() and tokens.is_file()):
        raise InputError(f"{folder}: expected model.safetensors and tokenizer.json; give the folder of a transformer")
    with safe_open(weights, "pt") as tensors:
        names = [name for name in tensors.keys() if name.endswith("word_embeddings.weight")]  # noqa: SIM118 (not a dict)
        if len(names) != 1:
            raise InputError(f"{weights}: expected one tensor ….word_embeddings.weight, found {len(names)}")
        table = tensors.get_tensor(names[0]).float()
    tokenizer = Tokenizer.from_file(str(tokens))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table)], device=device)
