"""Sources that another tool changes, too, or with only a part of the patches."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from agentcore_patches import apply, revert, status
from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches import registry
from agentcore_patches.patches.paths import (
    CONTROL_MIXIN,
    HTTP_SERVER,
    IO_STRUCT,
    SCHEDULER,
    UPDATE_WEIGHTS_MIXIN,
)
from agentcore_patches.state.snapshot import FileState
from tests.helpers.planning import VERSION, refusal
from tests.helpers.trees import contents
from tests.helpers.wheels import make_install
from tests.sglang_sources.releases import changed_files, planned, sources

FILES = changed_files(VERSION)
SOURCES = sources(VERSION)


@pytest.mark.parametrize("file", FILES)
def test_one_file_in_another_state_than_the_rest_is_refused(file: str) -> None:
    patched = planned(SOURCES, VERSION).files
    for mixed, said in (
        ({**SOURCES, file: patched[file]}, f"{file}: "),
        ({**patched, file: SOURCES[file]}, f"but {file}: "),
    ):
        message = refusal(mixed, registry.names())
        for words in (
            said,
            "another version of this patch, or only a part of it",
            "Nothing was written.",
            "put the originals back first",
            "`pip install --force-reinstall --no-deps sglang==0.5.9`",
            "then apply again.",
        ):
            assert words in message


# NeMo RL replaces strings in the installed SGLang whenever a worker starts.
NEMO_RL = "0.5.12.post1"

# Lines of SGLang, and what such a tool writes before each. NeMo RL changes these files
# at these lines, the second set of files only in a branch for quantized weights.
BESIDE = {
    "srt/utils/common.py": {
        '        "torch.nn.parameter.",\n': '        "trainer.utils.",\n'
    },
    "srt/distributed/device_communicators/custom_all_reduce_v2.py": {
        "from sglang.srt.utils import is_sm100": "from sglang.srt.environ import envs\n"
    },
}
WITHIN = {
    IO_STRUCT: {
        "@dataclass\nclass CheckWeightsReqInput(": "@dataclass\n"
        "class BeginReqInput(BaseReq):\n    pass\n\n\n"
    },
    HTTP_SERVER: {
        "    AttachHiCacheStorageReqInput,\n": "    BeginReqInput,\n",
        '@app.post("/update_weights_from_tensor")\n': '@app.post("/begin")\n'
        "async def begin(obj: BeginReqInput):\n"
        "    await _global_state.tokenizer_manager.begin(obj)\n\n\n",
    },
    CONTROL_MIXIN: {
        "    AttachHiCacheStorageReqOutput,\n": "    BeginReqInput,\n",
        "    async def update_weights_from_distributed(\n": "    async def begin("
        "self: TokenizerManager, obj: BeginReqInput):\n        pass\n\n",
    },
    SCHEDULER: {
        "    AttachHiCacheStorageReqOutput,\n": "    BeginReqInput,\n",
        "                (UpdateWeightFromDiskReqInput, self": "                "
        "(BeginReqInput, self.begin),\n",
    },
    UPDATE_WEIGHTS_MIXIN: {
        "    CheckWeightsReqInput,\n": "    BeginReqInput,\n",
        "    def update_weights_from_distributed(\n": "    def begin("
        "self, recv_req: BeginReqInput):\n        pass\n\n",
    },
}

DECORATOR = b"@agentcore.scheduler.weight_updates.update\n"


def change_like_nemo_rl(package: Path, changes: Mapping[str, dict[str, str]]) -> None:
    """Replace strings that were not replaced yet, and files by renaming."""
    for path, replacements in changes.items():
        text = (package / path).read_text()
        for anchor, new in replacements.items():
            if new not in text:
                assert text.count(anchor) == 1
                text = text.replace(anchor, new + anchor)
        compile(text, path, "exec", dont_inherit=True)
        if text != (package / path).read_text():
            draft = package / f"{path}.draft"
            draft.write_text(text)
            draft.replace(package / path)


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """SGLang as uv unpacks it into its cache."""
    paths = [*changed_files(NEMO_RL), *BESIDE, *WITHIN]
    return make_install(NEMO_RL, tmp_path / "cache", paths).parent


@pytest.fixture
def linked(cache: Path, tmp_path: Path) -> Path:
    """An install whose files are hard links into the cache."""
    shutil.copytree(cache, tmp_path / "site", copy_function=os.link)
    return tmp_path / "site/sglang"


def test_changes_of_nemo_rl_are_kept_if_made_before(cache: Path, linked: Path) -> None:
    stock = contents(cache)
    changes = {**BESIDE, **WITHIN}
    change_like_nemo_rl(linked, changes)
    changed = contents(linked)

    done = apply(sglang_dir=linked, extras=["all"])
    assert {file.path for file in done.files if file.pristine is False} == {*WITHIN}
    patched = contents(linked)
    change_like_nemo_rl(linked, changes)
    assert contents(linked) == patched
    assert status(sglang_dir=linked).complete
    for path, replacements in changes.items():
        for new in replacements.values():
            assert new.encode() in patched[path]
        assert (b"agentcore" in patched[path]) == (path in WITHIN)
    decorated = DECORATOR + b"    def update_weights_from_distributed("
    assert decorated in patched[UPDATE_WEIGHTS_MIXIN]

    revert(sglang_dir=linked)
    assert contents(linked) == changed
    assert contents(cache) == stock


def test_changes_of_nemo_rl_beside_the_patches_may_come_later(
    cache: Path, linked: Path
) -> None:
    stock = contents(cache)
    apply(sglang_dir=linked, extras=["all"])
    change_like_nemo_rl(linked, BESIDE)
    changed = {path: (linked / path).read_bytes() for path in BESIDE}
    assert status(sglang_dir=linked).complete
    assert not apply(sglang_dir=linked).changed
    revert(sglang_dir=linked)
    assert contents(linked) == {**contents(cache / "sglang"), **changed}
    assert contents(cache) == stock


def test_later_changes_of_nemo_rl_in_patched_files_are_refused(
    cache: Path, linked: Path
) -> None:
    stock = contents(cache)
    apply(sglang_dir=linked, extras=["all"])
    change_like_nemo_rl(linked, WITHIN)
    mixed = contents(linked)
    # This is why: a patch's decorator is now another method's.
    assert DECORATOR + b"    def begin(" in mixed[UPDATE_WEIGHTS_MIXIN]
    found = status(sglang_dir=linked)
    assert not found.complete
    edited = [file.path for file in found.files if file.state is FileState.EDITED]
    assert {*edited} == {*WITHIN}
    for command in (apply, revert):
        with pytest.raises(SourceConflict, match="revert --force"):
            command(sglang_dir=linked)
    assert contents(linked) == mixed

    revert(sglang_dir=linked, force=True)
    assert contents(linked.parent) == contents(cache) == stock
    change_like_nemo_rl(linked, WITHIN)
    apply(sglang_dir=linked, extras=["all"])
    assert status(sglang_dir=linked).complete
