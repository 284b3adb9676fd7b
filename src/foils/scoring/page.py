"""The report of a scoring: the ranking against the control, what lies behind it, and negatives to read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from foils.data.store import write_text
from foils.pages.page import Example, Examples, Section, Table, render_page, shortened
from foils.scoring.ablations import Ablations
from foils.scoring.analyses_page import ablation_section, audit_section
from foils.scoring.audit import Suspect
from foils.scoring.diagnostics import BUCKET_RULES, BUCKETS
from foils.scoring.eci import MARGINS
from foils.scoring.figures import bucket_figure, distribution_figure, ranked_scores, ranking_figure, single_targets
from foils.scoring.results import Scores

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
            Section("Ranking", [ranking_figure(scores), _ranking_table(scores)]),
            Section("Gates and margins", [distribution_figure(scores)], _GATES),
            Section("Failure buckets", [bucket_figure(scores), _bucket_table(scores), *_bucket_examples(scores)]),
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
    ranked = ranked_scores(scores)
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


def _ranking_table(scores: Scores) -> Table:
    ranked = [*ranked_scores(scores), *([scores.control] if scores.control else [])]
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
    ranked = [*ranked_scores(scores), *([scores.control] if scores.control else [])]
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


def _bucket_table(scores: Scores) -> Table:
    ranked = [*ranked_scores(scores), *([scores.control] if scores.control else [])]
    rows = [(score.name, *(f"{score.buckets[name]:.1f} %" for name in BUCKETS)) for score in ranked]
    rules = "; ".join(f"{name.replace('_', ' ')}: {rule}" for name, rule in BUCKET_RULES.items())
    return Table("", ["source", *(name.replace("_", " ") for name in BUCKETS)], rows, rules)


def _bucket_examples(scores: Scores) -> list[Examples]:
    """A few negatives of each bucket and source to read, drawn at random, seeded."""
    found = []
    rng = np.random.default_rng([scores.settings.seed, 4])
    singles = [
        (target, member)
        for target, member, _ in single_targets(scores)
        if target.name in scores.measured.records.sources
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
