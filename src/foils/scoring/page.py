"""The report of a scoring: the ranking against the control, what lies behind it, and negatives to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foils.data.store import write_text
from foils.pages.page import PALETTE, Example, Examples, Figure, Section, Table, label, render_page, shortened
from foils.scoring.ablations import Ablations
from foils.scoring.analyses_page import ablation_section, audit_section
from foils.scoring.audit import Suspect
from foils.scoring.diagnostics import BUCKET_RULES, BUCKETS
from foils.scoring.eci import MARGINS
from foils.scoring.records import Target
from foils.scoring.results import Scores, SourceScore

CONTROL_COLOUR = "#8a8f94"
READ = 4  # examples of a bucket and source


def write_score_report(
    path: str | Path, scores: Scores, ablations: Ablations | None = None, suspects: Sequence[Suspect] = ()
) -> None:
    """Write the report of a scoring as one HTML page, whole; with ablations and an audit where they are given.

    Raises:
        MissingExtraError: plotly is not installed.
    """
    write_text(path, score_report(scores, ablations, suspects))


def score_report(scores: Scores, ablations: Ablations | None = None, suspects: Sequence[Suspect] = ()) -> str:
    """Return the report of a scoring as HTML."""
    settings = scores.settings
    subtitle = (
        f"{scores.collection['name']}, split {settings.split}: {len(scores.measured.records):,} records · "
        f"encoder {scores.encoder['name']} (d {scores.encoder['dimension']}) · τ {settings.temperature:g} · "
        f"λ {settings.regularization:g} · seed {settings.seed}"
    )
    return render_page(
        "Which hard negatives to train on",
        subtitle=subtitle,
        verdict=_verdict(scores),
        sections=[
            Section("Ranking", [_ranking_figure(scores), _ranking_table(scores)]),
            Section("Gates and margins", [_distributions(scores)], _GATES),
            Section("Failure buckets", [_bucket_figure(scores), _bucket_table(scores), *_bucket_examples(scores)]),
            *([audit_section(suspects)] if suspects else []),
            *([ablation_section(ablations)] if ablations else []),
            Section("Everything measured", [_full_table(scores)], folded=True),
            Section("How to read this", (), _READING, folded=True),
        ],
        footer=f"encoder fingerprint {scores.encoder['fingerprint']} · collection digest {scores.collection['digest']} "
        f"· idf over {scores.idf_corpus['kind']} ({scores.idf_corpus['texts']:,} texts)",
    )


_GATES = (
    "ρ is how surely the encoder prefers the positive to the negative; η how much nearer the negative is to the "
    "positive than to the query; ψ how little of the query's wording it repeats. A negative counts with ρ·η·ψ. The "
    "margin is the similarity of query and positive less that of query and negative.",
)
_READING = (
    "ECI_sem is log det(Id + I/λ), I the mean over negatives of ρ·η·ψ·r·rᵀ, r the direction from negative to positive. "
    "At λ = 1 it is nearly its trace, the mean weight: the column diversity is what the directions take away.",
    "The score rises as negatives get easier, since an easy negative passes every gate. So random negatives are scored "
    "beside the sources, drawn from the same texts: a source that does not stay clearly below them is easy, not good.",
    "Intervals are of the score that many records like these would have: a jackknife over blocks of records takes away "
    "the bias of few records, which grows as λ gets smaller, and a bootstrap of its pseudo-values gives the width. "
    "They say how certain the score is, not how well it predicts training: measure that.",
    "The rates and buckets are per negative; gradient energy, MNRL proxy and ambiguity are per record over its whole "
    "list, so they grow when lists are united. ECI is the earlier score, ln(1 + |N|) times the harmonic mean of signal "
    f"and margin, averaged over the data set first. Its margin is the {MARGINS['triplet']}; that of ECI, list is the "
    f"{MARGINS['list']}.",
)


def _verdict(scores: Scores) -> str:
    ranked = _ranked(scores)
    sound = [score for score in ranked if not score.easy]
    if not sound:
        return "Every source scores like random negatives: they are easy. Mine harder ones before you train."
    best = sound[0]
    text = f"{best.name} has the highest ECI_sem ({best.eci_sem:.3f}"
    if best.eci_sem_low == best.eci_sem_low:
        text += f", {100 * scores.settings.confidence:g} % interval {best.eci_sem_low:.3f}–{best.eci_sem_high:.3f}"
    text += ") of the sources that stay clearly below random negatives"
    if len(sound) > 1 and len(scores.replicates.scores.get(best.name, ())):
        certain = scores.replicates.order_probability(best.name, sound[1].name)
        text += f"; it beats {sound[1].name} in {100 * certain:.0f} % of the resamplings"
    easy = [score.name for score in ranked if score.easy]
    return text + "." + (f" Flagged as easy: {', '.join(easy)}." if easy else "")


def _ranked(scores: Scores) -> list[SourceScore]:
    by_name = {score.name: score for score in scores.sources}
    return [by_name[name] for name in scores.ranking]


def _ranking_figure(scores: Scores) -> Figure:
    ranked = _ranked(scores)[::-1]
    data: list[dict[str, object]] = []
    for hybrid, colour, name in ((False, PALETTE[0], "source"), (True, PALETTE[1], "hybrid")):
        chosen = [score for score in ranked if score.hybrid == hybrid]
        if chosen:
            data.append(
                {
                    "type": "scatter",
                    "mode": "markers",
                    "name": name,
                    "x": [score.eci_sem for score in chosen],
                    "y": [label(score.name) for score in chosen],
                    "marker": {"size": 11, "color": colour, "symbol": "circle" if not hybrid else "diamond"},
                }
            )
            data.append(_intervals(chosen, colour))
    layout: dict[str, object] = {
        "xaxis": {"title": {"text": "ECI_sem"}, "rangemode": "tozero"},
        "yaxis": {"categoryorder": "array", "categoryarray": [label(score.name) for score in ranked]},
        "legend": {"orientation": "h", "y": 1.12},
    }
    caption = "Score and interval of each source and hybrid."
    if scores.control:
        layout["shapes"] = [_band(scores.control)]
        layout["annotations"] = [
            {"x": scores.control.eci_sem, "y": 1.0, "yref": "paper", "text": "random control", "showarrow": False,
             "yshift": 10, "font": {"color": CONTROL_COLOUR}}
        ]  # fmt: skip
        caption += " The grey band is the random control: what reaches it is easy."
    return Figure(data, layout, caption, height=130 + 34 * len(ranked))


def _intervals(chosen: list[SourceScore], colour: str) -> dict[str, object]:
    """The intervals as lines of their own: at a small λ they lie above the score."""
    known = [score for score in chosen if score.eci_sem_low == score.eci_sem_low]
    ends = [[score.eci_sem_low, score.eci_sem_high, None] for score in known]
    return {
        "type": "scatter", "mode": "lines", "showlegend": False, "hoverinfo": "skip",
        "x": [end for pair in ends for end in pair], "y": [label(score.name) for score in known for _ in range(3)],
        "line": {"color": colour, "width": 2},
    }  # fmt: skip


def _band(control: SourceScore) -> dict[str, object]:
    known = control.eci_sem_low == control.eci_sem_low
    low, high = (control.eci_sem_low, control.eci_sem_high) if known else (control.eci_sem, control.eci_sem)
    return {"type": "rect", "x0": low, "x1": high, "y0": 0, "y1": 1, "yref": "paper", "fillcolor": CONTROL_COLOUR,
            "opacity": 0.35, "line": {"width": 1, "color": CONTROL_COLOUR}, "layer": "below"}  # fmt: skip


def _ranking_table(scores: Scores) -> Table:
    ranked = [*_ranked(scores), *([scores.control] if scores.control else [])]
    rows = [
        (
            score.name,
            f"{score.eci_sem:.4f}",
            score.interval_text(),
            f"{score.trace:.4f}",
            _or_dash(score.control_ratio, 2),
            f"{score.rho:.3f}",
            f"{score.eta:.3f}",
            f"{score.psi:.3f}",
            f"{100 * score.inversion_rate:.1f} %",
            f"{score.mnrl_proxy:.3f}",
            f"{score.records:,}",
            f"{score.negatives:,}",
            "easy" if score.easy else "",
        )
        for score in ranked
    ]
    columns = ["source", "ECI_sem", f"{100 * scores.settings.confidence:g} % interval", "trace", "÷ control", "ρ", "η",
               "ψ", "inverted", "MNRL proxy", "records", "negatives", ""]  # fmt: skip
    easy = frozenset(index for index, score in enumerate(ranked) if score.easy)
    return Table("", columns, rows, " ".join(["Best first; the random control last.", *scores.warnings]), easy)


def _full_table(scores: Scores) -> Table:
    ranked = [*_ranked(scores), *([scores.control] if scores.control else [])]
    columns = ["source", "records", "ECI_sem/d", "diversity", "effective rank", "ECI", "ECI per query", "signal",
               "margin", "ECI, list", "margin, list", "C", "pair loss", "gradient energy", "ambiguity",
               "left out"]  # fmt: skip
    rows = [
        (
            score.name,
            f"{score.records:,}",
            f"{score.eci_sem_per_dim:.6f}",
            f"{score.diversity:.5f}",
            f"{score.effective_rank:.1f}",
            f"{score.eci:.3f}",
            f"{score.eci_per_query:.3f}",
            f"{score.signal:.3f}",
            f"{score.margin:.3f}",
            f"{score.eci_list:.3f}",
            f"{score.margin_list:.3f}",
            f"{score.coverage:.3f}",
            f"{score.pair_loss:.3f}",
            f"{score.gradient_energy:.2f}",
            f"{score.ambiguity:.3f}",
            ", ".join(f"{count:,} {why}" for why, count in score.dropped.items()) or "–",
        )
        for score in ranked
    ]
    return Table("", columns, rows, "Per source, hybrid and control.")


def _singles(scores: Scores) -> list[tuple[Target, npt.NDArray[np.bool_], str]]:
    """Sources and control, without hybrids: target, its triplets, its colour."""
    targets = scores.measured.records.targets(1)
    colours = [*(PALETTE[index % len(PALETTE)] for index in range(len(targets)))]
    if scores.control:
        colours[-1] = CONTROL_COLOUR
    return [
        (target, target.of(scores.measured.records.members), colour)
        for target, colour in zip(targets, colours, strict=True)
    ]


def _distributions(scores: Scores) -> Figure:
    gates, similarities = scores.measured.gates, scores.measured.similarities
    panels = {
        "ρ": (gates.rho, 0.0, 1.0),
        "η": (gates.eta, 0.0, 1.0),
        "ψ": (gates.psi, 0.0, 1.0),
        "margin": (similarities.s_p - similarities.s_n, -1.0, 1.0),
    }
    data, layout = [], {"grid": {"rows": 1, "columns": 4, "pattern": "independent"}}
    for index, (name, (values, low, high)) in enumerate(panels.items()):
        axis = "" if index == 0 else str(index + 1)
        edges = np.linspace(low, high, 41)
        for target, member, colour in _singles(scores):
            counts, _ = np.histogram(np.clip(values[member], low, high), edges)
            share = 100 * counts / max(1, counts.sum())
            data.append(
                {
                    "type": "scatter",
                    "mode": "lines",
                    "line": {"color": colour, "shape": "hvh", "width": 1.8},
                    "name": label(target.name),
                    "legendgroup": label(target.name),
                    "showlegend": index == 0,
                    "x": ((edges[1:] + edges[:-1]) / 2).round(4).tolist(),
                    "y": share.round(3).tolist(),
                    "xaxis": f"x{axis}",
                    "yaxis": f"y{axis}",
                }
            )
        layout[f"xaxis{axis}"] = {"title": {"text": name}, "range": [low, high]}
        layout[f"yaxis{axis}"] = {"title": {"text": "% of negatives"}} if index == 0 else {}
    layout["legend"] = {"orientation": "h", "y": 1.15}
    return Figure(data, layout, "Distribution over negatives, by source.", height=340)


def _bucket_figure(scores: Scores) -> Figure:
    ranked = [score for score in _ranked(scores) if not score.hybrid] + ([scores.control] if scores.control else [])
    colours = {target.name: colour for target, _, colour in _singles(scores)}
    data = [
        {
            "type": "bar",
            "name": label(score.name),
            "x": [name.replace("_", " ") for name in BUCKETS],
            "y": [round(score.buckets[name], 3) for name in BUCKETS],
            "marker": {"color": colours[score.name]},
        }
        for score in ranked
    ]
    layout = {
        "barmode": "group",
        "yaxis": {"title": {"text": "% of negatives"}},
        "legend": {"orientation": "h", "y": 1.15},
    }
    return Figure(data, layout, "Share of negatives in each bucket.", height=340)


def _bucket_table(scores: Scores) -> Table:
    ranked = [*_ranked(scores), *([scores.control] if scores.control else [])]
    rows = [(score.name, *(f"{score.buckets[name]:.1f} %" for name in BUCKETS)) for score in ranked]
    rules = "; ".join(f"{name.replace('_', ' ')}: {rule}" for name, rule in BUCKET_RULES.items())
    return Table("", ["source", *(name.replace("_", " ") for name in BUCKETS)], rows, rules)


def _bucket_examples(scores: Scores) -> list[Examples]:
    """A few negatives of each bucket and source to read, drawn at random, seeded."""
    found = []
    rng = np.random.default_rng([scores.settings.seed, 4])
    singles = [
        (target, member) for target, member, _ in _singles(scores) if target.name in scores.measured.records.sources
    ]
    for name, rule in BUCKETS.items():
        marked = rule(scores.measured.gates)
        examples = []
        for target, member in singles:
            rows = np.flatnonzero(marked & member)
            chosen = np.sort(rng.choice(rows, min(READ, len(rows)), replace=False))
            examples += [_example(scores, int(row), target.name) for row in chosen]
        heading = f"{name.replace('_', ' ')}: {len(examples)} examples to read"
        found.append(Examples(heading, examples, BUCKET_RULES[name]))
    return found


def _example(scores: Scores, triplet: int, source: str) -> Example:
    records, gates, similarities = scores.measured.records, scores.measured.gates, scores.measured.similarities
    record = int(records.record[triplet])
    query = records.collection.query_texts([records.queries[record]])[0]
    texts = {
        "query": query,
        "positive": records.texts[int(records.positives[record])],
        "negative": records.texts[int(records.document[triplet])],
    }
    note = (
        f"ρ {gates.rho[triplet]:.3f} · η {gates.eta[triplet]:.3f} · C {gates.coverage[triplet]:.3f} · "
        f"cosine to the query: positive {similarities.s_p[triplet]:.3f}, negative {similarities.s_n[triplet]:.3f}"
    )
    return Example(source, {name: shortened(text) for name, text in texts.items()}, note)


def _or_dash(value: float, digits: int) -> str:
    return "–" if value != value else f"{value:.{digits}f}"
