"""The options of searching: which dimensions are kept, in which index, how that is chosen, and which go together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from foils.data.records import Complaints, json_objects, text_field
from foils.data.run import deployed
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings, refuse, spelled

if TYPE_CHECKING:
    from foils.encode.nearest import Index

    IndexLike = str | Index
    AnswersLike = str | Path | Mapping[str, str | None]
else:
    AnswersLike = Path
    IndexLike = str

Method = Literal["none", "dime", "eclipse", "rdime", "rocchio"]
METHODS = ("none", "dime", "eclipse", "rdime", "rocchio")
TUNABLE = ("dime", "eclipse", "rocchio")  # their shares and weights want choosing
SecondPass = Literal["index", "rerank"]
SECOND_PASSES = ("index", "rerank")
INDEXES = ("exact", "flat", "hnsw", "ivf")
FEEDBACK_DEPTH = 1_000  # the paper's k
CANDIDATES = 1_000  # what is ranked again, likewise
K_PLUS = {"eclipse": 2, "rocchio": 2}  # the least of Eclipse's grid; DIME and RDIME were published with 1
EMBEDS = {"model": lambda model: deployed(model) != "bm25", "why": "which ranks by BM25 and embeds no text"}
RANKS_BY_BM25 = {"model": lambda model: deployed(model) != "model", "why": "which does not rank by BM25"}
WEIGHTS = {  # what each method makes use of
    "none": (),
    "dime": ("k_plus", "share"),
    "rdime": ("k_plus", "scaled"),
    "eclipse": ("k_plus", "k_minus", "alpha", "beta", "share"),
    "rocchio": ("k_plus", "weight"),
}


@dataclass(frozen=True, kw_only=True)
class ImportanceSettings(Settings):
    """How the dimensions of a query are weighed, and how many are kept.

    Attributes:
        k_plus: Number of best documents whose mean is the sun; by default 2 for rocchio and, as published, 2 for
            eclipse, 1 for the others. Answers take the sun's place.
        k_minus: Number of last documents whose mean is the moon (eclipse).
        alpha: Weight of the sun (eclipse).
        beta: Weight of the moon (eclipse).
        share: Share of the dimensions that is kept (dime, eclipse; rdime finds its own).
        weight: Length of the step towards the sun, as a share of the query's length (rocchio).
        scaled: Bring the sun to the query's length before rdime looks for noise. As published, it is not; then the
            share that is kept depends on how long the documents' vectors are.
    """

    heading = "Dimensions"

    k_plus: Annotated[int | None, Option(least=1)] = None
    k_minus: Annotated[int, Option(least=1)] = 5
    alpha: Annotated[float, Option(above=0)] = 1.0
    beta: Annotated[float, Option(least=0)] = 0.5
    share: Annotated[float, Option(above=0, most=1)] = 0.8
    weight: Annotated[float, Option(least=0)] = 0.2
    scaled: bool = True

    def of(self, method: Method) -> DimensionSettings:
        """Return these settings for a method."""
        return DimensionSettings(method, **{each.name: getattr(self, each.name) for each in fields(ImportanceSettings)})


@dataclass(frozen=True, kw_only=True)
class DimensionSettings(ImportanceSettings):
    """How to choose each query's dimensions: a method, and its settings; `k_plus` is known.

    Attributes:
        method: `none` (keep all), `dime`, `eclipse`, `rdime`, or `rocchio` (a step towards the sun).
        moon_pool: Draw the moon at random from this many last documents (eclipse, its Table 3), none of which makes
            the sun; None: take the last ones.
    """

    method: Annotated[Method, Option(names=METHODS)] = field(default="eclipse", kw_only=False)
    k_plus: Annotated[int, Option(least=1)] = None  # type: ignore[assignment]  # the method's, from here on
    moon_pool: Annotated[int | None, Option(least=1)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.k_plus is None:
            object.__setattr__(self, "k_plus", K_PLUS.get(self.method, 1))
        if self.moon_pool is not None and self.moon_pool < self.k_minus:
            raise InputError(f"moon_pool {self.moon_pool}; expected at least k_minus {self.k_minus}")

    @property
    def keeps_all(self) -> bool:
        """Whether no query can change."""
        idle = self.weight == 0 if self.method == "rocchio" else self.method in ("dime", "eclipse") and self.share == 1
        return self.method == "none" or idle

    def to_json(self) -> dict[str, Any]:
        """Return the settings for JSON."""
        return {"method": self.method, **vars(self)}


@dataclass(frozen=True, kw_only=True)
class SearchSettings(Settings):
    """Whose queries are searched for, where, how deep, and how settings are chosen.

    Attributes:
        split: Split of the judgements whose queries are searched for.
        top: Number of documents returned for each query. Default: 1,000, and 10 for a query that is given.
        feedback_depth: Length of the feedback list, whose best documents make the sun and whose last ones the moon.
        second_pass: What the second pass ranks: all documents (index), or those that the first pass retrieved, 1,000
            or as many as are returned (rerank).
        index: Exact search, or an index of faiss. In Python also an index over the documents, in their order.
        tune: Choose the settings on this split, by the published grid (dime, eclipse) or by that of rocchio.
        measure: Measure by which settings are chosen: nDCG, AP, RR or R as ir_measures writes them, as nDCG@10.
    """

    split: str = "test"
    top: Annotated[int | None, Option(least=1)] = None
    feedback_depth: Annotated[int, Option(least=1)] = FEEDBACK_DEPTH
    second_pass: Annotated[SecondPass, Option(names=SECOND_PASSES)] = "index"
    index: Annotated[IndexLike, Option(names=INDEXES)] = "exact"
    tune: Annotated[str | None, Option(metavar="SPLIT")] = None
    measure: str = "nDCG@10"

    def to_json(self) -> dict[str, Any]:
        """Return for JSON what is searched, how deep, and how settings were chosen."""
        return {
            "second_pass": self.second_pass,
            "index": self.index if isinstance(self.index, str) else type(self.index).__name__,
            "tune": {"split": self.tune, "measure": self.measure} if self.tune else None,
            "top": self.top,
            "feedback_depth": self.feedback_depth,
        }


def chosen_method(dimensions: Method | None, *, tune: str | None, answers: object) -> Method:
    """Return the method of a search: the one given; else rocchio to be tuned, rdime with answers."""
    return dimensions or ("rocchio" if tune is not None else "none" if answers is None else "rdime")


def check_search(
    dimensions: Method | None,
    searching: SearchSettings,
    importance: ImportanceSettings,
    answers: object,
    run: object,
    query: object,
    queries: object,
) -> None:
    """Raise an InputError for options of a search that do not go together, before anything is read."""
    if query or queries:
        of_splits = {name: value for name, value in searching.changed().items() if name != "top"}
        idle = {"dimensions": dimensions, "answers": answers, "run": run, **of_splits, **importance.changed()}
        refuse(idle, "on queries that are given, which are searched for as they are; leave it out")
        return
    method = chosen_method(dimensions, tune=searching.tune, answers=answers)
    tune, flag, given = searching.tune, spelled("dimensions"), importance.changed()
    idle = {name: value for name, value in given.items() if name not in WEIGHTS[method]}
    depth = searching.changed("feedback_depth")
    if method == "none":
        idle |= {**depth, "answers": answers, **searching.changed("second_pass")}
    elif answers is not None:  # they are the sun in place of documents
        idle |= {**importance.changed("k_plus"), **({} if method == "eclipse" else depth)}
    also = f" and {spelled('answers')}" if answers is not None and method != "none" else ""
    refuse(idle, f"with {flag} {method}{also}; leave it out, or take another of {flag}: {', '.join(METHODS)}")
    if tune is None:
        refuse(searching.changed("measure"), f"without {spelled('tune')}; give it")
        return
    if method not in TUNABLE:
        raise InputError(f"{flag} {method} has nothing to tune; leave {spelled('tune')} out")
    if tune == searching.split:
        raise InputError(
            f"{spelled('tune')} {tune} {spelled('split')} {tune}: settings chosen on the queries that are searched for "
            "say nothing of others; tune on another split, or see foils.searching.cross_validate"
        )
    why = f"on {spelled('tune')}, which chooses them; leave one of them out"
    refuse(given, why)


def read_answers(path: str | Path) -> dict[str, str | None]:
    """Read lines of {"query_id": …, "answer": …}; an answer that is null is none.

    The vectors of answers take the place of the sun (LLM DIME and LLM Eclipse).

    Raises:
        InputError: no such file.
        FormatError: a line of another form, a blank answer, or a second answer to a query; all are listed.

    Source: DIME (Faggioli et al. 2024), LLM DIM estimators; Eclipse eq. 2 and 4.
    """
    complaints = Complaints(path)
    answers: dict[str, str | None] = {}
    for line, record in json_objects(path, complaints):
        query, answer = text_field(record.get("query_id")), text_field(record.get("answer"))
        missing = "answer" in record and record["answer"] is None
        if query is None or not (missing or (answer or "").strip()):
            complaints.add('expected {"query_id": string, "answer": a text that is not empty, or null}', line)
        elif query in answers:
            complaints.add(f"{query!r} has an answer on an earlier line already", line)
        else:
            answers[query] = answer
    complaints.raise_if_any()
    return answers
