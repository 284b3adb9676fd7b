"""A script that uses every verb, as a type checker reads it: it is not run."""

from pathlib import Path

import foils

pairs = foils.load("pairs.csv", columns={"query": "question", "positive": "answer"})
listed = foils.load([("a question", "its answer"), ("another", "its own")])
print(foils.describe(pairs))
bm25 = foils.mine(pairs, "bm25", top=10, seed=1)
dense = foils.mine("pairs.csv", method="dense", encoder="all-MiniLM-L6-v2", relative_margin=0.05, ranks=(0, 100))
random = foils.mine(pairs, "random")
generated = foils.generate(pairs, base_url="http://localhost:8000/v1", llm_model="m", limit=10)
fused = foils.fuse(pairs, {"bm25": bm25, "dense": dense}, method="rrf")
kept = foils.filter(pairs, fused, margin=0.05)
scores = foils.score(pairs, {"bm25": bm25, "dense": dense, "random": random}, encoder="all-MiniLM-L6-v2")
if scores.decision is not None:
    chosen: str | None = scores.decision.source
scores.report("page.html")
scores.write_json(Path("scores.json"))
labels = foils.label(pairs, [dense], ask="bi-encoder", output="labels.tsv")
scored = foils.score_pairs(pairs, dense, teacher="bi-encoder:all-MiniLM-L6-v2")
relabelled = foils.relabel(pairs, dense, labels="labels.tsv")
rated = foils.rate(pairs, dense, judge="bi-encoder", degree=6)
selected = foils.select(rated, by="mixture")
selected.write("train.parquet")
exported = foils.export(pairs, selected, form="tevatron")
plan = foils.batch(pairs, "hobit", source=selected, batch_size=32)
trained = foils.train(pairs, selected, model="all-MiniLM-L6-v2", output="model", loss="mnrl", epochs=2)
folder: Path = trained.path
merged = foils.merge("all-MiniLM-L6-v2", "model", output="between", alpha=0.5)
result = foils.evaluate(pairs, {"bm25": "bm25", "tuned": trained.model}, measures="nDCG@10")
mean: float = result.systems[0].means["nDCG@10"]
found = foils.search(pairs, model=trained.model, dimensions="rdime", run="run.trec")
study = foils.study(pairs, {"bm25": bm25, "dense": dense}, models=["all-MiniLM-L6-v2"], output="study")
report = foils.report("study")
tuned = foils.tune(pairs, model="all-MiniLM-L6-v2", output="better", minutes=10)
sampler = foils.batch_sampler("hobit", seeds=1)
for each in (bm25, scores, rated, plan, trained, result, found, study, report, tuned):
    print(each.to_json())
