"""The scores of a cell: what every predictor says of its sources, all of them scored together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from foils.data import Negatives
from foils.encode import DEFAULT_MODEL, EncoderSettings, SentenceEncoder, VectorStore, load_encoder
from foils.runtime.errors import FormatError
from foils.runtime.files import write_sealed
from foils.scoring import ScoreSettings, score_sources
from foils.studies.cells import SCORES, SCORES_FILE, known_sources, source_file
from foils.studies.checks import train_settings
from foils.studies.kept import read_json
from foils.studies.kinds import Encoders
from foils.studies.predictors import decided_worths, predict
from foils.studies.settings import StudySettings
from foils.studies.sources import table_digest

if TYPE_CHECKING:
    from foils.studies.run import OpenCell

KEPT = ("score_with", "probe")
"""Options of an earlier call that hold for a later one which leaves them open."""


def score_cell(cell: OpenCell, store: VectorStore) -> None:
    """Write the predictors of every source of a cell, unless they are there."""
    path = cell.folder / SCORES_FILE
    known = read_json(path, SCORES) if path.is_file() else {"of": {}, "sources": {}}
    settings = _options(cell.settings, known["of"])
    deciding = cell.kind.deciding(cell.model, cell.collection)
    digests = known_sources(cell.folder)
    there = {name: digest for name, digest in digests.items() if source_file(cell.folder, name, digest).is_file()}
    basis = {"sources": there, **{name: getattr(deciding, name) for name in ("starts", "in_batch", "recurrence")}}
    basis |= {name: getattr(settings, name) for name in KEPT}
    if known["of"] == basis:
        return
    sources = {name: _table(cell, name, digest) for name, digest in there.items()}
    encoder = scoring_encoder(cell, settings)
    scoring = ScoreSettings(split=settings.split, hybrids=1, temperature=settings.temperature, replicates=0)
    scores = score_sources(cell.collection, sources, encoder, store, scoring)
    predicted = predict(scores, decided_worths(scores, sources, encoder, store, deciding))
    for name, value in _probed(cell, sources, settings, known).items():
        predicted[name]["probe"] = value
    predictors = {**known["sources"], **predicted}  # of sources whose rows are gone, as they were
    write_sealed(path, {"of": basis, "sources": predictors})


def scoring_encoder(cell: OpenCell, settings: StudySettings) -> SentenceEncoder:
    """Return the encoder that scores: the one that is named, or the model before training; of rerankers, the default.

    Texts are cut as in training, and have the prompts of the encoder itself.
    """
    if settings.score_with is None and isinstance(cell.kind, Encoders):
        return cell.kind.encoder(cell.model)
    length = train_settings(settings, 0).max_length
    return load_encoder(settings.score_with or DEFAULT_MODEL, EncoderSettings(max_length=length, device=cell.device))


def _options(settings: StudySettings, before: Mapping[str, Any]) -> StudySettings:
    """Return the settings, with the options of the call before where this one leaves them open."""
    open_ones = [name for name in KEPT if getattr(settings, name) is None]
    return replace(settings, **{name: before[name] for name in open_ones if isinstance(before.get(name), str)})


def _table(cell: OpenCell, name: str, digest: str) -> Negatives:
    if name in cell.sources:
        return cell.sources[name]
    path = source_file(cell.folder, name, digest)
    negatives = Negatives.read(path)
    if table_digest(negatives) != digest:
        raise FormatError(f"not the rows that {name} was trained on; remove it, or give that source again", path)
    return negatives


def _probed(
    cell: OpenCell, sources: Mapping[str, Negatives], settings: StudySettings, known: Mapping[str, Any]
) -> dict[str, float]:
    """Return source → value of the probe; what the same probe found in an earlier call is not done again."""
    from foils.studies.probe import probe

    if settings.probe is None:
        return {}
    same = known["sources"] if known["of"].get("probe") == settings.probe else {}
    probed = {name: same[name]["probe"] for name in sources if "probe" in same.get(name, {})}
    missing = {name: negatives for name, negatives in sources.items() if name not in probed}
    return {**probed, **probe(cell.collection, missing, settings, settings.probe, device=cell.device)}
