"""Break formulas and seams one after the other: each must turn a test of its folder red, among those of `make test`.

    make mutations
    python tests/mutations.py 22 23       (the twenty-third and the twenty-fourth alone)

Works in a copy of the sources, so that nothing here is changed.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
MUTATIONS = [  # file, what stands there, what is put in its place, tests that must notice
    ("data/run.py", "1.0 / (k + 1.0 +", "1.0 / (k + 2.0 +", "mining"),
    ("data/tokens.py", "(np.asarray(frequency, np.float64) + 1)) + 1", "(np.asarray(frequency, np.float64) + 1))",
     "scoring"),
    ("data/pairs.py", "TWINS = 0.7", "TWINS = 0.9", "data"),
    ("data/pairs.py", "if self._text_of_id.setdefault(identifier, text_hash) != text_hash:", "if False:", "data"),
    ("data/collection.py", "rows[self.known_positives.contain(np.arange(len(rows)), rows)] = -1", "pass",
     "test_identical_ids.py"),
    ("encode/vectors.py", "_checksum(part.start, records[\"key\"], self.vectors[part]) == records[\"checksum\"][0]",
     "True", "encode"),
    ("llm/asking.py", "if _checksum(key, text) != checksum:", "if False:", "llm"),
    ("runtime/files.py", "        flush(temporary)\n        temporary.replace(place)",
     "        temporary.replace(place)", "data"),
    ("mining/rules.py", "_scored(pairs) > lowest - margin", "_scored(pairs) > lowest + margin", "mining"),
    ("scoring/gates.py", "return similarities.rho * similarities.eta * similarities.psi",
     "return similarities.rho * similarities.psi", "scoring"),
    ("scoring/measure.py", "+ information / regularization", "+ information * regularization", "scoring"),
    ("deciding/decision.py", "strength * (1 - (1 + HARM) * pi)", "strength * (1 - HARM * pi)", "deciding"),
    ("batching/hobit.py", "(q - alpha * p) @ d.T", "(q + alpha * p) @ d.T", "batching"),
    ("batching/methods.py", "_others(nearby, rows)[:, skip:]", "_others(nearby, rows)", "batching"),
    ("rating/pairs.py", "(self.forward + 1 - self.backward) / 2", "self.forward", "rating"),
    ("rating/estimators.py", "ratings[second] -= change", "ratings[second] -= 0.5 * change", "rating"),
    ("selection/rules.py", "WEIGHTS = (0.0, 0.5, 1.0, 0.7, 0.3)", "WEIGHTS = (0.0, 0.5, 1.0, 0.8, 0.3)", "selection"),
    ("training/objectives.py", "        logits = logits + log_weights\n    return", "        pass\n    return",
     "training"),
    ("training/objectives.py", "(of_positives + margin)[:, None]", "(of_positives - margin)[:, None]", "training"),
    ("searching/dimensions.py", "np.floor(share * dimension + 0.5)", "np.floor(share * dimension)", "searching"),
    ("statistics/significance.py", "np.maximum.accumulate(stepped)", "stepped", "statistics"),
    # The orchestration: verdicts, choices and what becomes of rows.
    ("statistics/significance.py", "(1 + extreme.sum()) / (1 + draws)", "extreme.sum() / draws",
     "statistics/test_significance.py"),
    ("statistics/survey.py", "(means >= precision) & last_of_its_value", "means >= precision",
     "statistics/test_survey.py"),
    ("experiments/*.py", "test.p_randomised < LEVEL", "test.p_randomised < 2", "experiments"),
    ("experiments/analysis.py", "2 * half / (1 + half) if half > 0", "half if half > 0",
     "experiments/test_verdicts.py"),
    ("experiments/analysis.py", "(1 + reached) / (1 + PERMUTATIONS)", "reached / PERMUTATIONS",
     "experiments/test_verdicts.py"),
    ("experiments/analysis.py", "if not self.chance <= MOST_CHANCE:", "if self.chance <= MOST_CHANCE:",
     "experiments/test_verdicts.py"),
    ("labelling/relabelling.py", "people.relevant == 1, POSITIVE, NEGATIVE",
     "people.relevant == 1, NEGATIVE, POSITIVE", "labelling/test_relabel.py"),
    ("labelling/relabelling.py", "np.nan) >= precision", "np.nan) >= 0", "labelling/test_relabel.py"),
    ("labelling/relabelling.py", "verdicts == POSITIVE, RELEVANT", "verdicts == NEGATIVE, RELEVANT",
     "labelling/test_relabel.py"),
    ("labelling/relabelling.py", "lower = (CHANCE + program.specificity) / 2", "lower = program.specificity",
     "labelling/test_relabel.py"),
    ("labelling/relabelling.py", "(q + judged.specificity - 1) / power", "q / power", "labelling/test_shares.py"),
    ("labelling/doors.py", "path.exists() and _has_answers(path)", "False", "labelling/test_spreadsheet.py"),
    ("labelling/doors.py", "[cell_of(pair[name], identifier=True)", "[cell_of(pair[name])",
     "labelling/test_spreadsheet.py"),
    ("deciding/decision.py", "most - TOLERANCE * max(most, 0.0)", "most - 2 * TOLERANCE * max(most, 0.0)",
     "deciding/test_scenarios.py"),
    ("deciding/decision.py", "> WORTH_LABELS or", "> 5 * WORTH_LABELS or", "deciding/test_scenarios.py"),
    ("deciding/results.py", "if self.queries < ENOUGH:\n            text",
     "if self.queries < 2 * ENOUGH:\n            text", "deciding/test_scenarios.py"),
    ("selection/rules.py", "np.where(p > 0.75, 1.0, 0.3)", "np.where(p > 0.75, 0.3, 1.0)", "selection/test_rules.py"),
    ("rating/session.py", "unknown = np.isnan(answers)", "unknown = np.ones(len(answers), bool)",
     "rating/test_judgements.py"),
    ("training/doors.py", "if rows < of_pairs.batch_size <= pairs:", "if False:",
     "labelling/test_relabel.py"),
]  # fmt: skip


def main() -> None:
    survived = []
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place, "src")
        shutil.copytree(ROOT / "src", copy)
        environment = {**os.environ, "PYTHONPATH": str(copy), "OMP_NUM_THREADS": "1"}
        chosen = [MUTATIONS[int(number)] for number in sys.argv[1:]] or MUTATIONS
        for file, found, instead, folder in chosen:
            having = [path for path in sorted((copy / "foils").glob(file)) if found in path.read_text("utf-8")]
            if not having:
                sys.exit(f"{file} has no {found!r} any more; name another line")
            path = having[0]
            whole = path.read_text("utf-8")
            path.write_text(whole.replace(found, instead, 1), "utf-8")
            command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "not slow", f"tests/{folder}"]
            ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
            path.write_text(whole, "utf-8")
            failed = next((line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))), "")
            print(f"{path.name}, {found}: {failed or 'SURVIVED'}", flush=True)
            survived += [] if failed else [file]
    if survived:
        sys.exit(f"no test noticed what was broken in {', '.join(survived)}")


if __name__ == "__main__":
    main()
