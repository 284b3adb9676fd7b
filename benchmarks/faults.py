"""Every long verb, killed (SIGKILL) at seeded random moments, resumed, and compared with an undisturbed run.

    python benchmarks/faults.py [--verb NAME ...] [--kills 50] [--points 40] [--seed 0] [--json FILE]

What is done and checked is told in tests/faults/kill_trials.py. Writes benchmarks/results/faults.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

sys.path.extend(str(Path(__file__).parents[1] / "tests" / part) for part in ("", "faults"))

from kill_trials import trials_of
from kill_world import VERBS

from foils.data.store import write_json

RESULTS = Path(__file__).parent / "results" / "faults.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--verb", action="append", choices=list(VERBS), help="several times; all without it")
    parser.add_argument("--kills", type=int, default=50, help="at random moments, for each verb")
    parser.add_argument("--points", type=int, default=40, help="at changes of files, at most, for each verb")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, default=RESULTS)
    given = parser.parse_args()
    names = given.verb or list(VERBS)
    results = json.loads(given.json.read_text()) if given.json.is_file() else {}
    for name, found in trials_of(names, kills=given.kills, points=given.points, seed=given.seed):
        results[name] = found
        print(name, json.dumps(found), flush=True)
        write_json(given.json, results)
    sys.exit(0 if all(results[name]["sound"] for name in names) else 1)


if __name__ == "__main__":
    main()
