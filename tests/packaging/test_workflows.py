"""Run the scripts of the project's workflows, as far as they can run here."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentcore_patches import __version__
from tests.packaging.scratch import Scratch
from tests.packaging.workflows import ACTION, ROOT, Step, run_job

FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
JOBS: dict[str, dict[str, Any]] = {
    job: of
    for file in FILES
    for job, of in yaml.safe_load(file.read_text())["jobs"].items()
}

# GitHub's machines have what these remove, and lack what they install. The last one
# runs these tests.
NOT_HERE = [
    "sudo rm -rf /usr/local/lib/android /usr/share/dotnet",
    "sudo apt-get update && sudo apt-get install --yes strace",
    ".ci/run",
]


@pytest.fixture(scope="module")
def checkout(empty_scratch: Callable[[], Scratch], tree: Path) -> Scratch:
    """An environment in a checkout of the commit that is released."""
    scratch = empty_scratch()
    shutil.copytree(tree, scratch.folder, dirs_exist_ok=True)
    scratch.ok("git init -q && git add setup.cfg")
    scratch.ok("git -c user.name=a -c user.email=a commit -qm x")
    return scratch


def test_scripts_contain_no_expressions_and_actions_are_pinned() -> None:
    steps = [step for job in JOBS.values() for step in job["steps"]]
    scripts = [
        step["run"] for step in [*steps, *ACTION["runs"]["steps"]] if "run" in step
    ]
    assert not [script for script in scripts if "${{" in script]
    used = re.findall(r"uses: (.*)", "".join(file.read_text() for file in FILES))
    pinned = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert {name for name in used if not pinned.fullmatch(name)} == {"./"}


def test_ci_runs_everything() -> None:
    assert [step["run"] for step in JOBS["run"]["steps"] if "run" in step] == NOT_HERE


def test_a_release(checkout: Scratch) -> None:
    tag = {"env": {"GITHUB_REF_NAME": f"v{__version__}"}}
    build = [{**tag, **step} for step in JOBS["build"]["steps"]]
    assert_done(build, checkout)
    assert len([*checkout.folder.glob("dist/*")]) == 2
    assert_done(JOBS["verify"]["steps"], checkout)  # `./` runs in another test.
    assert checkout.ok("agentcore-patch -V").startswith(
        f"agentcore-patch {__version__}"
    )
    other = [{**step, "env": {"GITHUB_REF_NAME": "v0.0.1"}} for step in build]
    assert "failure" in run_job(other[3:4], checkout).values()


def assert_done(steps: Sequence[Step], scratch: Scratch) -> None:
    ended = run_job(steps, scratch)
    assert set(ended.values()) <= {"success", "used"}, ended
