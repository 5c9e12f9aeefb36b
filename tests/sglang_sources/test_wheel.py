"""What the patches make of the files of the wheel."""

from __future__ import annotations

import ast
import difflib
import subprocess
import sys
from collections.abc import Mapping
from itertools import chain, combinations

import pytest

from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches import registry
from agentcore_patches.patches.files import LANDED
from agentcore_patches.plan import Plan, make_plan
from tests.helpers import wheel
from tests.helpers.planning import VERSION
from tests.sglang_sources import surgery
from tests.sglang_sources.releases import changed_files, hooks

pytestmark = pytest.mark.usefixtures("planned_once")

SELECTIONS = [
    pytest.param(selection, id="+".join(selection))
    for size in range(1, len(registry.names()) + 1)
    for selection in combinations(registry.names(), size)
]


def planned(sources: Mapping[str, bytes], selection: tuple[str, ...]) -> Plan:
    return make_plan(sources, selection, VERSION, wheel.read)


def changes(old: bytes, new: bytes) -> tuple[list[str], list[str]]:
    """Lines that are gone and lines that are new."""
    diff = list(
        difflib.unified_diff(old.decode().split("\n"), new.decode().split("\n"), n=0)
    )[2:]
    gone = [line[1:] for line in diff if line.startswith("-")]
    added = [line[1:] for line in diff if line.startswith("+")]
    return gone, added


@pytest.mark.parametrize("selection", SELECTIONS)
def test_every_selection_applies_whole(
    pristine: Mapping[str, bytes], selection: tuple[str, ...]
) -> None:
    plan = planned(pristine, selection)
    assert tuple(plan.files) == registry.files(selection, VERSION)
    assert {outcome.patch for outcome in plan.outcomes} == set(selection)
    assert {outcome.outcome for outcome in plan.outcomes} == {"applied"}
    for path, text in plan.files.items():
        compile(text, path, "exec", dont_inherit=True)
    assert all(b"# agentcore-patch: " in text for text in hooks(plan.files).values())


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_second_time_there_is_nothing_to_do(
    pristine: Mapping[str, bytes], selection: tuple[str, ...]
) -> None:
    patched = {**pristine, **planned(pristine, selection).files}
    again = planned(patched, selection)
    assert again.files == {}
    assert {outcome.outcome for outcome in again.outcomes} == {"present"}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_new_lines_are_laid_out_as_those_around_them(
    pristine: Mapping[str, bytes], selection: tuple[str, ...]
) -> None:
    for path, text in hooks(planned(pristine, selection).files).items():
        for line in changes(pristine[path], text)[1]:
            assert len(line) <= 88, line
            assert line == line.rstrip(), line
            assert line.isascii(), line
        assert text.endswith(b"\n") == pristine[path].endswith(b"\n")


def test_a_formatter_finds_nothing_to_do_in_new_lines(
    pristine: Mapping[str, bytes],
) -> None:
    for path, text in hooks(planned(pristine, registry.names()).files).items():
        in_wheel = changes(pristine[path], formatted(pristine[path]))
        after = changes(text, formatted(text))
        for was, now in zip(in_wheel, after, strict=True):
            # Old formatters drop a blank line that begins a block; code may precede it now.
            assert list(filter(None, now)) == list(filter(None, was)), path
            assert now.count("") <= was.count(""), path


def formatted(source: bytes) -> bytes:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    return subprocess.run(command, input=source, capture_output=True, check=True).stdout


def test_comments_and_definitions_of_the_wheel_stay(
    pristine: Mapping[str, bytes],
) -> None:
    for path, text in hooks(planned(pristine, registry.names()).files).items():
        assert surgery.keeps_comments(pristine[path], text)
        old = [node.name for node in surgery.definitions(ast.parse(pristine[path]))]
        there = iter([node.name for node in surgery.definitions(ast.parse(text))])
        assert all(name in there for name in old)


def test_carriage_returns_stay(pristine: Mapping[str, bytes]) -> None:
    crlf = {path: text.replace(b"\n", b"\r\n") for path, text in pristine.items()}
    expected = {
        path: text if path in LANDED else text.replace(b"\n", b"\r\n")
        for path, text in planned(pristine, registry.names()).files.items()
    }
    plan = planned(crlf, registry.names())
    assert plan.files == expected
    assert planned({**crlf, **plan.files}, registry.names()).files == {}


def test_a_byte_order_mark_stays(pristine: Mapping[str, bytes]) -> None:
    marked = {path: b"\xef\xbb\xbf" + text for path, text in pristine.items()}
    expected = {
        path: text if path in LANDED else b"\xef\xbb\xbf" + text
        for path, text in planned(pristine, registry.names()).files.items()
    }
    assert planned(marked, registry.names()).files == expected


def test_a_missing_last_line_end_is_no_hindrance(pristine: Mapping[str, bytes]) -> None:
    cut = {path: text.rstrip() for path, text in pristine.items()}
    plan = planned(cut, registry.names())
    for path, text in planned(pristine, registry.names()).files.items():
        assert ast.dump(ast.parse(plan.files[path])) == ast.dump(ast.parse(text))
    assert planned({**cut, **plan.files}, registry.names()).files == {}


def test_a_selection_leaves_the_others_files_alone(
    pristine: Mapping[str, bytes],
) -> None:
    for name in registry.names():
        touched = set(hooks(planned(pristine, (name,)).files))
        needed = {path: pristine[path] for path in touched}
        assert set(hooks(planned(needed, (name,)).files)) == touched
    assert set(
        chain(*(changed_files(VERSION, (name,)) for name in registry.names()))
    ) == set(pristine)


def test_planning_leaves_its_sources_alone(pristine: Mapping[str, bytes]) -> None:
    sources = dict(pristine)
    planned(sources, registry.names())
    assert sources == pristine


def test_a_server_argument_that_a_release_renamed_is_missed(
    pristine: Mapping[str, bytes],
) -> None:
    """As v0.5.10 did: the code would raise AttributeError where it runs."""
    renamed = b"incremental_streaming_output"

    def read(path: str) -> bytes | None:
        text = wheel.read(path)
        assert text is None or path != "srt/server_args.py" or b"stream_output" in text
        return text and text.replace(b"stream_output", renamed)

    sources = {
        path: text.replace(b"server_args.stream_output", b"server_args." + renamed)
        for path, text in pristine.items()
    }
    with pytest.raises(SourceConflict) as refused:
        make_plan(sources, registry.names(), VERSION, read)
    assert "would read `server_args.stream_output`, which" in str(refused.value)
    assert make_plan(sources, registry.names(), VERSION, wheel.read).files
