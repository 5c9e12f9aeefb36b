"""Run the steps of a GitHub job, and of this project's action, in a scratch environment."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tests.packaging.scratch import Scratch

Step: TypeAlias = Mapping[str, Any]

ROOT = Path(__file__).parents[2]
ACTION: Mapping[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
COPIED_ACTION = "./.github/actions/agentcore-patch"
SUMMARY = "summary.md"

_SHELLS = {
    None: ("bash", "-e", "-c"),
    "bash": ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"),
}


def run_job(
    steps: Sequence[Step], scratch: Scratch, values: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the outcome of each step of a job, by the script or action.

    `values` are those of the expressions in the environment of steps. Actions other
    than the project's are not run.
    """
    ended: dict[str, str] = {}
    for step in steps:
        name = step.get("run") or step["uses"]
        failed = "failure" in ended.values()
        if failed != ("failure()" in step.get("if", "")) and (
            "!cancelled()" not in step.get("if", "")
        ):
            ended[name] = "skipped"
        elif "run" in step:
            exports = {"GITHUB_STEP_SUMMARY": SUMMARY, **step.get("env", {})}
            script = "".join(
                f"export {key}={shlex.quote(_expand(value, values or {}))}\n"
                for key, value in exports.items()
            )
            ran = scratch.run(script + step["run"], shell=_SHELLS[step.get("shell")])
            print(ran.out)
            ended[name] = "failure" if ran.code else "success"
        elif name == COPIED_ACTION:
            inputs = {key: of["default"] for key, of in ACTION["inputs"].items()}
            given = step.get("with", {})
            assert given.keys() <= inputs.keys()
            values_inside = {f"inputs.{k}": v for k, v in {**inputs, **given}.items()}
            inside = run_job(ACTION["runs"]["steps"], scratch, values_inside)
            ended[name] = "failure" if "failure" in inside.values() else "success"
        else:
            ended[name] = "used"
    return ended


def _expand(text: str, values: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda found: values[found[1]], text)
