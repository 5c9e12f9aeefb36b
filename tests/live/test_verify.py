"""The command `verify` on real servers, as users run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from agentcore_patches.patches.releases import is_between
from agentcore_verify import checks, parsers
from agentcore_verify.results import Report
from agentcore_verify.server import Server
from agentcore_verify.subject import NO_IDS
from tests.helpers.bytecode import Bytecode
from tests.helpers.documents import mismatches
from tests.helpers.servers import Trees
from tests.live.proxy import Proxy

# Time limit for a server to start while other tests run.
SECONDS = 400


Verify = Callable[..., tuple[subprocess.CompletedProcess[str], Any]]


@pytest.fixture
def verify(bytecode: Bytecode, tmp_path: Path) -> Verify:
    """Run the command with these arguments; return how it ended, and its document."""

    def run(*args: str | Path) -> tuple[subprocess.CompletedProcess[str], Any]:
        file = tmp_path / "report.json"
        command = [sys.executable, "-m", "agentcore_patches", "verify"]
        ran = subprocess.run(
            [*command, "--json-file", file, *args],
            env={**os.environ, **bytecode.env, "TMPDIR": str(tmp_path)},
            capture_output=True,
            text=True,
            timeout=SECONDS,
        )
        assert "Traceback" not in ran.stderr
        assert file.exists(), ran.stdout + ran.stderr
        return ran, json.loads(file.read_text())

    return run


def test_a_patched_server_passes_every_check(
    verify: Verify, trees: Trees, sglang_python: Path, tmp_path: Path
) -> None:
    files = {kind: tmp_path / f"report.{kind}" for kind in ("junit", "svg", "log")}
    ran, report = verify(
        *("--model", "scripted", "--device", "cpu", "--strict"),
        *("--python", sglang_python, "--sglang-dir", trees.patched / "sglang"),
        *(part for kind, file in files.items() for part in (f"--{kind}", file)),
        *("--", "--api-key", "secret"),
    )
    assert {check["name"]: check["outcome"] for check in report["checks"]} == {
        name: "skipped" if name == "images" else "passed" for name in checks.NAMES
    }, ran.stdout
    assert ran.returncode == 0
    assert report["passed"] is True
    assert f"PASSED: {len(checks.NAMES) - 1} passed" in ran.stdout
    cases = ElementTree.parse(files["junit"]).findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == list(checks.NAMES)
    ElementTree.parse(files["svg"])
    assert "Uvicorn running" in files["log"].read_text()
    assert list(tmp_path.glob("agentcore-*")) == []
    assert report["server_args"][-2:] == ["--api-key", "***"]
    assert mismatches(report, Report) == []
    assert "secret" not in json.dumps(report) + ran.stdout + ran.stderr


# Parsers that some releases lack: the first and the last of these releases.
LACKING = {
    "lfm2": ("", "0.5.8"),
    "hermes": ("", "0.5.8"),
    "nemotron_3": ("", "0.5.9"),
    "nano_v3": ("0.5.10", ""),
}


def test_every_parser_that_may_be_detected_is_one_of_sglang(
    trees: Trees, release: str
) -> None:
    sources = {
        parsers.TOOL_CALL: parsers.TOOL_CALL_PARSERS,
        parsers.REASONING: parsers.REASONING_PARSERS,
    }
    for rules, path in sources.items():
        source = (trees.vanilla / "sglang" / path).read_text()
        for name in {rule.parser for rule in rules}:
            has_it = not (name in LACKING and is_between(release, *LACKING[name]))
            assert (f'"{name}": ' in source) is has_it, name


def test_a_parser_that_sglang_lacks_is_not_detected(
    trees: Trees, sglang_python: Path, tmp_path: Path, release: str
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "nemotron_h"}')
    (tmp_path / "chat_template.jinja").write_text("enable_thinking")
    found = parsers.detect(sglang_python, str(tmp_path), trees.vanilla / "sglang")
    name = "nano_v3" if is_between(release, "", "0.5.9") else "nemotron_3"
    assert found == parsers.Parsers(None, name)


@pytest.mark.parametrize("mode", ["default"], indirect=True)
def test_a_running_server_that_is_not_patched_is_judged_by_the_rules(
    verify: Verify, vanilla: Server, release: str
) -> None:
    with Proxy(vanilla.base_url, api_key="secret") as proxy:
        ran, report = verify("--base-url", f"{proxy.url}/v1", "--api-key", "secret")
    verdicts = {rule["number"]: rule["verdict"] for rule in report["rules"]}
    assert report["by_rules"] and report["profile"] == "sglang"
    # From 0.5.13 on, answers have IDs on request, streams of chat have none, and the next
    # turn is tokenized again.
    has_ids = is_between(release, "0.5.13", "")
    failed = [number for number, verdict in verdicts.items() if verdict == "fail"]
    assert failed == ([17] if has_ids else []), ran.stdout
    assert verdicts[1] == ("pass" if has_ids else "unsupported")
    assert verdicts[5] == "unsupported" and verdicts[15] == "pass"
    assert (NO_IDS in " ".join(ran.stdout.split())) is not has_ids
    assert ran.returncode == bool(failed) and "patched" not in ran.stdout
    assert "`agentcore-patch" not in ran.stdout
    assert "secret" not in json.dumps(report) + ran.stdout + ran.stderr
