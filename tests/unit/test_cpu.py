"""The stand-in for `sgl_kernel`, in a separate interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agentcore_verify import cpu

CODE = """
import importlib.util, sys
from sgl_kernel.moe import topk_softmax
print(importlib.util.find_spec("sgl_kernel_npu"), sys.hidden_ran)
topk_softmax(1, x=2)
"""


def test_a_call_is_an_error_and_the_shadowed_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.hidden_ran = True")
    pythonpath = os.pathsep.join(map(str, (cpu.SITE, tmp_path)))
    env = {**os.environ, "PYTHONPATH": pythonpath}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=env, capture_output=True, text=True
    )
    assert done.stdout == "None True\n"
    assert "RuntimeError: sgl_kernel.moe.topk_softmax is not available" in done.stderr
