"""Run the suite as other processors compute: libraries are held to older instructions by environment variables.

    python tests/processors.py [arguments of pytest]

A processor is a set of variables. Each is tried alone first, on sums, products, decompositions and functions of
numpy, scipy, torch, numba and the C library; one that changes no bit of them on this machine is left out, and so is a
processor that differs in nothing from this machine, or from the one before.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np


def processors() -> dict[str, dict[str, str]]:
    """Return the variables that make this machine compute as one without AVX-512, and as one without AVX."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # those that numpy would use here
    newest = [name for name in found if "512" in name or name == "X86_V4"]
    return {
        "AVX2 (Haswell)": {
            "ATEN_CPU_CAPABILITY": "avx2",
            "ONEDNN_MAX_CPU_ISA": "AVX2",
            "MKL_CBWR": "AVX2",
            "OPENBLAS_CORETYPE": "Haswell",
            "NPY_DISABLE_CPU_FEATURES": " ".join(newest),
            "NUMBA_CPU_NAME": "haswell",
        },
        "SSE4 (Nehalem)": {
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "AVX",  # OpenVINO reads it too, and its MVN fails below where AVX2 is there
            "MKL_CBWR": "COMPATIBLE",
            "OPENBLAS_CORETYPE": "Nehalem",
            "NPY_DISABLE_CPU_FEATURES": " ".join(found),
            "NUMBA_CPU_NAME": "generic",
            "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA",
        },
    }


def digest(*arrays: object) -> str:
    data = b"".join(np.ascontiguousarray(each).tobytes() for each in arrays)
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def computed() -> dict[str, str]:
    """Return a digest of what each library computes."""
    import numba
    import scipy.linalg
    import scipy.special
    import torch

    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((65, 384)), rng.standard_normal((384, 77))
    f, g = a.astype(np.float32), b.astype(np.float32)
    tf, tg = torch.from_numpy(f), torch.from_numpy(g)

    def total(x: np.ndarray) -> float:
        at = 0.0
        for each in x:
            at += np.exp(each) * each
        return at

    loop, fast = numba.njit(total), numba.njit(fastmath=True)(total)
    normal, gelu = torch.nn.functional.layer_norm, torch.nn.functional.gelu
    return {
        "C library": digest([(math.exp(x), math.sin(x), math.pow(abs(x), 1.37)) for x in a[0]]),
        "numpy": digest(np.exp(a), np.exp(f), np.log(abs(a)), np.tanh(a), a.sum(1), f.sum(1), np.argsort(a.round(1))),
        "numpy's products": digest(a @ b, f @ g, np.linalg.eigh(a.T @ a)[0]),
        "scipy": digest(scipy.linalg.cholesky(a.T @ a + np.eye(384)), scipy.special.log_ndtr(a)),
        "torch": digest(tf.exp(), tf.softmax(1), normal(tf, (384,)), gelu(tf)),
        "torch's products": digest(tf @ tg, tf.double() @ tg.double(), (tf.bfloat16() @ tg.bfloat16()).float()),
        "numba": digest(loop(a.ravel()), fast(a.ravel())),
    }


def computed_with(variables: dict[str, str]) -> dict[str, str]:
    command = [sys.executable, __file__, "--computed"]
    done = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{variables}: {done.stderr}")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def effective(variables: dict[str, str], here: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Give the variables that change a result; print what each changes."""
    for name, value in variables.items():
        found = computed_with({name: value}) if value else here
        changed = [library for library in here if found[library] != here[library]]
        print(f"  {name}={value}: {'changes ' + ', '.join(changed) if changed else 'no effect here'}", flush=True)
        if changed:
            yield name, value


def main(arguments: list[str]) -> int:
    here = computed_with({})
    seen, status = [here], 0
    for processor, variables in processors().items():
        print(processor, flush=True)
        own = dict(effective(variables, here))
        results = computed_with(own)
        if results in seen:
            print("  left out: as before", flush=True)
            continue
        seen.append(results)
        status = subprocess.call([sys.executable, "-m", "pytest", *arguments], env={**os.environ, **own}) or status
    return status


if __name__ == "__main__":
    if sys.argv[1:] == ["--computed"]:
        print(json.dumps(computed()))
    else:
        sys.exit(main(sys.argv[1:]))
