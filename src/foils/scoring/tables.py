"""What a scoring shows: the ranking with what lies behind it, how certain it is, ablations, suspected negatives."""

from __future__ import annotations

import math
from collections.abc import Sequence

from foils.runtime.errors import InputError
from foils.runtime.results import Table, number
from foils.scoring.ablations import Ablations
from foils.scoring.audit import Suspect
from foils.scoring.diagnostics import BUCKET_RULES, BUCKETS
from foils.scoring.eci import MARGINS
from foils.scoring.results import Scores, SourceScore
from foils.scoring.uniting import left_out


def decision_table(scores: Scores) -> Table:
    """Return what each source is worth for the training, best first, with the decision in words.

    Raises:
        InputError: nothing was decided.
    """
    if scores.decision is None:
        raise InputError("scores without a decision; decide first (foils.score)")
    ranked = _with_control(scores)
    rows = [
        (
            score.name,
            number(score.benefit),
            f"{number(score.benefit_low)}–{number(score.benefit_high)}",
            f"{score.best_with_probability:.2f}" if not score.hybrid and score is not scores.control else "",
            *_false(score),
            number(score.strength),
            number(score.learnability),
            score.verdict,
            number(score.eci_sem, 4),
            score.interval_text(),
            number(score.eci),
            f"{score.records:,}",
        )
        for score in ranked
    ]
    interval = f"{100 * scores.settings.confidence:g} % interval"
    columns = ["source", "benefit", interval, "P(best)", "false", interval, "signal", "learnability", "verdict",
               "ECI_sem", interval, "ECI", "records"]  # fmt: skip
    decision = scores.decision
    believed = (
        f"o, relevant documents without a label for each labelled one: {decision.unlabelled_low:.2g}–"
        f"{decision.unlabelled_high:.2g} of at most {decision.unlabelled_most:.2g}; "
        f"{decision.labels} label{'s' * (decision.labels != 1)}"
    )
    best = frozenset(index for index, score in enumerate(ranked) if score.name == decision.source)
    return Table("Which negatives to train on", columns, rows, "\n".join([*decision.sentences, believed]), best)


def _false(score: SourceScore) -> tuple[str, str]:
    """The share of false negatives and its interval: by labels alone where these contradict what is believed."""
    share, low, high = score.false_share, score.false_share_low, score.false_share_high
    if score.contradicted:
        share, low = score.false_share_by_labels, score.false_share_by_labels_low
        high = score.false_share_by_labels_high
    return f"{100 * share:.1f} %" + " by labels" * score.contradicted, f"{100 * low:.1f}–{100 * high:.1f} %"


def shares_table(scores: Scores) -> Table:
    """Return what is known of each source's share of false negatives: as believed, by labels alone, and otherwise.

    Raises:
        InputError: nothing was decided.
    """
    if scores.decision is None:
        raise InputError("scores without a decision; decide first (foils.score)")
    rows = [
        (
            score.name,
            _share(score.false_share, score.false_share_low, score.false_share_high),
            _share(score.false_share_by_labels, score.false_share_by_labels_low, score.false_share_by_labels_high)
            + (" (contradicts the belief)" if score.contradicted else ""),
            _share(score.false_share_skewed),
            _share(score.outside),
        )
        for score in _with_control(scores)
        if not score.hybrid
    ]
    columns = ["source", "false, as believed", "by labels alone", "if likeness doubled labels", "outside"]
    caption = (
        "By labels alone: what pairs say that were drawn with known probabilities, whatever is believed. If likeness "
        "doubled labels: were relevant documents most like their query labelled twice as often as those least like it. "
        "Outside: texts that are not in the collection."
    )
    return Table("Shares of false negatives", columns, rows, caption)


def _share(share: float, low: float = math.nan, high: float = math.nan) -> str:
    if math.isnan(share):
        return "–"
    interval = "" if math.isnan(low) else f" ({100 * low:.1f}–{100 * high:.1f})"
    return f"{100 * share:.1f} %{interval}"


def ranking_table(scores: Scores) -> Table:
    """Return the ranking, best first, with what lies behind it."""
    ranked = _with_control(scores)
    rows = [
        (
            score.name,
            number(score.eci_sem, 4),
            score.interval_text(),
            number(score.control_ratio, 2),
            number(score.rho),
            number(score.eta),
            number(score.psi),
            f"{100 * score.inversion_rate:.1f} %",
            number(score.mnrl_proxy),
            number(score.eci),
            number(score.eci_list),
            f"{score.records:,}",
            f"{score.negatives:,}",
            "easy" if score.easy else "",
        )
        for score in ranked
    ]
    confidence = f"{100 * scores.settings.confidence:g} % interval"
    columns = ["source", "ECI_sem", confidence, "÷ control", "ρ", "η", "ψ", "inverted", "MNRL", "ECI", "ECI, list",
               "records", "negatives", ""]  # fmt: skip
    notes = [
        f"{len(scores.measured.records):,} records of {scores.collection['name']} ({scores.settings.split}), "
        f"{scores.encoder['name']}, τ {scores.settings.temperature:g}, λ {scores.settings.regularization:g}",
        f"the margin of ECI: {MARGINS['triplet']}; of ECI, list: {MARGINS['list']}",
    ]
    if any(score.easy for score in scores.sources):
        notes.append("easy: not clearly below random negatives, so its score speaks of easiness, not of quality")
    if scores.decision is not None:
        notes.insert(0, "background: the published scores, by which the decision does not go")
    notes += scores.warnings
    for score in scores.sources:
        if score.dropped:
            notes.append(f"{score.name}: left out {left_out(score.dropped)}")
    easy = frozenset(index for index, score in enumerate(ranked) if score.easy)
    return Table("Sources of negatives by ECI_sem", columns, rows, "\n".join(notes), easy)


def _with_control(scores: Scores) -> list[SourceScore]:
    """Sources and hybrids, best first, then the control."""
    return [*scores.ranked, *([scores.control] if scores.control else [])]


def full_table(scores: Scores) -> Table:
    """Return what is measured of each source, hybrid and control beside what the ranking shows."""
    columns = ["source", "ECI_sem/d", "trace", "diversity", "effective rank", "ECI", "ECI per query", "signal",
               "margin", "ECI, list", "margin, list", "C", "pair loss", "gradient energy", "ambiguity",
               "left out"]  # fmt: skip
    rows = [
        (
            score.name,
            f"{score.eci_sem_per_dim:.6f}",
            f"{score.trace:.4f}",
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
            left_out(score.dropped) or "–",
        )
        for score in _with_control(scores)
    ]
    return Table("", columns, rows, "Per source, hybrid and control.")


def bucket_table(scores: Scores) -> Table:
    """Return the share of negatives in each bucket."""
    rows = [(score.name, *(f"{score.buckets[name]:.1f} %" for name in BUCKETS)) for score in _with_control(scores)]
    rules = "; ".join(f"{name.replace('_', ' ')}: {rule}" for name, rule in BUCKET_RULES.items())
    return Table("", ["source", *(name.replace("_", " ") for name in BUCKETS)], rows, rules)


def ablation_tables(analyses: Ablations) -> list[Table]:
    """Return every ablation as a table."""
    tables = []
    for table in analyses.tables:
        names = list(table.scores[table.base])
        rows = [
            (
                f"{setting} (base)" if setting == table.base else setting,
                *(number(of[name], 4) for name in names),
                *(number(table.stability[setting][group], 2) for group in ("sources", "hybrids")),
            )
            for setting, of in table.scores.items()
        ]
        columns = [table.name, *names, "stability: sources", "hybrids"]
        tables.append(Table(f"ECI_sem by {table.name}", columns, rows))
    rows = [
        (f"{spectrum.name}, λ {key}", number(spectrum.score[key], 4), number(spectrum.trace[key], 4),
         f"{100 * spectrum.diversity[key]:.2f} %", number(spectrum.volume[key]), number(spectrum.effective_rank, 1))
        for spectrum in analyses.spectra
        for key in spectrum.score
    ]  # fmt: skip
    columns = ["", "score", "trace", "lost to repetition", "volume", "effective rank"]
    tables.append(Table("What λ does", columns, rows))
    rows = [
        (old.name, number(old.eci), number(old.arithmetic), number(old.hardest_3), number(old.per_query),
         number(old.by_list), number(old.by_list_arithmetic), number(old.by_list_hardest_3),
         f"{old.gradient_norm:,.0f}", number(old.variance, 4))
        for old in analyses.eci
    ]  # fmt: skip
    columns = ["", "ECI", "arithmetic", "3 hardest", "per query", "list", "list, arithmetic", "list, 3 hardest",
               "gradient norm", "variance"]  # fmt: skip
    return [*tables, Table("ECI and its rivals", columns, rows)]


def suspects_table(suspects: Sequence[Suspect]) -> Table:
    """Return the suspected false negatives."""
    rows = [
        (number(each.suspicion), each.query_id, each.doc_id or "–", "; ".join(each.reasons), each.text[:60])
        for each in suspects
    ]
    return Table("Suspected false negatives", ["suspicion", "query", "document", "why", "text"], rows)
