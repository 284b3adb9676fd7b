"""A Hugging Face hub on loopback: repositories in memory, by the calls that `huggingface_hub` makes."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".parquet", ".safetensors")  # kept beside git, as the hub keeps them
TOKEN = "hf_of_a_test"


@dataclass
class Repository:
    private: bool
    files: dict[str, bytes] = field(default_factory=lambda: {".gitattributes": b""})


class Hub(ThreadingHTTPServer):
    """Attributes: repositories by kind and name; large files by digest; requests, as METHOD and path."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.large: dict[str, bytes] = {}
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        path = self._noted()
        if match := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)(?:/revision/\w+)?", path):
            if repository := self._repository(match[1], match[2]):
                files = [{"rfilename": name} for name in repository.files]
                self._send({"id": match[2], "private": repository.private, "sha": COMMIT, "siblings": files})
        elif match := re.fullmatch(r"/(?:(dataset)s/)?([^/]+/[^/]+)/resolve/\w+/(.+)", path):
            if repository := self._repository(match[1] or "model", match[2]):
                self._send_file(repository.files.get(match[3]))
        else:
            self._send({"error": path}, 404)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        path = self._noted()
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send({"error": "who are you?"}, 401)
        elif path == "/api/repos/create":
            given = json.loads(body)
            name = f"{given['organization']}/{given['name']}" if given.get("organization") else given["name"]
            private = given.get("visibility") == "private" or bool(given.get("private"))
            self.server.repositories[given.get("type", "model"), name] = Repository(private)
            kind = "datasets/" if given.get("type") == "dataset" else ""
            self._send({"url": f"{self.server.url}/{kind}{name}", "name": name, "id": name})
        elif match := re.fullmatch(r"/(?:(dataset)s/)?([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            objects = [
                {**each, "actions": {"upload": {"href": f"{self.server.url}/large/{each['oid']}"}}}
                for each in json.loads(body)["objects"]
            ]
            self._send({"transfer": "basic", "objects": objects})
        elif match := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)/(preupload|commit)/main", path):
            if repository := self._repository(match[1], match[2]):
                place = f"{self.server.url}/{'datasets/' if match[1] == 'dataset' else ''}{match[2]}"
                if match[3] == "commit":
                    self._commit(body, repository)
                    self._send({"commitUrl": f"{place}/commit/{COMMIT}", "commitOid": COMMIT})
                else:
                    self._send(self._modes(body))
        else:
            self._send({}, 200)

    def do_PUT(self) -> None:
        digest = self._noted().rpartition("/")[2]
        content = self.rfile.read(int(self.headers["Content-Length"] or 0))
        assert hashlib.sha256(content).hexdigest() == digest
        self.server.large[digest] = content
        self._send({})

    def _modes(self, body: bytes) -> dict[str, Any]:
        return {
            "files": [
                {
                    "path": each["path"],
                    "uploadMode": "lfs" if each["path"].endswith(LARGE) else "regular",
                    "shouldIgnore": False,
                }
                for each in json.loads(body)["files"]
            ]
        }

    def _commit(self, body: bytes, repository: Repository) -> None:
        for line in map(json.loads, body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                repository.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                repository.files[value["path"]] = self.server.large[value["oid"]]
            elif line["key"] == "deletedFile":
                del repository.files[value["path"]]

    def _repository(self, kind: str, name: str) -> Repository | None:
        found = self.server.repositories.get((kind, name))
        if found is None:
            self._send({"error": "Repository not found"}, 404, {"X-Error-Code": "RepoNotFound"})
        return found

    def _noted(self) -> str:
        path = self.path.partition("?")[0]
        self.server.requests.append(f"{self.command} {path}")
        return path

    def _send_file(self, content: bytes | None) -> None:
        if content is None:
            self._send({"error": "Entry not found"}, 404, {"X-Error-Code": "EntryNotFound"})
            return
        tag = hashlib.sha256(content).hexdigest()
        self._reply(content, 200, {"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT, "Content-Type": "application/binary"})

    def _send(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self._reply(json.dumps(value).encode(), status, {"Content-Type": "application/json", **(headers or {})})

    def _reply(self, data: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def hub() -> Iterator[Hub]:
    """Run a hub for the time of the context."""
    server = Hub()
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
