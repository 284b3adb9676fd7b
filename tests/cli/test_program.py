"""What holds for every verb: help, version, usage errors, exit statuses, where messages go, what is imported."""

import os
import re
import subprocess
import sys

import pytest

from foils.cli.app import DOORS, described, door_of, settings_of_verb, summary
from foils.runtime import progress
from foils.runtime.errors import FailureError, InputError
from foils.runtime.results import Table, print_tables

VERBS = tuple(DOORS)


def test_help_lists_the_verbs(foils):
    ended = foils("--help")
    assert ended.status == 0
    assert "Usage: foils VERB" in ended.out
    for verb in VERBS:
        assert re.search(rf"^│ {verb} +\w", ended.out, re.MULTILINE), verb
    assert foils("-h").out == ended.out


@pytest.mark.parametrize("verb", VERBS)
def test_the_help_of_every_verb_has_an_example_and_can_be_read(foils, verb, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    ended = foils(verb, "--help")
    assert ended.status == 0
    assert f"Usage: foils {verb}" in ended.out
    assert len([each for each in settings_of_verb(verb) if not each.positional]) <= 46
    assert len(ended.out.splitlines()) <= 175
    assert re.search(rf"Example:\s+foils {verb}\b", " ".join(ended.out.split()))
    assert ended.err == ""


def test_without_arguments_the_help_is_shown_and_nothing_is_called_an_error(foils):
    for arguments in ([], ["mine"], ["score"]):
        ended = foils(*arguments)
        assert ended.status == 2
        assert "Usage: foils" in ended.out + ended.err
        assert "error" not in ended.err


def test_version(foils):
    ended = foils("--version")
    assert (ended.status, ended.err) == (0, "")
    assert re.fullmatch(r"foils \d+\.\d+\.\d+\n", ended.out)


@pytest.mark.parametrize(("arguments", "message"), [
    (["nope"], "unknown verb 'nope'"),
    (["--nope"], "unknown verb '--nope'"),
    (["mine", "x", "-o", "y", "--tpo", "1"], "--top"),
    (["mine", "x", "-o", "y", "--top", "many"], "--top"),
    (["mine", "x"], "foils mine needs -o FILE, which is missing. Write the table"),
    (["mine", "x", "z", "-o", "y"], "z"),
    (["score", "x"], "foils score needs SOURCE, which is missing"),
    (["score", "x", "y", "-o", "z"], "foils score has no -o; it writes --report FILE, --json FILE"),
    (["evaluate", "x", "-o", "z"], "foils evaluate has no -o; it writes --write-runs FOLDER, --json FILE"),
    (["cache", "--output", "z"], "foils cache has no -o; it writes --json FILE"),
])  # fmt: skip
def test_usage_errors_are_one_line_that_points_to_the_help(foils, arguments, message):
    ended = foils(*arguments)
    assert (ended.status, ended.out) == (2, "")
    assert ended.err.startswith("foils: error: ")
    assert message in ended.err
    verb = f" {arguments[0]}" if arguments[0] in VERBS else ""
    assert ended.err.endswith(f"(see: foils{verb} --help)\n")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize(("error", "status", "said"), [
    (InputError("bad input"), 2, "foils: error: bad input\n"),
    (FailureError("it broke"), 1, "foils: failed: it broke\n"),
    (MemoryError(), 1, "foils: failed: the memory of this machine is used up; give less, or a machine with more\n"),
    (KeyboardInterrupt(), 130, "foils: interrupted; what was finished is kept: run the same command to continue\n"),
])  # fmt: skip
def test_exit_statuses(foils, monkeypatch, error, status, said):
    def load(name, **_):
        raise error

    monkeypatch.setattr("foils.data.read.load_collection", load)
    ended = foils("mine", "x", "-o", "y")
    assert (ended.status, ended.out, ended.err) == (status, "", said)


def test_a_terminal_that_knows_ascii_alone_gets_escapes(beir_folder, tmp_path):
    command = [sys.executable, "-m", "foils", "mine", str(beir_folder()), "-o", str(tmp_path / "o")]
    done = subprocess.run(command, capture_output=True, timeout=300, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    assert rb"(train) \u2192 " in done.stdout


def test_a_reader_that_closes_the_pipe_ends_the_program_quietly(tmp_path):
    code = "import sys; sys.argv = ['foils', 'mine', '--help']; from foils.cli import main; main()"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    running = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, **pipes)
    running.stdout.close()
    _, said = running.communicate(timeout=300)
    assert b"Traceback" not in said


def test_a_shell_completes_verbs_and_options(foils, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/bash")
    ended = foils("--install-completion")
    assert ended.status == 0, ended.err
    [script] = tmp_path.rglob("completions/foils")
    assert {"evaluate", "--relative-margin"} <= {*script.read_text().replace("'", " ").split()}


def test_a_verbs_summary_is_the_first_line_of_its_doors_documentation():
    for verb in VERBS:
        assert summary(verb) == described(door_of(verb)).partition("\n")[0]


def test_help_imports_neither_torch_nor_numpy():
    code = (
        "import sys\nfrom foils.cli.app import run\nstatus = run(['--help'])\n"
        "heavy = {'torch', 'numpy', 'pyarrow', 'scipy', 'sklearn', 'sentence_transformers', 'ray', 'bm25s'}\n"
        "sys.exit(f'{status} {sorted(heavy & set(sys.modules))}' if status or heavy & set(sys.modules) else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_tables_escape_markup_and_keep_every_cell(capsys):
    print_tables([Table("a [b]", ["source", "count"], [("[red]x[/red]", 1), ("y" * 100, 2)], caption="see [c]")])
    said = capsys.readouterr().out
    for text in ("a [b]", "[red]x[/red]", "y" * 100, "see [c]"):
        assert text in said


def test_long_tasks_leave_a_line_on_stderr(capfd, monkeypatch):
    monkeypatch.setattr(progress, "LEAST", 2.0)
    now = iter([0.0, 25.0, 30.0, 31.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    for unit in ("texts", "batches"):
        with progress.bars("reading", 300, unit) as advance:
            advance(249)
            advance(1)
    assert capfd.readouterr() == ("", "foils: reading: 250 texts in 25 s\n")
