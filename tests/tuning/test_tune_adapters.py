"""Tuning by adapters: the plan holds it, the trials take their learning rates, what comes out is merged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("datasets")
pytest.importorskip("peft")

import foils
from foils.encode.models import load_model
from foils.runtime.errors import InputError
from foils.training.models import LEARNING_RATES, OF_ADAPTERS
from foils.tuning.plan import Plan
from train_models import bert_model, static_model
from tune_world import write_pairs

LARGE = {"lora": 2, "gradient_checkpointing": True, "trust_remote_code": True}


@pytest.fixture
def world(tmp_path: Path) -> Path:
    write_pairs(tmp_path / "pairs.csv", 120)
    bert_model(tmp_path / "bert").save_pretrained(str(tmp_path / "encoder"))
    return tmp_path


def tune(world: Path, **how: Any) -> Any:
    given = {"model": str(world / "encoder"), "keep": "none", "device": "cpu"}
    return foils.tune(str(world / "pairs.csv"), **{**given, **how})


def test_few_steps_take_three_times_an_encoders_rate_but_not_that_of_adapters(world: Path) -> None:
    rate = LEARNING_RATES["encoder"][0]
    for how, expected in (({}, 3 * rate), ({"lora": 2}, OF_ADAPTERS * rate)):
        trials = tune(world, explain=True, minutes=1e-5, **how).plan["trials"]
        assert trials["learning_rates"] == pytest.approx([expected])
        assert not trials["contest"]


def test_a_plan_with_adapters_runs_and_gives_a_plain_model(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = tune(world, explain=True, **LARGE).plan
    assert {name: plan["given"][name] for name in LARGE} == LARGE
    rate = OF_ADAPTERS * LEARNING_RATES["encoder"][0]
    assert plan["trials"]["learning_rates"] == pytest.approx([rate / 3, rate, 3 * rate], rel=0.05)
    plan.sections["negatives"] = {"source": "", "per_query": 1, "max_positives": 1}
    plan.sections["training"] = {"learning_rate": 0.05, "epochs": 2}
    plan.write(world / "plan.toml")
    monkeypatch.setattr("foils.tuning.run.Tuning.tidy", lambda _: None)  # what was trained stays, better or not
    foils.tune(plan=world / "plan.toml", output=world / "out", device="cpu")
    (trained,) = (world / "out" / "work" / "checkpoints").glob("model-*")
    before, after = load_model(world / "encoder", device="cpu"), load_model(trained, device="cpu")
    assert "| lora | 2 |" in (trained / "README.md").read_text()
    assert "| gradient_checkpointing | true |" in (trained / "README.md").read_text()
    assert Plan.read(world / "out" / "plan.toml")["given"]["lora"] == 2
    one, two = before.state_dict(), after.state_dict()
    assert list(one) == list(two)
    changed = {name for name in one if not one[name].equal(two[name])}
    assert changed
    assert all("embeddings" not in name and name.endswith(".weight") and one[name].ndim == 2 for name in changed)


def test_a_static_embedding_is_refused_before_anything_is_mined(world: Path) -> None:
    static_model().save_pretrained(str(world / "static"))
    with pytest.raises(InputError, match="lora: the model has no transformer"):
        tune(world, model=str(world / "static"), output=world / "out", lora=2)
    with pytest.raises(InputError, match="lora 2: no effect with model static:m, a bag of words"):
        tune(world, model="static:m", output=world / "other", lora=2)
