"""OpenAI's batch form: questions are written to files, sent by hand, and answered by files of results.

Everything lies in one folder. Files `requests-*.jsonl` are ours, each written whole; every other `*.jsonl` in it is a
file of results (or of errors) of such a batch. A question is known by its custom_id, the key that its answer is kept
under, so that none is lost and none asked twice: what was requested and has no result yet is waited for.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from foils.llm.client import Usage
from foils.llm.completions import NoAnswerError, Request
from foils.runtime.errors import FailureError, FormatError
from foils.runtime.files import write_whole

REQUESTS = "requests-"
MOST_REQUESTS, MOST_BYTES = 50_000, 190_000_000  # of one file; OpenAI takes 50,000 and 200 MB
URL = "/v1/chat/completions"
WAITS = "waits for the results of a batch"


class WaitingError(FailureError):
    """Questions wait for the results of a batch; the message says how many, and what to do."""


class BatchFolder:
    """Requests and results of batches to one model.

    Args:
        folder: of all files; made when the first request is written.
        name: what the names of request files hold, so that several models may share a folder.

    Attributes:
        waiting: questions that this run asked for and that have no answer yet.
    """

    def __init__(self, folder: str | Path, name: str) -> None:
        self.folder = Path(folder)
        self.name = re.sub(r"[^A-Za-z0-9._-]+", "-", name)
        self.waiting = 0
        self._requested: Counter[str] = Counter()
        self._results: dict[str, list[tuple[Path, int]]] = {}
        self._read = False
        self._open: _RequestFile | None = None

    def requested(self, key: str) -> int:
        """Return how often a question was requested, this run included.

        Raises:
            FormatError: a file of the folder is damaged.
        """
        self._index()
        return self._requested[key]

    def results(self, key: str) -> list[dict[str, Any]]:
        """Return the lines of results about a question, in the order of their files.

        Raises:
            FormatError: a file of the folder is damaged.
        """
        self._index()
        found = []
        for path, start in self._results.get(key, []):
            with path.open("rb") as file:
                file.seek(start)
                found.append(json.loads(file.readline()))
        return found

    def request(self, key: str, body: dict[str, Any]) -> None:
        """Write a question to a file of requests, which is there when `settle` is called."""
        line = {"custom_id": key, "method": "POST", "url": URL, "body": body}
        written = json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n"
        if self._open is None or not self._open.has_room(len(written)):
            self._close()
            self._open = _RequestFile(self._next_place())
        self._open.add(written)
        self._requested[key] += 1

    def settle(self) -> None:
        """Put the files of requests in their places, whole.

        Raises:
            WaitingError: questions wait for their results.
        """
        self._close()
        waiting, self.waiting = self.waiting, 0
        if waiting:
            raise WaitingError(
                f"{waiting:,} questions to {self.name} wait for a batch: send the files {REQUESTS}*.jsonl of "
                f"{self.folder} that were not sent yet, put the files of results into the same folder, and run again"
            )

    def _close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def _next_place(self) -> Path:
        number = 1
        while (place := self.folder / f"{REQUESTS}{self.name}-{number:03d}.jsonl").exists():
            number += 1
        return place

    def _index(self) -> None:
        """Read once which questions were requested and which have results; the same result in two files is one."""
        if self._read:
            return
        self._read = True
        known = set()
        for path in sorted(self.folder.glob("*.jsonl")):
            requests, start = path.name.startswith(REQUESTS), 0
            for number, line in enumerate(path.open("rb"), 1):
                key, of = _keyed(line, path, number)
                if key is not None and requests:
                    self._requested[key] += 1
                elif key is not None and (key, of) not in known:
                    known.add((key, of))
                    self._results.setdefault(key, []).append((path, start))
                start += len(line)


class _RequestFile:
    """A file of requests that is being written; it takes its place, whole, when it is closed."""

    def __init__(self, place: Path) -> None:
        self._stack = ExitStack()
        aside = self._stack.enter_context(write_whole(place))
        self._file: IO[bytes] = self._stack.enter_context(aside.open("wb"))
        self._lines = self._bytes = 0

    def has_room(self, size: int) -> bool:
        return self._lines < MOST_REQUESTS and self._bytes + size <= MOST_BYTES

    def add(self, line: bytes) -> None:
        self._file.write(line)
        self._lines, self._bytes = self._lines + 1, self._bytes + len(line)

    def close(self) -> None:
        self._stack.close()


def from_batch(
    batch: BatchFolder,
    key: str,
    request_of: Callable[[int], Request],
    read: Callable[[Any], Any | None],
    *,
    body_of: Callable[[Request], dict[str, Any]],
    unreadable: str,
    tries: int,
) -> tuple[Any | None, str | None, Usage]:
    """Return a question's value, why there is none, and what was used; request it where that is to be done.

    It is requested anew where all that was requested has failed, `tries` times in all.

    Args:
        batch: of the model.
        key: of the question.
        request_of: number of the try → the request.
        read: makes the value of an answer; None where it cannot be read.
        body_of: request → body of the line in the file.
        unreadable: the failure of an answer that cannot be read.
        tries: how often it may be requested.
    """
    results, usage, failure = batch.results(key), Usage(), None
    for turn, result in enumerate(results):
        usage.requests += 1
        try:
            value = read(request_of(turn).answer_of(_completion_of(result), usage))
        except NoAnswerError as error:
            failure = str(error)
            continue
        except (AttributeError, TypeError) as error:
            failure = f"an answer that is no completion ({type(error).__name__})"
            continue
        if value is not None:
            return value, None, usage
        failure = unreadable
    requested = batch.requested(key)
    if requested > len(results):
        batch.waiting += 1
        return None, WAITS, usage
    if requested >= tries:
        return None, failure, usage
    batch.request(key, body_of(request_of(requested)))
    batch.waiting += 1
    return None, WAITS, usage


def _completion_of(result: dict[str, Any]) -> Any:
    """The completion of a line of results.

    Raises:
        NoAnswerError: the request failed.
    """
    given = result.get("response")
    response: dict[str, Any] = given if isinstance(given, dict) else {}
    status = response.get("status_code")
    if result.get("error") or status != 200:
        raise NoAnswerError(f"status {status}" if status not in (None, 200) else "an error of the batch")
    completion = json.loads(json.dumps(response.get("body")), object_hook=lambda each: SimpleNamespace(**each))
    return completion


def _keyed(line: bytes, path: Path, number: int) -> tuple[str | None, str]:
    """A line's custom_id, None for a blank line, and what tells it from other lines about the same."""
    if not line.strip():
        return None, ""
    try:
        found = json.loads(line)
        key = found["custom_id"]
        if not isinstance(key, str):
            raise TypeError(key)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        message = "expected a line of a batch: JSON with custom_id; remove the file, or download it again"
        raise FormatError(message, path, number) from error
    return key, str(found.get("id") or hashlib.blake2b(line.strip(), digest_size=16).hexdigest())
