"""The project's workflows name what they run exactly, and put no input into a script."""

from __future__ import annotations

import re

import yaml

from tests.packaging.workflows import ACTION, ROOT

FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))


def test_scripts_contain_no_expressions_and_actions_are_pinned() -> None:
    jobs = [
        job
        for file in FILES
        for job in yaml.safe_load(file.read_text())["jobs"].values()
    ]
    steps = [step for job in jobs for step in job["steps"]]
    scripts = [
        step["run"] for step in [*steps, *ACTION["runs"]["steps"]] if "run" in step
    ]
    assert not [script for script in scripts if "${{" in script]
    used = re.findall(r"uses: (.*)", "".join(file.read_text() for file in FILES))
    pinned = re.compile(r"[\w-]+/[\w-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
    assert {name for name in used if not pinned.fullmatch(name)} == {"./"}
