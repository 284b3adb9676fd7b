"""Which tests of other libraries pass with functions of foils in the place of theirs.

    python benchmarks/run.py peer_tests CHECKOUT     of sentence-transformers, choix, ranx or bm25s (make test-peers)

Nothing is fetched, and the checkout is not changed. `tests/peers.py` puts our functions where the tests import theirs
from. A test that looks for the words of a message, for files of a cache, or for calls inside their function is counted
apart. The exit status is 1 where any other fails.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

from common import argument_parser, load, save

# Of each library: a folder by which a checkout is known, what of foils is tested, the files with the tests of it (as
# pytest's -k selects them), and why a test may fail: what its name says it looks for.
PEERS = {
    "sentence-transformers": (
        "sentence_transformers",
        "`foils.mine_hard_negatives`",
        {"tests/util/test_hard_negatives.py": ""},
        {
            "words of messages": "exceeds_range_window|must_be|capped|missing_negatives",
            "files of its cache": "test_cache",
            "calls inside": "non_faiss_batched",
            "several processes, which foils refuses": "test_multi_process$",
            "a model that is no SentenceTransformer, which foils refuses": "negative_positive_score|does_not_crash",
        },
    ),
    "choix": (
        "choix",
        "`foils.rating.bradley_terry`",
        {
            "tests/test_mm.py": "mm_pairwise",
            "tests/test_lsr.py": "test_ilsr_pairwise",
            "tests/test_opt.py": "opt_pairwise",
            "tests/test_utils.py": "likelihood_pairwise",
        },
        {},
    ),
    "ranx": (
        "ranx",
        "`foils.data.run.fuse_runs`, `foils.data.run.weighted_sum`, `foils.statistics.measure_rankings`",
        {
            "tests/unit/ranx/fusion/rrf_test.py": "",
            "tests/unit/ranx/normalization/zmuv_norm_test.py": "",
            "tests/unit/ranx/metrics_test.py": "not hits and not test_dcg and not burges",
        },
        {"a document twice in a ranking, which foils refuses": "test_reciprocal_rank$"},
    ),
    "bm25s": (
        "bm25s",
        "`foils.mining.BM25Retriever`",
        {"tests/core/test_retrieve.py": "not weight_mask and not return_types and not bad_tuple and not small_corpus"},
        {},
    ),
}


def outcomes(name: str, checkout: Path) -> dict[str, str]:
    """Run the tests of one library that have a function of ours; return the outcome of each."""
    tests = Path(__file__).parents[2] / "tests"
    path = os.pathsep.join([str(tests), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "FOILS_PEER": name, "PYTHONPATH": path}
    by_test: dict[str, str] = {}
    for file, chosen in PEERS[name][2].items():
        command = [sys.executable, "-m", "pytest", "-p", "peers", "--noconftest", "-c", os.devnull, "-q", "-rA"]
        command += ["--import-mode=importlib", "-p", "no:cacheprovider", f"--rootdir={checkout}", file, "-k", chosen]
        done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
        lines = re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", done.stdout, re.M)
        if not lines:
            raise SystemExit(f"{file}: {done.stdout}{done.stderr}")
        by_test |= {test: outcome for outcome, test in lines}
    return by_test


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("checkout", type=lambda text: Path(text).resolve())
    checkout = parser.parse_args().checkout
    name = next((name for name, (folder, *_) in PEERS.items() if (checkout / folder).is_dir()), None)
    if name is None:
        parser.error(f"{checkout}: expected a checkout of one of {', '.join(PEERS)}")
    _, functions, _, reasons = PEERS[name]
    counts, failed = Counter[str](), []
    for test, outcome in outcomes(name, checkout).items():
        why = next((why for why, pattern in reasons.items() if re.search(pattern, test)), None)
        if outcome != "PASSED" and why is None:
            failed.append(test)
        counts["pass" if outcome == "PASSED" else why or "fail"] += 1
    result = load("peer_tests") | {name: {"functions": functions, "counts": dict(counts)}}
    rows = []
    for each in PEERS:
        if each in result:
            counted = dict(result[each]["counts"])
            row = {"tests of": each, "of foils": result[each]["functions"], "tests": sum(counted.values())}
            row["pass"] = counted.pop("pass", 0)
            rows.append(row | {"others look for": ", ".join(f"{why} ({n})" for why, n in counted.items())})
    save("peer_tests", result, {"": rows})
    if failed:
        raise SystemExit("\n".join(["failed:", *failed]))
