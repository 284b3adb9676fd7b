"""Arguments and options that several verbs share, and how they become a collection, an encoder, a store."""

from __future__ import annotations

import json as jsonlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli.groups import options_of, panel
from foils.cli.show import say
from foils.runtime.errors import InputError

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

    from foils.data import Collection
    from foils.encode import SentenceEncoder, VectorStore

CollectionName = Annotated[
    str,
    typer.Argument(
        metavar="COLLECTION",
        help="A BEIR folder, ir_datasets:ID, hf:NAME, or pydocs; with lenient: before it, records without a text, and "
        "judgements of what is not there, are left out and counted.",
        show_default=False,
    ),
]
SourceNames = Annotated[
    list[str],
    typer.Argument(
        metavar="SOURCE...",
        help="[NAME=]PATH: our Parquet, JSONL in Tevatron's form or as triplets or n-tuples, or a TREC run.",
        show_default=False,
    ),
]
KeepIdenticalIds = Annotated[
    bool,
    typer.Option(
        "--keep-identical-ids",
        help="Treat a document whose id is the query's own as any other. Default: it is neither a negative of the "
        "query nor an answer to it, as in BEIR's evaluation, unless it is labelled relevant.",
    ),
]
Split = Annotated[str, typer.Option("--split", help="Split of the judgements.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Same seed, same bytes.")]
Json = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")]
Device = Annotated[str | None, typer.Option("--device", help="As torch names it. Default: the first that is there.")]
Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the table.", show_default=False)
]
DEFAULT_ENCODER = "all-MiniLM-L6-v2"


_option = panel("Encoder")


@dataclass(frozen=True)
class EncoderOptions:
    """The options of every verb that embeds texts."""

    encoder: Annotated[
        str,
        _option(
            "--encoder",
            "A sentence-transformers model: folder, hub name, or the embedded all-MiniLM-L6-v2.",
            metavar="MODEL",
        ),
    ] = DEFAULT_ENCODER
    query_prompt: Annotated[
        str | None,
        _option(
            "--query-prompt",
            "Before each query, as in training ('query: ' for E5); @NAME: the model's prompt of that name. "
            "Default: the model's own.",
            metavar="TEXT",
        ),
    ] = None
    document_prompt: Annotated[
        str | None, _option("--document-prompt", "Before each document, likewise.", metavar="TEXT")
    ] = None
    max_length: Annotated[int | None, _option("--max-length", "Cut texts after so many tokens.", metavar="TOKENS")] = (
        128
    )
    similarity: Annotated[
        str | None,
        _option(
            "--similarity",
            "How vectors are compared: cosine, or dot (inner product, vectors as they are). Default: what the model "
            "was made for.",
        ),
    ] = None
    precision: Annotated[
        str,
        _option(
            "--precision",
            "Of the computation: float32, bfloat16 or float16. What the lower ones lose is measured and printed.",
        ),
    ] = "float32"
    backend: Annotated[
        str,
        _option(
            "--backend",
            "What runs the transformer: torch, onnx or openvino, the last two on the processor and often faster. "
            "What they change is measured and printed.",
        ),
    ] = "torch"
    storage: Annotated[str, _option("--storage", "Of vectors on disk: float32 or float16 (its loss is printed).")] = (
        "float32"
    )
    encode_batch: Annotated[int, _option("--encode-batch", "Texts encoded at once.")] = 16
    device: Annotated[str | None, _option("--device", "As torch names it. Default: the first that is there.")] = None
    vectors: Annotated[
        Path | None,
        _option(
            "--vectors",
            "Where vectors are kept, so that no text is embedded twice. Default: the cache.",
            metavar="FOLDER",
        ),
    ] = None
    trust_remote_code: Annotated[bool, _option("--trust-remote-code", "Run code that the model brings along.")] = False

    def cross_encoder(self, name: str) -> CrossEncoder:
        """Load a cross-encoder, which the length, the device and whether its own code runs are of too."""
        from foils.encode.cross_encoders import load_cross_encoder

        return load_cross_encoder(
            name, max_length=self.max_length, device=self.device, trust_remote_code=self.trust_remote_code
        )

    def open(self, collection: Collection) -> tuple[SentenceEncoder, VectorStore]:
        """Load the encoder and open the store; print what a lower precision or storage loses on this collection."""
        from foils.encode import EncoderSettings, load_encoder

        settings = EncoderSettings(
            query_prompt=self.query_prompt,
            document_prompt=self.document_prompt,
            max_length=self.max_length,
            similarity=self.similarity,
            precision=self.precision,
            backend=self.backend,
            encode_batch=self.encode_batch,
            device=self.device,
            trust_remote_code=self.trust_remote_code,
        )
        encoder = load_encoder(self.encoder, settings)
        store = vector_store(self.vectors, storage=self.storage)
        if (self.precision, self.storage, self.backend) != ("float32", "float32", "torch"):
            exact = load_encoder(self.encoder, replace(settings, precision="float32", backend="torch"))
            self._report_loss(exact, encoder, collection)
        return encoder, store

    def _report_loss(self, exact: SentenceEncoder, encoder: SentenceEncoder, collection: Collection) -> None:
        import numpy as np

        from foils.encode.vectors import cosine_loss

        rows = np.unique(np.linspace(0, len(collection.documents) - 1, 64).astype(int))
        texts = collection.document_texts(rows)
        found = encoder.encode(texts, "document")
        if self.storage == "float16":
            found = found.astype(np.float16).astype(np.float32)
        mean, least = cosine_loss(exact.encode(texts, "document"), found)
        say(
            f"--backend {self.backend} --precision {self.precision} --storage {self.storage}: cosine to "
            f"plain float32 vectors {mean:.6f} on average, {least:.6f} at least, over {len(texts)} documents"
        )


EMBEDDING = (*options_of(EncoderOptions), "--ray")
OF_CROSS_ENCODERS = ("--max-length", "--device", "--trust-remote-code")


def left_out(identical_ids: int) -> str:
    """Return the sentence about documents of identical ids that are no answers; "" where there are none."""
    said = "queries: the document with the query's own id is left out (--keep-identical-ids)"
    return f"{identical_ids:,} {said}" if identical_ids else ""


MODELS_OWN_LENGTH = EncoderOptions(max_length=None)


def vector_store(folder: Path | None, *, storage: str = "float32") -> VectorStore:
    """Return the store of vectors in a folder; None: in the cache."""
    from foils.data.store import cache_folder
    from foils.encode import VectorStore

    return VectorStore(folder or cache_folder() / "vectors", storage=storage)


def parsed_setting(text: str) -> tuple[str, Any]:
    """Return name and value of NAME=VALUE, the value as JSON.

    Raises:
        InputError: it is not of this form.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--set {text}: expected NAME=VALUE, as in --set margin=0.1")
    try:
        return name, jsonlib.loads(value)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"--set {text}: {value!r} is not a number, true, false or a list as in [100, 200, 400, 600]"
        ) from error


def parsed_loosely(text: str) -> tuple[str, Any]:
    """Read NAME=VALUE, where a value that is no JSON is a word (mixing=gradnorm)."""
    name, equals, value = text.partition("=")
    if equals and value.replace("-", "").isalpha() and value not in ("true", "false"):
        return name, value
    return parsed_setting(text)
