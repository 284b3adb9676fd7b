"""The door of scoring: the decision, and the published scores beside it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from foils.data.read import CollectionLike, CollectionSettings
from foils.data.sources import SourcesLike, as_sources
from foils.deciding import BeliefSettings, Candidate, Decision, score_and_decide
from foils.deciding.page import score_page
from foils.encode.vectors import AT_128, EncodingSettings
from foils.labelling.doors import SCORING, AskLike, Labelled, label
from foils.llm import LLMSettings
from foils.runtime.files import without_nan, write_text
from foils.runtime.options import Option, door
from foils.runtime.parallel import ScaleSettings
from foils.runtime.results import Table
from foils.scoring.scores import Scores, ScoreSettings, SourceScore, score_sources

BENEFIT = "benefit"
RANKED_BY = (BENEFIT, "eci_sem", "eci")


@dataclass(frozen=True)
class Scored(Scores):
    """A decision between sources, with their published scores.

    Attributes:
        decision: which negatives to train on; None where a published score ranks, and there are no labels.
    """

    decision: Decision | None = None

    @property
    def ranked(self) -> list[SourceScore]:
        """The sources, best first by what `by` says; hybrids, which have no benefit, come after them."""
        if self.decision is None or self.by != BENEFIT:
            return super().ranked
        place = {each.name: at for at, each in enumerate(self.decision.candidates)}
        return sorted(self.sources, key=lambda score: place.get(score.name, len(place)))

    @property
    def ranking(self) -> list[str]:
        """The names of the sources in that order; by the benefit without hybrids."""
        return [score.name for score in self.ranked if not (self.decision and self.by == BENEFIT and score.hybrid)]

    def published(self) -> list[Table]:
        """Return the ranking by a published score."""
        return replace(self, by="eci" if self.by == "eci" else "eci_sem", decision=None).tables()

    def tables(self) -> list[Table]:
        """Return the decision, and the published scores where these rank."""
        published = [] if self.by == BENEFIT else super().tables()
        return [*([self.decision.table()] if self.decision else []), *published]

    def report(self, path: str | Path) -> None:
        """Write the report as one HTML page."""
        write_text(path, score_page(self, self.decision, self.published()))

    def to_json(self) -> dict[str, Any]:
        """Return scores.json."""
        known = {} if self.decision is None else self.decision.worths
        published = super().to_json()
        unknown = [name for name in Candidate.__dataclass_fields__ if name not in ("name", "records")]
        for source in published["sources"]:
            facts = asdict(known[source["name"]]) if source["name"] in known else dict.fromkeys(unknown)
            source |= without_nan({name: facts[name] for name in unknown})
        decision = None if self.decision is None else self.decision.to_json()
        return {**published, "decision": decision}


@door(needs={"llm": {"labels_by": "llm"}})
def score(
    collection: CollectionLike,
    sources: SourcesLike,
    *,
    rank_by: Annotated[str, Option(names=RANKED_BY)] = BENEFIT,
    labels_by: Annotated[AskLike | None, Option(metavar="WHO")] = None,
    scoring: ScoreSettings,
    belief: BeliefSettings,
    reading: CollectionSettings,
    scale: ScaleSettings,
    llm: LLMSettings,
    encoding: EncodingSettings = AT_128,
) -> Scored:
    """Decide which negatives to train on, before any training, with the encoder that training starts from.

    Sources, random negatives and none are compared by what they are expected to gain. Shown are the
    choice, up to which share of unlabelled answers it holds, and what to type next; the published
    scores stand on the page and in the JSON. Use the prompts and the maximum length of the training.

    Args:
        rank_by: What the ranking goes by: the benefit, or a published score. By a published score
            nothing is decided, and the collection's other documents need no vectors, unless labels
            are given.
        labels_by: Who judges sixty negatives first, as `foils label --with` has them judged:
            cross-encoder:MODEL, llm[:MODEL] or bi-encoder[:MODEL]. What a language model costs is said
            before it is asked. Its errors are estimated from labelled positives and random documents.
            In Python also a judge or a function.

    Example:
        foils score scifact/ bm25.parquet dense.parquet llm=negatives.jsonl --report page.html --json scores.json
        foils score scifact/ bm25.parquet dense.parquet --labels-by cross-encoder:my-reranker/

    Raises:
        InputError: a collection or source that cannot be read, or sources without a negative.
    """
    loaded = reading.open(collection)
    negatives = {source.name: source.negatives for source in as_sources(sources, loaded)}
    if labels_by is not None:
        kind = labels_by.partition(":")[0] if isinstance(labels_by, str) else ""
        judging = vars(llm) if kind == "llm" else vars(encoding) if kind in SCORING else {}
        how = {**judging, "ask": labels_by, "answers": [] if belief.labels is None else [belief.labels]}
        with TemporaryDirectory() as folder:
            output = Path(folder) / "labels.parquet"
            labelled: Labelled = label(loaded, negatives, output=output, seed=scoring.seed, **how)
        belief = replace(belief, labels=labelled.labels)
    encoder, store = encoding.open(loaded)
    decidable = len(loaded.positives(scoring.split)) > 1  # one query decides nothing
    if decidable and (rank_by == BENEFIT or belief.labels is not None):
        scores, decision = score_and_decide(loaded, negatives, encoder, store, scoring, belief)
    else:
        scores, decision = score_sources(loaded, negatives, encoder, store, scoring), None
    by = "eci_sem" if rank_by == BENEFIT and not decidable else rank_by
    return Scored(**{**vars(scores), "by": by}, decision=decision)
