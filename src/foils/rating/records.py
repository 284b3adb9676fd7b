"""Answers of judges on disk: Parquet parts, read one after the other, so that no more than one lies in memory."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from foils.data.records import whole_json
from foils.data.tables import read_table, with_types, write_table
from foils.rating.candidates import Candidates
from foils.rating.judgements import Judgements, combined
from foils.rating.pairs import Floats, Pairs, Rows, parts_by_query, rows_between
from foils.runtime.errors import FormatError, InputError
from foils.runtime.files import file_digest, hold, write_json

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
_AT_ONCE = 2**14  # answers put in their places together


class JudgementRecord:
    """Answers of one judge on disk: a folder of Parquet parts (query_id, first, second, forward, backward).

    Args:
        folder: made on the first write.
        key: what the answers depend on: the judge's fingerprint, the collection's digest. It is written beside the
            parts, and a folder with another key is refused.

    Raises:
        FormatError: the folder holds answers made with another key.
    """

    def __init__(self, folder: str | Path, key: Mapping[str, str]) -> None:
        self.folder, self.key, self._held = Path(folder), dict(key), False
        self._check_key()

    def __len__(self) -> int:
        return sum(pq.read_metadata(path).num_rows for path in _parts(self.folder))

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
        if not self._held:
            self._held = True
            hold(self.folder, by=self)
        return True

    def find(self, candidates: Candidates, pairs: Pairs) -> Judgements:
        """Return what is known of the pairs, in whichever order it was asked; else NaN.

        Raises:
            FormatError: a part cannot be read, or the folder has got another key meanwhile, from another process.
        """
        self._check_key()
        return find_answers(_parts(self.folder), candidates, pairs)

    def add(self, candidates: Candidates, pairs: Pairs, answers: Judgements) -> None:
        """Write the answers that did not fail as one part, whole; a pair without both orders is not written.

        Raises:
            FormatError: the folder has got another key meanwhile, from another process.
        """
        known = np.flatnonzero(np.isfinite(answers.preference))
        if not len(known):
            return
        _, once = np.unique(pairs.first[known] * pairs.candidates + pairs.second[known], return_index=True)
        known = known[np.sort(once)]
        table = _by_ids(candidates, pairs.at(known))
        table = table.append_column("forward", pa.array(answers.forward[known]))
        table = table.append_column("backward", pa.array(answers.backward[known])).cast(SCHEMA)
        if not self._check_key():
            write_json(self.folder / _KEY, self.key)
        digest = hashlib.blake2b(repr(table.to_pydict()).encode(), digest_size=16).hexdigest()
        write_table(self.folder / f"part-{digest}.parquet", table, {})


class RecordedJudge:
    """A judge whose answers lie in a folder of parts or in a Parquet file; NaN for pairs that it does not hold.

    Args:
        path: a folder that a `JudgementRecord` wrote; a folder of such folders, one for each judge of an ensemble,
            which are combined as `combined` does; or a Parquet file with query_id, first, second and either forward
            and backward, or `preference`: P(first ≻ second) whatever the order.

    Raises:
        InputError: there is nothing there.
        FormatError: a column is missing, or a probability is outside [0, 1].
    """

    antisymmetric = False

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        folders = [path, *sorted(each for each in path.iterdir() if each.is_dir())] if path.is_dir() else []
        self._parts = [parts for folder in folders if (parts := _parts(folder))] if folders else [[path]]
        if not self._parts:
            raise InputError(
                f"{path} holds no judgements (part-*.parquet); give the folder that a rating wrote, or a file"
            )
        self.name = path.name
        digests = []
        for part in (part for parts in self._parts for part in parts):
            read_answers(part)
            digests.append(file_digest(part))
        self.fingerprint = hashlib.blake2b("".join(digests).encode(), digest_size=16).hexdigest()

    def find(self, candidates: Candidates, pairs: Pairs) -> Judgements:
        """Return what is recorded about the pairs, in both orders."""
        return combined([find_answers(parts, candidates, pairs) for parts in self._parts])

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the recorded P(first ≻ second), (m,)."""
        return self.find(candidates, pairs).forward


def find_answers(paths: Iterable[Path], candidates: Candidates, pairs: Pairs) -> Judgements:
    """Return the answers in these files about pairs, in whichever order they were asked; NaN for pairs without one.

    An answer about (first, second) goes before one about (second, first), an earlier file before a later one. Ids are
    compared within the queries of a part of a file, as numbers, so that time grows with answers and pairs together,
    and memory with the largest file alone.

    Raises:
        FormatError: a file cannot be read.
    """
    forward, backward = np.full((2, len(pairs)), np.nan)
    level = np.zeros(len(pairs), np.int8)  # 2: found as asked, 1: the other way round
    row_of = {key: row for row, key in enumerate(candidates.query_ids)}
    for path in paths:
        table = read_answers(path)
        query = _rows(table["query_id"], row_of)
        order = np.argsort(query, kind="stable")
        for rows in parts_by_query(order[query[order] >= 0], query, _AT_ONCE):
            answers = table.take(pa.array(rows))
            there, back = (np.asarray(answers[name].to_numpy(), np.float64) for name in ("forward", "backward"))
            straight, turned = _matches(answers, query[rows], candidates, pairs)
            for matched, at, rank, values in ((*straight, 2, (there, back)), (*turned, 1, (back, there))):
                better = level[matched] < rank
                matched, at = matched[better], at[better]
                forward[matched], backward[matched], level[matched] = values[0][at], values[1][at], rank
    return Judgements(forward, backward)


def _matches(
    answers: pa.Table, query: Rows, candidates: Candidates, pairs: Pairs
) -> tuple[tuple[Rows, Rows], tuple[Rows, Rows]]:
    """Return (rows of pairs, rows of answers) that are about the same, as asked and the other way round."""
    queries, local = np.unique(query, return_inverse=True)
    members, inside = rows_between(candidates.offsets, queries), rows_between(pairs.pair_offsets, queries)
    ids = candidates.ids(members)
    names = ids.unique()

    def number(of: pa.Array | pa.ChunkedArray) -> Rows:
        return np.asarray(pc.fill_null(pc.index_in(of, value_set=names), -1).to_numpy(zero_copy_only=False), np.int64)

    def code(of_query: Rows, first: Rows, second: Rows) -> Rows:
        return (of_query * len(names) + first) * len(names) + second

    first, second = (number(answers[name].cast(pa.large_string()).combine_chunks()) for name in ("first", "second"))
    known = np.where((first >= 0) & (second >= 0), code(local, first, second), -1)
    order = np.argsort(known, kind="stable")
    known, of_member = known[order], number(ids)
    ends = [of_member[np.searchsorted(members, rows[inside])] for rows in (pairs.first, pairs.second)]
    of_query = np.searchsorted(queries, pairs.query[inside])

    def matched(one: Rows, other: Rows) -> tuple[Rows, Rows]:
        wanted = code(of_query, one, other)
        at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        same = known[at] == wanted
        return inside[same], order[at[same]]

    return matched(*ends), matched(*ends[::-1])


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
    if repeated := _repeated([_codes(table[name]) for name in ("query_id", "first", "second")]):
        raise FormatError(f"{repeated} pairs are judged more than once; give each its one answer, their mean say", path)
    for name in ("forward", "backward"):
        values = np.asarray(table[name].to_numpy(), np.float64)
        if (wrong := (values < 0) | (values > 1)).any():
            raise FormatError(f"{int(wrong.sum())} values of {name} are outside [0, 1]; they are probabilities", path)
    return table


def _by_ids(candidates: Candidates, pairs: Pairs) -> pa.Table:
    """Return pairs as a table of query_id, first, second."""
    queries, rows = np.unique(pairs.query), np.unique(np.concatenate([pairs.first, pairs.second]))
    names, ids = pa.array([candidates.query_ids[row] for row in queries], pa.string()), candidates.ids(rows)
    columns = [
        names.take(pa.array(np.searchsorted(queries, pairs.query))),
        *(ids.take(pa.array(np.searchsorted(rows, ends))) for ends in (pairs.first, pairs.second)),
    ]
    return pa.table(columns, names=["query_id", "first", "second"])


def _rows(ids: pa.ChunkedArray, row_of: Mapping[str, int]) -> Rows:
    """Return the row of each id, −1 where there is none."""
    parts = [chunk.dictionary_encode() for chunk in ids.chunks]
    rows = [np.array([row_of.get(key, -1) for key in part.dictionary.to_pylist()], np.int64) for part in parts]
    looked_up = [of[part.indices.to_numpy()] for of, part in zip(rows, parts, strict=True)]
    return np.concatenate([np.zeros(0, np.int64), *looked_up])


def _codes(values: pa.ChunkedArray) -> Rows:
    """Return a number for each value, the same for the same values."""
    chunks = values.dictionary_encode().unify_dictionaries().chunks
    return np.concatenate([np.zeros(0, np.int64), *(chunk.indices.to_numpy() for chunk in chunks)])


def _repeated(columns: list[Rows]) -> int:
    """Return how many rows are there in an earlier row already."""
    order = np.lexsort(columns)
    return int(np.logical_and.reduce([values[order][1:] == values[order][:-1] for values in columns]).sum())


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet")) if folder.is_dir() else []
