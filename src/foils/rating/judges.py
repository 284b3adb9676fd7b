"""Who says which of two documents answers a query better, and how a judge is opened by its name.

A judge gives a probability for each pair, NaN where it failed: a failure is a missing judgement,
never a tie and never a vote. Another way of judging is another class with the four members of
`Judge`, or a `ScoringJudge` that scores each document of a query. A judge may have more members:

- `between(candidates, first, second)`: (m,) P(first answers its query better than second answers
  its own), the first shown first; NaN where it failed. Only such judges compare candidates of
  different queries.
- `keeps_answers`: True where what it answers is kept by itself, as vectors, scores, or answers of a
  language model.
- `questions` and `cost(candidates, first, second)`: of one that asks a language model, what asks
  them, and about what comparing these candidates in both orders takes (`Usage`), less the questions
  that an answer is kept of; what those took is counted.
"""

from __future__ import annotations

import logging
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Protocol
from urllib.parse import urlsplit

import numpy as np
from scipy.special import expit

from foils.data.collection import Collection
from foils.encode import Encoder, VectorStore
from foils.encode.tokens import Lazy
from foils.encode.vectors import OF_CROSS_ENCODERS, EncodingSettings
from foils.llm import Form, LLMSettings, Purse, Questions, RelevanceQuestions, Template, Usage, digest
from foils.llm.questions import AROUND, LISTED, TemplateLike, concluded, json_values, probability
from foils.mining.scorers import CrossEncoderScorer
from foils.rating.pairs import Candidates, Floats, Pairs, Rows, Showings, texts_of
from foils.runtime.errors import InputError, check_names
from foils.runtime.files import cache_place
from foils.runtime.options import Option, Settings, key_values, settings_of, several, spelled

log = logging.getLogger(__name__)

_AT_ONCE = 2**12  # documents whose vectors are compared, or questions that are counted, together


class Judge(Protocol):
    """Prefers one of two documents.

    Attributes:
        name: what to call it in tables and reports.
        fingerprint: a digest of everything that decides its answers.
        antisymmetric: whether P(i ≻ j) = 1 − P(j ≻ i) by construction, so that one order need be asked.
    """

    name: str
    fingerprint: str
    antisymmetric: bool

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return (m,) P(first ≻ second | query) in [0, 1], the first shown first; NaN where it failed."""
        ...


def questions_of(judges: Sequence[Judge]) -> list[Questions]:
    """Return the questions of those judges who ask a language model."""
    return [judge.questions for judge in dict.fromkeys(judges) if hasattr(judge, "questions")]


class ScoringJudge(ABC):
    """P(i ≻ j) = σ((s_i − s_j)/temperature), s the score of a document for its query: antisymmetric.

    Args:
        temperature: above 0; the difference in scores that counts as one logit (174 Elo points).
        name: what to call it.
        fingerprint: of everything that decides its answers.

    """

    antisymmetric = True

    def __init__(self, temperature: float, name: str, fingerprint: str) -> None:
        if not temperature > 0:
            raise InputError(f"temperature {temperature}; expected above 0")
        self.temperature, self.name, self.fingerprint = temperature, name, fingerprint

    @abstractmethod
    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the score of each candidate, (k,) ascending rows, for its own query; NaN where there is none."""

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return σ of the scaled difference of scores, (m,)."""
        return self.between(candidates, pairs.first, pairs.second)

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return the same of documents that may be of different queries, each with its own, (m,)."""
        rows, place = np.unique(np.concatenate([first, second]), return_inverse=True)
        scores = self.score(candidates, rows) if len(rows) else np.zeros(0)
        return np.asarray(expit((scores[place[: len(first)]] - scores[place[len(first) :]]) / self.temperature))


class BiEncoderJudge(ScoringJudge):
    """A judge by the cosines of an encoder's vectors of query and document.

    Args:
        encoder: makes the vectors; unit ones give cosines.
        temperature: as `ScoringJudge`.
        store: keeps the vectors; None: the cache.
    """

    keeps_answers = True

    def __init__(self, encoder: Encoder, *, temperature: float = 0.05, store: VectorStore | None = None) -> None:
        routes = encoder.route("query"), encoder.route("document")
        super().__init__(temperature, encoder.name, digest("bi-encoder", encoder.fingerprint, *routes, temperature))
        self._encoder, self._store = encoder, store or VectorStore(cache_place("vectors"))

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the cosines, (k,)."""
        queries, query = np.unique(candidates.query_of(rows), return_inverse=True)
        asked = self._store.embed(self._encoder, [candidates.queries[row] for row in queries], "query")
        texts = Lazy(len(rows), lambda part: candidates.texts(rows[part]))
        shown = self._store.embed(self._encoder, texts, "document")
        scores = np.empty(len(rows))
        for part in np.array_split(np.arange(len(rows)), -(-len(rows) // _AT_ONCE) or 1):
            scores[part] = np.einsum("nd,nd->n", asked.take(query[part]), shown.take(part), dtype=np.float64)
        return scores


class CrossEncoderJudge(ScoringJudge):
    """A judge by a cross-encoder's logits, which are kept with those of a teacher.

    Args:
        scorer: the cross-encoder, and where its logits are kept.
        temperature: as `ScoringJudge`.
    """

    keeps_answers = True

    def __init__(self, scorer: CrossEncoderScorer, *, temperature: float = 1.0) -> None:
        fingerprint = digest("cross-encoder", scorer.fingerprint.removeprefix("cross-"), temperature)
        super().__init__(temperature, scorer.name, fingerprint)
        self._scorer = scorer

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the logits, (k,).

        Raises:
            FailureError: a logit is NaN or infinite.
        """
        return self._scorer.logits_of(
            len(rows), lambda part: (candidates.queries_of(rows[part]), candidates.texts(rows[part]))
        )


LEAST_SHARE = 0.5  # probability of both letters together, above which another likeliest token is no matter
PREFERENCE, THOUGHTS, TOKEN, ORDER, RELEVANCE = "preference", "thoughts", "token", "order", "relevance"
THOUGHT_TOKENS = 250  # about what reasons take
_RANK = r"(?:passage|document)?[\s\"'#-]*\[?\d+\]?[\"']?"
ORDER_TOKENS = 80  # about what an order takes


def _letters(probabilities: Mapping[str, float]) -> float | None:
    """P(A)/(P(A) + P(B)); no answer where the model would rather say something else than either letter.

    It would not where a letter is the likeliest token, or both together are likelier than not.
    """
    share = dict.fromkeys("AB", 0.0)
    letters = {token: re.sub(r"[\W_ĠĊĉ]", "", token).upper() for token in probabilities}
    for token, letter in letters.items():
        if letter in share:
            share[letter] += probabilities[token]
    total = share["A"] + share["B"]
    likeliest = max(probabilities, key=probabilities.__getitem__, default="")
    answers = total > LEAST_SHARE or letters.get(likeliest) in share
    return share["A"] / total if answers else None


def _numbers(value: Any) -> list[int] | None:
    """The numbers of a list, or of a text that holds one order, as [3] > [1] > [2], each once; None where none is read.

    Source: the texts are those of RankGPT and RankZephyr (Sun et al. 2023; Pradeep et al. 2023).
    """
    if isinstance(value, str):
        orders = re.findall(rf"(?i){_RANK}(?:\s*>\s*{_RANK})+", value)
        if not orders and re.fullmatch(rf"(?i)[\s(\[]*{_RANK}(?:[\s,;]+{_RANK})*{AROUND}", value):
            orders = [value]
        lists = [re.findall(r"\d+", each) for each in orders] or [
            each for each in json_values(value) if isinstance(each, list) and len(each) > 1
        ]
        value = lists[0] if lists and all(each == lists[0] for each in lists) else None
    ranks = [str(each) for each in value] if isinstance(value, list) else []
    if not ranks or not all(re.fullmatch(rf"(?i)\s*{_RANK}(?:\.0)?\s*", rank) for rank in ranks):
        return None
    return list(dict.fromkeys(int(re.findall(r"\d+", rank)[0]) for rank in ranks))


FORMS = {
    PREFERENCE: Form(
        PREFERENCE,
        'Answer in JSON: {"preference": p}, where p, from 0 to 1, is the probability that A is the better one: '
        "1 if A surely is, 0 if B surely is, 0.5 if you cannot tell.",
        probability,
        {"type": "number", "minimum": 0, "maximum": 1},
    ),
    THOUGHTS: Form(
        PREFERENCE,
        'Answer in JSON: {"reasoning": "...", "preference": p}: first your reasons in a few sentences, then p, from 0 '
        "to 1, the probability that A is the better one: 1 if A surely is, 0 if B surely is, 0.5 if you cannot tell.",
        concluded,
        {"type": "number", "minimum": 0, "maximum": 1},
        tokens=THOUGHT_TOKENS,
        thinks=True,
    ),
    TOKEN: Form(
        PREFERENCE,
        "Answer with one letter and nothing else: A if A is the better one, B if B is.",
        _letters,
    ),
    ORDER: Form(
        ORDER,
        'Answer in JSON: {"order": [...]}, the numbers of all passages, that of the best one first.',
        _numbers,
        {"type": "array", "items": {"type": "integer"}},
        tokens=ORDER_TOKENS,
    ),
}


@dataclass(frozen=True, kw_only=True)
class QuestionSettings(Settings):
    """What a language model is asked about a pair.

    Attributes:
        question: Text file with your prompt. It has {query}, {first}, {second}, of an order
            {query}, {passages}, of relevance {query}, {document}, and optionally {domain} and
            {answer}; without {answer}, the form of the answer is explained at the end. In Python
            also a `Template`.
        answer: Form of the answer. It is a number from 0 to 1 (preference), the same after the
            model's reasons, which are kept (thoughts), one token, A or B, whose log-probabilities
            are read (token), the order of a query's documents (order), or how likely one
            document is an answer (relevance).
        orders: Times that documents are shown for an order, each second time reversed; even.
        domain: Field of the collection, which the prompt names.
    """

    heading = "Language model"

    question: TemplateLike | None = None
    answer: Annotated[str, Option(names=(*FORMS, RELEVANCE))] = PREFERENCE
    orders: Annotated[int, Option(least=2, needs={"answer": ORDER})] = 4
    domain: str = "general"


class LanguageJudge:
    """A judge that asks a language model, and counts what that takes.

    Args:
        llm: the model, and how it is reached.
        log: folder of the answers.
        question: what is asked.
        purse: as `Questions`.

    Attributes:
        questions: asks them, and counts what that takes.

    Raises:
        InputError: an odd number of orders, or no such file of a prompt.
        FormatError: the prompt is not UTF-8, or its slots are not those expected.
    """

    antisymmetric, keeps_answers = False, True

    def __init__(
        self, llm: LLMSettings, log: str | Path, question: QuestionSettings | None = None, *, purse: Purse | None = None
    ) -> None:
        question = self._question = question or QuestionSettings()
        prompt, described = "pairwise-1", dict[str, object]({"answer": question.answer, "fenced": True})
        if question.answer == ORDER:
            if question.orders % 2:
                raise InputError(f"orders {question.orders}; expected an even number: each is shown reversed, too")
            prompt = "listwise-1"
            described |= {"orders": question.orders, "listed": LISTED}
        template = Template.of(question.question, "foils.rating", prompt)
        form, domain = FORMS[question.answer], question.domain
        self.questions = Questions(
            llm, log, form, template, domain=domain, kind="llm judge", described=described, purse=purse
        )
        self.name, self.fingerprint = llm.llm_model, self.questions.fingerprint


class LLMJudge(LanguageJudge):
    """P(first ≻ second) as a language model says it, the first shown as A; NaN where no answer came or could be read.

    It has a position bias as all such judges have: `ask` shows both orders and averages, and measures it.
    """

    def cost(self, candidates: Candidates, first: Rows, second: Rows) -> Usage:
        """Return about what both orders of these pairs take, less what answers are kept of."""
        one, other = np.append(first, second), np.append(second, first)
        parts = [slice(start, start + _AT_ONCE) for start in range(0, len(one), _AT_ONCE)]
        costs = (self.questions.cost(self._prompts(candidates, one[part], other[part])) for part in parts)
        return Usage.total((each.as_record() for each in costs), self.questions.llm.price)

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the model's answers, (m,), `concurrency` of them asked for at once.

        Raises:
            As `Questions.ask`.
        """
        return self.between(candidates, pairs.first, pairs.second)

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return (m,) P(first answers its query better than second answers its own).

        The prompt is then between-1.

        Raises:
            As `Questions.ask`.
        """
        return np.array(self.questions.ask(self._prompts(candidates, first, second)), np.float64)

    def _prompts(self, candidates: Candidates, first: Rows, second: Rows) -> list[str]:
        """The questions about pairs, by a template that names the texts which it shows."""
        of_two = Template.of(None, "foils.rating", "between-1")
        same = (candidates.query_of(first) == candidates.query_of(second)).tolist()
        texts = zip(*texts_of(candidates, first, second), candidates.queries_of(second), same, strict=True)
        return [
            self.questions.prompt(None if alike else of_two, query=q, first_query=q, first=a, second_query=r, second=b)
            for q, a, b, r, alike in texts
        ]


class PointwiseJudge(ScoringJudge):
    """P(i ≻ j) = σ(s_i − s_j), s the logit of how likely a language model takes a document for an answer to its query.

    It is asked once for each document, whatever the degree, and has no bias of position.

    Args:
        questions: asks them, and counts what that takes.
    """

    keeps_answers = True

    def __init__(self, questions: RelevanceQuestions) -> None:
        super().__init__(1.0, questions.llm.llm_model, questions.fingerprint)
        self.questions = questions

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the logits, (k,); NaN where no answer came."""
        return self.questions.scores(candidates.queries_of(rows), candidates.texts(rows))

    def cost(self, candidates: Candidates, first: Rows, second: Rows) -> Usage:
        """Return about what the documents of these pairs take, less what answers are kept of."""
        rows = np.unique(np.append(first, second))
        return self.questions.cost(self.questions.prompts(candidates.queries_of(rows), candidates.texts(rows)))


class ListJudge(LanguageJudge):
    """P(first ≻ second) as a language model orders all documents of a query at once.

    Documents are shown in an order drawn for the query, then in its reverse, and so on. A pair's
    answer is the share of those showings of the first before the second in which the first came out
    before it, so that a bias of position is measured, and cancels, as with `LLMJudge`.

    Args:
        question: what is asked, with `answer="order"`.

    Source: Sun et al. 2023 (RankGPT); the averaging is that of Tang et al. 2024 (permutation
    self-consistency), of pairs instead of whole orders.
    """

    _last: tuple[Candidates, Rows, tuple[Floats, Floats]] | None = None  # the last orders, and of what

    def cost(self, candidates: Candidates, first: Rows, second: Rows) -> Usage:
        """Return about what ordering the candidates of these pairs takes, less the orders that are kept."""
        lists = self._lists(candidates, np.unique(np.append(first, second)))
        return self.questions.cost([self._prompt(candidates, shown) for _, shown in lists])

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the share of showings, (m,), NaN where no order came that showed the first before the second.

        Raises:
            As `Questions.ask`.
        """
        rows = np.unique(np.append(pairs.first, pairs.second))
        last = self._last
        if last is None or last[0] is not candidates or not np.array_equal(last[1], rows):
            last = candidates, rows, self._orders(candidates, rows, self.questions.ask)
            self._last = last  # kept for the same pairs turned
        return _compared(rows, last[2], pairs).share(1)

    def showings(self, candidates: Candidates, pairs: Pairs) -> Showings:
        """Return what each kept showing of the pairs' candidates says about them."""
        rows = np.unique(np.append(pairs.first, pairs.second))
        return _compared(rows, self._orders(candidates, rows, self.questions.recalled), pairs)

    def _lists(self, candidates: Candidates, rows: Rows) -> Iterator[tuple[int, Rows]]:
        """Yield each showing of each query: its number, and the rows in the order in which they are shown."""
        for group in np.split(rows, np.unique(candidates.query_of(rows), return_index=True)[1])[1:]:
            query_id, ids = candidates.query_ids[candidates.query_of(group[:1])[0]], candidates.ids(group).to_pylist()
            rng = np.random.default_rng(int(digest(query_id, ids), 16))
            for turn in range(0, self._question.orders, 2):
                shown = group[np.argsort(rng.permutation(len(group)))]
                yield turn, shown
                yield turn + 1, shown[::-1]

    def _orders(
        self, candidates: Candidates, rows: Rows, ask: Callable[[Sequence[str]], list[Any]]
    ) -> tuple[Floats, Floats]:
        """Return (orders, k) places at which rows were shown, and came out, NaN where there is no answer."""
        places, came = np.full((2, self._question.orders, len(rows)), np.nan)
        lists = [*self._lists(candidates, rows)]
        answers = ask([self._prompt(candidates, shown) for _, shown in lists])
        for (order, shown), answer in zip(lists, answers, strict=True):
            places[order, np.searchsorted(rows, shown)] = np.arange(len(shown))
            best = _named_first(shown.tolist(), answer)
            if best is not None:
                came[order, np.searchsorted(rows, best)] = np.arange(len(best))
        return places, came

    def _prompt(self, candidates: Candidates, shown: Rows) -> str:
        """The question about documents in the order in which they are shown."""
        ascending = np.sort(shown)
        texts = dict(zip(ascending.tolist(), candidates.texts(ascending), strict=True))
        query = candidates.queries[candidates.query_of(shown[:1])[0]]
        return self.questions.prompt(listed=[texts[row] for row in shown.tolist()], query=query)


def _compared(rows: Rows, orders: tuple[Floats, Floats], pairs: Pairs) -> Showings:
    """What each order of these rows says about pairs of them."""
    (shown, came), first, second = orders, np.searchsorted(rows, pairs.first), np.searchsorted(rows, pairs.second)
    wins = np.where(np.isfinite(came[:, first]), came[:, first] < came[:, second], np.nan)
    return Showings(wins, shown[:, second] - shown[:, first])


def _named_first(window: list[int], numbers: list[int] | None) -> list[int] | None:
    """Rows by the numbers that a model gave them; what it left out comes last; None where it named less than half."""
    named = [window[number - 1] for number in numbers or () if 1 <= number <= len(window)]
    if 2 * len(named) < len(window):
        return None
    return named + [row for row in window if row not in named]


JudgeLike = str | Judge
JudgesLike = JudgeLike | Sequence[JudgeLike]
BI_ENCODER = "bi-encoder"


@dataclass(frozen=True, kw_only=True)
class JudgeSettings(Settings):
    """Who says which of two documents answers a query better.

    Attributes:
        judge: bi-encoder[:MODEL], cross-encoder:MODEL or llm[:MODEL]; a bare MODEL is a
            bi-encoder. Its own settings may follow, as in
            llm:MODEL,base_url=URL,key_variable=NAME,price=2/8. May be given several times: the mean
            of their answers. Default: bi-encoder. In Python also an object with the methods of
            `Judge`, or a list.
        between_judge: Judge between queries. Default: that of the ratings.
        temperature: What divides differences of scores. Default: 0.05 for a bi-encoder's cosines, 1
            for logits.
        accept_judge: Rate even where the answers do not clearly prefer labelled positives, or
            contradict themselves when the order of the documents is reversed.
    """

    judge: Annotated[JudgesLike, Option(metavar="JUDGE", parse=list, repeated=True)] = BI_ENCODER
    between_judge: Annotated[JudgeLike | None, Option(metavar="JUDGE")] = None
    temperature: Annotated[float | None, Option(above=0)] = None
    accept_judge: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "judge", [_named(each) for each in self.judges])
        object.__setattr__(self, "between_judge", _named(self.between_judge))

    @property
    def judges(self) -> list[JudgeLike]:
        """The judges, one or several."""
        return several(self.judge)


@dataclass(frozen=True)
class Opening:
    """What judges are opened with.

    Attributes:
        judges: who judges.
        encoding: encoder and store of a bi-encoder; length and device of the others.
        llm: which language model.
        question: what it is asked.
        purse: what all language models together may cost.
    """

    judges: JudgeSettings
    encoding: EncodingSettings
    llm: LLMSettings
    question: QuestionSettings
    purse: Purse = field(default_factory=Purse)

    @cached_property
    def key_server(self) -> tuple[str, str]:
        """Scheme and host of the server that the run's key goes to: the run's, or that of the first model without one.

        A key that was given for one server is sent to no other: a judge with another server names its own
        `key_variable`.
        """
        judges = *self.judges.judges, self.judges.between_judge
        every = [_parsed(each) for each in judges if isinstance(each, str)]
        addresses = [own.get("base_url") for kind, _, own in every if kind == "llm" and "key_variable" not in own]
        address = self.llm.base_url or os.environ.get("OPENAI_BASE_URL")
        if not address and addresses and None not in addresses:
            address = addresses[0]
        return urlsplit(address or "")[:2]

    def with_own(self, settings: Mapping[str, Any]) -> Opening:
        """Return these with one judge's own settings in the place of those of all."""
        own = dict(settings)
        if "base_url" in own and "key_variable" not in own and urlsplit(own["base_url"])[:2] != self.key_server:
            own["key_variable"] = ""
            if os.environ.get(self.llm.key_variable):
                log.warning(
                    "%s gets no key: that of %s is for another server; give the judge its own, as key_variable=NAME",
                    urlsplit(own["base_url"]).netloc.rpartition("@")[2], self.llm.key_variable,
                )  # fmt: skip
        changed = dict[str, Any]()
        for name in ("judges", "encoding", "llm", "question"):
            group = getattr(self, name)
            changed[name] = replace(group, **{key: value for key, value in own.items() if hasattr(group, key)})
        return replace(self, **changed)


def _names(*groups: type) -> frozenset[str]:
    return frozenset(each.name for group in groups for each in fields(group))


HEEDED = {
    BI_ENCODER: _names(EncodingSettings) | {"temperature"},
    "cross-encoder": frozenset({"temperature", "vectors", *OF_CROSS_ENCODERS}),
    "llm": _names(LLMSettings, QuestionSettings),
}
"""Kind of judge -> names of the settings that it heeds."""


def open_judge(judge: JudgeLike, opening: Opening, collection: Collection) -> Judge:
    """Return the judge of a name; an object stays as it is.

    Raises:
        InputError: nothing stands behind the colon, or what stands there cannot be opened.
    """
    if not isinstance(judge, str):
        return judge
    kind, model, own = _parsed(judge)
    opening = opening.with_own(own)
    temperature, question = opening.judges.temperature, opening.question
    if kind == BI_ENCODER:
        encoding = replace(opening.encoding, encoder=model) if model else opening.encoding
        encoder, store = encoding.open(collection)
        return BiEncoderJudge(encoder, temperature=temperature or 0.05, store=store)
    if kind == "cross-encoder":
        if not model:
            raise InputError("cross-encoder needs its model: cross-encoder:MODEL")
        return CrossEncoderJudge(CrossEncoderScorer.of(model, opening.encoding), temperature=temperature or 1.0)
    llm = replace(opening.llm, llm_model=model) if model else opening.llm
    folder, purse = llm.folder(collection), opening.purse
    if question.answer == RELEVANCE:
        about = RelevanceQuestions(llm, folder, question.question, domain=question.domain, purse=purse)
        return PointwiseJudge(about)
    return (ListJudge if question.answer == ORDER else LLMJudge)(llm, folder, question, purse=purse)


def heeding(name: str) -> list[dict[str, Any]]:
    """Return what a setting needs to have an effect: a judge who heeds it, of ratings or between queries."""
    kinds = [kind for kind, names in HEEDED.items() if name in names]
    return [{"judge": kinds}, {"between_judge": kinds}]


def _named(judge: JudgeLike | None) -> JudgeLike | None:
    """A judge whose name begins with its kind, a bare model being a bi-encoder's.

    Its own settings are read.
    """
    if not isinstance(judge, str):
        return judge
    named = judge if key_values(judge)[0].partition(":")[0] in HEEDED else f"{BI_ENCODER}:{judge}"
    _parsed(named)
    return named


def _parsed(judge: str) -> tuple[str, str, dict[str, Any]]:
    """Kind, model or file, and own settings of a judge's name, as in llm:MODEL,base_url=URL,temperature=0.7.

    Raises:
        InputError: a value that is not of its key's type.
        UnknownNameError: an unknown key.
    """
    name, values = key_values(judge)
    kind, _, where = name.partition(":")
    heeded = HEEDED[kind] - {"llm_model"}  # it stands in the name
    groups = (JudgeSettings, LLMSettings, QuestionSettings)
    own = (each for group in groups for each in settings_of(group) if each.name in heeded)
    known = {each.name.removeprefix("llm_"): each for each in own}
    check_names(f"key of {spelled('judge')} {kind}", values, known)
    return kind, where, {known[key].name: known[key].checked(value) for key, value in values.items()}
