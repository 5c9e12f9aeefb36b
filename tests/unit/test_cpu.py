"""The stand-in for `sgl_kernel`, in a separate interpreter."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from agentcore_verify import cpu


def run(code: str, *path: Path) -> str:
    """Run code in an interpreter with `cpu.SITE` on its path; return its output."""
    pythonpath = os.pathsep.join(map(str, (cpu.SITE, *path)))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": pythonpath},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


def test_every_module_and_name_of_the_stand_in_can_be_imported() -> None:
    code = """
import sgl_kernel, sgl_kernel.deep.er
from sgl_kernel import silu_and_mul
from sgl_kernel.flash_attn import flash_attn_varlen_func
from sgl_kernel.scalar_type import ScalarType, scalar_types
class Mine(ScalarType): pass
print(scalar_types.uint4b8, hasattr(sgl_kernel, '__wrapped__'))
"""
    assert run(code) == "None False"


def test_its_functions_raise_an_explanatory_error() -> None:
    code = """
from sgl_kernel.moe import topk_softmax
try:
    topk_softmax(1, x=2)
except RuntimeError as error:
    print(error)
"""
    assert "sgl_kernel.moe.topk_softmax" in run(code)


def test_other_modules_are_left_alone() -> None:
    code = "import importlib.util as u; print(u.find_spec('sgl_kernel_npu'))"
    assert run(code) == "None"


def test_the_shadowed_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.hidden_ran = True")
    code = "import sys, sgl_kernel; print(sys.hidden_ran)"
    assert run(code, tmp_path) == "True"
