"""A server that speaks the OpenAI API as real ones do, in this process, and fails as they do."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "fake/model"


@dataclass
class Fake:
    """words: of every answer. delay: seconds before each. metrics: an object beside `usage`. pages: what other addresses say.

    fault: what goes wrong at a chat request: "500" an error, "truncated" a stream that ends early, "error" one within the stream,
    "long" a prompt that does not fit. key: what it asks for, and quotes when it refuses.
    """

    words: Sequence[str] = ("one", "two", "three", "four")
    delay: float = 0.001
    metrics: dict[str, Any] | None = None
    pages: dict[str, str] = field(default_factory=dict)
    fault: str = ""
    key: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""


def _handler(fake: Fake) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *args: object) -> None:
            pass

        def send(self, text: str, status: int = 200, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def admits(self) -> bool:
            said = self.headers.get("Authorization")
            if fake.key and said != f"Bearer {fake.key}":
                self.send(json.dumps({"error": {"message": f"wrong key: {said}"}}), 401)
                return False
            return True

        def do_GET(self) -> None:
            if not self.admits():
                return
            pages = {"/health": "{}", "/v1/models": json.dumps({"data": [{"id": MODEL}]})} | fake.pages
            self.send(pages[self.path]) if self.path in pages else self.send("{}", 404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])) or "{}")
            if not self.admits():
                return
            if self.path not in ("/v1/chat/completions",):
                self.send("{}")
                return
            fake.bodies.append(body)
            if fake.fault == "500":
                self.send(json.dumps({"error": {"message": "out of memory"}}), 500)
                return
            if fake.fault == "long":
                self.send(json.dumps({"error": {"message": "maximum context length is 40960 tokens"}}), 400)
                return
            usage = {"prompt_tokens": 7, "completion_tokens": len(fake.words), "total_tokens": 7 + len(fake.words)}
            extra = {"metrics": fake.metrics} if fake.metrics else {}
            if not body.get("stream"):
                time.sleep(fake.delay * len(fake.words))
                message = {"role": "assistant", "content": " ".join(fake.words)}
                self.send(json.dumps({"id": "1", "choices": [{"index": 0, "message": message}], "usage": usage} | extra))
                return
            self.stream(usage, extra)

        def stream(self, usage: dict[str, int], extra: dict[str, Any]) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for number, word in enumerate(fake.words):
                time.sleep(fake.delay)
                if fake.fault == "truncated" and number == 2:
                    self.close_connection = True
                    return
                if fake.fault == "error" and number == 2:
                    self.event({"error": {"message": "the engine is dead"}})
                    break
                self.event({"id": "1", "choices": [{"index": 0, "delta": {"content": f"{word} "}}]})
            else:
                self.event({"id": "1", "choices": [], "usage": usage} | extra)
            self.chunk("data: [DONE]\n\n")
            self.chunk("")

        def event(self, value: dict[str, Any]) -> None:
            self.chunk(f"data: {json.dumps(value)}\n\n")

        def chunk(self, text: str) -> None:
            self.wfile.write(f"{len(text.encode()):x}\r\n{text}\r\n".encode())
            self.wfile.flush()

    return Handler


@contextmanager
def serve(fake: Fake) -> Iterator[Fake]:
    """Run `fake` on a port of its own; its `url` says which."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(fake))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()
