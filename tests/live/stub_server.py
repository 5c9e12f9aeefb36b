"""A misbehaving stand-in for an SGLang server, run in place of an interpreter.

    stub_server.py PROBE --port PORT ...

$STUB selects the behaviour:

    dies              exits at start
    never-ready       never gets ready
    busy              rejects the first two requests to generate with 503
    crashes           crashes at the first chat request
    silent            hangs at the first chat request
    silent-streaming  hangs at streaming requests only
    babbles           answers with nonsense
    clings            answers with nonsense, and ignores the signal to stop

The IDs of its processes are appended to $STUB_PIDS.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

WHOLE = {
    "choices": [{"index": 0, "message": {"content": "-"}, "token_ids": [1]}],
    "prompt_token_ids": [1],
}


class Handler(BaseHTTPRequestHandler):
    n_busy = 0

    def do_GET(self) -> None:
        self.answer({})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        answer: object = {"text": ""}
        how = os.environ["STUB"]
        if self.path == "/generate" and how == "busy":
            print("the stub is busy", flush=True)
            Handler.n_busy += 1
            if Handler.n_busy <= 2:
                self.answer(answer, 503)
                return
        if self.path == "/v1/chat/completions":
            if how == "crashes":
                print("the stub crashes", flush=True)
                os._exit(3)
            if how == "silent" or (how == "silent-streaming" and body.get("stream")):
                print("the stub falls silent", flush=True)
                time.sleep(300)
            if how == "silent-streaming":
                answer = WHOLE
        self.answer(answer)

    def answer(self, value: object, status: int = 200) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None: ...


def end_with_stdin(child: subprocess.Popen[bytes]) -> None:
    sys.stdin.read()
    child.kill()
    os._exit(0)


def main() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen(["sleep", "300"])
    with Path(os.environ["STUB_PIDS"]).open("a") as pids:
        pids.write(f"{os.getpid()}\n{child.pid}\n")
    print("the stub begins", flush=True)
    how = os.environ["STUB"]
    if how != "clings":
        Thread(target=end_with_stdin, args=(child,), daemon=True).start()
    if how == "dies":
        raise SystemExit("the stub has no model")
    if how == "never-ready":
        time.sleep(300)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()


if __name__ == "__main__":
    main()
