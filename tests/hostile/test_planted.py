"""Files planted in a package, and commands that root runs on it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import py_compile
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from agentcore_patches.api import apply, revert, status
from agentcore_patches.disk import filesystem
from agentcore_patches.disk.filesystem import FOLDER, digest
from agentcore_patches.errors import AccessError, AgentcoreError
from agentcore_patches.installs.install import find
from agentcore_patches.state import transaction
from tests.helpers.trees import contents, photograph
from tests.helpers.users import GROUP, USER, give_away, require_root
from tests.hostile.planting import Planted, signed
from tests.unit.running import Run
from tests.unit.small_sglang import MODELS, SERVING, SOURCES, kill_apply

COMMANDS: tuple[Callable[..., object], ...] = (apply, status, revert)


def recover(sglang_dir: Path) -> None:
    """Run only recovery, the first step of each command that writes."""
    with transaction.locked(find(sglang_dir)):
        pass


def journal(*changes: dict[str, Any], clears: bool = True) -> dict[str, Any]:
    return {"action": "apply of core", "changes": [*changes], "clears": clears}


def info(text: bytes, **more: Any) -> dict[str, Any]:
    fields = {"sha256": digest(text), "size": len(text), "mtime_ns": 1, "link": None}
    return {**fields, **more}


def change(path: str, text: bytes, **more: Any) -> dict[str, Any]:
    """Return a journal's change that overwrites a file of the small SGLang."""
    before = info(SOURCES[path]) if path in SOURCES else None
    caches: dict[str, Any] = {"caches_before": {}, "caches_after": {}}
    return {"path": path, "before": before, "after": info(text, **more), **caches}


# The state folder


@pytest.mark.parametrize("name", ["", "store"])
@pytest.mark.parametrize("command", [*COMMANDS, recover])
def test_a_link_in_place_of_a_state_folder_is_refused(
    name: str, command: Callable[..., object], package: Path, tmp_path: Path
) -> None:
    apply(sglang_dir=package)
    place = package / FOLDER / name
    moved = tmp_path / "moved"
    place.rename(moved)
    (moved / "more").mkdir()
    (moved / "more" / "file").touch()
    place.symlink_to(moved)
    before = photograph(tmp_path)
    with pytest.raises(AccessError, match="is a symbolic link"):
        command(sglang_dir=package)
    assert photograph(tmp_path) == before


def as_a_file(package: Path) -> None:
    (package / FOLDER).touch()


def of_another_user(package: Path) -> None:
    apply(sglang_dir=package)
    give_away(package / FOLDER)


def beside_a_folder_of_another_user(package: Path) -> None:
    require_root()
    os.chown(package / "srt", USER, GROUP)


@pytest.mark.parametrize(
    ("prepare", "commands", "reason"),
    [
        (as_a_file, COMMANDS, "is not a folder"),
        (of_another_user, [revert], f"belongs to user {USER}"),
        (beside_a_folder_of_another_user, [apply], f"srt belongs to user {USER}"),
    ],
)
def test_a_state_folder_that_root_cannot_trust_is_refused(
    prepare: Callable[[Path], None],
    commands: Sequence[Callable[..., object]],
    reason: str,
    package: Path,
) -> None:
    prepare(package)
    before = photograph(package)
    for command in commands:
        with pytest.raises(AccessError, match=reason):
            command(sglang_dir=package)
    assert photograph(package) == before


# Journals


EVIL = b"EVIL = 1\n"


@pytest.mark.parametrize(
    "path",
    [
        "../../secrets/secret",
        "/etc/evil.py",
        "srt/other.py",
        "srt/agentcore/../engine.py",
        "srt/agentcore/evil.so",
        "srt/linked/evil.py",
    ],
)
@pytest.mark.parametrize("name", ["prepared.json", "committed.json"])
def test_a_journal_naming_a_file_that_no_patch_changes_is_refused(
    path: str, name: str, planted: Planted
) -> None:
    (planted.package / "srt/linked").symlink_to(planted.secrets)
    evil = {**change(MODELS, EVIL), "path": path, "before": None}
    planted.plant(name, journal(evil))
    (planted.folder / "store" / digest(EVIL)).write_bytes(EVIL)
    inside, outside = contents(planted.package), planted.outside()

    for command in COMMANDS:
        with pytest.raises(AccessError, match=rf"{name} cannot be read"):
            command(sglang_dir=planted.package)

    assert contents(planted.package) == inside
    assert planted.outside() == outside


def test_a_linked_parent_folder_is_not_followed(planted: Planted) -> None:
    planted.plant("committed.json", journal(change("srt/agentcore/evil.py", EVIL)))
    (planted.folder / "store" / digest(EVIL)).write_bytes(EVIL)
    (planted.folder / "state.json").touch()
    (planted.package / "srt/agentcore").symlink_to(planted.secrets)
    outside = planted.outside()

    with pytest.raises(AccessError):
        revert(sglang_dir=planted.package)

    assert planted.outside() == outside


def test_owner_mode_and_attributes_never_come_from_a_document(planted: Planted) -> None:
    roots = {"mode": 0o4755, "uid": 0, "gid": 0}
    evil = change(MODELS, EVIL, xattrs={"user.x": ""}, **roots)
    planted.plant("committed.json", journal(evil, clears=False))
    file: dict[str, Any] = {"original": info(SOURCES[MODELS], **roots)}
    file |= {"patched_sha256": digest(EVIL), "caches": {}}
    record: dict[str, Any] = {"tool_version": "1", "sglang_version": "0.5.9"}
    record |= {"patches": ["alpha"], "files": {MODELS: file}}
    planted.plant("state.next", record)
    for text in (EVIL, SOURCES[MODELS]):
        (planted.folder / "store" / digest(text)).write_bytes(text)
    give_away(planted.folder)

    for command in (apply, revert):
        command(sglang_dir=planted.package)
        found = (planted.package / MODELS).stat()
        assert (found.st_uid, found.st_gid) == (USER, GROUP)
        assert stat.S_IMODE(found.st_mode) == 0o644
        assert os.listxattr(planted.package / MODELS) == []
    assert (planted.package / MODELS).read_bytes() == SOURCES[MODELS]


RED = "\x1b[31mred"
CACHES = {"srt/__pycache__/engine.cpython-311.pyc": info(EVIL)}


def of_record(change: Callable[[Any], object]) -> tuple[str, Callable[[Any], object]]:
    """Return a record that is spoiled in the entry of one file."""
    return "state.json", lambda d: change(d["files"][MODELS])


def with_cache(path: str) -> tuple[str, Callable[[Any], object]]:
    return of_record(lambda file: file.update(caches={path: info(EVIL)}))


def with_original(**more: Any) -> tuple[str, Callable[[Any], object]]:
    return of_record(lambda file: file["original"].update(more))


SPOILED: list[tuple[str, Callable[[Any], object]]] = [
    ("state.json", lambda d: d.update(tool_version=RED)),
    ("state.json", lambda d: d.update(sglang_version=RED)),
    ("state.json", lambda d: d.update(patches=[RED])),
    ("state.json", lambda d: d.update(patches=["x" * 1001])),
    ("state.json", lambda d: d.update(patches="core")),
    ("state.json", lambda d: d.update(files=[])),
    ("state.json", lambda d: d.pop("files")),
    ("state.json", lambda d: d["files"].update({"srt/other.py": d["files"][MODELS]})),
    of_record(lambda file: file.update(original=None)),
    of_record(lambda file: file.update(patched_sha256="../x")),
    with_original(size=-1),
    with_original(size="1"),
    with_original(mtime_ns=2**62),
    with_original(link=""),
    with_original(link="a\0b"),
    with_original(link="a" * 4096),
    *map(with_cache, CACHES),
    with_cache("srt/models.cpython-311.pyc"),
    with_cache("srt/__pycache__/models.py"),
    with_cache(f"srt/__pycache__/models.{RED}.pyc"),
    ("committed.json", lambda d: d.update(action=RED)),
    ("committed.json", lambda d: d["changes"][0].update(after=None)),
    ("committed.json", lambda d: d["changes"][0].update(caches_before=CACHES)),
    ("committed.json", lambda d: d["changes"][0].update(caches_after=CACHES)),
]


@pytest.mark.parametrize(("name", "spoil"), SPOILED)
def test_a_state_document_that_no_command_writes_is_refused(
    name: str, spoil: Callable[[Any], object], package: Path
) -> None:
    if name == "state.json":
        apply(sglang_dir=package)
    else:
        kill_apply(package, "models.py")
    file = package / FOLDER / name
    document = json.loads(file.read_bytes())
    spoil(document)
    file.write_bytes(signed(document))
    before = photograph(package)
    for command in COMMANDS:
        with pytest.raises(AccessError, match=f"{name} cannot be read"):
            command(sglang_dir=package)
    assert photograph(package) == before


# The last two are formats of 0.1.0 and of a later version.
@pytest.mark.parametrize("new", [b"0.5.8", b'"format": 1', b'"format": 3'])
def test_a_state_document_that_this_version_did_not_write_is_refused(
    new: bytes, package: Path
) -> None:
    apply(sglang_dir=package)
    file = package / FOLDER / "state.json"
    old = b'"format": 2' if b"format" in new else b"0.5.9"
    file.write_bytes(file.read_bytes().replace(old, new))
    before = contents(package)
    for command in (*COMMANDS, recover):
        with pytest.raises(AccessError, match=r"state\.json cannot be read"):
            command(sglang_dir=package)
    assert contents(package) == before


# Links and drafts


def test_bytecode_that_is_a_link_is_not_followed(planted: Planted) -> None:
    caches = planted.package / "srt/__pycache__"
    caches.mkdir()
    (caches / "models.cpython-311.pyc").symlink_to(planted.secrets / "secret")
    give_away(planted.package)

    apply(sglang_dir=planted.package)

    texts = contents(planted.folder).values()
    assert not any(b"known to root alone" in text for text in texts)
    assert not (caches / "models.cpython-311.pyc").is_symlink()
    assert (planted.secrets / "secret").exists()
    revert(sglang_dir=planted.package)


def test_a_source_linked_to_a_file_only_root_can_read_is_refused(
    planted: Planted,
) -> None:
    (planted.package / MODELS).unlink()
    (planted.package / MODELS).symlink_to(planted.secrets / "secret")
    give_away(planted.package)
    for command in (apply, status):
        with pytest.raises(AccessError, match=r"models\.py.*Permission denied"):
            command(sglang_dir=planted.package)
    assert not planted.folder.exists()


@pytest.mark.parametrize("name", ["lock", "state.json"])
def test_a_state_file_that_is_a_link_is_not_followed(
    name: str, package: Path, tmp_path: Path
) -> None:
    (package / FOLDER).mkdir()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("theirs")
    (package / FOLDER / name).symlink_to(elsewhere)
    with pytest.raises(AccessError, match=rf"{name}: Too many levels of symbolic"):
        apply(sglang_dir=package, lock_timeout=0)
    assert elsewhere.read_text() == "theirs"


@pytest.mark.parametrize("call", ["fchmod", "fsync", "utime"])
def test_temporary_files_replaced_by_links_expose_no_file_of_root(
    call: str, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package's owner is as fast as possible: a link at every call."""
    original = getattr(os, call)
    outside = planted.outside()
    swapped = []

    def swapping(*arguments: Any, **named: Any) -> Any:
        patterns = "*.tmp", f".*{FOLDER}"
        drafts = [
            file for pattern in patterns for file in planted.package.rglob(pattern)
        ]
        for draft in drafts:
            draft.unlink()
            draft.symlink_to(planted.secrets / "secret")
            swapped.append(draft)
        return original(*arguments, **named)

    monkeypatch.setattr(os, call, swapping)
    for command in (apply, revert):
        with suppress(AgentcoreError):
            command(sglang_dir=planted.package)
    assert swapped
    assert planted.outside() == outside


# Privileges


def test_root_works_with_the_owners_privileges(planted: Planted) -> None:
    (planted.package / MODELS).chmod(0o640)
    before = photograph(planted.package)

    apply(sglang_dir=planted.package)

    owners = {(p.lstat().st_uid, p.lstat().st_gid) for p in planted.package.rglob("*")}
    assert owners == {(USER, GROUP)}
    assert status(sglang_dir=planted.package).complete
    revert(sglang_dir=planted.package)
    assert photograph(planted.package) == before


def test_privileges_are_restored_after_an_error(planted: Planted) -> None:
    (planted.package / "srt").chmod(0o555)
    with pytest.raises(AccessError, match="Permission denied"):
        apply(sglang_dir=planted.package)
    error = OSError(errno.EINVAL, os.strerror(errno.EINVAL))
    with (
        mock.patch.object(os, "seteuid", side_effect=[error, None]),
        pytest.raises(AccessError, match="whose rights root cannot take on"),
    ):
        apply(sglang_dir=planted.package)


@pytest.mark.usefixtures("landing")
def test_bytecode_written_by_root_does_not_block_revert(planted: Planted) -> None:
    """For example, root ran the server in a container on a user's checkout."""
    apply(sglang_dir=planted.package)
    folders = [planted.package / "srt", planted.package / "srt/agentcore"]
    for folder in folders:
        for source in folder.glob("*.py"):
            py_compile.compile(str(source))
        assert (folder / "__pycache__").stat().st_uid == 0

    revert(sglang_dir=planted.package)

    assert contents(planted.package, "*.py") == SOURCES
    assert not planted.folder.exists()


def test_a_source_owned_by_root_is_refused_with_a_hint(planted: Planted) -> None:
    os.chown(planted.package / MODELS, 0, 0)
    before = photograph(planted.package)
    with pytest.raises(AccessError, match=r"models\.py.*Give all of .* to one user"):
        apply(sglang_dir=planted.package)
    assert photograph(planted.package) == before


# FIFOs, devices and huge files


METADATA = "../sglang-0.5.9.dist-info/METADATA"


@pytest.mark.parametrize(
    "place",
    [
        *(MODELS, f"{FOLDER}/state.json", f"{FOLDER}/committed.json"),
        f"{FOLDER}/store/{digest(SOURCES[MODELS])}",
        *("_version.py", METADATA, "../sglang-0.5.9.dist-info/RECORD"),
    ],
)
def test_commands_do_not_hang_on_fifos(place: str, run: Run, package: Path) -> None:
    is_metadata = not place.startswith(("srt", FOLDER))
    if not is_metadata:
        run("apply")
    (package / place).unlink(missing_ok=True)
    os.mkfifo(package / place)
    if place == METADATA:
        (package / "version.py").unlink()
    some = ["apply", "--with", "beta"]
    for command in (some, [*some, "--dry-run"], ["revert"], ["status"]):
        if is_metadata and command != ["status"]:
            continue
        ran = run(*command)
        if command == ["status"] and "/store/" in place:
            assert ran.code == 0
        else:
            assert ran.code == 5 and "Not a regular file" in ran.err, ran.err


def test_commands_do_not_hang_on_state_files_of_other_kinds(
    run: Run, package: Path
) -> None:
    caches = package / "srt/__pycache__"
    caches.mkdir()
    os.mkfifo(caches / "serving.cpython-311.pyc")
    assert run("apply").code == 0
    assert not (caches / "serving.cpython-311.pyc").exists()
    lock = package / FOLDER / "lock"
    lock.unlink()
    os.mkfifo(lock)
    assert run("status").code == 0
    with lock.open("rb+", buffering=0) as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert run("revert").code == 5
    assert run("revert").code in (0, 5)


def test_a_file_that_is_too_large_is_refused(run: Run, package: Path) -> None:
    with (package / SERVING).open("ab") as file:
        file.truncate(filesystem.LARGEST + 1)
    ran = run("apply")
    assert ran.code == 5 and "Larger than" in ran.err
    (package / SERVING).write_bytes(b"four")
    assert filesystem.read_bytes(package / SERVING, most=4) == b"four"


def test_text_written_by_others_is_escaped(package: Path, run: Run) -> None:
    red = "\x1b[31m"
    apply(sglang_dir=package)
    (package / "version.py").write_text(f'__version__ = "{red}0.5.9"\n')
    assert red not in run("status").out
