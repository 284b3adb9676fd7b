"""Feed malformed files to every reader, guided by the code that each reaches (atheris, libFuzzer's engine).

python benchmarks/run.py fuzz [--until 1000000] [--seconds 30] [--formats tevatron tuples] [--folder FOLDER]

Each form of file has a process of its own, which starts from valid files (tests/faults/fuzz_formats.py), spoils them as
bytes, lines, JSON, tables and arrays (tests/faults/fuzz_mutations.py), and keeps what reaches new code. A crash is
anything but an error of ours that names the file (and the line, where the form has lines), a message without end, a
record that is neither read nor complained of, a process that dies, or one file that takes longer than a minute. Rounds
of so many seconds a form go on until there were so many complaints about malformed lines and files. Counts are saved
after each process in benchmarks/results/fuzz.json, crashing files in the folder.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Any

from common import argument_parser, load, save

ROOT = Path(__file__).parents[2]
LONGEST_FILE = 1 << 17
SLOWEST_FILE = 60  # seconds, by libFuzzer's own clock


def fuzz_one(name: str, folder: Path, seconds: float, seed: int) -> None:
    """Fuzz one form in this process, which ends when the time is over."""
    import atheris

    with atheris.instrument_imports(include=["foils"]):
        from fuzz_formats import FORMATS
        from fuzz_mutations import spoiled

        form, place = FORMATS[name], folder / "files"
        for example in form.examples():  # imports what is imported on use
            form.check(example, place)
    counts: dict[str, Any] = {"executions": 0, "read": 0, "refused": 0, "complaints": 0, "records": 0, "slowest": 0.0}
    crashes: dict[str, str] = {}
    began = time.monotonic()

    def save() -> None:
        counts["seconds"] = time.monotonic() - began
        (folder / "counts.json").write_text(json.dumps({**counts, "crashes": crashes}))

    def one(data: bytes) -> None:
        start = time.monotonic()
        counts["executions"] += 1
        try:
            found = form.check(data, place)
            counts["refused" if found.complaints else "read"] += 1
            counts["complaints"] += found.complaints
            counts["records"] += found.records
        except Exception as error:
            frame = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__} in {Path(frame.filename).name}:{frame.lineno}: {str(error)[:200]!r}"
            crashes.setdefault(what[:80], what)
            kept = folder / f"crash-{hashlib.sha256(what[:80].encode()).hexdigest()[:12]}"
            if not kept.exists():
                kept.write_bytes(data)
        now = time.monotonic()
        counts["slowest"] = max(counts["slowest"], now - start)
        if now - began > seconds:
            save()
            os._exit(0)
        if counts["executions"] % 50 == 0:
            save()

    def mutate(data: bytes, largest: int, chosen: int) -> bytes:
        rng = Random(chosen)
        if not data or rng.random() < 0.1:
            return bytes(atheris.Mutate(data, largest))
        if rng.random() < 0.3:  # what is nearly valid is read, and must be read whole
            return spoiled(form, rng.choice(valid), rng, most=1)[:largest]
        return spoiled(form, data, rng)[:largest]

    seeds = folder / "corpus"
    seeds.mkdir(exist_ok=True)
    valid = form.examples()
    for number, example in enumerate(valid):
        (seeds / f"valid-{number}").write_bytes(example)
    options = [f"-max_len={LONGEST_FILE}", f"-timeout={SLOWEST_FILE}", "-rss_limit_mb=4096", f"-seed={seed}"]
    atheris.Setup([sys.argv[0], *options, f"-artifact_prefix={folder}/died-", str(seeds)], one, custom_mutator=mutate)
    atheris.Fuzz()


def run(name: str, folder: Path, seconds: float, seed: int) -> dict[str, Any]:
    """Fuzz one form in a process of its own and return its counts; one that dies has a crash."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "counts.json").unlink(missing_ok=True)
    own = {"OMP_NUM_THREADS": "1", "ARROW_NUM_THREADS": "1", "FOILS_CACHE": str(folder / "cache")}
    given = ["--one", name, "--folder", str(folder), "--seconds", str(seconds), "--seed", str(seed)]
    with (folder / "log").open("wb") as log:
        command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "fuzz", *given]
        ended = subprocess.run(command, env={**os.environ, **own}, stderr=log, stdout=log)
    said = (folder / "log").read_text(errors="replace")
    written = folder / "counts.json"
    found: dict[str, Any] = json.loads(written.read_text()) if written.is_file() else {"crashes": {}}
    if ended.returncode:
        found["crashes"][f"ended with status {ended.returncode}"] = said[-2000:]
    shutil.rmtree(folder / "cache", ignore_errors=True)
    return found


def add(total: dict[str, Any], found: dict[str, Any]) -> None:
    """Add a process' counts to those of its form."""
    for key, value in found.items():
        if key == "crashes":
            total.setdefault(key, {}).update(value)
        elif key == "slowest":
            total[key] = max(total.get(key, 0), value)
        else:
            total[key] = total.get(key, 0) + value


def rows_of(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the counts of each form of file, and of all."""
    forms = {name: form for name, form in result["formats"].items() if "executions" in form}
    counted = ("executions", "read", "refused", "complaints")
    rows = [
        {"form": name, **{key: form[key] for key in counted}, "slowest file": form["slowest"],
         "crashes": len(form["crashes"])}
        for name, form in forms.items()
    ]  # fmt: skip
    total = {key: result["total"][key] for key in (*counted, "crashes")}
    return [*rows, {"form": "all", **total, "slowest file": max(form["slowest"] for form in forms.values())}]


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument(
        "--until", type=int, default=1_000_000, help="complaints about malformed lines and files, in all"
    )
    parser.add_argument(
        "--seconds", type=float, default=30, help="of each form in a round; a third where it has no lines"
    )
    parser.add_argument("--formats", nargs="*", help="only these, anew; the saved counts of the others stay")
    parser.add_argument("--folder", type=Path, help="for files and crashes; one in memory is quicker")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        fuzz_one(given.one, given.folder, given.seconds, given.seed)
        return
    from fuzz_formats import FORMATS

    folder = given.folder or Path(tempfile.mkdtemp(prefix="foils-fuzz-"))
    chosen = given.formats or list(FORMATS)
    formats: dict[str, Any] = load("fuzz").get("formats", {}) if given.formats else {}
    formats.update({name: {} for name in chosen})  # the counts of the others stay
    number = 0
    while not number or sum(form.get("complaints", 0) for form in formats.values()) < given.until:
        for name in chosen:
            total = formats[name]
            seconds = given.seconds if FORMATS[name].lines else given.seconds / 3  # few complaints to a file
            add(total, run(name, folder / name, seconds, given.seed + number))
            numbers = {
                key: sum(form.get(key, 0) for form in formats.values())
                for key in ("executions", "read", "refused", "complaints", "records", "seconds")
            }
            crashes = sum(len(form.get("crashes", {})) for form in formats.values())
            result = {
                "tool": f"atheris {version('atheris')}",
                "total": {**numbers, "crashes": crashes},
                "formats": formats,
            }
            save("fuzz", result, {"": rows_of(result)})
            counted = f"{total['executions']:,} files, {total['complaints']:,} complaints"
            print(f"{name}: {counted}, {len(total['crashes'])} crashes; in all {numbers['complaints']:,}", flush=True)
        number += 1
    print(f"files and crashes: {folder}")
    sys.exit(bool(crashes))
