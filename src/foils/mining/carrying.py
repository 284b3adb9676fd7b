"""What becomes of planted positives when the tables that they would be in are fused or filtered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from foils.data.collection import ALL_QUERIES, Collection
from foils.data.negatives import REQUIRED, Negatives, negatives_table
from foils.data.recapture import Recapture
from foils.data.tables import Provenance
from foils.mining.filters import filter_negatives
from foils.mining.pairs import Judged, PairScorer, Rule
from foils.mining.planting import LISTED, Planted, Replay, Sample
from foils.runtime.errors import InputError


def replay_of(negatives: Negatives, collection: Collection) -> Replay | None:
    """Read from a table's provenance what became of the positives that were planted.

    None where it does not say, where rows were rejected since, or where the collection is another one.

    Raises:
        InputError: what it says cannot be read.
    """
    facts, recapture = negatives.provenance.get("planted"), Recapture.of_table(negatives)
    if facts is None or recapture is None:
        return None
    try:
        samples = tuple(_sample(each) for each in facts["samples"])
        queries, documents = collection.query_rows(facts["query_id"]), collection.document_rows(facts["doc_id"])
        scores = [np.nan if score is None else score for score in facts["score"]]
        columns = (queries.tolist(), documents.tolist(), facts["rank"], scores, facts["keep"])
        listed = np.array(list(zip(*columns, strict=True)), LISTED)
        if not {sample.split for sample in samples} <= {*collection.splits, ALL_QUERIES}:
            return None
        rows = [collection.queries_of(sample.split) for sample in samples]
        drawn = zip(rows, samples, strict=True)
        planted = _of_all([Planted.drawn(collection.known_positives, each, sample) for each, sample in drawn])
    except (KeyError, TypeError, ValueError, IndexError, OverflowError, pa.ArrowException) as error:
        raise InputError(f"what a table says of planted positives cannot be read ({error}); mine it again") from error
    labelled = collection.known_positives.counts_of(rows[0]).sum()
    same = recapture.labelled == labelled and planted.contain(listed["query"], listed["document"]).all()
    return Replay(planted, samples, listed) if same else None


def carried_by_filter(
    negatives: Negatives,
    marked: Negatives,
    collection: Collection,
    rules: Sequence[Rule],
    *,
    scorer: PairScorer | None = None,
) -> Provenance:
    """Return what the provenance of a filtered table says of recapture: planted positives are filtered as its rows are.

    Args:
        negatives: the table.
        marked: what filtering made of it.
        collection: documents, queries, judgements.
        rules: that it was filtered by.
        scorer: that the rules saw the scores of.

    Returns:
        `recapture` and `planted`; nothing where they are not known of the table, or a rule does not say how it reads
        judgements, or compares with positives and no query has two.
    """
    replay = replay_of(negatives, collection)
    if replay is None or not all(isinstance(rule, Judged) for rule in rules):
        return {}
    if any(getattr(rule, "compares", False) for rule in rules):
        two = tuple(replace(each, least=2) for each in replay.samples)
        replay = _within(replay, replay.planted.where(replay.planted.weights >= 2), two)
    reduced, listed = replay.planted.taken_from(collection), replay.listed
    judged = [rule.with_judgements(reduced) for rule in rules if isinstance(rule, Judged)]
    known = [rule for rule in judged if rule is not None]
    if not len(replay.planted.query_rows) or len(known) < len(rules):
        return {}
    filtered = filter_negatives(_as_negatives(listed, collection), reduced, known, scorer=scorer)
    return _said(replace(replay, listed=_with_keep(listed, filtered.keep)), negatives, marked, collection)


def carried_by_fusion(
    sources: Mapping[str, Negatives],
    fused: Negatives,
    collection: Collection,
    fuse: Callable[[Mapping[str, Negatives]], Negatives],
) -> Provenance:
    """Return what the provenance of a fused table says of recapture: lists with the planted positives are fused anew.

    Args:
        sources: name -> the tables.
        fused: what fusing made of them.
        collection: documents, queries, judgements.
        fuse: how they were fused.

    Returns:
        `recapture` and `planted`; nothing where one of the sources does not say what became of planted positives.
    """
    replays = [replay_of(negatives, collection) for negatives in sources.values()]
    known = [replay for replay in replays if replay is not None]
    if not known or len(known) < len(replays):
        return {}
    samples = tuple(dict.fromkeys(sample for replay in known for sample in replay.samples))
    planted = _of_all([replay.planted for replay in known])
    if not len(planted.query_rows):
        return {}
    parts = zip(sources.items(), known, strict=True)
    again = fuse({name: _planted_in(each, _within(replay, planted, ()), collection) for (name, each), replay in parts})
    queries, documents = again.rows_in(collection)
    own = planted.contain(queries, documents)
    listed = np.zeros(int(own.sum()), LISTED)
    listed["query"], listed["document"] = queries[own], documents[own]
    for name in ("rank", "score"):
        listed[name] = again.table[name].to_numpy()[own]
    listed["keep"] = again.keep[own]
    return _said(Replay(planted, samples, listed), next(iter(sources.values())), fused, collection)


def _planted_in(negatives: Negatives, replay: Replay, collection: Collection) -> Negatives:
    """The lists of the planted queries, each with its planted document where it would be, the rest one rank later."""
    table = negatives.reject(np.zeros(len(negatives), bool), "").table
    table = table.select([name for name in (*REQUIRED.names, "text", "keep", "reason") if name in table.column_names])
    table = table.filter(pa.array(np.isin(collection.query_rows(table["query_id"]), replay.planted.query_rows)))
    at = np.full(len(collection.queries), np.iinfo(np.int32).max, np.int64)
    at[replay.listed["query"]] = replay.listed["rank"]
    ranks = table["rank"].to_numpy()
    later = ranks + (ranks >= at[collection.query_rows(table["query_id"])])
    table = table.set_column(table.column_names.index("rank"), "rank", pa.array(later, pa.int32()))
    own = _as_negatives(replay.listed, collection).table
    return Negatives(pa.concat_tables([table, own], promote_options="default"))


def _within(replay: Replay, planted: Planted, samples: tuple[Sample, ...]) -> Replay:
    """What became of some of the planted, drawn by further samples."""
    listed = replay.listed[planted.contain(replay.listed["query"], replay.listed["document"])]
    return Replay(planted, tuple(dict.fromkeys((*replay.samples, *samples))), listed)


def _of_all(parts: Sequence[Planted]) -> Planted:
    """What several samples have in common."""
    first, *others = parts
    common = np.ones(len(first.weights), bool)
    for each in others:
        common &= first.among(*each.pairs)
    return first.where(common)


def _as_negatives(listed: npt.NDArray[np.void], collection: Collection) -> Negatives:
    queries = collection.queries["query_id"].take(pa.array(listed["query"]))
    documents = collection.documents["doc_id"].take(pa.array(listed["document"]))
    table = Negatives(negatives_table(queries, documents, "planted", listed["rank"], listed["score"]))
    return table.reject(~listed["keep"], "rejected where it was planted")


def _with_keep(listed: npt.NDArray[np.void], keep: npt.NDArray[np.bool_]) -> npt.NDArray[np.void]:
    marked = listed.copy()
    marked["keep"] = keep
    return marked


def _said(replay: Replay, before: Negatives, after: Negatives, collection: Collection) -> Provenance:
    labelled = before.provenance["recapture"]["labelled"]
    recapture = replay.recapture(labelled, int(after.keep.sum()))
    return {"recapture": recapture.to_json(), "planted": replay.to_json(collection)}


def _sample(facts: Mapping[str, Any]) -> Sample:
    return Sample(str(facts["split"]), int(facts["least"]), int(facts["most"]), int(facts["seed"]))
