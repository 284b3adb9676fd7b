"""Models that score pairs of texts: cross-encoders, and models that compare texts by a function of their own.

A `SparseEncoder` of sentence-transformers gives a weight to each word of its vocabulary, and compares by the inner
product (or the cosine). A `MultiVectorEncoder` gives a vector to each token, and compares by MaxSim, the sum over the
query's tokens of the largest inner product with a token of the document (`meanmaxsim`: the mean). Neither gives a text
one dense vector, so what is defined on such vectors (ECI_sem, dimensions of a query, HOBIT's distances) refuses them.
They rank a collection (`OwnIndex`), and score pairs wherever a cross-encoder does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from foils.encode.encoder import EncoderSettings, Kind, check_finite, weights_digest
from foils.encode.models import OWN_KINDS, called, check_hub, find_model, loaded, own_kind, refuse_own
from foils.encode.vectors import Texts
from foils.runtime import progress
from foils.runtime.errors import InputError
from foils.runtime.options import refuse

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

HONOURED = ("max_length", "device", "query_prompt", "document_prompt", "encode_batch", "trust_remote_code")
BLOCK = 512  # documents whose similarities to all queries are computed at once


class OwnSimilarity:
    """A SparseEncoder or MultiVectorEncoder, which compares texts by the model's own function.

    It scores pairs as a cross-encoder does, so that it may stand wherever one is asked for.

    Args:
        model: as it is loaded; its maximum length is set. A MultiVectorEncoder's own lengths of queries and documents
            hold below that.
        settings: maximum length, prompts, and texts at once; device and trust are for loading.
        name: what to call it.

    Raises:
        InputError: settings that have no effect on such a model.
    """

    num_labels = 1

    def __init__(self, model: Any, settings: EncoderSettings | None = None, *, name: str = "") -> None:
        self.settings = settings or EncoderSettings()
        self.model_type = model.model_type
        self.kind = OWN_KINDS[self.model_type]
        idle = {key: value for key, value in self.settings.changed().items() if key not in HONOURED}
        refuse(idle, f"on a {self.kind} model, which computes and compares as it was made; leave it out")
        self.model, self.name = model, name or str(model.model_card_data.base_model or self.kind)
        if self.settings.max_length is not None and model.max_seq_length is not None:
            model.max_seq_length = self.settings.max_length
        self.similarity_name = str(model.similarity_fn_name)
        prompts = (self.settings.query_prompt, self.settings.document_prompt, sorted((model.prompts or {}).items()))
        shaping = (self.similarity_name, model.max_seq_length, prompts)
        self.fingerprint = hashlib.blake2b(repr((weights_digest(model), shaping)).encode(), digest_size=16).hexdigest()

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of the model."""
        return {
            "name": self.name, "fingerprint": self.fingerprint, "kind": self.kind, "similarity": self.similarity_name,
            "max_length": self.model.max_seq_length,
        }  # fmt: skip

    def embed(self, texts: Sequence[str], kind: Kind, *, size: int | None = None) -> Any:
        """Return what the model makes of texts, on the processor: a sparse (n, words) tensor, or n arrays (tokens, d).

        Args:
            texts: n ≥ 1.
            kind: "query" or "document".
            size: texts at once; None: those of the settings, or 32.
        """
        encode = self.model.encode_query if kind == "query" else self.model.encode_document
        prompt = self.settings.query_prompt if kind == "query" else self.settings.document_prompt
        out = {"convert_to_numpy": True} if self.kind == "multi-vector" else {"save_to_cpu": True}
        size = self.settings.encode_batch or size or 32
        return encode(list(texts), prompt=prompt, batch_size=size, show_progress_bar=False, **out)

    def similarities(self, queries: Any, documents: Any) -> npt.NDArray[np.float32]:
        """Return the model's own similarity of every query with every document, (n, m), of what `embed` returned."""
        return _array(self.model.similarity(queries, documents))

    def predict(
        self,
        sentences: Sequence[tuple[str, str]],
        *,
        batch_size: int = 32,
        show_progress_bar: bool = False,
        activation_fn: Any = None,
    ) -> npt.NDArray[np.float32]:
        """Return the model's own similarity of (query, document) pairs, (n,); each text is embedded once.

        Args:
            sentences: n pairs, as `CrossEncoder.predict` takes them.
            batch_size: texts at once.
            show_progress_bar: as of a CrossEncoder; there is none.
            activation_fn: likewise; a similarity has none.
        """
        if not len(sentences):
            return np.zeros(0, np.float32)
        sides: list[Any] = []
        for kind, texts in zip(("query", "document"), zip(*sentences, strict=True), strict=True):
            place = {text: at for at, text in enumerate(dict.fromkeys(texts))}
            embedded = self.embed([*place], kind, size=batch_size)  # type: ignore[arg-type]  # a Kind
            sides.append(_rows(embedded, [place[text] for text in texts]))
        return _array(self.model.similarity_pairwise(*sides))

    @staticmethod
    def activation_fn(values: Any) -> Any:
        """Return the values: a similarity is what the model predicts."""
        return values


class OwnIndex:
    """Documents to rank by a model's own similarity, exactly: every query with every document.

    What the model makes of the documents is made once, when the first query comes, and held in memory.

    Args:
        model: compares.
        documents: N texts.
    """

    def __init__(self, model: OwnSimilarity, documents: Texts) -> None:
        self._model, self._documents = model, documents
        self._blocks: list[Any] = []

    def search(self, queries: Sequence[str], k: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Return positions and similarities, each (n, min(k, N)), best first, ties by position.

        Raises:
            FailureError: a similarity that is not finite.
        """
        rows = np.empty((len(queries), 0), np.int64)
        scores = np.empty((len(queries), 0), np.float32)
        if not len(queries):
            return rows, scores
        starts = range(0, len(self._documents), BLOCK)
        if not self._blocks:
            with progress.task("embedding document texts", total=len(self._documents), unit="texts") as advance:
                for start in starts:
                    part = self._documents[start : start + BLOCK]
                    self._blocks.append(self._model.embed(part, "document"))
                    advance(len(part))
        embedded = self._model.embed(queries, "query")
        for start, block in zip(starts, self._blocks, strict=True):
            found = self._model.similarities(embedded, block)
            check_finite(found, queries, self._model.name)
            every = np.concatenate([scores, found], axis=1)
            positions = np.broadcast_to(np.arange(start, start + found.shape[1]), found.shape)
            best = np.argsort(-every, axis=1, kind="stable")[:, :k]
            scores = np.take_along_axis(every, best, axis=1)
            rows = np.take_along_axis(np.concatenate([rows, positions], axis=1), best, axis=1)
        return rows, scores


def open_own(given: Any, settings: EncoderSettings | None = None) -> OwnSimilarity:
    """Return a sparse or multi-vector model, by folder or hub name (safetensors weights), loaded, or as it is.

    Raises:
        InputError: a model of another kind, one that cannot be loaded, or settings that have no effect on it.
    """
    if isinstance(given, OwnSimilarity):
        return given
    kind, settings = own_kind(given), settings or EncoderSettings()
    if kind is None:
        raise InputError(f"{called(given)} is no sparse or multi-vector model of sentence-transformers; take dense")
    if not isinstance(given, (str, Path)):
        return OwnSimilarity(given, settings)
    of = next(name for name, each in OWN_KINDS.items() if each == kind)
    use = {"device": settings.device, "trust_remote_code": settings.trust_remote_code}
    model = loaded(of, f"{kind} model", given, **use)  # type: ignore[arg-type]  # a device, and whether to trust
    return OwnSimilarity(model, settings, name=Path(str(given)).name)


def as_pair_model(given: Any) -> Any:
    """Return a loaded model that scores pairs: a sparse or multi-vector one wrapped, a cross-encoder as it is."""
    return OwnSimilarity(given) if own_kind(given) and not isinstance(given, OwnSimilarity) else given


def _rows(embedded: Any, rows: Sequence[int]) -> Any:
    if isinstance(embedded, list):
        return [embedded[row] for row in rows]
    import torch

    return embedded.index_select(0, torch.as_tensor(rows))


def _array(values: Any) -> npt.NDArray[np.float32]:
    whole = values.to_dense() if values.is_sparse else values
    return np.asarray(whole.float().cpu().numpy(), np.float32)


def load_cross_encoder(
    name: str | Path,
    *,
    max_length: int | None = None,
    device: str | None = None,
    new_head: bool = False,
    seed: int = 0,
    trust_remote_code: bool = False,
) -> CrossEncoder:
    """Load a sentence-transformers cross-encoder (safetensors weights) with one output, by folder or hub name.

    A sparse or multi-vector model scores pairs by its own similarity (`OwnSimilarity`), and may stand in its place. An
    adapter is merged into its base (`merge_adapters`).

    Args:
        name: a folder, or a hub's owner/name.
        max_length: in tokens, of query and document together; None: the model's own.
        device: as torch names it; None: the first that is there.
        new_head: for training: a model without one output gets it.
        seed: of weights that the files do not have.
        trust_remote_code: run code that the model brings along.

    Raises:
        InputError: there is no such model, it cannot be loaded, it has several outputs, or it is a sparse or
            multi-vector one and is to be trained.
    """
    check_hub(find_model(name), "cross-encoder")
    if new_head:
        refuse_own(name)
    elif own_kind(name):
        length = EncoderSettings(max_length=max_length, device=device, trust_remote_code=trust_remote_code)
        return cast("CrossEncoder", open_own(name, length))
    model: CrossEncoder = loaded(
        "CrossEncoder", "cross-encoder", name, device=device, trust_remote_code=trust_remote_code, seed=seed,
        num_labels=1 if new_head else None, max_length=max_length,
    )  # fmt: skip
    check_one_output(model, Path(str(find_model(name))).name)
    return model


def check_one_output(model: CrossEncoder, name: str) -> None:
    """Refuse a cross-encoder that does not give one number for a pair of texts.

    Raises:
        InputError: it has several outputs.
    """
    if model.num_labels != 1:
        raise InputError(f"{name} has {model.num_labels} outputs; expected a cross-encoder with one score per pair")


def cross_encoder_digest(model: CrossEncoder) -> str:
    """Return a digest of everything that decides a logit: weights, tokenizer, maximum length, prompts, modules."""
    if isinstance(model, OwnSimilarity):
        return model.fingerprint
    length = getattr(model, "max_seq_length", None) or model.max_length  # the older name warns in newer versions
    prompts = (getattr(model, "default_prompt_name", None), sorted((getattr(model, "prompts", None) or {}).items()))
    return hashlib.blake2b(repr((weights_digest(model), length, prompts)).encode(), digest_size=16).hexdigest()


def has_drawn_weights(load: Callable[[int], CrossEncoder]) -> bool:
    """Tell whether a model has weights that its files lack, as the head of one from a masked language model.

    Args:
        load: the seed of such weights → the model.
    """
    return cross_encoder_digest(load(0)) != cross_encoder_digest(load(1))


def logits(model: CrossEncoder, pairs: Sequence[tuple[str, str]], *, batch_size: int = 32) -> npt.NDArray[np.float32]:
    """Return (n,) the model's numbers for (query, document) pairs, before any activation; NaN stays NaN.

    Args:
        model: with one output.
        pairs: n.
        batch_size: pairs at once.
    """
    import torch

    found = model.predict(
        list(pairs), batch_size=batch_size, show_progress_bar=False, activation_fn=torch.nn.Identity()
    )
    return np.asarray(found, np.float32).reshape(len(pairs))


def activated(model: CrossEncoder, values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return what `model.predict` makes of logits, of any shape: by the model's own activation, often the sigmoid."""
    import torch

    return np.asarray(model.activation_fn(torch.as_tensor(np.asarray(values, np.float32))), np.float64)
