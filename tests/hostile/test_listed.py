"""Files that patches add, listed in SGLang's RECORD for pip and uv."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from agentcore_patches.api import apply, revert, status
from agentcore_patches.disk.filesystem import FOLDER
from agentcore_patches.patches.paths import LANDING
from tests.helpers.trees import photograph
from tests.hostile.planting import Planted
from tests.unit.small_install import TRACES

pytestmark = pytest.mark.usefixtures("landing")

OWN = {f"{FOLDER}/{name}" for name in ("state.next", "prepared.json", "committed.json")}
"""Files that are there only while a command runs."""


@pytest.fixture
def record(package: Path) -> Path:
    return package.parent / "sglang-0.5.9.dist-info/RECORD"


def listed(record: Path) -> set[str]:
    """Return the paths of agentcore-patch's files in RECORD, below the package."""
    with record.open(newline="") as file:
        paths = {row[0].removeprefix("sglang/") for row in csv.reader(file)}
    return {path for path in paths if path.startswith((FOLDER, LANDING))}


def present(package: Path) -> set[str]:
    files = (*(package / FOLDER).rglob("*"), *(package / LANDING).rglob("*"))
    return {str(file.relative_to(package)) for file in files if file.is_file()}


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""], ids=["lf", "crlf", "none"])
def test_record_lists_what_apply_adds_and_revert_restores_it(
    end: bytes, package: Path, record: Path
) -> None:
    record.write_bytes(record.read_bytes().strip().replace(b"\n", end or b"\n") + end)
    record.chmod(0o640)
    before = photograph(package.parent)

    for extras, without in ([], []), (["beta"], []), ([], ["beta"]):
        apply(sglang_dir=package, extras=extras, without=without)
        assert listed(record) == present(package) | OWN and TRACES in listed(record)
        assert status(sglang_dir=package).complete
        found = {file.pristine for file in status(sglang_dir=package).files}
        assert found == {True, None}
    revert(sglang_dir=package)

    assert photograph(package.parent) == before


def link(record: Path) -> None:
    record.rename(record.with_name("elsewhere"))
    record.symlink_to(record.with_name("elsewhere"))


@pytest.mark.parametrize(
    "spoil", [link, Path.unlink, lambda record: shutil.rmtree(record.parent)]
)
def test_a_record_that_the_installer_did_not_write_is_left_alone(
    spoil: Callable[[Path], object], package: Path, record: Path
) -> None:
    spoil(record)
    before = photograph(package.parent)
    apply(sglang_dir=package)
    after = photograph(package.parent)
    assert not [path for path in after.keys() - before.keys() if "dist-info" in path]
    revert(sglang_dir=package)
    assert photograph(package.parent) == before


def test_a_record_in_a_read_only_folder_is_left_alone(planted: Planted) -> None:
    folder = planted.package.parent / "sglang-0.5.9.dist-info"
    folder.chmod(0o555)
    before = photograph(folder)
    for command in (apply, revert):
        assert command(sglang_dir=planted.package).changed
        assert photograph(folder) == before
