"""Groups of options of foils search, and what becomes of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foils.cli.show import say
from foils.runtime.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from numpy.random import Generator

    from foils.data import Collection
    from foils.encode import Vectors
    from foils.searching import DimensionSettings, Embedded, Grid, Index

INDEXES = ("exact", "flat", "hnsw", "ivf")
READINGS = "few-irrelevant (k⁻ in 2..6), few-relevant (k⁺ in 2..6), both, or spread (2,280 settings of both)"


@dataclass(frozen=True)
class DimensionOptions:
    """How the dimensions of a query are chosen."""

    k_plus: Annotated[
        int | None, typer.Option(min=1, help="Best documents that make the sun. Default: eclipse 2, others 1.")
    ] = None
    k_minus: Annotated[int, typer.Option(min=1, help="Last documents that make the moon (eclipse).")] = 5
    alpha: Annotated[float, typer.Option(help="Weight of the sun (eclipse).")] = 1.0
    beta: Annotated[float, typer.Option(help="Weight of the moon (eclipse).")] = 0.5
    share: Annotated[float, typer.Option(help="Share of dimensions kept (dime, eclipse).")] = 0.8
    moon_pool: Annotated[int | None, typer.Option(min=1, help="Draw the moon from so many last documents.")] = None

    def settings(self, method: str) -> DimensionSettings:
        """Return the settings of a way to choose dimensions."""
        from foils.searching import DimensionSettings

        k_plus = self.k_plus or (2 if method == "eclipse" else 1)
        return DimensionSettings(
            method,  # type: ignore[arg-type]  # checked there
            k_plus,
            self.k_minus,
            self.alpha,
            self.beta,
            self.share,
            self.moon_pool,
        )


@dataclass(frozen=True)
class DepthOptions:
    """How many documents: of the result, of the feedback, and ranked again."""

    top: Annotated[int, typer.Option("--top", min=1, help="Number of documents returned for each query.")] = 1000
    feedback_depth: Annotated[
        int,
        typer.Option(
            min=1, help="Length of the feedback list, whose best documents make the sun and whose last ones the moon."
        ),
    ] = 1000
    rerank_depth: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Number of retrieved documents that are ranked again (--second-pass retrieved, --tune, --experiment). "
            "At least --top; default: 1000, or --top where that is more.",
        ),
    ] = None

    def check(self) -> None:
        """Raise an InputError where fewer documents are ranked again than returned, before anything is embedded."""
        if self.rerank_depth is not None and self.rerank_depth < self.top:
            raise InputError(
                f"--rerank-depth {self.rerank_depth} is below --top {self.top}: what is returned is taken from what is "
                "ranked again; raise it, or lower --top"
            )

    def facts(self, *, reranks: bool) -> dict[str, Any]:
        """Return the depths for JSON; that of ranking again is None where all documents are ranked again."""
        reranked = (self.rerank_depth or max(self.top, 1000)) if reranks else None
        return {"top": self.top, "feedback_depth": self.feedback_depth, "rerank_depth": reranked}


@dataclass(frozen=True)
class IndexOptions:
    """What is searched."""

    second_pass: Annotated[
        str, typer.Option(help="index: rank all documents again; retrieved: only those of the first pass.")
    ] = "index"
    index: Annotated[str, typer.Option(help="exact; or of faiss: flat, hnsw, ivf.")] = "exact"
    index_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Load the faiss index from here, or build and save it. An index of other vectors, another encoder or "
            "another kind is refused.",
        ),
    ] = None
    rebuild_index: Annotated[
        bool, typer.Option("--rebuild-index", help="Build the index anew and write it over the --index-file.")
    ] = False

    def check(self) -> None:
        """Raise an InputError for an unknown index, or a file for exact search, before anything is embedded."""
        if self.index not in INDEXES:
            raise UnknownNameError("index", self.index, INDEXES)
        if self.index == "exact" and self.index_file:
            raise InputError("--index-file goes with --index flat, hnsw or ivf; exact search needs no file")
        if self.rebuild_index and not self.index_file:
            raise InputError("--rebuild-index goes with --index-file FILE, whose index it builds anew")

    def facts(self) -> dict[str, Any]:
        """Return for JSON what is searched."""
        return {
            "second_pass": self.second_pass,
            "index": self.index,
            "index_file": str(self.index_file) if self.index_file else None,
        }

    def open(self, documents: Vectors, encoder: str) -> Index:
        """Return the index over the documents: read from its file, or built, and kept where there is to be a file.

        Args:
            documents: vectors to search.
            encoder: fingerprint of what made them.

        Raises:
            InputError: the file's index was built from something else.
        """
        from foils.searching import ExactIndex, FaissIndex

        path = self.index_file
        if self.index == "exact":
            return ExactIndex(documents)
        if path and path.exists() and not self.rebuild_index:
            return FaissIndex.load(path, documents, kind=self.index, encoder=encoder)
        built = FaissIndex.build(documents, self.index)  # type: ignore[arg-type]  # one of INDEXES
        if path:
            built.save(path, documents, encoder=encoder)
        return built


@dataclass(frozen=True)
class TuneOptions:
    """How settings are chosen on another split."""

    tune: Annotated[
        str | None,
        typer.Option(metavar="SPLIT", help="Choose the settings on this split, by the published grid (dime, eclipse)."),
    ] = None
    measure: Annotated[str, typer.Option(help="To choose settings by: nDCG@10, AP, RR@10, …")] = "nDCG@10"
    reading: Annotated[str, typer.Option(help=f"Of the published grid: {READINGS}.")] = "both"

    def check(self, split: str) -> None:
        """Raise an InputError for settings that would be chosen on the queries they are reported on."""
        if self.tune == split:
            raise InputError(
                f"--tune {self.tune} --split {split}: settings chosen on the queries that are searched for say "
                "nothing of others; tune on another split, or see --experiment for cross-validation"
            )

    def check_queries(self, collection: Collection, split: str) -> None:
        """Raise an InputError where the split to choose settings on shares queries with the one searched for."""
        if self.tune is None:
            return
        tuned, searched = ({*collection.judgements(name)["query_id"].to_pylist()} for name in (self.tune, split))
        if shared := sorted(tuned & searched):
            raise InputError(
                f"the splits {self.tune!r} and {split!r} share {len(shared):,} queries: {', '.join(shared[:5])}…; "
                "settings chosen on the queries that are searched for say nothing of others; take them out of one"
            )

    def facts(self) -> dict[str, Any] | None:
        """Return for JSON how settings were chosen; None where they were given."""
        return {"split": self.tune, "measure": self.measure, "reading": self.reading} if self.tune else None

    def grid(self, method: str, moon_pool: int | None) -> Grid:
        """Return the published settings of a way to choose dimensions.

        Raises:
            InputError: it has none to choose.
        """
        from foils.searching import dime_grid, published_grid

        if method == "dime":
            return dime_grid()
        if method != "eclipse":
            raise InputError(f"--dimensions {method} has nothing to tune; leave --tune out")
        return published_grid(self.reading, moon_pool=moon_pool)  # type: ignore[arg-type]  # checked there

    def chosen(
        self, embedded: Embedded, settings: DimensionSettings, *, depths: DepthOptions, rng: Generator
    ) -> DimensionSettings:
        """Return the best settings of the grid on a split's queries, and print them."""
        from foils.searching import choose_settings

        grid = self.grid(settings.method, settings.moon_pool)
        found = choose_settings(
            embedded,
            grid,
            measure=self.measure,
            k=depths.top,
            feedback_depth=depths.feedback_depth,
            rerank_depth=depths.rerank_depth,
            rng=rng,
        )
        say(f"chosen on {embedded.split}: {found}")
        return found
