"""What the documentation shows is what happens: its code, tables, commands, links, and what is made from the code."""

import ast
import inspect
import json
import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib
import zlib
from importlib import import_module
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import foils
from foils.cli.app import DOORS, door_of, examples, run, settings_of_verb
from foils.data import Negatives
from foils.data.negatives import TOP
from llm_server import Reply, serving
from tiny_models import tiny_cross_encoder, tiny_encoder

ROOT = Path(__file__).parents[1]
DOCS, EXAMPLES = ROOT / "docs", ROOT / "examples"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
README = ROOT / "README.md"
PAGES = sorted([README, *DOCS.glob("*.md")])


def in_consoles(text: str) -> list[tuple[str, str]]:
    """The commands of `foils` in blocks of a console, from the verb on, each with the output that is shown."""
    blocks = "\n".join(re.findall(r"^```console\n(.*?)^```", text, re.M | re.S)).replace("\\\n", " ")
    return re.findall(r"^\$ foils ([a-z].*)\n((?:(?!\$ ).*\n)*)", blocks, re.M)


def quick(text: str) -> str:
    """What a page shows with an encoder, with its word table in the place of it, which trains in seconds."""
    return re.sub(r"(?<![:/\w-])all-MiniLM-L6-v2", "static:all-MiniLM-L6-v2", text)


BLOCKS = [
    (page.name, number, quick(block))
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.M | re.S))
]


@pytest.mark.parametrize(("page", "number", "block"), BLOCKS, ids=[f"{page}-{number}" for page, number, _ in BLOCKS])
def test_code_in_the_documentation_runs(page, number, block, tmp_path, monkeypatch, beir_folder):
    beir_folder("scifact")  # what the examples call scifact/
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    exec(compile(block, f"{page}:{number}", "exec"), {"__name__": "__main__"})


THINGS = ["boat", "harbour", "tide", "rope", "sail", "mast", "keel", "anchor", "deck", "oar"]
COLOURS = ["red", "blue", "green", "white", "grey"]
PAIRS = [(f"which {a} is {b}?", f"the {a} of the {b} crew") for a in THINGS for b in COLOURS]


def write_pairs(folder: Path) -> None:
    """Write what the examples call pairs.csv."""
    rows = ["question,answer", *map(",".join, PAIRS)]
    (folder / "pairs.csv").write_text("\n".join(rows) + "\n", "utf-8")


SHOWN = [
    pytest.param(command, output, id=f"{page.name}: {command}")
    for page in PAGES
    for command, output in in_consoles(page.read_text("utf-8"))
    if output.strip()
]


@pytest.mark.parametrize(("command", "output"), SHOWN)
def test_tables_that_are_shown_are_those_that_are_printed(command, output, tmp_path, monkeypatch, capsys, beir_folder):
    monkeypatch.chdir(tmp_path)
    beir_folder("scifact")
    beir_folder(
        "banking77",
        documents={f"d{at}": ("", answer) for at, (_, answer) in enumerate(PAIRS)},
        queries={f"q{at}": question for at, (question, _) in enumerate(PAIRS)},
        qrels={"train": {f"q{at}": {f"d{at ^ 1}": 1} for at in range(len(PAIRS))}},  # a guide finds a nearer one
    )
    foils.mine("scifact/", "bm25").write("bm25.parquet")
    capsys.readouterr()
    assert run(shlex.split(command, comments=True)) == 0
    printed, shown = tables_in(capsys.readouterr().out), tables_in(output)
    assert shown
    assert [table for table in shown if table not in printed] == []


def tables_in(output: str) -> list[tuple[str, str]]:
    """Title and columns of the tables that a program prints, without their numbers and widths."""
    lines = [re.sub(r"\d[\d.,]*", "#", " ".join(line.split())) for line in output.splitlines() if line.strip()]
    return [(lines[at - 2], lines[at - 1]) for at, line in enumerate(lines) if set(line) == {"─"}]


def test_the_readme_is_short_and_its_links_and_cells_are_those_of_the_pages():
    text = README.read_text("utf-8")
    assert len(text.splitlines()) <= 132
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if not link.startswith("http")]
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []
    cells = re.compile(r"^\| .+[✅❌] \|$", re.M)
    assert cells.findall(text) == cells.findall((ROOT / "docs" / "peers.md").read_text("utf-8"))


def test_the_templates_for_methods_run():
    templates = re.findall(r"^```python\n(.*?)^```", CONTRIBUTING.read_text("utf-8"), re.M | re.S)
    assert len(templates) == 6
    exec(compile("\n".join(templates), CONTRIBUTING.name, "exec"), {"__name__": "__main__"})


def test_the_citation_is_of_this_version_and_licence():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    cited = dict(re.findall(r"^(\w+): (.+)$", (ROOT / "CITATION.cff").read_text("utf-8"), re.M))
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])


def test_functions_in_the_documentation_exist():
    names = named_in_pages(r"`(foils\.[a-z_]+(?:\.\w+)+)`")
    assert names
    assert [name for name in names if located(name) is None] == []


def test_names_of_foils_in_pages_and_in_messages_can_be_imported():
    """Whoever follows a message or a page (`foils.SharpenedSearch`) finds what it names, and where it says."""
    texts = {page.name: page.read_text("utf-8") for page in [*PAGES, CONTRIBUTING]}
    for path in (ROOT / "src").rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text("utf-8")))
        words = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        texts[str(path)] = "\n".join(words)
    pattern = r"(?<![/\w])foils(?!\.readthedocs)(?:\.[A-Za-z_]\w*)+"
    named = {(page, name) for page, text in texts.items() for name in re.findall(pattern, text)}
    assert len(named) > 200
    assert [(page, name) for page, name in sorted(named) if located(name) is None] == []


OTHERS = {  # names of other libraries' classes that pages mention without their module
    *("Dataset", "DatasetDict", "SentenceTransformer", "SparseEncoder", "MultiVectorEncoder", "CrossEncoder"),
    *("MarginMSELoss", "InformationRetrievalEvaluator"),
}


def test_classes_in_pages_are_public_where_nothing_says_where_they_are():
    rooms = [import_module(f"foils.{path.parent.name}") for path in (ROOT / "src" / "foils").glob("*/__init__.py")]
    rooms += [import_module(f"foils.{name}") for name in ("runtime.errors", "runtime.options", "runtime.results")]
    public = OTHERS | {*foils.__all__}.union(*({*vars(room), *getattr(room, "__all__", ())} for room in rooms))
    named = named_in_pages(r"`([A-Z][a-z]+\w*)[`(.]")
    assert {"SharpenedSearch", "SparseEncoder"} <= named
    assert sorted(named - public) == []


def located(dotted: str) -> Any:
    """The module, or what a module or a class has of this name; None: nothing."""
    try:
        return import_module(dotted)
    except ModuleNotFoundError:
        home, _, name = dotted.rpartition(".")
        owner = located(home) if home else None
        return getattr(owner, name, getattr(owner, "__dataclass_fields__", {}).get(name))


def named_in_pages(pattern: str) -> set[str]:
    return {name for page in [*PAGES, CONTRIBUTING] for name in re.findall(pattern, page.read_text("utf-8"))}


def test_files_in_the_documentation_exist():
    names = named_in_pages(r"`((?:tests|benchmarks)/[\w./-]+)`")
    assert names
    assert [name for name in names if not (ROOT / name).exists()] == []


def test_commands_in_the_documentation_name_verbs_and_options_that_there_are():
    flags = {verb: flags_of(verb) for verb in DOORS}
    wrong, commands = [], 0
    for page in [*PAGES, CONTRIBUTING]:
        text = page.read_text("utf-8")
        for verb, *rest in commands_in(text):
            commands += 1
            unknown = {word.partition("=")[0] for word in rest if re.match("--?[a-z]", word)} - flags.get(verb, set())
            wrong += [f"{page.name}: foils {verb} {flag}" for flag in unknown]
            wrong += [f"{page.name}: foils {verb}"] if verb not in DOORS else []
        named = set(re.findall("`(--[a-z][a-z0-9-]*)", without_other_programs(text)))
        wrong += [f"{page.name}: {flag}" for flag in named.difference(*flags.values())]
    assert not wrong
    assert commands > 50


def test_examples_of_the_help_name_options_that_there_are():
    for verb in DOORS:
        commands = examples(door_of(verb))
        assert commands
        for command in commands:
            program, named, *rest = shlex.split(command)
            assert (program, named) == ("foils", verb)
            assert "foils" not in rest
            assert {word for word in rest if word.startswith("-")} <= flags_of(verb)


def test_tables_in_pages_are_those_of_the_results(monkeypatch):
    """Or `make bench` ends in an error, and a page shows what nobody measured."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    written: dict[Path, str] = {}
    monkeypatch.setattr(Path, "write_text", lambda path, text, *_: written.update({path: text}))
    runpy.run_path(str(ROOT / "benchmarks" / "run.py"))["write_tables"]()
    assert DOCS / "benchmarks.md" in written
    assert [path.name for path, text in written.items() if text != path.read_text("utf-8")] == []


def flags_of(verb: str) -> set[str]:
    """Every name that the program has for an option of the verb."""
    settings = [each for each in settings_of_verb(verb) if not each.positional]
    switched = [each for each in settings if each.annotation in (bool, bool | None) and each.default is not False]
    switches = {f"--no-{each.flag.removeprefix('--')}" for each in switched}
    return switches.union({"--help"}, *({each.flag, each.short} for each in settings)) - {""}


def commands_in(text: str) -> list[list[str]]:
    """The words of the commands of `foils` in blocks of a console, and of those in the text, from the verb on."""
    commands = [command for command, _ in in_consoles(text)]
    commands += re.findall(r"`foils ([a-z][^`]*)`", without_blocks(text))
    return [shlex.split(command, comments=True) for command in commands]


def without_blocks(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)


def without_other_programs(text: str) -> str:
    """The text without its blocks, and without paragraphs that say how a benchmark is run."""
    return "\n\n".join(
        part for part in without_blocks(text).split("\n\n") if not re.search(r"python benchmarks\b", part)
    )


@pytest.mark.slow  # builds the pages
def test_every_public_name_stands_in_the_reference(tmp_path):
    for extension in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(extension)
    command = [sys.executable, "-m", "sphinx", "-q", "-b", "html", "-d", str(tmp_path / "read"), str(ROOT / "docs")]
    subprocess.run([*command, str(tmp_path / "html")], check=True)
    lines = zlib.decompress((tmp_path / "html" / "objects.inv").read_bytes().split(b"\n", 4)[4]).decode().splitlines()
    described = {line.split(" ", 1)[0] for line in lines if line.split(" ")[1].startswith("py:")}
    last = {name.rpartition(".")[2] for name in described}  # what foils itself hands on is described in its package
    assert [name for name in foils.__all__ if name not in last] == []
    rooms = [f"foils.{path.parent.name}" for path in (ROOT / "src" / "foils").glob("*/__init__.py")]
    public = {f"{room}.{name}" for room in rooms for name in getattr(import_module(room), "__all__", [])}
    assert len(public) > 200
    assert not public - described


def test_the_picture_of_a_decision_is_of_this_program():
    drawn_by = runpy.run_path(str(DOCS / "generate.py"))["drawn_by"]()
    noted = json.loads((DOCS / "decision.json").read_text("utf-8"))["drawn_by"]
    assert noted == drawn_by, "what draws a decision's page has changed: make picture draws README's again"


def test_what_is_made_from_the_code_is_current():
    pages = runpy.run_path(str(DOCS / "generate.py"))["pages"]()
    stale = [path.name for path, text in pages.items() if path.read_text("utf-8") != text]
    assert not stale, "run: make pages"


def test_a_type_checker_and_an_editor_know_every_option():
    stub = ast.parse((ROOT / "src" / "foils" / "__init__.pyi").read_text("utf-8"))
    known = {each.name: [arg.arg for arg in (*each.args.args, *each.args.kwonlyargs)]
             for each in stub.body if isinstance(each, ast.FunctionDef)}  # fmt: skip
    assert set(known) == {verb.replace("-", "_") for verb in DOORS} | {"load"}
    for name, options in known.items():
        assert options == list(inspect.signature(getattr(foils, name)).parameters), name


def test_llms_txt_has_every_page_and_verb_with_a_line_and_no_dead_link():
    lines = re.findall(r"^- \[(.+?)\]\(([^)#]+).*?\)(.*)$", (DOCS / "llms.txt").read_text("utf-8"), re.M)
    assert [link for _, link, _ in lines if not (DOCS / link).is_file()] == []
    pages = {path.name for path in DOCS.glob("*.md")} - {"index.md"}
    assert pages <= {link for _, link, text in lines if len(text) > 20}
    assert {f"foils {verb}" for verb in DOORS} <= {name for name, _, _ in lines}


def test_every_verb_has_a_schema_that_programs_are_told_of():
    guide = (DOCS / "for-agents.md").read_text("utf-8")
    assert {path.stem for path in (DOCS / "schemas").glob("*.json")} == {*DOORS, "negatives"}
    for name in (*DOORS, "negatives"):
        jsonschema.Draft202012Validator.check_schema(json.loads((DOCS / "schemas" / f"{name}.json").read_text("utf-8")))
        assert f"(schemas/{name}.json)" in guide


def test_the_schema_of_the_table_holds_its_rows_and_refuses_others(small):
    schema = json.loads((DOCS / "schemas" / "negatives.json").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(schema)
    mined = foils.mine(small, "bm25", top=2)
    rows = [{name: None if value != value else value for name, value in row.items()} for row in mined.table.to_pylist()]
    assert rows
    assert [error.message for row in rows for error in validator.iter_errors(row)] == []
    wrong = [{"rank": -1}, {"score": "high"}, {"keep": False, "reason": None}, {"keep": True, "reason": "near"}]
    assert all(not validator.is_valid({**rows[0], **change}) for change in wrong)


def test_ten_tasks_with_one_import(beir_folder, tmp_path, monkeypatch, capsys):
    script = EXAMPLES / "ten_tasks.py"
    lines = script.read_text("utf-8").splitlines()
    assert len(lines) <= 30
    assert [line for line in lines if line.startswith(("import", "from"))] == ["import sys", "import foils"]
    monkeypatch.setattr("sys.argv", [str(script), str(beir_folder()), "static:all-MiniLM-L6-v2", str(tmp_path)])
    names = runpy.run_path(str(script))
    shown = capsys.readouterr().out
    assert Path(names["trained"].path) == tmp_path / "model"
    assert (tmp_path / "run.trec").read_text()
    assert [system["name"] for system in names["result"].to_json()["systems"]] == ["base", "tuned"]
    for title in ("over none", "Training", "Batches", "rdime search"):
        assert title in shown


@pytest.mark.parametrize("notebook", sorted(EXAMPLES.glob("*.ipynb")), ids=lambda path: path.stem)
def test_notebooks_run(notebook, tmp_path, monkeypatch):
    pytest.importorskip("datasets")
    write_pairs(tmp_path)
    words = (tmp_path / "pairs.csv").read_text("utf-8").replace(",", " ").replace("?", " ").split()
    (tmp_path / "tiny").mkdir()
    monkeypatch.setenv("MODEL", str(tiny_cross_encoder(tmp_path / "tiny", [" ".join(sorted({*words}))])))
    monkeypatch.chdir(tmp_path)
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert len(code) >= 2
    assert not any(cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    left = {"your_pairs": "model", "which_negatives": "decision.html", "reranker": "reranker", "own_trainer": "trained"}
    exec("\n".join(code), {"__name__": "__main__"})
    assert (tmp_path / left[notebook.stem]).exists()


TEXTS = {f"{thing}{kind}": f"the {thing} is {kind}" for thing in THINGS for kind in ("old", "new", "lost", "blue")}
QUERIES = {name: f"which {text.split()[1]} is {text.split()[3]}" for name, text in TEXTS.items()}
NAMES = list(TEXTS)
SUBJECTS = ("wind sail boat keel tack", "yeast dough bread flour salt", "bees honey nest queen flower")


def commands(page, **ours):
    """The commands of a page from the verb on; our own names of models and servers in the place of the page's."""
    ours = {"BAAI/bge-base-en-v1.5": "encoder", "all-MiniLM-L6-v2": "encoder", "BAAI/bge-reranker-v2-m3": "cross",
            "answerdotai/ModernBERT-base": "cross", **ours}  # fmt: skip
    for command, _ in in_consoles((ROOT / page).read_text("utf-8")):
        for theirs, own in ours.items():
            command = command.replace(theirs, own)
        yield shlex.split(command, comments=True)


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Change to a folder; small models over the words of all texts."""
    monkeypatch.chdir(tmp_path)
    texts = [*TEXTS.values(), *QUERIES.values(), *SUBJECTS]
    for name, make in (("encoder", tiny_encoder), ("cross", tiny_cross_encoder)):
        (tmp_path / name).mkdir()
        make(tmp_path / name, texts)
    return tmp_path


def write(path, records):
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records), "utf-8")


def read(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(
    "page", ["README.md", "docs/quickstart.md", pytest.param("docs/for-agents.md", marks=pytest.mark.slow)]
)
def test_pages_of_pairs(page, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_pairs(tmp_path)
    found = [shlex.split(command, comments=True) for command, _ in in_consoles(quick((ROOT / page).read_text("utf-8")))]
    assert len(found) >= 3
    for words in found:
        assert run(words) == 0, capsys.readouterr().err
    if page == "README.md":
        assert {"bm25", "dense"} <= set(re.findall(r"\w+", (tmp_path / "page.html").read_text("utf-8")))


@pytest.mark.slow
def test_the_set_up_of_the_readme_on_a_fresh_machine(tmp_path):
    blocks = "\n".join(re.findall(r"^```console\n(.*?)^```", README.read_text("utf-8"), re.M | re.S))
    lines = re.findall(r"^\$ (make .*)$", blocks, re.M)
    assert lines == ["make demo", "make test"]
    subprocess.run(["git", "clone", "--quiet", str(ROOT), "foils"], cwd=tmp_path, check=True)
    fresh = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    for line in lines:
        subprocess.run(shlex.split(line), cwd=tmp_path / "foils", env=fresh, check=True)
    assert (tmp_path / "foils" / "out" / "demo" / "report.html").is_file()


def test_from_flagembedding(place, capsys):
    records = [{"query": QUERIES[name], "pos": [text], "neg": []} for name, text in TEXTS.items()]
    write(place / "toy_finetune_data.jsonl", records)
    for words in commands("docs/from-flagembedding.md"):
        assert run(words) == 0, capsys.readouterr().err
    mined, taught = read(place / "toy_finetune_data_minedHN.jsonl"), read(place / "train.jsonl")
    assert {len(each["neg"]) for each in mined} == {15}
    assert [(len(each["pos_scores"]), len(each["neg_scores"])) for each in taught] == [(1, 15)] * len(records)


def passages(*names):
    return [{"docid": name, "title": "", "text": TEXTS[name]} for name in names]


def neighbours(name, count):
    start = NAMES.index(name)
    return [NAMES[(start + step) % len(NAMES)] for step in range(1, count + 1)]


def test_from_tevatron(place, capsys):
    write(place / "train.jsonl", [
        {"query_id": f"q-{name}", "query": QUERIES[name], "positive_passages": passages(name),
         "negative_passages": passages(*neighbours(name, 2))}
        for name in NAMES
    ])  # fmt: skip
    ranked = [(name, at, rank) for name in NAMES for rank, at in enumerate([name, *neighbours(name, 5)], 1)]
    (place / "run.trec").write_text("".join(f"q-{name} Q0 {at} {rank} {9 - rank} m\n" for name, at, rank in ranked))
    for words in commands("docs/from-tevatron.md"):
        assert run(words) == 0, capsys.readouterr().err
    assert {each["query_id"][2:] for each in read(place / "train.bm25.jsonl")} == set(NAMES)
    kept = {each["query_id"][2:]: each["negative_passages"] for each in read(place / "train.hn.jsonl")}
    assert kept
    assert all({one["docid"] for one in of} <= {*neighbours(name, 5)} for name, of in kept.items())


def compares(number, asked):
    """The passage with more words of the query is the better one; which one is shown first matters a little."""
    shown = re.findall(r"^(Query|Passage)[^\n]*:\n<\S+>\n(.*?)\n", asked["messages"][0]["content"], re.M)
    queries, (first, second) = ([set(text.split()) for kind, text in shown if kind == k] for k in ("Query", "Passage"))
    lead = len(queries[0] & first) - len(queries[-1] & second)
    return Reply(json.dumps({"preference": float(np.clip(0.55 + 0.15 * lead, 0, 1))}))


def test_a_reranker_without_labels(place, beir_folder, capsys):
    """Documents are two to four words of a subject, queries three; queries of the test alone are judged."""
    words = [subject.split() for subject in SUBJECTS]
    documents = {
        f"d{s}{i}": ("", " ".join(np.roll(of, i)[: 2 + i % 3])) for s, of in enumerate(words) for i in range(5)
    }
    queries = {f"q{s}{i}": " ".join(np.roll(of, i)[:3]) for s, of in enumerate(words) for i in range(5)}
    test = {query: {f"d{query[1:]}": 1} for query in queries if query.endswith("4")}
    beir_folder("questions", documents=documents, queries=queries, qrels={"test": test})
    with serving(compares) as server:
        for words in commands("docs/rerankers.md", **{"http://localhost:8000/v1": server.url, "50": "6"}):
            assert run(words) == 0, f"{words}: {capsys.readouterr().err}"
            if words[0] == "rate":
                asked = len(server.seen)
                assert run([*words[:-1], "again.parquet"]) == 0
                assert len(server.seen) == asked, "nothing is asked twice"
    rows = [query for query in Negatives.read("candidates.parquet").table["query_id"].to_pylist() if query not in test]
    between = 2 * 12  # each of twelve queries meets four others
    assert asked == 2 * 2 * (2 * len(rows) + between), "two judges, both orders, four comparisons of each candidate"
    rated = Negatives.read("rated.parquet")
    assert np.isfinite(rated.kept()["offset"].to_numpy()).sum() == np.isfinite(rated.kept()["elo"].to_numpy()).sum()
    assert set(rated.table["query_id"].take(rated.rejected_for(TOP)).to_pylist()) == set(queries) - set(test)
    counts = json.loads((place / "reranker" / "foils_training.json").read_text())["counts"]
    assert counts["queries without a label, the candidate rated best in the positive's place"] == 12
    systems = json.loads((place / "result.json").read_text())["systems"]
    assert [len(each["per_query"]["nDCG@10"]) for each in systems] == [3, 3]
    assert systems[1]["name"] == "bm25 + reranker"


def test_the_benchmark_of_a_gpu_runs_on_a_processor_and_goes_on_where_it_was_killed(tmp_path):
    output, environment = tmp_path / "new" / "on_gpu.json", {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "on_gpu", "--texts", "12", "--output", str(output)]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline().startswith(b"encoding"), "a line for each part, once it is written"
        killed.kill()
    kept = json.loads(output.read_text("utf-8"))["parts"]
    assert "encoding" in kept
    subprocess.run(command, check=True, capture_output=True, env=environment)
    written = json.loads(output.read_text("utf-8"))
    assert {name: written["parts"][name] for name in kept} == kept, "what is there is not measured again"
    assert list(written["parts"]) == ["encoding", "tokenising", "forward", "training", "search"]
    assert all(seconds >= 0 for part in written["parts"].values() for seconds in part.values())
    assert {"foils, float32", "sentence-transformers, float32, 32 texts"} <= set(written["parts"]["encoding"])
    rows = (
        "sentence-transformers, a row for each query",
        "foils, a row for each query",
        "foils, a row for each negative",
    )
    assert tuple(written["parts"]["training"]) == rows
