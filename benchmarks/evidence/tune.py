"""`foils tune` against what sentence-transformers' documentation shows: the same pairs, the same rows trained on.

    python benchmarks/run.py tune COLLECTION ... [--model static:all-MiniLM-L6-v2] [--minutes N] [--seeds 1]
                                             [--same-minutes] [--work FOLDER]

For each collection, model and seed, six systems are measured on the same test queries and documents:

- base: the model as it is;
- tuned: what `foils tune` gives, the base where it keeps that;
- documented: `mine_hard_negatives` (5 negatives, relative margin 0.05) and MultipleNegativesRankingLoss with the
  values of the documentation's examples: batches of 16 without duplicates, one epoch, learning rate 2e-5, warm-up 0.1;
- same rows: the same with the learning rate that foils takes for this kind of model, and as many passes as it takes to
  train on as many rows as the tuned model's training did;
- in-batch: that without mined negatives, on the pairs alone;
- bm25: BM25, over the same documents.

With --same-minutes, which is for models whose training is long, the scripts have the time that the whole tuning took:
documented is an epoch or as much of one as fits, in-batch as many passes as fit, and same rows is left out.

They mine with the base from all documents, knowing every positive (without the margin where it leaves nothing, as on
banking77), and train on the pairs that `foils tune` trains on, up to four positives of each query. Theirs train the
rows of a word table that the texts have (`words_of`): the same result, sooner. The differences of tuned from the
others are pooled over all queries of all collections, for each model.
What is in the result file already is not done again.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

import foils
from common import load, save, words_of
from foils.data import Collection, Run
from foils.evaluation import dense_run, evaluate_runs
from foils.experiments.plan import MAX_POSITIVES
from foils.experiments.tune import MEASURE, Tuned
from foils.statistics import bootstrap_interval, paired_test

NEGATIVES, MARGIN, BATCH, RATE = 5, 0.05, 16, 2e-5
PROBED = 6  # steps that tell how many fit into the time
OTHERS = ("base", "documented", "same rows", "in-batch", "bm25")


def pairs_of(collection: Collection, most: int | None = None) -> Any:
    """Anchor and positive of the training queries, as a data set; of each query the first `most` positives, or all."""
    from datasets import Dataset

    positives = collection.positives("train")
    rows = [row for each in range(len(positives)) for row in positives.of(each)[:most]]
    queries = np.repeat(positives.query_rows, np.minimum(positives.counts, most or positives.counts))
    return Dataset.from_dict({"anchor": collection.query_texts(queries), "positive": collection.document_texts(rows)})


def mined_as_documented(model: Any, collection: Collection, trained: Any) -> Any:
    """Rows of anchor, positive and negative of the pairs `trained`, mined with every positive known.

    The margin is below the worst of a query's positives. Where queries have so many that it leaves no negative at all,
    the miner is called without one.
    """
    from sentence_transformers.util import mine_hard_negatives

    documents = collection.document_texts(np.arange(len(collection.documents)))
    taken = set(zip(trained["anchor"], trained["positive"], strict=True))
    for margin in (MARGIN, None):
        mined = mine_hard_negatives(
            pairs_of(collection), model, corpus=documents, num_negatives=NEGATIVES, relative_margin=margin,
            sampling_strategy="top", batch_size=32, verbose=False,
        )  # fmt: skip
        pairs = zip(mined["anchor"], mined["positive"], strict=True)
        if rows := [place for place, pair in enumerate(pairs) if pair in taken]:
            return mined.select(rows)
    raise RuntimeError(f"{collection.name}: no negatives")


def as_documented(
    system: str,
    collection: Collection,
    name: str,
    *,
    max_length: int,
    most: int,
    rate: float,
    rows: int | None,
    seed: int,
    seconds: float | None = None,
) -> Run:
    """Mine and train as the documentation shows, and search.

    Mining is given all positives of a query, training the first `most`.

    Args:
        system: its name; in-batch mines nothing.
        collection: to train on, and to search.
        name: of the model.
        max_length: tokens of a text.
        most: positives of a query.
        rate: learning rate.
        rows: to train on; None: an epoch.
        seed: of the training.
        seconds: that mining and training may take: of an epoch what fits or, without mined negatives, as many as fit.
    """
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.base.sampler import BatchSamplers
    from sentence_transformers.losses import MultipleNegativesRankingLoss

    from foils.encode.models import load_model

    begun, model = time.monotonic(), load_model(name)
    if model.max_seq_length not in (None, float("inf")):
        model.max_seq_length = min(max_length, model.max_seq_length)
    rows_of = pairs_of(collection, most)
    if system != "in-batch":
        rows_of = mined_as_documented(model, collection, rows_of)

    def train(trained: Any, steps: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            arguments = SentenceTransformerTrainingArguments(
                output_dir=folder, num_train_epochs=1, max_steps=steps, per_device_train_batch_size=BATCH,
                learning_rate=rate, warmup_steps=0.1, batch_sampler=BatchSamplers.NO_DUPLICATES, seed=seed,
                save_strategy="no", report_to="none", disable_tqdm=True,
            )  # fmt: skip
            loss = MultipleNegativesRankingLoss(trained)
            with words_of(trained, {text for column in rows_of.column_names for text in rows_of[column]}):
                SentenceTransformerTrainer(model=trained, args=arguments, train_dataset=rows_of, loss=loss).train()

    steps = -1 if rows is None else max(1, rows // BATCH)
    if seconds is not None:
        probe, start = deepcopy(model), time.monotonic()
        train(probe, PROBED)
        now = time.monotonic()
        fitting = max(1, int((seconds - (start - begun)) / ((now - start) / PROBED)))
        steps = fitting if system == "in-batch" else min(fitting, -(-len(rows_of) // BATCH))
    train(model, steps)
    return dense_run(model, collection, "test", name=system)


def compared(
    given: str, name: str, minutes: float | None, seed: int, work: Path, *, same_minutes: bool
) -> dict[str, Any]:
    """Tune, train as documented, and measure all; per query, too."""
    from foils.training.models import LEARNING_RATES

    folder, start = work / f"{Path(given).name}-{name.replace('/', '-').replace(':', '-')}-{seed}", time.monotonic()
    tuned: Tuned = foils.tune(given, model=name, output=folder, minutes=minutes, seed=seed)  # type: ignore[assignment]
    spent = time.monotonic() - start
    runs = {run.name: run for run in tuned.evaluation.runs}
    if not tuned.better:
        runs["tuned"] = Run(runs["base"].table, "tuned")
    trained = (tuned.trial or tuned.trials[0]).steps * int(tuned.plan["batches"]["size"])
    kind = "static embedding" if name.startswith("static:") else "encoder"
    how: dict[str, Any] = {"max_length": tuned.plan["given"]["max_length"], "most": MAX_POSITIVES, "seed": seed}
    how["seconds"] = spent if same_minutes else None
    runs["documented"] = as_documented("documented", tuned.collection, name, rate=RATE, rows=None, **how)
    runs["bm25"] = foils.evaluate(tuned.collection, ["bm25"], split="test", measures=[MEASURE]).runs[0]
    for system in OTHERS[3 if same_minutes else 2 : -1]:
        rate = LEARNING_RATES[kind][0]
        runs[system] = as_documented(system, tuned.collection, name, rate=rate, rows=trained, **how)
    named = [replace(run, name=system) for system, run in runs.items()]
    result = evaluate_runs(
        tuned.collection, named, rng=np.random.default_rng(seed), measures=[MEASURE], against=["tuned"]
    )
    return {
        "collection": Path(given).name, "model": name, "seed": seed, "minutes": minutes, "seconds": round(spent),
        "same_minutes": same_minutes,
        "better": tuned.better, "means": {each.name: each.means[MEASURE] for each in result.systems},
        "gains": compared_to(result.systems, seed),
    }  # fmt: skip


def compared_to(systems: list[Any], seed: int) -> dict[str, dict[str, Any]]:
    """Return what tuned gains over each other system: the sum over queries and that of squares, to pool them."""
    values = {each.name: each.per_query[MEASURE] for each in systems}
    gains = {}
    for name in OTHERS:
        if name in values:
            gain = values["tuned"] - values[name]
            test = paired_test(values["tuned"], values[name])
            low, high = bootstrap_interval(gain, rng=np.random.default_rng(seed))
            gains[name] = {"queries": len(gain), "sum": float(gain.sum()), "squares": float((gain**2).sum()),
                           "difference": test.difference, "low": low, "high": high, "p": test.p}  # fmt: skip
    return gains


def pooled(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the gains of tuned over all queries of a model, with a normal interval, and where it is worse."""
    rows = []
    for model in dict.fromkeys(each["model"] for each in results):
        for other in OTHERS:
            of = [each for each in results if each["model"] == model and other in each["gains"]]
            queries, total, squares = (
                sum(each["gains"][other][key] for each in of) for key in ("queries", "sum", "squares")
            )
            if of:
                mean = total / queries
                half = 1.96 * ((squares / queries - mean**2) / (queries - 1)) ** 0.5
                lost = [each for each in of if each["gains"][other]["difference"] < 0]
                worse = [each["collection"] for each in lost if each["gains"][other]["p"] < 0.05]
                rows.append({"model": model, "tuned −": other, "queries": queries, "difference": mean,
                             "interval": f"[{mean - half:+.4f}, {mean + half:+.4f}]",
                             "significantly worse on": ", ".join(worse)})  # fmt: skip
    return rows


def rows_of(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what every system reaches on each collection, and what tuned gains over in-batch negatives."""
    rows = []
    for each in results:
        gain = each["gains"]["in-batch"]
        change = f"{gain['difference']:+.4f} [{gain['low']:+.4f}, {gain['high']:+.4f}]"
        facts = {key: each[key] for key in ("collection", "model", "minutes", "seed")}
        rows.append({**facts, "queries": gain["queries"], **each["means"], "tuned − in-batch": change})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("collection", nargs="+")
    parser.add_argument("--model", action="append")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--same-minutes", action="store_true", help="scripts have the time that the tuning took")
    parser.add_argument("--work", type=Path, help="keep tunings here, so that they go on")
    given = parser.parse_args()
    work = given.work or Path(tempfile.mkdtemp(prefix="foils-tune-"))
    known = load("tune").get("results", [])
    for name in given.model or ["static:all-MiniLM-L6-v2"]:
        for collection in given.collection:
            for seed in range(given.seeds):
                how = (name, given.minutes, seed)
                key = (Path(collection).name, *how, given.same_minutes)
                parts = ("collection", "model", "minutes", "seed", "same_minutes")
                if any(tuple(each.get(part, False) for part in parts) == key for each in known):
                    continue
                known.append(compared(collection, *how, work, same_minutes=given.same_minutes))
                save("tune", {"results": known}, {"nDCG@10 on test": rows_of(known), "All queries": pooled(known)})
    if not given.work:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
