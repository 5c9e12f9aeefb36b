"""Servers of other projects: a vLLM, routers and gateways."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import requests

from tests.helpers.waiting import wait_until

CONTEXT = 1024
"""Tokens of a vLLM's context."""

VLLM_ENV = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}


def vllm_command(python: str | Path, model: Path, name: str, *args: str) -> list[str]:
    """The command of a vLLM on the CPU, without its port."""
    return [
        *(str(python), "-m", "vllm.entrypoints.cli.main", "serve", str(model)),
        *("--served-model-name", name, "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(CONTEXT), "--max-num-seqs", "8"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        *("--enable-scale-out", "--enable-prompt-tokens-details"),
        # SGLang's on the CPU.
        *("--structured-outputs-config", '{"backend": "guidance"}'),
        *args,
    ]


@contextmanager
def running(
    command: Sequence[str | Path],
    port: int,
    ready: str,
    log: Path,
    env: Mapping[str, str] | None = None,
) -> Iterator[str]:
    """Run a server on 127.0.0.1; yield its URL once GET `ready` is answered with 200.

    Raises AssertionError, with the end of its log, if it dies first.
    """
    url = f"http://127.0.0.1:{port}"
    with log.open("w") as output:
        process = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, **(env or {})},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def is_ready() -> bool:
        code = process.poll()
        assert code is None, f"It exited with {code}.\n{log.read_text()[-5000:]}"
        try:
            return requests.get(f"{url}{ready}", timeout=5).ok
        except requests.RequestException:
            return False

    try:
        wait_until(is_ready, seconds=600)
        yield url
    finally:
        # Asked to stop, vLLM removes its shared memory.
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
