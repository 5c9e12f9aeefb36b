"""An unlisted SGLang is patched like the release that fits, or refused."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from agentcore_patches import apply
from agentcore_patches.errors import SourceConflict, UnsupportedTarget
from agentcore_patches.installs import install
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.planning.fitting import fitting_release
from agentcore_patches.planning.plan import make_plan
from tests.helpers.wheels import make_install, wheel_files
from tests.sglang_sources.releases import (
    NAMES,
    assert_applied_and_reverted,
    changed_files,
    patched,
    read,
)

# These have a post-release, or are one.
FITTING = {
    *("0.5.8", "0.5.8.post1", "0.5.10", "0.5.10.post1", "0.5.12", "0.5.12.post1"),
    *("0.5.13", "0.5.13.post1", "0.5.15", "0.5.15.post1"),
}


@pytest.mark.parametrize("hidden", SUPPORTED_VERSIONS)
def test_an_unlisted_release_gets_its_own_edits_or_none(hidden: str) -> None:
    others = [version for version in SUPPORTED_VERSIONS if version != hidden]

    def sources(paths: Iterable[str]) -> dict[str, bytes]:
        return dict(wheel_files(hidden, list(paths)))

    read_hidden = partial(read, hidden)
    if hidden not in FITTING:
        with pytest.raises(SourceConflict, match="Nothing was written"):
            fitting_release(NAMES, others, sources, read_hidden)
        return
    selection = fitting_release(NAMES, others, sources, read_hidden)
    texts = sources(selection.files)
    made = make_plan(texts, selection, read_hidden).files
    assert {**texts, **made} == patched(hidden)


def unlisted(site: Path, release: str, version: str) -> Path:
    """Make an install of a release's files that states another version."""
    package = make_install(release, site, changed_files(release))
    for file in ("_version.py", "version.py"):
        (package / file).write_text(f'__version__ = "{version}"\n')
    return package


@pytest.mark.parametrize("version", ["0.5.24", "0.5.24.dev12+gabc", "0.6.0"])
def test_the_command_patches_it_as_the_release_that_fits(
    tmp_path: Path, version: str
) -> None:
    package = unlisted(tmp_path / "site", "0.5.23", version)
    assert install.find(package).release is None
    with pytest.raises(UnsupportedTarget):
        apply(sglang_dir=package)
    planned = apply(sglang_dir=package, extras=["all"], unlisted=True, dry_run=True)
    done = assert_applied_and_reverted(package, "0.5.23", unlisted=True)
    assert planned.patched_as == done.patched_as == "0.5.23"


def test_a_listed_release_is_patched_as_itself(tmp_path: Path) -> None:
    package = make_install("0.5.9", tmp_path / "site", changed_files("0.5.9"))
    assert apply(sglang_dir=package, unlisted=True).patched_as is None


def test_sources_that_no_release_fits_are_refused_and_unchanged(tmp_path: Path) -> None:
    package = unlisted(tmp_path / "site", "0.5.23", "0.5.24")
    file = package / "srt/managers/tokenizer_manager.py"
    file.write_text(file.read_text().replace("obj.normalize_batch", "obj.batch"))
    before = file.read_bytes()
    with pytest.raises(SourceConflict) as refused:
        apply(sglang_dir=package, unlisted=True)
    told = str(refused.value)
    assert told.startswith(
        "The edits of no supported release fit SGLang 0.5.24. Those of 0.5.23, the "
        "closest, miss this: srt/managers/tokenizer_manager.py: "
    )
    assert told.count("Nothing was written.") == 1
    assert "--force-reinstall" not in told
    assert "`pip install sglang==0.5.23`" in refused.value.hint
    assert file.read_bytes() == before
    assert not (package / "srt/agentcore").exists()
