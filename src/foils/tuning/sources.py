"""Which negatives are mined for a tuning, and the decision between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from foils.data import Collection, Negatives
from foils.data.splitting import drawn_judgements
from foils.deciding.mine import mine
from foils.mining.settings import parsed_ranks
from foils.tuning.kept import Kept
from foils.tuning.kinds import Kind

SAMPLE = "train, sampled"
"""Split of the queries that the decision looks at."""
SAMPLED = 2_000
NONE = "none"  # no mined negatives, among what is decided between


@dataclass(frozen=True)
class Mining:
    """What mining needs.

    Attributes:
        collection: that is mined. `kind`: what is tuned, with the encoder that mines.
        kept: where the tables are kept. `of`: digests of what they are made from. `seed`: of random negatives.
    """

    collection: Collection
    kind: Kind
    kept: Kept
    of: Mapping[str, str]
    seed: int

    def mined(self, source: str) -> Negatives:
        """Return the negatives of all training queries from one source: a method, and ranks counted from 0."""
        return self._mined(source, self.collection, "train", "all")

    def sampled(self, count: int) -> Collection:
        """Return the collection with one more split, of so many queries of train: what else is known stays known."""
        table = drawn_judgements(self.collection, "train", count, self.seed)
        return replace(self.collection, qrels={**self.collection.qrels, SAMPLE: table})

    def decided(self, names: list[str], queries: int, *, batch_size: int) -> dict[str, Any]:
        """Mine every source for some of the training queries, and decide between them (`foils score`).

        Args:
            names: of the sources.
            queries: of train that are looked at, drawn.
            batch_size: rows of a batch, the others of which are negatives, too, where they count.

        Returns:
            The `source` (None: no mined negatives), the decision's `sentences`, and what it says of all `sources`.
        """
        in_batch = batch_size - 1 if self.kind.in_batch else 0
        key = {**self.of, "sources": names, "queries": queries, "in_batch": in_batch, "seed": self.seed}
        return self.kept.facts("decision", key, lambda: self._decision(names, queries, in_batch))

    def _decision(self, names: list[str], queries: int, in_batch: int) -> dict[str, Any]:
        from foils.deciding import BeliefSettings, decide

        collection = self.sampled(queries)
        mined = {name: self._mined(name, collection, SAMPLE, queries) for name in names}
        tables = {name: table for name, table in mined.items() if table.keep.any()}
        if not tables:
            return {"source": None, "sentences": ["No source has a negative."], "sources": [], "label_next": None}
        belief = BeliefSettings(in_batch=in_batch, starts=self.kind.starts)
        decision = decide(
            collection, tables, self.kind.encoder, self.kind.store, belief, split=SAMPLE, seed=self.seed,
            candidates=[*tables, NONE],
        )  # fmt: skip
        said = ("false_share_low", "false_share_high", "benefit", "gain", "verdict")
        sources = [{"name": each.name, **{name: getattr(each, name) for name in said}} for each in
                   decision.candidates if each.name in tables]  # fmt: skip
        return {"source": decision.source, "sentences": list(decision.sentences), "sources": sources,
                "label_next": decision.label_next}  # fmt: skip

    def _mined(self, source: str, collection: Collection, split: str, queries: object) -> Negatives:
        method, _, ranks = source.partition(" ")
        more: dict[str, Any] = {"encoder": self.kind.encoder, "vectors": self.kind.store} if method == "dense" else {}
        if method == "random":
            more["seed"] = self.seed
        window = parsed_ranks(ranks) if ranks else None
        key = {**self.of, "source": source, "queries": queries, "seed": self.seed}
        return self.kept.negatives(
            "mined", key, lambda: mine(collection, method, split=split, top=self.kind.top, ranks=window, **more)
        )
