import pytest
from batch_vectors import clustered


@pytest.fixture(scope="session")
def pairs():
    return clustered(1000, 24, 25)
