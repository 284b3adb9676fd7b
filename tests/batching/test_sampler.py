"""The trainer hook: through sentence-transformers' own trainer, with a small static embedding."""

import dataclasses
import os
import pickle
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from sampler_training import SIZE, data, orders, train, with_rows
from torch.utils.data import DataLoader
from transformers import TrainerCallback

import foils
import foils.batching.sampler as sampler_module
from foils.batching import METHODS, find_conflicts
from foils.batching.sampler import SAVED, BatchPlanner, PlannedBatchSampler
from foils.batching.vectors import EmbeddingCache
from foils.runtime.errors import FormatError, InputError
from tiny_models import tiny_sparse_and_multi_vector
from train_models import Kill, KilledError, bert_model, static_model

SMALL = {
    "hobit": {"seeds": 2, "candidates": 16},
    "walks": {"candidates": 30, "neighbours": 5},
    "b3": {"skip": 1, "ranks": 5},
}


def weights(trainer):
    return np.concatenate([p.detach().numpy().ravel() for p in trainer.model.parameters()])


@pytest.mark.parametrize("name", [name for name in METHODS if name != "hobit-c"])
def test_every_epoch_is_a_new_partition(name, tmp_path):
    planner = BatchPlanner(name, SMALL.get(name))
    seen = orders(planner, tmp_path, epochs=3)
    assert [sorted(np.concatenate(epoch).tolist()) for epoch in seen] == [list(range(90))] * 3
    assert all(len(epoch) == -(-90 // SIZE) for epoch in seen)
    assert not np.array_equal(np.concatenate(seen[0]), np.concatenate(seen[1]))
    assert [h["epoch"] for h in planner.history] == [0, 1, 2]


def test_batches_follow_the_model(tmp_path):
    # with a learning rate the second epoch's batches differ from those of a model that stands still
    moving, still = (orders(BatchPlanner("hobit", SMALL["hobit"]), tmp_path / str(lr), lr=lr) for lr in (0.5, 0.0))
    assert all(np.array_equal(a, b) for a, b in zip(moving[0], still[0], strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(moving[1], still[1], strict=True))


def test_further_positives_are_kept_apart(tmp_path):
    # tell the planner that a query is answered by texts it has just met in a batch: it meets them no more
    dataset = data()
    first = orders(BatchPlanner("hobit", SMALL["hobit"]), tmp_path / "a", epochs=1)[0][0]
    extra = [(dataset[first[0]]["query"], dataset[row]["text"]) for row in first[1:4]]
    told = orders(BatchPlanner("hobit", SMALL["hobit"], positives=extra), tmp_path / "b", epochs=1)[0]
    conflicts = find_conflicts(dataset["query"], dataset["text"], positives=extra)
    assert conflicts.matrix(np.array(first)).any()
    assert not any(conflicts.matrix(np.array(batch)).any() for batch in told)


def test_evaluation_sets_keep_plain_order(tmp_path):
    planner = BatchPlanner("hobit", SMALL["hobit"])
    trainer = train(planner, tmp_path, evaluation=data().select(range(20)))
    sampler = trainer.get_eval_dataloader().batch_sampler
    assert isinstance(sampler, PlannedBatchSampler)
    assert [row for batch in sampler for row in batch] == list(range(20))
    assert any("eval_loss" in entry for entry in trainer.state.log_history)


@pytest.mark.parametrize(
    ("name", "schedule"),
    [
        ("hobit", {"warmup": 1, "anneal": 2}),
        ("b3", {"warmup": 1}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
def test_resuming_is_exact_with_every_schedule(name, schedule, tmp_path):
    # six steps in an epoch: before the warm-up ends, in the first planned epoch, and where old vectors are still used
    how = {"epochs": 4, "save": 5, "save_total_limit": None, "dataloader_num_workers": int(name == "b3")}
    straight = train(BatchPlanner(name, {**SMALL.get(name, {}), **schedule}), tmp_path, **how)
    for step in (5, 10, 15):
        resume = str(tmp_path / f"checkpoint-{step}")
        resumed = train(BatchPlanner(name, {**SMALL.get(name, {}), **schedule}), tmp_path, resume=resume, **how)
        np.testing.assert_array_equal(weights(resumed), weights(straight))


def test_resuming_without_a_saved_order_is_an_error(tmp_path):
    train(BatchPlanner("random"), tmp_path, epochs=2, save=7)
    (tmp_path / "checkpoint-7" / SAVED).unlink()
    with pytest.raises(FormatError, match="damaged order of batches"):
        train(BatchPlanner("random"), tmp_path, epochs=2, save=7, resume=str(tmp_path / "checkpoint-7"))


def test_sampler_pickles_without_its_vectors():
    vectors = np.zeros((1000, 100), np.float32)
    planner = BatchPlanner("b3", teacher=(vectors, vectors))
    assert len(pickle.dumps(planner)) < 2000
    assert pickle.loads(pickle.dumps(planner)).name == "b3"


@pytest.mark.parametrize("drop", [True, False])
@pytest.mark.parametrize("rows", [7, 16])
def test_length_is_exact(rows, drop):
    planner = BatchPlanner("random")
    sampler = PlannedBatchSampler(data().select(range(rows)), 8, drop, planner=planner)
    sampler.attach(lambda texts, column: np.ones((len(texts), 2)))
    sizes = [8] * (rows // 8) + [rows % 8] * (not drop and rows % 8 > 0)
    assert list(DataLoader(data(), batch_sampler=sampler, collate_fn=len)) == sizes
    assert len(sampler) == len(sizes)


def test_annealing_begins_after_the_warm_up(tmp_path, monkeypatch):
    planner, used = BatchPlanner("hobit", {**SMALL["hobit"], "alpha": 0.8, "warmup": 2, "anneal": 4}), []

    def noting(*given, alpha, **settings):
        used.append(alpha)
        return METHODS["hobit"].build(*given, alpha=alpha, **settings)

    monkeypatch.setattr(planner, "method", dataclasses.replace(planner.method, build=noting))
    train(planner, tmp_path, epochs=8)
    assert used == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 0.8])


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("hobit", {"warmup": -1}, "warmup"),
        ("ngame", {"anneal": 3}, "alpha"),
        ("b3", {"teacher": "model"}, "foils train alone reads it"),
    ],
)
def test_planner_settings_out_of_range_are_refused(name, given, message):
    with pytest.raises(InputError, match=message):
        BatchPlanner(name, given)


def test_hobit_c_costs_no_extra_pass_after_the_first_epoch(tmp_path):
    planner = BatchPlanner("hobit-c", SMALL["hobit"])
    calls: list[str] = []
    how = {"loss": "CachedMultipleNegativesRankingLoss", "model": bert_model(tmp_path / "model")}
    seen = orders(planner, tmp_path, epochs=3, watch=calls, **how)
    assert calls == ["query", "text"]
    assert [sorted(np.concatenate(epoch).tolist()) for epoch in seen] == [list(range(90))] * 3
    assert planner.sampler.cache.queries.nbytes == 90 * 16 * 4


@pytest.mark.parametrize("loss", ["MultipleNegativesRankingLoss", "CachedMultipleNegativesRankingLoss"])
def test_cached_vectors_are_those_of_the_model(loss, tmp_path):
    # with a learning rate of 0 the passes of the epoch leave exactly what the model computes
    dataset = with_rows(data())
    planner = BatchPlanner("hobit-c", {**SMALL["hobit"], "warmup": 1})
    how = {"epochs": 1, "loss": loss, "lr": 0.0, "model": bert_model(tmp_path / "model")}
    trainer = train(planner, tmp_path, dataset=dataset, **how)
    for side, column in ((planner.sampler.cache.queries, "query"), (planner.sampler.cache.documents, "text")):
        expected = trainer.model.encode(dataset[:][column], normalize_embeddings=True)
        np.testing.assert_allclose(side, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("warmup", "more", "save", "killed"),
    [
        (0, {}, 4, 5),  # in the first epoch of six steps
        (1, {}, 6, 7),  # between two epochs
        (2, {}, 4, 15),  # in the third
        (1, {"gradient_accumulation_steps": 4}, 3, 4),  # two steps in an epoch, the last of two batches
        (0, {"dataloader_drop_last": True}, 4, 14),  # five; rows that are dropped are embedded
    ],
)
def test_killed_hobit_c_resumes_exactly(warmup, more, save, killed, tmp_path):
    def run(folder, *callbacks, resume=None):
        planner = BatchPlanner("hobit-c", {**SMALL["hobit"], "warmup": warmup})
        settings = {"epochs": 4, "save": save, "dataset": with_rows(data()), "resume": resume}
        trainer = train(planner, tmp_path / folder, callbacks=list(callbacks), **settings, **more)
        return weights(trainer), planner.sampler.cache

    whole, cache = run("whole")
    with pytest.raises(KilledError):
        run("killed", Kill(killed))
    checkpoint = tmp_path / "killed" / f"checkpoint-{killed // save * save}"
    resumed, restored = run("killed", resume=str(checkpoint))
    np.testing.assert_array_equal(resumed, whole)
    for name, array in cache.state().items():
        np.testing.assert_array_equal(restored.state()[name], array)


class Ages(EmbeddingCache):
    """Notes at which step each row's vectors were made."""

    def __init__(self, rows, **how):
        super().__init__(rows, **how)
        self.step, self.made = 0, np.zeros(rows, int)

    def update(self, rows, queries, documents):
        super().update(rows, queries, documents)
        self.made[rows] = self.step


class Steps(TrainerCallback):
    """Tells the cache the step; notes how old the vectors are that a step's batch was built from."""

    def __init__(self, planner):
        self.planner, self.lags = planner, []

    def on_epoch_begin(self, args, state, control, **_):
        self.planner.sampler.batches()
        self.made = self.planner.sampler.cache.made.copy()
        self.used = round(state.epoch) >= self.planner.warmup

    def on_step_begin(self, args, state, control, **_):
        self.planner.sampler.cache.step = state.global_step
        if self.used:
            self.lags.append(state.global_step - self.made.min())

    def on_step_end(self, args, state, control, **_):
        self.planner.sampler.cache.step = state.global_step


@pytest.mark.parametrize(
    ("warmup", "more"), [(0, {}), (1, {"dataloader_drop_last": True}), (3, {"gradient_accumulation_steps": 2})]
)
def test_cached_vectors_are_younger_than_two_epochs(warmup, more, tmp_path, monkeypatch):
    monkeypatch.setattr(sampler_module, "EmbeddingCache", Ages)
    calls = []
    planner = BatchPlanner("hobit-c", {**SMALL["hobit"], "warmup": warmup})
    steps = Steps(planner)
    settings = {"epochs": 12, "dataset": with_rows(data()), "watch": calls}
    trainer = train(planner, tmp_path, callbacks=[steps], **settings, **more)
    epoch = trainer.state.max_steps // 12
    assert len(steps.lags) == epoch * (12 - warmup)
    assert epoch <= max(steps.lags) <= 2 * epoch - 1
    if "dataloader_drop_last" not in more:
        assert calls == ["query", "text"] * (warmup == 0)


def test_hobit_c_refuses_a_loss_that_does_not_embed_each_column(tmp_path):
    class First(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.model = model

        def forward(self, features, labels=None):
            return self.model(next(iter(features)))["sentence_embedding"].sum()

    planner, model = BatchPlanner("hobit-c", SMALL["hobit"]), static_model()
    with pytest.raises(InputError, match="embeds each column once"):
        train(planner, tmp_path, model=model, objective=First(model))


@pytest.mark.parametrize("name", ["hobit", "hobit-c"])
@pytest.mark.parametrize("named", [True, False])
def test_one_argument_is_enough(name, named, tmp_path):
    """The same batches with and without a model; evaluation sets keep plain order, and the arguments pickle."""
    model = static_model()
    chosen = foils.batch_sampler(name, model if named else None, **SMALL["hobit"])
    pickle.loads(pickle.dumps(chosen))
    alone = train(chosen, tmp_path / "a", evaluation=data(), lr=0.5, epochs=2, model=model)
    both = train(BatchPlanner(name, SMALL["hobit"]), tmp_path / "b", lr=0.5, epochs=2)
    np.testing.assert_array_equal(weights(alone), weights(both))


def test_one_argument_resumes_exactly(tmp_path):
    def run(folder, **more):
        model = static_model()
        chosen = foils.batch_sampler("hobit", model, **SMALL["hobit"])
        return train(chosen, tmp_path / folder, lr=0.5, epochs=2, save=8, model=model, **more)

    whole = run("a")
    resumed = run("a", resume=str(tmp_path / "a" / "checkpoint-8"))
    np.testing.assert_array_equal(weights(whole), weights(resumed))


def test_a_model_plans_without_a_trainer_and_another_than_the_trainer_s_is_refused(tmp_path):
    model = static_model()
    sampler = foils.batch_sampler("hobit", model, **SMALL["hobit"])(data(), SIZE, False, seed=3)
    sampler.set_epoch(0)
    first = orders(BatchPlanner("hobit", SMALL["hobit"]), tmp_path / "a", epochs=1)[0]
    assert list(sampler) == first
    with pytest.raises(InputError, match="another model"):
        train(foils.batch_sampler("hobit", model), tmp_path / "b", model=static_model())


def test_trainers_with_batches_of_their_own_are_left_alone(tmp_path):
    """`HookEvents`, which every trainer has, does nothing for them."""
    plain = train("batch_sampler", tmp_path, epochs=1)
    assert any(isinstance(each, sampler_module.HookEvents) for each in plain.callback_handler.callbacks)


def test_sparse_encoders_take_the_sampler(tmp_path):
    from sentence_transformers import SparseEncoder, SparseEncoderTrainer, SparseEncoderTrainingArguments
    from sentence_transformers.sparse_encoder.losses import SparseMultipleNegativesRankingLoss, SpladeLoss

    path, _ = tiny_sparse_and_multi_vector(tmp_path / "made", [f"w{i}" for i in range(30)])
    model = SparseEncoder(str(path), device="cpu")
    loss = SpladeLoss(model, SparseMultipleNegativesRankingLoss(model), document_regularizer_weight=1e-3)
    args = SparseEncoderTrainingArguments(
        str(tmp_path / "out"), batch_sampler=foils.batch_sampler("hobit", seeds=2), max_steps=2, use_cpu=True,
        per_device_train_batch_size=15, report_to="none", save_strategy="no", disable_tqdm=True,
    )  # fmt: skip
    pairs = data()
    SparseEncoderTrainer(model, args, train_dataset=pairs, loss=loss).train()
    assert args.batch_sampler.history


def test_a_data_set_without_a_positive_column_is_refused():
    sampler = PlannedBatchSampler(
        Dataset.from_dict({"query": ["a"], "label": [1]}), 1, False, ["label"], planner=BatchPlanner("random")
    )
    with pytest.raises(InputError, match=r"got columns \['query'\]"):
        sampler.attach(lambda texts, column: np.ones((len(texts), 2)))


VECTORS = {"recent": np.ones(90, bool), "queries": np.ones((90, 2), np.float32), "documents": np.ones((90, 2))}


def damaged(change):
    return lambda path: path.write_bytes(change(path.read_bytes()))


def saving(**arrays):
    return lambda path: np.savez(path, **{"epoch": 0, "order": np.arange(90), **arrays})


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (damaged(lambda whole: whole[:60]), "damaged order of batches"),
        (damaged(lambda whole: b"x"), "damaged order of batches"),
        (damaged(lambda whole: whole[:30] + b"(((" + whole[33:]), "damaged order of batches"),
        (saving(order=np.zeros(90, np.int64)), "damaged order of batches .an epoch visits"),
        (saving(communities=np.arange(80)), "damaged order of batches"),
        (saving(recent=VECTORS["recent"]), "damaged order of batches"),
        (saving(**{**VECTORS, "queries": np.full((90, 2), np.nan)}), "no vectors of these rows"),
        (saving(**{**VECTORS, "recent": np.ones(9, bool)}), "no vectors of these rows"),
        (saving(**VECTORS), None),
        (damaged(lambda whole: whole), None),
    ],
)
def test_a_damaged_order_is_named(tmp_path, spoil, message):
    sampler, path = (
        PlannedBatchSampler(data(), 8, False, planner=BatchPlanner("hobit-c", SMALL["hobit"])),
        tmp_path / "order.npz",
    )
    sampler.attach(lambda texts, column: np.ones((len(texts), 2)))
    sampler.save(path)
    spoil(path)
    with nullcontext() if message is None else pytest.raises(FormatError, match=rf"order\.npz: .*{message}"):
        sampler.restore(path)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "split"), [("hobit", False), ("hobit-c", True)])
def test_two_processes_share_every_epoch(name, split, tmp_path):
    """Two gloo processes: same batches on both, together the whole order; split batches are the halves of one."""
    script = Path(__file__).with_name("sampler_training.py")
    port = str(20000 + os.getpid() % 20000)
    environment = {
        **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
        "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1",
    }  # fmt: skip
    command = [sys.executable, str(script), name, str(int(split)), str(tmp_path)]
    runs = [
        subprocess.Popen(command, env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for rank in range(2)
    ]  # fmt: skip
    outputs = [run.communicate(timeout=240)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], "\n".join(outputs)
    planned = [np.load(tmp_path / f"planned-{rank}.npy") for rank in range(2)]
    np.testing.assert_array_equal(planned[0], planned[1])
    trained = [np.load(tmp_path / f"trained-{rank}.npy", allow_pickle=True).tolist() for rank in range(2)]
    for epoch in range(2):
        order = planned[0][epoch]
        shares = [trained[rank][epoch] for rank in range(2)]
        if split:
            half = SIZE // 2
            assert shares[0][0] == order[:half].tolist()
            assert shares[1][0] == order[half:SIZE].tolist()
        else:
            assert shares[0][0] == order[:SIZE].tolist()
            assert shares[1][0] == order[SIZE : 2 * SIZE].tolist()
        # the trainer drops a short last batch, and one that not every process has
        together = sorted(row for share in shares for batch in share for row in batch)
        assert together == sorted(order[: 80 if split else 64])
