"""Asks for records that a log does not have yet, and keeps each as soon as it is finished."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

from foils.llm.client import Client
from foils.llm.log import RecordLog
from foils.llm.sessions import Session, ask_all
from foils.runtime import progress


class Keyed(Protocol):
    """What is asked for."""

    @property
    def key(self) -> str:
        """A digest of everything that decides the answer: the client's identity, settings, texts."""
        ...


class Kept(Protocol):
    """What a record came to."""

    @property
    def failure(self) -> str | None:
        """Why it came to nothing; None where it came to something."""
        ...

    def as_record(self) -> dict[str, Any]:
        """Return it as JSON has it, its `failure` with it."""
        ...


R = TypeVar("R", bound=Keyed)
S = TypeVar("S", bound=Kept)


def digest(*parts: object) -> str:
    """Return 32 hexadecimal digits of values whose `repr` says all there is, in any process the same."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


def ask_missing(
    client: Client,
    log: str | Path | RecordLog,
    records: Sequence[R],
    serve: Callable[[Session, R], Awaitable[S]],
    *,
    task: str,
    unit: str,
) -> list[dict[str, Any]]:
    """Return what each record came to, as JSON has it, in the order of `records`.

    A record that the log has, and not as a failure, is not asked for again; each other is on disk as soon as it is
    finished, so that a run that was stopped asks for what is missing alone. Records of one key are asked for once.

    Args:
        client: of the server.
        log: file of the finished records (JSON lines); a `RecordLog` that serves several calls reads the file once.
        records: what is to be served.
        serve: as in `ask_all`.
        task: what the progress says.
        unit: what it counts.

    Raises:
        FormatError: the log is damaged.
        InputError: the server refuses the key, or does not know the model.
        FailureError: the log cannot be written, or record after record failed; what was finished is kept.
    """

    def asked(missing: list[R], finished: Callable[[R, S], None]) -> None:
        ask_all(client, missing, serve, finished)

    return _kept(log, records, asked, task, unit)


def take_missing(
    log: str | Path | RecordLog,
    records: Sequence[R],
    take: Callable[[R], S],
    *,
    waits: str,
    task: str,
    unit: str,
) -> list[dict[str, Any]]:
    """Return what each record came to, as `ask_missing` does, of what is there already and need not be waited for.

    Args:
        log: file of the finished records.
        records: what is to be served.
        take: what a record came to; called once for each that the log does not have.
        waits: failure of one that came to nothing yet: it is not written.
        task: what the progress says.
        unit: what it counts.

    Raises:
        FormatError: the log is damaged.
        FailureError: the log cannot be written.
    """

    def taken(missing: list[R], finished: Callable[[R, S], None]) -> None:
        for record in missing:
            finished(record, take(record))

    return _kept(log, records, taken, task, unit, waits=waits)


def _kept(
    log: str | Path | RecordLog,
    records: Sequence[R],
    serve_all: Callable[[list[R], Callable[[R, S], None]], None],
    task: str,
    unit: str,
    *,
    waits: str | None = None,
) -> list[dict[str, Any]]:
    """What each record came to, those that the log lacks being served."""
    with log if isinstance(log, RecordLog) else RecordLog(log) as kept:
        by_key: dict[str, R] = {}
        for record in records:
            by_key.setdefault(record.key, record)
        answers = {key: line for key in by_key if (line := kept.get(key)) is not None and line["failure"] is None}
        missing = [record for key, record in by_key.items() if key not in answers]
        with progress.task(task, total=len(by_key), unit=unit) as advance:
            advance(len(answers))

            def finished(record: R, served: S) -> None:
                answers[record.key] = served.as_record()
                if waits is None or served.failure != waits:
                    kept.add(record.key, answers[record.key])
                advance(1)

            if missing:
                serve_all(missing, finished)
        return [answers[record.key] for record in records]
