"""Asking a judge, in both orders where order can matter, and keeping every answer.

Answers are written block by block as immutable Parquet parts, each whole: a kill costs at most one block, and asking
again asks only what is not yet known. A judgement that failed is not written, so the next run tries it once more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from scipy.special import ndtri

from foils import progress
from foils.data.columns import with_types
from foils.data.lines import whole_json
from foils.data.store import file_digest, read_table, write_json, write_table
from foils.errors import FailureError, FormatError, InputError
from foils.parallel import map_shards
from foils.rate.candidates import Candidates
from foils.rate.judges import Judge, prepared
from foils.rate.pairs import Floats, Pairs, Rows

SCHEMA = pa.schema(
    [
        ("query_id", pa.string()),
        ("first", pa.string()),
        ("second", pa.string()),
        ("forward", pa.float64()),
        ("backward", pa.float64()),
    ]
)
_KEY = "judgements.json"


@dataclass(frozen=True)
class Judgements:
    """Answers about pairs.

    Attributes:
        forward: (m,) P(first ≻ second), the first shown first; NaN where the judge failed.
        backward: (m,) P(second ≻ first), the second shown first; NaN where the judge failed.
    """

    forward: Floats
    backward: Floats

    @property
    def preference(self) -> Floats:
        """(m,) P(first ≻ second), the mean of both orders; NaN unless both were answered (one alone is biased)."""
        return (self.forward + 1 - self.backward) / 2

    @property
    def missing(self) -> int:
        """How many pairs have no judgement."""
        return int(np.isnan(self.preference).sum())

    @property
    def position_bias(self) -> float:
        """Mean of P(shown first ≻ shown second) − 1/2 over both orders: 0 without bias, above where first wins."""
        both = self._bias
        return float(np.nanmean(both)) if np.isfinite(both).any() else float("nan")

    def position_bias_interval(self, query: Rows, *, confidence: float = 0.95) -> tuple[float, float]:
        """Return a normal interval of the position bias: b̄ ± z·se, whole queries being what was drawn.

        se² = Q/(Q − 1) · Σ_q (Σ_{i in q} (b_i − b̄))²/m², b_i the bias of a pair, m the pairs: pairs of one query share
        its texts, so they count less than as many of different queries.

        Args:
            query: (m,) of each pair.
            confidence: in (0, 1).

        Returns:
            (NaN, NaN) with answers about fewer than two queries.
        """
        known = np.isfinite(self._bias)
        bias, (_, group) = self._bias[known], np.unique(np.asarray(query)[known], return_inverse=True)
        sums = np.bincount(group, bias - bias.mean()) if len(bias) else np.zeros(0)
        if len(sums) < 2:
            return float("nan"), float("nan")
        spread = np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum()) / len(bias)
        reach = float(ndtri((1 + confidence) / 2) * spread)
        return self.position_bias - reach, self.position_bias + reach

    @property
    def _bias(self) -> Floats:
        return (self.forward + self.backward) / 2 - 0.5


class JudgementRecord:
    """Answers on disk: a folder of Parquet parts (query_id, first, second, forward, backward).

    Args:
        folder: made on the first write.
        key: what the answers depend on: the judge's fingerprint, the collection's digest. It is written beside the
            parts, and a folder with another key is refused.

    Raises:
        FormatError: the folder holds answers made with another key, or a part that cannot be read.
    """

    def __init__(self, folder: str | Path, key: Mapping[str, str]) -> None:
        self.folder, self.key = Path(folder), dict(key)
        self._check_key()
        self._parts = [read_answers(path) for path in _parts(self.folder)]

    def __len__(self) -> int:
        return sum(len(part) for part in self._parts)

    def _check_key(self) -> bool:
        """Tell whether the folder has a key; another one is refused."""
        written = self.folder / _KEY
        if not written.is_file():
            return False
        if (other := whole_json(written)) != self.key:
            raise FormatError(
                f"the folder holds judgements made with {str(other)[:500]}, these are {self.key}; an answer stands for "
                "one judge and one collection: choose another folder",
                written,
            )
        return True

    def find(self, asked: pa.Table) -> Judgements:
        """Return what is known of pairs (query_id, first, second), in whichever order it was asked; else NaN."""
        return look_up(pa.concat_tables([SCHEMA.empty_table(), *self._parts]), asked)

    def add(self, asked: pa.Table, answers: Judgements) -> None:
        """Write the answers that did not fail as one part, whole; `asked` has query_id, first, second.

        Raises:
            FormatError: the folder has got another key meanwhile, from another process.
        """
        known = np.isfinite(answers.preference)
        if not known.any():
            return
        table = asked.append_column("forward", pa.array(answers.forward))
        table = table.append_column("backward", pa.array(answers.backward)).filter(pa.array(known)).cast(SCHEMA)
        if not self._check_key():
            write_json(self.folder / _KEY, self.key)
        digest = hashlib.blake2b(repr(table.to_pydict()).encode(), digest_size=16).hexdigest()
        write_table(self.folder / f"part-{digest}.parquet", table, {})
        self._parts.append(table)


class RecordedJudge:
    """A judge whose answers lie in a folder of parts or in a Parquet file; NaN for pairs that it does not hold.

    Args:
        path: a folder that a `JudgementRecord` wrote, or a Parquet file with query_id, first, second and either
            forward and backward, or `preference`: P(first ≻ second) whatever the order.

    Raises:
        InputError: there is nothing there.
        FormatError: a column is missing, or a probability is outside [0, 1].
    """

    antisymmetric = False

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        parts = _parts(path) if path.is_dir() else [path]
        if not parts:
            raise InputError(
                f"{path} holds no judgements (part-*.parquet); give the folder that a rating wrote, or a file"
            )
        self._answers = pa.concat_tables([read_answers(part) for part in parts])
        self.name = path.name
        digests = "".join(file_digest(part) for part in parts)
        self.fingerprint = hashlib.blake2b(digests.encode(), digest_size=16).hexdigest()

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the recorded P(first ≻ second), (m,)."""
        return look_up(self._answers, asked_of(candidates, pairs)).forward


def ask(
    judge: Judge, candidates: Candidates, pairs: Pairs, *, record: JudgementRecord | None = None, block: int = 2048
) -> Judgements:
    """Return the judge's answers about all pairs, in both orders.

    A judge that is antisymmetric by construction is asked once, and the other order is one minus its answer.

    Args:
        judge: whom to ask.
        candidates: queries and documents.
        pairs: what to ask about.
        record: where answers are kept; what it knows is not asked again.
        block: pairs asked, and written, together (whole queries, so somewhat more): what a kill can cost.

    Raises:
        FailureError: an answer outside [0, 1], or not one for each pair.
    """
    candidates.check(pairs)
    asked = asked_of(candidates, pairs)
    none = np.full(len(pairs), np.nan)
    known = record.find(asked) if record is not None else Judgements(none, none)
    forward, backward = known.forward.copy(), known.backward.copy()
    open_rows = np.flatnonzero(np.isnan(known.preference))
    parts = _by_queries(open_rows, pairs.query, block)
    ready = prepared(judge, candidates, pairs.where(np.isnan(known.preference))) if len(open_rows) else None
    asked_one = ready or judge

    def answered(rows: Rows) -> tuple[Rows, Judgements]:
        first, second = pairs.first[rows], pairs.second[rows]
        straight = _answers(asked_one, candidates, Pairs(pairs.offsets, first, second))
        if asked_one.antisymmetric:
            return rows, Judgements(straight, 1 - straight)
        return rows, Judgements(straight, _answers(asked_one, candidates, Pairs(pairs.offsets, second, first)))

    with progress.task(f"asking {judge.name}", len(pairs), "pairs") as advance:
        advance(len(pairs) - len(open_rows))
        for rows, found in map_shards(answered, parts, model=True) if ready else map(answered, parts):
            forward[rows], backward[rows] = found.forward, found.backward
            if record is not None:
                record.add(asked.take(pa.array(rows)), found)
            advance(len(rows))
    return Judgements(forward, backward)


def asked_of(candidates: Candidates, pairs: Pairs) -> pa.Table:
    """Return the pairs by ids: a table of query_id, first, second."""
    queries, documents = pa.array(candidates.query_ids, pa.string()), pa.array(candidates.doc_ids, pa.string())
    columns = [
        queries.take(pa.array(pairs.query)),
        *(documents.take(pa.array(rows)) for rows in (pairs.first, pairs.second)),
    ]
    return pa.table(columns, names=["query_id", "first", "second"])


def look_up(answers: pa.Table, asked: pa.Table) -> Judgements:
    """Return the answers (SCHEMA) about pairs, in whichever order they were asked; NaN for pairs without one."""
    known = _keys(answers, "first", "second")
    straight, turned = (
        np.asarray(pc.fill_null(pc.index_in(_keys(asked, *ends), value_set=known), -1).to_numpy(), np.int64)
        for ends in (("first", "second"), ("second", "first"))
    )
    values = np.stack([np.asarray(answers[name].to_numpy(), np.float64) for name in ("forward", "backward")])
    values = np.concatenate([values, [[np.nan], [np.nan]]], axis=1)  # at −1: nothing known
    either = np.where(straight >= 0, values[:, straight], values[::-1, turned])
    return Judgements(either[0], either[1])


def read_answers(path: Path) -> pa.Table:
    """Read one Parquet file of answers, as SCHEMA.

    Raises:
        FormatError: a column is missing, or a probability is outside [0, 1].
    """
    table, _ = read_table(path)
    try:
        table = with_types(table, {**dict(zip(SCHEMA.names, SCHEMA.types, strict=True)), "preference": pa.float64()})
    except InputError as error:
        raise FormatError(str(error), path) from error
    if "preference" in table.column_names and "forward" not in table.column_names:
        straight = table["preference"]
        table = table.append_column("forward", straight).append_column("backward", pc.subtract(1.0, straight))
    if missing := [name for name in SCHEMA.names if name not in table.column_names]:
        raise FormatError(
            f"no column {', '.join(missing)}; expected query_id, first, second, and forward and backward or preference",
            path,
        )
    table = table.select(SCHEMA.names)
    for name in ("query_id", "first", "second"):
        if table[name].null_count:
            raise FormatError(f"{table[name].null_count} rows have no {name}; every row needs one", path)
    pairs = table.group_by(["query_id", "first", "second"], use_threads=False).aggregate([([], "count_all")])
    if repeated := len(table) - len(pairs):
        raise FormatError(f"{repeated} pairs are judged more than once; give each its one answer, their mean say", path)
    for name in ("forward", "backward"):
        values = np.asarray(table[name].to_numpy(), np.float64)
        if (wrong := (values < 0) | (values > 1)).any():
            raise FormatError(f"{int(wrong.sum())} values of {name} are outside [0, 1]; they are probabilities", path)
    return table


def _keys(table: pa.Table, one: str, other: str) -> pa.ChunkedArray:
    joined = pc.binary_join_element_wise(table["query_id"], table[one], table[other], "\x1f")
    return joined.combine_chunks()


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet")) if folder.is_dir() else []


def _by_queries(rows: Rows, query: Rows, block: int) -> Iterator[Rows]:
    """Cut rows, ordered by query, between queries, into parts of at least `block` where there are so many."""
    begin = 0
    while begin < len(rows):
        end = begin + block
        if end < len(rows):
            end = int(np.searchsorted(query[rows], query[rows[end - 1]], side="right"))
        yield rows[begin:end]
        begin = end


def _answers(judge: Judge, candidates: Candidates, pairs: Pairs) -> Floats:
    found = np.asarray(judge.judge(candidates, pairs), np.float64)
    if found.shape != (len(pairs),):
        raise FailureError(
            f"the judge {judge.name} gave {found.shape} answers to {len(pairs)} questions; expected one each"
        )
    if (wrong := (found < 0) | (found > 1) | np.isinf(found)).any():
        raise FailureError(
            f"the judge {judge.name} gave {int(wrong.sum())} answers outside [0, 1] (first: {found[wrong][0]!r}); an "
            "answer is a probability, NaN where it failed"
        )
    return found
