"""What people see: tables, sentences and diffs. Nothing is printed here."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from agentcore_patches._version import __version__
from agentcore_patches.install import Install
from agentcore_patches.marks import is_created
from agentcore_patches.patches import registry
from agentcore_patches.patches.versions import SUPPORTED_VERSIONS
from agentcore_patches.results import (
    ApplyResult,
    FileChange,
    FileStatus,
    PatchInfo,
    PatchState,
    RevertResult,
    StatusResult,
)
from agentcore_patches.state.snapshot import FileState

if TYPE_CHECKING:
    from agentcore_patches.cluster.results import NodeResult
    from agentcore_patches.failure import Failure

_STATES = {
    FileState.ORIGINAL: "not patched",
    FileState.PATCHED: "patched",
    FileState.EDITED: "edited since",
    FileState.REPLACED: "replaced since",
    FileState.MISSING: "missing",
}

_PLANNED = {"patched": "to patch", "restored": "to restore", "unchanged": "unchanged"}

# Stands for a space inside a command, where no line may be broken.
_NO_BREAK = "\0"

_RESTART = "A server that is already running keeps the old code until it is restarted."

_UNRECORDED = (
    "The original files are unknown (the folder `.agentcore-patch` in the package, where "
    "they are saved, is gone), so `agentcore-patch revert` cannot remove the patches."
)


class TextOutput:
    """Tables and sentences, wrapped at `width` columns; not wrapped if it is None."""

    def __init__(self, width: int | None = None) -> None:
        self._width = width

    def applied(self, result: ApplyResult) -> str:
        rows = [
            (
                file.path,
                _edits(file),
                _PLANNED[file.action] if result.dry_run else file.action,
                _source(file.pristine),
            )
            for file in result.files
        ]
        return _blocks(
            *(_coloured(file.diff) for file in result.files if file.diff),
            self._heading(result.install),
            _table(("FILE", "EDITS", "ACTION", "SOURCE"), rows),
            self._paragraph(*_applied(result)),
            self._paragraph(*_source_notes(result)),
        )

    def status(self, result: StatusResult) -> str:
        patches = [(name, state.value) for name, state in result.patches.items()]
        files = [
            (file.path, _STATES[file.state], _source(file.pristine))
            for file in result.files
        ]
        return _blocks(
            self._heading(result.install),
            _table(("PATCH", "STATE"), patches),
            _table(("FILE", "STATE", "SOURCE"), files),
            self._paragraph(*_status(result)),
            self._paragraph(*_source_notes(result)),
        )

    def reverted(self, result: RevertResult) -> str:
        rows = [
            (
                file.path,
                "removed" if is_created(file.path) else "restored",
                _source(file.pristine),
            )
            for file in result.files
        ]
        return _blocks(
            self._heading(result.install),
            _table(("FILE", "ACTION", "SOURCE"), rows),
            self._paragraph(*_reverted(result)),
            self._paragraph(*_source_notes(result)),
        )

    def patches(self, patches: Sequence[PatchInfo]) -> str:
        return _blocks(
            f"Patches for SGLang {', '.join(SUPPORTED_VERSIONS)}:",
            *(
                "\n".join(
                    [
                        f"  {patch.name}",
                        self._wrapped(patch.summary, indent="    "),
                        *(f"      {file}" for file in patch.files),
                    ]
                )
                for patch in patches
            ),
        )

    def applied_on_ray(self, results: Sequence[NodeResult]) -> str:
        rows = [
            (
                *_node(result),
                _summary(result.before),
                _applied_summary(result),
                _summary(result.status),
                _where(result),
            )
            for result in results
        ]
        return _blocks(
            _table(("NODE", "HOST", "ID", "BEFORE", "APPLY", "NOW", "SGLANG"), rows),
            self._node_errors(results),
            self._paragraph(*_applied_on_ray(results)),
        )

    def status_on_ray(self, results: Sequence[NodeResult]) -> str:
        rows = [
            (*_node(result), _summary(result.status), _where(result))
            for result in results
        ]
        return _blocks(
            _table(("NODE", "HOST", "ID", "NOW", "SGLANG"), rows),
            self._node_errors(results),
            self._paragraph(*_status_on_ray(results)),
        )

    def failure(self, failure: Failure) -> str:
        lines = f"Error: {failure.message}".splitlines()
        return "\n".join(map(self._wrapped, lines))

    def notice(self, line: str) -> str:
        return self._wrapped(line)

    def _node_errors(self, results: Sequence[NodeResult]) -> str:
        return "\n".join(
            self._wrapped(f"{' '.join(_node(result))}: {result.error}")
            for result in results
            if result.error
        )

    def _heading(self, install: Install) -> str:
        return self._wrapped(
            f"SGLang {install.version} in {install.package} ({install.found})"
        )

    def _paragraph(self, *sentences: str) -> str:
        return self._wrapped(" ".join(sentences))

    def _wrapped(self, text: str, indent: str = "") -> str:
        if self._width is None or not text:
            return indent + text
        whole = re.sub(
            "`[^`]*`", lambda command: command[0].replace(" ", _NO_BREAK), text
        )
        return textwrap.fill(
            whole,
            max(self._width, 20),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ).replace(_NO_BREAK, " ")


def _applied(result: ApplyResult) -> Iterator[str]:
    hold = _are(result.patches)
    patched = sum(file.action == "patched" for file in result.files)
    restored = sum(file.action == "restored" for file in result.files)
    if not result.recorded:
        yield f"Nothing to do: {hold} already in these sources. {_UNRECORDED}"
    elif not result.changed:
        yield f"Nothing to do: {hold} already in place."
    elif result.pending:
        yield (
            f"Found {result.pending}, which `agentcore-patch apply` finishes or undoes "
            "first. Dry run, nothing was written, and nothing more is known."
        )
    elif result.dry_run:
        also = f", {_files(restored)} restored" if restored else ""
        yield f"Dry run, nothing was written: {_files(patched)} would be patched{also}."
        if result.removed:
            yield f"{_and(result.removed)} would be removed (not selected)."
    else:
        also = f", restored {_files(restored)}" if restored else ""
        if result.sglang_change:
            yield f"{result.sglang_change} since the last apply; patched anew."
        yield f"Patched {_files(patched)}{also}: {hold} now in place."
        if result.removed:
            yield f"Removed {_and(result.removed)} (not selected)."
        yield _RESTART
        yield "`agentcore-patch revert` restores the original files."


def _status(result: StatusResult) -> Iterator[str]:
    names: dict[PatchState, list[str]] = {state: [] for state in PatchState}
    for name in result.wanted:
        names[result.patches[name]].append(name)

    if result.pending is not None:
        yield (
            f"Found {result.pending}: another command is at work, or was killed. The "
            "next `agentcore-patch apply` or `agentcore-patch revert` finishes or undoes "
            "it."
        )
    if result.sglang_change is not None:
        yield f"{result.sglang_change} since the last apply."
    if result.install.release is None:
        yield (
            f"SGLang {result.install.version} is not supported by agentcore-patch "
            f"{__version__}: it can be reverted, but not patched."
        )
    if in_place := names[PatchState.IN_PLACE]:
        yield (
            f"{_are(in_place)} in place, applied by agentcore-patch {result.applied_by}."
            if result.recorded
            else f"{_are(in_place)} in these sources. {_UNRECORDED}"
        )
    elif not result.recorded:
        yield f"These sources contain parts of patches. {_UNRECORDED}"
    if outdated := names[PatchState.OUTDATED]:
        build = "another build of " if result.applied_by == __version__ else ""
        yield (
            f"{_are(outdated)} outdated: applied by {build}agentcore-patch "
            f"{result.applied_by}. `agentcore-patch apply` replaces them by those of "
            f"{__version__}."
        )
    if changed := names[PatchState.CHANGED]:
        yield f"{_are(changed)} incomplete."
        yield from _changed(result.files)
    if absent := names[PatchState.ABSENT]:
        held = [
            name
            for name, state in result.patches.items()
            if state is not PatchState.ABSENT and name in registry.names()
        ]
        yield f"{_are(absent)} not applied. To apply: `{_apply([*held, *absent])}`."


def _changed(files: Sequence[FileStatus]) -> Iterator[str]:
    """Which files were changed since they were patched, and what to do."""
    paths: dict[FileState, list[str]] = {state: [] for state in FileState}
    for file in files:
        paths[file.state].append(file.path)
    if edited := paths[FileState.EDITED]:
        yield (
            f"Somebody edited {_and(edited)} since. Undo that change, or discard it with "
            "`agentcore-patch revert --force`."
        )
    if replaced := paths[FileState.REPLACED]:
        yield (
            f"Somebody replaced {_and(replaced)} since (by reinstalling SGLang?). To "
            "patch again: `agentcore-patch apply`."
        )
    if missing := paths[FileState.MISSING]:
        yield (
            f"Missing: {_and(missing)}. Restore the files with `agentcore-patch revert "
            "--force`, or reinstall SGLang."
        )


def _reverted(result: RevertResult) -> Iterator[str]:
    if result.sglang_change:
        yield (
            f"{result.sglang_change} since the last apply; files of the new one were left "
            "as they are."
        )
    if result.changed:
        yield f"Restored {_files(len(result.files))}: {_are(result.patches)} removed."
        yield _RESTART
    elif result.patches:
        yield f"Nothing to restore: the files of {_and(result.patches)} are the originals."
    else:
        yield "Nothing to revert: no patch is applied."


def _applied_on_ray(results: Sequence[NodeResult]) -> Iterator[str]:
    yield from _on_nodes(results)
    if any(result.applied and result.applied.dry_run for result in results):
        yield "Dry run, nothing was written."
    elif any(result.changed for result in results):
        yield _RESTART


def _status_on_ray(results: Sequence[NodeResult]) -> Iterator[str]:
    yield from _on_nodes(results)
    if any(not result.complete and not result.error for result in results):
        yield "To apply what is missing: `agentcore-patch apply --ray`."


def _on_nodes(results: Sequence[NodeResult]) -> Iterator[str]:
    """On how many nodes the patches are in place, and how many failed."""
    seen = [result.status for result in results if result.status]
    if seen:
        complete = sum(result.complete for result in results)
        yield f"{_are(seen[0].wanted)} in place on {_of_nodes(complete, results)}."
    if failed := sum(result.error is not None for result in results):
        yield f"{_of_nodes(failed, results)} failed."


def _of_nodes(count: int, results: Sequence[NodeResult]) -> str:
    nodes = "1 node" if len(results) == 1 else f"{len(results)} nodes"
    if count == len(results):
        return nodes if count == 1 else f"all {nodes}"
    return f"{count or 'none'} of {nodes}"


def _node(result: NodeResult) -> tuple[str, str, str]:
    return result.node.address, result.node.hostname, result.node.node_id[:8]


def _where(result: NodeResult) -> str:
    status = result.status or result.before
    return f"{status.install.version} in {status.install.package}" if status else "?"


def _applied_summary(result: NodeResult) -> str:
    if result.error or not result.applied:
        return "failed"
    changed = _files(sum(file.action != "unchanged" for file in result.applied.files))
    if not result.applied.changed:
        return "nothing to do"
    return f"{changed} to write" if result.applied.dry_run else f"{changed} written"


def _summary(status: StatusResult | None) -> str:
    """The state of the patches asked about, in a few words."""
    if status is None:
        return "?"
    states = {name: status.patches[name] for name in status.wanted}
    held = {name: state for name, state in states.items() if state != "not applied"}
    names = "" if held in ({}, states) else f"{_and(list(held))} "
    return names + next(iter((held or states).values())).value


def _source_notes(result: ApplyResult | StatusResult | RevertResult) -> Iterator[str]:
    """What `modified` and `unknown` in the column SOURCE mean."""
    release = f"SGLang {result.install.release or result.install.version}"
    if differing := [file.path for file in result.files if file.pristine is False]:
        yield (
            f"Apart from the patches, {_and(differing)} {_differ(differing)} from the "
            f"wheel of {release}: somebody else's changes, which are kept."
        )
    if result.files and (result.install.editable or not result.install.dist_info):
        yield (
            f"Whether the sources are those of {release} is unknown: there is no wheel's "
            "RECORD with their hashes."
        )


def _edits(file: FileChange) -> str:
    if file.applied:
        return f"{file.applied} applied"
    return f"{file.present} present" if file.present else "none"


def _source(pristine: bool | None) -> str:
    return {True: "as released", False: "modified", None: "unknown"}[pristine]


def _apply(patches: Sequence[str]) -> str:
    """The command that applies these patches."""
    whole = set(registry.names()) <= set(patches)
    only = "" if whole else "".join(f" --only {name}" for name in patches)
    return f"agentcore-patch apply{only}"


def _and(names: Sequence[str]) -> str:
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _are(names: Sequence[str]) -> str:
    return f"{_and(names)} {'is' if len(names) == 1 else 'are'}"


def _differ(names: Sequence[str]) -> str:
    return "differs" if len(names) == 1 else "differ"


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


def _blocks(*blocks: str) -> str:
    return "\n\n".join(block for block in blocks if block)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns two spaces apart; nothing if there are no rows."""
    if not rows:
        return ""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  "
        + "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in (header, *rows)
    )


def _coloured(diff: str) -> str:
    return "\n".join(
        click.style(line, **_style(line))
        for line in diff.removesuffix("\n").split("\n")
    )


def _style(line: str) -> dict[str, Any]:
    if line.startswith(("--- ", "+++ ")):
        return {"bold": True}
    colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
    return {"fg": colour} if colour else {}
