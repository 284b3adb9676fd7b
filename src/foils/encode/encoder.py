"""Text to vectors, by any sentence-transformers model, with a fingerprint of everything that shapes them.

Texts are sorted by length and tokenised in windows (`foils.encode.tokens`); those of a window are
sorted again, by their tokens, and cut where a batch is full: little padding, and activations that
stay in a processor's cache. Windows and batches change speed, not vectors beyond rounding.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, SupportsIndex, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from foils.encode.models import (
    SIMILARITIES,
    STATIC,
    is_routed,
    is_static,
    length_of,
    load_model,
    set_length,
    similarity_of,
)
from foils.encode.tokens import Features, KeptTokens, Text, Tokenizer, Tokens, characters, one_ahead, plain_tokenizer
from foils.runtime.errors import FailureError, check_names
from foils.runtime.options import Option, Settings, spelled

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

#: What a text is embedded as, which decides prompt and route.
Kind = Literal["query", "document"]
Floats = npt.NDArray[np.float32]
AnyFloats = TypeVar("AnyFloats", bound=npt.NDArray[np.floating])
Rows = npt.NDArray[np.intp]
Batch = tuple[Rows, Features]  # rows of the texts, and their features

WINDOW = 1_024  # texts tokenised together; with more the share of padding falls no further
ON_GPU = 4_096  # such texts of a GPU: the first of them it waits for
TOKENS = {"cpu": 1_024, "cuda": 65_536}  # of a batch, with padding, by type of device
ON_OTHERS = 16_384
UNPADDED = 1 << 20  # such tokens where none is padded, as of a word table
AT_ONCE = 65_536  # texts that a GPU is given in one call, sorted by length together
NUMBERS = 1 << 26  # of their vectors together
# Texts of a batch, or pairs, of a model that makes its batches itself and cuts texts; else `WINDOW`.
ENCODE_BATCH = 32
# Parts of a batch, for models whose device was out of memory.
_PARTS: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
PRECISIONS = ("auto", "float32", "bfloat16", "float16")
PROMPT_NAMES: dict[Kind, tuple[str, ...]] = {"query": ("query",), "document": ("document", "passage", "corpus")}


log = logging.getLogger(__name__)


class Encoder(Protocol):
    """What the vector store and the stages need of an encoder.

    It may have an attribute `device`, the torch device on which its vectors are searched.

    Attributes:
        name: what to call it in tables and reports.
        dimension: d, of the vectors.
        fingerprint: a digest of the weights and of every setting that changes a vector, prompts apart.
    """

    name: str
    dimension: int
    fingerprint: str

    def route(self, kind: Kind) -> str:
        """Return what beside the text decides a vector of this kind: the prompt, the path in the model."""

    def encode(self, texts: Sequence[str], kind: Kind) -> Floats:
        """Return (n, d) vectors of the texts, all finite, of unit length where compared by the cosine."""


@dataclass(frozen=True)
class EncoderSettings(Settings):
    """How a sentence-transformers model is used.

    Attributes:
        max_length: Tokens after which a text is cut. Default, where none is shown: the model's own
            maximum. A static embedding cuts none.
        device: torch device, e.g. cuda:0. Default: the first one available.
        query_prompt: Text put before each query, as in training ('query: ' for E5), or @NAME, the
            model's prompt of that name (@@: a text that begins with @). Default: the model's own
            for queries.
        document_prompt: Text put before each document, or @NAME. Default: the model's own for documents.
        similarity: How vectors are compared: by cosine (scaled to unit length) or dot (as they
            are). Default: what the model was made for.
        precision: Precision of the computation. auto is bfloat16 where the device computes it
            natively and the lowest cosine to float32 over a sample of the collection is at least
            .999, and float32 elsewhere; it reports the loss. In Python a loaded model stays as it
            is by auto.
        trust_remote_code: Run code that comes with the model.
    """

    heading = "Encoder"

    max_length: Annotated[int | None, Option(metavar="TOKENS", least=2)] = None
    device: str | None = None
    query_prompt: str | None = None
    document_prompt: str | None = None
    similarity: Annotated[str | None, Option(names=SIMILARITIES, in_program=False)] = None
    precision: Annotated[str, Option(names=PRECISIONS)] = "auto"
    trust_remote_code: bool = False


class SentenceEncoder:
    """A sentence-transformers model as an `Encoder`.

    Attributes:
        static: whether it looks up word vectors, which know no context.

    Args:
        model: a loaded SentenceTransformer; it is moved to `settings.precision`, unless that is
            auto, and its maximum length is set.
        settings: how to use it.
        name: what to call it.

    Raises:
        UnknownNameError: a prompt `@NAME` that the model does not have.
        InputError: the model was made for a distance, and the settings choose no similarity.
    """

    def __init__(self, model: SentenceTransformer, settings: EncoderSettings | None = None, *, name: str = "") -> None:
        self.settings = settings or EncoderSettings()
        self.model = model
        self.name = name or str(model.model_card_data.base_model or "model")
        set_length(model, self.settings.max_length)
        self.max_length = length_of(model)
        self._prompts: dict[Kind, str] = {
            "query": prompt_of(model, "query", self.settings.query_prompt),
            "document": prompt_of(model, "document", self.settings.document_prompt),
        }
        self._asymmetric = is_routed(model)
        self.similarity = similarity_of(model, self.settings.similarity)
        self.static = is_static(model)
        self.dimension = int(model.get_embedding_dimension() or 0)
        self._weights = weights_digest(model)
        self._source: str | None = None  # `load_encoder` knows it
        self.compute_in(self.settings.precision)

    def compute_in(self, precision: str) -> None:
        """Move the model to a precision ("auto": as it is), and say so in settings and fingerprint."""
        model = self.model
        dtype = str(next((each.dtype for each in model.parameters()), "float32")).removeprefix("torch.")
        self.settings = replace(self.settings, precision=precision)
        self.precision = dtype if precision == "auto" else precision
        # A model as it is has the name that it always had.
        named = "float32" if precision == "auto" else precision
        if precision == "float32" != dtype:
            named = f"{precision} of {dtype}"
        # "torch" stands for what runs the model: others could, and vectors that are kept stay known.
        shaping = (self.max_length, self.similarity == "cosine", named, "torch")
        shaping += (model.truncate_dim,) if model.truncate_dim is not None else ()
        self.fingerprint = hashlib.blake2b(repr((self._weights, shaping)).encode(), digest_size=16).hexdigest()
        if dtype != self.precision:
            import torch

            model.to(getattr(torch, precision))

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        """Send an encoder loaded by name to other processes by that name: they load the same weights."""
        if self._source is None:
            return super().__reduce_ex__(protocol)
        return _loaded_again, (self._source, self.settings, self.fingerprint)

    def route(self, kind: Kind) -> str:
        """Return the prompt, and the kind where the model treats queries and documents differently."""
        return f"{kind if self._asymmetric else ''}\x1f{self._prompts[kind]}"

    @property
    def device(self) -> str:
        """The torch device on which vectors are searched: that of the settings, or else the model's."""
        return self.settings.device or str(self.model.device)

    @property
    def at_once(self) -> int:
        """How many texts are best given to `encode` together."""
        return WINDOW if self.model.device.type == "cpu" else max(WINDOW, min(AT_ONCE, NUMBERS // self.dimension))

    def describe(self) -> dict[str, Any]:
        """Return what provenance says of the encoder."""
        facts = ("name", "fingerprint", "dimension", "max_length", "similarity", "precision")
        prompts = {f"{kind}_prompt": text for kind, text in self._prompts.items()}
        return {**{name: getattr(self, name) for name in facts}, **prompts}

    def encode(self, texts: Sequence[str], kind: Kind) -> Floats:
        """Return (n, d) float32 vectors of the texts, in order.

        Raises:
            FailureError: a vector is NaN or infinite; the message names the text.
        """
        if not len(texts):
            return np.zeros((0, self.dimension), np.float32)
        model, prompt = self.model, self._prompts[kind]
        tokenizer = plain_tokenizer(model, prompt=prompt, task=kind)
        if tokenizer is not None:
            vectors = model_outputs(model, texts, self.dimension, tokenizer, task=kind)
        else:
            encode = model.encode_query if kind == "query" else model.encode_document
            size = WINDOW if self.max_length is None else ENCODE_BATCH
            tensor = encode(
                list(texts), prompt=prompt, batch_size=size, show_progress_bar=False, convert_to_tensor=True,
                normalize_embeddings=False,
            )  # fmt: skip
            vectors = tensor.float().cpu().numpy()
        return check_finite(unit(vectors) if self.similarity == "cosine" else vectors, texts, self.name)


def load_encoder(name: str | Path, settings: EncoderSettings | None = None) -> SentenceEncoder:
    """Load a model: folder, hub name, embedded default, or `static:NAME`, one's word table (`load_model`).

    It computes in float32 where the precision is "auto": doors, which have a collection to try it
    on, choose a faster one (`foils.encode.vectors.fastest`). Nothing is downloaded where
    `HF_HUB_OFFLINE` is set.

    Raises:
        InputError: there is no such model, or it cannot be loaded; the message says what was tried.
    """
    settings = settings or EncoderSettings()
    if settings.precision == "auto":
        settings = replace(settings, precision="float32")
    model = load_model(name, device=settings.device, trust_remote_code=settings.trust_remote_code)
    prefix = STATIC if str(name).startswith(STATIC) else ""
    place = Path(str(name).removeprefix(prefix))
    encoder = SentenceEncoder(model, settings, name=prefix + place.name)
    encoder._source = prefix + str(place.absolute() if place.is_dir() else place)
    return encoder


@lru_cache(maxsize=2)
def _loaded_again(source: str, settings: EncoderSettings, fingerprint: str) -> SentenceEncoder:
    """Load an encoder in another process; other weights than the sender's are a FailureError."""
    if (encoder := load_encoder(source, settings)).fingerprint != fingerprint:
        raise FailureError(f"the encoder {source} has other weights than at its sender; give both the same weights")
    return encoder


def unit(vectors: npt.NDArray[np.floating]) -> Floats:
    """Return the vectors, (n, d), in single precision, each of length 1; one that is zero stays zero."""
    single = np.asarray(vectors, np.float32)
    lengths = np.linalg.norm(single, axis=1, keepdims=True)
    return np.asarray(single / np.where(lengths > 0, lengths, 1), np.float32)


def check_finite(vectors: AnyFloats, texts: Sequence[str], name: str) -> AnyFloats:
    """Return the vectors; a FailureError names the first text whose vector is NaN or infinite."""
    if not (finite := np.isfinite(vectors).all(axis=1)).all():
        text = texts[int(np.flatnonzero(~finite)[0])]
        problem = f"{int((~finite).sum())} vectors of {name} are NaN or infinite (first text: {text[:80]!r})"
        raise FailureError(f"{problem}; try {spelled('precision', 'float32')}, or check the model")
    return vectors


def prompt_of(model: SentenceTransformer, kind: Kind, asked: str | None) -> str:
    """Return the text that is put before texts of a kind.

    Args:
        model: has prompts of its own.
        kind: query or document.
        asked: the text, @NAME for the model's prompt of that name, @@ before a text that begins
            with @; None: the model's own for this kind, empty where it has none.

    Raises:
        UnknownNameError: the model has no prompt of that name.
    """
    prompts: dict[str, str] = dict(model.prompts or {})
    if asked is None:
        return next((prompts[name] for name in PROMPT_NAMES[kind] if prompts.get(name)), "")
    if asked.startswith("@@"):
        return asked[1:]
    if not asked.startswith("@"):
        return asked
    check_names(f"prompt of the model for a {kind}", [asked[1:]], prompts)
    return prompts[asked[1:]]


def weights_digest(model: Any) -> str:
    """Return a digest of a model's weights, of its modules' settings and of its tokenizer."""
    import torch

    hasher = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(model.state_dict().items()):
        hasher.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
        flat = tensor.detach().cpu().contiguous().flatten()
        hasher.update(flat.view(dtype=torch.uint8).numpy() if flat.numel() else b"")
    for module in model.children():
        settings_of = module.get_config_dict() if hasattr(module, "get_config_dict") else {}
        hasher.update(f"{type(module).__name__}{json.dumps(settings_of, sort_keys=True, default=str)}".encode())
    tokenizer = getattr(model, "tokenizer", None)
    backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
    if backend is not None and hasattr(backend, "to_str"):
        # Calls change padding and truncation, which the maximum length covers.
        facts = json.loads(backend.to_str())
        kept = {key: value for key, value in facts.items() if key not in ("padding", "truncation")}
        hasher.update(json.dumps(kept, sort_keys=True).encode())
    return hasher.hexdigest()


def model_outputs(
    model: Any,
    texts: Sequence[Text],
    width: int,
    tokenize: Tokenizer | KeptTokens,
    *,
    output: str = "sentence_embedding",
    task: str | None = None,
) -> Floats:
    """Return (n, width) float32 of what a model gives for texts, or for pairs of texts, in batches of tokens.

    On a processor one batch on each core at a time. A GPU computes while the next texts are
    tokenised; where its memory does not hold a batch, batches are halved, once for each model.

    Args:
        model: a SentenceTransformer or CrossEncoder that has a `plain_tokenizer`.
        texts: (n,).
        width: numbers of a text, of which the model may give more.
        tokenize: texts → their tokens.
        output: name of the model's output.
        task: "query" or "document", where the model knows both; None: neither.

    Raises:
        FailureError: the device's memory does not hold one text.
    """
    import torch

    values, waiting = np.empty((len(texts), width), np.float32), list[tuple[Rows, Any]]()
    device, more = model.device, {} if task is None else {"task": task}
    most = TOKENS.get(device.type, ON_OTHERS) if tokenize.padding else UNPADDED

    def room() -> int:
        return most // _PARTS.get(model, 1)

    def forward(batch: Batch) -> None:
        rows, features = batch
        with torch.inference_mode():
            moved = {
                name: value.to(device, non_blocking=True) if hasattr(value, "to") else value
                for name, value in features.items()
            }
            outputs = model(moved, **more)[output].reshape(len(rows), -1)[:, :width].float()
            if device.type == "cuda":
                waiting.append((rows, torch.empty(outputs.shape, pin_memory=True).copy_(outputs, non_blocking=True)))
            else:
                values[rows] = outputs.cpu().numpy()

    def fitting(batch: Batch) -> None:
        try:
            return forward(batch)
        except torch.OutOfMemoryError as error:
            if len(batch[0]) < 2:
                problem = f"the memory of {device} does not hold the model and one text: {error}"
                raise FailureError(
                    f"{problem}; cut texts ({spelled('max_length', '128')}), or take a smaller model"
                ) from error
        _PARTS[model] = 2 * _PARTS.get(model, 1)
        log.warning("%s is out of memory: from now on a batch has half as many tokens, %d", device, room())
        torch.cuda.empty_cache()
        for rows in np.array_split(batch[0], 2):
            fitting((rows, tokenize([texts[row] for row in rows]).batch(np.arange(len(rows)))))

    model.eval()
    windows = tokenized_windows(texts, tokenize, WINDOW if device.type == "cpu" else ON_GPU)
    if device.type != "cpu":
        windows = one_ahead(windows)
    batches = token_batches(windows, room, pinned=device.type == "cuda")
    spread = device.type == "cpu" and _without_state(model)
    side_by_side(fitting, batches, threads=torch.get_num_threads() if spread else 1)
    if waiting:
        torch.cuda.synchronize(device)
    for rows, outputs in waiting:
        values[rows] = outputs.numpy()
    return values


def _without_state(model: Any) -> bool:
    """Tell whether several threads may run the model: no code of its own, no rotation grows with the text."""
    if is_static(model):
        return True
    config: Any = model[0].auto_model.config
    rotations = str([getattr(config, name, None) for name in ("rope_parameters", "rope_scaling")])
    ours = type(model[0].auto_model).__module__.startswith("transformers.")
    return ours and "dynamic" not in rotations and "longrope" not in rotations


def tokenized_windows(
    texts: Sequence[Text], tokenize: Callable[[Sequence[Text]], Tokens], window: int
) -> Iterator[tuple[Rows, Tokens]]:
    """Yield (rows, tokens) of `window` texts at a time, the longest texts first."""
    order = np.argsort([-characters(text) for text in texts], kind="stable")
    for start in range(0, len(order), window):
        rows = order[start : start + window]
        yield rows, tokenize([texts[row] for row in rows])


def token_batches(
    windows: Iterable[tuple[Rows, Tokens]], room: Callable[[], int], *, pinned: bool = False
) -> Iterator[Batch]:
    """Yield (rows, features) of batches of the windows' texts, each window's sorted by their tokens.

    Args:
        windows: rows of texts, and their tokens.
        room: asked before each batch: how many tokens it holds at most, padding counted, at least
            one text.
        pinned: whether features lie in memory that a GPU reads by itself.
    """
    for rows, tokens in windows:
        lengths = tokens.lengths
        order = np.argsort(-lengths, kind="stable")
        at = 0
        while at < len(order):
            chosen = order[at : at + max(1, room() // max(1, int(lengths[order[at]])))]
            yield rows[chosen], tokens.batch(chosen, pinned=pinned)
            at += len(chosen)


def side_by_side(work: Callable[[Batch], None], batches: Iterator[Batch], *, threads: int) -> None:
    """Do the work of each batch: in as many threads of one core each, where there are as many batches.

    One batch on all cores waits for the slowest of them at every operation; batches side by side
    wait once, at the end. Fewer batches than threads are done one after the other, each on all
    cores.
    """
    ahead = list(islice(batches, threads)) if threads > 1 else []
    if len(ahead) < max(2, threads):
        for batch in chain(ahead, batches):
            work(batch)
        return
    import torch

    before, running = torch.get_num_threads(), deque[Future[None]]()
    try:
        with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for batch in chain(ahead, batches):
                running.append(pool.submit(work, batch))
                if len(running) > 2 * threads:
                    running.popleft().result()
            for each in running:
                each.result()
    finally:
        torch.set_num_threads(before)  # the threads of the pool have set it to one


# Cross-encoders


def cross_encoder_digest(model: CrossEncoder) -> str:
    """Return a digest of all that decides a logit: weights, tokenizer, maximum length, prompts, modules."""
    # The older name warns in newer versions.
    length = getattr(model, "max_seq_length", None) or model.max_length
    prompts = (getattr(model, "default_prompt_name", None), sorted((getattr(model, "prompts", None) or {}).items()))
    return hashlib.blake2b(repr((weights_digest(model), length, prompts)).encode(), digest_size=16).hexdigest()


def logits(model: CrossEncoder, pairs: Sequence[tuple[str, str]]) -> npt.NDArray[np.float32]:
    """Return (n,) the model's numbers for (query, document) pairs, before any activation; NaN stays NaN.

    Args:
        model: with one output.
        pairs: n.
    """
    import torch
    from sentence_transformers import CrossEncoder

    if not len(pairs):
        return np.zeros(0, np.float32)
    if getattr(model.predict, "__func__", None) is CrossEncoder.predict:
        prompt = (model.prompts or {}).get(str(model.default_prompt_name), "")
        tokenizer = plain_tokenizer(model, prompt=prompt, pairs=True)
        if tokenizer is not None:
            return model_outputs(model, pairs, 1, tokenizer, output="scores")[:, 0]
    values = model.predict(
        list(pairs), batch_size=ENCODE_BATCH, show_progress_bar=False, activation_fn=torch.nn.Identity()
    )
    return np.asarray(values, np.float32).reshape(len(pairs))


def activated(model: CrossEncoder, values: npt.NDArray[np.floating]) -> npt.NDArray[np.float64]:
    """Return what `model.predict` makes of logits of any shape by the model's activation, often the sigmoid."""
    import torch

    return np.asarray(model.activation_fn(torch.as_tensor(np.asarray(values, np.float32))), np.float64)
