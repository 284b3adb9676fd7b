"""The tables of docs/false-negatives.md and of distillation in docs/training.md, from their result files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np

from foils.statistics import holm, paired_test

STATIC = "static:all-MiniLM-L6-v2"
NAMES_OF_MODELS = {STATIC: "word table"}
EVIDENCE = {"": "", "scores": "the reranker's scores", "ratings": "its ratings"}
ALONE = {
    "similarity": "cosine to the query",
    "resemblance": "likeness to the three nearest positives",
    "nearest": "likeness to the nearest positive",
    "teacher": "the reranker's scores",
    "gap": "its ratings, against the positive's",
}
OF_THE_ORACLE = ("oracle, 1 %", "oracle, 5 %")
OF_THE_RERANKER = ("reranker, 20 %", "reranker, 20 %, then oracle, 1 %")
ASKED = {"": (*OF_THE_ORACLE, *OF_THE_RERANKER), "scores": OF_THE_ORACLE, "ratings": OF_THE_ORACLE}
OF_ALONE = {"teacher": "scores", "gap": "ratings"}  # which evidence it is
CELL = ("collection", "student", "teacher", "train_queries", "test_queries", "batch_size", "epochs")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}".removeprefix("0")


def _called(row: dict[str, Any]) -> str:
    return "none called" if row["precision"] is None else f"{_share(row['precision'])}, {_share(row['recall'])}"


def _table(columns: Sequence[dict[str, str]], names: Sequence[str]) -> str:
    """One column each of some dictionaries, whose first name is the head."""
    head, *rest = [f"| {name} | {' | '.join(column.get(name, '–') for column in columns)} |" for name in names]
    return "\n".join([head, "|---|" + "---:|" * len(columns), *rest])


Runs = Sequence[Sequence[float]]  # of some seeds, the same queries


def _marked(pairs: dict[str, tuple[Runs, Runs]]) -> dict[str, str]:
    """Name -> mean over seeds and queries, and the difference to a reference; * and ! mark p < .05 after Holm."""
    means = {name: (np.mean(own, axis=0), np.mean(reference, axis=0)) for name, (own, reference) in pairs.items()}
    tests = {name: paired_test(*each) for name, each in means.items()}
    corrected = holm([test.p for test in tests.values()])
    cells = {}
    for (name, test), p in zip(tests.items(), corrected, strict=True):
        mark = "" if p >= 0.05 else "*" if test.difference > 0 else "!"
        cells[name] = f"{means[name][0].mean():.4f} ({test.difference:+.4f}{mark})"
    return cells


def _against(runs: dict[str, Runs], reference: str) -> dict[str, str]:
    """The same, all against one of them, which stands first."""
    others = {name: (each, runs[reference]) for name, each in runs.items() if name != reference}
    return {reference: f"{np.mean(runs[reference]):.4f}", **_marked(others)}


def _hidden(share: float) -> str:
    return f"{100 * share:g} % hidden"


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"


def found(results: Sequence[dict[str, Any]]) -> str:
    """What relabelling finds, by collection and share hidden."""

    def negative(row: dict[str, Any]) -> str:
        known = row["relevant_among_negative"]
        return "–" if known is None else f"{_share(known)} ({row['called_negative']:,})"

    lines = [
        "| collection | hidden | false rows | likeness alone: recall | 1 % asked: precision, recall | "
        "5 % asked: precision, recall | relevant among negative (rows) | "
        "5 %, without other queries | relevant among negative (rows) |",
        "|---|" + "---:|" * 8,
    ]
    for each in results:
        rows = {(row["other_queries"], row["budget"]): row for row in each["found"]}
        best = max((r for r in each["recall_at_90_by_truth"].values() if r is not None), default=None)
        few, some, alone = rows[True, 0.01], rows[True, 0.05], rows[False, 0.05]
        cells = (each["collection"], f"{100 * each['hidden']:g} %", f"{100 * each['false']:.0f} %", _share(best),
                 _called(few), _called(some), negative(some), _called(alone), negative(alone))  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def trained(results: Sequence[dict[str, Any]]) -> str:
    """nDCG@10 by what is done with negatives: means over seeds, tests over queries of these."""
    cells = defaultdict(list)
    for each in results:
        cells[each.get("model", STATIC) != STATIC, each["hidden"], each["collection"], each["top"]].append(each)
    columns, names = [], ["untouched"]
    for (_, share, collection, _), runs in sorted(cells.items()):
        model = runs[0].get("model", STATIC)
        ways = {way: [run["per_query"][way] for run in runs] for way in runs[0]["per_query"]}
        names += [way for way in ways if way not in names]
        title = f"{collection}, {_hidden(share)}, {NAMES_OF_MODELS.get(model, model)}, {_seeds(len(runs))}"
        columns.append({"negatives": title, **_against(ways, "untouched")})
    return _table(columns, ["negatives", *names])


def masks(results: Sequence[dict[str, Any]]) -> str:
    """nDCG@10 by mask, against none: means over the seeds that a mask has, tests over queries of these."""
    cells = defaultdict(list)
    for each in results:
        cells[each["collection"], each["hidden"]].append(each["ways"])
    columns, names = [], []
    for (collection, share), seeds in sorted(cells.items()):
        having = {way: [each for each in seeds if way in each] for each in seeds for way in each}
        pairs = {
            way: ([each[way]["test"] for each in own], [each["no mask"]["test"] for each in own])
            for way, own in having.items()
        }
        plain = np.mean(pairs.pop("no mask")[0])
        column = {way: f"{text}, {_seeds(len(having[way]))}" for way, text in _marked(pairs).items()}
        names += [way for way in column if way not in names]
        columns.append({"mask": f"{collection}, {_hidden(share)}", "no mask": f"{plain:.4f}", **column})
    return _table(columns, ["mask", "no mask", *sorted(names)])


def judges(results: Sequence[dict[str, Any]]) -> str:
    """What each judge finds, by itself and in the cascade, and what it costs in the first of the results."""
    costs, columns = {"judge": "cost"}, []
    for each in results:
        column = {"judge": f"{each['collection']}, {_hidden(each['hidden'])}"}
        for name, recall in each["alone"].items():
            column[f"{ALONE[name]}; nobody asked"] = f".900, {_share(recall)}" if recall else "never .9"
            costs.setdefault(f"{ALONE[name]}; nobody asked", _cost(each, OF_ALONE.get(name, ""), "", 0.0))
        for row in (row for row in each["found"] if row["asked"] in ASKED[row["evidence"]]):
            evidence = [EVIDENCE[row["evidence"]], "labels of other queries" if row["other_queries"] else ""]
            name = f"{' and '.join(filter(None, ['likeness', *evidence]))}; {row['asked']}"
            column[name] = _called(row)
            costs.setdefault(name, _cost(each, row["evidence"], row["asked"], row["seconds"]))
        columns.append(column)
    return _table([costs, *columns], list(costs))


def _cost(of: dict[str, Any], evidence: str, asked: str, seconds: float) -> str:
    """Answers of the oracle, and seconds of one thread for a trained reranker."""
    answers = re.search(r"oracle, (\d+) %", asked)
    parts = [f"{round(int(answers[1]) / 100 * of['rows']):,} answers"] if answers else []
    if evidence or "reranker" in asked:
        parts.append(f"{of['seconds']['training'] + of['seconds'].get(evidence, 0.0) + seconds:.0f} s")
    return ", ".join(parts) or "nothing"


def distilled(results: dict[str, list[dict[str, Any]]]) -> str:
    """nDCG@10 on test by loss and collection, against contrastive training; the spread over seeds; the rate."""
    columns = []
    for of in results["teacher"]:
        cell = {name: of[name] for name in CELL}
        values, rates = defaultdict(list), {}
        for each in results["on test"]:
            if cell.items() <= each.items():
                values[each["loss"]].append(each["test"])
                rates[each["loss"]] = each["rate"]
        if "contrastive" not in values:
            continue
        untrained = next(each["test"] for each in results["untrained"] if cell.items() <= each.items())
        spreads = {loss: np.std([np.mean(run) for run in runs]) for loss, runs in values.items()}
        shown = {
            loss: f"{text}, ±{spreads[loss]:.4f}, {rates[loss]:g}"
            for loss, text in _against(values, "contrastive").items()
        }
        columns.append({
            "nDCG@10": f"{cell['collection']}, {_seeds(len(values['contrastive']))}",
            "the teacher prefers the positive": f"{100 * of['positive_first']:.0f} %",
            "teacher": f"{np.mean(of['test']):.4f}" if "test" in of else "–",
            "untrained": f"{np.mean(untrained):.4f}",
            **shown,
        })  # fmt: skip
    losses = dict.fromkeys(each["loss"] for each in results["on test"])
    return _table(columns, ["nDCG@10", "the teacher prefers the positive", "teacher", "untrained", *losses])
