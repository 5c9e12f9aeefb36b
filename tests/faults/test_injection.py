"""Commands killed at every system call they make, and with every call failing once."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentcore_patches.state import transaction
from tests.faults import tracing, trees
from tests.faults.tracing import Call, Ended
from tests.faults.trees import expected, run
from tests.helpers.trees import Photograph, photograph, without_ours

ACTIONS = ("apply", "upgrade", "revert")
BEFORE = {"apply": "vanilla", "upgrade": "apply", "revert": "upgrade"}
STAYED = re.compile(r"Nothing was changed\.|The command was not started\.")
RECORD = f"site/{trees.DIST_INFO}/RECORD"
UNDONE = re.compile(r"not all files could be put back: .*command repairs this")
DONE = re.compile(r"SGLang's files are as they were|Only \S+ was left over")
# Calls that read fail in two ways, calls that write in four.
ERRORS = ("EIO", "EACCES", "ENOSPC", "EROFS")
READING_ERRORS = ERRORS[:2]


@pytest.fixture(scope="module")
def models() -> Iterator[dict[str, Path]]:
    """Packages in the state after each action; tests damage copies of them.

    They are in memory if that can be, where syncing costs nothing.
    """
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        root = Path(folder)
        found = {"vanilla": trees.build(root / "vanilla")}
        for earlier, action in (("vanilla", "apply"), ("apply", "upgrade")):
            found[action] = trees.copy(found[earlier], root / action)
            run(found[action], action)
        yield found


@contextmanager
def a_copy(model: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=model.parents[2]) as folder:
        yield trees.copy(model, Path(folder) / "tree")


def tree_of(package: Path) -> Photograph:
    """Return the complete tree of a package, including its cache."""
    return photograph(package.parents[1])


def record_of(package: Path) -> list[str]:
    """Return the lines of SGLang's RECORD, which also lists what is added."""
    return (package.parents[1] / RECORD).read_text().splitlines()


def calls_of(action: str, model: Path) -> list[Call]:
    with a_copy(model) as package:
        return tracing.calls(package, action)


def check_output(ended: Ended, package: Path, model: Path, action: str) -> None:
    """Check that a command said what it did: everything, or nothing."""
    assert "Traceback" not in ended.output, ended
    assert ended.returncode in (0, 5), ended
    if ended.returncode == 0 or DONE.search(ended.output):
        assert trees.texts(package) == expected(action), ended
    else:
        assert STAYED.search(ended.output), ended
        now, before = without_ours(tree_of(package)), without_ours(tree_of(model))
        # If the disk still fails, RECORD lists files that are not there, or no longer.
        assert now | {RECORD: ()} == before | {RECORD: ()}, ended


@pytest.fixture(params=["every tenth call", "other calls"])
def share(request: pytest.FixtureRequest) -> Callable[[list[Call]], list[Call]]:
    """Choose the calls that a test damages."""
    tenth = request.param == "every tenth call"

    def choose(calls: list[Call]) -> list[Call]:
        return [call for n, call in enumerate(calls) if (n % 10 == 0) is tenth]

    return choose


def each(task: Callable[..., None], *columns: Iterable[object]) -> int:
    """Call `task` with every row, as many at once as there are processors."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return len(list(pool.map(task, *columns)))


@pytest.mark.parametrize("action", ACTIONS)
def test_the_next_command_repairs_a_kill_at_any_system_call(
    action: str, models: dict[str, Path], share: Callable[[list[Call]], list[Call]]
) -> None:
    model = models[BEFORE[action]]
    old, new = expected(BEFORE[action]), expected(action)
    outcomes: Counter[str] = Counter()

    def kill(call: Call, follower: str) -> None:
        with a_copy(model) as package:
            tracing.kill_at(call, package, action)
            for path, text in trees.texts(package).items():
                assert text in (old.get(path), new.get(path)), call
            assert trees.stale_bytecode(package) == [], call
            if follower == "recover":
                run(package, "recover")
                assert transaction.inspect(trees.install_of(package)).pending is None
                now = trees.texts(package)
                assert now in (old, new), call
                outcomes["new" if now == new else "old"] += 1
            else:
                run(package, follower)
                assert trees.texts(package) == expected(follower), call
                after = models["vanilla" if follower == "revert" else follower]
                assert record_of(package) == record_of(after), call
            assert trees.stale_bytecode(package) == [], call
            run(package, "revert")
            assert tree_of(package) == tree_of(models["vanilla"]), call

    every = [call for call in calls_of(action, model) if call.changes]
    assert len(every) > 80
    places = share(every)
    followers = itertools.cycle(("recover", "apply", "recover", "upgrade", "revert"))
    each(kill, places, followers)
    assert outcomes["old"] and outcomes["new"]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("action", ACTIONS)
def test_an_error_in_any_system_call_leaves_the_old_or_the_new_tree(
    action: str,
    error: str,
    models: dict[str, Path],
    share: Callable[[list[Call]], list[Call]],
) -> None:
    model = models[BEFORE[action]]
    outcomes: Counter[int] = Counter()

    def fail(call: Call) -> None:
        with a_copy(model) as package:
            ended = tracing.fail_at(call, error, package, action)
            outcomes[ended.returncode] += 1
            check_output(ended, package, model, action)
            named = any(Path(p).parent.name in ended.output for p in call.paths)
            assert ended.returncode == 0 or named, (call, ended)
            assert trees.stale_bytecode(package) == [], call
            run(package, "revert")
            assert tree_of(package) == tree_of(models["vanilla"]), call

    every = calls_of(action, model)
    if error not in READING_ERRORS:
        every = [call for call in every if call.changes]
    assert len(every) > 80
    places = share(every)
    each(fail, places)
    assert outcomes[5] > outcomes[0]


@pytest.mark.parametrize("action", ACTIONS)
def test_the_next_command_repairs_a_killed_recovery(
    action: str, models: dict[str, Path], share: Callable[[list[Call]], list[Call]]
) -> None:
    old, new = expected(BEFORE[action]), expected(action)
    places = [call for call in calls_of(action, models[BEFORE[action]]) if call.changes]
    renames = [call for call in places if call.kind.startswith("rename")]
    decision = next(
        call for call in renames if "prepared.json" in call.line.split(",")[0]
    )
    replacing = [call for call in renames if "srt/" in call.line]
    done = 0
    # Before the commit, in the middle of the files, and when only state files are left.
    for call in (decision, replacing[1], places[-5]):
        with a_copy(models[BEFORE[action]]) as model:
            tracing.kill_at(call, model, action)

            def kill(again: Call, model: Path = model) -> None:
                with a_copy(model) as package:
                    tracing.kill_at(again, package, "recover")
                    assert trees.stale_bytecode(package) == [], again
                    run(package, "recover")
                    assert trees.texts(package) in (old, new), again
                    run(package, "revert")
                    assert tree_of(package) == tree_of(models["vanilla"])

            places = [call for call in calls_of("recover", model) if call.changes]
            done += each(kill, share(places))
    assert done


@pytest.mark.parametrize("kind", ["rename", "unlink", "fsync"])
@pytest.mark.parametrize("action", ACTIONS)
def test_the_next_command_repairs_once_a_failed_disk_works_again(
    action: str, kind: str, models: dict[str, Path]
) -> None:
    model = models[BEFORE[action]]
    old, new = expected(BEFORE[action]), expected(action)

    def fail(call: Call) -> None:
        with a_copy(model) as package:
            ended = tracing.fail_at(call, "EIO", package, action, for_good=True)
            if not UNDONE.search(ended.output):
                check_output(ended, package, model, action)
            assert trees.stale_bytecode(package) == [], call
            run(package, "recover")
            assert transaction.inspect(trees.install_of(package)).pending is None
            assert trees.texts(package) in (old, new), call
            run(package, "revert")
            assert tree_of(package) == tree_of(models["vanilla"]), call

    places = [call for call in calls_of(action, model) if call.kind.startswith(kind)]
    assert each(fail, places)
