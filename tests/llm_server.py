"""An OpenAI-compatible server on loopback that behaves as each test says."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from unittest.mock import patch

from foils.llm import LLMSettings


class Reply:
    """What the server answers: a status with a body, or content of a completion."""

    def __init__(
        self, content: str | None = None, *, status: int = 200, body: bytes | None = None, **more: Any
    ) -> None:
        self.content, self.status, self.body = content, status, body
        self.refusal, self.headers = more.get("refusal"), more.get("headers", {})
        self.finish = more.get("finish", "stop")
        self.tokens: dict[str, float] | None = more.get("tokens")  # first token → log-probability
        self.stall, self.drip, self.hang_up = more.get("stall", 0.0), more.get("drip", 0.0), more.get("hang_up", False)

    def bytes(self) -> bytes:
        if self.body is not None:
            return self.body
        message = {"role": "assistant", "content": self.content, "refusal": self.refusal}
        logprobs = None
        if self.tokens is not None:
            top = [{"token": token, "logprob": value, "bytes": None} for token, value in self.tokens.items()]
            logprobs = {"content": [{**top[0], "top_logprobs": top}], "refusal": None}
        return json.dumps({
            "id": "1", "object": "chat.completion", "created": 0, "model": "m",
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish, "logprobs": logprobs}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10},
        }).encode()  # fmt: skip


class Server(ThreadingHTTPServer):
    """Answers each request with `answer(its number, its body)`."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, answer: Callable[[int, dict[str, Any]], Reply]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.seen, self.keys = answer, [], []
        self.lock, self.now, self.most = threading.Lock(), 0, 0

    def handle_error(self, request: Any, address: Any) -> None:
        """Clients that hang up are expected."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.seen)
            self.server.seen.append(asked)
            self.server.keys.append(self.headers.get("Authorization"))
            self.server.now += 1
            self.server.most = max(self.server.most, self.server.now)
        try:
            reply = self.server.answer(number, asked)
            time.sleep(0 if reply.hang_up else reply.stall)
        finally:
            with self.server.lock:  # before the reply, after which the client may ask anew
                self.server.now -= 1
        self._reply(reply)

    def _reply(self, reply: Reply) -> None:
        if reply.hang_up:
            self.close_connection = True
            return
        data = reply.bytes()
        self.send_response(reply.status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.end_headers()
        for at in range(0, len(data), 1 if reply.drip else len(data)):
            self.wfile.write(data[at : at + 1] if reply.drip else data)
            self.wfile.flush()
            time.sleep(reply.drip)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def hurried(*, pause: float = 0.01, timeout: float = 60.0, retries: int = 3, patience: int = 20) -> Iterator[None]:
    """Be less patient with servers for the time of the context."""
    with patch.multiple("foils.llm.asking", PAUSE=pause, TIMEOUT=timeout, RETRIES=retries, PATIENCE=patience):
        yield


@contextmanager
def serving(answer: Callable[[int, dict[str, Any]], Reply]) -> Iterator[Server]:
    """Run a server for the time of the context, in which it is not waited for long."""
    server = Server(answer)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        with hurried():
            yield server
    finally:
        server.shutdown()
        server.server_close()


def language_model(server: Server | str | None = None, name: str = "m", **settings: Any) -> LLMSettings:
    """A model of a server, or of an address."""
    url = server.url if isinstance(server, Server) else server
    return LLMSettings(llm_model=name, base_url=url, **settings)
