# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Which negatives?
#
# Three sources of negatives for one collection, and which of them to train on, before any training.

# %%
import foils

pairs, model = foils.load("pairs.csv"), "static:all-MiniLM-L6-v2"
sources = {
    "random": foils.mine(pairs, "random", top=5),
    "bm25": foils.mine(pairs, "bm25", top=5),
    "dense": foils.mine(pairs, "dense", top=5, encoder=model),
}

# %% [markdown]
# The decision weighs what a source teaches against how many of its negatives are answers that nobody labelled.

# %%
scores = foils.score(pairs, sources, encoder=model)
print(scores)

# %%
scores.report("decision.html")
print(scores.decision.source, scores.decision.best_with_probability)
