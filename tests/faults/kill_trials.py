"""Verbs, killed (SIGKILL) at seeded random moments, resumed, and compared with an undisturbed run.

A run is killed at a moment drawn uniformly over the time of the undisturbed run, started again, killed again, up to
four times, and then left to end; and it is killed at moments that chance hardly meets: before a file is opened for
writing, renamed or removed. Checked:

- the files at the end are those of the undisturbed run, byte for byte (JSON less its timings);
- at every kill, each file in place is whole: it is the final one;
- at the end nothing that was written aside is left, in the output and in the cache;
- no prompt is sent again, but those that were not answered.

Verbs run in processes forked from this one, which has imported everything, so that a trial takes seconds: keep it a
process of its own.
"""

import hashlib
import json
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import numpy as np
from kill_world import CONCURRENCY, VERBS, Verb, World, answering, make_world
from tqdm import tqdm

IN_A_ROW = 4
WRONG = ("different", "half", "left", "failed")  # of trials: what must not be found
LIMIT, HANGS = 600, -1  # seconds that a run may take, and the status of one that takes longer
TIMINGS = ("seconds", "train_runtime", "checksum")  # a checksum of what holds a time is one too
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT
CHANGES = ("os.rename", "os.remove", "os.rmdir", "os.mkdir", "shutil.rmtree", "os.truncate")


@dataclass(frozen=True)
class Place:
    """Where a trial works: its output and its cache."""

    folder: Path

    @property
    def out(self) -> Path:
        return self.folder / "out"

    def contents(self) -> dict[str, str]:
        """Digests of the finished files; what is in the making, and checkpoints, left out."""
        paths = [path for path in sorted(self.out.rglob("*")) if path.is_file()]
        return {
            str(path.relative_to(self.out)): digest(path)
            for path in paths
            if not any(part.startswith("checkpoint") or part.endswith(".part") for part in path.parts)
        }

    def left_aside(self) -> list[str]:
        places = [*self.folder.rglob(".*"), *self.folder.rglob("*.part*"), *self.folder.rglob("checkpoint*")]
        return sorted({str(path.relative_to(self.folder)) for path in places})


def digest(path: Path) -> str:
    data = path.read_bytes()
    if path.suffix == ".json":
        with suppress(ValueError):  # half a file has a digest of its own
            data = json.dumps(without_timings(json.loads(data))).encode()
    return hashlib.sha256(data).hexdigest()


def without_timings(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_timings(item) for key, item in value.items() if key not in TIMINGS}
    return [without_timings(item) for item in value] if isinstance(value, list) else value


def run(verb: Verb, world: World, place: Place, *, after: float | None = None, at: int | None = None) -> int | None:
    """Run a verb in a process of its own; kill it after so many seconds, or before its at-th change of a file.

    Returns its exit status; None where it was killed, HANGS where it did not end.
    """
    child = os.fork()
    if not child:
        become(verb, world, place, at)
    deadline = time.monotonic() + (LIMIT if after is None else after)
    while not (done := os.waitpid(child, os.WNOHANG))[0]:
        if time.monotonic() >= deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None if after is not None else HANGS
        time.sleep(0.002)
    return None if os.WIFSIGNALED(done[1]) else os.WEXITSTATUS(done[1])


def become(verb: Verb, world: World, place: Place, at: int | None) -> None:
    """Be the verb's process: never returns."""
    status = 99
    try:
        said = os.open(place.folder / "said.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(said, 1), os.dup2(said, 2)
        os.environ.update(FOILS_CACHE=str(place.folder / "cache"))
        from foils.cli.app import run as foils

        tqdm.set_lock(
            threading.RLock()
        )  # its own is one for all processes, and would stay locked by one that was killed
        watch_files(place, at)
        status = foils(verb.arguments(world, place.out))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush(), sys.stderr.flush()
        os._exit(status)


def watch_files(place: Place, at: int | None) -> None:
    """Count changes of files, in `changes.txt`; kill this process before the at-th."""
    seen, inside = 0, f"{place.folder}/"

    def changed(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if not (event in CHANGES or (event == "open" and arguments[2] & WRITING)):
            return
        path = str(arguments[0])
        if path.startswith(inside) and not path.endswith("changes.txt"):
            seen += 1
            if seen == at:
                os.kill(os.getpid(), signal.SIGKILL)
            if at is None:
                (place.folder / "changes.txt").write_text(str(seen))

    if at is not None or not (place.folder / "changes.txt").exists():
        sys.addaudithook(changed)


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def fresh(folder: Path) -> Place:
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "out").mkdir(parents=True)
    return Place(folder)


class Trials:
    """The trials of one verb, against its undisturbed run."""

    def __init__(self, verb: Verb, world: World, folder: Path) -> None:
        self.verb, self.world, self.folder = verb, world, folder
        place = fresh(folder / "trial")  # where the others run: some results name their files
        start = time.monotonic()
        status = run(verb, world, place)
        spent = time.monotonic() - start
        if status != 0:
            raise SystemExit(f"{verb.name} fails undisturbed ({status}): {(place.folder / 'said.txt').read_text()}")
        self.expected = place.contents()
        self.found: dict[str, Any] = {"seconds": spent, "files": len(self.expected)}
        self.found |= dict.fromkeys(("kills", "trials", "file_points", "asked_again", "asked_again_allowed"), 0)
        self.found |= {name: [] for name in WRONG}
        self.changes = int((place.folder / "changes.txt").read_text())
        self.asked = Counter(lines(world.prompts)) if verb.asks else Counter()
        self.left_over = place.left_aside()

    def at_random(self, kills: int, rng: np.random.Generator) -> None:
        """Kill at random moments, until there were so many."""
        while (left := kills - self.found["kills"]) > 0:
            moments = ({"after": rng.uniform(0, self.found["seconds"])} for _ in range(min(left, IN_A_ROW)))
            self.found["kills"] += self._trial(moments)

    def at_points(self, most: int) -> None:
        """Kill before changes of files, one a trial."""
        for at in np.unique(np.linspace(1, self.changes, min(most, self.changes)).astype(int)):
            self.found["file_points"] += self._trial([{"at": int(at)}])

    def _trial(self, moments: Iterable[dict[str, Any]]) -> int:
        """Kill at one moment after the other, let it end, and compare the files each time; return how often."""
        self.world.prompts.unlink(missing_ok=True)
        place, killed, found = fresh(self.folder / "trial"), 0, self.found
        found["trials"] = trial = found["trials"] + 1
        for moment in moments:
            if run(self.verb, self.world, place, **moment) is not None:
                break
            killed += 1
            half = {name for name, _ in place.contents().items() - self.expected.items()}
            found["half"] += [f"{name} at a kill of trial {trial}" for name in sorted(half)]
        if (status := run(self.verb, self.world, place)) != 0:
            said = (place.folder / "said.txt").read_text().strip().splitlines()
            found["failed"].append(f"trial {trial}: status {status}: {said[-1] if said else ''}")
            return killed
        different = {name for name, _ in self.expected.items() ^ place.contents().items()}
        found["different"] += [f"{name} of trial {trial}" for name in sorted(different)]
        found["left"] += [f"{name} of trial {trial}" for name in place.left_aside() if name not in self.left_over]
        if self.verb.asks:
            found["asked_again"] += sum((Counter(lines(self.world.prompts)) - self.asked).values())
            found["asked_again_allowed"] += killed * CONCURRENCY
        return killed


def trials_of(names: Sequence[str], *, kills: int, points: int, seed: int = 0) -> Iterator[tuple[str, dict[str, Any]]]:
    """Kill each verb at so many random moments and at most so many changes of files; give its name and findings."""
    with tempfile.TemporaryDirectory(prefix="foils-faults-") as folder, answering(Path(folder)) as server:
        world = make_world(Path(folder) / "world", server, partial(prepare, Path(folder)))
        for name in names:
            trials = Trials(VERBS[name], world, Path(folder))
            trials.at_random(kills, np.random.default_rng([seed, list(VERBS).index(name)]))
            trials.at_points(points)
            found = trials.found
            again = found["asked_again"] > found["asked_again_allowed"]
            yield name, {**found, "sound": not (again or any(found[wrong] for wrong in WRONG))}


def prepare(folder: Path, verb: Verb, world: World) -> None:
    """Run a verb whose output others begin with."""
    place = fresh(folder / "prepared")
    if run(verb, world, place) != 0:
        raise SystemExit((place.folder / "said.txt").read_text())
