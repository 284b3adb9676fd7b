"""Blocks side by side: one thread of BLAS each, of whatever libraries are loaded, and as many as before afterwards."""

import os
import subprocess
import sys

PROGRAM = """
import numpy
from threadpoolctl import threadpool_info
from foils.runtime.parallel import map_blocks, workers

def threads(_):
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]

first = list(map_blocks(threads, range(2)))
import scipy.linalg
import sklearn
later = list(map_blocks(threads, range(2)))
print(workers(), threads(0), first, later, sep="\\n")
"""


def test_each_block_has_one_thread_also_of_libraries_that_were_loaded_later():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "2", "OPENBLAS_NUM_THREADS": "2"},
    )
    workers, after, first, later = map(eval, done.stdout.splitlines())
    assert {workers, *after} <= {1, 2}  # 1 where the machine has one core
    assert workers == max(after)
    assert {number for listed in (*first, *later) for number in listed} == {1}
    assert len(later[0]) >= len(first[0])
