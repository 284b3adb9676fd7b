"""Runs a sentence-transformers model's transformer in onnxruntime or OpenVINO; the modules after it stay as they are.

The transformer is exported to ONNX once and kept in a folder. Pooling, projection and normalisation run the model's
own code on the token embeddings that come back, so that they cannot differ.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from foils.runtime.errors import FailureError, InputError, UnknownNameError, require
from foils.runtime.files import hold, write_whole_folder

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float32]
Runner = Callable[[dict[str, Array]], Floats]

_AFTER = ("Dense", "Dropout", "LayerNorm", "Normalize", "Pooling")  # modules that see nothing but token embeddings
_FORWARD = {"method": "forward", "method_output_name": "last_hidden_state"}
_LOG = logging.getLogger(__name__)


class CompiledModel:
    """A sentence-transformers model whose transformer runs in another library, on the processor.

    It uses as many threads as torch did when it was made.

    Args:
        model: Transformer, Pooling and what may follow them, in float32, on the processor. It is not changed.
        folder: where exports are kept. A folder `FINGERPRINT.onnx` is made in it, whole or not at all, and used
            again by whoever comes with the same fingerprint.
        fingerprint: a name for the weights, good as a file's name; another one for other weights.
        backend: "onnx" (onnxruntime) or "openvino".
        precision: "float32"; OpenVINO also computes in "bfloat16".

    Raises:
        UnknownNameError: a backend or precision that there is not.
        InputError: a model of another architecture, precision or device.
        MissingExtraError: the backend's packages are not installed.
        FailureError: the transformer cannot be exported.
    """

    def __init__(
        self,
        model: SentenceTransformer,
        folder: str | Path,
        *,
        fingerprint: str,
        backend: str = "onnx",
        precision: str = "float32",
    ) -> None:
        if backend not in _RUNNERS:
            raise UnknownNameError("backend", backend, [*_RUNNERS, "torch"])
        open_runner, precisions = _RUNNERS[backend]
        if precision not in precisions:
            raise UnknownNameError(f"precision of backend {backend}", precision, precisions)
        if not fingerprint or Path(fingerprint).name != fingerprint:
            raise InputError(f"fingerprint {fingerprint!r}; expected a name without folders")
        _check(model, backend)
        require("openvino" if backend == "openvino" else "onnxruntime", backend)
        self.inputs = _inputs(model)
        path = Path(folder) / f"{fingerprint}.onnx" / "model.onnx"
        if not path.is_file():
            _export(model, self.inputs, path, backend)
        hold(path.parent, by=self)
        self._run = open_runner(path, precision)
        self._after = [copy.deepcopy(module).eval() for module in list(model)[1:]]

    def encode_batch(self, features: Mapping[str, Any]) -> Floats:
        """Return (B, d) float32 vectors of a batch, as the model's own modules would make them.

        Args:
            features: what the model's `preprocess` gives, as arrays or tensors: `input_ids` and `attention_mask`
                (B, L), whatever else the transformer takes, and `prompt_length` where pooling leaves prompts out.

        Raises:
            InputError: an input of the transformer is missing.
        """
        import torch

        missing = [name for name in self.inputs if name not in features]
        if missing:
            raise InputError(f"no {', '.join(missing)} among the features {', '.join(features)}; run preprocess first")
        tokens = self._run({name: np.asarray(features[name], np.int64) for name in self.inputs})
        rest = {name: torch.as_tensor(value) if name in self.inputs else value for name, value in features.items()}
        rest["token_embeddings"] = torch.from_numpy(tokens)
        with torch.inference_mode():
            for module in self._after:
                rest = module(rest)
        vectors: Floats = rest["sentence_embedding"].float().numpy()
        return vectors


def _check(model: SentenceTransformer, backend: str) -> None:
    """Raise where the model is not one whose first module alone is a transformer that makes token embeddings."""
    names = [type(module).__name__ for module in model]
    if names[:2] != ["Transformer", "Pooling"] or not set(names[2:]) <= set(_AFTER):
        raise InputError(
            f"backend {backend} takes models of a Transformer, Pooling and {', '.join(_AFTER[:-1])}, not "
            f"{' and '.join(names)}; use backend torch"
        )
    text = getattr(model[0], "modality_config", {}).get("text", _FORWARD)  # from version 6
    if (text["method"], text["method_output_name"]) != tuple(_FORWARD.values()):
        raise InputError(
            f"backend {backend} takes a transformer's last hidden state, and this model uses "
            f"{text['method_output_name']} of {text['method']}; use backend torch"
        )
    kinds = {f"{tensor.dtype} on {tensor.device}" for tensor in model.parameters()} - {"torch.float32 on cpu"}
    if kinds:
        raise InputError(
            f"backend {backend} takes a model in float32 on the processor, not in {', '.join(sorted(kinds))}; load it "
            'with device="cpu" in float32, the backend itself changes the precision'
        )


def _inputs(model: SentenceTransformer) -> list[str]:
    """Return the names of what the tokenizer makes and the transformer takes."""
    taken = inspect.signature(model[0].auto_model.forward).parameters
    return [name for name in _example(model) if name in taken]


def _example(model: SentenceTransformer) -> dict[str, Any]:
    """Return features of two texts of different length, so that neither axis is fixed at one."""
    prepare = model.preprocess if hasattr(model, "preprocess") else model.tokenize  # up to version 5
    return cast("dict[str, Any]", prepare(["two texts", "of different lengths make a mask"]))


def _export(model: SentenceTransformer, inputs: list[str], path: Path, backend: str) -> None:
    """Write the transformer as ONNX into a folder aside, then put the folder in place."""
    require("onnx", backend)
    require("onnxscript", backend)
    with write_whole_folder(path.parent, mark=path.name) as aside:
        try:
            with _quiet():
                _write_onnx(model, inputs, aside / path.name)
        except OSError:
            raise
        except Exception as error:
            said = str(error).strip().partition("\n")[0]
            raise FailureError(f"the transformer cannot be exported to ONNX ({said}); use backend torch") from error


def _write_onnx(model: SentenceTransformer, inputs: list[str], path: Path) -> None:
    import torch

    class TokenEmbeddings(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, transformer: Any) -> None:
            super().__init__()
            self.transformer = transformer

        def forward(self, *arrays: Any) -> Any:
            return self.transformer(**dict(zip(inputs, arrays, strict=True)), return_dict=True).last_hidden_state

    module = model[0].auto_model
    training = module.training
    example = _example(model)
    axes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length")}
    try:
        torch.onnx.export(
            TokenEmbeddings(module).eval(),
            tuple(example[name] for name in inputs),
            path,
            dynamo=True,
            input_names=inputs,
            output_names=["token_embeddings"],
            dynamic_shapes=(tuple(axes for _ in inputs),),
            external_data=True,
            verbose=False,
        )
    finally:
        module.train(training)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Send the exporter's warnings to the log, at the level of details."""
    exporter = logging.getLogger("torch.onnx")
    level = exporter.level
    exporter.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
    finally:
        exporter.setLevel(level)
    for warning in caught:
        _LOG.debug("export: %s", warning.message)


def _onnx_runner(path: Path, precision: str) -> Runner:
    import onnxruntime
    import torch

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return lambda arrays: cast("Floats", session.run(["token_embeddings"], arrays)[0])


@functools.cache
def _openvino_core() -> Any:
    """Return the process's one Core, which is never let go.

    A Core whose processor plugin is loaded puts a stack for signal handlers under the calling thread, and puts back the
    one that it found when it is destroyed (OpenVINO 2026.4). Where two are destroyed in the order of their making, the
    thread is left on memory that is no longer there, and the next signal with a handler, Ctrl-C say, ends the process.
    """
    import openvino

    return openvino.Core()


def _openvino_runner(path: Path, precision: str) -> Runner:
    import torch

    settings = {
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[precision],
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
    }
    compiled = _openvino_core().compile_model(path, "CPU", settings)
    # The result is copied: the next call writes into the same memory.
    return lambda arrays: np.array(compiled(arrays)["token_embeddings"], np.float32)


_RUNNERS: dict[str, tuple[Callable[[Path, str], Runner], tuple[str, ...]]] = {
    "onnx": (_onnx_runner, ("float32",)),
    "openvino": (_openvino_runner, ("float32", "bfloat16")),
}
