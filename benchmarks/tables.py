"""Write the tables of README.md and of the pages in docs/ from benchmarks/results/*.json.

python benchmarks/tables.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import batch_tables
import fuzz
import grid_tables
import mine_tables
import relabel_tables
import search_tables
import study_tables
import training_tables
import tune_tables

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
COLUMNS = "source | ECI_sem | 95 % interval | ÷ control | ρ | η | ψ | inverted | MNRL proxy | ECI | "
NAMES = ("pydocs", "scifact", "squad-sent", "debian", "banking77")


def load(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def ranking(scores: dict[str, Any]) -> str:
    by_name = {source["name"]: source for source in scores["sources"]}
    rows = [f"| {COLUMNS}|", "|---|" + "---:|" * 9 + "---|"]
    for source in [*(by_name[name] for name in scores["ranking"]), scores["control"]]:
        ratio = "–" if source["control_ratio"] is None else f"{source['control_ratio']:.2f}"
        cells = (
            source["name"],
            f"{source['eci_sem']:.4f}",
            f"{source['eci_sem_low']:.4f}–{source['eci_sem_high']:.4f}",
            ratio,
            *(f"{source[key]:.3f}" for key in ("rho", "eta", "psi")),
            f"{100 * source['inversion_rate']:.1f} %",
            f"{source['mnrl_proxy']:.3f}",
            f"{source['eci']:.3f}",
            "easy" if source["easy"] else "",
        )
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows)


def rankings() -> str:
    parts = []
    every = load("rank_sources")
    for name in (name for name in NAMES if name in every):
        scores = every[name]
        how = f"{scores['backend']}, {scores['precision']}"
        size = f"{scores['records']:,} records, {scores['documents']:,} documents ({how})."
        parts.append(f"### {name}\n\n{size}\n\n{ranking(scores)}")
    return "\n\n".join(parts)


def speed() -> str:
    found = load("score")
    rows = ["| what | measured |", "|---|---|"]
    for key, value in found.items():
        if key.startswith("speed"):
            times, share = value["times_faster_than_plain_loop"], 100 * value["share_of_sgemm"]
            rows.append(f"| scoring from vectors, d = {value['dimension']}: against a plain loop | {times:.0f} × |")
            rows.append(f"| … share of the machine's SGEMM rate, at d² operations a triplet | {share:.0f} % |")
    if large := found.get("large"):
        what = f"{large['triplets']:,} triplets at d = {large['dimension']}"
        beyond = f"memory beyond {large['mapped_gib']:.1f} GiB of mapped vectors"
        rows.append(f"| {what}: {beyond} | {large['gib_beyond_mapped_vectors']:.2f} GiB |")
    if encode := load("encode"):
        for name, each in encode["speed"].items():
            what = f"encoding ({name}, {each['precision']}), against sentence-transformers' default"
            rows.append(f"| {what} | {each['one thread']['cpu']:.1f} × |")
        counts = f"{encode['encoded']} of {encode['distinct_texts']} distinct; {encode['encoded_again']}"
        rows.append(f"| texts encoded for six sources and a control; in a second run | {counts} |")
    if memory := load("memory"):
        what = f"dense search of {memory['documents']:,} documents ({memory['mapped_gib']:.1f} GiB of mapped vectors)"
        rows.append(f"| {what}: memory beyond them | {memory['gib_beyond_mapped_vectors']:.2f} GiB |")
    if composed := load("compose"):
        size = f"{composed['records']:,} queries × {composed['candidates']} candidates, d = {composed['dimension']}"
        rows.append(f"| composing {size} | {composed['seconds']:.0f} s |")
        times = composed["times_faster_than_plain_greedy"]
        rows.append(f"| … against greedy with a determinant a candidate | {times:,.0f} × |")
    startup = load("startup")
    if startup:
        rows.append(f"| `foils --help`, median | {startup['median_seconds']:.2f} s |")
    return "\n".join(rows)


def encoding() -> str:
    measured = load("encode")
    rows = [
        f"| texts of pydocs, 128 tokens | texts | precision | one core | {measured['cores']} cores |",
        "|---|---:|---|---:|---:|",
    ]
    for name, each in measured["speed"].items():
        one, every = each["one thread"]["cpu"], each["all cores"]["wall"]
        rows.append(f"| {name} | {each['texts']:,} | {each['precision']} | {one:.2f} × | {every:.2f} × |")
    return "\n".join(rows)


def audit() -> str:
    parts = []
    for name, runs in load("audit_hidden").items():
        methods = [key for key, value in runs[0].items() if isinstance(value, dict)]
        depths = list(runs[0][methods[0]])
        rows = [
            f"| {name} | {' | '.join(f'first {int(depth):,}' for depth in depths)} |",
            "|---|" + "---:|" * len(depths),
        ]
        for method in methods:
            cells = []
            for depth in depths:
                precision, recall = (
                    sum(run[method][depth][key] for run in runs) / len(runs) for key in ("precision", "recall")
                )
                cells.append(f"{precision:.3f} / {recall:.3f}")
            rows.append(f"| {method} | {' | '.join(cells)} |")
        share = sum(run["share"] for run in runs) / len(runs)
        parts.append(
            "\n".join(rows) + f"\n\n{100 * share:.0f} % of the negatives are hidden positives; {len(runs)} seeds."
        )
    return "\n\n".join(parts)


def recapture() -> str:
    every = load("recapture")
    names = list(dict.fromkeys(name for runs in every.values() for run in runs for name in run["ways"]))
    rows = [
        f"| | {' | '.join(f'{world}: true | estimated' for world in every)} | planting, of mining |",
        "|---|" + "---:|" * (2 * len(every) + 1),
    ]
    for name in names:
        cells, extra = [], []
        for runs in every.values():
            found = [run["ways"][name] for run in runs if name in run["ways"]]
            cells.append(f"{sum(each['true'] for each in found) / len(found):.3f}" if found else "–")
            known = [each for each in found if "estimated" in each]
            error = sum(each["error"] ** 2 for each in known) ** 0.5 / max(len(known), 1)
            mean = sum(each["estimated"] for each in known) / max(len(known), 1)
            cells.append(f"{mean:.3f} ± {error:.3f}" if known else "–")
            extra += [each["planting"] / each["mining"] for each in known if "mining" in each]
        planted = any(run["ways"].get(name, {}).get("way") == "planted" for runs in every.values() for run in runs)
        cost = f"{sum(extra) / len(extra):.2f}" if planted and extra else "–"
        rows.append(f"| {name} | {' | '.join(cells)} | {cost} |")
    seeds = max(len(runs) for runs in every.values())
    return "\n".join(rows) + f"\n\n{seeds} seed{'s' if seeds > 1 else ''}."


def put(path: Path, marker: str, text: str) -> None:
    """Replace what stands between `<!-- marker: benchmarks/tables.py -->` and `<!-- end -->`."""
    whole = path.read_text(encoding="utf-8")
    head, opening, rest = whole.partition(f"<!-- {marker}: benchmarks/tables.py -->")
    _, closing, tail = rest.partition("<!-- end -->")
    if not opening or not closing:
        raise SystemExit(f"{path}: no place for {marker}")
    path.write_text(f"{head}{opening}\n\n{text}\n\n{closing}{tail}", encoding="utf-8")


def effects() -> list[str]:
    """Names of the result files of batch_effect.py."""
    return [path.stem for path in RESULTS.glob("batch_effect_*.json")]


def main() -> None:
    put(ROOT / "README.md", "tune", tune_tables.tunings(load("tune")))
    put(ROOT / "docs" / "tune.md", "tune", tune_tables.tunings(load("tune")))
    put(ROOT / "docs" / "tune.md", "tune same minutes", tune_tables.same_minutes(load("tune")))
    page, measured = ROOT / "docs" / "searching.md", load("search_collections")
    put(page, "collections", search_tables.collections(measured))
    put(page, "answers", search_tables.answers(measured["cranfield, answers"]))
    put(page, "selective", search_tables.selective(load("search_selective")))
    put(ROOT / "docs" / "deploying.md", "latency", search_tables.latency(load("search_latency")))
    put(ROOT / "docs" / "deploying.md", "quantised", search_tables.quantised(load("search_quantised")))
    put(page, "second pass", search_tables.second_pass(load("search")))
    put(ROOT / "docs" / "encoding.md", "encoding", encoding())
    page = ROOT / "docs" / "mining.md"
    put(page, "peer", mine_tables.mining(load("mine")))
    put(ROOT / "docs" / "from-sentence-transformers.md", "drop-in", mine_tables.drop_in(load("drop_in")))
    put(page, "llm", mine_tables.llm(load("llm_negatives")["pydocs"]))
    page = ROOT / "docs" / "batches.md"
    put(page, "speed", batch_tables.speed(load("batch")))
    put(page, "growth", batch_tables.growth(load("batch")))
    if studies := [each for each in map(load, sorted(effects())) if "rates" in each]:
        put(page, "confirmed", batch_tables.confirmed(studies))
    for name in ("squad-sent", "debian"):
        put(page, f"effect {name}", batch_tables.effect(load(f"batch_effect_{name}")))
    page, study = ROOT / "docs" / "study.md", load("study_first")
    grid = load("grid")
    put(page, "grid cells", grid_tables.cells(grid))
    put(page, "grid agreement", grid_tables.agreement(grid))
    put(page, "grid groups", grid_tables.groups(grid))
    put(page, "grid choices", grid_tables.choices(grid))
    put(page, "grid cause", grid_tables.cause(grid))
    put(page, "grid predictors", grid_tables.predictors(grid))
    put(page, "as published", study_tables.published(load("as_published")))
    put(page, "study outcomes", study_tables.outcomes(study))
    put(page, "study leaderboard", study_tables.leaderboard(study))
    transformers = load("study_transformers")
    put(page, "study transformers outcomes", study_tables.outcomes(transformers))
    put(page, "study transformers leaderboard", study_tables.leaderboard(transformers, every=False))
    put(ROOT / "docs" / "training.md", "learning rates", training_tables.learning_rates(load("learning_rates")))
    put(ROOT / "docs" / "training.md", "distillation", relabel_tables.distilled(load("distil")))
    page, relabelled = ROOT / "docs" / "false-negatives.md", load("relabel")
    put(page, "judges", relabel_tables.judges(load("relabel_judges")))
    put(page, "found", relabel_tables.found(relabelled["find"]))
    put(page, "trained", relabel_tables.trained(relabelled["train"]))
    put(page, "masks", relabel_tables.masks(load("masks")))
    put(ROOT / "docs" / "robustness.md", "fuzz", fuzz.table(load("fuzz")))
    page = ROOT / "docs" / "benchmarks.md"
    for marker, text in (("rankings", rankings()), ("speed", speed()), ("recapture", recapture()), ("audit", audit())):
        put(page, marker, text)


if __name__ == "__main__":
    main()
