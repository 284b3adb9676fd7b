"""The door of relabelling."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.labels import Labels
from foils.data.negatives import Negatives
from foils.data.resolve import CollectionLike, CollectionSettings, SourceLike, as_source
from foils.data.store import provenance
from foils.encode.opening import AT_128, EncodingSettings
from foils.labelling.evidence import evidence_of
from foils.labelling.judging import ByFunction, PairJudge, RelevanceJudge, is_judge, kind_of, open_judge
from foils.labelling.relabel_settings import REJECT, RelabelSettings
from foils.labelling.relabelled import Relabelled
from foils.labelling.relabelling import POSITIVE, UNSURE, Cascade
from foils.labelling.settings import Answer
from foils.llm import LLMSettings
from foils.rating.judges import Judge
from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.options import refuse, spelled

RECORDED = ("budgets", "checks", "positive_precision", "negative_precision", "unsure", "split")
NOT_SURE = "may be relevant"
RELEVANT = "relabelled positive"


def _check(relabelling: RelabelSettings, llm: LLMSettings) -> None:
    """Refuse judges that there are not, and options that nobody heeds."""
    kinds = [kind_of(each, "judge")[0] for each in relabelling.judges if isinstance(each, str)]
    if "llm" not in kinds:
        why = f"without {spelled('judge', 'llm:MODEL')}; give it"
        refuse({**relabelling.changed("question"), **llm.changed()}, why)
    if not relabelling.judges:
        refuse(relabelling.changed("budget", "checks"), f"without a {spelled('judge')}, which it is for; leave it out")


@door(check=_check)
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
    cascade = Cascade(loaded, pairs_of(named.negatives, evidence.rows), evidence, seed=relabelling.seed)
    if known is not None:
        cascade.take(known)
    uses = [
        cascade.ask(judge, count, checks=relabelling.checks)
        for judge, count in zip(judges, relabelling.questions(len(evidence.rows)), strict=True)
    ]
    unknown = (np.nan, np.nan)
    errors = [cascade.errors.get(use.name, unknown) for use in uses]  # later judges may have shown them better
    uses = [replace(use, sensitivity=se, specificity=sp) for use, (se, sp) in zip(uses, errors, strict=True)]
    verdict, high, low = cascade.verdicts(relabelling.positive_precision, relabelling.negative_precision)
    settings = {
        "judges": [each.name for each in judges],
        **{name: getattr(relabelling, name) for name in RECORDED},
        "labels": [len(each) for each in labels],
        "encoder": encoder.fingerprint,
    }
    digests = {"collection": loaded.digest, named.name: named.digest}
    table = _marked(named.negatives, evidence.rows, cascade.probability, verdict, relabelling.unsure == REJECT)
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


def pairs_of(negatives: Negatives, rows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> pa.Table:
    """Return the pairs of some rows; a text is null where the document is in the collection."""
    table = negatives.table.take(pa.array(rows))
    text = table["text"] if "text" in table.column_names else pa.nulls(len(table), pa.large_string())
    return pa.table({"query_id": table["query_id"], "doc_id": table["doc_id"], "text": text})


def _marked(
    negatives: Negatives,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    probability: np.ndarray[tuple[int], np.dtype[np.float64]],
    verdict: np.ndarray[tuple[int], np.dtype[np.str_]],
    unsure: bool,
) -> Negatives:
    """The table with what was found; rows without evidence have neither, and stay as they are."""
    relevance, said = np.full(len(negatives), np.nan), np.full(len(negatives), None, object)
    relevance[rows], said[rows] = probability, verdict
    table = negatives.with_columns({"relevance": pa.array(relevance), "verdict": pa.array(said, pa.string())})
    table = table.reject(said == POSITIVE, RELEVANT)
    return table.reject((said == UNSURE) & unsure, NOT_SURE)
