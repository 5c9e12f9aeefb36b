"""The report as one JSON document; the classes below describe it for type checkers."""

from __future__ import annotations

import json
from typing import Literal, TypedDict

from agentcore_patches.errors import FailureKind, ServerError
from agentcore_patches.failure import failure_of

from .results import Difference, Report, Result


class FailureDocument(TypedDict):
    """Why the run ended early, as any command that fails says it."""

    kind: FailureKind
    exit_code: int
    message: str


class RowDocument(TypedDict):
    """One position of two sequences; a side that has nothing there is empty."""

    position: int
    left: str
    right: str
    same: bool


class DifferenceDocument(TypedDict):
    """Two sequences around the first position where they differ."""

    left: str
    right: str
    rows: list[RowDocument]


class CheckDocument(TypedDict):
    """The result of one check; `seconds` is how long it took."""

    name: str
    outcome: Literal["passed", "failed", "inconclusive", "not exercised", "skipped"]
    message: str
    advice: str
    difference: DifferenceDocument | None
    seconds: float


class ReportDocument(TypedDict):
    """One run of `verify`. Later versions may add keys, but remove none.

    `seconds` is the time of the whole run; `startup` the part of it in which the server
    started, null if it was running already; `log` the file with the server's output.
    """

    passed: bool
    exit_code: int
    target: str
    model: str
    server_args: list[str]
    strict: bool
    seconds: float
    startup: float | None
    log: str | None
    error: FailureDocument | None
    notes: list[str]
    checks: list[CheckDocument]


def render_json(report: Report) -> str:
    """The document as indented JSON."""
    return json.dumps(document(report), indent=2)


def document(report: Report) -> ReportDocument:
    """The report as the object that is printed and written."""
    return {
        "passed": report.passed,
        "exit_code": report.exit_code,
        "target": report.target,
        "model": report.model,
        "server_args": list(report.server_args),
        "strict": report.strict,
        "seconds": report.seconds,
        "startup": report.startup,
        "log": str(report.log) if report.log else None,
        "error": _error(report.error),
        "notes": list(report.notes),
        "checks": [_check(result) for result in report.results],
    }


def _error(message: str | None) -> FailureDocument | None:
    if message is None:
        return None
    failure = failure_of(ServerError(message))
    return {
        "kind": failure.kind,
        "exit_code": failure.exit_code,
        "message": failure.message,
    }


def _check(result: Result) -> CheckDocument:
    return {
        "name": result.check,
        "outcome": result.outcome.value,
        "message": result.message,
        "advice": result.advice,
        "difference": _difference(result.difference),
        "seconds": result.seconds,
    }


def _difference(difference: Difference | None) -> DifferenceDocument | None:
    if difference is None:
        return None
    return {
        "left": difference.left,
        "right": difference.right,
        "rows": [
            {
                "position": row.position,
                "left": row.left,
                "right": row.right,
                "same": row.equal,
            }
            for row in difference.rows
        ],
    }
