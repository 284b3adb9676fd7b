"""Which column of a table of pairs is what: told by the names that people give, or by the reader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foils.data.lines import text_field
from foils.data.tokens import UNSEEN
from foils.runtime.errors import FormatError, InputError
from foils.runtime.options import spelled

NAMES: dict[str, tuple[str, ...]] = {
    "query": ("query", "question", "anchor"),
    "positive": ("positive", "positives", "pos", "answer", "document", "passage", "text", "positive_passages"),
    "negative": ("negative", "negatives", "neg", "negative_passages"),
    "query_id": ("query_id", "qid", "question_id"),
    "doc_id": ("doc_id", "docid", "document_id", "corpus_id", "positive_id", "passage_id", "pid"),
    "title": ("title",),
    "score": ("score", "label", "relevance"),
    "split": ("split",),
}
"""What a column can be, and the names by which it is known; case, blanks and hyphens make no difference."""
OF_CORPUS = {**NAMES, "doc_id": (*NAMES["doc_id"], "_id", "id")}
"""The same of a table of documents alone: an `id` there is a document's."""
SOURCE_NAMES = {role: NAMES[role] for role in ("query", "positive", "negative", "query_id")}
"""What of a table of pairs is read where it is a source of negatives."""
NEGATIVE = re.compile(r"negative_\d+")
EXAMPLE = "query=COLUMN,positive=COLUMN"
OF_SOURCE = "PATH:query=COLUMN,negative=COLUMN"


def parsed_columns(text: str) -> dict[str, str]:
    """Return the columns that a text like `query=a,positive=b` names.

    Raises:
        InputError: it is not of this form.
    """
    parts = [part.partition("=") for part in text.split(",")]
    if not all(role and equals for role, equals, _ in parts):
        raise InputError(f"{spelled('columns')} {text}; expected what each column is, as query=COLUMN,positive=COLUMN")
    return {role.strip(): name.strip() for role, _, name in parts}


def check_chosen(chosen: Mapping[str, str], columns: Sequence[str], where: str) -> None:
    """Refuse names that people give to columns which are not there, or are several things.

    Args:
        chosen: what a column is -> its name; an empty name: no column is it.
        columns: names of those that there are.
        where: for complaints.

    Raises:
        InputError: a chosen column that there is not, or something that no column can be.
    """
    if unknown := [role for role in chosen if role not in NAMES]:
        raise InputError(f"{spelled('columns')} {', '.join(unknown)}: a column is one of {', '.join(NAMES)}")
    given = [name for name in chosen.values() if name]
    if missing := [name for name in given if name not in columns]:
        raise InputError(f"{where} has no column {', '.join(missing)}; it has {', '.join(columns)}")
    if twice := sorted({name for name in given if given.count(name) > 1}):
        raise InputError(f"{spelled('columns')}: {', '.join(twice)} is given twice; a column is one thing")


@dataclass(frozen=True)
class Document:
    """A document as a record gives it; id None: the record gives none."""

    doc_id: str | None
    title: str
    text: str


@dataclass(frozen=True)
class PairRecord:
    """What a record of a table of pairs says.

    Attributes:
        query_id: None: the record gives none.
        query: its text.
        positives: documents that answer the query, or one that was judged otherwise, by `grade`.
        negatives: documents that do not.
        grade: relevance of the positives.
        split: the name that the record gives; empty: none.
    """

    query_id: str | None
    query: str
    positives: tuple[Document, ...]
    negatives: tuple[Document, ...]
    grade: int
    split: str


@dataclass(frozen=True)
class PairColumns:
    """The columns of a table of pairs: what each is -> its name; of negatives there can be several."""

    names: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(
        cls,
        columns: Sequence[str],
        chosen: Mapping[str, str] | None,
        where: str,
        *,
        needed: Sequence[str],
        known: Mapping[str, tuple[str, ...]] = NAMES,
    ) -> PairColumns:
        """Tell the columns of a table.

        Args:
            columns: their names.
            chosen: what a column is -> its name, which goes before what the names say; an empty name: no column is it.
            where: for complaints.
            needed: what there must be; with "negative" it is a source.
            known: what a column can be, and by which names.

        Raises:
            InputError: a chosen column that there is not, or something that no column can be.
            FormatError: nothing is what is needed, or several columns could be.
        """
        chosen, source = dict(chosen or {}), "negative" in needed
        check_chosen(chosen, columns, where)
        free = [name for name in columns if name not in chosen.values()]
        names: dict[str, tuple[str, ...]] = dict.fromkeys(NAMES, ())
        for role, usual in known.items():
            if role in chosen:
                names[role] = (chosen[role],) if chosen[role] else ()
                continue
            fitting = [name for name in free if plain(name) in usual]
            if role == "negative":
                fitting += [name for name in free if NEGATIVE.fullmatch(plain(name))]
            elif len(fitting) > 1:
                choose = f"PATH:{role}={fitting[0]}" if source else f"{spelled('columns')} {role}={fitting[0]}"
                raise FormatError(
                    f"columns {' and '.join(fitting)} could each be the {role}; say which one is: {choose}", where
                )
            names[role] = tuple(fitting)
        if absent := [role for role in needed if not names[role]]:
            choose = OF_SOURCE if source else f"{spelled('columns')} {EXAMPLE}"
            raise FormatError(
                f"no column is known as {' or '.join(absent)}; the columns are {', '.join(map(repr, columns))} (of CSV "
                f"and TSV the first line names them). Give one such a name ({', '.join(NAMES[absent[0]])}), or say "
                f"which is which: {choose}",
                where,
            )
        return cls(names)

    def understood(self, columns: Sequence[str]) -> str:
        """Say what each of a table's columns is read as, and which are not read."""
        roles = [f"{name} as {role}" for role, names in self.names.items() for name in names]
        read = {name for names in self.names.values() for name in names}
        rest = [name for name in columns if name not in read]
        return ", ".join(roles) + (f"; not read: {', '.join(rest)}" if rest else "")

    def _value(self, role: str, fields: Mapping[str, Any]) -> Any:
        name = self.names[role]
        return _known(fields.get(name[0])) if name else None

    def read(self, fields: Mapping[str, Any]) -> PairRecord | str:
        """Return what a record says, or, as a text, what is wrong with it."""
        query = text_field(self._value("query", fields))
        if query is None or blank(query):
            return f"the query {self._given('query', fields)}; expected a text"
        positives = list(self._documents("positive", fields))
        negatives = list(self._documents("negative", fields))
        if (self.names["positive"] and not positives) or None in positives:
            return f"the positive {self._given('positive', fields)}; expected a text, or a list of texts"
        if None in negatives:
            return f"a negative {self._given('negative', fields)}; expected a text, or a list of texts"
        grade = _grade(self._value("score", fields)) if self.names["score"] else 1
        if grade is None:
            found = fields.get(self.names["score"][0])
            return (
                f"{self.names['score'][0]} is {found!r:.40}; expected a whole number, the relevance, 0 for a negative. "
                f"Leave the column out with {spelled('columns')} score="
            )
        ids = [_identifier(self._value(role, fields)) for role in ("query_id", "doc_id")]
        for role, identifier in zip(("query_id", "doc_id"), ids, strict=True):
            if identifier is None and self._value(role, fields) not in (None, ""):
                return f"the {role} {self._given(role, fields)}; expected a text or a whole number"
        if ids[1] is not None and len(positives) > 1:
            return f"one document id ({self.names['doc_id'][0]}) for {len(positives)} positives"
        if len(positives) == 1:
            first = positives[0]
            title = text_field(self._value("title", fields)) or first.title
            positives = [Document(ids[1] or first.doc_id, title.strip(), first.text)]
        split = text_field(self._value("split", fields)) or ""
        return PairRecord(ids[0], query.strip(), tuple(positives), tuple(negatives), grade, split.strip())

    def _given(self, role: str, fields: Mapping[str, Any]) -> str:
        """What a record gives for a role, for a complaint: `(column) is …`."""
        values = [_known(fields.get(name)) for name in self.names[role]]
        said = next((_said(value) for value in values if value is not None), "is missing")
        return f"({', '.join(self.names[role])}) {said}"

    def document(self, fields: Mapping[str, Any]) -> Document | None:
        """Return the document of a record of a corpus, or None where it has no text."""
        documents = list(self._documents("positive", fields))
        if len(documents) != 1 or documents[0] is None:
            return None
        title = text_field(self._value("title", fields)) or ""
        return Document(_identifier(self._value("doc_id", fields)), title.strip(), documents[0].text)

    def _documents(self, role: str, fields: Mapping[str, Any]) -> Iterator[Any]:
        """The documents of the columns of a role, None for what is no text; what is not given is left out."""
        for name in self.names[role]:
            value = _known(fields.get(name))
            for each in value if isinstance(value, (list, tuple)) else [] if value in (None, "") else [value]:
                yield _document(each)


def _document(value: Any) -> Document | None:
    given = value if isinstance(value, Mapping) else {"text": value}
    text, title = (text_field(given.get(key) or "") for key in ("text", "title"))
    if text is None or title is None or blank(f"{title}{text}"):
        return None
    ids = (_identifier(given.get(key)) for key in ("docid", "doc_id", "_id", "id"))
    return Document(next((each for each in ids if each is not None), None), title.strip(), text.strip())


def blank(text: str) -> bool:
    """Tell whether nothing of a text is seen: white space, joiners, direction marks and the like."""
    return not _seen(text)


def _seen(text: str) -> str:
    return UNSEEN.sub("", text.replace("\u200b", "")).strip()


def _said(value: Any) -> str:
    if isinstance(value, str) and not blank(value):
        return f"is {value!r:.40}" if text_field(value) else "is no valid Unicode"
    if isinstance(value, str):
        return "is empty"
    return f"is {type(value).__name__} {value!r:.40}" if value not in ([], {}) else "is empty"


def _known(value: Any) -> Any:
    """A value, None where it is not a number: what pandas has in the place of what is missing."""
    return None if isinstance(value, float) and value != value else value


def _identifier(value: Any) -> str | None:
    """An id as text; 12.0, which pandas makes of 12 beside a missing one, is 12."""
    value = _known(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return text_field(value) or None


def _grade(value: Any) -> int | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return int(number) if number.is_integer() and abs(number) < 2**31 else None


def plain(name: str) -> str:
    """Return a column's name without what makes no difference."""
    return re.sub(r"[\s-]+", "_", _seen(name).lower())
