"""Run the suite as other processors compute: libraries are held to older instructions by environment variables.

python tests/processors.py [arguments of pytest]
"""

import os
import subprocess
import sys

import numpy as np


def processors() -> dict[str, dict[str, str]]:
    """Return the variables that make this machine compute as one without AVX-512, and as one without AVX."""
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", [])  # those that numpy would use here
    newest = [name for name in found if "512" in name or name == "X86_V4"]
    return {
        "AVX2 (Haswell)": {
            "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_CBWR": "AVX2",
            "OPENBLAS_CORETYPE": "Haswell", "NPY_DISABLE_CPU_FEATURES": " ".join(newest), "NUMBA_CPU_NAME": "haswell",
        },
        "SSE4 (Nehalem)": {
            "ATEN_CPU_CAPABILITY": "default",
            "ONEDNN_MAX_CPU_ISA": "AVX",  # OpenVINO reads it too, and its MVN fails below where AVX2 is there
            "MKL_CBWR": "COMPATIBLE", "OPENBLAS_CORETYPE": "Nehalem", "NPY_DISABLE_CPU_FEATURES": " ".join(found),
            "NUMBA_CPU_NAME": "generic", "GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX2,-FMA",
        },
    }  # fmt: skip


if __name__ == "__main__":
    statuses = []
    for processor, variables in processors().items():
        print(processor, flush=True)
        statuses.append(subprocess.call([sys.executable, "-m", "pytest", *sys.argv[1:]], env=os.environ | variables))
    sys.exit(max(statuses))
