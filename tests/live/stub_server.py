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
from itertools import count
from pathlib import Path
from threading import Thread

from werkzeug import Request, Response
from werkzeug.serving import make_server

WHOLE = {
    "choices": [{"index": 0, "message": {"content": "-"}, "token_ids": [1]}],
    "prompt_token_ids": [1],
}
N_BUSY = count(1)


def answer(request: Request) -> Response:
    how = os.environ["STUB"]
    if request.path == "/generate" and how == "busy":
        print("the stub is busy", flush=True)
        if next(N_BUSY) <= 2:
            return Response("{}", 503)
    if request.path == "/v1/chat/completions":
        if how == "crashes":
            print("the stub crashes", flush=True)
            os._exit(3)
        streams = request.get_json()["stream"]
        if how == "silent" or (how == "silent-streaming" and streams):
            print("the stub falls silent", flush=True)
            time.sleep(300)
        if how == "silent-streaming":
            return Response(json.dumps(WHOLE))
    return Response("{}" if request.method == "GET" else '{"text": ""}')


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
    application = Request.application(answer)
    make_server("127.0.0.1", port, application, threaded=True).serve_forever()


if __name__ == "__main__":
    main()
