"""The report as one JSON document."""

from __future__ import annotations

import json

from agentcore_patches.errors import ServerError
from agentcore_patches.shell.exit_codes import failure_of
from agentcore_patches.shell.json_output import as_json

from .results import Report


def render_json(report: Report) -> str:
    """The document, indented. Later versions may add keys, but remove none."""
    error = (
        None
        if report.error is None
        else failure_of(ServerError(report.error, report.hint))
    )
    document = {
        "contract": report.contract,
        "passed": report.passed,
        "exit_code": report.exit_code,
        "time": report.time,
        "versions": report.versions,
        "patches": report.patches,
        "device": report.device,
        "target": report.target,
        "server": report.server,
        "model": report.model,
        "server_args": report.server_args,
        "strict": report.strict,
        "seconds": report.seconds,
        "startup": report.startup,
        "log": report.log,
        "error": error,
        "notes": report.notes,
        "checks": report.results,
        "profile": report.profile,
        "levels": report.levels,
        "required": report.required,
        "by_rules": report.by_rules,
        "expect_logprobs": report.expect_logprobs,
        "rules": report.rules,
    }
    return json.dumps(as_json(document), indent=2)
