"""Asking a judge, in both orders where order can matter, and keeping every answer on disk.

Answers are written block by block as immutable Parquet parts, each whole: a kill costs at most one block, and asking
again asks only what is not yet known. A judgement that failed is not written, so the next run tries it once more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foils.data.records import whole_json
from foils.data.tables import read_table, with_types, write_table
from foils.rating.graph import Keys, candidate_keys, hashed_ids, mixed
from foils.rating.judges import Judge, ListJudge, PointwiseJudge
from foils.rating.pairs import Candidates, Floats, Judgements, Pairs, Rows, Showings, combined, parts_by_query
from foils.runtime import progress
from foils.runtime.errors import FailureError, FormatError, InputError
from foils.runtime.files import discard, file_digest, write_json
from foils.runtime.options import spelled
from foils.runtime.parallel import map_shards

_IDS, _ANSWERS = ["query_id", "first", "second"], ["forward", "backward"]
SCHEMA = pa.schema([*((name, pa.string()) for name in _IDS), *((name, pa.float64()) for name in _ANSWERS)])
_KEY = "judgements.json"
BLOCK = 2048  # pairs asked, and written, together


class JudgementRecord:
    """Answers of one judge on disk: a folder of Parquet parts (query_id, first, second, forward, backward).

    Args:
        folder: made on the first write.
        key: what the answers depend on: the judge's fingerprint, the collection's digest. It is written beside the
            parts, and a folder with another key is refused.
        in_cache: whether the folder is the cache's own: what is damaged in it is removed, and asked for again.

    Raises:
        FormatError: the folder holds answers made with another key, or a damaged file.
    """

    def __init__(self, folder: str | Path, key: Mapping[str, str], *, in_cache: bool = False) -> None:
        self.folder, self.key = Path(folder), dict(key)
        for part in [self.folder / _KEY, *_parts(self.folder)] if in_cache else ():
            try:
                if part.exists():
                    self._check_key() if part.name == _KEY else read_answers(part)
            except FormatError as error:
                discard(part, "judgement file", error)
        self._check_key()

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
        queries = [candidates.query_ids[query] for query in pairs.query[known].tolist()]
        ids = (candidates.ids(ends[known]) for ends in (pairs.first, pairs.second))
        table = pa.table([queries, *ids, answers.forward[known], answers.backward[known]], SCHEMA.names).cast(SCHEMA)
        if not self._check_key():
            write_json(self.folder / _KEY, self.key)
        digest = hashlib.blake2b(repr(table.to_pydict()).encode(), digest_size=16).hexdigest()
        write_table(self.folder / f"part-{digest}.parquet", table, {})


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
        self._parts = _parts(path) if path.is_dir() else [path]
        if not self._parts:
            raise InputError(f"{path} holds no judgements (part-*.parquet); give the folder of one judge, or a file")
        self.name = path.name
        for part in self._parts:
            read_answers(part)
        digests = "".join(map(file_digest, self._parts))
        self.fingerprint = hashlib.blake2b(digests.encode(), digest_size=16).hexdigest()

    def find(self, candidates: Candidates, pairs: Pairs) -> Judgements:
        """Return what is recorded about the pairs, in both orders."""
        return find_answers(self._parts, candidates, pairs)

    def judge(self, candidates: Candidates, pairs: Pairs) -> Floats:
        """Return the recorded P(first ≻ second), (m,)."""
        return self.find(candidates, pairs).forward


def find_answers(paths: Sequence[Path], candidates: Candidates, pairs: Pairs) -> Judgements:
    """Return the answers in these files about pairs, in whichever order they were asked; NaN for pairs without one.

    An answer about (first, second) goes before one about (second, first), an earlier file before a later one. Ids are
    compared by their hashes, so that time grows with answers and pairs together, and memory with the largest file.

    Raises:
        FormatError: a file cannot be read.
    """
    known_codes, values = [np.zeros(0, np.uint64)], [np.zeros((2, 0))]
    for path in paths:
        table = read_answers(path)
        query, *ends = (table[name].dictionary_encode().combine_chunks() for name in _IDS)
        of_query, answers = hashed_ids(query, "0 "), np.stack([table[name].to_numpy() for name in _ANSWERS])
        some = np.isfinite(answers).any(axis=0)
        known_codes.append(_coded(*(mixed(of_query ^ mixed(hashed_ids(each))) for each in ends))[some])
        values.append(answers[:, some])
    codes, at = np.unique(np.concatenate(known_codes), return_index=True)
    if not len(codes):
        return Judgements(*np.full((2, len(pairs)), np.nan))
    one, other = (candidate_keys(candidates, 0)[ends] for ends in (pairs.first, pairs.second))
    wanted, place = np.unique(np.append(_coded(one, other), _coded(other, one)), return_inverse=True)
    near = np.minimum(np.searchsorted(codes, wanted), len(codes) - 1)
    answers = np.where(codes[near] == wanted, np.hstack(values)[:, at[near]], np.nan)
    straight, turned = answers[:, place.reshape(2, -1)].transpose(1, 0, 2)
    return Judgements(*np.where(np.isnan(straight).all(axis=0), turned[::-1], straight))


def _coded(first: Keys, second: Keys) -> Keys:
    """Return a number for each pair in this order."""
    return mixed(first + mixed(second))


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
    for name in _IDS:
        if table[name].null_count:
            raise FormatError(f"{table[name].null_count} rows have no {name}; every row needs one", path)
    if repeated := len(table) - len(table.group_by(_IDS).aggregate([])):
        raise FormatError(f"{repeated} pairs are judged more than once; give each its one answer, their mean say", path)
    for name in _ANSWERS:
        values = np.asarray(table[name].to_numpy(), np.float64)
        if (wrong := (values < 0) | (values > 1)).any():
            raise FormatError(f"{int(wrong.sum())} values of {name} are outside [0, 1]; they are probabilities", path)
    return table


def _parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet")) if folder.is_dir() else []


def ask(
    judge: Judge,
    candidates: Candidates,
    pairs: Pairs,
    *,
    record: JudgementRecord | None = None,
    block: int | None = None,
) -> Judgements:
    """Return the judge's answers about all pairs, in both orders.

    A judge that is antisymmetric by construction is asked once, and the other order is one minus its answer.

    Args:
        judge: whom to ask.
        candidates: queries and documents.
        pairs: what to ask about.
        record: where answers are kept; what it knows is not asked again.
        block: pairs asked, and written, together (whole queries, so somewhat more): what a kill can cost; None: 2048.

    Raises:
        FailureError: an answer outside [0, 1], or not one for each pair.
    """
    candidates.check(pairs)
    if isinstance(judge, RecordedJudge):
        return judge.find(candidates, pairs)
    none = np.full(len(pairs), np.nan)
    known = record.find(candidates, pairs) if record is not None else Judgements(none, none.copy())
    unknown = np.isnan(known.preference)
    if hasattr(judge, "recount") and not unknown.all():
        judge.recount(candidates, pairs.where(~unknown))
    open_rows = np.flatnonzero(unknown)
    prepared = getattr(judge, "prepared", lambda *_: None)
    ready: Judge | None = prepared(candidates, pairs.where(unknown)) if len(open_rows) else None
    asker = ready or judge
    over = Pairs(candidates.offsets, pairs.first, pairs.second)  # these very offsets: no part of them is compared again

    def answered(rows: Rows) -> tuple[Rows, Judgements]:
        part = over.at(rows)
        straight = _answers(asker, candidates, part)
        if asker.antisymmetric:
            return rows, Judgements(straight, 1 - straight)
        return rows, Judgements(straight, _answers(asker, candidates, part.turned))

    parts = parts_by_query(open_rows, pairs.query, block or BLOCK)
    with progress.task(f"asking {judge.name}", len(pairs), "pairs") as advance:
        advance(len(pairs) - len(open_rows))
        for rows, judgements in map_shards(answered, parts, model=True) if ready else map(answered, parts):
            known.forward[rows], known.backward[rows] = judgements.forward, judgements.backward
            if record is not None:
                record.add(candidates, over.at(rows), judgements)
            advance(len(rows))
    return known


def _answers(judge: Judge, candidates: Candidates, pairs: Pairs) -> Floats:
    answers = np.asarray(judge.judge(candidates, pairs), np.float64)
    if answers.shape != (len(pairs),) or ((answers < 0) | (answers > 1) | np.isinf(answers)).any():
        raise FailureError(
            f"the judge {judge.name} gave {answers.shape} answers to {len(pairs)} questions, from "
            f"{np.nanmin(answers, initial=1)} to {np.nanmax(answers, initial=0)}; expected a probability for each, NaN "
            "where it failed"
        )
    return answers


class JudgeSession:
    """Asks judges about pairs, and remembers the answers of each.

    Args:
        judges: whom to ask, at least one; several are asked one after the other, and their answers `combined`.
        candidates: queries and documents.
        records: where the answers of each judge are kept, or None.

    Attributes:
        pairs: asked about so far, query by query, each once in whichever order.
        parts: of each judge, its answers about them.
    """

    def __init__(
        self, judges: Sequence[Judge], candidates: Candidates, records: Sequence[JudgementRecord | None]
    ) -> None:
        self.judges, self.candidates, self._records = judges, candidates, records
        nothing, none = np.zeros(0, np.int64), np.zeros(0)
        self.pairs = Pairs(candidates.offsets, nothing, nothing)
        self.parts = [Judgements(none, none) for _ in judges]

    def ask(self, pairs: Pairs) -> None:
        """Ask about those of the pairs that were not asked about before, each judge in turn."""
        new = pairs.where(~np.isin(pairs.codes, self.pairs.codes))
        asked = zip(self.judges, self._records, strict=True)
        answers = [ask(judge, self.candidates, new, record=record) for judge, record in asked]
        self.pairs, order = self.pairs.joined(new)
        self.parts = [
            Judgements(*(np.concatenate(both)[order] for both in zip(astuple(old), astuple(part), strict=True)))
            for old, part in zip(self.parts, answers, strict=True)
        ]

    def preference(self, pairs: Pairs) -> Floats:
        """Return P(first ≻ second), (m,), of all judges together about pairs that were asked about."""
        order = np.argsort(self.pairs.codes)
        at = order[np.searchsorted(self.pairs.codes, pairs.codes, sorter=order)]
        known = self.judgements.preference[at]
        return np.where(self.pairs.first[at] == pairs.first, known, 1 - known)

    def unknown(self, judge: Judge, pairs: Pairs) -> Pairs:
        """Return the pairs that a judge, one of those asked, has not answered before; count what the others cost."""
        record = self._records[self.judges.index(judge)]
        if record is None:
            return pairs
        unknown = np.isnan(record.find(self.candidates, pairs).preference)
        if hasattr(judge, "recount") and not unknown.all():
            judge.recount(self.candidates, pairs.where(~unknown))
        return pairs.where(unknown)

    def showings(self) -> Showings | None:
        """Return what each showing says about `pairs`, of one judge who orders lists; None of others."""
        judge = self.judges[0]
        shown = judge.showings(self.candidates, self.pairs) if isinstance(judge, ListJudge) else None
        if len(self.judges) > 1 or shown is None or not np.isfinite(shown.preference).any():
            return None
        return shown

    @property
    def judgements(self) -> Judgements:
        """The answers of all judges together about `pairs`."""
        return combined(self.parts)

    def affordable(self, budget: int) -> int:
        """Return how many pairs can be asked about with this many questions: one of each order that can matter.

        Raises:
            InputError: not one; or nothing is asked pair by pair.
        """
        free = (RecordedJudge, ListJudge, PointwiseJudge)  # the last two are asked about documents, not about pairs
        each = sum(2 - judge.antisymmetric for judge in self.judges if not isinstance(judge, free))
        if not each or budget < each:
            raise InputError(
                f"{spelled('budget', budget)}: a pair takes {each} questions; give more, or leave it out where nothing "
                f"is asked pair by pair ({spelled('max_cost')} bounds what orders of documents cost)"
            )
        return budget // each
