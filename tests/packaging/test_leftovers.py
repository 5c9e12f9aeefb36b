"""pip and uv remove the patches of an SGLang that they uninstall or replace."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.helpers.records import write_dist_info
from tests.packaging.conftest import CHECKOUT, ROOT
from tests.packaging.scratch import Scratch, add_rest, make_scratch, repack

PATCH = f"PYTHONPATH='{ROOT}' python -m agentcore_patches"
ONLY = "--only customized-info"  # A small patch saves time.
IMPORTED = "import sglang; print(sglang.__file__)"

READ = (
    *("configs", "constrained", "entrypoints", "layers/utils", "managers"),
    *("multimodal/processors", "parser", "sampling", "utils"),
    *("constants.py", "environ.py", "server_args.py"),
)
"""Files of SGLang that `apply` reads, below `srt`; others only take time to install."""


@pytest.fixture(scope="module")
def part(sglang_package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a part of SGLang, like `python` of its repository."""
    folder = tmp_path_factory.mktemp("part")
    (folder / "pyproject.toml").write_text(CHECKOUT)
    package = folder / "sglang"
    for path in READ:
        source, target = sglang_package / "srt" / path, package / "srt" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("*.pyc"))
        else:
            shutil.copy(source, target)
    for name in ("version.py", "_version.py"):
        shutil.copy(sglang_package / name, package)
    (package / "__init__.py").touch()
    return folder


@pytest.fixture(scope="module")
def wheel(part: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel with the same part."""
    files = {
        str(file.relative_to(part)): file.read_bytes()
        for file in part.rglob("*.py")
        if file.is_file()
    }
    folder = tmp_path_factory.mktemp("wheel")
    info = write_dist_info(folder, "0.5.9", files)
    with (info / "RECORD").open("a") as record:
        record.write(f"{info.name}/METADATA,,\n{info.name}/WHEEL,,\n")
    (info / "WHEEL").write_text(
        "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    return repack(part / "sglang", info, folder, "0.5.9")


@pytest.fixture
def scratch(sglang_python: Path, rest: Path, wheel: Path, tmp_path: Path) -> Scratch:
    """An environment in which that wheel is installed and patched."""
    made = make_scratch(tmp_path / "scratch", sglang_python, {"PIP_COMPILE": "0"})
    add_rest(made, rest)
    made.ok(f"uv pip install --no-deps '{wheel}' && {PATCH} apply {ONLY}")
    return made


@pytest.mark.parametrize("tool", ["pip", "uv pip"])
def test_an_editable_install_over_a_patched_wheel_replaces_it(
    tool: str, scratch: Scratch, part: Path
) -> None:
    made = shutil.copytree(part, scratch.folder / "checkout/python")
    scratch.ok("python -c 'import sglang.srt.agentcore.release'")

    scratch.ok(f"{tool} install --no-deps --no-build-isolation --editable '{made}'")

    assert not (scratch.site / "sglang/srt/agentcore").exists()
    assert scratch.ok(f'python -c "{IMPORTED}"').strip() == f"{made}/sglang/__init__.py"
    scratch.ok(f"{PATCH} apply {ONLY}")
    scratch.ok("python -c 'import sglang.srt.agentcore.release'")
    scratch.ok(f"{PATCH} status --check {ONLY}")
    scratch.ok(f"{PATCH} revert")
    assert not (made / "sglang/srt/agentcore").exists()


@pytest.mark.parametrize("tool", ["pip uninstall --yes", "uv pip uninstall"])
def test_an_uninstall_removes_the_patches(tool: str, scratch: Scratch) -> None:
    scratch.ok("python -c 'import sglang.srt.agentcore.release'")
    scratch.ok("pip check && uv pip check")

    scratch.ok(f"{tool} sglang")

    assert not (scratch.site / "sglang").exists()
    gone = scratch.run(f"{PATCH} status")
    assert gone.code == 3 and "has no SGLang" in gone.out


@pytest.mark.parametrize(
    "tool", ["pip install --force-reinstall", "uv pip install --reinstall"]
)
def test_a_reinstall_is_as_the_wheel(tool: str, scratch: Scratch, wheel: Path) -> None:
    scratch.ok(f"{tool} --no-deps '{wheel}'")
    assert not [
        *scratch.site.glob("sglang/.agentcore*"),
        *scratch.site.rglob("sglang/srt/agentcore"),
    ]
    assert "not applied" in scratch.ok(f"{PATCH} status")
