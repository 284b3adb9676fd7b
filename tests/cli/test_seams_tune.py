"""`foils tune` and `foils.tune` are one: the same files and tables; a plan runs again; no proof, no model."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasets")
pytest.importorskip("sentence_transformers")

from sentence_transformers import SentenceTransformer

import foils as library
from foils.data import load_collection
from foils.runtime.errors import InputError
from foils.tuning.plan import Plan
from in_browser import assert_fits_everyone, needs_chromium
from tune_world import write_pairs, write_world

Foils = Callable[..., Any]


FULL = "full"


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with pairs, a model, and a tuning of it in `full`; pydocs are other pairs, quickly read."""
    folder = tmp_path_factory.mktemp("tune")
    write_world(folder)
    pydocs = replace(load_collection(write_pairs(folder / "other.csv", seed=5)), name="pydocs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foils.data.read._pydocs", lambda packages=None: pydocs)
        with patch.context() as inside:
            inside.chdir(folder)
            library.tune("pairs.csv", model="static", output=FULL, seed=1)
        yield folder


@pytest.fixture
def world(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of it, to work in."""
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def files(folder: str) -> dict[str, bytes]:
    """The files of a tuning, its own name left out of them."""
    return {
        str(path.relative_to(folder)): path.read_bytes().replace(folder.encode(), b"FOLDER")
        for path in sorted(Path(folder).rglob("*"))
        if path.is_file() and "work" not in path.parts
    }


def test_the_proof_is_what_evaluate_measures(world: Path) -> None:
    tuned = library.tune("pairs.csv", model="static", output=FULL, seed=1)  # nothing is done again
    assert tuned.better
    assert tuned.sentence.startswith("Better: nDCG@10 on test: ")
    assert "Next: " not in str(tuned)
    proof = tuned.comparison
    before, after = (system.means["nDCG@10"] for system in tuned.evaluation.systems)
    assert after - before == pytest.approx(proof.difference)
    assert proof.difference > 0.1
    assert proof.p < 0.01
    given = tuned.plan["given"]
    measured = library.evaluate(
        "pairs.csv", {"base": "static", "tuned": tuned.model}, measures=["nDCG@10"], split_shares=given["split_shares"]
    )
    assert [system.means["nDCG@10"] for system in measured.systems] == pytest.approx([before, after])
    assert (measured.comparisons[0].p, abs(measured.comparisons[0].difference)) == (proof.p, proof.difference)
    best = max(tuned.trials, key=lambda trial: trial.dev)
    assert (tuned.trial, tuned.plan["training"]["learning_rate"]) == (best, best.learning_rate)
    gained, _ = tuned.changes()
    page = Path(FULL, "report.html").read_text()
    assert len(gained) == 10
    assert all(each.query in page and each.after > each.before for each in gained)
    assert tuned.sentence.partition(" The model")[0] in Path(FULL, "model/README.md").read_text()


@pytest.mark.slow
@needs_chromium
def test_everyone_can_read_the_page(world: Path) -> None:
    assert_fits_everyone(Path(FULL, "report.html").resolve())


def test_a_plan_runs_again_in_program_and_library(foils: Foils, world: Path) -> None:
    ended = foils("tune", "--plan", f"{FULL}/plan.toml", "-o", "by-program", "--json", "program.json")
    assert ended.status == 0, ended.err
    tuned = library.tune(plan=f"{FULL}/plan.toml", output="by-library")
    assert files("by-library") == files("by-program")
    assert str(tuned).replace("by-library", "by-program").split() == ended.out.split()
    assert json.loads(Path("program.json").read_text()) == json.loads(Path("by-program/tune.json").read_text())
    again = {name: content for name, content in files("by-program").items() if name.endswith((".safetensors", ".toml"))}
    assert len(again) == 2
    assert again.items() <= files(FULL).items()


def test_the_same_command_does_nothing_again_and_another_is_refused(foils: Foils, world: Path) -> None:
    command = ["tune", "pairs.csv", "--model", "static", "-o", FULL, "--seed", 1]
    made, times = files(FULL), {path: path.stat().st_mtime_ns for path in Path(FULL, "work").iterdir()}
    ended = foils(*command)
    assert ended.status == 0, ended.err
    assert files(FULL) == made
    kept = {path: path.stat().st_mtime_ns for path in Path(FULL, "work").iterdir() if path.name != "planned.json"}
    assert kept.items() <= times.items()
    minutes, seeded = [*command, "--minutes", 3], [*command[:-1], 2]
    for given, unlike in ((minutes, "minutes none in place of 3.0"), (seeded, "seed 1 in place of 2")):
        other = foils(*given)
        assert other.status == 2
        assert f"full holds another tuning, given {unlike}; the same command goes on" in other.err
        assert "give another folder (--output), or remove that one" in other.err

    plan = Plan.read(f"{FULL}/plan.toml")
    plan.sections["training"] = {**plan["training"], "epochs": 1, "learning_rate": 1e-6}
    plan.write(f"{FULL}/plan.toml")
    edited = foils("tune", "--plan", f"{FULL}/plan.toml")
    assert edited.status == 2
    assert "full holds another tuning, of another plan" in edited.err
    tuned = library.tune(plan=f"{FULL}/plan.toml", output="edited")
    assert (tuned.trial.learning_rate, tuned.better) == (1e-6, False)
    assert f"Next: {' '.join(tuned.next_steps())}" in " ".join(str(tuned).split())


def test_a_folder_where_nothing_was_finished_is_free(foils: Foils, world: Path) -> None:
    missing = foils("tune", "pairs.csv", "--model", "no-such-model/", "-o", "mended", "--minutes", 1e-5)
    assert missing.status == 2
    assert "no-such-model" in missing.err
    mended = foils("tune", "pairs.csv", "--model", "static", "-o", "mended", "--minutes", 1e-5)
    alone = foils("tune", "pairs.csv", "--model", "static", "-o", "afresh", "--minutes", 1e-5)
    assert (mended.status, files("mended")) == (alone.status, files("afresh"))


def test_little_time_in_program_and_library(foils: Foils, world: Path) -> None:
    ended = foils("tune", "pairs.csv", "--model", "static", "-o", "by-program", "--minutes", 1e-5)
    tuned = library.tune("pairs.csv", model="static", output="by-library", minutes=1e-5)
    assert ended.status == int(not tuned.better)
    assert files("by-library") == files("by-program")
    assert str(tuned).replace("by-library", "by-program").split() == ended.out.split()
    assert [(trial.epochs, trial.source) for trial in tuned.trials] == [(1, "")]  # one training takes all of the time
    assert tuned.plan["documents"]["train_queries"] == 50
    assert "sources" not in tuned.plan.sections  # nothing is mined, so the plan names nothing that would be
    assert " in 1 training, " in Path("by-library/report.html").read_text()
    assert "Give more --minutes" in " ".join(tuned.next_steps())


def test_pairs_that_teach_nothing_keep_the_base(foils: Foils, world: Path) -> None:
    ended = foils("tune", "shuffled.csv", "--model", "static", "-o", "out")
    assert ended.status == 1, ended.err
    assert "no better model: the base is kept" in ended.err
    result = json.loads(Path("out/tune.json").read_text())
    assert not result["better"]
    assert result["model"] == "static"
    assert result["sentence"].startswith("Kept static: ")
    assert result["sentence"].split()[:20] == ended.out[ended.out.index("Kept static") :].split()[:20]
    assert not Path("out/model").exists()
    assert Path("out/report.html").is_file()
    assert Path("out/plan.toml").is_file()


def test_explain_writes_nothing(foils: Foils, world: Path) -> None:
    before = sorted(world.rglob("*"))
    ended = foils("tune", "pairs.csv", "--model", "static", "-o", "out", "--explain")
    assert ended.status == 0, ended.err
    assert "learning_rates 0.001, 0.003, 0.009" in " ".join(ended.out.split())
    assert "It takes about" in " ".join(ended.out.split())
    assert sorted(world.rglob("*")) == before
    explained = library.tune("pairs.csv", model="static", explain=True)
    assert explained.plan["given"]["train"] == explained.to_json()["plan"]["documents"]["train_queries"]


def test_minutes_decide_how_much_is_tried(world: Path) -> None:
    for minutes, rates in ((1e-5, 1), (60, 3)):
        plan = library.tune("pairs.csv", model="static", explain=True, minutes=minutes).plan
        assert len(plan["trials"]["learning_rates"]) == rates


def test_what_must_not_be_forgotten_is_measured_and_merged(foils: Foils, world: Path) -> None:
    plan = Plan.read(f"{FULL}/plan.toml")
    assert (plan["given"]["keep"], plan["keep"]["collection"]) == ("pydocs", "pydocs")
    result = json.loads(Path(FULL, "tune.json").read_text())["keep"]
    assert [system["name"] for system in result["systems"]] == ["base", "tuned"]
    assert "What must not be forgotten" in Path(FULL, "report.html").read_text()

    plan.sections["keep"] = {"collection": "other", "alpha": 0.5}
    plan.write("half.toml")
    half = library.tune(plan="half.toml", output="half")
    assert foils("merge", "static", f"{FULL}/model", "--alpha", 0.5, "-o", "merged").status == 0
    made = library.merge("static", f"{FULL}/model", alpha=0.5, output="again")
    assert made.path == Path("again")
    assert Path("merged/model.safetensors").read_bytes() == Path("again/model.safetensors").read_bytes()
    measured = library.evaluate(
        "pairs.csv", ["merged"], measures=["nDCG@10"], split_shares=plan["given"]["split_shares"]
    )
    after = half.evaluation.systems[1].means["nDCG@10"]
    assert measured.systems[0].means["nDCG@10"] == pytest.approx(after)


def test_vectors_may_be_cut(foils: Foils, world: Path) -> None:
    plan = Plan.read(f"{FULL}/plan.toml")
    plan.sections["given"] = {**plan["given"], "keep": "none"}
    whole = replace_in(plan, keep=None)
    whole.write("whole.toml")
    plan.sections["given"] = {**plan["given"], "matryoshka": [8, 4]}
    replace_in(plan, keep=None).write("plan.toml")
    ended = foils("tune", "--plan", "plan.toml", "-o", "cut", "--json", "cut.json")
    assert ended.status == 0, ended.err
    tuned = library.tune(plan="plan.toml", output="cut")
    assert list(tuned.cuts) == [8, 4]
    assert "vectors cut to their first dimensions" in ended.out
    assert "Vectors that are cut" in Path("cut/report.html").read_text()
    model = SentenceTransformer(tuned.model, device="cpu", truncate_dim=4)
    shares = plan["given"]["split_shares"]
    measured = library.evaluate("pairs.csv", {"tuned": model}, measures=["nDCG@10"], split_shares=shares)
    after = [system.means["nDCG@10"] for system in tuned.cuts[4].systems]
    assert measured.systems[0].means["nDCG@10"] == pytest.approx(after[1])
    library.tune(plan="whole.toml", output="whole")
    plain = SentenceTransformer("whole/model", device="cpu", truncate_dim=4)
    uncut = library.evaluate("pairs.csv", {"whole": plain}, measures=["nDCG@10"], split_shares=shares)
    assert after[1] > uncut.systems[0].means["nDCG@10"] > after[0]


def replace_in(plan: Plan, **sections: Any) -> Plan:
    """The plan with other sections; None takes one out."""
    return Plan({name: each for name, each in {**plan.sections, **sections}.items() if each is not None})


@pytest.mark.parametrize(
    ("collection", "options", "reason"),
    [
        ("pairs.csv", {"keep": "none"}, "none is asked for"),
        ("pairs.csv", {"minutes": 1e-5}, "there is too little time to measure pydocs before and after"),
        ("other.csv", {"keep": "other.csv"}, "it would be the one that is tuned on"),
        ("pydocs", {}, "it would be the one that is tuned on"),
    ],
)
def test_nothing_is_kept(world: Path, collection: str, options: dict[str, Any], reason: str) -> None:
    plan = library.tune(collection, model="static", explain=True, **options).plan
    assert plan["keep"] == {"collection": "none", "alpha": 1.0, "reason": reason}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "nothing to tune on"),
        ({"collection": "pairs.csv"}, "no folder to write to"),
        ({"plan": "plan.toml", "seed": 3}, "seed 3: no effect with plan"),
        ({"collection": "pairs.csv", "output": "out", "minutes": 0}, "minutes 0; expected above 0"),
        ({"collection": "pairs.csv", "output": "out", "matryoshka": (8,), "reranker": True}, "matryoshka .* no effect"),
        ({"collection": "few.csv", "output": "out"}, "too few queries: train has"),
        ({"plan": "broken.toml"}, "not a plan"),
        ({"plan": "wrong.toml"}, r"\[batch\] is no section of a plan; \[given\] is missing"),
    ],
)
def test_what_is_refused(world: Path, given: dict[str, Any], message: str) -> None:
    Path("few.csv").write_text("query,positive\n" + "".join(f"q{i},d{i}\n" for i in range(20)))
    Path("broken.toml").write_text("[given")
    Path("wrong.toml").write_text("[batch]\nsize = 3\n")
    with pytest.raises(InputError, match=message):
        library.tune(**given)
    assert not Path("out").exists()


def test_the_model_is_one_that_a_hub_takes(world: Path) -> None:
    from huggingface_hub import ModelCard

    from foils.data.push import model_card

    assert SentenceTransformer(f"{FULL}/model", device="cpu").encode(["ba"]).shape == (1, 16)
    card = ModelCard(model_card(Path(FULL, "model/README.md").read_text(), "me/better", "mit"))
    assert card.data.license == "mit"
    assert "sentence-transformers" in card.data.tags
    assert "## Measured with foils tune" in card.text
