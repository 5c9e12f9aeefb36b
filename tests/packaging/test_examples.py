"""Run the files in examples/ line by line, without Docker, GitHub or Slurm.

Commands of a Dockerfile or a pod run with sh, those of a job with bash as on GitHub,
in an environment with SGLang installed like in the base image. A script replaces
Slurm's `srun`: it runs the command twice at once, as two nodes with one environment.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from agentcore_patches import __version__
from agentcore_verify import checks
from tests.packaging.scratch import Ran, Scratch
from tests.packaging.workflows import SUMMARY, run_job

EXAMPLES = Path(__file__).parents[2] / "examples"
DOCKER_SHELL = ("/bin/sh", "-c")
CHAT = "srt/entrypoints/openai/serving_chat.py"

pytestmark = pytest.mark.live


def places(scratch: Scratch) -> dict[str, str]:
    """Map an image's paths to local ones; nothing else in a line changes."""
    return {
        "/sgl-workspace/": f"{scratch.folder}/sgl-workspace/",
        "/opt/venv": str(scratch.venv),
    }


def build(dockerfile: Path, scratch: Scratch) -> list[tuple[str, Ran]]:
    """Return the result of each RUN, in order, until one fails."""
    text = re.sub(r"^\s*#.*\n", "", dockerfile.read_text(), flags=re.MULTILINE)
    for path, here in places(scratch).items():
        text = text.replace(path, here)
    ran: list[tuple[str, Ran]] = []
    for line in text.replace("\\\n", " ").splitlines():
        instruction, _, rest = line.partition(" ")
        if instruction == "ENV":
            values = dict(word.split("=", 1) for word in shlex.split(rest))
            assert values["VIRTUAL_ENV"] == scratch.env["VIRTUAL_ENV"]
            assert scratch.env["PATH"].startswith(values["PATH"].removesuffix("$PATH"))
        elif instruction == "RUN":
            ran.append((rest, scratch.run(rest, shell=DOCKER_SHELL)))
            if ran[-1][1].code:
                break
        else:
            assert instruction in ("", "ARG", "FROM"), f"not run here: {line}"
    return ran


def test_every_example_has_a_test() -> None:
    run = {
        *("Dockerfile", "Dockerfile.checkout", "Dockerfile.uv"),
        *("github-actions.yml", "kubernetes.yaml", "slurm.sbatch"),
    }
    in_tests_of_a_cluster = {"ray_runtime_env.py"}
    in_test_training = {"train_with_trl.py", "weather_model.py"}
    in_the_readme = {"demo.py"}
    files = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert files == run | in_tests_of_a_cluster | in_test_training | in_the_readme


def test_an_image_with_the_wheel(wheel_scratch: Callable[[], Scratch]) -> None:
    scratch = wheel_scratch()
    ran = build(EXAMPLES / "Dockerfile", scratch)
    assert_built(ran)
    assert re.search(r"[0-9]+ files edited, [0-9]+ added", ran[1][1].out)
    assert is_patched(scratch.site / "sglang")


def test_the_official_image(checkout_scratch: Scratch) -> None:
    assert_built(build(EXAMPLES / "Dockerfile.checkout", checkout_scratch))
    package = checkout_scratch.folder / "sgl-workspace/sglang/python/sglang"
    assert is_patched(package)
    assert not (checkout_scratch.site / "sglang").exists()


def test_an_image_made_by_uv(uv_scratch: Callable[[str], Scratch]) -> None:
    scratch = uv_scratch("image")
    assert_built(build(EXAMPLES / "Dockerfile.uv", scratch))
    assert is_patched(scratch.site / "sglang")


def test_an_sglang_other_than_the_checkout_fails_the_build(
    checkout_scratch_beside_wheel: Scratch,
) -> None:
    ran = build(EXAMPLES / "Dockerfile.checkout", checkout_scratch_beside_wheel)
    assert [done.code for _, done in ran] == [0, 0, 1]
    assert ran[-1][0] == "agentcore-patch status --check"


def test_a_job(
    empty_scratch: Callable[[], Scratch],
    vanilla_tree: Callable[[Path], Path],
    tmp_path: Path,
) -> None:
    workflow = yaml.safe_load((EXAMPLES / "github-actions.yml").read_text())
    [job] = workflow["jobs"].values()
    *steps, action, keep = job["steps"]
    assert keep["uses"].startswith("actions/upload-artifact@")
    scratch = empty_scratch()
    report, summary = (
        scratch.folder / name for name in (keep["with"]["path"], SUMMARY)
    )

    unpatched = f"--model scripted --device cpu --sglang-dir {vanilla_tree(tmp_path)}"
    failing = {**action, "with": {**action["with"], "verify": unpatched}}
    ended = [*run_job([*steps, failing, keep], scratch).values()]
    assert ended[-3:] == ["success", "failure", "used"]
    assert ElementTree.parse(report).findall(".//failure")
    summary.unlink()

    assert "failure" not in run_job([action], scratch).values()
    cases = ElementTree.parse(report).findall("testsuite/testcase")
    assert [case.get("name") for case in cases] == list(checks.NAMES)
    assert not ElementTree.parse(report).findall(".//failure")
    told = summary.read_text().splitlines()
    assert told[:2] == ["~~~", f"agentcore-patch {__version__}"]
    assert told[-2].startswith("PASSED: ") and told[-1] == "~~~"


SRUN = """#!/bin/bash
"$@" & first=$!
"$@" & second=$!
wait $first && wait $second
"""
LAUNCH = "python -m sglang.launch_server"


each_tree = pytest.mark.parametrize(
    ("before", "code"), [("true", 0), (f"echo > {{site}}/sglang/{CHAT}", 4)]
)
"""A command that runs before an example, and the example's exit code."""


@each_tree
def test_a_slurm_job_whose_nodes_share_an_environment(
    wheel_scratch: Callable[[], Scratch], before: str, code: int
) -> None:
    """The servers are stand-ins; if SGLang cannot be patched, none starts."""
    scratch = wheel_scratch()
    scratch.ok(before.format(site=scratch.site))
    srun = scratch.folder / "tools/srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    script = (EXAMPLES / "slurm.sbatch").read_text()
    assert script.count(LAUNCH) == 1
    scratch.ok("pip install agentcore-patches")
    ran = scratch.run(
        "export MODEL=m\n" + script.replace(LAUNCH, f"echo {LAUNCH}"),
        shell=("bash", "-c"),
    )
    assert ran.code == code, ran.out
    assert ran.out.count(f"{LAUNCH} --model-path m") == (0 if code else 2)
    assert is_patched(scratch.site / "sglang") is (code == 0)


@each_tree
def test_a_pod(wheel_scratch: Callable[[], Scratch], before: str, code: int) -> None:
    deployment = yaml.safe_load((EXAMPLES / "kubernetes.yaml").read_text())
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    [script] = container["args"]
    [variable] = container["env"]
    assert script.count(f"exec {LAUNCH}") == 1
    scratch = wheel_scratch()
    scratch.ok(before.format(site=scratch.site))
    scratch.ok("pip install agentcore-patches")
    ran = scratch.run(
        f"export MODEL={variable['value']}\n"
        + script.replace(f"exec {LAUNCH}", f"exec echo {LAUNCH}"),
        shell=tuple(container["command"]),
    )
    assert ran.code == code, ran.out
    assert (f"{LAUNCH} --model-path /models/big" in ran.out) == (code == 0)


def assert_built(ran: list[tuple[str, Ran]]) -> None:
    assert [done.code for _, done in ran] == [0, 0, 0, 0], ran[-1][1].out
    line, done = ran[-1]
    assert "agentcore-patch verify" in line
    # The scripted model does not accept images, and examples add no extra.
    assert f"PASSED: {len(checks.NAMES) - 2} passed, 2 skipped" in done.out


def is_patched(package: Path) -> bool:
    return "prompt_token_ids" in (package / CHAT).read_text()
