"""Training beside BM25: its scores are a fixed part of the logits."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from foils.data import Negatives
from foils.mining import BM25Retriever
from foils.runtime.errors import InputError
from foils.training.data import training_set
from foils.training.losses import make_loss
from foils.training.masks import LOGITS, BM25Partner
from foils.training.settings import TrainSettings
from foils.training.train import train_model
from train_models import bert_model, cross_encoder, made_up, static_model, table

COLLECTION = made_up()
DATA = training_set(COLLECTION, table(COLLECTION), form="lists")


@pytest.mark.parametrize("size", [None, 3])
def test_the_loss_is_that_of_similarities_and_scores_together(tmp_path, size):
    model = bert_model(tmp_path).eval()
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


def test_what_has_no_score_is_refused(tmp_path):
    (tmp_path / "cross").mkdir()
    settings = TrainSettings(beside="bm25")
    with pytest.raises(InputError, match="beside"):
        train_model(cross_encoder(tmp_path / "cross"), DATA, tmp_path / "run", settings=settings)
    own = Negatives(DATA.negatives.table.append_column("text", [["a text of its own"] * len(DATA.negatives)]))
    with pytest.raises(InputError, match="a text of their own"):
        BM25Partner(training_set(COLLECTION, own))
