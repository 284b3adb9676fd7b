"""A chromium that is driven through a pipe, in its own protocol: it has any width, and its keys are real keys."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

COMMAND = ("chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
           "--disable-background-networking", "--disable-component-update", "--disable-sync")  # fmt: skip
KEYS = {"Tab": 9, "Enter": 13, " ": 32, "ArrowRight": 39}  # and their codes
TYPED = {"Enter": "\r", " ": " "}
PATIENCE = 240  # seconds for one answer

DRAWN = """new Promise(done => {
    const look = () => document.readyState === "complete" && [...document.querySelectorAll(".plot")]
        .every(each => each.querySelector(".main-svg")) ? done() : setTimeout(look, 50);
    look();
})"""


class Browser:
    """A chromium with one page."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers, self._read, self._asked = commands, answers, b"", 0
        self._session: dict[str, str] = {}
        page = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]}
        self.ask("Page.enable")

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        """Give a command of the protocol, and return its answer."""
        self._asked += 1
        command = {"id": self._asked, "method": method, "params": params, **self._session}
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while (answer := self._message()).get("id") != self._asked:
            pass  # an event
        assert "error" not in answer, answer["error"]
        result: dict[str, Any] = answer["result"]
        return result

    def _message(self) -> dict[str, Any]:
        until = monotonic() + PATIENCE
        while b"\0" not in self._read:
            assert select.select([self._answers], [], [], max(0.0, until - monotonic()))[0], "chromium does not answer"
            read = os.read(self._answers, 1 << 20)
            assert read, "chromium ended"
            self._read += read
        first, self._read = self._read.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        return message

    def open(self, page: Path, width: int, *, dark: bool = False) -> None:
        """Open a page that is so wide, in pixels, and wait until its figures are drawn."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        assert "errorText" not in self.ask("Page.navigate", url=page.as_uri())
        self.run(DRAWN)

    def run(self, script: str) -> Any:
        """Return the value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, *, shift: bool = False) -> None:
        """Press and release a key."""
        known = {"key": key, "windowsVirtualKeyCode": KEYS[key], "modifiers": 8 * shift}
        typed = {"text": TYPED[key]} if key in TYPED else {}
        self.ask("Input.dispatchKeyEvent", type="keyDown", **known, **typed)
        self.ask("Input.dispatchKeyEvent", type="keyUp", **known)


@contextmanager
def browser() -> Iterator[Browser]:
    """Start a chromium, which reads commands from its descriptor 3 and writes answers to 4, and end it."""
    commands, answers = os.pipe(), os.pipe()
    high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 10) for end in (commands[0], answers[1])]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as user:
        command = [*COMMAND, f"--user-data-dir={user}", "--disable-smooth-scrolling", "--remote-debugging-pipe"]
        ends = [(os.POSIX_SPAWN_DUP2, end, at) for at, end in enumerate(high, start=3)]
        quiet = (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0)
        process = os.posix_spawnp(command[0], command, os.environ, file_actions=[*ends, quiet], setpgroup=0)
        for end in (commands[0], answers[1], *high):
            os.close(end)
        try:
            yield Browser(commands[1], answers[0])
        finally:
            os.killpg(process, signal.SIGKILL)
            os.waitpid(process, 0)
            os.close(commands[1])
            os.close(answers[0])
