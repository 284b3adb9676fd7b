"""The plan of a tuning, as a TOML file that runs again: how time is spent, the parts of a collection that fit."""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from foils.data import Collection
from foils.data.analyser import BM25Settings
from foils.data.records import whole_json, whole_toml
from foils.data.splitting import SPLITS, drawn_judgements, with_documents
from foils.experiments.tasks import RerankerTask, Task
from foils.mining import BM25Retriever
from foils.runtime import seeds
from foils.runtime.errors import FormatError
from foils.runtime.files import TOML, digest_of, write_json, write_text
from foils.runtime.results import Result, Table

Section = Mapping[str, Any]
NUMBER = (int, float)
SECTIONS: dict[str, dict[str, tuple[type, ...]]] = {
    "given": {"collection": (str,), "model": (str,), "seed": (int,)},
    "trials": {
        "documents": (int,), "train_queries": (int,), "test_queries": (int,), "dev_documents": (int,),
        "learning_rates": (list,), "epochs": (list,), "queries": (int,), "final_epochs": (int,),
    },
    "sources": {"names": (list,)},
    "negatives": {"source": (str,), "per_query": (int,)},
    "batches": {"method": (str,), "size": (int,)},
    "training": {"learning_rate": NUMBER, "epochs": (int,)},
    "retriever": {"weight": NUMBER},
}  # fmt: skip
"""Sections in their order, and what each holds at least."""
HEAD = (
    "# The decisions of foils tune, each with its reason. This runs them again as they stand:\n"
    "#   foils tune --plan plan.toml -o FOLDER\n"
    "# Values may be changed. A section that is taken out is decided anew ([given] has to stay).\n"
)
MAX_POSITIVES = 4  # rows of a query in training
DEV_DOCUMENTS, DEV_PAIRS = 1_000, 10_000  # that an encoder embeds for dev, and that a reranker scores
LEAST_DOCUMENTS, LEAST_QUERIES, LEAST_RERANKED = 500, 50, 20
MOST_ROWS = 50_000  # of an epoch that short runs take whole; of more, a part
ENOUGH_ROWS = 10_000  # rows that have to fit into the time before any of it goes into choosing
SLACK = 4  # times as many training queries as seem to fit are kept: the machine may have been busy when it was timed
MULTIPLES = (1 / 3, 1.0, 3.0)
"""Learning rates that are tried, as multiples of the default of the model's kind."""
SEVERAL = "the usual learning rate of this kind of model (of a new head three times it), a third and three times of it"
SAMPLE_TEXTS = 32
DEV_QUERIES = 500
HARD = 10  # BM25's first documents of a query, on which it is measured
LEAST = {"train": 20, "dev": 10, "test": 20}
"""Queries of a split below which nothing can be learned, chosen or shown."""
PARTS = 20  # of the time: the learning rate changes, and a number of steps is noted, after each
WARMUP = 0.1


@dataclass
class Plan(Result):
    """Decisions by section; those that are there already are not made again.

    Attributes:
        sections: name → values, one of them the reason.
    """

    endings = TOML

    sections: dict[str, Section] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Section:
        return self.sections[name]

    def decide(self, name: str, make: Callable[[], Section]) -> Section:
        """Return a section, made by `make` unless it is there."""
        if name not in self.sections:
            self.sections[name] = make()
        return self.sections[name]

    def to_toml(self) -> str:
        """Return the file's text, sections in their order."""
        parts = [HEAD]
        for name in (each for each in SECTIONS if each in self.sections):
            lines = [f"{key} = {_toml(value)}" for key, value in self.sections[name].items() if value is not None]
            parts.append("\n".join([f"[{name}]", *lines]) + "\n")
        return "\n".join(parts)

    def write(self, path: str | Path) -> None:
        """Write the file whole."""
        write_text(path, self.to_toml())

    @classmethod
    def read(cls, path: str | Path) -> Plan:
        """Read a plan.

        Raises:
            InputError: there is no such file.
            FormatError: not TOML, an unknown section, or a value that is missing or of another type.
        """
        read = whole_toml(path)
        sections = {name: section for name, section in read.items() if name in SECTIONS and isinstance(section, dict)}
        wrong = [f"[{name}] is no section of a plan" for name in read if name not in sections]
        wrong += [] if "given" in read else ["[given] is missing"]
        for name, section in sections.items():
            for key, kinds in SECTIONS[name].items():
                if type(section.get(key)) not in kinds:
                    expected = " or ".join(each.__name__ for each in kinds)
                    wrong.append(f"{key} of [{name}] is {section.get(key)!r:.200}; expected {expected}")
        if wrong:
            raise FormatError(f"not a plan of foils tune: {'; '.join(wrong):.2000}", path)
        return cls({name: read[name] for name in SECTIONS if name in read})

    def to_json(self) -> dict[str, Any]:
        """Return the sections."""
        return {"plan": self.sections}

    def tables(self) -> list[Table]:
        """Return the decisions as a table: section, values, reason."""
        rows = []
        for name in (each for each in SECTIONS if each in self.sections):
            values = {key: value for key, value in self.sections[name].items() if value not in (None, [], {})}
            reason = values.pop("reason", "")
            values.pop("digest", None)
            rows.append((name, ", ".join(f"{key} {_shown(value)}" for key, value in values.items()), reason))
        return [Table("Plan", ["decision", "what", "why"], rows, words=frozenset({1, 2}))]


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_shown(each)}" for key, each in value.items())
    if isinstance(value, float):
        return f"{value:g}"
    return f"{value:,}" if type(value) is int and value > 9999 else str(value) or "none"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(str(key))} = {_toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_toml, value)) + "]"
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def seconds_a_text(task: Task, collection: Collection, seed: int) -> float:
    """Return the seconds that the model takes for embedding a document or, of rerankers, for scoring a pair."""
    from foils.encode.cross_encoders import logits

    rng, model = np.random.default_rng([seed, seeds.TIMED]), task.load()
    texts = collection.document_texts(rng.integers(len(collection.documents), size=2 * SAMPLE_TEXTS))
    queries = collection.query_texts(rng.integers(len(collection.queries), size=2 * SAMPLE_TEXTS))
    for part in (slice(SAMPLE_TEXTS), slice(SAMPLE_TEXTS, None)):  # the first warms up
        begin = time.perf_counter()
        if isinstance(task, RerankerTask):
            logits(model, list(zip(queries[part], texts[part], strict=True)))
        else:
            model.encode_document(texts[part], batch_size=16, show_progress_bar=False)
    return (time.perf_counter() - begin) / SAMPLE_TEXTS


def schedule(
    task: Task,
    collection: Collection,
    *,
    per_query: int,
    rates: tuple[float, float],
    seed: int,
    seconds: float | None = None,
) -> Section:
    """Decide how much is searched and tried: section [trials].

    Four ways: without a limit three learning rates for one, two and three epochs, or, of much data, for one epoch of a
    part of it, then two of all; with one the first of these, and a last training in the time that is left; and where
    little training fits, one training in all of the time, at a rate that suits few steps. How long trainings with a
    limit are is not planned: they follow the clock (`Clock`).

    Args:
        task: what is tuned.
        collection: with three splits.
        per_query: negatives of a positive in training, each a row of an encoder.
        rates: the default learning rate of the model, and that of a training of few steps.
        seed: of the texts that are timed.
        seconds: that are left; None: no limit.
    """
    reranker, positives = isinstance(task, RerankerTask), {name: collection.positives(name) for name in SPLITS}
    queries, documents = {name: len(each) for name, each in positives.items()}, len(collection.documents)
    rows_of_query = float(np.minimum(positives["train"].counts, MAX_POSITIVES).mean()) * (1 if reranker else per_query)
    rows = queries["train"] * rows_of_query  # of an epoch
    dev = min(DEV_PAIRS, queries["dev"] * task.depth) if reranker else min(DEV_DOCUMENTS, documents)
    epochs, final, share, little, timed = [1, 2, 3], 0, 1.0, False, dict[str, Any]()
    reason = f"no limit of time: {SEVERAL}; more epochs for the better half, as long as dev rises"
    if seconds is None and rows > MOST_ROWS:
        epochs, final, share = [1], 2, MOST_ROWS / rows / 4
    if seconds is not None:
        text = seconds_a_text(task, collection, seed)
        row = 3 * text * (1 + per_query if reranker else 3)  # pairs or texts, forward and twice as long backward
        fitting, texts = 0.45 * seconds / row, int(0.15 * seconds / text)
        may_fit, whole = int(SLACK * fitting / rows_of_query), (*queries.values(), documents)
        queries["train"] = min(queries["train"], max(LEAST_QUERIES, may_fit))
        if reranker:
            queries["test"] = min(queries["test"], max(LEAST_QUERIES, texts // task.depth))
        else:
            documents = min(documents, max(LEAST_DOCUMENTS, texts))
        dev = min(dev, max(LEAST_RERANKED * task.depth if reranker else 100, int(0.03 * seconds / text)))
        searched = queries["test"] * task.depth if reranker else documents
        searched *= 1 if reranker and task.init == "nothing" else 2  # such a reranker is held against its first stage
        timed = {"seconds": round(max(0.0, seconds - (searched + 3 * dev) * text), 1), "may_fit": may_fit}
        little, most = fitting < min(ENOUGH_ROWS, 3 * rows), 10 if reranker else 3
        epochs, final = ([most + 1], 0) if little else ([1, 2, 3], most)
        what, part = ("one training", "a sixteenth") if reranker else ("one training on pairs alone", "an eighth")
        several = f"{SEVERAL}, {part} of the time each, then a training in the time that is left"
        reason = f"little fits into the time: {what} takes all of it" if little else several
        if (*queries.values(), documents) != whole:
            reason += "; trained on and measured is a part that may fit (positives, BM25's first, random ones)"
    learning_rates = [rates[1]] if little else [rates[0] * each for each in MULTIPLES]
    return {
        "documents": documents, "train_queries": queries["train"], "test_queries": queries["test"],
        "dev_documents": dev, "learning_rates": [float(f"{each:.2g}") for each in learning_rates], "epochs": epochs,
        "queries": max(min(queries["train"], LEAST_QUERIES), int(share * queries["train"])), "final_epochs": final,
        "ablation": not little, **timed, "reason": reason,
    }  # fmt: skip


@dataclass(frozen=True)
class Trial:
    """A training, measured on dev.

    Attributes:
        learning_rate: its peak. `epochs`: over the queries, at most. `queries`: that it was trained on.
        dev: mean measure on dev. `per_query`: of each query of dev.
        steps: of the optimizer. `rows`: that it was trained on. `seconds`: that it took.
        source: of its negatives; empty: in-batch negatives alone.
        marks: steps made when each twentieth of its time was spent; none: it had no limit.
        whole: whether it had the time for all of its epochs.
        name: of its folder.
    """

    learning_rate: float
    epochs: int
    queries: int
    dev: float
    per_query: tuple[float, ...] = field(repr=False)
    steps: int
    rows: int
    seconds: float
    source: str = ""
    marks: tuple[int, ...] = ()
    whole: bool = True
    name: str = ""

    @property
    def order(self) -> tuple[float, int, float]:
        """The better on dev is the larger; of equals the cheaper, then the one with the smaller learning rate."""
        return self.dev, -self.epochs, -self.learning_rate

    def to_json(self) -> dict[str, Any]:
        """Return what it was, and what it had on dev."""
        return {key: each for key, each in vars(self).items() if key not in ("per_query", "name", "seconds", "whole")}


def halving(
    run: Callable[[float, int], Trial],
    learning_rates: Sequence[float],
    epochs: Sequence[int],
    goes_on: Callable[[], bool] = lambda: True,
) -> Trial:
    """Return the best short run.

    Every learning rate runs for the first number of epochs; the better half of them (rounded up) runs for the next, and
    so on, until longer training is no better on dev.

    Args:
        run: learning rate, epochs → the trial.
        learning_rates: to begin with.
        epochs: of the rounds, ascending.
        goes_on: whether there is time for another round.
    """
    tried = [run(rate, epochs[0]) for rate in learning_rates]
    best = max(tried, key=lambda each: each.order)
    for each in epochs[1:]:
        if not goes_on():
            break
        survivors = sorted(tried, key=lambda trial: trial.order, reverse=True)[: (len(tried) + 1) // 2]
        tried = [run(trial.learning_rate, each) for trial in survivors]
        before, best = best, max([best, *tried], key=lambda trial: trial.order)
        if best is before:
            break
    return best


def weight_within_an_error(values: Mapping[float, npt.NDArray[np.float64]]) -> float:
    """Return the weight nearest to ½ that is worse than the best one by at most a standard error; of two the better.

    Few queries tell weights apart badly, and a tuned model may be worse on dev, which shares no document with the
    training, than on queries to come: the best weight of dev alone gives it too little.

    Args:
        values: weight → (n,) measure of each query.

    Source: the rule of one standard error (Breiman et al. 1984); benchmarks/evidence/fused.py compares it.
    """
    best = max(values, key=lambda each: (float(values[each].mean()), -abs(each - 0.5)))

    def near(weight: float) -> bool:
        lost = values[best] - values[weight]
        return weight == best or float(lost.mean()) <= float(lost.std(ddof=1)) / len(lost) ** 0.5

    return min(filter(near, values), key=lambda each: (round(abs(each - 0.5), 9), -float(values[each].mean())))


def clock(seconds: float | None = None, marks: Sequence[int] = ()) -> Any:
    """Return the callback of a training whose schedule follows the share of the time that is spent.

    The share is the larger one of the time's and the steps' (of all epochs). After each twentieth of it the learning
    rate changes, and the number of steps is noted in `marks`; at the end the training stops. With the marks of an
    earlier training the same steps are made at the same rates, whatever the time.

    Args:
        seconds: that the training may take; None: the marks say how many steps it makes.
        marks: steps made when each twentieth was spent.
    """
    from transformers import TrainerCallback

    from foils.batching.sampler import checkpoint_of

    class Clock(TrainerCallback):  # type: ignore[misc]
        """Spends the time."""

        def __init__(self) -> None:
            self.marks, self.began, self.whole = list(marks), time.monotonic(), False

        def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Begin, or go on with what was spent before the last checkpoint."""
            if seconds is not None and state.global_step:
                spent = whole_json(checkpoint_of(args, state) / "foils_clock.json")
                self.marks, self.began = spent["marks"], time.monotonic() - spent["seconds"]

        def on_step_begin(self, args: Any, state: Any, control: Any, optimizer: Any = None, **_: Any) -> None:
            """Set the learning rate of this part: it rises over the first tenth, then falls linearly."""
            if seconds is not None and not state.global_step:  # what came before takes half of the time at most
                self.began = max(self.began, time.monotonic() - seconds / 2)
            share = (bisect_right(self.marks, state.global_step) + 0.5) / PARTS
            factor = share / WARMUP if share < WARMUP else (1 - share) / (1 - WARMUP)
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * factor

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Note the parts that are spent, and stop after the last."""
            if seconds is not None:
                share = max((time.monotonic() - self.began) / max(seconds, 1e-9), state.global_step / state.max_steps)
                done = min(PARTS, int(share * PARTS + 1e-9))
                self.marks += [state.global_step] * (done - len(self.marks))
            self.whole = state.global_step >= state.max_steps
            control.should_training_stop |= bisect_right(self.marks, state.global_step) >= PARTS
            control.should_log |= state.global_step == 1 or control.should_training_stop

        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            """Write down what is spent."""
            spent = {"marks": self.marks, "seconds": time.monotonic() - self.began}
            write_json(checkpoint_of(args, state) / "foils_clock.json", spent)

    return Clock()


def with_queries(collection: Collection, counts: Mapping[str, int], seed: int) -> Collection:
    """Return the collection with judgements of so many queries in some splits, drawn by the seed."""
    drawn = {name: drawn_judgements(collection, name, count, seed) for name, count in counts.items()}
    if all(table is collection.qrels[name] for name, table in drawn.items()):
        return collection
    digest = digest_of([collection.digest, dict(counts), seed], 16)
    return replace(collection, qrels={**collection.qrels, **drawn}, digest=digest)


def with_hard_documents(
    collection: Collection,
    kept: Sequence[str],
    ranked: Sequence[str],
    count: int,
    seed: int,
    lexical: BM25Settings,
) -> Collection:
    """Return the collection with the positives of some splits, BM25's first documents for some, and random ones.

    BM25's take three quarters of what the positives leave, all first ranks before the second ones. The documents that
    the model itself ranks first are not taken: on its mistakes it would look worse than a model that is trained.
    """
    if count >= len(collection.documents):
        return collection
    positives = {name: collection.positives(name) for name in kept}
    rows = np.unique(np.concatenate([each.doc_rows for each in positives.values()]))
    room = max(0, count - len(rows))
    retriever = BM25Retriever(collection, **vars(lexical))
    ranks = np.concatenate([retriever.search(positives[name].query_rows, HARD)[0] for name in ranked]).T.ravel()
    hard, first = np.unique(ranks, return_index=True)
    hard = hard[np.argsort(first)]
    hard = hard[(hard >= 0) & ~np.isin(hard, rows)][: 3 * room // 4]
    rows = np.concatenate([rows, hard])
    others = np.setdiff1d(np.arange(len(collection.documents)), rows)
    drawn = np.random.default_rng([seed, seeds.COMPLETED]).permutation(others)[: max(0, count - len(rows))]
    return with_documents(collection, np.concatenate([rows, drawn]))
