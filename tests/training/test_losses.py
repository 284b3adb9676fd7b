"""Losses of encoders, cached, cut, masked, and of several processes, against plain loops and sentence-transformers."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from gathering_training import CASES
from safetensors.numpy import load_file
from sentence_transformers.sentence_transformer.losses import (
    CachedMultipleNegativesRankingLoss,
    GISTEmbedLoss,
    MultipleNegativesRankingLoss,
)

from foils.encode import EmbeddingSettings
from foils.evaluation import measure_encoder
from foils.runtime.errors import InputError
from foils.training.data import PairFacts, training_set
from foils.training.fit import train_model
from foils.training.losses import (
    ContrastiveLoss,
    average_gradients,
    gathered,
    guide_vectors,
    matryoshka_loss,
)
from foils.training.objectives import (
    MIXINGS,
    Temperature,
    debiased_infonce,
    mask_log_weights,
    weighted_infonce,
)
from foils.training.settings import TrainSettings, parsed_dimensions
from refusals import refused
from train_models import (
    WORDS,
    bert_model,
    cross_encoder,
    evaluated,
    features,
    made_up,
    made_up_folder,
    rows_of,
    same,
    static_model,
    table,
    unpaired,
    weights,
)


@pytest.fixture(scope="module")
def noisy(tmp_path_factory):
    """With dropout, so that the second embedding of a cached loss must repeat the first's draws."""
    return bert_model(tmp_path_factory.mktemp("noisy"), dropout=0.2)


def texts(count, seed=0, columns=3):
    rng = np.random.default_rng(seed)
    return {f"c{j}": [" ".join(rng.choice(WORDS, rng.integers(1, 6))) for _ in range(count)] for j in range(columns)}


def test_plain_is_sentence_transformers_loss(model):
    batch = texts(9)
    same(evaluated(ContrastiveLoss(model), batch), evaluated(MultipleNegativesRankingLoss(model), batch))
    theirs = CachedMultipleNegativesRankingLoss(model, mini_batch_size=4)
    same(evaluated(ContrastiveLoss(model, mini_batch_size=4), batch), evaluated(theirs, batch))


OBJECTIVES = {
    "weighted": weighted_infonce,
    "debiased": partial(debiased_infonce, prior=0.05),
    "hard": partial(debiased_infonce, prior=0.05, concentration=0.5),
}


@pytest.mark.parametrize(
    ("objective", "mixing", "size", "masked"),
    [
        *((name, None, 4, False) for name in OBJECTIVES),
        *(("weighted", name, 3, False) for name in MIXINGS),
        ("hard", "gradnorm", 100, False), ("hard", None, 3, True), ("debiased", "gradnorm", 3, True),
    ],
)  # fmt: skip
def test_cached_equals_uncached(model, rated, objective, mixing, size, masked, tmp_path):
    rows, found = [3, 0, 7, 11, 5, 2, 9], []
    batch, settings = rated.dataset[rows], EmbeddingSettings(vectors=str(tmp_path))
    guide = guide_vectors(static_model(seed=3), rated, settings=settings) if masked else None
    for mini_batch_size in (None, size):
        way, tau = MIXINGS[mixing]() if mixing else None, Temperature(0.1, learned=True)
        how = {"objective": OBJECTIVES[objective], "facts": rated.facts, "temperature": tau, "mixing": way}
        loss = ContrastiveLoss(model, **how, guide=guide, margin=-0.4, mini_batch_size=mini_batch_size)
        found.append(evaluated(loss, batch, rows))
    assert torch.isfinite(found[0][1]["temperature.log_scale"])
    same(*found)


def test_cached_replays_dropout_as_sentence_transformers_does(noisy):
    batch, theirs = texts(9, seed=1), CachedMultipleNegativesRankingLoss(noisy, mini_batch_size=4)
    same(evaluated(ContrastiveLoss(noisy, mini_batch_size=4), batch, seed=5), evaluated(theirs, batch, seed=5))
    other = evaluated(theirs, batch, seed=6)
    assert other[0] != pytest.approx(evaluated(theirs, batch, seed=5)[0], abs=1e-6)


def test_the_scale_of_the_backward_pass_reaches_everything_learned_and_gradients_add_up(model, rated):
    rows, how = [0, 1, 2, 3], {"mini_batch_size": 3, "facts": rated.facts}
    mixing, temperature = MIXINGS["uncertainty"](), Temperature(0.07, learned=True)
    loss = ContrastiveLoss(model, mixing=mixing, temperature=temperature, **how)
    once, half = (evaluated(loss, rated.dataset[rows], rows, scale=scale)[1] for scale in (1.0, 0.5))
    assert set(once) >= {"gain", "offset", "temperature.log_scale", "mixing.log_variances"}
    for name, gradient in once.items():
        assert torch.allclose(half[name], 0.5 * gradient, atol=1e-7), name
    for _ in range(2):
        loss.model.eval()
        loss(features(loss.model, rated.dataset[rows]), torch.tensor(rows)).backward()
    assert temperature.log_scale.grad.item() == pytest.approx(2 * once["temperature.log_scale"].item(), rel=1e-5)
    model.zero_grad()


def test_weights_equal_plain_loops(model, rated):
    rows = [0, 4, 8]
    batch, known = rated.dataset[rows], rated.facts
    value = evaluated(ContrastiveLoss(model, facts=known, temperature=0.1), batch, rows)[0]
    model.eval()
    vectors = {name: model.encode(batch[name], normalize_embeddings=True) for name in batch if name != "label"}
    pairs = zip(known.known_query, known.known_document, strict=True)
    weights, losses = dict(zip(pairs, np.exp(known.known_log_weight), strict=True)), []
    for i, row in enumerate(rows):
        total = own = np.exp(vectors["anchor"][i] @ vectors["positive"][i] / 0.1)
        for c, name in enumerate(list(vectors)[1:]):
            for j, other in enumerate(rows):
                if (c, j) != (0, i):
                    key = known.queries[row], known.documents[other, c]
                    total += weights.get(key, 1.0) * np.exp(vectors["anchor"][i] @ vectors[name][j] / 0.1)
        losses.append(-np.log(own / total))
    assert value == pytest.approx(np.mean(losses), abs=1e-5)
    assert abs(evaluated(ContrastiveLoss(model, temperature=0.1), batch)[0] - value) > 1e-3


def facts(queries, documents, known=(), gaps=None):
    documents = np.asarray(documents)
    asked, answers, weights = (np.array(x) for x in zip(*known, strict=True)) if known else (np.zeros(0, int),) * 3
    with np.errstate(divide="ignore"):
        logs = np.log(weights.astype(float))
    gaps = np.full(len(asked), np.nan) if gaps is None else np.asarray(gaps, float)
    ratings = np.full(documents.shape, np.nan)
    return PairFacts(np.asarray(queries), documents, ratings, asked, answers, logs, gaps)


def test_known_positives_are_left_out_and_own_ones_are_not():
    known = facts([0, 1, 0], [[5, 7], [6, 8], [9, -1]], [(0, 5, 0), (0, 9, 0), (1, 6, 0), (1, 7, 0.5)])
    mask = unpaired(known, np.array([0, 1, 2]))
    # candidates: 5 6 9 | 7 8 absent; rows 0 and 2 share a query whose positives are 5 and 9
    expected = [[0, 0, 1, 0, 0, 1], [0, 0, 0, 0, 0, 1], [1, 0, 0, 0, 0, 1]]
    assert mask.astype(int).tolist() == expected
    block = known.log_weights(np.array([0, 1, 2]), 0, 3)
    assert block[1].tolist() == pytest.approx([0, 0, 0, np.log(0.5), 0, -np.inf])


def test_one_query_with_two_weights_for_a_pair_takes_the_smaller():
    known = facts([0, 1], [[5], [7]], [(0, 7, 0.5), (0, 7, 0.2)])
    assert known.log_weights(np.array([0, 1]), 0, 2).tolist() == [[0, pytest.approx(np.log(0.2))], [0, 0]]


def test_a_curriculum_lets_harder_negatives_in_later():
    known = facts([0, 1], [[5, 7], [6, 8]], [(0, 7, 1.0), (1, 8, 0.5)], gaps=[250, 500])
    # candidates: 5 6 | 7 8
    late, early = (known.log_weights(np.array([0, 1]), 0, 2, least_gap=least) for least in (200, 300))
    half = pytest.approx(np.log(0.5))
    assert early.tolist() == [[0, 0, -np.inf, 0], [0, 0, 0, half]]
    assert late.tolist() == [[0, 0, 0, 0], [0, 0, 0, half]]


def test_the_loss_follows_the_curriculum_by_epoch(model, rated):
    rows = list(range(8))
    loss = ContrastiveLoss(model, facts=rated.facts, least_gap={1: 400.0, 2: 100.0}.__getitem__)
    early = evaluated(loss, rated.dataset[rows], rows)[0]
    loss.set_epoch(2)
    assert evaluated(loss, rated.dataset[rows], rows)[0] > early  # more negatives, more loss


def test_blocks_do_not_change_the_facts(rated):
    block = partial(rated.facts.log_weights, np.arange(10))
    assert np.array_equal(np.concatenate([block(a, min(a + 3, 10)) for a in range(0, 10, 3)]), block(0, 10))


def test_the_learnable_temperature_is_bounded():
    temperature = Temperature(0.07, learned=True)
    assert temperature().item() == pytest.approx(0.07)
    with torch.no_grad():
        temperature.log_scale.fill_(50.0)
    assert temperature().item() == pytest.approx(0.01)
    temperature().backward()
    assert temperature.log_scale.grad.item() == pytest.approx(-0.01)  # it can come back


def test_what_cannot_work_is_refused(model, rated):
    batch, loss = features(model, rated.dataset[[0, 1]]), ContrastiveLoss(model, facts=rated.facts)
    for given, labels, said in (
        (batch, None, "number"),
        (batch[:2], [0, 1], "negatives a row"),
        (batch, [0, 9999], "rows"),
        (batch[:1], [0, 1], "anchors"),
    ):
        refused(said, loss, given, None if labels is None else torch.tensor(labels))
    for make, said in (
        (lambda: ContrastiveLoss(model, mini_batch_size=0), "mini_batch_size"),
        (lambda: ContrastiveLoss(static_model(), mini_batch_size=32), "static"),
        (lambda: Temperature(0.0), "above 0"),
        (lambda: ContrastiveLoss(model, facts=rows_of(rated=False).facts, mixing=MIXINGS["fixed"]()), "rate the neg"),
        (lambda: ContrastiveLoss(model, facts=rows_of(rated=False).facts, least_gap=float), "rate the negatives"),
        (lambda: ContrastiveLoss(model, guide=guide_vectors(static_model(), rated, settings=USE)), "needs the facts"),
    ):
        refused(said, make)


TEXTS = [["ba be bi", "fo fu", "ga"], ["bi bo", "fu fa", "gi ge"], ["lo la", "ma mi", "no"]]


def test_the_loss_is_that_of_the_parts_added_up():
    model = static_model()
    columns = [torch.tensor(model.encode(texts)) for texts in TEXTS]
    wanted = 0.0
    for size in (16, 8, 3):
        queries, *others = (torch.nn.functional.normalize(each[:, :size]) for each in columns)
        wanted += torch.nn.functional.cross_entropy(queries @ torch.cat(others).T / 0.05, torch.arange(3)).item()
    features = [model.preprocess(texts) for texts in TEXTS]
    loss = matryoshka_loss(model, ContrastiveLoss(model), [3, 8])
    assert loss(features, None).item() == pytest.approx(wanted, rel=1e-5)


def test_the_cached_loss_of_parts_is_the_same(tmp_path):
    model, batch = bert_model(tmp_path), dict(enumerate(TEXTS))
    plain, cached = ContrastiveLoss(model), ContrastiveLoss(model, mini_batch_size=2)
    same(*(evaluated(matryoshka_loss(model, loss, [4]), batch) for loss in (plain, cached)))


def test_vectors_that_are_cut_are_better_for_it(tmp_path):
    collection = made_up(queries=80, documents=160)
    settings = TrainSettings(batch_size=16, epochs=4, learning_rate=0.05, max_length=None)
    found = []
    for dimensions in (None, (4,)):
        data = training_set(collection, table(collection))
        how = replace(settings, matryoshka=dimensions)
        folder = tmp_path / str(dimensions)
        model = train_model(static_model(), data, folder, settings=how, batches="hobit-c").model
        model.truncate_dim = 4
        found.append(measure_encoder(model, collection, "train", ["nDCG@10"]).means["nDCG@10"])
    assert found[1] > found[0] + 0.1


def test_matryoshka_trainings_that_cannot_work_are_refused(tmp_path):
    model = static_model()
    refused(
        "matryoshka 8,32: needs a model .* of as many dimensions, not 16",
        matryoshka_loss,
        model,
        ContrastiveLoss(model),
        [8, 32],
    )
    model.similarity_fn_name = "dot"
    refused("compares by the cosine", matryoshka_loss, model, ContrastiveLoss(model), [8])
    bert = bert_model(tmp_path)
    with pytest.raises(InputError, match="a loss that learns beside the model"):
        matryoshka_loss(
            bert, ContrastiveLoss(bert, mini_batch_size=32, temperature=Temperature(0.07, learned=True)), [8]
        )
    refused("matryoshka 8,a; expected whole numbers", parsed_dimensions, "8,a")
    refused("matryoshka 0; expected at least 1", TrainSettings, matryoshka=(0,))


# Several processes: a batch is shared out, and its loss is that of one process


PROGRAM = Path(__file__).with_name("gathering_training.py")


@pytest.fixture(scope="module")
def ends(tmp_path_factory):
    """What every training ends with, in one process and in two."""
    own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true", "HF_HUB_OFFLINE": "1"}
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    found = []
    for name, before in (("one", []), ("two", torchrun)):
        folder = tmp_path_factory.mktemp(name)
        done = subprocess.run(
            [sys.executable, *before, str(PROGRAM), str(folder)],
            env=os.environ | own, capture_output=True, text=True, timeout=1_800,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3_000:]
        found.append([np.load(folder / f"{place}.npy") for place in range(len(CASES))])
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_two_processes_train_what_one_trains(ends, name):
    one, two = (of[list(CASES).index(name)] for of in ends)
    # Adam makes steps of rounding where a gradient is zero; a target of 100 is rounded at 1e-5
    np.testing.assert_allclose(two, one, rtol=1e-6, atol=2e-5)


def test_one_process_exchanges_nothing():
    vectors = torch.randn(3, 2, requires_grad=True)
    assert gathered(vectors) is vectors
    vectors.grad = torch.ones(3, 2)
    average_gradients([vectors])
    assert (vectors.grad == 1).all()


ROWS, BATCH, EPOCHS = 80, 8, 2


@pytest.mark.slow
def test_two_processes_share_the_batches_and_write_what_one_writes(tmp_path, write_beir):
    made_up_folder(lambda _, **contents: write_beir(tmp_path / "world", **contents))
    table(made_up()).write(tmp_path / "negatives.parquet")
    static_model().save_pretrained(str(tmp_path / "before"))
    how = f"--model before --batch-size {BATCH} --batches hobit-c --epochs {EPOCHS} --learning-rate 0.05"
    verb = ["train", "world", "negatives.parquet", *how.split(), "--set-trainer", "warmup_steps=0.5"]
    alone = [sys.executable, "-c", "from foils.cli import main; main()"]
    (tmp_path / "foils_program.py").write_text("from foils.cli import main\n\nmain()\n")
    both = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "foils_program.py"]
    own = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "FOILS_CACHE": str(tmp_path / "cache")}
    for name, program in (("one", alone), ("two", both)):
        done = subprocess.run(
            [*program, *verb, "-o", name, "--json", f"{name}.json"],
            cwd=tmp_path, env=os.environ | own | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, timeout=600,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3_000:]
    one, two = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("one", "two"))
    assert one["steps"] == EPOCHS * ROWS // BATCH
    assert two["steps"] == one["steps"]
    rates = [entry["learning_rate"] for entry in two["history"] if "loss" in entry]
    assert rates.index(max(rates)) == two["steps"] // 2
    weights = {name: read(tmp_path / name) for name in ("before", "one", "two")}
    assert (weights["two"] != weights["before"]).any()
    # Adam enlarges what single precision rounds; in double the two agree to 1e-6 (above)
    assert abs(weights["two"] - weights["one"]).mean() < 1e-4 < abs(weights["two"] - weights["before"]).mean()
    assert not list((tmp_path / "two").rglob("*.part"))


def read(folder: Path):
    return next(iter(load_file(next(folder.rglob("model.safetensors"))).values()))


# Masks of probable positives


INF = math.inf
USE = EmbeddingSettings()
BASE = TrainSettings(batch_size=16, epochs=1, learning_rate=0.05, max_length=32)


def test_a_mask_by_hand():
    similarities = torch.tensor([[0.5, 0.65, 0.55], [0.4, 0.2, 0.9]])
    masked = partial(mask_log_weights, similarities, torch.tensor([0, 2]))
    assert masked(margin=0.1).tolist() == [[0, -INF, 0], [0, 0, 0]]
    assert masked(margin=0.0).tolist() == [[0, -INF, -INF], [0, 0, 0]]
    assert masked(margin=-0.6).tolist() == [[0, -INF, -INF], [-INF, 0, 0]]  # but never the positive


def test_what_the_facts_leave_out_stays_out_and_their_weights_stay(model, rated):
    rows, vectors = np.array([0, 1, 2]), torch.eye(3).repeat(5, 1)  # documents of one row are alike
    loss = ContrastiveLoss(model, facts=rated.facts)
    before = loss.sums(vectors[:3], vectors, 0, rows, None)
    loss.margin = 1.0  # nothing is nearer than a positive by more than the largest cosine
    assert torch.equal(loss.sums(vectors[:3], vectors, 0, rows, [vectors[:3], vectors]), before)
    loss.margin = -1.5
    assert loss.sums(vectors[:3], vectors, 0, rows, [vectors[:3], vectors]).item() == 0  # all but the positives go


@pytest.mark.parametrize("margin", [0.0, 0.05, -0.3])
def test_a_guides_mask_is_that_of_gistembed(margin, model, tmp_path):
    """sentence-transformers' margin has the other sign; its terms of two queries or two documents are switched off."""
    collection = made_up()
    data = training_set(collection, table(collection))
    apart = data.rows[:, 2] > 20  # no negative is a positive of a training query
    rows = [int(np.flatnonzero((data.rows[:, 0] == query) & apart)[0]) for query in range(9)]
    assert not unpaired(data.facts, np.array(rows)).any()  # no known positive meets a query: GISTEmbedLoss knows none
    other = bert_model(tmp_path / "guide").eval()
    with torch.no_grad():  # another model than the one that trains
        other[0].auto_model.embeddings.word_embeddings.weight.normal_(generator=torch.Generator().manual_seed(1))
    texts = guide_vectors(other, data, settings=EmbeddingSettings(vectors=str(tmp_path / "vectors")))
    ours = ContrastiveLoss(model, facts=data.facts, guide=texts, margin=margin, temperature=0.05)
    terms = {"contrast_anchors": False, "contrast_positives": False}
    theirs = GISTEmbedLoss(model, other, temperature=0.05, margin=-margin, **terms)
    theirs.guide.requires_grad_(False)
    plain = ContrastiveLoss(model, facts=data.facts)
    found, wanted, plain = (evaluated(loss, data.dataset[rows], rows) for loss in (ours, theirs, plain))
    same(found, wanted)
    assert found[0] < plain[0] - 1e-3


def test_the_guide_embeds_each_text_once(rated, tmp_path):
    class Counting:
        name, dimension, fingerprint = "counting", 3, "f"

        def __init__(self):
            self.texts = []

        def route(self, kind):
            return kind

        def encode(self, texts, kind):
            self.texts += [(kind, text) for text in texts]
            return np.array([[len(text), sum(map(ord, text)), kind == "query"] for text in texts], np.float32)

    guide = Counting()
    vectors = guide_vectors(guide, rated, settings=EmbeddingSettings(vectors=str(tmp_path)))
    assert len(guide.texts) == len(set(guide.texts))
    chosen = np.array([4, 1])
    queries, documents = vectors.of_rows(chosen)
    batch = rated.dataset[chosen]
    assert queries.tolist() == guide.encode(batch["anchor"], "query").tolist()
    wanted = [guide.encode(batch[name], "document") for name in batch if name not in ("anchor", "label")]
    assert documents.tolist() == np.concatenate(wanted).tolist()


def test_losses_are_masked_in_training(tmp_path):
    static_model(seed=3).save_pretrained(str(tmp_path / "guide"))
    how = {"mask": str(tmp_path / "guide"), "mask_margin": 0.2}
    plain, run = (
        train_model(static_model(), rows_of(), tmp_path / str(len(more)), settings=replace(BASE, **more))
        for more in ({}, how)
    )
    assert not torch.equal(weights(plain.model), weights(run.model))


def test_masks_that_make_no_sense_are_refused(tmp_path, rated):
    wrong = replace(BASE, mask="/no/such/model", loss_settings={"prior": 0.1})
    # before a guide is looked for
    refused("setting of the loss mnrl", train_model, static_model(), rated, tmp_path / "wrong", settings=wrong)
    how = {"settings": replace(BASE, mask="guide")}
    refused("mask guide: no effect on a reranker", train_model, cross_encoder(tmp_path), rated, tmp_path / "out", **how)
    missing = replace(BASE, mask="/no/such/model")
    refused(r"cannot load|no such folder", train_model, static_model(), rated, tmp_path / "missing", settings=missing)
