"""Ten tasks with one import: python examples/ten_tasks.py COLLECTION MODEL FOLDER."""

import sys

import foils

source, model, folder = sys.argv[1:4]
pairs = foils.load(source)
bm25 = foils.mine(pairs, "bm25", top=10)
dense = foils.mine(pairs, "dense", encoder=model, top=10, relative_margin=0.05, ranks=(0, 100))
scores = foils.score(pairs, {"bm25": bm25, "dense": dense}, encoder=model)
rated = foils.rate(pairs, dense, judge="bi-encoder", encoder=model, degree=6)
chosen = foils.select(rated, by="mixture")
training = {"batches": "hobit", "batch_size": 32, "output": f"{folder}/model"}
plan = foils.batch(pairs, "hobit", source=chosen, batch_size=32, encoder=model)
trained = foils.train(pairs, chosen, model=model, loss="weighted", **training)
result = foils.evaluate(pairs, {"base": model, "tuned": trained.model}, split="test")
found = foils.search(pairs, model=trained.model, dimensions="rdime", run=f"{folder}/run.trec")
study = foils.study(pairs, {"bm25": bm25, "dense": dense}, models=[model], output=f"{folder}/study")
for each in (bm25, scores, rated, chosen, plan, trained, result, found, study):
    print(each)
