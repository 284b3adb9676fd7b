"""How long `foils --help` takes: the whole process, median of several runs.

python benchmarks/run.py startup
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

from common import save


def main() -> None:
    command = [str(Path(sys.executable).with_name("foils")), "--help"]
    spent = []
    for _ in range(11):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        spent.append(time.perf_counter() - start)
    found = {"runs": len(spent), "median_seconds": statistics.median(spent), "most_seconds": max(spent)}
    save("startup", found)


if __name__ == "__main__":
    main()
