"""Errors and output of `verify`, without a server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import Mock

import pytest
import requests
from pytest_httpserver import HTTPServer

from agentcore_patches.command.cli import main
from agentcore_verify import checks, runner
from agentcore_verify.checks import weight_versions
from agentcore_verify.client import HttpError
from agentcore_verify.progress import Progress
from agentcore_verify.results import Failed, Outcome, Report, Result
from agentcore_verify.subject import Subject
from tests.helpers.documents import mismatches
from tests.unit.small_sglang import build

Said = Callable[..., tuple[int, str, str]]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Said:
    """Run the command; return exit code, standard output and standard error."""
    return lambda *args: (main(["verify", *args]), *capsys.readouterr())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[runner.Options]:
    """The options of each run; every run is replaced by one with a failed check."""
    seen: list[runner.Options] = []

    def run(options: runner.Options, progress: Progress) -> Report:
        seen.append(options)
        progress.message("Starting SGLang")
        result = Result("stop", Outcome.FAILED, "100% wrong:\nit went on, and on")
        return Report("SGLang", "m", options.server_args, (result,), 1.0)

    monkeypatch.setattr(runner, "run", run)
    return seen


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ("", "--model"),
        ("--model scripted --tp 2", "after `--`"),
        ("--model scripted --check all", "determinism"),
        ("--model scripted --check tools,logprob", "Did you mean logprobs?"),
        ("--model scripted --device tpu", "cuda"),
        ("--model scripted --startup-timeout 0", "startup-timeout"),
        ("--base-url 127.0.0.1:30000", "http://"),
        ("--model scripted report.json", "argument report.json"),
        ("--base-url http://h --device cpu -- --tp 2", "SERVER_ARGS"),
        ("--base-url http://h --log x", "--log"),
    ],
)
def test_conflicting_options_are_a_usage_error(
    said: Said, args: str, word: str
) -> None:
    code, out, err = said(*args.split())
    assert (code, out) == (2, "")
    assert word in err


def test_no_server_at_the_url_is_a_server_error(said: Said, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    args = ("--base-url", "http://127.0.0.1:9", "--model", "m", "--junit", str(junit))

    code, out, err = said(*args)

    assert code == 6
    assert "No server answers at http://127.0.0.1:9." in err
    assert "FAILED: no check was run." in out
    assert "<error" in junit.read_text()
    code, out, err = said(*args, "--json")
    document = json.loads(out)
    assert mismatches(document, Report) == []
    assert document["error"]["exit_code"] == code == 6
    assert "No server answers" in document["error"]["message"]
    assert "error" not in err


def test_a_server_that_needs_a_key_is_a_usage_error(
    said: Said, httpserver: HTTPServer
) -> None:
    httpserver.expect_request(re.compile(".*")).respond_with_data(status=401)
    url = httpserver.url_for("").removesuffix("/")
    code, out, err = said("--base-url", f"{url}/v1")
    assert (code, out) == (2, "")
    assert f"The server at {url} needs an API key: give --api-key." in err


def test_a_file_in_a_missing_folder_is_an_error_before_the_run(
    said: Said, tmp_path: Path
) -> None:
    for option in ("--json-file", "--junit", "--svg", "--log"):
        file = str(tmp_path / "none" / "file")
        code, _, err = said("--model", "scripted", option, file)
        assert code == 5
        assert file in err


def test_every_path_may_start_with_a_tilde(
    said: Said,
    runs: list[runner.Options],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    names = ("json-file", "junit", "svg", "log", "python", "sglang-dir")

    said("--model", "m", *(f"--{name}=~/{name}" for name in names))

    assert {file.name for file in tmp_path.iterdir()} == {"json-file", "junit", "svg"}
    [options] = runs
    for path in (options.log, options.python, options.sglang_dir):
        assert path and path.parent == tmp_path


def test_the_checks_are_listed_with_their_summaries(
    said: Said,
) -> None:
    code, out, _ = said("--list-checks")
    assert code == 0
    for name, line in zip(checks.NAMES, out.splitlines(), strict=True):
        assert line.split()[0] == name and line.endswith(checks.get(name).summary)
    code, out, _ = said("--list-checks", "--json")
    assert code == 0
    assert [check["name"] for check in json.loads(out)["checks"]] == list(checks.NAMES)


def test_an_unpatched_sglang_is_one_line_and_no_server_starts(
    said: Said, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    package, file = build(tmp_path), tmp_path / "report.json"
    options = ("--sglang-dir", str(package), "--json-file", str(file))

    code, out, err = said("--model", "scripted", *options)

    advice = (
        f"SGLang 0.5.9 in {package} is not patched, so no server was started. Run "
        f"`agentcore-patch apply --sglang-dir {package}` first."
    )
    assert code == 1
    assert out == f"FAILED: {advice}\n"
    assert err == f"::error title=agentcore-patch verify::{advice}\n"
    failed = {
        check["name"]: check["message"]
        for check in json.loads(file.read_text())["checks"]
        if check["outcome"] == "failed"
    }
    assert failed == dict.fromkeys(checks.NAMES, advice)


def test_an_unsupported_sglang_exits_with_3(said: Said, tmp_path: Path) -> None:
    files = {"version.py": b'__version__ = "0.6.1"\n', "srt/a.py": b""}
    package = build(tmp_path, "0.6.1", files)
    code, out, err = said("--model", "scripted", "--sglang-dir", str(package))
    assert (code, out) == (3, "")
    assert err.startswith(f"error: SGLang 0.6.1 in {package} is not supported.\nhint: ")


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("actions", ["true", ""])
def test_failures_are_annotated_in_github_actions(
    said: Said, monkeypatch: pytest.MonkeyPatch, actions: str
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", actions)

    code, out, err = said("--model", "m", "--json")

    document = json.loads(out)
    assert code == 1 and document["passed"] is False
    assert mismatches(document, Report) == []
    if not actions:
        _, out, quiet = said("--model", "m", "-q")
        assert "stop: FAILED" in out and quiet == ""
    line = "::error title=agentcore-patch verify%3A stop::100%25 wrong:%0Ait went on, and on"
    assert err.splitlines()[1:] == ([line] if actions else [])


def test_a_passed_quiet_run_is_silent_and_a_verbose_one_has_details(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = Result("stop", Outcome.PASSED, "all well " * 30)
    passed = Report("SGLang", "m", (), (result,), 1.0)
    monkeypatch.setattr(runner, "run", lambda options, progress: passed)
    assert said("--model", "m", "-q") == (0, "", "")
    assert "stop: passed\nall well" in said("--model", "m", "-v")[1]
    assert "stop: passed\n" not in said("--model", "m")[1]


def test_release_capabilities_follow_the_table_of_releases() -> None:
    def of(version: object, **more: object) -> Subject:
        subject = Subject("http://h", model="m")
        subject.info = {"version": version, **more}
        return subject

    without = ("0.5.8", "0.5.8.post1", "0.5.8+cu130")
    for version in (*without, "0.5.9", "0.5.23", "unknown", None):
        assert of(version).has_messages() is (version not in without)
    losing = {
        "/v1/completions": {"0.5.10.post1", "0.5.16"},
        "/v1/chat/completions": {"0.5.10.post1"},
    }
    for path, versions in losing.items():
        for version in ("0.5.9", "0.5.10.post1", "0.5.16", "0.5.17", "unknown"):
            subject = of(version, incremental_streaming_output=True)
            assert subject.loses_text(path) is (version in versions)
            assert not of(version).loses_text(path)


def test_a_request_that_fails_fails_its_check_and_not_the_run() -> None:
    def check(subject: Subject) -> str:
        raise HttpError(400, "Cache not flushed")

    result = checks.Check("some", check).run(Subject("http://nowhere"))
    assert result.outcome is Outcome.FAILED
    assert result.message == "A request failed: HTTP 400: Cache not flushed"


def test_a_cache_flush_is_retried_on_a_busy_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    n_attempts = weight_versions.FLUSH_ATTEMPTS
    for n_refusals in (n_attempts - 1, n_attempts):
        refusals = [HttpError(400, "Cache not flushed")] * n_refusals
        post = Mock(side_effect=[*refusals, requests.Response()])
        monkeypatch.setattr(Subject, "post", post)
        fails = pytest.raises(Failed, match="/flush_cache: HTTP 400")
        with fails if n_refusals == n_attempts else nullcontext():
            weight_versions._flush(Subject("http://nowhere"))


def test_options_reach_the_run_and_its_outcome_is_returned(
    said: Said, runs: list[runner.Options]
) -> None:
    args = (
        "--model org/name --check stop,tito --check choices --tool-call-parser qwen25"
    )
    code, out, _ = said(*f"{args} --strict -- --tp 2 --help".split())
    assert code == 1
    assert "stop: FAILED\n100% wrong:" in out
    [options] = runs
    assert options.checks == ("choices", "stop", "tito")
    assert options.server_args == ("--tp", "2", "--help")
    assert options.tool_call_parser == "qwen25" and options.strict
    assert options.device == "auto" and options.startup_timeout == 600
