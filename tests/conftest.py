"""What all tests share: nothing reaches the network; what is cached goes to a folder that the session throws away."""

import gc
import gzip
import json
import math
import os
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import settings

from fakes import HashingEncoder
from foils.data import Collection

_CACHE = tempfile.TemporaryDirectory(prefix="foils-tests-")  # the libraries that read these are not imported yet
os.environ.update(
    FOILS_CACHE=f"{_CACHE.name}/foils",
    HF_HUB_OFFLINE="1",
    HF_DATASETS_CACHE=f"{_CACHE.name}/datasets",
    IR_DATASETS_HOME=f"{_CACHE.name}/ir_datasets",
)

pytest.register_assert_rewrite("hostile")
settings.register_profile("foils", deadline=None, derandomize=True)  # a busy machine, or chance, is no failure
settings.load_profile("foils")

SEEN = {"modules": 0, "tests": 0}  # when what there was last left the garbage collector's sight


@pytest.fixture(autouse=True)
def _sparing_the_collector():
    """Keep what imports and earlier tests left out of the full collections that each training asks for.

    They took most of its time: a trainer asks for several, and each looks at every object of every module.
    """
    SEEN["tests"] += 1
    if len(sys.modules) > SEEN["modules"] + 50 or SEEN["tests"] % 100 == 0:
        SEEN["modules"] = len(sys.modules)
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _as_many_threads_as_before():
    """Give each test the threads that the process began with, whatever an earlier one has set."""
    torch = sys.modules.get("torch")
    if torch is not None:
        SEEN.setdefault("threads", torch.get_num_threads())
        torch.set_num_threads(SEEN["threads"])


DOCUMENTS = {
    "d1": ("Sailing", "A sailing boat turns its bow through the wind to change tack."),
    "d2": ("Sailing", "When a boat gybes, its stern turns through the wind."),
    "d3": ("", "The keel of a boat keeps it upright and lets it sail against the wind."),
    "d4": ("Bread", "Sourdough bread rises by wild yeast and bacteria in its starter."),
    "d5": ("Bread", "Baker's yeast makes dough rise within one or two hours."),
    "d6": ("", "Flour, water and salt are all that a loaf of bread needs beside yeast."),
    "d7": ("Bees", "Honey bees dance to tell each other where the flowers are."),
    "d8": ("Bees", "A queen bee lays up to two thousand eggs a day."),
    "d9": ("", "Wild bees nest alone, in soil, stems or snail shells."),
    "d10": ("", "The wind dries bread that is left to rise uncovered."),
}
QUERIES = {
    "q1": "how does a boat tack",
    "q2": "what makes sourdough bread rise",
    "q3": "how do bees say where flowers are",
    "q4": "turning a boat's stern through the wind",
    "q5": "eggs of a queen bee",
}
QRELS = {
    "train": {"q1": {"d1": 1, "d3": 1, "d7": 0}, "q2": {"d4": 2}, "q3": {"d7": 1}},
    "test": {"q4": {"d2": 1}, "q5": {"d8": 1, "d9": 0}},
}


@pytest.fixture(autouse=True)
def no_line_of_progress_for_slowness(monkeypatch):
    """What a verb prints does not depend on how busy the machine is."""
    monkeypatch.setattr("foils.runtime.progress.LEAST", math.inf)


@pytest.fixture(autouse=True)
def tables_of_the_usual_width(monkeypatch):
    """What a verb prints does not depend on the terminal that the tests run in."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture
def own_cache(tmp_path, monkeypatch):
    """A cache of the test's own, in its folder."""
    monkeypatch.setenv("FOILS_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def fewer_steps():
    """A third of the steps between draws from what is believed after labels: the same belief, a little less smooth."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foils.deciding.judged.THINNED", 2)
        yield


@pytest.fixture(scope="session")
def small():
    """Ten documents on three subjects; three queries in train (q1 has two positives), two in test."""
    return Collection.from_dicts("small", DOCUMENTS, QUERIES, QRELS)


@pytest.fixture
def encoder():
    """An encoder that needs no model; texts with words in common are near to each other; it counts what it encodes."""
    return HashingEncoder()


@pytest.fixture(scope="session")
def write_beir():
    """Return a function that writes a BEIR folder, the small collection's unless other contents are given."""

    def write(folder, *, documents=DOCUMENTS, queries=QUERIES, qrels=QRELS, gz=False):
        ending = ".gz" if gz else ""
        (folder / "qrels").mkdir(parents=True)
        corpus = [{"_id": key, "title": title, "text": text} for key, (title, text) in documents.items()]
        write_lines(folder / f"corpus.jsonl{ending}", map(json.dumps, corpus))
        asked = [{"_id": key, "text": text} for key, text in queries.items()]
        write_lines(folder / f"queries.jsonl{ending}", map(json.dumps, asked))
        for split, judged in qrels.items():
            rows = [f"{query}\t{document}\t{grade}" for query, of in judged.items() for document, grade in of.items()]
            write_lines(folder / "qrels" / f"{split}.tsv{ending}", ["query-id\tcorpus-id\tscore", *rows])
        return folder

    return write


@pytest.fixture
def beir_folder(write_beir, tmp_path):
    """Return a function that writes a BEIR folder of a name in the test's folder (`write_beir`)."""
    return lambda name="small", **contents: write_beir(tmp_path / name, **contents)


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Write text lines, gzipped where the name ends in .gz."""
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
