import numpy as np


def clustered(rows: int, dim: int, clusters: int, seed: int = 0, noise: float = 0.7) -> tuple[np.ndarray, np.ndarray]:
    """Made-up unit vectors of pairs: a topic per cluster, a subject per pair, noise on each side."""
    rng = np.random.default_rng(seed)
    subject = rng.standard_normal((clusters, dim))[rng.integers(clusters, size=rows)]
    subject = subject + rng.standard_normal((rows, dim))
    sides = [subject + noise * rng.standard_normal((rows, dim)) for _ in range(2)]
    queries, documents = ((side / np.linalg.norm(side, axis=1, keepdims=True)).astype(np.float32) for side in sides)
    return queries, documents
