# ---
# jupyter:
#   jupytext:
#     text_representation: {extension: .py, format_name: percent}
#   kernelspec: {display_name: Python 3, language: python, name: python3}
# ---

# %% [markdown]
# # Batches in your own trainer
#
# The trainer of sentence-transformers as you know it; foils fills its batches with rows that are hard for each other.

# %%
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

import foils
from foils.encode import load_encoder

pairs = foils.load("pairs.csv")
rows = foils.mine(pairs, "bm25", top=1)
rows.export("triplets.jsonl")
data = Dataset.from_json("triplets.jsonl")

# %% [markdown]
# One argument is new: the sampler, which plans each epoch from the model as it is.

# %%
model: SentenceTransformer = load_encoder("static:all-MiniLM-L6-v2").model
arguments = SentenceTransformerTrainingArguments(
    "trained",
    num_train_epochs=1,
    per_device_train_batch_size=8,
    batch_sampler=foils.batch_sampler("hobit"),
    report_to="none",
)
trainer = SentenceTransformerTrainer(model, arguments, train_dataset=data, loss=MultipleNegativesRankingLoss(model))
trainer.train()
