"""Trainings report to trackers; each is read again with the tracker's own reader, where it is installed."""

from __future__ import annotations

import pytest

import foils
from foils.runtime.errors import MissingExtraError, UnknownNameError
from foils.training.settings import TRACKERS
from train_models import cross_encoder, made_up, static_model, table


def train(folder, *trackers, **more):
    collection = made_up()
    steps = {"batch_size": 16, "epochs": 2, "dev": "dev", "learning_rate": 0.05, **more}
    return foils.train(
        collection, table(collection), model=static_model(), output=folder, trackers=trackers, seed=1, **steps
    )


def test_names_are_those_of_transformers():
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    assert set(TRACKERS) <= set(INTEGRATION_TO_CALLBACK)


def test_tensorboard_keeps_its_files_beside_the_model(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trained = train(tmp_path / "model", "tensorboard")
    events = EventAccumulator(str(tmp_path / "model" / "runs"))
    events.Reload()
    losses = [entry["loss"] for entry in trained.run.history if "loss" in entry]
    assert [event.value for event in events.Scalars("train/loss")] == pytest.approx(losses, rel=1e-6)
    dev = [entry["dev"] for entry in trained.run.history if "dev" in entry]
    assert [event.value for event in events.Scalars("eval/dev")] == pytest.approx(dev, rel=1e-6)
    assert not (tmp_path / "model" / "checkpoints").exists()


def test_tensorboard_follows_its_variable_and_rerankers_report_too(tmp_path, monkeypatch):
    pytest.importorskip("tensorboard")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "elsewhere"))
    collection, model = made_up(), cross_encoder(tmp_path)
    foils.train(
        collection, table(collection), model=model, reranker=True, output=tmp_path / "model", batch_size=16, epochs=1,
        trackers=("tensorboard",),
    )  # fmt: skip
    assert list((tmp_path / "elsewhere").glob("events.*"))
    assert not (tmp_path / "model" / "runs").exists()


def test_mlflow_has_a_run_of_the_name_of_the_folder(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    store = (tmp_path / "store").as_uri()
    mlflow.set_tracking_uri(store)
    trained = train(tmp_path / "my model", "mlflow")
    client = mlflow.MlflowClient(store)
    (run,) = client.search_runs(["0"])
    assert run.info.run_name == "my model"
    losses = [entry["loss"] for entry in trained.run.history if "loss" in entry]
    kept = sorted(client.get_metric_history(run.info.run_id, "loss"), key=lambda metric: metric.step)
    assert [metric.value for metric in kept] == pytest.approx(losses)


@pytest.mark.parametrize("module", ["wandb", "trackio"])
def test_a_tracker_that_is_not_installed_is_refused_at_once_with_the_line_that_installs_it(
    tmp_path, monkeypatch, module
):
    monkeypatch.setattr("foils.training.settings.find_spec", lambda name: None if name == module else object())
    with pytest.raises(MissingExtraError, match=f"{module} is not installed; run: pip install {module}"):
        foils.train("no such folder", model="none", output=tmp_path / "out", trackers=("tensorboard", module))


def test_another_name_is_refused(tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'tensorboard'"):
        foils.train("no such folder", model="none", output=tmp_path / "out", trackers=("tensorbord",))
