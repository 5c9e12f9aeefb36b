"""What the patches make of the files of the wheel."""

from __future__ import annotations

import ast
import difflib
import subprocess
import sys
from collections.abc import Mapping
from itertools import chain, combinations

import pytest

from agentcore_patches.patches import registry
from agentcore_patches.plan import Plan, make_plan
from tests.helpers.planning import VERSION
from tests.sglang_sources import surgery

SELECTIONS = [
    pytest.param(selection, id="+".join(selection))
    for size in range(1, len(registry.names()) + 1)
    for selection in combinations(registry.names(), size)
]

# All that does not stay of the vanilla lines. What takes a line's place is below it.
CHANGED_LINES = {
    "srt/managers/multi_tokenizer_mixin.py": {
        "new_field[k] = v[index]": "new_field[k] = [v[index]]",
    },
    "srt/managers/tokenizer_manager.py": {
        "meta_info[k] = v[i]": "meta_info[k] = _add_customized_info(",
        "output_ids = [output_ids[-1]] if len(output_ids) > 0 else []": (
            "output_ids = [] if self.server_args.stream_output else output_ids.copy()"
        ),
    },
    "srt/entrypoints/openai/serving_chat.py": {
        "if is_multimodal:": "if is_multimodal and request.input_ids is None:",
        "if request.logprobs:": "if request.logprobs and trace is None:",
        "parser, content, request, index": (
            "parser, content, request, index, dump_chunk=dump_chunk"
        ),
        **{
            f'{keyword} f"data: {{{chunk}.model_dump_json()}}\\n\\n"': (
                f'{keyword} f"data: {{dump_chunk({chunk})}}\\n\\n"'
            )
            for keyword, chunk in (
                ("yield", "chunk"),
                ("return", "chunk"),
                ("yield", "finish_reason_chunk"),
                ("yield", "hidden_states_chunk"),
                ("yield", "routed_experts_chunk"),
                ("yield", "usage_chunk"),
            )
        },
    },
}


def planned(sources: Mapping[str, bytes], selection: tuple[str, ...]) -> Plan:
    return make_plan(sources, selection, VERSION)


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
    assert plan.patches == selection
    assert tuple(plan.files) == registry.files(selection, VERSION)
    assert {outcome.patch for outcome in plan.outcomes} == set(selection)
    assert {outcome.outcome for outcome in plan.outcomes} == {"applied"}
    for path, text in plan.files.items():
        compile(text, path, "exec", dont_inherit=True)


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_second_time_there_is_nothing_to_do(
    pristine: Mapping[str, bytes], selection: tuple[str, ...]
) -> None:
    patched = {**pristine, **planned(pristine, selection).files}
    again = planned(patched, selection)
    assert again.files == {}
    assert {outcome.outcome for outcome in again.outcomes} == {"present"}


@pytest.mark.parametrize("selection", SELECTIONS)
def test_lines_are_added_and_hardly_any_is_changed(
    pristine: Mapping[str, bytes], selection: tuple[str, ...]
) -> None:
    for path, text in planned(pristine, selection).files.items():
        gone, _ = changes(pristine[path], text)
        assert {line.strip() for line in gone} <= set(CHANGED_LINES.get(path, ()))
        twice = {line for line in gone if gone.count(line) > 1}
        assert all("model_dump_json" in line for line in twice)


def test_the_lines_that_are_changed_are_those_listed(
    pristine: Mapping[str, bytes],
) -> None:
    changed: dict[str, dict[str, str]] = {}
    for path, text in planned(pristine, registry.names()).files.items():
        gone, added = changes(pristine[path], text)
        starts = {line.strip() for line in added}
        for line in gone:
            new = CHANGED_LINES[path][line.strip()]
            assert new in starts
            changed.setdefault(path, {})[line.strip()] = new
    assert changed == CHANGED_LINES


@pytest.mark.parametrize("selection", SELECTIONS)
def test_new_lines_are_laid_out_as_those_around_them(
    pristine: Mapping[str, bytes], selection: tuple[str, ...]
) -> None:
    for path, text in planned(pristine, selection).files.items():
        for line in changes(pristine[path], text)[1]:
            assert len(line) <= 88, line
            assert line == line.rstrip(), line
            assert line.isascii(), line
        assert text.endswith(b"\n") == pristine[path].endswith(b"\n")


def test_a_formatter_finds_nothing_to_do_in_new_lines(
    pristine: Mapping[str, bytes],
) -> None:
    for path, text in planned(pristine, registry.names()).files.items():
        before = changes(pristine[path], formatted(pristine[path]))
        assert changes(text, formatted(text)) == before


def formatted(source: bytes) -> bytes:
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    return subprocess.run(command, input=source, capture_output=True, check=True).stdout


def test_comments_and_definitions_of_the_wheel_stay(
    pristine: Mapping[str, bytes],
) -> None:
    for path, text in planned(pristine, registry.names()).files.items():
        new = iter(surgery.comments(text))
        assert all(comment in new for comment in surgery.comments(pristine[path]))
        old = [node.name for node in surgery.definitions(ast.parse(pristine[path]))]
        there = iter([node.name for node in surgery.definitions(ast.parse(text))])
        assert all(name in there for name in old)


def test_carriage_returns_stay(pristine: Mapping[str, bytes]) -> None:
    crlf = {path: text.replace(b"\n", b"\r\n") for path, text in pristine.items()}
    expected = {
        path: text.replace(b"\n", b"\r\n")
        for path, text in planned(pristine, registry.names()).files.items()
    }
    plan = planned(crlf, registry.names())
    assert plan.files == expected
    assert planned({**crlf, **plan.files}, registry.names()).files == {}


def test_a_byte_order_mark_stays(pristine: Mapping[str, bytes]) -> None:
    marked = {path: b"\xef\xbb\xbf" + text for path, text in pristine.items()}
    expected = {
        path: b"\xef\xbb\xbf" + text
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
        touched = set(planned(pristine, (name,)).files)
        needed = {path: pristine[path] for path in touched}
        assert set(planned(needed, (name,)).files) == touched
    assert set(
        chain(*(registry.files((name,), VERSION) for name in registry.names()))
    ) == set(pristine)


def test_planning_leaves_its_sources_alone(pristine: Mapping[str, bytes]) -> None:
    sources = dict(pristine)
    planned(sources, registry.names())
    assert sources == pristine
