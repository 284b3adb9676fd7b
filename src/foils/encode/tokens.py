"""Texts to token ids, each once: what encoding, scoring of pairs and training pad their batches from.

The Rust tokenizer of a model takes many texts in one call, without the interpreter's lock, and its
ids lie in one flat array; batches are padded from them by numpy. A model whose preprocessing is not
that of a plain text tokenizer (a chat template, a tokenizer in Python, images) embeds and scores
texts by its own methods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import chain
from threading import Lock
from typing import Any, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import xxhash

from foils.runtime import progress
from foils.runtime.files import cache_place, kept_arrays

TextPair = tuple[str, str]  # a query and a document
Text = str | TextPair
Features = Mapping[str, Any]
Ints = npt.NDArray[np.integer]
Item = TypeVar("Item")
Item_co = TypeVar("Item_co", covariant=True)

LEAST_KEPT = 10_000  # texts of a training whose ids the cache keeps: one core tokenises them in a second
AT_ONCE = 1_024  # of them tokenised together: objects of Python that hold their tokens take 20 MB
UNLIMITED = 10**20  # a maximum length above it cuts no text, as in transformers
NAMES = {"input_ids", "token_type_ids", "attention_mask"}  # of what a plain tokenizer gives a model
PROBES: tuple[str, ...] = ("", "The boat's 3 oars, café and 東京!", "a b " * 300)

_TOKENIZERS: WeakKeyDictionary[Any, dict[Any, Tokenizer | None]] = WeakKeyDictionary()
_KEPT: WeakKeyDictionary[Any, dict[Tokenizer, KeptTokens]] = WeakKeyDictionary()


def characters(text: Text) -> int:
    """Return how many characters a text has, or both texts of a pair."""
    return len(text) if isinstance(text, str) else sum(map(len, text))


class Slices(Protocol[Item_co]):
    """A sequence that may be read in slices from where it is stored."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> Sequence[Item_co]: ...


Texts = Slices[str]


@dataclass(frozen=True)
class Lazy(Generic[Item_co]):
    """Texts, or pairs of texts, that are made slice by slice, when they are read.

    Attributes:
        count: how many there are.
        read: from a slice to what is in it.
    """

    count: int
    read: Callable[[slice], Sequence[Item_co]]

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, part: slice, /) -> Sequence[Item_co]:
        return self.read(part)


@dataclass(frozen=True)
class Tokens:
    """Token ids of n texts, one text after the other.

    Attributes:
        tokenizer: made them, and knows how they are padded.
        ids: (m,) int32.
        types: (m,) token type ids; None: all are 0.
        starts: (n,) where the ids of each text begin.
        lengths: (n,) how many they are.
    """

    tokenizer: Tokenizer
    ids: npt.NDArray[np.int32]
    types: npt.NDArray[np.int32] | None
    starts: Ints
    lengths: Ints

    def batch(self, rows: Ints, *, pinned: bool = False) -> Features:
        """Return these texts' tensors as the model's own `preprocess` makes them, at least one column wide."""
        import torch

        tokenizer, lengths = self.tokenizer, self.lengths[rows]
        ends = np.cumsum(lengths)
        places = np.arange(lengths.sum()) + np.repeat(self.starts[rows] - ends + lengths, lengths)
        if not tokenizer.padding:
            arrays = {"input_ids": self.ids[places].astype(np.int64), "offsets": ends - lengths}
        else:
            width = max(1, int(lengths.max(initial=0)))
            columns = np.arange(width)
            inside = columns < lengths[:, None]
            if tokenizer.left:
                inside = columns >= width - lengths[:, None]
            types = 0 if self.types is None else self.types[places]
            values = {"input_ids": self.ids[places], "token_type_ids": types, "attention_mask": 1}
            arrays = {}
            for name, padding in tokenizer.padding.items():
                arrays[name] = np.full(inside.shape, padding, np.int64)
                arrays[name][inside] = values[name]
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        if pinned:
            tensors = {name: tensor.pin_memory() for name, tensor in tensors.items()}
        return {**tensors, **tokenizer.facts}


@dataclass(frozen=True, kw_only=True, eq=False)
class Tokenizer:
    """The tokenizer of a model, with its prompt, special tokens and maximum length.

    Attributes:
        backend: of the library tokenizers, a copy that cuts texts as the model does and pads none.
        prompt: put before each text; of a pair before its first.
        padding: name of each tensor that the model takes → what fills it up; empty where it takes
            ids one after the other, with offsets, as a StaticEmbedding does.
        left: whether texts are padded on the left.
        typed: whether token type ids other than 0 occur.
        facts: further features, the same for every batch.
    """

    backend: Any
    prompt: str = ""
    padding: Mapping[str, int] = field(default_factory=dict)
    left: bool = False
    typed: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    def fingerprint(self) -> str:
        """Return a digest of everything that decides the ids of a text."""
        import tokenizers

        split_special = self.backend.encode_special_tokens
        facts = tokenizers.__version__, self.prompt, self.typed, bool(self.padding), split_special
        rules = f"{facts}{self.backend.to_str()}"
        return hashlib.blake2b(rules.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()

    def uncut(self) -> Tokenizer:
        """Return the tokenizer that makes the ids of whole texts."""
        backend = deepcopy(self.backend)
        backend.no_truncation()
        return replace(self, backend=backend)

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """Return the ids of texts, or of pairs of texts, made on all cores (`TOKENIZERS_PARALLELISM`)."""
        if self.prompt:
            texts = [
                self.prompt + text if isinstance(text, str) else (self.prompt + text[0], text[1]) for text in texts
            ]
        encodings = self.backend.encode_batch_fast(list(texts), add_special_tokens=bool(self.padding))
        ids = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        types = _flat([encoding.type_ids for encoding in encodings]) if self.typed else None
        return Tokens(self, _flat(ids), types, np.cumsum(lengths) - lengths, lengths)


def _flat(lists: list[list[int]]) -> npt.NDArray[np.int32]:
    return np.fromiter(chain.from_iterable(lists), np.int32, sum(map(len, lists)))


def plain_tokenizer(model: Any, *, prompt: str = "", task: str | None = None, pairs: bool = False) -> Tokenizer | None:
    """Return the tokenizer of a model's texts; None where it does not preprocess as a plain text tokenizer.

    That it gives the model's own ids and masks is tried on a few texts.

    Args:
        model: a SentenceTransformer or a CrossEncoder.
        prompt: put before each text; of a pair before its first.
        task: as `model.preprocess` takes it, "query" or "document"; None: neither.
        pairs: whether texts come in pairs.
    """
    if not len(model):  # a model of somebody's own, without a module that could be looked at
        return None
    backend: Any = getattr(model, "tokenizer", None)
    shaping = ("model_max_length", "padding_side", "truncation_side", "pad_token_id", "split_special_tokens")
    size = len(backend) if hasattr(backend, "__len__") else 0  # of the vocabulary
    key = (prompt, task, pairs, id(backend), size, *(getattr(backend, name, None) for name in shaping))
    known = _TOKENIZERS.setdefault(model, {})
    if key not in known:
        known[key] = _plain_tokenizer(model, prompt, task, pairs)
    return known[key]


def _plain_tokenizer(model: Any, prompt: str, task: str | None, pairs: bool) -> Tokenizer | None:
    from sentence_transformers.base.modules import Transformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer as Backend
    from transformers import PreTrainedTokenizerFast

    module: Any = model[0]
    inner: Any = getattr(model, "tokenizer", None)
    if type(module) is StaticEmbedding and isinstance(inner, Backend) and not pairs:
        backend = _copied(inner, inner.truncation, split_special=inner.encode_special_tokens)
        return _tried(Tokenizer(backend=backend, prompt=prompt), model, task, pairs)
    plain = (
        type(module) is Transformer
        and isinstance(inner, PreTrainedTokenizerFast)
        and inner is module.processor
        and {*inner.model_input_names} <= NAMES
        and "message" not in module.modality_config
        and not (module.processing_kwargs or module.can_flatten_inputs or module.query_expansion)
        and isinstance(inner.model_max_length, (int, float))
        and inner.pad_token_id is not None
    )
    if not plain:
        return None
    lengths = {"query": module.query_length, "document": module.document_length}
    longest = lengths.get(str(task)) or inner.model_max_length
    cut = {"max_length": longest, "stride": 0, "strategy": "longest_first", "direction": inner.truncation_side}
    fills = {"input_ids": inner.pad_token_id, "token_type_ids": inner.pad_token_type_id, "attention_mask": 0}
    truncation = cut if longest <= UNLIMITED else None
    tokenizer = Tokenizer(
        backend=_copied(inner.backend_tokenizer, truncation, split_special=inner.split_special_tokens),
        prompt=prompt,
        padding={name: fill for name, fill in fills.items() if name in inner.model_input_names},
        left=inner.padding_side == "left",
        typed=True,
    )
    return _tried(tokenizer, model, task, pairs)


def _copied(backend: Any, truncation: Mapping[str, Any] | None, *, split_special: bool) -> Any:
    """A copy of a backend that cuts texts as a model does (None: none), pads none, and may split special tokens."""
    copied = deepcopy(backend)
    copied.no_padding()
    copied.no_truncation()
    if truncation is not None:
        copied.enable_truncation(**truncation)
    copied.encode_special_tokens = split_special
    return copied


def _tried(tokenizer: Tokenizer, model: Any, task: str | None, pairs: bool) -> Tokenizer | None:
    """Return the tokenizer, with what the model adds to batches, if it gives what the model's own gives."""
    import torch

    probes: list[Text] = [(first, second) for first in PROBES for second in PROBES[1:]] if pairs else [*PROBES]
    try:
        expected, tokens = model.preprocess(probes, prompt=tokenizer.prompt or None, task=task), tokenizer(probes)
    except Exception:
        # Of Rust, for a vocabulary without an unknown word: the model's own message is the better one.
        return None
    batch = tokens.batch(np.arange(len(probes)))
    facts = {name: value for name, value in expected.items() if not isinstance(value, torch.Tensor)}
    if expected.keys() - facts.keys() != batch.keys() or not all(
        torch.equal(value, expected[name]) for name, value in batch.items()
    ):
        return None
    typed = pairs or (tokens.types is not None and bool(tokens.types.any()))
    return replace(tokenizer, facts=facts, typed=typed)


class KeptTokens:
    """The ids of a tokenizer's texts, each text tokenised once: what a training pads its batches from.

    Texts are known by 128-bit digests; the ids of all lie in one array that grows, or is mapped
    from the cache (`fill`).
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer, self._lock, self.padding = tokenizer, Lock(), tokenizer.padding
        self._places: dict[bytes, int] = {}
        kinds = {"ids": np.int32, "types": np.int32, "starts": np.int64, "lengths": np.int64}
        self._arrays = {name: _Growing(kind) for name, kind in kinds.items()}

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """Return the ids of texts, making those that are not there yet."""
        keys = _keys(texts)
        with self._lock:
            fresh = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._places}
            ids, types, starts, lengths = self._arrays.values()
            if fresh:
                tokens = self._tokenizer([*fresh.values()])
                self._places |= dict(zip(fresh, range(len(self._places), len(self._places) + len(fresh)), strict=True))
                starts.add(tokens.starts + len(ids.values))
                lengths.add(tokens.lengths)
                ids.add(tokens.ids)
                if tokens.types is not None:
                    types.add(tokens.types)
            rows = np.array([self._places[key] for key in keys], np.int64)
            of_ids = types.values if self._tokenizer.typed else None
            return Tokens(self._tokenizer, ids.values, of_ids, starts.values[rows], lengths.values[rows])

    def fill(self, texts: Sequence[Texts]) -> None:
        """Have many texts' ids ready: mapped from the cache, which keeps them for whoever has the same texts.

        Nothing is done for fewer than `LEAST_KEPT`, or where ids of some texts are there already.
        """
        count = sum(map(len, texts))
        if count < LEAST_KEPT or self._places:
            return
        parts = [(each, slice(at, at + AT_ONCE)) for each in texts for at in range(0, len(each), AT_ONCE)]
        places: dict[bytes, int] = {}
        for key in chain.from_iterable(_keys(each[part]) for each, part in parts):
            places.setdefault(key, len(places))
        digest = hashlib.blake2b(self._tokenizer.fingerprint().encode() + b"".join(places), digest_size=16)
        place = cache_place("tokens", digest.hexdigest())

        def make() -> dict[str, Ints]:
            places.clear()
            with progress.task("tokenising", total=count, unit="texts") as advance:
                for each, part in parts:
                    advance(len(self(each[part]).lengths))
            return {name: array.values for name, array in self._arrays.items()}

        for name, values in kept_arrays(place, "ids of texts", make).items():
            self._arrays[name].values = np.asarray(values)
        self._places = self._places or places


def _keys(texts: Sequence[Text]) -> list[bytes]:
    whole = (text if isinstance(text, str) else repr(text) for text in texts)
    return [xxhash.xxh3_128_digest(text.encode("utf-8", "surrogatepass")) for text in whole]


class _Growing:
    """An array to whose end values are added; what was taken of it before stays as it is."""

    def __init__(self, kind: npt.DTypeLike) -> None:
        self.values = self._room = np.zeros(0, kind)

    def add(self, values: Ints) -> None:
        """Add values, doubling the room where they do not fit."""
        count = len(self.values)
        if count + len(values) > len(self._room):
            self._room = np.resize(self.values, 2 * (count + len(values)))
        self._room[count : count + len(values)] = values
        self.values = self._room[: count + len(values)]


def kept_tokens(model: Any, *, prompt: str = "", task: str | None = None, pairs: bool = False) -> KeptTokens | None:
    """Return what keeps the ids of a model's texts while the model lives; None as for `plain_tokenizer`."""
    tokenizer = plain_tokenizer(model, prompt=prompt, task=task, pairs=pairs)
    if tokenizer is None:
        return None
    kept = _KEPT.setdefault(model, {})
    return kept.setdefault(tokenizer, KeptTokens(tokenizer))


def one_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items in order, the next of which a thread makes meanwhile."""
    end = object()
    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(next, items, end)
        while (item := following.result()) is not end:
            following = pool.submit(next, items, end)
            yield item  # type: ignore[misc]  # the end alone is none of the items
