"""What precision="auto" becomes: by what the device computes, by what it changes, and the same the next time."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foils.encode import EncoderSettings, SentenceEncoder, load_encoder, opening
from foils.encode import forward as forward_module
from foils.encode.encoder import weights_digest
from foils.encode.opening import EncodingSettings, computes_bfloat16, multiplies

torch = pytest.importorskip("torch")
pytest.importorskip("sentence_transformers")
from train_models import bert_model, made_up, static_model  # noqa: E402

CPU = torch.device("cpu")
COLLECTION = made_up()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bert_model(tmp_path / "bert").save_pretrained(str(tmp_path / "saved"))
    return tmp_path / "saved"


@pytest.fixture
def native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "computes_bfloat16", lambda device: True)


def opened(folder: Path, store: Path, **settings: Any) -> SentenceEncoder:
    encoder, _ = EncodingSettings(encoder=str(folder), device="cpu", vectors=store, **settings).open(COLLECTION)
    assert isinstance(encoder, SentenceEncoder)
    return encoder


def processor(monkeypatch: pytest.MonkeyPatch, used: str, **capabilities: bool) -> None:
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: used)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: capabilities, raising=False)


def test_what_computes_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_device_that_computes_bfloat16_uses_it_and_the_log_says_so_in_one_line(
    folder: Path, tmp_path: Path, native: None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="foils.encode")
    encoder = opened(folder, tmp_path / "store")
    assert encoder.describe()["precision"] == encoder.settings.precision == "bfloat16"
    assert {each.dtype for each in encoder.model.parameters()} == {torch.bfloat16}
    assert encoder.fingerprint == load_encoder(folder, EncoderSettings(precision="bfloat16", device="cpu")).fingerprint
    (line,) = (each.getMessage() for each in caplog.records)
    assert line.startswith("precision bfloat16: cosine of bfloat16 to float32 0.999")
    assert "over 104 texts; precision float32 computes exactly" in line  # 64 of 80 documents, and 40 queries


def test_without_it_float32_stays_and_nothing_is_encoded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
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
def test_vectors_that_change_too_much_stay_in_float32(
    broken: str,
    folder: Path,
    tmp_path: Path,
    native: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, logger="foils.encode")
    if broken == "rounded":
        monkeypatch.setattr(opening, "LEAST_COSINE", 1 - 1e-12)
    else:
        real = forward_module.batched_vectors

        def overflowing(model: Any, *args: Any, **more: Any) -> Any:
            return real(model, *args, **more) + (np.nan if model.dtype == torch.bfloat16 else 0)

        monkeypatch.setattr("foils.encode.encoder.batched_vectors", overflowing)
    encoder = opened(folder, tmp_path / "store")
    assert {each.dtype for each in encoder.model.parameters()} == {torch.float32}
    plain = load_encoder(folder, EncoderSettings(precision="float32", device="cpu"))
    np.testing.assert_array_equal(encoder.encode(["ba be"], "query"), plain.encode(["ba be"], "query"))
    (line,) = (each.getMessage() for each in caplog.records)
    assert line.startswith("precision float32: cosine of bfloat16")
    assert line.endswith("is expected")


def test_the_choice_is_the_same_the_next_time_and_encodes_nothing(
    folder: Path, tmp_path: Path, native: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = opened(folder, tmp_path / "store")

    def refuse(*args: Any, **more: Any) -> Any:
        raise AssertionError("a text was encoded again")

    monkeypatch.setattr("foils.encode.encoder.batched_vectors", refuse)
    second = opened(folder, tmp_path / "store")
    assert second.fingerprint == first.fingerprint


def test_what_is_not_left_open_is_not_chosen(folder: Path, tmp_path: Path, native: None) -> None:
    """Keys of float32 are those that they were before there was another precision."""
    assert opened(folder, tmp_path / "store", precision="float32").precision == "float32"
    assert not (tmp_path / "store").exists()
    bert, words = bert_model(tmp_path / "one"), static_model()
    assert SentenceEncoder(bert).precision == "float32"  # a loaded model stays as it is
    assert multiplies(bert)
    assert not multiplies(words)
    key = hashlib.blake2b(repr((weights_digest(words), (None, True, "float32", "torch"))).encode(), digest_size=16)
    assert SentenceEncoder(words).fingerprint == key.hexdigest()


def test_weights_in_bfloat16_are_computed_in_float32_where_that_is_chosen(tmp_path: Path) -> None:
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
