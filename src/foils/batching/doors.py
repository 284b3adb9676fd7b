"""The door of batching."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import pyarrow as pa

from foils.batching.conflicts import known_conflicts
from foils.batching.methods import METHODS, TEACHER, method_named
from foils.batching.plan import BatchPlan, plan_epochs
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourceLike, as_source
from foils.data.tables import provenance
from foils.data.texts import DocumentTexts
from foils.data.training_rows import RowSettings, training_rows
from foils.encode.opening import AT_128, EncodingSettings
from foils.runtime.doors import door
from foils.runtime.errors import InputError
from foils.runtime.keyed import settings_option
from foils.runtime.options import Option
from foils.runtime.surroundings import ScaleSettings


@door
def batch(
    collection: CollectionLike,
    method: Annotated[str, Option(flag="--with", names=METHODS)] = "hobit",
    source: Annotated[SourceLike | None, Option(metavar="SOURCE")] = None,
    *,
    batch_size: Annotated[int, Option(least=1)] = 128,
    epochs: Annotated[int, Option(least=1)] = 1,
    settings: Annotated[Mapping[str, Any] | None, settings_option(words=True)] = None,
    seed: Annotated[int, Option(least=0)] = 0,
    rows: RowSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    encoding: EncodingSettings = AT_128,
) -> BatchPlan:
    """Plan batches whose pairs are hard negatives for each other, and show how hard, clean and varied they are.

    The plan is a table of epoch, batch, position, query_id, doc_id and, of triplets, negative_id. Training builds
    batches anew from the current model in each epoch. A plan shows the first epoch of a training with the same rows,
    batch size and seed, and what other methods would do.

    Args:
        method: How batches are filled.
        source: Negatives to train on, [NAME=]PATH. Triplets and lists leave out queries without one. In Python also a
            table of negatives or a DataFrame.
        batch_size: Rows per batch.
        epochs: Epochs to plan, all with the same vectors.
        settings: A setting of the method, as alpha=0.5; may be given several times. In Python a dictionary.
        seed: Seed of the batches; the same seed gives the same bytes.

    Raises:
        InputError: a collection or source that cannot be read, or options that have no effect together.
        UnknownNameError: no such method, or no such setting of it.
    """
    method_named(method, settings or {})  # before anything is read
    own = dict(settings or {})
    if TEACHER in own:
        raise InputError(f"{TEACHER}: no effect on a plan, whose vectors are the encoder's; leave it out")
    rows = rows.completed("pairs" if source is None else "triplets")
    loaded = reading.open(collection)
    negatives = None if source is None else as_source(source, loaded)
    trained = training_rows(loaded, negatives.negatives if negatives else None, **vars(rows))
    encoder, store = encoding.open(loaded)
    queries = store.embed(encoder, loaded.query_texts(trained.query_rows), "query").take(slice(None))
    documents = store.embed(encoder, DocumentTexts(loaded, trained.doc_rows), "document").take(slice(None))
    known = known_conflicts(loaded, trained.query_rows, trained.doc_rows)
    shape: dict[str, Any] = {"batch_size": batch_size, "epochs": epochs}
    plan = plan_epochs(queries, documents, name=method, settings=own, seed=seed, conflicts=known, **shape)
    chosen = {"with": method, **(settings or {}), **shape, **vars(rows)}
    inputs = {"collection": loaded.digest, **({"negatives": negatives.digest} if negatives else {})}
    named = {"name": encoder.name, "fingerprint": encoder.fingerprint}
    history = provenance("batch", chosen, inputs=inputs, seed=seed, encoder=named)
    negative_ids = None
    if negatives is not None and rows.form == "triplets":
        negative_ids = negatives.negatives.table["doc_id"].take(pa.array(trained.negatives[:, 0]))
    return BatchPlan(loaded, trained, plan, negative_ids, history)
