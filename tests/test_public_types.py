"""What a user sees is typed as truly as it is: a script passes a strict checker, and mistakes in it do not."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mypy")

ROOT = Path(__file__).parents[1]
SCRIPT = (ROOT / "tests" / "typed_script.py").read_text("utf-8")
MISTAKES = {  # what is written in the place of what
    'mine(pairs, "bm52"': 'mine(pairs, "bm25"',
    "method=7, encoder": 'method="dense", encoder',
    "top='ten'": "top=10",
    "relative_margin='5%'": "relative_margin=0.05",
    "foils.load(7,": 'foils.load("pairs.csv",',
    "columns=['question']": 'columns={"query": "question", "positive": "answer"}',
    'method="rff"': 'method="rrf"',
    "scores.decision.sources": "scores.decision.source",
    "scores.reports(": "scores.report(",
    'by="mix"': 'by="mixture"',
    "judge=1, degree": 'judge="bi-encoder", degree',
    'form="tevetron"': 'form="tevatron"',
    "batch_sizes=32": "batch_size=32",
    "output=8, loss": 'output="model", loss',
    "epochs='two'": "epochs=2",
    "alpha='half'": "alpha=0.5",
    "measures=10": 'measures="nDCG@10"',
    "other_mean: str = ": "mean: float = ",
    'dimensions="rdimes"': 'dimensions="rdime"',
    "models=7": 'models=["all-MiniLM-L6-v2"]',
    "minutes='ten'": "minutes=10",
    "foils.tuned(": "foils.tune(",
    "other_folder: str = ": "folder: Path = ",
}


def checked(command: list[str], path: Path) -> list[int]:
    """The numbers of the lines of which a type checker complains."""
    cwd = path.parent if command[0] == "pyright" else ROOT
    ended = subprocess.run([*command, str(path)], capture_output=True, text=True, cwd=cwd, check=False)
    lines = [line for line in ended.stdout.splitlines() if path.name in line and "error" in line]
    assert bool(ended.returncode) == bool(lines), ended.stdout + ended.stderr
    return sorted({int(line.split(path.name)[1].split(":")[1]) for line in lines})


def with_mistakes() -> tuple[str, list[int]]:
    """The script with every mistake in a copy of its line, and the numbers of these lines."""
    lines, wrong = [], []
    for line in SCRIPT.splitlines():
        lines.append(line)
        for mistake, right in MISTAKES.items():
            if right in line:
                lines.append(line.replace(right, mistake))
                wrong.append(len(lines))
    assert len(wrong) >= len(MISTAKES)
    return "\n".join(lines) + "\n", wrong


CHECKERS = {
    "mypy": [sys.executable, "-m", "mypy", "--strict", "--disable-error-code=no-redef"],
    "pyright": ["pyright", "--pythonpath", sys.executable],
}


@pytest.mark.parametrize("checker", CHECKERS)
def test_a_script_with_every_verb_passes_and_mistakes_are_caught(checker, tmp_path):
    if shutil.which(CHECKERS[checker][0]) is None:
        pytest.skip(f"{checker} is not installed")
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(ROOT / "src")]}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(SCRIPT)
    assert checked(CHECKERS[checker], right) == []
    text, numbers = with_mistakes()
    wrong.write_text(text)
    assert {*numbers} <= {*checked(CHECKERS[checker], wrong)}
