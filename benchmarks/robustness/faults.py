"""Every long verb, killed (SIGKILL) at seeded random moments, resumed, and compared with an undisturbed run.

    python benchmarks/run.py faults [--verb NAME ...] [--kills 50] [--points 40] [--seed 0] [--json FILE]

What is done and checked is told in tests/faults/kill_trials.py. Writes benchmarks/results/faults.json.
"""

from __future__ import annotations

import sys
from typing import Any

from kill_trials import trials_of
from kill_world import VERBS

from common import argument_parser, load, save

COUNTED = ("kills", "file_points", "different", "half", "left")


def row_of(name: str, found: dict[str, Any]) -> dict[str, Any]:
    """Return how often a verb was killed and what was found wrong; what was asked again, of what may be."""
    counts = {key: len(value) if isinstance(value, list) else value for key, value in found.items()}
    again = f"{counts['asked_again']:,} of {counts['asked_again_allowed']:,}"
    return {"verb": name, **{key: counts[key] for key in COUNTED}, "asked again": again}


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("--verb", action="append", choices=list(VERBS), help="several times; all without it")
    parser.add_argument("--kills", type=int, default=50, help="at random moments, for each verb")
    parser.add_argument("--points", type=int, default=40, help="at changes of files, at most, for each verb")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    names = given.verb or list(VERBS)
    results = load("faults")
    results.pop("tables", None)
    for name, found in trials_of(names, kills=given.kills, points=given.points, seed=given.seed):
        results[name] = found
        save("faults", results, {"": [row_of(name, each) for name, each in results.items()]})
    sys.exit(0 if all(results[name]["sound"] for name in names) else 1)
