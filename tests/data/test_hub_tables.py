"""Tables of negatives that lie in a repository of the Hugging Face hub, read from a hub on loopback."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import foils

pytest.importorskip("huggingface_hub")


class Hub(BaseHTTPRequestHandler):
    """Answers what `huggingface_hub` asks before it gets a file."""

    files: dict[str, dict[str, bytes]]

    def do_GET(self) -> None:
        owner, name, _, _, file = (self.path.partition("?")[0].removeprefix("/datasets/") + "////").split("/")[:5]
        found = self.files.get(f"{owner}/{name}")
        content = found.get(file) if found is not None else None
        code = "RepoNotFound" if found is None else "EntryNotFound"
        self.send_response(404 if content is None else 200)
        body = json.dumps({"error": code}).encode() if content is None else content
        tag = {"ETag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Repo-Commit": "0123456789" * 4}
        headers = {"X-Error-Code": code} if content is None else tag
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.slow
def test_a_table_of_a_repository_is_a_source_with_its_own_digest(
    beir_folder: Callable[..., Path], tmp_path: Path
) -> None:
    folder, mined = beir_folder(), tmp_path / "bm25.parquet"
    foils.mine(folder, top=1).write(mined)
    Hub.files = {"me/hard": {"negatives.parquet": mined.read_bytes()}, "me/other": {}}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    code = (
        "import foils\nfrom foils.data.sources import as_source\nfrom foils.runtime.errors import InputError\n"
        f"c = foils.load({str(folder)!r})\n"
        "for name in ('hf:me/hard', 'mine=hf:me/hard', 'hf:me/none', 'hf:me/other'):\n"
        "    try:\n        s = as_source(name, c)\n        print(s.name, s.digest, len(s.negatives))\n"
        "    except InputError as error:\n        print(error)\n"
    )
    env = {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    server.shutdown()
    digest, count = hashlib.sha256(mined.read_bytes()).hexdigest(), len(foils.Negatives.read(mined))
    hard, mine, missing, other = done.stdout.splitlines()
    assert (hard, mine) == (f"hard {digest} {count}", f"mine {digest} {count}"), done.stderr
    assert missing.startswith("cannot read hf:me/none, as negatives.parquet of a data set")
    assert other.startswith("cannot read hf:me/other (")
