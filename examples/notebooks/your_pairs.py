# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Your pairs
#
# From a file of questions and answers to a model that knows them. `pairs.csv` has the columns `question` and `answer`.

# %%
import foils

pairs = foils.load("pairs.csv")
print(pairs)

# %% [markdown]
# `describe` says what was understood, and what looks wrong.

# %%
print(foils.describe("pairs.csv"))

# %% [markdown]
# Hard negatives: documents that rank high for a query and are not its answer.

# %%
model = "static:all-MiniLM-L6-v2"
negatives = foils.mine(pairs, "dense", top=5, encoder=model)
print(negatives.table.slice(0, 5).to_pylist())

# %% [markdown]
# Train on them, and compare on queries that were held out.

# %%
trained = foils.train(pairs, negatives, model=model, output="model/")
result = foils.evaluate(pairs, {"base": model, "tuned": trained.model}, split="test")
print(result)
