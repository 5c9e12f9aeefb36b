"""A proxy between a client and a server that can change requests and responses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from agentcore_verify.client import Json


class Cut(Exception):
    """Raised by a stream that ends in the middle, as if that were its end."""


class Lost(Exception):
    """Raised by a stream whose connection breaks in the middle."""


class Defect:
    """A proxy without a defect. Subclasses override one method or two."""

    proxy: Proxy

    def request(self, path: str, body: Json) -> Json:
        """Return the request that the server gets."""
        return body

    def refusal(self, path: str, body: Json) -> tuple[int, Json] | None:
        """Return a status and a response for the client, or None for the server's."""
        return None

    def whole(self, path: str, body: Json, response: Any) -> None:
        """Change a response with status 200."""

    def stream(self, path: str, body: Json, events: Iterator[Json]) -> Iterable[Json]:
        """Yield the client's events; `[DONE]` follows unless Cut is raised."""
        return events


class Proxy:
    """Passes requests on to `target`, through the currently planted defect.

    With an `api_key`, requests without it get SGLang's error.
    """

    def __init__(self, target: str, api_key: str | None = None) -> None:
        self.defect = Defect()
        self._key = f"Bearer {api_key}" if api_key else None
        self.most_streaming = 0
        """The largest number of streams open at a time since a defect was planted."""
        self.n_streaming = 0
        """The number of streams open now."""
        self._target = urlsplit(target)
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with suppress(ConnectionError):  # The client may disconnect.
                    super().handle()

            def do_GET(self) -> None:
                proxy.pass_on(self, b"")

            def do_POST(self) -> None:
                length = int(self.headers.get("Content-Length", 0))
                proxy.pass_on(self, self.rfile.read(length))

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket.listen(128)  # Many clients connect at once.
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._lock = threading.Lock()

    def plant(self, defect: Defect) -> None:
        self.defect = defect
        defect.proxy = self
        self.most_streaming = 0

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def pass_on(self, client: BaseHTTPRequestHandler, raw: bytes) -> None:
        path = client.path
        body: Json = json.loads(raw) if raw else {}
        if self._key and client.headers.get("Authorization") != self._key:
            self._answer(client, 401, b'{"error":"Unauthorized"}')
            return
        if refused := self.defect.refusal(path, body):
            status, told = refused
            self._answer(client, status, json.dumps(told).encode())
            return
        if raw:
            body = self.defect.request(path, body)
            raw = json.dumps(body).encode()
        target = str(self._target.hostname), self._target.port
        json_type = {"Content-Type": "application/json"}
        with closing(HTTPConnection(*target, timeout=120)) as connection:
            connection.request(client.command, path, raw, json_type)
            response = connection.getresponse()
            kind = response.getheader("Content-Type") or ""
            if kind.startswith("text/event-stream") and not path.startswith("/v1/mess"):
                with self._counted():
                    self._stream(client, path, body, _events(response))
                return
            text = response.read()
            if response.status == 200 and kind.startswith("application/json"):
                told = json.loads(text)
                self.defect.whole(path, body, told)
                text = json.dumps(told).encode()
            self._answer(client, response.status, text, kind)

    def _stream(
        self, client: BaseHTTPRequestHandler, path: str, body: Json, own: Iterator[Json]
    ) -> None:
        client.send_response(200)
        client.send_header("Content-Type", "text/event-stream")
        client.send_header("Transfer-Encoding", "chunked")
        client.end_headers()
        try:
            for event in self.defect.stream(path, body, own):
                _write_chunk(client, b"data: " + json.dumps(event).encode() + b"\n\n")
            _write_chunk(client, b"data: [DONE]\n\n")
        except Cut:
            pass
        except Lost:
            client.close_connection = True
            return
        _write_chunk(client, b"")

    def _answer(
        self, client: BaseHTTPRequestHandler, status: int, text: bytes, kind: str = ""
    ) -> None:
        client.send_response(status)
        client.send_header("Content-Type", kind or "application/json")
        client.send_header("Content-Length", str(len(text)))
        client.end_headers()
        client.wfile.write(text)

    @contextmanager
    def _counted(self) -> Iterator[None]:
        with self._lock:
            self.n_streaming += 1
            self.most_streaming = max(self.most_streaming, self.n_streaming)
        try:
            yield
        finally:
            with self._lock:
                self.n_streaming -= 1


def _write_chunk(client: BaseHTTPRequestHandler, data: bytes) -> None:
    client.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    client.wfile.flush()


def _events(response: HTTPResponse) -> Iterator[Json]:
    for line in response:
        field, _, data = line.strip().partition(b": ")
        if field == b"data" and data != b"[DONE]":
            yield json.loads(data)
