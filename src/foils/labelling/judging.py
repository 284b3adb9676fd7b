"""Who judges pairs of a query and a document, and how often a program is right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeGuard, cast

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.labels import CHECKS, LABELS, Labels, pair_keys
from foils.encode.opening import EncodingSettings
from foils.labelling.sheet import Pair, PairPool, shown_of
from foils.llm import Client, Form, LLMSettings, Questions, Sampling, Template
from foils.llm.prompts import TemplateLike
from foils.llm.questions import ATTEMPTS, LONGEST
from foils.rating import Candidates, Judge, LLMJudge, Pairs, QuestionSettings, ask
from foils.rating.opening import JudgeSettings, Opening
from foils.rating.opening import open_judge as open_compared
from foils.runtime.errors import InputError
from foils.runtime.options import spelled
from foils.statistics.survey import Share, corrected_share

Answer = Callable[[str, str, str], bool | None]
"""A function of query, labelled positive and document that says whether the document is relevant; None: skip."""
TERMINAL, PAGE = "terminal", "page"
BY_PEOPLE = (TERMINAL, PAGE)


def is_judge(who: Any) -> TypeGuard[Judge]:
    """Tell whether an object is a judge of `foils rate`."""
    return hasattr(who, "judge")


SCORING = ("bi-encoder", "cross-encoder", "pairwise")
VERSION = "relevance-1"
FORM = Form(
    "relevant",
    'Answer in JSON: {"relevant": true} or {"relevant": false}.',
    lambda value: value if isinstance(value, bool) else None,
    {"type": "boolean"},
)


class PairJudge(Protocol):
    """Judges pairs one by one.

    Attributes:
        name: what to call it; there is a colon in it.
    """

    name: str

    def judge(self, pairs: Sequence[Pair]) -> Iterable[bool | None]:
        """Return for each pair whether its document is relevant; None where there is no answer."""
        ...


class AgainstPositive:
    """A judge of `foils rate`, who compares the document with the labelled positive.

    A document is relevant where P(document ≻ positive) ≥ ½. A pair without a positive has no answer.
    """

    def __init__(self, name: str, compared: Judge) -> None:
        self.name, self._compared = name, compared

    def judge(self, pairs: Sequence[Pair]) -> list[bool | None]:
        """Return the judge's answers, asked in both orders where order can matter."""
        known = [pair for pair in pairs if pair.positive]
        lists = [[("positive", pair.positive), ("document", pair.document)] for pair in known]
        ids, queries = [str(place) for place in range(len(known))], [pair.query for pair in known]
        candidates, first = Candidates.of_lists(ids, queries, lists), np.arange(len(known)) * 2
        preference = ask(self._compared, candidates, Pairs(candidates.offsets, first + 1, first)).preference
        answers = iter([None if np.isnan(p) else p >= 0.5 for p in preference.tolist()])
        return [next(answers) if pair.positive else None for pair in pairs]


class ByFunction:
    """A function of query, labelled positive and document that answers True, False, or None for no answer."""

    def __init__(self, function: Answer) -> None:
        self.name, self._function = f"function:{getattr(function, '__name__', type(function).__name__)}", function

    def judge(self, pairs: Sequence[Pair]) -> Iterator[bool | None]:
        """Yield its answers.

        Raises:
            InputError: it answers anything else.
        """
        for pair in pairs:
            answer: Any = self._function(pair.query, pair.positive, pair.document)
            if answer is not None and not isinstance(answer, (bool, np.bool_)) and answer not in (0, 1):
                raise InputError(f"the function answered {answer!r}; expected True, False, or None to skip a pair")
            yield None if answer is None else bool(answer)


class RelevanceJudge:
    """A language model that is asked about each pair by itself whether the document is relevant to the query.

    Args:
        client: how to reach the model.
        folder: of the answers, so that none is asked for twice.
        question: a prompt with {query}, {document}, and optionally {answer}, where the form is explained; without it,
            that stands at the end. None: the package's own.
        sampling: how answers are drawn.

    Attributes:
        name: what to call it.
        questions: asks them, and counts what that takes.

    Raises:
        InputError: a file of a prompt that is not there.
        FormatError: slots of a prompt that are not those expected.
    """

    def __init__(
        self,
        client: Client,
        folder: str | Path,
        question: TemplateLike | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.name, slots = f"llm:{client.model}", {"needed": ("query", "document"), "optional": ("answer",)}
        self._template = Template.of(question, "foils.labelling", VERSION, **slots)
        described = {"prompt": self._template.text, "attempts": ATTEMPTS, "longest": LONGEST}
        self.questions = Questions(client, folder, FORM, sampling, kind="relevance", described=described)

    def judge(self, pairs: Sequence[Pair]) -> list[bool | None]:
        """Return the model's answers; None where none came, or none that can be read.

        Raises:
            As `Questions.ask`.
        """
        prompt = self.questions.prompt
        return self.questions.ask([prompt(self._template, query=each.query, document=each.document) for each in pairs])


def open_judge(
    given: str | Judge | Answer,
    collection: Collection,
    *,
    encoding: EncodingSettings,
    llm: LLMSettings,
    question: TemplateLike | None = None,
) -> PairJudge:
    """Return the judge of this name, `KIND:MODEL` as for `foils rate`, one of its objects, or a function, for pairs.

    Raises:
        InputError: no such kind of judge, or no model.
    """
    if not isinstance(given, str):
        return AgainstPositive(f"judge:{given.name}", given) if is_judge(given) else ByFunction(cast("Answer", given))
    opening = Opening(JudgeSettings(judge=given), encoding, llm, QuestionSettings())
    opened = open_compared(given, opening, collection)
    if isinstance(opened, LLMJudge):
        return RelevanceJudge(opened.questions.client, llm.folder(collection), question, llm.sampling())
    return AgainstPositive(f"{kind_of(given)[0]}:{opened.name}", opened)


def kind_of(name: str, option: str = "ask") -> tuple[str, str]:
    """Return the kind of a judge that is named, and what stands behind the colon.

    Raises:
        InputError: no such kind.
    """
    kind, _, where = name.partition(":")
    if kind not in (*SCORING, "llm"):
        ways = [*(BY_PEOPLE if option == "ask" else ()), *(f"{each}:MODEL" for each in (*SCORING, "llm"))]
        raise InputError(f"{spelled(option, name)}: nobody is called that; expected one of {', '.join(ways)}")
    return kind, where


Counts = tuple[int, int]  # how many, of how many


@dataclass(frozen=True)
class JudgeErrors:
    """How often a judge was right.

    Attributes:
        sensitivity: how many of how many relevant pairs it called relevant.
        specificity: how many of how many others it did not.
        basis: which pairs these are, in words.
        bounds: whether the others were easier to judge than negatives are, so that a share that is corrected by them is
            an upper bound.
    """

    sensitivity: Counts
    specificity: Counts
    basis: str
    bounds: bool = False

    def corrected(self, share: Share, *, seed: int) -> Share | None:
        """Return a share with these errors taken into account; None where they are not known.

        Where they are `bounds` its interval begins at 0, and it has no value of its own.
        """
        if not self.known:
            return None
        corrected = corrected_share(share, self.sensitivity, self.specificity, seed=seed)
        return replace(corrected, share=np.nan, low=0.0) if self.bounds else corrected

    @property
    def known(self) -> bool:
        """Whether there was a pair of each kind."""
        return self.sensitivity[1] > 0 and self.specificity[1] > 0

    def to_json(self) -> dict[str, Any]:
        """Return the counts, and what they rest on."""
        return {"sensitivity": self.sensitivity, "specificity": self.specificity, "basis": self.basis}


def judge_errors(labels: Labels, universe: PairPool, judge: str) -> JudgeErrors:
    """Return how often a judge was right on the pairs that people judged, too.

    Where these are not pairs of both kinds: on labelled positives and on documents drawn at random (`judge_known`), if
    it judged any.
    """
    people, own = (labels.match(universe.table, judge=who)[0] for who in (None, judge))
    sensitivity, specificity = (
        (int((own[people == truth] == truth).sum()), int(np.isfinite(own[people == truth]).sum())) for truth in (1, 0)
    )
    errors = JudgeErrors(sensitivity, specificity, "pairs that people judged, too")
    positives, others = labels.checks(judge)
    if errors.known or not positives[1]:
        return errors
    return JudgeErrors(positives, others, "labelled positives and documents drawn at random", bounds=True)


def judge_known(
    judge: PairJudge,
    collection: Collection,
    query_ids: pa.ChunkedArray,
    *,
    pairs: int,
    seed: int,
    known: Callable[[str], bool] = lambda _: False,
) -> Labels:
    """Have a judge judge pairs whose truth is known; return its answers.

    A labelled positive is shown beside another one of its query; a judge who compares with the positive judges those
    of queries with two or more. Documents drawn at random are taken as not relevant. Both are easier to judge than
    the negatives that were mined.

    Args:
        judge: whom to ask.
        collection: texts and judgements.
        query_ids: queries to take, those without a labelled positive are left out.
        pairs: how many of each kind, at most.
        seed: of the draws.
        known: whether the judge has judged the pair of this key (`foils.data.labels.pair_keys`).
    """
    truth, rng = collection.known_positives, np.random.default_rng(seed)
    inside = np.flatnonzero(np.isin(truth.query_rows, collection.query_rows(query_ids.unique())))
    places, compares = rng.permutation(inside).tolist(), isinstance(judge, AgainstPositive)
    positives = [(place, truth.of(place)[-1]) for place in places if len(truth.of(place)) > compares][:pairs]
    drawn = zip(places, rng.integers(len(collection.documents), size=min(pairs, len(places))).tolist(), strict=False)
    random = [(place, row) for place, row in drawn if row not in truth.of(place)]
    queries, documents = np.array([*positives, *random], np.int64).reshape(-1, 2).T
    table = pa.table(
        {
            "query_id": collection.queries["query_id"].take(pa.array(truth.query_rows[queries])),
            "doc_id": collection.documents["doc_id"].take(pa.array(documents)),
            "text": pa.nulls(len(documents), pa.large_string()),
            "sources": [CHECKS[0]] * len(positives) + [CHECKS[1]] * len(random),
        }
    )
    open_rows = [
        row for row, key in zip(table.to_pylist(), pair_keys(table).to_pylist(), strict=True) if not known(key)
    ]
    answers = zip(open_rows, judge.judge(shown_of(collection, open_rows)), strict=True)
    rows = [{**row, "relevant": int(given), "judge": judge.name} for row, given in answers if given is not None]
    return Labels(pa.Table.from_pylist(rows, LABELS))
