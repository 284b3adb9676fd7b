"""A folder of foils tune as a small server: python examples/server.py better/ 8000, then GET /search?q=a+query&k=5."""

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import foils

retriever = foils.Retriever.load(sys.argv[1])


class Search(BaseHTTPRequestHandler):
    def do_GET(self):
        asked = parse_qs(urlsplit(self.path).query)
        try:
            [hits] = retriever.search(asked["q"][0], k=int(asked.get("k", ["10"])[0]))
            status, answer = 200, [hit._asdict() for hit in hits]
        except (KeyError, ValueError, foils.FoilsError) as error:
            status, answer = 400, {"error": f"expected /search?q=TEXT&k=NUMBER ({error})"}
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Search).serve_forever()
