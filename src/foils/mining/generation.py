"""Negatives that a language model writes, through any OpenAI-compatible server.

Every finished record is on disk before the next begins to count, so a stopped run asks for what is
missing alone. A failure is a record that says so, never an empty negative.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, Any

import numpy as np
import pyarrow as pa

from foils.data.collection import Collection
from foils.data.negatives import Negatives, negatives_table
from foils.data.pairs import text_id
from foils.data.read import CollectionLike, CollectionSettings
from foils.data.tables import provenance
from foils.data.tokens import DocumentSets, alphanumeric, unescaped
from foils.llm import (
    AnswerStore,
    LLMSettings,
    NoAnswerError,
    Purse,
    Request,
    Session,
    Template,
    Usage,
    announce,
    ask_missing,
    digest,
    estimated,
    fenced,
)
from foils.llm.questions import TemplateLike, json_values, without_thoughts
from foils.mining.rules import NEAR, LookAlikes
from foils.runtime import seeds
from foils.runtime.options import Option, Settings, door

SOURCE = "llm"
ATTEMPTS = 3  # times that the model is asked for a query's negatives, until it has written enough of them
PASSAGE_TOKENS = 80  # about what a passage takes, for the costs that are announced
SHORTEST = 0.1  # share of the words of the shortest positive that a negative has at least
NEAR_DUPLICATE = 0.9  # Jaccard similarity to a positive, as in mining
OPTIONAL = ("domain", "difficulty", "length", "keys")  # slots that a prompt may have
WRITER = LLMSettings(llm_temperature=0.8)


@dataclass(frozen=True)
class Prompt:
    """A prompt of the package, and what stands in its slots.

    Attributes:
        version: name of its file.
        domain, difficulty, length: alternatives, of which one is drawn for each query.
        keyed: whether each negative has a key of its own in the answer, after the model's reasoning.
    """

    version: str
    domain: str = "general"
    difficulty: str = "hard"
    length: str = "about as many words as the passage above"
    keyed: bool = False


PROMPTS = {
    "ours": Prompt("negatives-3"),
    "eci-sem": Prompt("eci-1", difficulty="college", length="similar in length to", keyed=True),
    "eci": Prompt(  # ECI section 3.3: domain, difficulty and length are drawn per example
        "eci-1",
        domain="general knowledge|science and technology|medicine and health|business and finance|law|history",
        difficulty="high school|college|PhD",
        length="shorter than|similar in length to|longer than",
        keyed=True,
    ),
}


@dataclass(frozen=True, kw_only=True)
class WritingSettings(Settings):
    """What the language model is asked to write.

    Attributes:
        prompt: ours; eci-sem, the prompt of ECI_sem's appendix, slightly edited; eci, the same with
            domain, difficulty and length drawn for each query, as ECI does, whose paper prints no
            prompt; or a text file with {query}, {positive} and {number}, and optionally {domain}.
            In Python also a `Template`.
        domain: Field of the collection, which the prompt names. Of alternatives, as law|history,
            one is drawn for each query.
    """

    heading = "Prompt"

    prompt: Annotated[TemplateLike, Option(metavar="NAME|FILE")] = "ours"
    domain: str | None = None

    @property
    def known(self) -> Prompt:
        """The prompt of the package whose defaults hold."""
        return PROMPTS.get(str(self.prompt), PROMPTS["ours"])

    @cached_property
    def template(self) -> Template:
        """The text of the prompt, with slots.

        Raises:
            InputError: no such file.
            FormatError: it is not UTF-8, or its slots are not those expected.
        """
        named = None if isinstance(self.prompt, str) and self.prompt in PROMPTS else self.prompt
        return Template.of(named, "foils.mining", self.known.version, optional=OPTIONAL)

    def drawn(self, rng: np.random.Generator) -> dict[str, str]:
        """Draw domain, difficulty and length for a query."""
        slots = {"domain": self.domain or self.known.domain, "difficulty": self.known.difficulty,
                 "length": self.known.length}  # fmt: skip
        return {slot: str(rng.choice(alternatives.split("|"))) for slot, alternatives in slots.items()}

    def asked(self, query: str, positive: str, number: int, drawn: dict[str, str], taken: Sequence[str] = ()) -> str:
        """Return the prompt for one query; `taken` are negatives that it has already."""
        keys = (f'- "{key}": a string, a hard negative document.' for key in _keys(number))
        texts = fenced(query=query, positive=positive)
        prompt = self.template.filled(**texts, number=str(number), **drawn, keys="\n".join(keys))
        if taken:
            prompt += "\nThese are there already; write others:\n" + "\n".join(f"- {text}" for text in taken) + "\n"
        return prompt

    def schema(self, number: int) -> dict[str, Any]:
        """Return the JSON schema of an answer with so many negatives."""
        texts = {"type": "array", "items": {"type": "string"}, "minItems": number, "maxItems": number}
        fields: dict[str, Any] = {"negatives": texts}
        if self.known.keyed:
            fields = {name: {"type": "string"} for name in ["reasoning", *_keys(number)]}
        return {"type": "object", "properties": fields, "required": [*fields], "additionalProperties": False}

    def describe(self) -> dict[str, str]:
        """Return what provenance says of the prompt: its version, and a digest of template and slots."""
        return {"prompt": self.template.version, "prompt_digest": digest(self.template.text, self.domain, self.known)}


def _keys(number: int) -> list[str]:
    return [f"hard_negative_document_{at}" for at in range(1, number + 1)]


@dataclass(frozen=True)
class Record:
    """A query, its first positive, all its positives, and what was drawn for it."""

    key: str
    query_id: str
    query: str
    positives: tuple[str, ...]
    drawn: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Generated(Negatives):
    """Negatives that a language model wrote: each row has a `text`, and the id `llm:DIGEST`.

    Near-duplicates of a positive are in the table, rejected.

    Attributes:
        top: negatives per query that were wanted.
        queries: asked for.
        answered: queries with at least one negative.
        short: queries with some negatives, but fewer than `top`.
        turned_away: reason -> number of texts that validation refused.
        usage: requests and tokens for these queries, and those without any by reason, in this run and before.
    """

    top: int
    queries: int
    answered: int
    short: int
    turned_away: dict[str, int]
    usage: Usage

    def rows(self) -> list[tuple[str, str]]:
        """Return the counts as the program shows them."""
        return [
            ("queries", f"{self.queries:,}"),
            ("queries with negatives", f"{self.answered:,}"),
            (f"queries with fewer than {self.top}", f"{self.short:,}"),
            ("negatives", f"{int(self.keep.sum()):,}"),
            *((f"turned away: {reason}", f"{count:,}") for reason, count in self.turned_away.items()),
            *self.rejected_rows(),
            *self.usage.rows(),
        ]

    def to_json(self) -> dict[str, Any]:
        """Return settings, counts and what the requests used."""
        counts = {each: getattr(self, each) for each in ("queries", "answered", "short")}
        refused = {"failed": dict(self.usage.failures), "turned_away": self.turned_away, "rejected": self.rejected()}
        settings = self.provenance.get("settings", {})
        return {"source": SOURCE, "settings": settings, **counts, **refused, **self.usage.to_json()}


@door
def generate(
    collection: CollectionLike,
    *,
    top: Annotated[int, Option(least=1)] = 10,
    split: str = "train",
    seed: Annotated[int, Option(least=0)] = 0,
    limit: Annotated[int | None, Option(least=1)] = None,
    writing: WritingSettings,
    llm: LLMSettings = WRITER,
    reading: CollectionSettings,
) -> Generated:
    """Let a language model write negatives: texts that resemble an answer to the query but are not one.

    The model is asked through any OpenAI-compatible server, as vLLM or llama.cpp offer one, for
    each query with its first labelled positive, and up to three times while negatives are missing.
    Answers are checked against all positives of the query, and kept as they come, so that a stopped
    run asks only for what is missing. Near-duplicates of a positive stay in the table, rejected
    with a reason.

    Args:
        top: Negatives per query.
        split: Split of the judgements; its queries that have a positive get negatives.
        seed: Seed of the model's sampling, where the server heeds it, and of what is drawn for a prompt.
        limit: Ask for this many queries alone, the first ones. Default: all.

    Example:
        foils generate scifact/ --base-url http://localhost:8000/v1 --llm-model NAME --limit 100 -o
        llm.parquet

    Raises:
        InputError: a collection that cannot be read, no model, or a server that refuses the key or the model.
        FailureError: the server fails query after query; what was finished is kept.
        MissingExtraError: the openai package is not installed.
    """
    llm.check_askable()
    loaded = reading.open(collection)
    asked = {**writing.describe(), "number": top, "attempts": ATTEMPTS, **llm.sampling(seed)}
    records = records_of(loaded, writing, (llm.identity, asked), split, limit, seed)
    purse, store = Purse(llm.max_cost), AnswerStore(llm.folder(loaded))
    kept = store.get(record.key for record in records)
    missing = [record for record in records if kept.get(record.key, {}).get("failure", "") is not None]
    prompts = [writing.asked(record.query, record.positives[0], top, record.drawn) for record in missing]
    announce([(llm, estimated(prompts, top * PASSAGE_TOKENS, llm.price))])
    by_key = ask_missing(
        llm,
        store,
        {record.key: record for record in records},
        partial(write_negatives, writing=writing, seed=seed, number=top),
        count=lambda key, served: purse.pay(key, served, llm.price),
        task="asking for negatives",
        unit="queries",
    )
    answers = [by_key[record.key] for record in records]
    counts = [len(answer["negatives"]) for answer in answers]
    facts = {"split": split, "limit": limit, **llm.describe(), **asked}
    texts = [text for answer in answers for text in answer["negatives"]]
    queries = pa.array(np.repeat(np.array([each.query_id for each in records], object), counts), pa.string())
    ids = pa.array([f"llm:{text_id(text)}" for text in texts], pa.string())
    ranks = [rank for count in counts for rank in range(count)]
    table = negatives_table(queries, ids, SOURCE, ranks, np.full(len(texts), np.nan))
    table = table.append_column("text", pa.array(texts, pa.large_string()))
    negatives = Negatives(table, provenance("generate", facts, inputs={"collection": loaded.digest}))
    # the texts become documents, to be compared with the positives of their queries
    titles = pa.repeat(pa.scalar("", pa.large_string()), len(texts))
    written = pa.table([ids, titles, table["text"]], schema=loaded.documents.schema)
    widened = replace(loaded, documents=pa.concat_tables([loaded.documents, written]), folder=None)
    rows = len(loaded.documents) + np.arange(len(texts))
    looks = LookAlikes(widened.known_positives, DocumentSets(widened), NEAR_DUPLICATE)
    equal, near = looks.marks(loaded.query_rows(queries), rows)
    return Generated.of(
        negatives.reject(equal | near, NEAR),
        title=f"negatives of {loaded.name} ({split}) by {llm.llm_model}",
        collection=loaded,
        split=split,
        top=top,
        queries=len(records),
        answered=sum(count > 0 for count in counts),
        short=sum(0 < count < top for count in counts),
        turned_away=dict(sum((Counter(answer["turned_away"]) for answer in answers), Counter())),
        usage=Usage.total(answers, llm.price),
    )


def records_of(
    collection: Collection, writing: WritingSettings, decisive: object, split: str, limit: int | None, seed: int
) -> list[Record]:
    """Return the records of a split; `decisive` is what decides an answer beside the texts."""
    positives, known = collection.positives(split), collection.known_positives
    rows = positives.query_rows[:limit]
    ids = collection.queries["query_id"].take(pa.array(rows)).to_pylist()
    records = []
    each = zip(ids, collection.query_texts(rows), positives.first[:limit], strict=True)
    for index, (identifier, query, first) in enumerate(each):
        _, others = known.pairs_of(rows[index : index + 1])
        texts = collection.document_texts([first, *others])
        drawn = writing.drawn(np.random.default_rng([seed, int(rows[index]), seeds.WRITTEN]))
        key = digest(decisive, query, texts, drawn)
        records.append(Record(key, identifier, query, tuple(dict.fromkeys(texts)), drawn))
    return records


async def write_negatives(
    session: Session, record: Record, writing: WritingSettings, seed: int, number: int
) -> dict[str, Any]:
    """Ask until the record has its number of negatives, or was asked often enough; return what is kept.

    That is its negatives, or why there are none; which texts were turned away; and what the requests used.
    """
    negatives, turned_away, failure = list[str](), Counter[str](), ""
    for attempt in range(ATTEMPTS):
        wanted = number - len(negatives)
        prompt = writing.asked(record.query, record.positives[0], wanted, record.drawn, negatives)
        try:
            answer = await session.answer(Request(prompt, seed + attempt, writing.schema(wanted)))
        except NoAnswerError as error:
            failure = str(error)
            continue
        texts, less_positive = parse(answer), writing.asked(record.query, "", wanted, record.drawn)
        kept, away = validated(texts, record, taken=negatives, number=wanted, prompt=less_positive)
        negatives += kept
        turned_away.update(away)
        if len(negatives) == number:
            break
        failure = "no usable negative in any answer" if texts else "an answer that holds no list of texts"
    return {
        "query_id": record.query_id, "negatives": negatives, "failure": None if negatives else failure,
        "turned_away": dict(turned_away), **session.usage.as_record(),
    }  # fmt: skip


def parse(content: str) -> list[str]:
    """Read the negatives out of an answer; [] where there is none.

    They are the texts under keys that name negatives, one each or a list ("negatives";
    "hard_negative_document_1", "hard_negative_document_2" and so on, as in ECI's prompt), in any
    JSON of the answer after a model's thoughts; where no key does, those of the first list that
    holds any; without JSON, numbered or dashed lines.
    """
    try:
        json.loads(content)
        answer = content  # a text in it may speak of <think>
    except (ValueError, RecursionError):
        answer = without_thoughts(content).strip()
    values = list(json_values(answer))
    keyed = [item for value in values if isinstance(value, dict) for item in value.items()]
    named = [value_of for key, value_of in keyed if "negative" in key.lower() and "reason" not in key.lower()]
    for listed in [named] if named else [value for value in values if isinstance(value, list)]:
        texts = [text for entry in listed for text in (entry if isinstance(entry, list) else [entry])]
        stripped = [text.strip() for text in texts if isinstance(text, str)]
        if stripped:
            return stripped
    lines = (re.match(r"\s*(?:\d+[.)]|[-*•])\s+(.*\S)", line) for line in answer.splitlines())
    return [line.group(1) for line in lines if line]


def validated(
    texts: Sequence[str], record: Record, *, taken: Sequence[str], number: int, prompt: str = ""
) -> tuple[list[str], Counter[str]]:
    """Return the first `number` usable texts, and how many were turned away, by reason.

    All comparisons are of folded letters and digits (`alphanumeric`). The reasons, of which the
    first that holds counts: a text is empty or not valid Unicode; equals the query, a positive or
    another; is a part of a positive; is a part of the prompt, of two words or more; has fewer words
    than a tenth of the shortest positive; is one more than was asked for.

    Args:
        texts: of an answer.
        record: whose query and positives they must differ from.
        taken: negatives that the record has already.
        number: wanted.
        prompt: that the model was asked by, less the positive.
    """
    seen = {_words(text): "repeats another" for text in taken}
    of_positives = [_words(text) for text in record.positives]
    seen.update(dict.fromkeys(of_positives, "equals a positive") | {_words(record.query): "equals the query"})
    least, asked = SHORTEST * min((len(words.split()) for words in of_positives), default=0), _words(prompt)
    kept: list[str] = []
    away: Counter[str] = Counter()
    for text in texts:
        words = _words(text)
        count = len(words.split())
        if not count or text != text.encode(errors="ignore").decode():
            away["empty, or not valid text"] += 1
        elif words in seen:
            away[seen[words]] += 1
        elif any(words in positive for positive in of_positives):
            away["is a part of a positive"] += 1
        elif count > 1 and words in asked:
            away["repeats the prompt"] += 1
        elif count < least:
            away["much shorter than a positive"] += 1
        elif len(kept) == number:
            away["more than asked for"] += 1
        else:
            kept.append(text)
            seen[words] = "repeats another"
    return kept, away


def _words(text: str) -> str:
    """The words of a text, each between blanks."""
    return f" {' '.join(alphanumeric(unescaped(text)))} "
