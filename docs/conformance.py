"""Judges servers by the rules of a token-exact server: `make conformance`.

    python -m docs.conformance VLLM_PYTHON [SERVER...]

Starts each server with the scripted model on the CPU, runs `token-exact verify` on it, and
records the verdicts in `docs/reference/conformance.json`, of which `python -m docs.pages`
makes the page. Names of servers leave the others' rows as they are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any

from agentcore_patches import api
from agentcore_patches.errors import AgentcoreError
from agentcore_patches.installs.install import find
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_verify import client
from agentcore_verify.contract import LEVELS
from agentcore_verify.launching import SCRIPTED, Launching, server_options
from agentcore_verify.scripted_model import ensure_scripted_model
from agentcore_verify.server import Server, free_port
from tests.helpers.peers import VLLM_ENV, running, vllm_command
from tests.versions.check import environment_of

BIN = Path(sys.executable).parent
ENVIRONMENTS = Path(__file__).parents[1] / "build/conformance"
RECORD = Path(__file__).parent / "reference/conformance.json"

VLLM = "vLLM 0.32.0"
OLD, NEW = "0.5.9", SUPPORTED_VERSIONS[-1]
KEY = "sk-conformance"
"""A key that LiteLLM needs, and that others ignore."""

Json = dict[str, Any]
Serve = Callable[[Path], AbstractContextManager[str]]
"""Starts a server, with its files in a folder; the context manager gives its URL."""


@dataclass(frozen=True)
class Gateway:
    """A gateway, its command and the path that tells when it is ready.

    The command and the settings have `{url}` for that of the server behind it, `{port}` for
    a free port, and `{settings}` for the file of the settings.
    """

    requirement: str
    command: str
    ready: str
    settings: Json | None = None

    @property
    def name(self) -> str:
        return self.requirement.replace("[proxy]", "").replace("==", " ")


GATEWAYS = {
    "sglang-router": Gateway(
        "sglang-router==0.3.2",
        "python -m sglang_router.launch_router --worker-urls {url} "
        "--prometheus-host 127.0.0.1 --prometheus-port {port}",
        "/readiness",
    ),
    "LiteLLM": Gateway(
        "litellm[proxy]==1.108.7",
        "litellm --config {settings}",
        "/health/readiness",
        {
            "model_list": [
                {
                    "model_name": SCRIPTED,
                    "litellm_params": {
                        "model": f"hosted_vllm/{SCRIPTED}",
                        "api_base": "{url}/v1",
                        "api_key": "none",
                    },
                }
            ],
            "general_settings": {"master_key": KEY},
        },
    ),
    "rllm-model-gateway": Gateway(
        "rllm-model-gateway==0.1.0",
        "rllm-model-gateway --config {settings} --store memory --worker {url}/v1",
        "/health",
        {"strip_vllm_fields": False},
    ),
}


@contextmanager
def sglang(release: str, patched: bool, folder: Path) -> Iterator[str]:
    """Serve the model by a copy of SGLang."""
    python = Path(sys.executable)
    if find(python=python).version != release:
        python = environment_of(release)
    package = folder / "sglang"
    # With its bytecode, which saves 15 s of CPU time.
    shutil.copytree(find(python=python).package, package)
    api.revert(sglang_dir=package)
    if patched:
        api.apply(sglang_dir=package)
    launching = Launching(
        SCRIPTED,
        python,
        sglang_dir=package,
        device="cpu",
        tool_call_parser="qwen25",
        reasoning_parser="qwen3",
        server_args=("--served-model-name", SCRIPTED),
    )
    log = folder / "server.log"
    options = server_options(launching, log=log, notify=print, package=package)
    with Server(options) as server:
        yield server.base_url


@contextmanager
def vllm(python: Path, folder: Path) -> Iterator[str]:
    args = ("--reasoning-parser", "qwen3")
    command = vllm_command(python, _model(), SCRIPTED, *args)
    log = folder / "server.log"
    with running(command, free_port(), "/health", log, VLLM_ENV) as url:
        yield url


@contextmanager
def gateway(which: Gateway, folder: Path) -> Iterator[str]:
    """Serve the model by a gateway in front of a patched SGLang."""
    binaries = environment(which.requirement) / "bin"
    with sglang(NEW, True, folder) as url:
        settings = folder / "settings.yaml"
        settings.write_text(json.dumps(which.settings).replace("{url}", url))
        names = {"url": url, "port": free_port(), "settings": settings}
        program, *args = which.command.format(**names).split()
        # Otherwise LiteLLM downloads a list of prices.
        env = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        command = [str(binaries / program), *args]
        log = folder / "gateway.log"
        with running(command, free_port(), which.ready, log, env) as before:
            yield before


def environment(requirement: str) -> Path:
    """The folder of an environment that has a requirement."""
    folder = ENVIRONMENTS / requirement
    if not (folder / ".ready").exists():
        steps: list[list[str | Path]] = [
            ["venv", "--clear", "--python", sys.executable, folder],
            ["pip", "install", "--python", folder / "bin/python", requirement],
        ]
        for step in steps:
            subprocess.run([BIN / "uv", "--quiet", *step], check=True)
        (folder / ".ready").touch()
    return folder


def servers(vllm_python: Path) -> dict[str, tuple[str, Serve]]:
    """The name and the start of each server, by the head of its column."""
    found: dict[str, tuple[str, Serve]] = {}
    for release in (OLD, NEW):
        for patched, kind in ((False, "stock"), (True, "patched")):
            name = f"{release}, {kind}"
            found[name] = (f"SGLang {name}", partial(sglang, release, patched))
    found["vLLM"] = (VLLM, partial(vllm, vllm_python))
    for short, which in GATEWAYS.items():
        name = f"SGLang {NEW}, patched, behind {which.name}"
        found[short] = (name, partial(gateway, which))
    return found


def judged(short: str, name: str, serve: Serve) -> Json:
    """Start a server, run `token-exact verify` on it, and return what the page needs."""
    date = datetime.now(timezone.utc).date().isoformat()
    row: Json = {"name": name, "short": short, "date": date}
    with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
        table = Path(folder, "levels.md")
        command: list[str | Path] = [
            *(BIN / "token-exact", "verify", "--json", "--markdown", table),
            *("--level", ",".join(LEVELS), "--base-url"),
        ]
        if short in GATEWAYS:
            command[2:2] = ["--tokenizer", _model(), "--api-key", KEY]
        try:
            with serve(Path(folder)) as url:
                row["flat"] = flat_logprobs(url)
                done = subprocess.run([*command, url], stdout=subprocess.PIPE)
        except (AgentcoreError, AssertionError, subprocess.CalledProcessError) as error:
            print(error, flush=True)
            return {**row, "error": str(error).splitlines()[0]}
        report = json.loads(done.stdout)
        if report["error"]:
            return {**row, "error": report["error"]["message"].splitlines()[0]}
        *_, levels = table.read_text("utf-8").splitlines()
    rules = [
        {key: rule[key] for key in ("number", "verdict", "message")}
        for rule in report["rules"]
    ]
    row["profile"] = report["profile"]
    _, *verdicts = levels.strip("| ").split(" | ")
    # The name of the row says which servers are patched.
    notes = [note for note in report["notes"] if "has agentcore-patch" not in note]
    return {**row, "levels": verdicts, "rules": rules, "notes": notes}


def flat_logprobs(url: str) -> str:
    """Return "yes" if chat's flat logprobs equal the others, "no" if it has none."""
    body: Json = {
        "model": SCRIPTED,
        "messages": [{"role": "user", "content": "Count to ten."}],
        "max_tokens": 32,
        "logprobs": True,
        "return_token_logprobs": True,
    }
    for stream in (False, True):
        answer = client.ask(url, api_key=KEY, **body, stream=stream)
        [choice] = answer.completions
        pieces = [piece.raw.get("token_logprobs") for piece in choice.pieces]
        if pieces == [None] * len(pieces):
            return "no"
        flat = [logprob for piece in pieces for logprob in piece or ()]
        if not flat or flat != [row["logprob"] for row in choice.logprobs or ()]:
            return "wrong"
    return "yes"


def _model() -> Path:
    return ensure_scripted_model(Path(sys.executable))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("vllm", type=Path, help="an interpreter with vLLM")
    parser.add_argument("servers", nargs="*", help="judge only these")
    asked = parser.parse_args()
    known = servers(asked.vllm.absolute())
    old = json.loads(RECORD.read_text("utf-8")) if RECORD.exists() else []
    rows = {row["short"]: row for row in old if row["short"] in known}
    for short in asked.servers or known:
        print(short, flush=True)
        rows[short] = judged(short, *known[short])
        # After each one, for it takes minutes.
        made = ",\n".join(json.dumps(rows[one]) for one in known if one in rows)
        RECORD.write_text(f"[\n{made}\n]\n", "utf-8")


if __name__ == "__main__":
    main()
