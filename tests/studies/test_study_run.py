from __future__ import annotations

import json
import re

import numpy as np
import pytest

from foils.cli.app import run
from foils.encode import EncoderSettings, SentenceEncoder
from foils.runtime.errors import InputError
from foils.scoring import DecisionSettings, ScoreSettings, decide_sources, score_sources
from foils.studies import PREDICTORS, StudySettings, open_study, read_cells, run_study
from foils.studies.predictors import decided_worths, predict
from foils.studies.probe import split_queries
from foils.studies.sources import drawn_queries, study_sources, table_digest
from train_models import made_up_folder

QUICK = {"batch_size": 16, "learning_rate": 0.05}


def files(folder):
    return {
        path.relative_to(folder).as_posix(): "\n".join(
            line for line in path.read_text().splitlines() if not re.match(r' *"(seconds|checksum)":', line)
        )
        for path in sorted(folder.rglob("*.json"))
    }


def test_it_scores_trains_and_measures_and_does_nothing_twice(world):
    collection, sources, model, store, study = world
    settings = StudySettings(seeds=2, queries=10, per_query=3, training=QUICK)
    run_study(study, collection, sources, [model], store, settings)
    (cell,) = read_cells(study)
    assert cell.sources == ["random", "bm25", "made"]
    assert cell.outcomes["bm25"]["nDCG@10"].shape == (2, 10)
    assert set(cell.outcomes) == {"untrained", "in-batch negatives", *sources}
    first, times = files(study), {path: path.stat().st_mtime_ns for path in study.rglob("*.json")}
    run_study(study, collection, sources, [model], store, settings)
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*.json")} == times
    lost = next(path for path in study.rglob("*.json") if "bm25" in path.name)
    lost.unlink()
    run_study(study, collection, sources, [model], store, settings)
    assert files(study) == first


def test_more_seeds_and_sources_are_added_and_the_old_results_stay(world):
    collection, sources, model, store, study = world
    settings = StudySettings(seeds=1, training=QUICK, baselines=False)
    two = {name: sources[name] for name in ("random", "bm25")}
    run_study(study, collection, two, [model], store, settings)
    before = files(study)
    run_study(study, collection, sources, [model], store, StudySettings(seeds=2, training=QUICK, baselines=False))
    (cell,) = read_cells(study)
    assert all(cell.outcomes[name]["nDCG@10"].shape[0] == 2 for name in sources)
    after = files(study)
    assert all(after[name] == text for name, text in before.items() if "trained/" in name)
    run_study(study, collection, sources, [model], store, StudySettings(training={**QUICK, "epochs": 2}, seeds=1))
    assert len(read_cells(study)) == 2


def test_predictors_are_those_of_the_scores(world):
    collection, sources, model, store, study = world
    settings = StudySettings(seeds=1, per_query=4, training=QUICK, baselines=False)
    run_study(study, collection, sources, [model], store, settings)
    (cell,) = read_cells(study)
    from foils.training.models import load_trainable

    encoder = SentenceEncoder(load_trainable(model), EncoderSettings(max_length=128))
    given = study_sources(sources, settings)
    scores = score_sources(collection, given, encoder, store, ScoreSettings(hybrids=1, replicates=0))
    for score in scores.sources:
        found = cell.predictors[score.name]
        for name in ("eci_sem", "rho", "mnrl_proxy", "gradient_energy", "eci"):
            assert found[name] == pytest.approx(getattr(score, name)), name
        assert set(found) <= set(PREDICTORS)
    for batch, same in ((16, True), (4, False)):
        deciding = DecisionSettings(in_batch=batch - 1)
        worths = decide_sources(scores, given, encoder, store, deciding).decision.worths
        for name in sources:
            found, worth = cell.predictors[name], worths[name]
            assert (found["benefit"] == pytest.approx(worth.benefit)) == same, name
            assert (found["strength"] == pytest.approx(worth.strength)) == same, name
            assert found["few_false"] == pytest.approx(1 - worth.false_share), name


def test_one_query_has_no_benefit(world):
    collection, sources, model, store, _ = world
    others = {
        name: np.array(each.table["query_id"]) != each.table["query_id"][0].as_py() for name, each in sources.items()
    }
    alone = {name: each.reject(others[name], "no") for name, each in sources.items()}
    from foils.training.models import load_trainable

    encoder = SentenceEncoder(load_trainable(model), EncoderSettings(max_length=128))
    scores = score_sources(collection, alone, encoder, store, ScoreSettings(hybrids=1, replicates=0))
    assert decided_worths(scores, alone, encoder, store, DecisionSettings(in_batch=15)) == {}
    assert "benefit" not in predict(scores, {})["bm25"]


def test_a_probe_measures_queries_that_it_was_not_trained_on(world):
    collection, sources, model, store, study = world
    trained_on, held_out = split_queries(collection, "train")
    assert not set(trained_on) & set(held_out)
    assert len(held_out) == 4
    settings = StudySettings(seeds=1, training=QUICK, baselines=False, probe=model, probe_rows=40)
    run_study(study, collection, sources, [model], store, settings)
    (cell,) = read_cells(study)
    probes = [cell.predictors[name]["probe"] for name in sources]
    assert all(0 <= value <= 1 for value in probes)


def test_every_source_gives_as_many_rows_of_the_same_queries(world):
    _, sources, _, _, _ = world
    settings = StudySettings(per_query=2, hybrids=2)
    given = study_sources(sources, settings)
    assert list(given) == ["random", "bm25", "made", "random & bm25", "random & made", "bm25 & made"]
    assert {int(each.keep.sum()) for each in given.values()} == {40}
    joined = given["random & bm25"].kept()
    of_both = {name: set(zip(*(given[name].kept()[c].to_pylist() for c in ("query_id", "doc_id")), strict=True))
               for name in ("random", "bm25")}  # fmt: skip
    pairs = set(zip(joined["query_id"].to_pylist(), joined["doc_id"].to_pylist(), strict=True))
    assert pairs <= of_both["random"] | of_both["bm25"]
    assert pairs & of_both["random"]
    assert pairs & of_both["bm25"]


def test_whole_hybrids_have_all_negatives_of_their_parts_and_train_on_them(world):
    collection, sources, model, _, study = world
    settings = StudySettings(per_query=2, hybrids=2, whole_hybrids=True, training=QUICK)
    given = study_sources(sources, settings)
    kept = given["random & bm25"].kept()
    pairs = {
        name: set(zip(*(given[name].kept()[c].to_pylist() for c in ("query_id", "doc_id")), strict=True))
        for name in ("random", "bm25")
    }
    joined = set(zip(kept["query_id"].to_pylist(), kept["doc_id"].to_pylist(), strict=True))
    assert joined == pairs["random"] | pairs["bm25"]
    (cell,) = open_study(study, collection, sources, [model], settings)
    assert len(cell.rows("random & bm25", 0)) == len(joined) > len(cell.rows("bm25", 0)) == 40
    (usual,) = open_study(study, collection, sources, [model], StudySettings(per_query=2, hybrids=2, training=QUICK))
    assert len(usual.rows("random & bm25", 0)) == 40
    assert usual.folder != cell.folder
    with pytest.raises(InputError, match="whole_hybrids True: no effect without hybrids"):
        StudySettings(whole_hybrids=True)


def test_a_recapture_of_other_rows_is_not_used(world):
    _, sources, *_ = world
    assert "recapture" in study_sources(sources, StudySettings(per_query=4))["bm25"].provenance
    assert "recapture" not in study_sources(sources, StudySettings(per_query=3))["bm25"].provenance


def test_a_seed_draws_its_queries(world):
    collection, *_ = world
    drawn = [drawn_queries(collection, "train", 5, seed).positives("train").query_rows for seed in (0, 0, 1)]
    assert np.array_equal(drawn[0], drawn[1])
    assert not np.array_equal(drawn[0], drawn[2])
    assert len(drawn[0]) == 5
    assert drawn_queries(collection, "train", None, 0) is collection
    assert drawn_queries(collection, "train", 5, 0).qrels["test"] is collection.qrels["test"]


def test_a_digest_sees_what_is_trained_on(world):
    _, sources, *_ = world
    negatives = sources["made"]
    first = np.arange(len(negatives)) == 0
    assert table_digest(negatives) == table_digest(negatives.with_columns({"other": np.zeros(len(negatives))}))
    assert table_digest(negatives) != table_digest(negatives.reject(first, "no"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"seeds": 0}, "seeds 0"),
        ({"temperature": 0}, "temperature 0"),
        ({"measures": ()}, "no measure"),
    ],
)
def test_settings_out_of_range(change, message):
    with pytest.raises(InputError, match=message):
        StudySettings(**change)


def test_what_a_study_refuses(world):
    collection, sources, model, store, study = world
    with pytest.raises(InputError, match="two at least"):
        run_study(study, collection, {"made": sources["made"]}, [model], store)
    with pytest.raises(InputError, match="baseline"):
        run_study(study, collection, {"untrained": sources["made"], "x": sources["bm25"]}, [model], store)
    with pytest.raises(InputError, match=r"epoch; known are .*epochs"):
        run_study(study, collection, sources, [model], store, StudySettings(training={"epoch": 2}))
    with pytest.raises(InputError, match="no study here"):
        read_cells(study / "nothing")


def test_the_verbs(world, beir_folder, capsys, tmp_path):
    _, sources, model, _, study = world
    folder = made_up_folder(beir_folder)
    for name, negatives in sources.items():
        negatives.write(tmp_path / f"{name}.parquet")
    paths = [str(tmp_path / f"{name}.parquet") for name in sources]
    call = ["study", str(folder), *paths, "--model", model, "-o", str(study), "--seeds", "2"]
    call += [
        "--encoder-args",
        f"vectors={tmp_path / 'v'}",
        "--set",
        "batch_size=16",
        "--set",
        "learning_rate=0.05",
        "--measures",
        "nDCG@10,RR@10",
    ]
    assert run(call) == 0
    shown = capsys.readouterr().out
    assert "Which predictor orders the sources" in shown
    assert "in-batch negatives" in shown
    results = json.loads((study / "results.json").read_text())
    assert {each["source"] for each in results["cells"][0]["outcomes"]} >= {"random", "bm25", "made", "untrained"}
    assert "eci_sem" in {each["predictor"] for each in results["leaderboard"]}
    page = (study / "report.html").read_text()
    assert "Did the score predict the training?" in page
    assert run(["report", str(study), "-o", str(tmp_path / "page.html"), "--measure", "RR@10"]) == 0
    assert "RR@10" in (tmp_path / "page.html").read_text()
    assert run(["report", str(tmp_path), "-o", str(tmp_path / "page.html")]) == 2
    assert run(["study", str(folder), paths[0], "--model", model, "-o", str(study)]) == 2
