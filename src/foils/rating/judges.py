"""Who says which of two documents answers a query better, and what several say together.

A judge gives a probability for each pair, NaN where it failed: a failure is a missing judgement, never a tie and never
a vote. Another way of judging is another class with the four members of `Judge`, or a `ScoringJudge` that scores each
document of a query. A judge may have more members:

- `between(candidates, first, second)`: (m,) P(first answers its query better than second answers its own), the first
  shown first; NaN where it failed. Only such judges compare candidates of different queries.
- `questions`, `cost(candidates, pairs)`, `recount(candidates, pairs)` and `cost_between(candidates, first, second)`: of
  one that asks a language model, what asks them, about what judging pairs takes (`Usage`), the same of pairs of
  different queries, and a count of what the kept answers about pairs took.
- `prepared(candidates, pairs)`: of one whose answers depend on the question alone. It does what would be done together
  for all pairs, and returns the judge ready to be asked about parts of them, on several machines, or None.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit

from foils.encode import Encoder, Vectors, VectorStore
from foils.encode.encoder import Kind, cross_encoder_digest, logits
from foils.encode.models import check_one_output
from foils.encode.vectors import Texts
from foils.llm import Client, Form, Purse, Questions, Sampling, Template, Usage, digest
from foils.llm.answers import json_values
from foils.llm.prompts import TemplateLike
from foils.llm.questions import AROUND, ATTEMPTS, LISTED, LONGEST, concluded, probability
from foils.llm.relevance import RelevanceQuestions
from foils.rating.pairs import Candidates, Floats, Pairs, Rows, Showings, texts_of
from foils.runtime.errors import InputError
from foils.runtime.options import Option, Settings

if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

FITTED = 1_000  # queries that a temperature is fitted to
_AT_ONCE = 2**12  # documents whose vectors are compared together


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


def fingerprint_of(judges: Sequence[Judge]) -> str:
    """Return a digest of everything that decides what judges answer together."""
    if len(judges) == 1:
        return judges[0].fingerprint
    return digest("ensemble", *(judge.fingerprint for judge in judges))


class ScoringJudge(ABC):
    """P(i ≻ j) = σ((s_i − s_j)/temperature), s the score of a document for its query: antisymmetric.

    Args:
        temperature: above 0; the difference in scores that counts as one logit (174 Elo points).
        name: what to call it.
        fingerprint: of everything that decides its answers.

    Attributes:
        fits_labels: whether a rating has to fit the temperature to labels first.
    """

    antisymmetric = True
    fits_labels = False

    def __init__(self, temperature: float, name: str, fingerprint: str) -> None:
        if not temperature > 0:
            raise InputError(f"temperature {temperature}; expected above 0")
        self.temperature, self.name, self.fingerprint = temperature, name, fingerprint

    @abstractmethod
    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the score of each candidate, (k,) ascending rows, for its own query; NaN where there is none."""

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge | None:
        """Return a judge that is ready to be asked about parts of these pairs, anywhere; None: only here."""
        return self

    def fitted(self, candidates: Candidates, positives: Rows) -> ScoringJudge:
        """Return the judge with the temperature by which labelled positives win most likely: least Σ ln(1 + e^(−Δ/T)).

        Δ is a positive's score less that of another candidate of its query. Unlabelled answers among these, whose Δ is
        small or negative, raise T, as they should: a gap then says how surely a candidate is no answer. At most 1,000
        queries are scored, spread evenly.

        Args:
            candidates: of all queries.
            positives: (p,) candidates that are labelled relevant, one of a query.

        Raises:
            InputError: there is no such pair, or all scores are equal.
        """
        some = positives[np.linspace(0, len(positives) - 1, min(len(positives), FITTED)).astype(int)]
        queries, offsets = candidates.query_of(some), candidates.offsets
        rows = np.flatnonzero(np.isin(candidates.query_of(np.arange(offsets[-1])), queries))
        scores, positive = self.score(candidates, rows), np.searchsorted(rows, some)
        lead = np.delete(np.repeat(scores[positive], np.diff(offsets)[queries]) - scores, positive)
        lead = lead[np.isfinite(lead)]
        if not lead.any():
            raise InputError(
                f"no labelled positive differs from another candidate: no temperature of {self.name} fits; give one"
            )
        scale = np.log(np.abs(lead).mean())
        best = minimize_scalar(
            lambda log: np.logaddexp(0, -lead / np.exp(log)).mean(), bounds=(scale - 7, scale + 7), method="bounded"
        )
        fitted = copy(self)
        fitted.temperature = float(np.exp(best.x))
        fitted.fingerprint = digest(self.fingerprint, fitted.temperature)
        return fitted

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
        store: keeps the vectors; None: they are made for each call.
    """

    def __init__(self, encoder: Encoder, *, temperature: float = 0.05, store: VectorStore | None = None) -> None:
        routes = encoder.route("query"), encoder.route("document")
        super().__init__(temperature, encoder.name, digest("bi-encoder", encoder.fingerprint, *routes, temperature))
        self._encoder, self._store = encoder, store
        self._scores: Floats | None = None  # (N,) of all candidates, once it is prepared

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge:
        """Score every document of the pairs."""
        rows, scores = np.unique(np.append(pairs.first, pairs.second)), np.full(len(candidates.doc_ids), np.nan)
        scores[rows] = self.score(candidates, rows)
        ready = copy(self)
        ready._scores, ready._store = scores, None
        return ready

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the cosines, (k,)."""
        if self._scores is not None:
            return np.asarray(self._scores[rows])
        queries, query = np.unique(candidates.query_of(rows), return_inverse=True)
        asked = self._embed([candidates.queries[row] for row in queries], "query")
        shown, scores = self._embed(_CandidateTexts(candidates, rows), "document"), np.empty(len(rows))
        for part in np.array_split(np.arange(len(rows)), -(-len(rows) // _AT_ONCE) or 1):
            scores[part] = np.einsum("nd,nd->n", asked.take(query[part]), shown.take(part), dtype=np.float64)
        return scores

    def _embed(self, texts: Texts, kind: Kind) -> Vectors:
        if self._store is None:
            return Vectors.of(self._encoder.encode(texts[0 : len(texts)], kind))
        return self._store.embed(self._encoder, texts, kind)


@dataclass(frozen=True)
class _CandidateTexts:
    """Texts of candidates, read in slices."""

    candidates: Candidates
    rows: Rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.candidates.texts(self.rows[index])


class CrossEncoderJudge(ScoringJudge):
    """A judge by a cross-encoder's logits.

    Args:
        model: a loaded sentence-transformers CrossEncoder with one output.
        temperature: as `ScoringJudge`.
        batch_size: texts at once; changes speed alone. None: as many as their tokens allow.
        name: what to call it.
    """

    def __init__(
        self, model: CrossEncoder, *, temperature: float = 1.0, batch_size: int | None = None, name: str = ""
    ) -> None:
        check_one_output(model, name or "the cross-encoder")
        fingerprint = digest("cross-encoder", cross_encoder_digest(model), temperature)
        super().__init__(temperature, name or "cross-encoder", fingerprint)
        self.model, self._batch_size = model, batch_size

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the logits, (k,); NaN where one is no finite number."""
        queries = [candidates.queries[row] for row in candidates.query_of(rows)]
        texts = list(zip(queries, candidates.texts(rows), strict=True))
        scores = logits(self.model, texts, batch_size=self._batch_size).astype(np.float64)
        return np.where(np.isfinite(scores), scores, np.nan)


LEAST_SHARE = 0.5  # probability of both letters together, above which another likeliest token is no matter
VERSION, LISTWISE, BETWEEN = "pairwise-1", "listwise-1", "between-1"
SLOTS = {"needed": ("query", "first", "second"), "optional": ("domain", "answer")}
LISTWISE_SLOTS = {"needed": ("query", "passages"), "optional": ("domain", "answer")}
BETWEEN_SLOTS = {"needed": ("first_query", "first", "second_query", "second"), "optional": ("domain", "answer")}
PREFERENCE, THOUGHTS, TOKEN, ORDER, RELEVANCE = "preference", "thoughts", "token", "order", "relevance"
THOUGHT_TOKENS = 250  # about what reasons take
_RANK = r"\[?\d+\]?"
WINDOW, STEP = 20, 10  # documents of one question, and how many of them the next question about the query has not


def _letters(probabilities: Mapping[str, float]) -> float | None:
    """P(A)/(P(A) + P(B)); no answer where the model would rather say something else than either letter.

    It would not where a letter is the likeliest token, or both together are likelier than not.
    """
    share = dict.fromkeys("AB", 0.0)
    letters = {token: token.strip(" \t\n▁Ġ([{<\"'`*.,:;>}])").upper() for token in probabilities}
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
        orders = re.findall(rf"{_RANK}(?:\s*>\s*{_RANK})+", value)
        if not orders and re.fullmatch(rf"\s*{_RANK}(?:\s*,\s*{_RANK})*{AROUND}", value):
            orders = [value]
        lists = [re.findall(r"\d+", each) for each in orders] or [
            each for each in json_values(value) if isinstance(each, list) and len(each) > 1
        ]
        value = lists[0] if lists and all(each == lists[0] for each in lists) else None
    if not isinstance(value, list) or not value:
        return None
    named = [re.fullmatch(rf"\s*{_RANK}(?:\.0)?\s*", str(each)) for each in value]
    if not all(named):
        return None
    return list(dict.fromkeys(int(float(str(each).strip(" []"))) for each in value))


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
        tokens=4 * WINDOW,
    ),
}


@dataclass(frozen=True, kw_only=True)
class QuestionSettings(Settings):
    """What a language model is asked about a pair.

    Attributes:
        question: Text file with your prompt. It has {query}, {first}, {second}, of an order {query}, {passages}, of
            relevance {query}, {document}, and optionally {domain} and {answer}; without {answer}, the form of the
            answer is explained at the end. In Python also a `Template`.
        answer: Form of the answer. It is a number from 0 to 1 (preference), the same after the model's reasons, which
            are kept (thoughts), one token, A or B, whose log-probabilities are read (token), the order of up to 20
            documents at once (order), or how likely one document is an answer (relevance).
        orders: Times that documents are shown for an order, each second time reversed; even.
        domain: Field of the collection, which the prompt names.
    """

    heading = "Language model"

    question: TemplateLike | None = None
    answer: Annotated[str, Option(names=(*FORMS, RELEVANCE))] = PREFERENCE
    orders: Annotated[int, Option(least=2, needs={"answer": ORDER})] = 4
    domain: str = "general"

    @cached_property
    def template(self) -> Template:
        """The prompt.

        Raises:
            InputError: no such file.
            FormatError: it is not UTF-8, or its slots are not those expected.
        """
        if self.answer == ORDER:
            return Template.of(self.question, "foils.rating", LISTWISE, **LISTWISE_SLOTS)
        return Template.of(self.question, "foils.rating", VERSION, **SLOTS)

    def asked(self, client: Client, log: str | Path, sampling: Sampling | None, purse: Purse | None) -> Questions:
        """Return what asks these questions and is paid from the purse.

        Raises:
            InputError: an odd number of orders.
        """
        described: dict[str, object] = {
            "prompt": self.template.version, "prompt_digest": digest(self.template.text, self.domain),
            "answer": self.answer, "asks": ATTEMPTS, "longest": LONGEST, "fenced": True,
        }  # fmt: skip
        if self.answer == ORDER:
            if self.orders % 2:
                raise InputError(f"orders {self.orders}; expected an even number: each order is shown reversed, too")
            described |= {"orders": self.orders, "listed": LISTED}
        form = FORMS[self.answer]
        return Questions(client, log, form, sampling, kind="llm judge", described=described, purse=purse)


class LanguageJudge:
    """A judge that asks a language model, and counts what that takes.

    Args:
        client: how to reach the model.
        log: folder of the answers.
        question: what is asked.
        sampling: how answers are drawn.
        purse: of all language models of the run.

    Attributes:
        questions: asks them, and counts what that takes.
    """

    antisymmetric = False

    def __init__(
        self,
        client: Client,
        log: str | Path,
        question: QuestionSettings | None = None,
        sampling: Sampling | None = None,
        *,
        purse: Purse | None = None,
    ) -> None:
        self.name, self._question = client.model, question or QuestionSettings()
        self.questions = self._question.asked(client, log, sampling, purse)
        self.fingerprint = self.questions.fingerprint

    def _ask(self, prompts: Sequence[str]) -> list[Any]:
        return self.questions.ask(prompts, announced=True)


class LLMJudge(LanguageJudge):
    """P(first ≻ second) as a language model says it, the first shown as A; NaN where no answer came or could be read.

    It has a position bias as all such judges have: `ask` shows both orders and averages, and measures it.
    """

    def cost(self, candidates: Candidates, pairs: Pairs, *, sample: int = 100) -> Usage:
        """Return about what both orders of these pairs take, by the prompts of the first ones."""
        shown = pairs.at(np.arange(min(sample, len(pairs))))
        return self.questions.cost(self._prompts(candidates, shown.first, shown.second), 2 * len(pairs))

    def cost_between(self, candidates: Candidates, first: Rows, second: Rows) -> Usage:
        """Return about what those of these comparisons between queries take that no answer is kept of."""
        both = np.append(first, second), np.append(second, first)
        return self.questions.cost(self.questions.unanswered(self._prompts(candidates, *both, _between())))

    def recount(self, candidates: Candidates, pairs: Pairs) -> None:
        """Count what the answers about pairs took that are kept, in both orders."""
        for each in (pairs, pairs.turned):
            self.questions.recalled(self._prompts(candidates, each.first, each.second))

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the model's answers, (m,), `concurrency` of them asked for at once.

        Raises:
            As `Questions.ask`.
        """
        return np.array(self._ask(self._prompts(candidates, pairs.first, pairs.second)), np.float64)

    def between(self, candidates: Candidates, first: Rows, second: Rows) -> Floats:
        """Return (m,) P(first answers its query better than second answers its own), by the prompt between-1.

        Raises:
            As `Questions.ask`.
        """
        return np.array(self._ask(self._prompts(candidates, first, second, _between())), np.float64)

    def _prompts(
        self, candidates: Candidates, first: Rows, second: Rows, template: Template | None = None
    ) -> list[str]:
        """The questions about pairs, by a template that names the texts which it shows."""
        template, domain = template or self._question.template, self._question.domain
        queries, ones, others = texts_of(candidates, first, second)
        of_second = [candidates.queries[row] for row in candidates.query_of(second)]
        return [
            self.questions.prompt(template, domain=domain, query=q, first_query=q, first=a, second_query=r, second=b)
            for q, a, r, b in zip(queries, ones, of_second, others, strict=True)
        ]


def _between() -> Template:
    return Template.of(None, "foils.rating", BETWEEN, **BETWEEN_SLOTS)


class PointwiseJudge(ScoringJudge):
    """P(i ≻ j) = σ(s_i − s_j), s the logit of how likely a language model takes a document for an answer to its query.

    It is asked once for each document, whatever the degree, and has no bias of position.

    Args:
        questions: asks them, and counts what that takes.
    """

    def __init__(self, questions: RelevanceQuestions) -> None:
        super().__init__(1.0, questions.client.model, questions.fingerprint)
        self.questions = questions

    def prepared(self, candidates: Candidates, pairs: Pairs) -> Judge | None:
        """Return None: one machine asks the model."""
        return None

    def score(self, candidates: Candidates, rows: Rows) -> Floats:
        """Return the logits, (k,); NaN where no answer came."""
        return self.questions.scores(*self._texts(candidates, rows), announced=True)

    def cost(self, candidates: Candidates, pairs: Pairs) -> Usage:
        """Return about what the documents of these pairs take that no answer is kept of."""
        return self.cost_between(candidates, pairs.first, pairs.second)

    def cost_between(self, candidates: Candidates, first: Rows, second: Rows) -> Usage:
        """Return the same of pairs of different queries."""
        prompts = self.questions.prompts(*self._texts(candidates, np.unique(np.append(first, second))))
        return self.questions.cost(self.questions.unanswered(prompts))

    def recount(self, candidates: Candidates, pairs: Pairs) -> None:
        """Count what the kept answers about the documents of these pairs took."""
        rows = np.unique(np.append(pairs.first, pairs.second))
        self.questions.recalled(self.questions.prompts(*self._texts(candidates, rows)))

    def _texts(self, candidates: Candidates, rows: Rows) -> tuple[list[str], Sequence[str]]:
        return [candidates.queries[row] for row in candidates.query_of(rows)], candidates.texts(rows)


class ListJudge(LanguageJudge):
    """P(first ≻ second) as a language model orders up to 20 documents of a query at once.

    Documents are shown in an order drawn for the query, then in its reverse, and so on. A pair's answer is the share of
    those showings of the first before the second in which the first came out before it, so that a bias of position is
    measured, and cancels, as with `LLMJudge`. More than 20 documents are sorted by windows of 20 from the end to the
    front, of which the ten best move on; then those behind the first ten again.

    Args:
        question: what is asked, with `answer="order"`.

    Source: the windows are those of Sun et al. 2023 (RankGPT), the averaging that of Tang et al. 2024 (permutation
    self-consistency), of pairs instead of whole orders.
    """

    _last: tuple[Candidates, Rows, tuple[Floats, Floats]] | None = None  # the last orders, and of what

    def cost(self, candidates: Candidates, pairs: Pairs, *, sample: int = 20) -> Usage:
        """Return about what ordering the candidates of these pairs takes, by the prompts of the first queries."""
        groups = _by_query(candidates, np.unique(np.append(pairs.first, pairs.second)))
        count = self._question.orders * sum(_questions(len(group)) for group in groups)
        return self.questions.cost([self._prompt(candidates, group[:WINDOW]) for group in groups[:sample]], count)

    def recount(self, candidates: Candidates, pairs: Pairs) -> None:
        """Count what the kept orders of these pairs' candidates took."""
        self._orders(candidates, np.unique(np.append(pairs.first, pairs.second)), self.questions.recalled)

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the share of showings, (m,), NaN where no order came that showed the first before the second.

        Raises:
            As `Questions.ask`.
        """
        rows = np.unique(np.append(pairs.first, pairs.second))
        last = self._last
        if last is None or last[0] is not candidates or not np.array_equal(last[1], rows):
            last = candidates, rows, self._orders(candidates, rows, self._ask)
            self._last = last  # kept for the same pairs turned
        showings = _compared(rows, last[2], pairs)
        counts = (showings.ahead > 0) & np.isfinite(showings.wins)
        with np.errstate(invalid="ignore"):
            return np.asarray(np.where(counts, showings.wins, 0.0).sum(axis=0) / counts.sum(axis=0))

    def showings(self, candidates: Candidates, pairs: Pairs) -> Showings:
        """Return what each kept showing of the pairs' candidates says about them."""
        rows = np.unique(np.append(pairs.first, pairs.second))
        return _compared(rows, self._orders(candidates, rows, self.questions.recalled), pairs)

    def _orders(
        self, candidates: Candidates, rows: Rows, ask: Callable[[Sequence[str]], list[Any]]
    ) -> tuple[Floats, Floats]:
        """Return (orders, k) places at which rows were shown, and came out, NaN where there is no answer."""
        shown, came = np.full((2, self._question.orders, len(rows)), np.nan)
        running = []
        for group in _by_query(candidates, rows):
            query_id, ids = candidates.query_ids[candidates.query_of(group[:1])[0]], candidates.ids(group).to_pylist()
            rng = np.random.default_rng(int(digest(query_id, ids), 16))
            for turn in range(0, self._question.orders, 2):
                drawn = rng.permutation(len(group))
                for order, places in ((turn, drawn), (turn + 1, len(group) - 1 - drawn)):
                    shown[order, np.searchsorted(rows, group)] = places
                    sort = _sorting(dict(zip(group.tolist(), places.tolist(), strict=True)))
                    running.append((order, sort, next(sort)))
        while running:
            prompts = [self._prompt(candidates, np.array(window)) for *_, window in running]
            answers, going = ask(prompts), []
            for (order, sort, window), answer in zip(running, answers, strict=True):
                if (best := _named_first(window, answer)) is None:
                    continue
                try:
                    going.append((order, sort, sort.send(best)))
                except StopIteration as done:
                    came[order, np.searchsorted(rows, done.value)] = np.arange(len(done.value))
            running = going
        return shown, came

    def _prompt(self, candidates: Candidates, window: Rows) -> str:
        """The question about documents in the order in which they are shown."""
        ascending = np.sort(window)
        texts = dict(zip(ascending.tolist(), candidates.texts(ascending), strict=True))
        query = candidates.queries[candidates.query_of(window[:1])[0]]
        listed = [texts[row] for row in window.tolist()]
        return self.questions.prompt(self._question.template, domain=self._question.domain, listed=listed, query=query)


def _compared(rows: Rows, orders: tuple[Floats, Floats], pairs: Pairs) -> Showings:
    """What each order of these rows says about pairs of them."""
    (shown, came), first, second = orders, np.searchsorted(rows, pairs.first), np.searchsorted(rows, pairs.second)
    wins = np.where(np.isfinite(came[:, first]), came[:, first] < came[:, second], np.nan)
    return Showings(wins, shown[:, second] - shown[:, first])


def _by_query(candidates: Candidates, rows: Rows) -> list[Rows]:
    """Ascending rows, apart by query."""
    return np.split(rows, np.flatnonzero(np.diff(candidates.query_of(rows))) + 1)


def _windows(count: int) -> list[tuple[int, int]]:
    """Where windows over so many documents begin and end, from the last to the first."""
    ends = range(count, max(count - 1, 0), -STEP) if count <= WINDOW else range(count, WINDOW - STEP, -STEP)
    return [(max(0, end - WINDOW), end) for end in ends]


def _questions(count: int) -> int:
    """How many windows sort so many documents."""
    return len(_windows(count)) + (_questions(count - STEP) if count > WINDOW else 0)


def _sorting(places: Mapping[int, int]) -> Generator[list[int], list[int], list[int]]:
    """Sort rows: yield windows, each in the order of its places, to be sent back best first; return all, best first."""
    settled: list[int] = []
    rest = sorted(places, key=places.__getitem__)
    while rest:
        for start, end in _windows(len(rest)):
            rest[start:end] = yield sorted(rest[start:end], key=places.__getitem__)
        sure = STEP if len(rest) > WINDOW else len(rest)
        settled, rest = settled + rest[:sure], rest[sure:]
    return settled


def _named_first(window: list[int], numbers: list[int] | None) -> list[int] | None:
    """Rows by the numbers that a model gave them; what it left out comes last; None where it named less than half."""
    named = [window[number - 1] for number in numbers or () if 1 <= number <= len(window)]
    if 2 * len(named) < len(window):
        return None
    return named + [row for row in window if row not in named]
