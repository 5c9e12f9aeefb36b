"""The stand-in for `sgl_kernel`, in a separate interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentcore_verify import cpu


@pytest.mark.parametrize(
    ("code", "said"),
    [
        pytest.param(
            """
from sgl_kernel.moe import topk_softmax
try:
    topk_softmax(1, x=2)
except RuntimeError as error:
    print(str(error).partition(" ")[0])
""",
            "sgl_kernel.moe.topk_softmax",
            id="a call is an error that names the function",
        ),
        pytest.param(
            "import importlib.util as u, sys, sgl_kernel\n"
            "print(u.find_spec('sgl_kernel_npu'), sys.hidden_ran)",
            "None True",
            id="other modules and the shadowed sitecustomize are left alone",
        ),
    ],
)
def test_the_stand_in(tmp_path: Path, code: str, said: str) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.hidden_ran = True")
    pythonpath = os.pathsep.join(map(str, (cpu.SITE, tmp_path)))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": pythonpath},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout.strip(), done.stderr) == (said, "")
