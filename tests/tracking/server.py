"""As much of a W&B server as an upload asks for: it answers, and keeps what it was asked."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "0123456789" * 4


class Server(ThreadingHTTPServer):
    """asked: every GraphQL operation with its variables."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.asked: list[tuple[str, dict[str, Any]]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def variables(self, operation: str) -> list[dict[str, Any]]:
        """What an operation was asked with, each time."""
        return [variables.get("input", variables) for name, variables in self.asked if name == operation]


class Answer(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"] or 0))
        if not self.path.endswith("/graphql"):
            return self._reply({"exitcode": None, "limits": {}})
        asked = json.loads(gzip.decompress(body) if self.headers["content-encoding"] == "gzip" else body)
        name = asked.get("operationName") or re.search(r"(?:query|mutation)\s+(\w+)", asked["query"])[1]
        variables = asked.get("variables") or {}
        self.server.asked.append((name, variables))
        self._reply({"data": self._data(name, variables)})

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["content-length"] or 0))
        self._reply({})

    def do_GET(self) -> None:
        self._reply({})

    def log_message(self, *_: object) -> None:
        pass

    def _data(self, name: str, variables: dict[str, Any]) -> dict[str, Any]:
        project = {"id": "p", "name": "dominotree", "entity": {"id": "e", "name": "me"}}
        bucket = {"id": "b", "name": variables.get("name"), "displayName": "x", "project": project, "historyLineCount": 0}
        made = {"id": f"id of {variables.get('input', {}).get('digest')}", "state": "COMMITTED"}
        uploads = [{"name": file, "uploadUrl": f"{self.server.url}/upload"} for file in variables.get("files", ())]
        return {
            "CreateArtifact": {"createArtifact": {"artifact": {**made, "artifactSequence": {"id": "s", "latestArtifact": None}}}},
            "CreateRunFiles": {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": uploads}},
            "UpsertBucket": {"upsertBucket": {"bucket": bucket, "inserted": True}},
            "UseArtifact": {"useArtifact": {"artifact": {"id": "a"}}},
            "Viewer": {"viewer": {"id": "u", "entity": "me", "username": "me", "flags": "{}", "teams": {"edges": []}}},
        }.get(name, {})

    def _reply(self, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
