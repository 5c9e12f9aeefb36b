"""Bringing files to other texts and back: what holds, what is refused, what is mended."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import json
import marshal
import os
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from agentcore_patches import transaction
from agentcore_patches.errors import AccessError, SourceConflict
from agentcore_patches.install import Install
from agentcore_patches.transaction import FileState

FIRST, SECOND, THIRD = "srt/first.py", "srt/deep/second.py", "srt/third.py"
ALL = (FIRST, SECOND, THIRD)
FOLDER = ".agentcore-patch"
LOCK = f"{FOLDER}/lock"


def vanilla(path: str) -> bytes:
    return f"import os\n\nNAME = {path!r}\n".encode()


def patched(path: str, edition: str = "one") -> bytes:
    return vanilla(path) + f"EDITION = {edition!r}  # ours\n".encode()


@pytest.fixture
def install(tmp_path: Path) -> Install:
    package = tmp_path / "sglang"
    for path in ALL:
        file = package / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(vanilla(path))
        os.utime(file, (1_600_000_000, 1_600_000_000))
    return Install(package, "0.5.9", "0.5.9", "a test", False, None)


def commit(install: Install, *paths: str, edition: str = "one") -> tuple[str, ...]:
    with transaction.locked(install) as work:
        work.sources(paths)
        files = {path: patched(path, edition) for path in paths}
        return work.commit(files, patches=["ours"], tool_version=edition)


def revert(install: Install, *, force: bool = False) -> tuple[str, ...]:
    with transaction.locked(install) as work:
        return work.revert(force=force)


def read(install: Install, path: str) -> bytes:
    return (install.package / path).read_bytes()


def write(install: Install, path: str, text: bytes) -> None:
    (install.package / path).write_bytes(text)


def photograph(install: Install) -> dict[str, tuple[object, ...]]:
    """Every file below the package, but the lock, and all that can be told of it."""
    found: dict[str, tuple[object, ...]] = {}
    for file in sorted(set(install.package.rglob("*")) - {install.package / LOCK}):
        status = file.lstat()
        seen: tuple[object, ...] = (status.st_mode, status.st_uid, status.st_gid)
        if stat.S_ISREG(status.st_mode):
            seen += (status.st_mtime_ns, file.read_bytes())
        found[str(file.relative_to(install.package))] = seen
    return found


@pytest.fixture
def unchanged(install: Install) -> Iterator[None]:
    """What the test begins with is there at its end."""
    before = photograph(install)
    yield
    assert photograph(install) == before


# There and back


def test_a_commit_brings_the_texts_and_says_which(install: Install) -> None:
    assert commit(install, SECOND, FIRST) == (SECOND, FIRST)

    assert read(install, FIRST) == patched(FIRST)
    assert read(install, SECOND) == patched(SECOND)
    assert read(install, THIRD) == vanilla(THIRD)
    snapshot = transaction.inspect(install)
    assert snapshot.applied and not snapshot.superseded and snapshot.pending is None
    assert snapshot.files == dict.fromkeys([SECOND, FIRST], FileState.PATCHED)
    assert snapshot.record is not None
    assert snapshot.record.patches == ("ours",)
    assert snapshot.holds(["ours"], "one")
    assert not snapshot.holds(["ours"], "two")
    assert not snapshot.holds(["ours", "more"], "one")


@pytest.mark.usefixtures("unchanged")
def test_a_revert_gives_everything_back(install: Install) -> None:
    commit(install, FIRST, SECOND)
    assert revert(install) == (SECOND, FIRST)


def test_without_a_record_there_is_nothing_to_tell_or_revert(install: Install) -> None:
    before = photograph(install)
    snapshot = transaction.inspect(install)
    assert (snapshot.record, snapshot.files, snapshot.pending) == (None, {}, None)
    assert not snapshot.applied and not snapshot.superseded
    assert revert(install) == ()
    assert transaction.inspect_and_recover(install) == (snapshot, None)
    assert photograph(install) == before


def test_the_same_again_writes_nothing(install: Install) -> None:
    commit(install, FIRST, SECOND)
    before = photograph(install)
    assert commit(install, FIRST, SECOND) == ()
    assert photograph(install) == before


def test_a_newer_version_with_the_same_texts_is_noted(install: Install) -> None:
    commit(install, FIRST)
    with transaction.locked(install) as work:
        files = {FIRST: patched(FIRST)}
        assert work.commit(files, patches=["ours"], tool_version="two") == ()
    assert transaction.inspect(install).holds(["ours"], "two")


@pytest.mark.usefixtures("unchanged")
def test_another_selection_starts_from_the_originals(install: Install) -> None:
    commit(install, FIRST, SECOND)
    with transaction.locked(install) as work:
        assert work.sources(ALL) == {path: vanilla(path) for path in ALL}
        files = {path: patched(path, "two") for path in (SECOND, THIRD)}
        changed = work.commit(files, patches=["theirs"], tool_version="two")
    assert changed == (FIRST, SECOND, THIRD)
    assert read(install, FIRST) == vanilla(FIRST)
    assert read(install, SECOND) == patched(SECOND, "two")
    assert revert(install) == (THIRD, SECOND)


@pytest.mark.usefixtures("unchanged")
def test_a_text_equal_to_its_source_is_not_recorded(install: Install) -> None:
    files = {FIRST: vanilla(FIRST), SECOND: patched(SECOND)}
    with transaction.locked(install) as work:
        assert work.commit(files, patches=["ours"], tool_version="1") == (SECOND,)
    record = transaction.inspect(install).record
    assert record is not None and list(record.files) == [SECOND]
    with transaction.locked(install) as work:
        files = {SECOND: vanilla(SECOND)}
        assert work.commit(files, patches=["ours"], tool_version="1") == (SECOND,)


def test_files_are_replaced_in_order_and_given_back_in_reverse(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    replace_file = Path.replace

    def noting(draft: Path, target: Path) -> Path:
        if target.suffix == ".py":
            order.append(str(target.relative_to(install.package)))
        return replace_file(draft, target)

    monkeypatch.setattr(Path, "replace", noting)
    commit(install, THIRD, FIRST, SECOND)
    commit(install, SECOND, edition="two")
    revert(install)
    assert order == [THIRD, FIRST, SECOND, FIRST, THIRD, SECOND, SECOND]


def test_a_file_is_replaced_and_not_written_into(install: Install) -> None:
    cache = install.package.parent / "cache"
    os.link(install.package / FIRST, cache)
    (install.package / SECOND).rename(cache.with_name("behind"))
    (install.package / SECOND).symlink_to(cache.with_name("behind"))

    commit(install, FIRST, SECOND)
    assert cache.read_bytes() == vanilla(FIRST)
    assert cache.with_name("behind").read_bytes() == vanilla(SECOND)
    assert not (install.package / SECOND).is_symlink()

    revert(install)
    assert (install.package / SECOND).readlink() == cache.with_name("behind")
    assert cache.stat().st_nlink == 1


def test_modes_and_attributes_are_kept(install: Install) -> None:
    file = install.package / FIRST
    file.chmod(0o4750)
    os.setxattr(file, "user.note", b"kept")
    changes: tuple[Callable[[], tuple[str, ...]], ...] = (
        lambda: commit(install, FIRST),
        lambda: revert(install),
    )
    for change in changes:
        assert change() == (FIRST,)
        assert stat.S_IMODE(file.stat().st_mode) == 0o4750
        assert os.getxattr(file, "user.note") == b"kept"


def test_our_folder_can_be_read_whatever_the_mask(install: Install) -> None:
    mask = os.umask(0o077)
    try:
        commit(install, FIRST)
    finally:
        os.umask(mask)
    folder = install.package / FOLDER
    modes = {stat.S_IMODE(f.stat().st_mode) for f in (folder, folder / "store")}
    assert modes == {stat.S_IMODE(install.package.stat().st_mode)}
    assert stat.S_IMODE((folder / "state.json").stat().st_mode) == 0o644
    assert (folder / ".gitignore").read_text() == "*\n"


# Bytecode


def compile_unchecked(source: Path, text: bytes) -> Path:
    """A bytecode file that an interpreter runs whatever its source is."""
    cache = Path(importlib.util.cache_from_source(str(source)))
    cache.parent.mkdir(exist_ok=True)
    code = marshal.dumps(compile(text, str(source), "exec"))
    cache.write_bytes(
        importlib.util.MAGIC_NUMBER + (1).to_bytes(4, "little") + bytes(8) + code
    )
    return cache


def test_bytecode_goes_with_its_text_and_comes_back_with_it(install: Install) -> None:
    source = install.package / FIRST
    cache = compile_unchecked(source, vanilla(FIRST))
    before = photograph(install)
    commit(install, FIRST)
    assert not cache.exists()
    compile_unchecked(source, patched(FIRST))
    commit(install, FIRST, edition="two")
    assert not cache.exists()
    compile_unchecked(source, patched(FIRST, "two"))
    revert(install)
    assert photograph(install) == before


def test_bytecode_that_the_patches_brought_goes_with_its_folder(
    install: Install,
) -> None:
    before = photograph(install)
    commit(install, FIRST)
    compile_unchecked(install.package / FIRST, patched(FIRST))
    revert(install)
    assert photograph(install) == before


def test_bytecode_of_other_modules_is_left_alone(install: Install) -> None:
    other = compile_unchecked(install.package / "srt/first_of_all.py", b"")
    commit(install, FIRST)
    assert other.exists()
    revert(install)
    assert other.exists()


def test_bytecode_written_while_at_work_goes_too(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_file = Path.replace
    caches: list[Path] = []

    def beside_a_compiler(draft: Path, target: Path) -> Path:
        if target.name == "first.py":
            for path in ALL:
                text = (install.package / path).read_bytes()
                caches.append(compile_unchecked(install.package / path, text))
        return replace_file(draft, target)

    monkeypatch.setattr(Path, "replace", beside_a_compiler)
    commit(install, *ALL)
    assert len(caches) == len(ALL)
    assert not any(cache.exists() for cache in caches)


def test_a_new_text_gets_a_time_that_no_bytecode_goes_by(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_700_000_000
    source = install.package / FIRST
    os.utime(source, (now, now))
    cache = compile_unchecked(source, vanilla(FIRST))
    stamp = (now + 1).to_bytes(4, "little")
    cache.write_bytes(importlib.util.MAGIC_NUMBER + bytes(4) + stamp + bytes(4))
    monkeypatch.setattr(time, "time_ns", lambda: now * 1_000_000_000 + 5)
    commit(install, FIRST)
    assert int(source.stat().st_mtime) == now + 2


# What others change


@pytest.mark.parametrize(
    "text",
    [patched(FIRST) + b"# more\n", b"new\n", None],
    ids=["edited", "replaced", "missing"],
)
def test_a_change_by_others_is_kept_unless_forced(
    text: bytes | None, install: Install
) -> None:
    before = photograph(install)
    commit(install, FIRST, SECOND)
    if text is None:
        (install.package / FIRST).unlink()
    else:
        write(install, FIRST, text)
    snapshot = transaction.inspect(install)
    assert snapshot.changed == (FIRST,)
    assert not snapshot.applied and not snapshot.holds(["ours"], "one")

    changed = photograph(install)
    with pytest.raises(SourceConflict, match=rf"{FIRST} in .*--force"):
        revert(install)
    assert photograph(install) == changed

    assert revert(install, force=True) == (SECOND, FIRST)
    assert photograph(install) == before


def test_an_edited_text_is_not_patched_over(install: Install) -> None:
    commit(install, FIRST, SECOND)
    write(install, FIRST, patched(FIRST) + b"# more\n")
    assert transaction.inspect(install).files[FIRST] is FileState.EDITED
    before = photograph(install)
    for paths in ((FIRST, SECOND), (SECOND,)):
        with pytest.raises(SourceConflict, match=f"{FIRST} was changed after"):
            commit(install, *paths, edition="two")
    with pytest.raises(SourceConflict):
        transaction.sources(install, transaction.inspect(install), [FIRST])
    assert photograph(install) == before


def test_a_reinstall_is_taken_for_what_it_is(install: Install) -> None:
    commit(install, FIRST, SECOND)
    for path in (FIRST, SECOND):
        write(install, path, vanilla(path))
    snapshot = transaction.inspect(install)
    assert snapshot.superseded and not snapshot.applied and not snapshot.changed
    assert commit(install, FIRST, SECOND) == (FIRST, SECOND)

    for path in (FIRST, SECOND):
        write(install, path, vanilla(path))
    before = {path: (install.package / path).stat() for path in ALL}
    assert revert(install) == ()
    assert not (install.package / FOLDER).exists()
    assert {path: (install.package / path).stat() for path in ALL} == before


def test_newer_texts_are_where_an_apply_starts(install: Install) -> None:
    commit(install, FIRST, SECOND)
    newer = b"# of another checkout\n"
    write(install, FIRST, newer)
    snapshot = transaction.inspect(install)
    assert snapshot.files[FIRST] is FileState.REPLACED
    assert transaction.sources(install, snapshot, [FIRST, SECOND]) == {
        FIRST: newer,
        SECOND: vanilla(SECOND),
    }
    with transaction.locked(install) as work:
        files = {FIRST: newer + b"ours\n", SECOND: patched(SECOND)}
        assert work.commit(files, patches=["ours"], tool_version="one") == (FIRST,)
    revert(install)
    assert read(install, FIRST) == newer
    assert read(install, SECOND) == vanilla(SECOND)


def test_originals_are_never_put_over_another_version(install: Install) -> None:
    commit(install, FIRST, SECOND)
    newer = b"# of the next release\n"
    write(install, FIRST, newer)
    after_upgrade = replace(install, version="0.5.10")
    assert revert(after_upgrade) == (SECOND,)
    assert read(install, FIRST) == newer
    assert not (install.package / FOLDER).exists()


def test_what_the_wheel_has_is_an_original(install: Install) -> None:
    commit(install, FIRST)
    write(install, FIRST, b"# another build of the same version\n")
    metadata = install.package.parent / "sglang-0.5.9.dist-info"
    metadata.mkdir()
    digest = hashlib.sha256(read(install, FIRST)).digest()
    encoded = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    (metadata / "RECORD").write_text(f"sglang/{FIRST},sha256={encoded},1\n")
    install = replace(install, dist_info=metadata)
    assert transaction.inspect(install).files == {FIRST: FileState.ORIGINAL}
    assert revert(install) == ()
    assert read(install, FIRST).startswith(b"# another build")


@pytest.mark.parametrize("text", [b"new\n", None], ids=["changed", "missing"])
def test_a_change_while_at_work_is_noticed(
    text: bytes | None, install: Install
) -> None:
    before = photograph(install)
    files = {path: patched(path) for path in ALL}
    with transaction.locked(install) as work:
        work.sources(ALL)
        if text is None:
            (install.package / SECOND).unlink()
        else:
            write(install, SECOND, text)
        with pytest.raises(SourceConflict, match=f"{SECOND} was changed by somebody"):
            work.commit(files, patches=["ours"], tool_version="one")
    after = photograph(install)
    assert after.pop(SECOND, None) != before.pop(SECOND)
    assert after == before


@pytest.mark.usefixtures("unchanged")
def test_a_missing_file_is_said(install: Install) -> None:
    with pytest.raises(SourceConflict, match=r"srt/none\.py is missing"):
        commit(install, "srt/none.py")


@pytest.mark.usefixtures("unchanged")
def test_what_is_no_file_is_refused(install: Install) -> None:
    with pytest.raises(AccessError, match="Not a regular file"):
        commit(install, "srt/deep")


# What goes wrong


def fail_at(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, error: BaseException
) -> None:
    """Make a method of Path raise the `number`th time it is called on a source."""
    method: Callable[..., Path] = getattr(Path, name)
    calls = iter(range(1, 1000))

    def failing(self: Path, *args: Path) -> Path:
        if self.name.endswith(FOLDER) and next(calls) == number:
            raise error
        return method(self, *args)

    monkeypatch.setattr(Path, name, failing)


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_interrupt_in_the_middle_undoes_the_rest(
    number: int, install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    fail_at(monkeypatch, "replace", number, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        commit(install, *ALL)


@pytest.mark.usefixtures("unchanged")
def test_an_error_in_the_caller_leaves_nothing_of_ours(install: Install) -> None:
    with pytest.raises(RuntimeError), transaction.locked(install):
        raise RuntimeError


def kill(install: Install, number: int, change: Callable[[], object]) -> None:
    """Run a change in a process that dies before its `number`th replacement."""
    pid = os.fork()
    if pid == 0:
        method = Path.replace
        calls = iter(range(1, 1000))

        def dying(self: Path, target: Path) -> Path:
            if self.name.endswith(FOLDER) and next(calls) == number:
                os._exit(9)
            return method(self, target)

        Path.replace = dying  # type: ignore[assignment, method-assign]
        change()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9


def test_a_killed_commit_is_finished_by_who_comes_next(install: Install) -> None:
    kill(install, 2, lambda: commit(install, *ALL))
    assert [read(install, path) == patched(path) for path in ALL] == [1, 0, 0]
    before = photograph(install)
    snapshot = transaction.inspect(install)
    assert snapshot.pending == "an interrupted apply of ours"
    assert photograph(install) == before

    snapshot, line = transaction.inspect_and_recover(install)
    assert line == "finished an interrupted apply of ours"
    assert snapshot.applied and snapshot.pending is None
    assert [read(install, path) for path in ALL] == [patched(path) for path in ALL]
    assert transaction.inspect_and_recover(install) == (snapshot, None)


def test_a_killed_revert_is_finished_as_well(install: Install) -> None:
    before = photograph(install)
    commit(install, *ALL)
    kill(install, 2, lambda: revert(install))
    with transaction.locked(install) as work:
        assert work.recovered == "finished an interrupted revert"
        assert work.snapshot.record is None
    assert photograph(install) == before


def test_recovery_leaves_alone_what_others_changed_meanwhile(install: Install) -> None:
    before = photograph(install)
    kill(install, 3, lambda: commit(install, *ALL))
    write(install, SECOND, b"by hand\n")
    _, line = transaction.inspect_and_recover(install)
    assert line == (
        "undid an interrupted apply of ours; not touched, because somebody else "
        f"changed them: {SECOND}"
    )
    after = photograph(install)
    assert after.pop(SECOND)[-1] == b"by hand\n"
    before.pop(SECOND)
    assert after == before


@pytest.mark.usefixtures("unchanged")
@pytest.mark.parametrize("leftover", ["", "lock", "begun.json.tmp", "store/text.tmp"])
def test_what_a_command_left_before_it_did_anything_goes(
    leftover: str, install: Install
) -> None:
    folder = install.package / FOLDER
    folder.mkdir()
    if leftover:
        (folder / leftover).parent.mkdir(exist_ok=True)
        (folder / leftover).touch()
    pending = transaction.inspect(install).pending
    assert pending == "leftovers of an interrupted command"
    snapshot, _ = transaction.inspect_and_recover(install)
    assert snapshot.pending is None


def test_a_link_in_place_of_our_folder_is_not_followed(install: Install) -> None:
    elsewhere = install.package.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "file").touch()
    (install.package / FOLDER).symlink_to(elsewhere)
    with pytest.raises(AccessError, match="symbolic link"):
        commit(install, FIRST)
    assert (elsewhere / "file").exists()


def damaged(state: dict[str, object]) -> Mapping[str, bytes]:
    escaping = json.dumps(state).replace(FIRST, "../../elsewhere.py")
    return {
        "truncated": json.dumps(state)[:-9].encode(),
        "of a later format": json.dumps(state | {"format": 2}).encode(),
        "of another shape": b"[]",
        "not text": b"\xff",
        "about files elsewhere": escaping.encode(),
    }


@pytest.mark.parametrize("how", damaged({}))
def test_a_record_that_is_not_understood_stops_everything(
    how: str, install: Install
) -> None:
    commit(install, FIRST)
    file = install.package / FOLDER / "state.json"
    file.write_bytes(damaged(json.loads(file.read_text()))[how])
    before = photograph(install)
    for command in (
        lambda: transaction.inspect(install),
        lambda: transaction.inspect_and_recover(install),
        lambda: revert(install),
        lambda: commit(install, FIRST, edition="two"),
    ):
        with pytest.raises(AccessError, match=r"state\.json cannot be read"):
            command()
    assert photograph(install) == before


def test_a_damaged_original_is_not_given_back(install: Install) -> None:
    commit(install, FIRST)
    name = hashlib.sha256(vanilla(FIRST)).hexdigest()
    write(install, f"{FOLDER}/store/{name}", b"damaged")
    before = photograph(install)
    with pytest.raises(AccessError, match="not the text that was saved"):
        revert(install)
    assert photograph(install) == before


def test_a_reinstall_gets_over_a_damaged_original(install: Install) -> None:
    commit(install, FIRST)
    name = hashlib.sha256(vanilla(FIRST)).hexdigest()
    write(install, f"{FOLDER}/store/{name}", b"damaged")
    write(install, FIRST, vanilla(FIRST))
    assert commit(install, FIRST) == (FIRST,)
    assert revert(install) == (FIRST,)
    assert read(install, FIRST) == vanilla(FIRST)


def test_a_package_that_goes_away_is_an_error(install: Install) -> None:
    shutil.rmtree(install.package)
    with (
        pytest.raises(AccessError, match="No such file"),
        transaction.locked(install, timeout=1),
    ):
        pass
