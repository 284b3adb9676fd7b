"""Hard negatives for retrievers and rerankers: mine, score, rate, select, batch, train, measure."""
