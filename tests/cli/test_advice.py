"""Every command that the program advises runs as it is printed, in a shell's words."""

import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("datasets")
pytest.importorskip("sentence_transformers")

from train_models import made_up, static_model

NEXT = re.compile(r"foils: next: foils (.+)")
ADVISED = {  # verb -> the verb that it advises, and what it must not lose of what was typed
    "describe": ("mine", ["--columns=query=q,positive=p"]),
    "mine": ("score", ["pairs.csv", "--columns=query=q,positive=p", "--encoder=static model"]),
    "filter": ("score", ["--columns=query=q,positive=p"]),
    "fuse": ("score", ["bm25.parquet", "random.parquet", "fused.parquet"]),
    "score": ("train", ["--model=static model", "--columns=query=q,positive=p"]),
    "label": ("score", ["--labels=labels.tsv", "--encoder=static model"]),
    "rate": ("select", ["rated.parquet"]),
    "relabel": ("train", ["relabelled.parquet", "--model=static model", "--add-judgements=promoted.tsv"]),
    "train": ("evaluate", ["--model=base=static model", "--model=tuned=model"]),
    "search": ("evaluate", ["--run=run.trec"]),
    "study": ("report", ["study"]),
}
OF_PAIRS = "pairs.csv --columns query=q,positive=p"
COMMANDS = (
    f"""
describe {OF_PAIRS}
mine {OF_PAIRS} --with dense --encoder 'static model' --top 3 -o dense.parquet
mine {OF_PAIRS} --with random --top 3 -o random.parquet
mine {OF_PAIRS} --with bm25 --top 3 -o bm25.parquet
filter {OF_PAIRS} dense.parquet --max-score 2 -o filtered.parquet
fuse {OF_PAIRS} bm25.parquet random.parquet -o fused.parquet
score {OF_PAIRS} hard=dense.parquet bm25.parquet --encoder 'static model'
label {OF_PAIRS} dense.parquet bm25.parquet --with 'bi-encoder:static model' -n 5 --checks 3
    --encoder 'static model' -o labels.tsv
rate {OF_PAIRS} dense.parquet --judge 'bi-encoder:static model' --degree 2 -o rated.parquet
relabel {OF_PAIRS} dense.parquet --labels labels.tsv --encoder 'static model' --promoted promoted.tsv
    -o relabelled.parquet
train {OF_PAIRS} dense.parquet --model 'static model' --batch-size 8 -o model
search {OF_PAIRS} --model 'static model' --split train --run run.trec
study {OF_PAIRS} dense.parquet bm25.parquet --model 'static model' --seeds 1 --set batch_size=8 -o study
""".strip()
    .replace("\n    ", " ")
    .splitlines()
)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a file of pairs and a model, both with names as people have them."""
    monkeypatch.chdir(tmp_path)
    static_model().save_pretrained("static model")
    collection = made_up()
    texts = dict(zip(*(collection.documents[name].to_pylist() for name in ("doc_id", "text")), strict=True))
    queries = zip(*(collection.queries[name].to_pylist() for name in ("query_id", "text")), strict=True)
    lines = [f'"{query}","{texts[query_id.replace("q", "d")]}"' for query_id, query in queries]
    Path("pairs.csv").write_text("q,p\n" + "\n".join(lines) + "\n")
    return tmp_path


def joined(words):
    """The words of a command, each option in one word with its value."""
    pairs, rest = [], iter(words)
    for word in rest:
        pairs.append(f"{word}={next(rest)}" if word.startswith("--") else word)
    return pairs


def test_every_advised_command_runs_and_loses_nothing(foils, folder):
    advised = set()
    for command in COMMANDS:
        words = shlex.split(command)
        ended = foils(*words)
        assert ended.status == 0, ended.err
        for line in NEXT.findall(ended.err):
            following = shlex.split(line)
            verb, kept = ADVISED[words[0]]
            advised.add(words[0])
            assert following[0] == verb, line
            if words[:4] != ["mine", "pairs.csv", "--columns", "query=q,positive=p"] or "dense" in words:
                assert {*kept} <= {*joined(following)}, line
            ran = foils(*following, *(["--steps", "2"] if verb == "train" else []))  # 200 would take minutes
            assert ran.status == 0, f"{line}: {ran.err}"
    assert advised == {*ADVISED}
