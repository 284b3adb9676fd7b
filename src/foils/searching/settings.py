"""The options of searching: which dimensions are kept, in which index, and how that is chosen."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from foils.data import Run
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, spelled

if TYPE_CHECKING:
    IndexLike = str | Any  # Any: an `Index`, or faiss' own
    RunLike = str | Path | Run
else:
    RunLike = Path
    IndexLike = str

DIMENSION_ARGS = "dimension_args"  # the program's option that takes the settings of dimensions as its keys
Method = Literal["none", "dime", "eclipse", "rdime", "selective"]
METHODS = ("none", "dime", "eclipse", "rdime", "selective")
TUNABLE = ("dime", "eclipse")  # their shares and weights want choosing
SecondPass = Literal["index", "retrieved"]
SECOND_PASSES = ("index", "retrieved")
Reading = Literal["few-irrelevant", "few-relevant", "both", "spread"]
READINGS = ("few-irrelevant", "few-relevant", "both", "spread")
INDEXES = ("exact", "flat", "hnsw", "ivf")
FEEDBACK_DEPTH = 1_000  # the paper's k
RERANK_DEPTH = 1_000  # likewise
PUBLISHED_K_PLUS = {"eclipse": 2}  # the least of Eclipse's grid; DIME and RDIME were published with 1


@dataclass(frozen=True, kw_only=True)
class ImportanceSettings(Settings):
    """How the dimensions of a query are weighed, and how many are kept.

    Attributes:
        k_plus: Number of best documents whose mean is the sun; by default, as published, 2 for eclipse, 1 for the
            others. Answers take the sun's place.
        k_minus: Number of last documents whose mean is the moon (eclipse).
        alpha: Weight of the sun (eclipse).
        beta: Weight of the moon (eclipse).
        share: Share of the dimensions that is kept (dime, eclipse; rdime finds its own).
        moon_pool: Draw the moon at random from this many last documents (eclipse), none of which makes the sun.
        lead: Least difference between the cosines of the best and the third document with the query where the feedback
            is trusted (selective).
        agreement: Least difference between the mean cosine of the five best documents with one another and that with
            the query where the feedback is trusted (selective).
    """

    heading = "Dimensions"

    k_plus: Annotated[int | None, Option(least=1, within=DIMENSION_ARGS)] = None
    k_minus: Annotated[int, Option(least=1, within=DIMENSION_ARGS)] = 5
    alpha: Annotated[float, Option(above=0, within=DIMENSION_ARGS)] = 1.0
    beta: Annotated[float, Option(least=0, within=DIMENSION_ARGS)] = 0.5
    share: Annotated[float, Option(above=0, most=1, within=DIMENSION_ARGS)] = 0.8
    moon_pool: Annotated[int | None, Option(least=1, within=DIMENSION_ARGS)] = None
    lead: Annotated[float, Option(within=DIMENSION_ARGS)] = 0.08
    agreement: Annotated[float, Option(within=DIMENSION_ARGS)] = -0.075

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.moon_pool is not None and self.moon_pool < self.k_minus:
            raise InputError(
                f"{spelled('moon_pool', self.moon_pool)}; expected at least {spelled('k_minus', self.k_minus)}"
            )

    def of(self, method: Method) -> DimensionSettings:
        """Return these settings for a method."""
        return DimensionSettings(method, **vars(self))

    def chosen_by(self, method: Method, tune: str | None) -> str | None:
        """Return how the settings of a method were chosen: `tuned`, `given`, or `default`, on no query at all.

        None: the method has no share or weight to choose.
        """
        if method not in TUNABLE:
            return None
        return "tuned" if tune is not None else "given" if self.changed() else "default"


@dataclass(frozen=True, kw_only=True)
class DimensionSettings(ImportanceSettings):
    """How to choose each query's dimensions: a method, and its settings; `k_plus` is known.

    Attributes:
        method: `none` (keep all), `dime`, `eclipse`, `rdime`, or `selective` (rdime where the feedback is trusted).
    """

    method: Annotated[Method, Option(names=METHODS)] = field(default="eclipse", kw_only=False)
    k_plus: Annotated[int, Option(least=1)] = None  # type: ignore[assignment]  # the method's, from here on

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k_plus is None:
            object.__setattr__(self, "k_plus", PUBLISHED_K_PLUS.get(self.method, 1))

    @property
    def keeps_all(self) -> bool:
        """Whether no query can lose a dimension."""
        return self.method == "none" or (self.method in ("dime", "eclipse") and self.share == 1)

    def to_json(self) -> dict[str, Any]:
        """Return the settings for JSON."""
        return {"method": self.method, **vars(self)}


@dataclass(frozen=True, kw_only=True)
class SearchSettings(Settings):
    """Whose queries are searched for, and how deep.

    Attributes:
        split: Split of the judgements whose queries are searched for.
        top: Number of documents returned for each query.
        feedback_depth: Length of the feedback list, whose best documents make the sun and whose last ones the moon.
        rerank_depth: Number of retrieved documents that are ranked again, where not all documents are. Default: 1000,
            or the number returned where that is more.
        seed: Seed of random moons, and of cross-validation; the same seed gives the same bytes.
    """

    split: str = "test"
    top: Annotated[int, Option(least=1)] = 1000
    feedback_depth: Annotated[int, Option(least=1)] = FEEDBACK_DEPTH
    rerank_depth: Annotated[int | None, Option(least=1)] = None
    seed: Annotated[int, Option(least=0)] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rerank_depth is not None and self.rerank_depth < self.top:
            raise InputError(
                f"{spelled('rerank_depth')} {self.rerank_depth} is below {spelled('top')} {self.top}: what is returned "
                f"is taken from what is ranked again; raise it, or lower {spelled('top')}"
            )

    def depths(self, *, reranks: bool) -> dict[str, Any]:
        """Return the depths for JSON; that of ranking again is None where all documents are ranked again."""
        reranked = (self.rerank_depth or max(self.top, RERANK_DEPTH)) if reranks else None
        return {"top": self.top, "feedback_depth": self.feedback_depth, "rerank_depth": reranked}


@dataclass(frozen=True, kw_only=True)
class IndexSettings(Settings):
    """What is searched.

    Attributes:
        second_pass: What the second pass ranks: all documents (index), or only those of the first pass (retrieved).
        index: Exact search, or an index of faiss. In Python also an index over the documents, in their order.
        index_file: File of the faiss index: it is loaded from there or, where there is none, built and saved. An index
            of other vectors, another encoder or another kind is refused.
    """

    heading = "Index"

    second_pass: Annotated[SecondPass, Option(names=SECOND_PASSES)] = "index"
    index: Annotated[IndexLike, Option(names=INDEXES)] = "exact"
    index_file: Annotated[Path | None, Option(metavar="FILE")] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.index_file and self.index not in INDEXES[1:]:
            name, file = spelled("index"), spelled("index_file")
            raise InputError(f"{file} goes with {name} flat, hnsw or ivf; other searches need no file")

    def to_json(self) -> dict[str, Any]:
        """Return for JSON what is searched."""
        return {
            "second_pass": self.second_pass,
            "index": self.index if isinstance(self.index, str) else type(self.index).__name__,
            "index_file": str(self.index_file) if self.index_file else None,
        }


@dataclass(frozen=True, kw_only=True)
class ChoiceSettings(Settings):
    """How settings are chosen.

    Attributes:
        measure: Measure by which settings are chosen, as ir_measures names it: nDCG@10, AP, AP(rel=2), Rprec, …
        reading: Eclipse's grid: k⁺ in 2..6 and k⁻ in 2..14 as in its authors' notebook (few-relevant), the other way
            around (few-irrelevant), both, or 2,280 settings of both (spread).
    """

    heading = "Dimensions"

    measure: str = "nDCG@10"
    reading: Annotated[Reading, Option(names=READINGS, within=DIMENSION_ARGS)] = "few-relevant"


@dataclass(frozen=True, kw_only=True)
class TuneSettings(ChoiceSettings):
    """How the settings of a search are chosen.

    Attributes:
        tune: Choose the settings on this split, by the published grid (dime, eclipse).
    """

    tune: Annotated[str | None, Option(metavar="SPLIT")] = None

    def to_json(self) -> dict[str, Any] | None:
        """Return for JSON how settings were chosen; None where they were given."""
        return {"split": self.tune, "measure": self.measure, "reading": self.reading} if self.tune else None


def chosen_method(dimensions: Method | None = None, *, tune: str | None = None, answered: bool = False) -> Method:
    """Return the method of a search: the one given, or else eclipse where it is tuned and selective where nothing is.

    Selective judges feedback, so that with answers it is rdime.
    """
    if dimensions is not None:
        return dimensions
    return "eclipse" if tune is not None else "rdime" if answered else "selective"


@dataclass(frozen=True, kw_only=True)
class SweepSettings(ChoiceSettings):
    """How the settings of systems that are compared are chosen.

    Attributes:
        folds: Folds of the cross-validation.
    """

    folds: Annotated[int, Option(least=2)] = 5
