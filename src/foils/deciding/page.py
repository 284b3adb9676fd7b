"""The page of a scoring: examples, and what each choice gains; the rest under details."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from foils.data.tokens import load_bm25s
from foils.deciding.results import Decision, percent
from foils.pages import Example, Examples, Figure, Section, marked, render_page, shortened
from foils.runtime.results import Table
from foils.scoring.scores import Scores

SHOWN, CHARACTERS = 3, 220  # queries to read; characters of a document
WORD = re.compile(r"\w{3,}")
STOPWORDS = frozenset(load_bm25s().stopwords.STOPWORDS_EN_PLUS)  # that are not marked

_READING = (
    "The gain of a choice is what it is expected to add to nDCG@10 on new queries, in points, over training "
    "without mined negatives. Its interval holds what is not known of unlabelled answers, of the queries, "
    "and of how well the loss foresees training.",
    "Unlabelled answers are documents that answer the query, though nobody labelled them. Without labels "
    "only a bound of their share is known. Sixty labels narrow it (foils label).",
    "ECI_sem and ECI are the published scores. ECI_sem rises as negatives get easier, so random ones are "
    "scored beside the sources: a source that does not stay clearly below them is easy, not good.",
)


def score_page(scores: Scores, decision: Decision | None, published: Sequence[Table]) -> str:
    """Return the report of a scoring as HTML.

    Args:
        scores: the published scores.
        decision: between the sources; None where a published score ranks.
        published: the tables of the published scores.
    """
    settings = scores.settings
    subtitle = (
        f"{scores.collection['name']}, split {settings.split}: {len(scores.measured.records):,} queries · "
        f"encoder {scores.encoder['name']} · temperature {settings.temperature:g} · seed {settings.seed}"
    )
    sections = []
    if decision is not None:
        numbers = replace(decision.table(), title="", caption="")
        sections = [
            Section("Read some", [examples_of(decision)]),
            Section("What each choice gains", [gain_figure(decision)], [*decision.cautions, *decision.sentences[1:]]),
            Section("The numbers", [numbers], folded=True),
        ]
    return render_page(
        "Which hard negatives to train on",
        subtitle=subtitle,
        verdict=decision.sentence if decision else f"{scores.ranking[0]} has the highest published score.",
        sections=[
            *sections,
            Section("Published scores", published, folded=decision is not None),
            Section("How to read this", (), _READING, folded=True),
        ],
        footer=f"encoder fingerprint {scores.encoder['fingerprint']} · collection digest "
        f"{scores.collection['digest']} · idf over {scores.idf_corpus['texts']:,} texts",
    )


def gain_figure(decision: Decision) -> Figure:
    """Return the gain of each candidate with its interval, none at 0."""
    gains = {each.name: (each.gain, each.gain_low, each.gain_high) for each in decision.candidates[::-1]}
    caption = (
        "Points of nDCG@10 expected over no mined negatives, with intervals that are meant to hold 95 % of "
        "the gains (docs/deciding.md says what they held). Where two intervals overlap far, the choices are ties."
    )
    return Figure({"": gains}, "points of nDCG@10 over none", caption)


def examples_of(decision: Decision) -> Examples:
    """Return three queries with their positive and sources' nearest negatives, the query's words marked."""
    measured, expected = decision.basis.measured, decision.basis.expected
    records = measured.records
    held = np.zeros(len(records), np.int64)
    np.bitwise_or.at(held, records.record, records.members)
    sources = np.bitwise_count(held).astype(np.int64)  # that have a negative of each query
    rows = np.lexsort((np.random.default_rng(4).permutation(len(records)), -sources))[:SHOWN]
    listed = []
    for record in rows.tolist():
        query = records.collection.query_texts(records.queries[[record]])[0]
        words = {word.lower() for word in WORD.findall(query)} - STOPWORDS
        texts = {"positive": records.texts[int(records.positives[record])]}
        hardest = {}
        for bit, name in enumerate(records.names):
            triplets = np.flatnonzero((records.record == record) & (records.members >> bit & 1 == 1))
            if len(triplets):
                hardest[name] = int(triplets[measured.similarities.s_n[triplets].argmax()])
        texts |= {name: records.texts[int(records.document[triplet])] for name, triplet in hardest.items()}
        shown = {name: marked(shortened(text, CHARACTERS), words) for name, text in texts.items()}
        likely = ", ".join(f"{name} {percent(expected[triplet])}" for name, triplet in hardest.items())
        note = f"Probability of an unlabelled answer: {likely}." if decision.labels else ""
        listed.append(Example(shortened(query), shown, note))
    return Examples("Three queries, their positive, and the hardest negative of each source", listed)
