"""Studies of rerankers: what they are trained on, what they are measured by, and what stands beside them."""

from __future__ import annotations

import re
import shutil

import numpy as np
import pytest

from foils.data import Run
from foils.data.negatives import Negatives
from foils.encode import EncoderSettings, VectorStore, load_encoder
from foils.encode.cross_encoders import load_cross_encoder
from foils.evaluation import bm25_run, measure_rankings, measure_reranker, qrels_of, rankings_of
from foils.mining import BM25Retriever, RandomRetriever, mine_negatives
from foils.runtime.errors import FoilsError, InputError
from foils.scoring import DecisionSettings, ScoreSettings, decide_sources, score_sources
from foils.studies import StudySettings, analyse, read_cells, run_study
from foils.studies.cells import FIRST_STAGE, FIRST_STAGE_FILE
from foils.studies.kinds import Rerankers
from foils.studies.sources import study_sources
from train_models import cross_encoder, made_up, static_model

QUICK = {"batch_size": 8, "learning_rate": 0.01, "max_length": 32}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Folders of a masked language model's body, of a whole cross-encoder, and of an encoder to score with."""
    from transformers import BertForSequenceClassification, BertModel

    place = tmp_path_factory.mktemp("models")
    (place / "whole").mkdir()
    cross_encoder(place / "whole")
    shutil.copytree(place / "whole", place / "body")
    body: BertModel = BertForSequenceClassification.from_pretrained(place / "whole").bert
    body.save_pretrained(place / "body")
    static_model().save_pretrained(str(place / "static"))
    return place


@pytest.fixture
def world(models, tmp_path):
    collection = made_up()
    sources = {
        "random": mine_negatives(collection, RandomRetriever(collection, seed=0), split="train", top=4),
        "bm25": mine_negatives(collection, BM25Retriever(collection), split="train", top=4),
    }
    return collection, sources, VectorStore(tmp_path / "vectors"), tmp_path / "study"


def settings_of(models, **more):
    own = {"reranker": True, "seeds": 1, "per_query": 3, "score_with": str(models / "static"), "rerank_depth": 20}
    return StudySettings(**{**own, "training": QUICK, **more})


def files(folder):
    return {
        path.relative_to(folder).as_posix(): "\n".join(
            line for line in path.read_text().splitlines() if not re.match(r' *"(seconds|checksum)":', line)
        )
        for path in sorted(folder.rglob("*.json"))
    }


def test_it_trains_on_lists_and_measures_the_order_that_the_first_stage_gets(world, models):
    collection, sources, store, study = world
    settings = settings_of(models, seeds=2)
    run_study(study, collection, sources, [str(models / "body")], store, settings)
    (cell,) = read_cells(study)
    assert set(cell.outcomes) == {FIRST_STAGE, "random", "bm25"}
    assert set(cell.outcomes["bm25"]) == {"nDCG@10", "RR@10"}
    first = bm25_run(collection, "test", depth=20)
    expected = measure_rankings(rankings_of(first), qrels_of(collection, "test"), ["nDCG@10"])
    assert cell.means("nDCG@10")[FIRST_STAGE] == pytest.approx([expected.means["nDCG@10"]])  # once
    before, times = files(study), {path: path.stat().st_mtime_ns for path in study.rglob("*.json")}
    trained = [text for name, text in before.items() if "trained/bm25" in name]
    assert all('"rows": 20' in text and '"steps": 3' in text for text in trained)  # 20 lists in batches of 8
    assert trained[0] != trained[1]
    run_study(study, collection, sources, [str(models / "body")], store, settings)
    assert {path: path.stat().st_mtime_ns for path in study.rglob("*.json")} == times
    next(path for path in study.rglob("*.json") if "trained/bm25" in path.as_posix()).unlink()
    run_study(study, collection, sources, [str(models / "body")], store, settings)
    assert files(study) == before


def test_gains_are_those_over_the_first_stage(world, models):
    collection, sources, store, study = world
    run_study(study, collection, sources, [str(models / "body")], store, settings_of(models))
    found = analyse(read_cells(study))
    (cell,) = found.cells
    means = {each.source: each.mean for each in found.outcomes[cell.name]}
    for each in found.outcomes[cell.name]:
        if each.source != FIRST_STAGE:
            assert each.gain == pytest.approx(means[each.source] - means[FIRST_STAGE])
    assert "gain over first stage" in str(found)
    assert found.warnings == []  # no training is doubted for coming near its first stage


def test_every_seed_draws_a_head_and_a_trained_head_is_kept(models):
    settings, collection = settings_of(models), made_up()
    kind = Rerankers(settings, [collection])
    pairs = [("ba be", "ba be bi")]
    drawn = [kind.load(str(models / "body"), seed).predict(pairs)[0] for seed in (0, 0, 1)]
    whole = [kind.load(str(models / "whole"), seed).predict(pairs)[0] for seed in (0, 1)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert whole[0] == whole[1]
    assert kind.deciding(str(models / "body"), collection) == DecisionSettings(in_batch=0, starts="nothing")
    assert kind.deciding(str(models / "whole"), collection) == DecisionSettings(in_batch=0, recurrence=1.0)


def test_sources_are_scored_by_an_encoder_and_the_benefit_knows_the_regime(world, models):
    collection, sources, store, study = world
    settings = settings_of(models)
    run_study(study, collection, sources, [str(models / "body")], store, settings)
    (cell,) = read_cells(study)
    encoder = load_encoder(str(models / "static"), EncoderSettings(max_length=32))
    given = study_sources(sources, settings)
    scores = score_sources(collection, given, encoder, store, ScoreSettings(hybrids=1, replicates=0))
    nothing = decide_sources(scores, given, encoder, store, DecisionSettings(in_batch=0, starts="nothing"))
    usual = decide_sources(scores, given, encoder, store, DecisionSettings())
    for score in scores.sources:
        found = cell.predictors[score.name]
        assert found["eci_sem"] == pytest.approx(score.eci_sem)
        assert found["benefit"] == pytest.approx(nothing.decision.worths[score.name].benefit)
        assert found["benefit"] != pytest.approx(usual.decision.worths[score.name].benefit)


def test_a_run_is_reranked_instead_of_bm25s(world, models, tmp_path):
    collection, sources, store, study = world
    rng = np.random.default_rng(3)
    ids = collection.documents["doc_id"].to_pylist()
    queries = collection.judgements("test")["query_id"].to_pylist()
    run = Run.from_dict({q: {d: float(rng.random()) for d in rng.choice(ids, 30, replace=False)} for q in queries})
    run.write(tmp_path / "given.trec")
    for name, given in (("file", tmp_path / "given.trec"), ("object", run), ("bm25", "bm25")):
        settings = settings_of(models, first_stage=given)
        run_study(study / name, collection, sources, [str(models / "body")], store, settings)
    file, own, lexical = (read_cells(study / name)[0] for name in ("file", "object", "bm25"))
    assert file.means("nDCG@10")["bm25"] == own.means("nDCG@10")["bm25"]
    assert file.means("nDCG@10")[FIRST_STAGE] != lexical.means("nDCG@10")[FIRST_STAGE]
    assert file.folder.name != lexical.folder.name
    kept = own.folder / FIRST_STAGE_FILE
    assert kept.is_file()
    assert not list((study / "file").rglob("*.trec"))
    for depth, cells in ((20, 1), (12, 2)):
        again = settings_of(models, first_stage=kept, rerank_depth=depth)
        run_study(study / "object", collection, sources, [str(models / "body")], store, again)
        assert len(read_cells(study / "object")) == cells


def test_a_trained_reranker_is_measured_as_evaluate_does(world, models):
    collection, *_ = world
    model = load_cross_encoder(models / "whole")
    kind = Rerankers(settings_of(models, rerank_depth=7), [collection])
    whole = measure_reranker(model, collection, "test", bm25_run(collection, "test"), ["nDCG@10"], depth=7)
    assert kind.measure(model)[0].means["nDCG@10"] == whole.means["nDCG@10"]
    assert {len(of) for of in rankings_of(kind.runs[0]).values()} <= set(range(1, 8))
    assert len(rankings_of(kind.runs[0])) == len(qrels_of(collection, "test"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"measures": ("nDCG@30",)}, "nDCG@30.*first 20"),
        ({"similarity": "dot"}, "similarity dot: no effect with reranker"),
        ({"batches": "hobit"}, "batches hobit: no effect with reranker"),
        ({"reranker": False}, "rerank_depth 20: no effect without reranker"),
        ({"training": {**QUICK, "loss": "mnrl"}}, "mnrl"),
        ({"training": {**QUICK, "loss": "regression"}}, "ratings"),
        ({"score_with": "/nowhere/at/all"}, "/nowhere/at/all"),
        ({"first_stage": "/nowhere/at/all.trec"}, "/nowhere/at/all"),
        ({"first_stage": Run.from_dict({"q39": {"other": 1.0}})}, "other"),
        ({"first_stage": Run.from_dict({"q0": {"d0": 1.0}})}, "no query of the split 'test'"),
    ],
)
def test_what_cannot_be_done_is_refused_before_anything_is_trained(world, models, change, message):
    collection, sources, store, study = world
    with pytest.raises(FoilsError, match=message):
        run_study(study, collection, sources, [str(models / "body")], store, settings_of(models, **change))
    assert not study.exists()


def test_weights_that_the_loss_cannot_heed_are_refused(world, models):
    collection, sources, store, study = world
    weighted = {name: each.with_columns({"weight": np.full(len(each), 0.5)}) for name, each in sources.items()}
    assert isinstance(weighted["bm25"], Negatives)
    settings = settings_of(models, training={**QUICK, "loss": "st:LambdaLoss"})
    with pytest.raises(InputError, match="weight other than 1"):
        run_study(study, collection, weighted, [str(models / "body")], store, settings)
