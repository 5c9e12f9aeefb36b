"""What the command says before any server is there."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from agentcore_patches.cli import main
from agentcore_verify import checks, runner
from agentcore_verify.json_report import ReportDocument
from agentcore_verify.progress import Progress
from agentcore_verify.results import Outcome, Report, Result
from tests.helpers.documents import mismatches


def said(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    """Exit code, standard output, standard error."""
    code = main(["verify", *args])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


@pytest.mark.parametrize(
    ("args", "word"),
    [
        ((), "--model"),
        (("--model", "scripted", "--tp", "2"), "after `--`"),
        (("--model", "scripted", "--check", "all"), "determinism"),
        (("--model", "scripted", "--device", "tpu"), "cuda"),
        (("--model", "scripted", "--startup-timeout", "0"), "startup-timeout"),
        (("--base-url", "127.0.0.1:30000"), "http://"),
        (("--model", "scripted", "report.json"), "argument report.json"),
        (
            ("--base-url", "http://h", "--device", "cpu", "--", "--tp", "2"),
            "SERVER_ARGS",
        ),
        (("--base-url", "http://h", "--log", "x"), "--log"),
    ],
)
def test_conflicting_options_are_a_usage_error(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], word: str
) -> None:
    code, out, err = said(capsys, *args)
    assert code == 2
    assert out == ""
    assert word in err


def test_no_server_at_the_url_is_a_server_error(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    junit = tmp_path / "junit.xml"
    code, out, err = said(
        capsys,
        *("--base-url", "http://127.0.0.1:9", "--model", "m", "--junit", str(junit)),
    )
    assert code == 6
    assert "No server answers at http://127.0.0.1:9." in err
    assert "FAILED: no check was run." in out
    assert "<error" in junit.read_text()


class NeedsKey(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(401)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None: ...


def test_a_server_that_needs_a_key_is_a_usage_error(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with HTTPServer(("127.0.0.1", 0), NeedsKey) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        code, out, err = said(capsys, "--base-url", f"{url}/v1")
        thread.join()
    assert (code, out) == (2, "")
    assert f"The server at {url} needs an API key: give --api-key." in err


def test_a_file_in_a_missing_folder_is_an_error_before_the_run(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for option in ("--json-file", "--junit", "--svg", "--log"):
        file = str(tmp_path / "none" / "file")
        code, _, err = said(capsys, "--model", "scripted", option, file)
        assert code == 5
        assert file in err


def test_the_checks_are_listed_with_their_summaries(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, _ = said(capsys, "--list-checks")
    assert code == 0
    lines = out.splitlines()
    assert [line.split()[0] for line in lines] == list(checks.NAMES)
    for name, line in zip(checks.NAMES, lines, strict=True):
        assert line.endswith(checks.get(name).summary)


def test_the_checks_are_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--list-checks", "--json")
    assert code == 0
    assert [check["name"] for check in json.loads(out)["checks"]] == list(checks.NAMES)


def test_json_is_one_document_on_stdout(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def run(options: runner.Options, progress: Progress) -> Report:
        progress.message("Starting SGLang")
        result = Result("stop", Outcome.FAILED, "It went on.")
        return Report("SGLang", "m", (), (result,), 1.0)

    monkeypatch.setattr(runner, "run", run)
    file = tmp_path / "report.json"
    code, out, err = said(
        capsys, "--model", "m", "--json", "--json-file", str(file), "--", "--json"
    )
    assert code == 1
    document = json.loads(out)
    assert mismatches(document, ReportDocument) == []
    assert document == json.loads(file.read_text())
    assert "Starting SGLang" in err


@pytest.mark.parametrize(
    ("args", "kind", "code"),
    [
        (("--json",), "usage", 2),
        (("--json", "--model", "m", "--svg", "/no/such/folder/x.svg"), "access", 5),
    ],
)
def test_an_error_before_the_run_is_one_json_document(
    capsys: pytest.CaptureFixture[str], args: tuple[str, ...], kind: str, code: int
) -> None:
    assert said(capsys, *args)[0] == code
    _, out, err = said(capsys, *args)
    error = json.loads(out)["error"]
    assert (error["kind"], error["exit_code"]) == (kind, code)
    assert err == ""


def test_a_server_that_cannot_be_reached_is_one_json_document(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = said(
        capsys, "--base-url", "http://127.0.0.1:9", "--model", "m", "--json"
    )
    assert code == 6
    document = json.loads(out)
    assert mismatches(document, ReportDocument) == []
    assert document["error"]["exit_code"] == 6
    assert "No server answers" in document["error"]["message"]
    assert "Error" not in err


def test_json_after_the_dashes_is_an_option_of_sglang(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, out, err = said(capsys, "--", "--json")
    assert (code, out) == (2, "")
    assert "--model" in err


def test_every_check_says_what_a_failure_means_for_a_trainer() -> None:
    for name in checks.NAMES:
        check = checks.get(name)
        assert check.summary.endswith("."), name
        text = " ".join(check.text.split())
        assert "If not, " in text or "For a trainer" in text, name


def test_every_module_of_a_check_is_in_the_list() -> None:
    folder = Path(checks.__file__).parent
    modules = {file.stem.replace("_", "-") for file in folder.glob("*.py")}
    assert modules - {"--init--"} == set(checks.NAMES)


def test_options_reach_the_run_and_its_outcome_comes_back(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[runner.Options] = []

    def run(options: runner.Options, progress: Progress) -> Report:
        seen.append(options)
        result = Result("stop", Outcome.FAILED, "It went on.")
        return Report("SGLang", "m", options.server_args, (result,), 1.0)

    monkeypatch.setattr(runner, "run", run)
    code, out, _ = said(
        capsys,
        *("--model", "org/name", "--check", "stop", "--check", "choices"),
        *("--tool-call-parser", "qwen25", "--strict", "--", "--tp", "2", "--help"),
    )
    assert code == 1
    assert "stop: FAILED\nIt went on." in out
    [options] = seen
    assert options.checks == ("choices", "stop")
    assert options.server_args == ("--tp", "2", "--help")
    assert options.tool_call_parser == "qwen25" and options.strict
    assert options.device == "auto" and options.startup_timeout == 600
