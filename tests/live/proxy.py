"""A proxy between a client and a server that can change requests and responses."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

import requests
from werkzeug import Request, Response
from werkzeug.serving import WSGIRequestHandler, make_server

from agentcore_verify import client
from agentcore_verify.client import Json


class Cut(Exception):
    """Raised by a stream that ends in the middle, as if that were its end."""


class Lost(ConnectionError):
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


class Silent(WSGIRequestHandler):
    def log(self, type: str, message: str, *args: Any) -> None: ...


class Proxy:
    """Passes requests on to `target`, through the currently planted defect.

    With an `api_key`, requests without it get SGLang's error.
    """

    def __init__(self, target: str, api_key: str | None = None) -> None:
        self.defect = Defect()
        self.most_streaming = 0
        """The largest number of streams open at a time since a defect was planted."""
        self.n_streaming = 0
        """The number of streams open now."""
        self._target = target
        self._key = f"Bearer {api_key}" if api_key else None
        self._lock = threading.Lock()
        application = Request.application(self._pass_on)
        self._server = make_server(
            "127.0.0.1", 0, application, threaded=True, request_handler=Silent
        )
        self._thread = threading.Thread(target=self._server.serve_forever)

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

    def _pass_on(self, request: Request) -> Response:
        path, body = request.full_path.rstrip("?"), None
        if self._key and request.headers.get("Authorization") != self._key:
            return _json({"error": "Unauthorized"}, 401)
        if request.method == "POST":
            body = request.get_json(force=True)
        if refused := self.defect.refusal(path, body or {}):
            return _json(refused[1], refused[0])
        if body is not None:
            body = self.defect.request(path, body)
        response = client.send(
            request.method,
            f"{self._target}{path}",
            api_key=None,
            timeout=120,
            json=body,
            stream=True,
        )
        kind = response.headers.get("Content-Type", "")
        if kind.startswith("text/event-stream") and not path.startswith("/v1/mess"):
            stream = self._stream(path, body or {}, response)
            return Response(stream, content_type=kind)
        with response:
            if response.status_code != 200 or not kind.startswith("application/json"):
                return Response(
                    response.content, response.status_code, content_type=kind
                )
            told = response.json()
        self.defect.whole(path, body or {}, told)
        return _json(told, 200)

    def _stream(
        self, path: str, body: Json, response: requests.Response
    ) -> Iterator[str]:
        self._count(1)
        try:
            with closing(response):
                for event in self.defect.stream(path, body, _events(response)):
                    yield f"data: {json.dumps(event)}\n\n"
                yield "data: [DONE]\n\n"
        except Cut:
            pass
        finally:
            self._count(-1)

    def _count(self, more: int) -> None:
        with self._lock:
            self.n_streaming += more
            self.most_streaming = max(self.most_streaming, self.n_streaming)


def _json(value: Any, status: int) -> Response:
    return Response(json.dumps(value), status, content_type="application/json")


def _events(response: requests.Response) -> Iterator[Json]:
    for line in response.iter_lines(chunk_size=None):
        field, _, data = line.partition(b": ")
        if field == b"data" and data != b"[DONE]":
            yield json.loads(data)
