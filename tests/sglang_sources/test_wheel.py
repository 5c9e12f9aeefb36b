"""What the patches make of the files of v0.5.9, saved and selected in other ways."""

from __future__ import annotations

import ast
import difflib
import subprocess
import sys
from collections.abc import Mapping
from itertools import chain

import pytest

from agentcore_patches.errors import SourceConflict
from agentcore_patches.patches.files import LANDED
from agentcore_patches.plan import make_plan
from tests.helpers.planning import VERSION
from tests.helpers.wheels import wheel_files
from tests.sglang_sources.releases import NAMES, changed_files, hooks, planned, sources

pytestmark = pytest.mark.usefixtures("planned_once")

SOURCES = sources(VERSION)


def planned_all(files: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """The new texts of all patches."""
    return planned(files, VERSION).files


def changes(old: bytes, new: bytes) -> tuple[list[str], list[str]]:
    """Lines that are gone and lines that are new."""
    diff = list(
        difflib.unified_diff(old.decode().split("\n"), new.decode().split("\n"), n=0)
    )[2:]
    gone = [line[1:] for line in diff if line.startswith("-")]
    added = [line[1:] for line in diff if line.startswith("+")]
    return gone, added


def test_a_formatter_finds_nothing_to_do_in_new_lines() -> None:
    for path, text in hooks(planned_all(SOURCES)).items():
        in_wheel = changes(SOURCES[path], formatted(SOURCES[path]))
        after = changes(text, formatted(text))
        for was, now in zip(in_wheel, after, strict=True):
            # Old formatters drop a blank line that begins a block; code may precede it now.
            assert list(filter(None, now)) == list(filter(None, was)), path
            assert now.count("") <= was.count(""), path


def formatted(source: bytes) -> bytes:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    return subprocess.run(command, input=source, capture_output=True, check=True).stdout


def test_carriage_returns_stay() -> None:
    crlf = {path: text.replace(b"\n", b"\r\n") for path, text in SOURCES.items()}
    expected = {
        path: text if path in LANDED else text.replace(b"\n", b"\r\n")
        for path, text in planned_all(SOURCES).items()
    }
    files = planned_all(crlf)
    assert files == expected
    assert planned_all({**crlf, **files}) == {}


def test_a_byte_order_mark_stays() -> None:
    marked = {path: b"\xef\xbb\xbf" + text for path, text in SOURCES.items()}
    expected = {
        path: text if path in LANDED else b"\xef\xbb\xbf" + text
        for path, text in planned_all(SOURCES).items()
    }
    assert planned_all(marked) == expected


def test_a_missing_last_line_end_is_no_hindrance() -> None:
    cut = {path: text.rstrip() for path, text in SOURCES.items()}
    files = planned_all(cut)
    for path, text in planned_all(SOURCES).items():
        assert ast.dump(ast.parse(files[path])) == ast.dump(ast.parse(text))
    assert planned_all({**cut, **files}) == {}


def test_a_selection_leaves_the_others_files_alone() -> None:
    for name in NAMES:
        touched = set(hooks(planned(SOURCES, VERSION, (name,)).files))
        needed = {path: SOURCES[path] for path in touched}
        assert set(hooks(planned(needed, VERSION, (name,)).files)) == touched
    assert set(chain(*(changed_files(VERSION, (name,)) for name in NAMES))) == set(
        SOURCES
    )


def test_a_server_argument_that_a_release_renamed_is_missed() -> None:
    """As v0.5.10 did: the code would raise AttributeError where it runs."""
    renamed = b"incremental_streaming_output"

    def read(path: str) -> bytes | None:
        text = wheel_files(VERSION, [path]).get(path)
        assert text is None or path != "srt/server_args.py" or b"stream_output" in text
        return text and text.replace(b"stream_output", renamed)

    renaming = {
        path: text.replace(b"server_args.stream_output", b"server_args." + renamed)
        for path, text in SOURCES.items()
    }
    with pytest.raises(SourceConflict) as refused:
        make_plan(renaming, NAMES, VERSION, read)
    assert "would read `server_args.stream_output`, which" in str(refused.value)
    assert planned_all(renaming)
