from __future__ import annotations

import numpy as np
import pytest
from batch_vectors import clustered


@pytest.fixture(scope="session")
def pairs() -> tuple[np.ndarray, np.ndarray]:
    return clustered(1000, 24, 25)
