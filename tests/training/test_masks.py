"""Masks of probable positives: by hand, against plain loops and sentence-transformers' GISTEmbedLoss, and cached."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from sentence_transformers.sentence_transformer.losses import GISTEmbedLoss

from foils.data import Negatives
from foils.encode import EmbeddingSettings
from foils.mining import BM25Retriever
from foils.runtime.errors import InputError
from foils.training.data import training_set
from foils.training.losses import ContrastiveLoss, make_loss
from foils.training.masks import LOGITS, BM25Partner, FalseNegativeMask, guide_vectors, make_mask, mask_log_weights
from foils.training.settings import TrainSettings
from foils.training.train import train_model
from refusals import refused
from train_models import (
    bert_model,
    cross_encoder,
    evaluated,
    made_up,
    rows_of,
    same,
    static_model,
    table,
    unpaired,
    weights,
)

INF = math.inf
USE = EmbeddingSettings()
BASE = TrainSettings(batch_size=16, epochs=1, learning_rate=0.05, max_length=32)


def test_a_mask_by_hand():
    similarities = torch.tensor([[0.5, 0.65, 0.55], [0.4, 0.2, 0.9]])
    own, positives = torch.tensor([0.5, 0.9]), torch.tensor([0, 2])
    masked = partial(mask_log_weights, similarities, own, positives)
    assert masked(margin=0.1).tolist() == [[0, -INF, 0], [0, 0, 0]]
    assert masked(margin=0.0).tolist() == [[0, -INF, -INF], [0, 0, 0]]
    assert masked(margin=-0.6).tolist() == [[0, -INF, -INF], [-INF, 0, 0]]  # but never the positive


def test_what_the_facts_leave_out_stays_out_and_their_weights_stay():
    vectors = torch.eye(3)
    known = torch.tensor([[0.0, -INF, -0.5], [0, 0, 0], [0, 0, 0]])
    everything = FalseNegativeMask(-1.5).log_weights(vectors, vectors, 0, 3, known)
    assert everything.tolist() == [[0, -INF, -INF], [-INF, 0, -INF], [-INF, -INF, 0]]
    assert FalseNegativeMask(0.1).log_weights(vectors, vectors, 0, 3, known).tolist() == known.tolist()


def test_shares_by_hand(rated):
    """Three lists: what is known or absent is no pair."""
    facts = rated.facts.batch(np.array([0, 1, 2]))
    known = torch.from_numpy(facts.block(0, 3))
    known[0, 1] = known[1, 4] = -INF  # as if positive 1 answered query 0; and a negative of row 1 were rejected
    documents = torch.zeros(15, 2)
    documents[:3] = torch.tensor([[1.0, 0.0]])
    documents[3] = documents[10] = torch.tensor([5.0, 0.0])  # mined of row 0, in-batch of others; mined of row 1
    queries = torch.tensor([[1.0, 0.0]] * 3)
    mask = FalseNegativeMask(0.1)
    blocks = [mask.log_weights(queries, documents, a, b, known[a:b], epoch=2) for a, b in ((0, 2), (2, 3))]
    weights = torch.cat(blocks)
    masked = torch.isneginf(weights) & ~torch.isneginf(known)
    assert masked.nonzero().tolist() == [[0, 3], [0, 10], [1, 3], [1, 10], [2, 3], [2, 10]]
    pairs = int((~torch.isneginf(known)).sum()) - 3  # but the positives
    assert mask.shares() == {2: pytest.approx(6 / pairs)}


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
    ours = ContrastiveLoss(model, facts=data.facts, mask=FalseNegativeMask(margin, guide=texts), temperature=0.05)
    terms = {"contrast_anchors": False, "contrast_positives": False}
    theirs = GISTEmbedLoss(model, other, temperature=0.05, margin=-margin, **terms)
    theirs.guide.requires_grad_(False)
    plain = ContrastiveLoss(model, facts=data.facts)
    found, wanted, plain = (evaluated(loss, data.dataset[rows], rows) for loss in (ours, theirs, plain))
    same(found, wanted)
    assert found[0] < plain[0] - 1e-3


def test_the_guide_embeds_each_text_once_and_follows_another_set(rated, tmp_path):
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
    count, chosen = len(guide.texts), np.array([4, 1])
    queries, documents = vectors.of_rows(chosen)
    batch = rated.dataset[chosen]
    assert queries.tolist() == guide.encode(batch["anchor"], "query").tolist()
    wanted = [guide.encode(batch[name], "document") for name in batch if name not in ("anchor", "label")]
    assert documents.tolist() == np.concatenate(wanted).tolist()
    guide.texts.clear()
    collection = made_up()
    triplets = training_set(collection, table(collection, per_query=2, seed=5))
    mask = FalseNegativeMask(0.0, guide=vectors)
    loss = ContrastiveLoss(static_model(), facts=rated.facts, mask=mask)
    loss.learn_from(triplets)
    assert 0 < len(guide.texts) < count  # the negatives that are new
    assert loss.facts is triplets.facts
    queries, documents = loss.mask.guide.of_rows(np.array([7]))
    assert documents[1:].tolist() == guide.encode([triplets.dataset[7]["negative"]], "document").tolist()


@pytest.mark.parametrize("how", [{"mask": "self", "mask_margin": -0.1}, {"mask": "guide:{}", "mask_margin": 0.2}])
def test_losses_are_masked_in_training(how, tmp_path):
    static_model(seed=3).save_pretrained(str(tmp_path / "guide"))
    how = {key: str(value).format(tmp_path / "guide") if key == "mask" else value for key, value in how.items()}
    plain, run = (
        train_model(static_model(), rows_of(), tmp_path / str(len(more)), settings=replace(BASE, **more))
        for more in ({}, how)
    )
    assert not torch.equal(weights(plain.model), weights(run.model))
    assert plain.masked is None
    share = run.masked["shares"][1]
    assert 0 < share < 1


def test_margins_are_the_published_ones_and_inner_products_need_their_own(tmp_path):
    data, model = rows_of(rated=False), static_model()
    model.save_pretrained(str(tmp_path / "guide"))
    by_guide = f"guide:{tmp_path / 'guide'}"
    assert make_mask(model, data, replace(BASE, mask="self"), USE).margin == 0.1
    assert make_mask(model, data, replace(BASE, mask=by_guide), USE).margin == 0
    with pytest.raises(InputError, match="mask_margin 2: cosines differ by at most 2"):
        make_mask(model, data, replace(BASE, mask="self", mask_margin=2), USE)
    model.similarity_fn_name = "dot"
    with pytest.raises(InputError, match="compares by inner product; give mask_margin in its units"):
        make_mask(model, data, replace(BASE, mask="self"), USE)
    assert make_mask(model, data, replace(BASE, mask="self", mask_margin=20), USE).margin == 20
    assert make_mask(model, data, replace(BASE, mask=by_guide), USE).margin == 0  # the guide's cosines


def test_what_makes_no_sense_is_refused(tmp_path, rated):
    for wrong in ("me", "guide:", "guide"):
        refused("expected self, or guide:MODEL", TrainSettings, mask=wrong)
    wrong = replace(BASE, mask="guide:/no/such/model", loss_settings={"prior": 0.1})
    # before a guide is looked for
    refused("setting of the loss mnrl", train_model, static_model(), rated, tmp_path / "wrong", settings=wrong)
    for how, said in (
        ({"mask": "self"}, "mask self: no effect on a reranker"),
        ({"beside": "bm25"}, "beside bm25: n"),
    ):
        refused(said, train_model, cross_encoder(tmp_path), rated, tmp_path / "out", settings=replace(BASE, **how))
    refused("expected a finite number", FalseNegativeMask, float("nan"))
    guided = FalseNegativeMask(guide=guide_vectors(static_model(seed=3), rated, settings=USE))
    refused("expected them in the labels", guided.compared, torch.ones(1, 2), torch.ones(1, 2), None)
    with pytest.raises(InputError, match=r"cannot load|no such folder"):
        make_mask(static_model(), rated, replace(BASE, mask="guide:/no/such/model"), USE)


# BM25 beside the encoder: its scores are a fixed part of the logits


COLLECTION = made_up()
DATA = training_set(COLLECTION, table(COLLECTION), form="lists")


@pytest.mark.parametrize("size", [None, 3])
def test_the_loss_is_that_of_similarities_and_scores_together(model, size):
    data = replace(DATA, facts=replace(DATA.facts, partner=BM25Partner(DATA)))
    loss = make_loss("mnrl", model, data, mini_batch_size=size, settings={})
    rows = np.array([4, 0, 9, 7])
    batch = data.dataset[rows]
    columns = [name for name in batch if name != "label"]
    value = loss([model.preprocess(batch[name]) for name in columns], torch.tensor(batch["label"]))

    vectors = {name: model.encode(batch[name], normalize_embeddings=True) for name in columns}
    documents, ids = np.concatenate([vectors[name] for name in columns[1:]]), data.rows[rows, 1:].T.ravel()
    every, best = BM25Retriever(COLLECTION).search(data.rows[rows, 0], len(COLLECTION.documents))
    expected = []
    for at, row in enumerate(rows):
        scores = dict(zip(every[at].tolist(), best[at].tolist(), strict=True))
        logits = vectors["anchor"][at] @ documents.T / 0.05
        logits = logits + [LOGITS * scores.get(each, 0.0) / best[at, 0] for each in ids.tolist()]
        left = data.facts.batch(rows)
        out = left.columns[(left.rows == at) & np.isneginf(left.log_weights)]
        logits[[*out, *np.flatnonzero(left.absent)]] = -np.inf
        expected.append(np.logaddexp.reduce(logits) - logits[at])
        assert row == batch["label"][at]
    assert value.item() == pytest.approx(np.mean(expected), rel=1e-4)


def test_what_bm25_knows_is_not_learned_again(tmp_path):
    """With scores that separate every positive, there is next to nothing to learn."""
    losses = {}
    for beside in (None, "bm25"):
        settings = TrainSettings(batch_size=16, learning_rate=0.05, beside=beside)
        losses[beside] = train_model(static_model(), DATA, tmp_path / f"runs-{beside}", settings=settings).history[0][
            "loss"
        ]
    assert losses["bm25"] < 0.5 * losses[None]


def test_what_has_no_score_is_refused():
    own = Negatives(DATA.negatives.table.append_column("text", [["a text of its own"] * len(DATA.negatives)]))
    refused("a text of their own", BM25Partner, training_set(COLLECTION, own))
