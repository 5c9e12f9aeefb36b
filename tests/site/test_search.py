"""The site, opened and searched in a browser. `make test-site` builds it first."""

from __future__ import annotations

import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SITE = Path(__file__).parents[2] / "build/site"
BROWSERS = ("chromium-headless-shell", "chromium", "google-chrome")

pytestmark = pytest.mark.browser


def test_a_search_for_a_symptom_finds_the_page_on_it() -> None:
    from playwright.sync_api import sync_playwright

    assert SITE.is_dir(), "run `make site` first"
    installed = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert installed, f"none of {', '.join(BROWSERS)} is installed: make chromium"
    serve = partial(SimpleHTTPRequestHandler, directory=str(SITE))
    with (
        ThreadingHTTPServer(("127.0.0.1", 0), serve) as server,
        sync_playwright() as playwright,
    ):
        threading.Thread(target=server.serve_forever, daemon=True).start()
        browser = playwright.chromium.launch(executable_path=installed)
        page = browser.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.locator("input[name=query]").press_sequentially("logprob mismatch")
        found = page.locator(".md-search-result__list a").first.get_attribute("href")
        browser.close()
        server.shutdown()
    assert found and "/docs/how-to/troubleshooting.html" in found
