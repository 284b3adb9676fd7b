"""The options of mining, generating, fusing and filtering."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foils.data.collection import Collection
from foils.data.records import Complaints, json_objects, text_field
from foils.data.sources import SourceLike
from foils.encode.opening import CrossEncoderLike
from foils.mining.filters import (
    REFERENCES,
    HoldsAnswer,
    LabelledElsewhere,
    Margin,
    PositiveScores,
    ScoreAbove,
    ScoreBelow,
)
from foils.mining.fusion import FUSIONS
from foils.mining.pairs import Draw, Rule
from foils.mining.sampling import SimANS, Uniform
from foils.runtime.errors import InputError, UnknownNameError
from foils.runtime.options import Option, Settings, refuse, spelled

if TYPE_CHECKING:
    AnswersLike = str | Path | Mapping[str, Sequence[str]]
    PoolLike = SourceLike | Sequence[str]
else:
    AnswersLike = Path
    PoolLike = str

RANKING_ARGS, RULE_ARGS = "ranking_args", "rule_args"  # options of the program that take settings as their keys
BEST = "best"  # ranks that a curve chooses
DRAWS = ("top", "uniform", "simans")
SCORERS = ("own", "encoder", "cross-encoder")
_MARGINS = ("margin", "relative_margin", "share_of_positive")
RULES = (*_MARGINS, "max_score", "min_score", "answers", "same_query")


def parsed_ranks(text: str) -> tuple[int, int | None] | str:
    """Read `FROM-TO`: from rank FROM, counted from 0, up to, not with, rank TO; without TO: no end; or `best`.

    Raises:
        InputError: it is not of this form.
    """
    if text == BEST:
        return text
    first, dash, end = text.partition("-")
    if not (first.isdecimal() and dash and (end.isdecimal() or not end)):
        raise InputError(f"{spelled('ranks')} {text}: expected FROM-TO, as in 20-110, FROM- for no end, or {BEST}")
    return int(first), int(end) if end else None


@dataclass(frozen=True, kw_only=True)
class TakeSettings(Settings):
    """How many negatives, of which queries.

    Attributes:
        top: Negatives per query.
        split: Split of the judgements; its queries that have a positive get negatives.
        near_duplicate: Reject documents of at least this Jaccard similarity to a positive, by their sets of tokens;
            above 1, only those that equal one.
        seed: Seed of everything that is drawn; the same seed gives the same bytes.
    """

    top: Annotated[int, Option(least=1)] = 10
    split: str = "train"
    near_duplicate: Annotated[float, Option(above=0, within=RULE_ARGS)] = 0.9
    seed: Annotated[int, Option(least=0)] = 0


@dataclass(frozen=True, kw_only=True)
class WindowSettings(TakeSettings):
    """Which of the ranked documents become negatives.

    Attributes:
        split: Split of the judgements; its queries that have a positive get negatives. all: every query of the
            collection, with or without a positive.
        ranks: Take negatives from these ranks alone, counted from 0; TO is not included. best: from the ranks that are
            worth most for the training. In Python a pair, as (0, 100), or (20, None) for no end.
        draw: How negatives are taken from these ranks: top takes the first, uniform draws each with the same chance,
            simans:A,B prefers those whose score is near the positive's, as in simans:100,-0.1.
        keep_short: Leave lists short where rows are rejected. Default: the next in rank takes the place.
    """

    split: str = "train"
    ranks: Annotated[tuple[int, int | None] | str | None, Option(parse=parsed_ranks, metavar="FROM-TO")] = None
    draw: str = "top"
    keep_short: Annotated[bool, Option(within=RULE_ARGS)] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.ranks, str):
            object.__setattr__(self, "ranks", parsed_ranks(self.ranks))
        self._simans()

    def _simans(self) -> tuple[float, float]:
        """The numbers a and b of a draw by SimANS."""
        name, _, numbers = self.draw.partition(":")
        if name not in DRAWS or (numbers and name != "simans"):
            raise UnknownNameError(spelled("draw"), self.draw, DRAWS)
        try:
            a, b = map(float, numbers.split(",")) if numbers else (SimANS.a, SimANS.b)
        except ValueError as error:
            raise InputError(f"{spelled('draw')} {self.draw}: expected simans:A,B, as in simans:100,-0.1") from error
        return a, b

    def drawn(self, positives: Callable[[], PositiveScores]) -> Draw | None:
        """Return how negatives are drawn from the window, None for its first; `positives` are scored for SimANS."""
        if self.draw == "top":
            return None
        if self.draw == "uniform":
            return Uniform()
        a, b = self._simans()
        return SimANS(positives(), a=a, b=b)


@dataclass(frozen=True, kw_only=True)
class RankingSettings(Settings):
    """What ranks the documents.

    Attributes:
        k1: BM25's saturation of the term frequency.
        b: BM25's weight of the document length.
        pool: What a cross-encoder ranks anew: random, bm25, dense, several of them as bm25,dense; or a source, as
            [NAME=]PATH. In Python also a table of negatives.
        pool_depth: Documents of the pool for each query.
    """

    heading = "Ranking"

    k1: Annotated[float, Option(least=0, within=RANKING_ARGS)] = 1.2
    b: Annotated[float, Option(least=0, most=1, within=RANKING_ARGS)] = 0.75
    pool: Annotated[PoolLike, Option(metavar="POOL")] = "bm25"
    pool_depth: Annotated[int, Option(least=1, within=RANKING_ARGS)] = 100

    def pools(self) -> list[str] | None:
        """Return the names of the rankings that are the pool; None where it is a source.

        Raises:
            UnknownNameError: a name that is none of these, and no path of a source.
        """
        known = ("random", "bm25", "dense")
        if isinstance(self.pool, str):
            names = [name.strip() for name in self.pool.split(",")]
        elif isinstance(self.pool, (list, tuple)):
            names = list(self.pool)
        else:
            return None
        unknown = [name for name in names if name not in known]
        if unknown and isinstance(self.pool, str) and any(sign in self.pool for sign in "=/."):
            return None
        if unknown:
            raise UnknownNameError(spelled("pool"), unknown[0], known)
        return names


@dataclass(frozen=True, kw_only=True)
class FilterSettings(Settings):
    """Rules, each of which rejects rows and says why.

    Attributes:
        margin: Reject negatives that score within this margin of the positive.
        relative_margin: Reject negatives that score within this share of the positive's score, as 0.05.
        share_of_positive: Reject negatives that score above this share of the positive's score, as 0.95 (NV-Retriever).
        against: Which of the query's positives margins are held against.
        max_score: Reject negatives that score above this.
        min_score: Reject negatives that score below this.
        answers: Reject documents that contain an answer to the query, by a file of JSON lines {"query_id", "answers"}.
            In Python also a dictionary: query id -> answers.
        same_query: Reject what is labelled relevant for another query of at least this Jaccard similarity, as 0.9.
        scorer: Whose scores the rules compare: own (the ranking's or the source's), encoder, or cross-encoder.
        cross_encoder: A sentence-transformers cross-encoder: a folder or hub name. In Python also a CrossEncoder.
        score_positives: Add a rejected row with its score for each labelled positive, for exports with scores.
    """

    heading = "Rules"

    margin: float | None = None
    relative_margin: float | None = None
    share_of_positive: Annotated[float | None, Option(within=RULE_ARGS)] = None
    against: Annotated[str, Option(names=REFERENCES, within=RULE_ARGS)] = "minimum"
    max_score: Annotated[float | None, Option(within=RULE_ARGS)] = None
    min_score: Annotated[float | None, Option(within=RULE_ARGS)] = None
    answers: Annotated[AnswersLike | None, Option(within=RULE_ARGS)] = None
    same_query: Annotated[float | None, Option(above=0, most=1, within=RULE_ARGS)] = None
    scorer: Annotated[str, Option(names=SCORERS)] = "own"
    cross_encoder: Annotated[CrossEncoderLike | None, Option(metavar="MODEL")] = None
    score_positives: Annotated[bool, Option(within=RULE_ARGS)] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.changed(*_MARGINS):
            names = ", ".join(map(spelled, _MARGINS))
            refuse(self.changed("against"), f"without a margin; give one of {names}")

    def rules(self, collection: Collection, positives: Callable[[], PositiveScores]) -> list[Rule]:
        """Return the rules, in the order in which they are asked; `positives` are scored for margins."""
        rules: list[Rule] = []
        if self.same_query is not None:
            rules.append(LabelledElsewhere(collection, threshold=self.same_query))
        if self.answers is not None:
            rules.append(HoldsAnswer(_answers(self.answers, collection)))
        if self.changed(*_MARGINS):
            scores = positives()
            if self.margin is not None:
                rules.append(Margin(scores, absolute=self.margin, against=self.against))
            if self.relative_margin is not None:
                rules.append(Margin(scores, relative=self.relative_margin, against=self.against))
            if self.share_of_positive is not None:
                rules.append(Margin(scores, relative=1 - self.share_of_positive, against=self.against))
        if self.max_score is not None:
            rules.append(ScoreAbove(self.max_score))
        if self.min_score is not None:
            rules.append(ScoreBelow(self.min_score))
        return rules

    def describe(self) -> dict[str, Any]:
        """Return the rules' settings for provenance."""
        facts = {
            **self.changed(*_MARGINS),
            **({"against": self.against} if self.changed(*_MARGINS) else {}),
            **self.changed("max_score", "min_score", "answers", "same_query"),
            "scorer": self.scorer,
            **self.changed("score_positives"),
        }
        if self.answers is not None:
            facts["answers"] = Path(self.answers).name if isinstance(self.answers, (str, Path)) else "given"
        return facts


def _answers(answers: AnswersLike, collection: Collection) -> Mapping[str, Sequence[str]]:
    """Read a file of answers; a dictionary is taken as it is."""
    if isinstance(answers, Mapping):
        return answers
    complaints = Complaints(Path(answers))
    by_query: dict[str, list[str]] = {}
    queries = set(collection.queries["query_id"].to_pylist())
    for line, record in json_objects(Path(answers), complaints):
        query, texts = text_field(record.get("query_id")), record.get("answers")
        if query is None or not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
            complaints.add('expected {"query_id": string, "answers": [string, …]}', line)
        elif query not in queries:
            complaints.add(f"unknown query_id {json.dumps(query)}: not in the collection {collection.name}", line)
        else:
            by_query[query] = [*by_query.get(query, []), *texts]
    complaints.settle()
    return by_query


def parsed_weights(texts: Sequence[str]) -> dict[str, float]:
    """Read `NAME=NUMBER` of each text.

    Raises:
        InputError: a text that is not of this form.
    """
    weights = {}
    for text in texts:
        name, equals, value = text.rpartition("=")
        try:
            weights[name] = float(value)
        except ValueError:
            equals = ""
        if not equals or not name:
            raise InputError(f"{spelled('weights')} {text}: expected NAME=NUMBER, as in bm25=2")
    return weights


@dataclass(frozen=True, kw_only=True)
class FusionSettings(Settings):
    """How several sources become one.

    Attributes:
        method: union orders by the best rank, interleave takes turns, rrf adds reciprocal ranks, weighted adds scores
            that are scaled to [0, 1] in each list.
        top: Negatives per query. Default: all.
        rrf_k: Constant k of rrf; the larger it is, the less the tops of the lists count.
        weights: Weight of a source's scores in weighted; may be given several times. In Python a dictionary: name of
            the source -> weight. Default: 1 each.
    """

    method: Annotated[str, Option(names=tuple(FUSIONS))] = "union"
    top: Annotated[int | None, Option(least=1)] = None
    rrf_k: Annotated[float, Option(least=0)] = 60.0
    weights: Annotated[
        Mapping[str, float] | None,
        Option(flag="--weight", parse=parsed_weights, repeated=True, metavar="NAME=NUMBER"),
    ] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, method in (("rrf_k", "rrf"), ("weights", "weighted")):
            if self.method != method:
                refuse(self.changed(name), f"without {spelled('method')} {method}; give it, or leave it out")
