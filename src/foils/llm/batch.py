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
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from foils.llm.client import Usage
from foils.llm.request import NoAnswerError, Request
from foils.runtime.errors import FailureError, FormatError
from foils.runtime.files import write_whole

REQUESTS = "requests-"
MAX_REQUESTS, MAX_BYTES = 50_000, 190_000_000  # of one file; OpenAI takes 50,000 and 200 MB
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
        self._known: tuple[Counter[str], dict[str, list[tuple[Path, int]]]] | None = None
        self._new: list[bytes] = []

    def asked(
        self,
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
            key: of the question.
            request_of: number of the attempt → the request.
            read: makes the value of an answer; None where it cannot be read.
            body_of: request → body of the line in the file.
            unreadable: the failure of an answer that cannot be read.
            tries: how often it may be requested.

        Raises:
            FormatError: a file of the folder is damaged.
        """
        requested, places = self._index()
        results = [self._result(*place) for place in places.get(key, [])]
        usage, failure = Usage(), None
        for attempt, result in enumerate(results):
            usage.requests += 1
            try:
                value = read(request_of(attempt).answer_of(_completion_of(result), usage))
                if value is not None:
                    return value, None, usage
                failure = unreadable
            except NoAnswerError as error:
                failure = str(error)
            except (AttributeError, TypeError) as error:
                failure = f"an answer that is no completion ({type(error).__name__})"
        if len(results) == requested[key]:
            if requested[key] >= tries:
                return None, failure, usage
            body = body_of(request_of(requested[key]))
            line = {"custom_id": key, "method": "POST", "url": URL, "body": body}
            self._new.append(json.dumps(line, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
            requested[key] += 1
        self.waiting += 1
        return None, WAITS, usage

    def settle(self) -> None:
        """Write the new requests, in whole files.

        Raises:
            WaitingError: questions wait for their results.
        """
        lines, self._new = self._new, []
        while lines:
            count, size = 0, 0
            while count < min(len(lines), MAX_REQUESTS) and (not count or size + len(lines[count]) <= MAX_BYTES):
                count, size = count + 1, size + len(lines[count])
            number = 1
            while (place := self.folder / f"{REQUESTS}{self.name}-{number:03d}.jsonl").exists():
                number += 1
            with write_whole(place) as aside:
                aside.write_bytes(b"".join(lines[:count]))
            lines = lines[count:]
        waiting, self.waiting = self.waiting, 0
        if waiting:
            raise WaitingError(
                f"{waiting:,} questions to {self.name} wait for a batch: send the files {REQUESTS}*.jsonl of "
                f"{self.folder} that were not sent yet, put the files of results into the same folder, and run again"
            )

    def _index(self) -> tuple[Counter[str], dict[str, list[tuple[Path, int]]]]:
        """How often questions were requested, and where their results are; the same result in two files is one."""
        if self._known is not None:
            return self._known
        requested, results, seen = Counter[str](), dict[str, list[tuple[Path, int]]](), set[tuple[str, str]]()
        for path in sorted(self.folder.glob("*.jsonl")):
            start = 0
            with path.open("rb") as file:
                for number, line in enumerate(file, 1):
                    key, of = _keyed(line, path, number)
                    if key is not None and path.name.startswith(REQUESTS):
                        requested[key] += 1
                    elif key is not None and (key, of) not in seen:
                        seen.add((key, of))
                        results.setdefault(key, []).append((path, start))
                    start += len(line)
        self._known = requested, results  # whole: what a damaged file cut short is read again
        return self._known

    @staticmethod
    def _result(path: Path, start: int) -> dict[str, Any]:
        with path.open("rb") as file:
            file.seek(start)
            result: dict[str, Any] = json.loads(file.readline())
        return result


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
    return json.loads(json.dumps(response.get("body")), object_hook=lambda each: SimpleNamespace(**each))


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
