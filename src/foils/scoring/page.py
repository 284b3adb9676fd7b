"""The page of a scoring: the ranking against the control, what lies behind it, and negatives to read."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np

from foils.pages.page import Example, Examples, Section, render_page, shortened
from foils.runtime.results import Table
from foils.scoring.ablations import Ablations
from foils.scoring.audit import Suspect
from foils.scoring.curve_shown import curve_figure, curve_table, sentence
from foils.scoring.decision import Decision
from foils.scoring.diagnostics import BUCKET_RULES, BUCKETS
from foils.scoring.eci import MARGINS
from foils.scoring.figures import (
    ablation_figure,
    bucket_figure,
    decision_figure,
    distribution_figure,
    lambda_figure,
    ranking_figure,
    single_targets,
)
from foils.scoring.results import Scores
from foils.scoring.tables import ablation_tables, bucket_table, decision_table, full_table, ranking_table, shares_table

READ = 4  # examples of a bucket and source


def score_page(scores: Scores) -> str:
    """Return the report of a scoring as HTML, with its ablations and suspected negatives where there are some."""
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
            *([_decision_section(scores, scores.decision)] if scores.decision else []),
            Section(
                "Published scores" if scores.decision else "Ranking", [ranking_figure(scores), ranking_table(scores)]
            ),
            Section("Gates and margins", [distribution_figure(scores)], _GATES),
            Section("Failure buckets", [bucket_figure(scores), bucket_table(scores), *_bucket_examples(scores)]),
            *([_audit_section(scores.suspects)] if scores.suspects else []),
            *([_ablation_section(scores.ablations)] if scores.ablations else []),
            Section("Everything measured", _measured(scores), folded=True),
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
    "The benefit of a source is what its negatives add to the listwise loss of a query that has random in-batch "
    "negatives anyway, each negative with the sign that it is expected to have: false ones count against it. The share "
    "of false ones is believed from how many labelled positives the source would return as negatives, from what its "
    "pairs look like, and from labels. Without labels only an upper bound is known.",
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


def _decision_section(scores: Scores, decision: Decision) -> Section:
    """The decision: where it turns, and what each source is worth."""
    curves = [curve_figure(curve) for curve in scores.curves]
    tables = [curve_table(curve, scores.settings.confidence) for curve in scores.curves]
    warnings = [f"{text[0].upper()}{text[1:]}." for text in scores.unequal_lengths]
    prose = [*decision.sentences[1:], *warnings, *map(sentence, scores.curves)]
    return Section("Decision", [decision_figure(decision), *curves, decision_table(scores), *tables], prose)


def _measured(scores: Scores) -> list[Table]:
    return [*([shares_table(scores)] if scores.decision else []), full_table(scores)]


def _verdict(scores: Scores) -> str:
    if scores.decision:
        return scores.decision.sentences[0]
    ranked = scores.ranked
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


def _ablation_section(analyses: Ablations) -> Section:
    """Every ablation as a figure and a table, folded."""
    figures = [*map(ablation_figure, analyses.tables), lambda_figure(analyses.spectra)]
    blocks = [block for pair in zip_longest(figures, ablation_tables(analyses)) for block in pair if block is not None]
    prose = (
        "Stability is the share of pairs, within sources and within hybrids, that keep the order of the base setting.",
        "λ: the smaller it is, the more a direction that many negatives share counts only once. At λ = 1 the score is "
        "nearly the mean weight; what repetition takes away is the diversity part.",
    )
    return Section("Ablations", blocks, prose, folded=True)


def _audit_section(suspects: Sequence[Suspect]) -> Section:
    """The suspected false negatives, to be read."""
    examples = [
        Example(
            f"{suspect.query_id} · {suspect.doc_id or 'own text'} · suspicion {suspect.suspicion:.3f}",
            {"query": suspect.query, "positive": shortened(suspect.positive), "negative": shortened(suspect.text)},
            f"{'; '.join(suspect.reasons)} · in {', '.join(suspect.sources)} · cosine to the query "
            f"{suspect.to_query:.3f}, to its positives {suspect.to_positives:.3f}",
        )
        for suspect in suspects
    ]
    prose = ("Negatives that look most like positives nobody labelled. Read them before you train on them.",)
    return Section("Suspected false negatives", [Examples(f"{len(examples)} to read", examples)], prose)


def _bucket_examples(scores: Scores) -> list[Examples]:
    """A few negatives of each bucket and source to read, drawn at random, seeded."""
    blocks = []
    rng = np.random.default_rng([scores.settings.seed, 4])
    sources = [
        (target, member)
        for target, member, _ in single_targets(scores)
        if target.name in scores.measured.records.sources
    ]
    for name, rule in BUCKETS.items():
        marked = rule(scores.measured.gates)
        examples = []
        for target, member in sources:
            rows = np.flatnonzero(marked & member)
            chosen = np.sort(rng.choice(rows, min(READ, len(rows)), replace=False))
            examples += [_example(scores, int(row), target.name) for row in chosen]
        heading = f"{name.replace('_', ' ')}: {len(examples)} examples to read"
        blocks.append(Examples(heading, examples, BUCKET_RULES[name]))
    return blocks


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
