"""The built package, and the commands of an installed one."""

from __future__ import annotations

import email
import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agentcore_patches import __version__
from agentcore_patches.patches.registry import names
from tests.packaging.scratch import Scratch, make_scratch

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")

NAME = f"agentcore_patches-{__version__}"


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.fixture(scope="session")
def wheel(dist: Path) -> Path:
    """The wheel, which `build` makes from the sdist."""
    return dist / f"{NAME}-py3-none-any.whl"


@pytest.fixture(scope="session")
def sdist(dist: Path) -> Path:
    return dist / f"{NAME}.tar.gz"


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Scratch:
    """An environment with only the package and its dependencies."""
    scratch = make_scratch(
        tmp_path_factory.mktemp("clean") / "scratch", Path(sys.executable), {}
    )
    scratch.ok(f"pip install '{wheel}'")
    return scratch


def test_wheels_of_a_commit_are_equal_from_sdist_and_tree_and_name_it(
    tree: Path, tmp_path: Path
) -> None:
    origin = shutil.copytree(tree, tmp_path / "origin")
    version = origin / "agentcore_patches/_version.py"
    version.write_text(version.read_text().replace(f'"{__version__}"', '"9.0.dev1"'))

    def run(*command: str | Path, cwd: Path = origin, **more: Any) -> str:
        ran = subprocess.run(command, cwd=cwd, check=True, capture_output=True, **more)
        return str(ran.stdout, "utf-8").strip()

    run("git", "init", "--quiet")
    run("git", "add", "--all")
    run("git", "-c", "user.name=a", "-c", "user.email=a", "commit", "--quiet", "-mx")
    commit = run("git", "rev-parse", "--short=12", "HEAD")
    name = f"agentcore_patches-9.0.dev1+g{commit}-py3-none-any.whl"

    def build(umask: int, *formats: str) -> bytes:
        clone = tmp_path / str(umask)
        run("git", "clone", "--quiet", origin, clone)
        left = clone / "build/lib/agentcore_patches/gone.py"  # Of an earlier build.
        left.parent.mkdir(parents=True)
        left.touch()
        run(
            *(sys.executable, "-m", "uv", "build", *formats),
            cwd=clone,
            umask=umask,
            env={
                **os.environ,
                "SOURCE_DATE_EPOCH": run("git", "log", "-1", "--format=%ct"),
            },
        )
        return (clone / "dist" / name).read_bytes()

    assert build(0o077, "--wheel") == build(0o022)  # The second is from an sdist.
    inside = contents(tmp_path / str(0o077) / "dist" / name)
    assert f'"9.0.dev1+g{commit}"' in inside["agentcore_patches/_version.py"].decode()
    full_version = runpy.run_path(str(version))["full_version"]
    assert full_version() == f"9.0.dev1+g{commit}"
    (origin / "README.md").write_text("changed")
    full_version.cache_clear()
    assert full_version() == f"9.0.dev1+g{commit}.changed"


def test_the_wheel_has_every_module_and_nothing_at_top_level(
    wheel: Path, tree: Path
) -> None:
    packages = {
        "agentcore_patches": "agentcore_patches",
        "verify/agentcore_verify": "agentcore_verify",
    }
    expected = {
        f"{package}/{file.relative_to(tree / folder)}": file.read_bytes()
        for folder, package in packages.items()
        for file in (tree / folder).rglob("*")
        if file.suffix in (".py", ".pyi") or file.name == "py.typed"
    }
    expected |= {
        f"agentcore_patches/pages/{file.relative_to(tree / 'docs')}": file.read_bytes()
        for file in (tree / "docs").rglob("*.md")
    }
    assert "agentcore_patches/pages/how-to/troubleshooting.md" in expected
    assert len(expected) > 50
    inside = contents(wheel)
    described = {
        f"{NAME}.dist-info/{name}"
        for name in (
            *("METADATA", "WHEEL", "RECORD", "entry_points.txt", "top_level.txt"),
            "licenses/LICENSE",
        )
    }
    assert {name: inside[name] for name in expected if name in inside} == expected
    assert set(inside) - set(expected) == described
    license_text = inside[f"{NAME}.dist-info/licenses/LICENSE"]
    assert license_text == (tree / "LICENSE").read_bytes()


def test_sglang_finds_the_plugin(wheel: Path) -> None:
    points = contents(wheel)[f"{NAME}.dist-info/entry_points.txt"].decode()
    assert (
        "[sglang.srt.plugins]\nagentcore = agentcore_patches.plugin:register" in points
    )


def test_the_sdist_is_the_tree(sdist: Path, tree: Path) -> None:
    with tarfile.open(sdist) as file:
        inside = {name.partition("/")[2] for name in file.getnames()}
        readme = file.extractfile(f"{NAME}/README.md")
        assert readme is not None
        assert readme.read() == (tree / "README.md").read_bytes()
    written = {
        str(path.relative_to(tree))
        for path in tree.rglob("*")
        if path.is_file() and ".egg-info" not in str(path) and "build" not in path.parts
    }
    assert written <= inside, written - inside


def test_an_index_accepts_the_metadata(dist: Path, wheel: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir()],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("PASSED") == 2
    text = contents(wheel)[f"{NAME}.dist-info/METADATA"].decode()
    metadata = email.message_from_string(text)
    assert metadata["Name"] == "agentcore-patches"
    assert metadata["Version"] == __version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"]
    assert metadata.get_all("Provides-Extra") == ["sglang", "ray", "audit"]
    assert "pytest" not in str(metadata.get_all("Requires-Dist"))
    assert metadata.get_payload() == page_of_an_index(README)


def page_of_an_index(readme: str, source: str = "") -> str:
    """Return a README as `setup.py` converts it for an index."""
    made = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")
    page: str = made["long_description"](readme, source)
    return page


def test_without_an_address_nothing_names_a_tracker(wheel: Path) -> None:
    metadata = contents(wheel)[f"{NAME}.dist-info/METADATA"].decode()
    urls = re.findall(r"^Project-URL: (\w+), https://", metadata, re.MULTILINE)
    assert len(urls) == metadata.count("Project-URL:")
    pages = [README, (ROOT / "SECURITY.md").read_text("utf-8")]
    pages += [page.read_text("utf-8") for page in (ROOT / "docs").rglob("*.md")]
    assert "Issues" in urls or not [page for page in pages if "tracker" in page.lower()]


@pytest.mark.parametrize(
    ("source", "page"),
    [
        ("", "A\n\n`b.md` c (`d.md`) [f](https://g.example) [h](#i)\n"),
        (
            "https://git.example/x",
            "A\n\n[`b.md`](https://git.example/x/blob/HEAD/b.md) "
            "[c](https://git.example/x/blob/HEAD/d.md#e) "
            "[f](https://g.example) [h](#i)\n",
        ),
    ],
)
def test_the_index_page_has_only_links_that_lead_somewhere(
    source: str, page: str
) -> None:
    readme = "A\n\n![x](docs/x.svg)\n\n[`b.md`](b.md) [c](d.md#e) [f](https://g.example) [h](#i)\n"
    assert page_of_an_index(readme, source) == page


def test_the_command_shows_its_name_and_version(installed: Scratch) -> None:
    assert installed.ok("agentcore-patch --version") == (
        f"agentcore-patch {__version__}\n"
    )
    assert installed.ok("python -m agentcore_patches -V") == (
        f"agentcore-patch {__version__}\n"
    )
    for name in names():
        assert name in installed.ok("agentcore-patch list")
    assert "--model" in installed.ok("agentcore-patch verify --help")


def test_without_sglang_the_command_reports_that(installed: Scratch) -> None:
    for command in ("status", "apply", "revert", "verify --model scripted"):
        ran = installed.run(f"agentcore-patch {command}")
        assert ran.code == 3
        assert "has no SGLang" in ran.out
        assert "--sglang-dir" in ran.out
        assert "Traceback" not in ran.out
