"""Trainings report to trackers, as transformers' trainer opens them."""

from __future__ import annotations

import pytest

import foils
from train_models import made_up, static_model, table


def test_tensorboard_keeps_its_files_beside_the_model(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    collection = made_up()
    trained = foils.train(
        collection, table(collection), model=static_model(), output=tmp_path / "model",
        trainer={"report_to": "tensorboard"},
        batch_size=16, epochs=2, dev="dev", learning_rate=0.05,
    )  # fmt: skip
    (folder,) = (tmp_path / "model" / "runs").iterdir()
    events = EventAccumulator(str(folder))
    events.Reload()
    for name, tag in (("loss", "train/loss"), ("dev", "eval/dev")):
        entries = [entry[name] for entry in trained.run.history if name in entry]
        assert [event.value for event in events.Scalars(tag)] == pytest.approx(entries, rel=1e-6)
