# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # A reranker from pairwise judgements
#
# A judge compares two documents of a query at a time; ratings are fitted to its answers; a reranker learns the ratings.
# The judge here is a small encoder. `llm:NAME` with a server in its place makes it a language model, and `MODEL` may be
# any transformer.

# %%
import os

import foils

MODEL = os.environ.get("MODEL", "cross-encoder/ms-marco-MiniLM-L6-v2")
pairs = foils.load("pairs.csv")
candidates = foils.mine(pairs, "bm25", top=5)

# %%
rated = foils.rate(pairs, candidates, judge="bi-encoder:static:all-MiniLM-L6-v2", degree=4)
print(rated.table.select(["query_id", "doc_id", "elo", "elo_se", "gap"]).slice(0, 5).to_pylist())

# %%
trained = foils.train(pairs, rated, model=MODEL, reranker=True, loss="regression", output="reranker/")
print(trained)

# %% [markdown]
# The reranker orders what BM25 found.

# %%
result = foils.evaluate(pairs, "bm25", reranker="reranker/", split="test")
print(result)
