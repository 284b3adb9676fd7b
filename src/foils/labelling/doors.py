"""The doors of labelling: a sample of labels, and every row called by a cascade of judges."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any, cast

import pyarrow as pa

from foils.data.collection import Collection
from foils.data.labels import Labels
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, SourcesLike, as_source, as_sources
from foils.data.tables import provenance
from foils.encode.opening import AT_128, EncodingSettings
from foils.labelling.asking import ask_open, errors_of
from foils.labelling.believing import belief_before_labels
from foils.labelling.drawing import pairs_of
from foils.labelling.evidence import evidence_of
from foils.labelling.judging import ByFunction, PairJudge, RelevanceJudge, check_settings, is_judge, kind_of, open_judge
from foils.labelling.marking import marked, pairs_of_rows
from foils.labelling.relabel_settings import REJECT, RelabelSettings
from foils.labelling.relabelled import Relabelled
from foils.labelling.relabelling import NEGATIVE, UNSURE, Cascade
from foils.labelling.results import Labelled
from foils.labelling.settings import PAGE, TABLE, UNCERTAIN, Answer, LabelSettings
from foils.labelling.sheet import Sheet
from foils.llm import LLMSettings
from foils.rating.judges import Judge
from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.options import refuse, spelled
from foils.statistics.survey import Floats

RECORDED = ("budgets", "checks", "positive_precision", "negative_precision", "unsure", "split")


def _check_labelling(labelling: LabelSettings, llm: LLMSettings, encoding: EncodingSettings) -> None:
    """Refuse options that do nothing beside the others, and a question without anybody who answers it."""
    who = labelling.ask
    if who is None and not labelling.files and not sys.stdin.isatty():
        ways = ", ".join(spelled("ask", way) for way in (PAGE, TABLE, "llm:MODEL"))
        raise InputError(f"nobody is there to judge: there is no terminal; give one of {ways}")
    check_settings(labelling, llm, encoding)


@door(check=_check_labelling)
def label(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    labelling: LabelSettings,
    reading: CollectionSettings,
    llm: LLMSettings,
    encoding: EncodingSettings = AT_128,
) -> Labelled:
    """Label a sample of negatives: which of them are relevant after all, and what share of each source that makes.

    Pairs are drawn with known probabilities: all alike, or those first that decide most (draw: uncertain). Every answer
    is kept at once: the same command goes on where it stopped, and a larger -n adds to what is there.

    Raises:
        InputError: a collection, source, judge or file of answers that cannot be read, or nobody to judge.
        FailureError: a judge failed, or the labels cannot be written; what was answered is kept.
    """
    loaded = reading.open(collection)
    named = as_sources(sources, loaded)
    negatives = {source.name: source.negatives for source in named}
    universe = pairs_of(negatives)
    belief: Floats | None = None
    settings = {"n": labelling.n, "with": _name(labelling.ask), "checks": labelling.checks, "as": labelling.labeller}
    if labelling.draw == UNCERTAIN:
        encoder, store = encoding.open(loaded)
        settings |= {"draw": labelling.draw, "split": labelling.split, "encoder": encoder.fingerprint}
        belief = belief_before_labels(
            universe, loaded, negatives, encoder, store, split=labelling.split, seed=labelling.seed
        )
    drawn = universe.draw(labelling.n, seed=labelling.seed, belief=belief)
    digests = {"collection": loaded.digest, **{source.name: source.digest for source in named}}
    made = provenance("label", settings, inputs=digests, seed=labelling.seed)
    sheet = Sheet.of(
        Path(labelling.output), loaded, universe, drawn, provenance=made, with_texts=labelling.ask == TABLE
    )
    for given in labelling.files:
        sheet.add(Labels.of(given, loaded), person=labelling.labeller)
    sheet.write()
    facts = {"collection": loaded.name, "seed": labelling.seed, "settings": settings}
    opened = partial(open_judge, collection=loaded, encoding=encoding, llm=llm)
    program, notes = ask_open(labelling, sheet, universe, opened)
    errors = errors_of(labelling, sheet, loaded, universe, program)
    models = {}
    if isinstance(program, RelevanceJudge):
        models[program.name] = program.asked.use(llm.price)
    return Labelled(sheet.labels(), universe, drawn.rows, sheet.shown, errors, models, facts, sheet.path, belief, notes)


def _name(who: Any) -> str | None:
    """Who judges, for provenance."""
    return who if who is None or isinstance(who, str) else getattr(who, "name", type(who).__name__)


def _check_relabelling(relabelling: RelabelSettings, llm: LLMSettings) -> None:
    """Refuse judges that there are not, and options that nobody heeds."""
    kinds = [kind_of(each, "judge")[0] for each in relabelling.judges if isinstance(each, str)]
    if "llm" not in kinds:
        why = f"without {spelled('judge', 'llm:MODEL')}; give it"
        refuse({**relabelling.changed("question"), **llm.changed()}, why)
    if not relabelling.judges:
        refuse(relabelling.changed("budget", "checks"), f"without a {spelled('judge')}, which it is for; leave it out")


@door(check=_check_relabelling)
def relabel(
    collection: CollectionLike,
    source: SourceLike,
    *,
    relabelling: RelabelSettings,
    reading: CollectionSettings,
    llm: LLMSettings,
    encoding: EncodingSettings = AT_128,
) -> Relabelled:
    """Relabel negatives: say of each row whether it is an answer after all, by a cascade of judges within a budget.

    The table gains `relevance`, a probability, and `verdict`: positive, negative or unsure. Rows that are called
    positive are no longer trained on as negatives, and can join the judgements: --promoted FILE here, and
    --add-judgements FILE wherever the collection is used. Rejected rows are judged, too, and stay rejected.

    Raises:
        InputError: a collection, source, judge or labels that cannot be read, or no row of a judged query.
        FailureError: a judge failed; what a language model answered is kept, and the same command goes on.
    """
    loaded = reading.open(collection)
    named = as_source(source, loaded)
    encoder, store = encoding.open(loaded)
    taken = [name for name in ("relevance", "verdict") if name in named.negatives.table.column_names]
    if taken:
        raise InputError(f"{named.name} has {' and '.join(taken)} already; relabel the table it was made from")
    labels = [Labels.of(each, loaded) for each in relabelling.files]
    known = Labels(pa.concat_tables(each.table for each in labels)) if labels else None
    judges = [_opened(each, loaded, encoding, llm, relabelling) for each in relabelling.judges]
    evidence = evidence_of(loaded, named.negatives, encoder, store, split=relabelling.split, seed=relabelling.seed)
    cascade = Cascade(loaded, pairs_of_rows(named.negatives, evidence.rows), evidence, seed=relabelling.seed)
    wanted = relabelling.positive_precision, relabelling.negative_precision
    unasked = cascade.verdicts(*wanted)[0]
    if known is not None:
        cascade.take(known)
    uses = [
        cascade.ask(judge, count, checks=relabelling.checks)
        for judge, count in zip(judges, relabelling.questions(len(evidence.rows)), strict=True)
    ]
    uses = [cascade.seen(use) for use in uses]
    verdict, high, low = cascade.verdicts(*wanted)
    settings = {
        "judges": [each.name for each in judges],
        **{name: getattr(relabelling, name) for name in RECORDED},
        "labels": [len(each) for each in labels],
        "encoder": encoder.fingerprint,
    }
    digests = {"collection": loaded.digest, named.name: named.digest}
    table = marked(named.negatives, evidence.rows, cascade.probability, verdict, relabelling.unsure == REJECT)
    made = provenance("relabel", settings, inputs=digests, seed=relabelling.seed)
    return Relabelled.of(
        table.with_provenance(made),
        title=f"{named.name}, relabelled",
        collection=loaded,
        split=relabelling.split,
        judges=tuple(uses),
        evidence=dict(zip(("constant", *evidence.names), cascade.crowd.weights.tolist(), strict=True)),
        high=high,
        low=low,
        lost=int(((unasked == NEGATIVE) & (verdict == UNSURE)).sum()) if relabelling.unsure == REJECT else 0,
        answers=cascade.labels(),
        models={judge.name: judge.asked.use(llm.price) for judge in judges if isinstance(judge, RelevanceJudge)},
    )


def _opened(
    given: str | Judge | Answer,
    collection: Collection,
    encoding: EncodingSettings,
    llm: LLMSettings,
    relabelling: RelabelSettings,
) -> PairJudge:
    if isinstance(given, str) or is_judge(given):
        return open_judge(given, collection, encoding=encoding, llm=llm, question=relabelling.question)
    return ByFunction(cast("Answer", given))
