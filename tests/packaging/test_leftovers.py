"""pip and uv remove the patches of an SGLang that they uninstall or replace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.packaging.conftest import ROOT
from tests.packaging.scratch import Scratch

PATCH = f"PYTHONPATH='{ROOT}' python -m agentcore_patches"
IMPORTED = "import sglang; print(sglang.__file__)"


@pytest.fixture
def scratch(empty_scratch: Callable[[], Scratch], sglang_wheel: Path) -> Scratch:
    """An environment in which the wheel is installed and patched."""
    made = empty_scratch()
    made.ok(f"uv pip install --no-deps '{sglang_wheel}' && {PATCH} apply")
    return made


@pytest.mark.parametrize("tool", ["pip", "uv pip"])
def test_an_editable_install_over_a_patched_wheel_replaces_it(
    tool: str, scratch: Scratch, checkout: Callable[[Path], Path]
) -> None:
    made = checkout(scratch.folder / "checkout/python")
    scratch.ok("python -c 'import sglang.srt.agentcore.release'")

    scratch.ok(f"{tool} install --no-deps --no-build-isolation --editable '{made}'")

    assert not (scratch.site / "sglang/srt/agentcore").exists()
    assert scratch.ok(f'python -c "{IMPORTED}"').strip() == f"{made}/sglang/__init__.py"
    scratch.ok(f"{PATCH} apply")
    scratch.ok("python -c 'import sglang.srt.agentcore.release'")
    scratch.ok(f"{PATCH} status --check")
    scratch.ok(f"{PATCH} revert")
    assert not (made / "sglang/srt/agentcore").exists()


@pytest.mark.parametrize("tool", ["pip uninstall --yes", "uv pip uninstall"])
def test_an_uninstall_removes_the_patches(tool: str, scratch: Scratch) -> None:
    scratch.ok("python -c 'import sglang.srt.agentcore.release'")
    scratch.ok("pip check")
    assert "srt/agentcore/release.py" in scratch.ok("uv pip show --files sglang")

    scratch.ok(f"{tool} sglang")

    assert not (scratch.site / "sglang").exists()
    gone = scratch.run(f"{PATCH} status")
    assert gone.code == 3 and "has no SGLang" in gone.out


@pytest.mark.parametrize(
    "tool", ["pip install --force-reinstall", "uv pip install --reinstall"]
)
def test_a_reinstall_is_as_the_wheel(
    tool: str, scratch: Scratch, sglang_wheel: Path
) -> None:
    scratch.ok(f"{tool} --no-deps '{sglang_wheel}'")
    assert not [
        *scratch.site.glob("sglang/.agentcore*"),
        *scratch.site.rglob("sglang/srt/agentcore"),
    ]
    assert "not patched" in scratch.ok(f"{PATCH} status")
