"""What the arguments of `mine_hard_negatives` say: pairs, form, window, encoder."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foils.data.collection import Collection
from foils.data.pair_index import Positives
from foils.data.pairs import SPLIT, collection_of_texts
from foils.data.records import arrow_table
from foils.encode.encoder import PROMPT_NAMES, EncoderSettings, Kind, SentenceEncoder
from foils.encode.models import load_model
from foils.encode.similarity import SIMILARITIES
from foils.mining.drop_in_forms import FORMS
from foils.mining.pairs import Rule
from foils.mining.rules import Margin, PositiveScores, ScoreAbove, ScoreBelow
from foils.runtime.errors import InputError, UnknownNameError

log = logging.getLogger(__name__)
Prompts = Mapping[Kind, tuple[str | None, str | None]]
"""Kind of text -> a prompt's text, and its name among the model's."""
OF_ALL = ("n-tuple", "n-list")  # forms of lists that positives are in
WITH_SCORES = "n-tuple-scores"


@dataclass(frozen=True)
class Pairs:
    """The pairs of a data set.

    Attributes:
        anchor: name of the column of queries.
        positive: name of the column of positives.
        collection: of both and the corpus.
        most: the largest number of rows of one query.
    """

    anchor: str
    positive: str
    collection: Collection
    most: int

    @classmethod
    def of(cls, dataset: Any, anchor: str | None, positive: str | None, corpus: Sequence[str] | None) -> Pairs:
        """Read two columns: those of these names, or the first and the second.

        Raises:
            InputError: several splits, no such column, one column for both, or rows without a text.
        """
        if isinstance(dataset, Mapping):
            raise InputError(f"a data set of the splits {', '.join(map(str, dataset))}; give one of them")
        stored = hasattr(dataset, "select_columns") and hasattr(dataset, "__len__")
        table = dataset if stored else arrow_table(dataset)
        names = list(table.column_names)
        for what, name in (("anchor_column_name", anchor), ("positive_column_name", positive)):
            if name is not None and name not in names:
                raise UnknownNameError(what, name, names)
        if len(names) < 2:
            raise InputError(f"the data set has the columns {names}; expected two, of queries and of positives")
        anchor, positive = anchor or names[0], positive or names[1]
        if anchor == positive:
            raise InputError(f"the column {anchor} is both that of the queries and that of the positives; name two")
        columns = arrow_table((table.select_columns if stored else table.select)([anchor, positive]))
        queries, positives = columns[anchor], columns[positive]
        more = None if corpus is None else _texts(corpus)
        collection = collection_of_texts(queries, positives, more, name="the data set")
        return cls(anchor, positive, collection, int(pc.max(pc.value_counts(queries).field("counts")).as_py()))

    @property
    def positives(self) -> Positives:
        """The distinct pairs, queries in the order in which they are first seen."""
        return self.collection.positives(SPLIT)


def _texts(corpus: Sequence[str]) -> pa.ChunkedArray:
    if isinstance(corpus, str):
        raise InputError("the corpus is one text; expected a list of texts")
    try:
        return pa.chunked_array([pa.array(list(corpus), pa.large_string())])
    except (pa.ArrowException, TypeError) as error:
        raise InputError(f"the corpus is no list of texts: {error}") from error


def chosen_form(
    output_format: str, scored: bool, include_positives: bool, as_triplets: bool | None
) -> tuple[str, bool]:
    """Return the form, and whether it has scores; older names are taken with a warning.

    Raises:
        UnknownNameError: no such form.
    """
    if as_triplets is not None:
        output_format = "triplet" if as_triplets else "n-tuple"
        log.warning("as_triplets is an old name; give output_format=%r", output_format)
    if output_format not in (*FORMS, WITH_SCORES):
        raise UnknownNameError("output_format", output_format, FORMS)
    if include_positives and output_format not in OF_ALL:
        log.warning("include_positives: the form is %s, in the place of %s", OF_ALL[0], output_format)
        output_format = OF_ALL[0]
    if output_format == WITH_SCORES:
        log.warning("output_format=%r is an old name; give 'n-tuple' and output_scores=True", WITH_SCORES)
        output_format, scored = "n-tuple", True
    return output_format, scored


@dataclass(frozen=True)
class Limits:
    """Thresholds of scores; None: none."""

    absolute: float | None
    relative: float | None
    most: float | None
    least: float | None

    @classmethod
    def of(
        cls,
        absolute: float | None,
        relative: float | None,
        most: float | None,
        least: float | None,
        *,
        margin: float | None,
    ) -> Limits:
        """Take the thresholds; `margin` is an old name of the absolute one."""
        if margin is not None:
            log.warning("margin is an old name; give absolute_margin=%g", margin)
        return cls(absolute if margin is None else margin, relative, most, least)

    def rules(self, scores: PositiveScores) -> list[Rule]:
        """Return the rules, in the order in which sentence-transformers asks them."""
        rules: list[Rule] = []
        if self.absolute is not None:
            rules.append(Margin(scores, absolute=self.absolute))
        if self.relative is not None:
            rules.append(Margin(scores, relative=self.relative))
        if self.most is not None:
            rules.append(ScoreAbove(self.most))
        if self.least is not None:
            rules.append(ScoreBelow(self.least))
        return rules

    def any(self, *, least: bool = True) -> bool:
        """Tell whether there is one; `least`: the lower limit counts, too."""
        return any(limit is not None for limit in (self.absolute, self.relative, self.most, self.least)[: 3 + least])


def window_end(given: int | None, first: int, number: int, *, wide: bool, most: int) -> int:
    """Return the end of the window of ranks.

    Args:
        given: by the caller; None: `first` + `number` + `most`.
        first: rank.
        number: of negatives of each query.
        wide: ten times as many, some being rejected.
        most: the largest number of rows of one query.

    Raises:
        InputError: no negative at all, or a window that does not hold them.
    """
    if number < 1:
        raise InputError(f"num_negatives {number}; expected at least 1")
    if first < 0:
        raise InputError(f"range_min {first}; expected at least 0")
    end = first + number * (10 if wide else 1) + most if given is None else given
    if number > end - first:
        raise InputError(
            f"range_min {first} and range_max {end} leave {max(end - first, 0)} ranks for {number} negatives; "
            "raise range_max, or ask for fewer"
        )
    return end


def opened_encoder(model: Any, batch_size: int, prompts: Prompts) -> SentenceEncoder:
    """Return the encoder that `encode_query` and `encode_document` of a model are, in the precision that it has.

    Args:
        model: a SentenceTransformer, or a name of one.
        batch_size: texts at once.
        prompts: for each kind; a text goes before a name.

    Raises:
        InputError: another kind of model, or one that compares by a distance.
        UnknownNameError: the model has no such prompt.
    """
    from sentence_transformers import SentenceTransformer

    name = str(model) if isinstance(model, (str, Path)) else ""
    opened = load_model(model) if name else model
    if not isinstance(opened, SentenceTransformer):
        raise InputError(f"a model of type {type(model).__name__}; expected a SentenceTransformer, or the name of one")
    if opened.similarity_fn_name not in (None, *SIMILARITIES):
        raise InputError(
            f"the model compares by {opened.similarity_fn_name} distance, and documents are ranked by the cosine here; "
            "set its similarity_fn_name to 'cosine' if that is what you want"
        )
    texts = {kind: _prompt(opened, kind, *chosen) for kind, chosen in prompts.items()}
    settings = EncoderSettings(
        query_prompt=texts["query"],
        document_prompt=texts["document"],
        similarity="cosine",
        precision="auto",
        encode_batch=batch_size,
    )
    return SentenceEncoder(opened, settings, name=Path(name).name)


def _prompt(model: Any, kind: Kind, text: str | None, name: str | None) -> str:
    """Return a prompt as `EncoderSettings` takes it: an @ that it begins with is doubled."""
    prompts: dict[str, str | None] = dict(model.prompts or {})
    if text is not None and name is not None:
        log.warning("a prompt %r goes before the %s texts; the name %r is not used", text, kind, name)
    elif name is not None and name not in prompts:
        raise UnknownNameError(f"prompt of the model for a {kind}", name, prompts)
    if text is None:
        names = [name] if name is not None else [*PROMPT_NAMES[kind], model.default_prompt_name]
        text = next((prompts[each] for each in names if each in prompts), "") or ""
    return f"@{text}" if text.startswith("@") else text
