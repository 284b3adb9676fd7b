"""What should a reranker learn from: labels, a teacher's scores, or Elo ratings, with or without offsets?

    python benchmarks/run.py targets banking77/ clinc150/ squad-sent/ --student BERT-TINY/ --encoder all-mpnet-base-v2/

Each training query has a pool of BM25's first five documents and five of the next 25. All targets have the same
queries, pools, steps and student, a small transformer. Labels are the pool's, and where it holds no relevant document
the query's first one. Nothing else knows them: a teacher scores the pools, and as a judge of pairs it rates them.
Teachers are all-MiniLM-L6-v2's cosine, those of other encoders, and a cross-encoder: the student after a longer
training on labels of other queries. A listwise loss (listnet, which offsets do not change) and a pointwise one
(regression) each learn from them; a list has one labelled positive at most, as in `foils train`.

Each target and loss chooses its learning rate by 100 queries that are not trained on, with a seed that is not tested.
Measured is nDCG@10 of BM25's first 20 documents in the reranker's order, on test queries, the mean over three seeds.
Differences are to labels with the same loss, with an interval over queries, in a paired test with Holm's correction
within a collection. A training that is in the result file is not repeated.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import foils
from common import argument_parser, load, save
from foils.data import Collection, Negatives, Run, load_collection
from foils.encode.encoder import logits
from foils.encode.models import load_cross_encoder, load_model
from foils.evaluation import bm25_run, measure_run, rerank_run
from foils.runtime.files import cache_folder
from foils.statistics import bootstrap_interval, holm, paired_test

MEASURE, DEPTH, QUERIES, OTHERS, HELD_OUT, TEST = "nDCG@10", 20, 200, 1500, 100, 200
SEEDS, TUNED_WITH, RATES = range(3), 1000, (3e-4, 1e-3)
BATCH = {"listnet": 4, "regression": 40}  # lists of ten documents, or as many pairs
ENCODER = "all-MiniLM-L6-v2"
FIRST, NONE, BI, CROSS = "first stage", "", "bi-encoder", "cross-encoder"
LEARNED = [(loss, target) for loss in BATCH for target in ("teacher", "elo")] + [("regression", "elo + offsets")]

Arm = tuple[str, str, str]  # loss, target, teacher


def arms_of(encoders: Sequence[str]) -> list[Arm]:
    """All losses and targets; the cross-encoder's, whose training takes time, last."""
    kinds = [BI, *encoders, CROSS]
    return [(loss, "labels", NONE) for loss in BATCH] + [(*each, kind) for kind in kinds for each in LEARNED]


def judged(collection: Collection, split: str, start: int, count: int) -> pa.Table:
    """The judgements of some queries of a split, drawn at random."""
    table = collection.qrels[split]
    ids = np.random.default_rng(11).permutation(np.unique(table["query_id"].to_pylist()))[start : start + count]
    return table.filter(pc.is_in(table["query_id"].cast(pa.string()), value_set=pa.array(ids)))


def pools(given: Collection, name: str, judgements: pa.Table) -> tuple[Collection, Collection, Negatives]:
    """The queries of the judgements: without labels, with the labels of their pools, and the pools."""
    asked = pc.is_in(given.queries["query_id"], value_set=judgements["query_id"].unique())
    bare = replace(given, queries=given.queries.filter(asked), qrels={}, digest=f"{given.digest[:20]}-{name}")
    mine = partial(foils.mine, bare, "bm25", split="all", top=5)
    both = foils.fuse(bare, {"first": mine(), "further": mine(ranks=(5, 30), draw="uniform")}, method="union")
    pairs = set(zip(*(both.table[of].to_pylist() for of in ("query_id", "doc_id")), strict=True))
    rows = list(zip(*(judgements[of].to_pylist() for of in ("query_id", "doc_id")), strict=True))
    inside, first = {query for query, _ in pairs.intersection(rows)}, dict(reversed(rows))
    kept = [row in pairs or (row[0] not in inside and row[1] == first[row[0]]) for row in rows]
    labelled = replace(bare, qrels={"train": judgements.filter(pa.array(kept))}, digest=f"{bare.digest}-labelled")
    return bare, labelled, both


def cosines(encoder: Any, pairs: Sequence[tuple[str, str]]) -> np.ndarray:
    vectors = [encoder.encode(list(of), normalize_embeddings=True) for of in zip(*pairs, strict=True)]
    return np.asarray((vectors[0] * vectors[1]).sum(1))


class World:
    """A collection with its first stage, its pools, and the teachers' ratings of them."""

    def __init__(self, path: Path, student: str, encoders: Sequence[Path]) -> None:
        given, self.student, self.name = load_collection(str(path)), student, path.name
        self.encoders = {BI: ENCODER, **{each.name: str(each) for each in encoders}}
        splits = {"dev": judged(given, "train", 0, HELD_OUT), "test": judged(given, "test", 0, TEST)}
        self.measured = replace(given, qrels=splits, digest=f"{given.digest[:20]}-targets")
        self.first = {split: bm25_run(self.measured, split, depth=DEPTH) for split in splits}
        self.bare, self.labelled, self.pools = pools(given, "trained", judged(given, "train", HELD_OUT, QUERIES))
        self.folder, self.given = cache_folder() / "targets" / self.name, given

    def teacher(self, kind: str) -> str:
        """A teacher by its kind; the cross-encoder is trained when it is first asked for."""
        if kind == CROSS and not (self.folder / "foils_training.json").is_file():
            others = judged(self.given, "train", HELD_OUT + 300, OTHERS)
            self.train(pools(self.given, "others", others)[1:], "listnet", "labels", 3e-4, 0, self.folder)
        return f"{CROSS}:{self.folder}" if kind == CROSS else f"{BI}:{self.encoders[kind]}"

    def itself(self, kind: str) -> list[float]:
        """The measure of a teacher."""
        name = self.teacher(kind).partition(":")[2]
        scorer = partial(logits, load_cross_encoder(name)) if kind == CROSS else partial(cosines, load_model(name))
        return self.values("test", scorer)

    def rated(self, kind: str, target: str) -> Negatives:
        """The pools with a teacher's scores and ratings, without any label."""
        teacher, between = self.teacher(kind), 6 if target == "elo + offsets" else None
        scored = foils.score_pairs(self.bare, self.pools, teacher=teacher, split="all")
        return foils.rate(self.bare, scored, judge=teacher, split="all", between=between)

    def train(self, of: tuple[Collection, Negatives], loss: str, target: str, rate: float, seed: int, to: Path) -> Any:
        return foils.train(
            *of, model=self.student, output=to, reranker=True, loss=loss, target=target, learning_rate=rate, seed=seed,
            max_positives=1 if loss == "listnet" else 64, batch_size=BATCH[loss], epochs=3, max_length=96, device="cpu",
        ).model  # fmt: skip

    def values(self, split: str, scorer: Callable[..., Any] | None = None) -> list[float]:
        """The measure of each query, of the first stage or in the scorer's order."""
        first: Run = self.first[split]
        run = first if scorer is None else rerank_run(first, self.measured, scorer, depth=DEPTH)
        return [round(float(each), 4) for each in measure_run(run, self.measured, split, [MEASURE]).per_query[MEASURE]]

    def trained(self, split: str, *, loss: str, target: str, teacher: str, rate: float, seed: int) -> list[float]:
        of = (self.labelled, self.pools) if teacher == NONE else (self.bare, self.rated(teacher, target))
        with tempfile.TemporaryDirectory() as folder:
            model = self.train(of, loss, target.partition(" ")[0], rate, seed, Path(folder) / "model")
        return self.values(split, partial(logits, model))


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("collection", nargs="+", type=Path)
    parser.add_argument("--student", required=True, help="a folder with a small transformer")
    parser.add_argument("--encoder", action="append", type=Path, default=[], help="a folder with a further teacher")
    given = parser.parse_args()
    known: dict[str, str] = load("targets").get("values", {})

    def kept(name: str, make: Callable[[], list[float]]) -> np.ndarray:
        if name not in known:
            known[name] = " ".join(f"{value:.4g}" for value in make())
            save("targets", {"values": known}, tables(known))
        return np.array(known[name].split(), float)

    worlds = [World(path, given.student, given.encoder) for path in given.collection]
    arms = arms_of([each.name for each in given.encoder])
    for world, (loss, target, kind) in sorted(product(worlds, arms), key=lambda pair: pair[1][2] == CROSS):
        kept(f"{world.name}, {FIRST}", partial(world.values, "test"))
        if kind != NONE:
            kept(f"{world.name}, {kind}", partial(world.itself, kind))
        train = partial(world.trained, loss=loss, target=target, teacher=kind)
        what = f"{world.name}, {loss}, {target}, {kind}"
        dev = [kept(f"{what}, {rate} on dev", partial(train, "dev", rate=rate, seed=TUNED_WITH)) for rate in RATES]
        rate = RATES[int(np.argmax([each.mean() for each in dev]))]
        for seed in SEEDS:
            kept(f"{what}, seed {seed}", partial(train, "test", rate=rate, seed=seed))


def tables(known: dict[str, str]) -> dict[str, list[dict[str, Any]]]:
    """A column for each collection: nDCG@10, and of each target the difference to labels with the same loss.

    The second table has what learning a teacher's scores gains over learning its ratings, all collections' queries.
    """
    values = {name: np.array(text.split(), float) for name, text in known.items()}
    rows: dict[str, dict[str, Any]] = {}
    gains: dict[Arm, list[np.ndarray]] = {}
    kinds = dict.fromkeys(parts[3] for name in known if len(parts := name.split(", ")) == 5 and parts[3])
    arms = arms_of([kind for kind in kinds if kind not in (BI, CROSS)])
    for name in (each.partition(", ")[0] for each in known if each.endswith(FIRST)):
        for kind in dict.fromkeys((FIRST, *(arm[2] for arm in arms if arm[2] != NONE))):
            if (own := values.get(f"{name}, {kind}")) is not None:
                rows.setdefault(kind, {"learns from": kind, "loss": "as it is"})[name] = f"{own.mean():.3f}"
        runs = {arm: [values.get(", ".join((name, *arm, f"seed {seed}"))) for seed in SEEDS] for arm in arms}
        runs = {arm: np.array(each) for arm, each in runs.items() if all(one is not None for one in each)}
        means = {arm: each.mean(0) for arm, each in runs.items()}
        lead = {arm: means[arm] - means[base] for arm in means if (base := (arm[0], "labels", NONE)) in means}
        for arm in means:
            if arm[1].startswith("elo") and (taught := (arm[0], "teacher", arm[2])) in means:
                gains.setdefault(arm, []).append(means[taught] - means[arm])
        tested = [arm for arm in lead if arm[2] != NONE]
        p = dict(zip(tested, holm([paired_test(lead[arm], 0 * lead[arm]).p for arm in tested]), strict=True))
        for arm, each in runs.items():
            shown = f"{each.mean():.3f} ± {each.mean(1).std(ddof=1):.3f}"
            if arm in p:
                low, high = bootstrap_interval(lead[arm], rng=np.random.default_rng(0))
                shown += f", {low:+.3f} to {high:+.3f}" + ("!" if p[arm] < 0.05 else "")
            source = f"{arm[1]}, {arm[2]}".removesuffix(", ")
            rows.setdefault(str(arm), {"learns from": source, "loss": arm[0]})[name] = shown
    over = []
    for (loss, target, kind), parts in gains.items():
        gain = np.concatenate(parts)
        low, high = bootstrap_interval(gain, rng=np.random.default_rng(0))
        shown = f"{gain.mean():+.3f} [{low:+.3f}, {high:+.3f}]"
        over.append({"teacher": kind, "loss": loss, "ratings": target, "collections": len(parts), "queries": len(gain),
                     "scores − ratings": shown, "p": f"{paired_test(gain, 0 * gain).p:.2g}"})  # fmt: skip
    return {"": [*rows.values()], "A teacher's scores against its ratings": over}
