"""The site, opened and searched in a browser. `make test-site` builds it first."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.waiting import wait_until

SITE = Path(__file__).parents[2] / "build/site"
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")
SECONDS = 60

pytestmark = pytest.mark.browser

# A page that opens the site, types into its search, and reports the result links.
READER = """
<iframe src="index.html"></iframe>
<script>
const frame = document.querySelector("iframe")
frame.onload = () => {
  const page = frame.contentDocument
  const field = page.querySelector("input[name=query]")
  field.focus()
  field.value = QUERY
  field.dispatchEvent(new frame.contentWindow.Event("keyup", { bubbles: true }))
  const timer = setInterval(() => {
    const links = page.querySelectorAll(".md-search-result__list a")
    if (!links.length) return
    clearInterval(timer)
    fetch("found", { method: "POST", body: JSON.stringify([...links].map(a => a.pathname)) })
  }, 100)
}
</script>
"""


class Handler(SimpleHTTPRequestHandler):
    """Serve the site and the reader page, and receive the links that it reports."""

    def __init__(self, query: str, found: queue.Queue[Any], *args: Any) -> None:
        self.query, self.found = query, found
        super().__init__(*args, directory=str(SITE))

    def do_GET(self) -> None:
        if self.path != "/reader":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(READER.replace("QUERY", json.dumps(self.query)).encode())

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.found.put(json.loads(self.rfile.read(length)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Drop the log of requests."""


@contextmanager
def opened(url: str, profile: Path) -> Iterator[None]:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert browser, f"none of {', '.join(BROWSERS)} is installed: make chromium"
    process = subprocess.Popen(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu"),
            *(f"--user-data-dir={profile}", "--remote-debugging-port=0", url),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )

    def is_gone() -> bool:
        process.poll()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
            return False
        return True

    try:
        yield
    finally:
        # On Debian the command is a script, and the browser outlives it.
        wait_until(is_gone, SECONDS)


def search(query: str, profile: Path) -> list[str]:
    """Return the paths of the pages that a search finds."""
    found: queue.Queue[list[str]] = queue.Queue()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, query, found))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with opened(f"http://127.0.0.1:{server.server_port}/reader", profile):
            return found.get(timeout=SECONDS)
    except queue.Empty:
        pytest.fail(f"nothing was found for {query!r}")
    finally:
        server.shutdown()
        server.server_close()


def test_a_search_for_a_symptom_finds_the_page_on_it(tmp_path: Path) -> None:
    assert SITE.is_dir(), "run `make site` first"
    found = search("logprob mismatch", tmp_path)
    assert found[0] == "/docs/how-to/troubleshooting.html"
