"""What the tests of training share."""

import pytest
from sentence_transformers import SentenceTransformerTrainer

from train_models import bert_model, rows_of


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A transformer without dropout."""
    return bert_model(tmp_path_factory.mktemp("bert")).eval()


@pytest.fixture(scope="session")
def rated():
    """Lists of rated negatives."""
    return rows_of("lists")


@pytest.fixture
def seen(monkeypatch):
    """The batches that trainings compute losses of from now on, by the numbers of their rows."""
    batches, original = [], SentenceTransformerTrainer.compute_loss

    def noting(self, model, inputs, *given, **more):
        batches.append(inputs["label"].tolist())
        return original(self, model, inputs, *given, **more)

    monkeypatch.setattr(SentenceTransformerTrainer, "compute_loss", noting)
    return batches
