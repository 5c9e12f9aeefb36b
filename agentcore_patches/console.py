"""What people and scripts are shown: results in, text out. Nothing is printed here.

The JSON documents, each one object:

    apply   {"sglang": SGLANG, "patches": [NAME], "removed": [NAME], "changed": bool,
             "dry_run": bool, "recorded": bool, "recovered": str?,
             "files": [{"path": str, "applied": int, "present": int, "action":
             "patched" | "restored" | "unchanged", "pristine": bool?, "diff": str}],
             "edits": [{"patch": NAME, "file": str, "scope": str, "description": str,
             "outcome": "applied" | "present"}]}
    status  {"sglang": SGLANG, "patches": {NAME: "in place" | "outdated" | "changed" |
             "not applied"}, "wanted": [NAME], "complete": bool, "applied_by": str?,
             "recorded": bool, "files": [FILE], "pending": str?, "recovered": str?}
    revert  {"sglang": SGLANG, "patches": [NAME], "files": [FILE], "changed": bool,
             "recovered": str?}
    list    {"sglang_versions": [str], "patches": [{"name": NAME, "summary": str,
             "files": [str]}]}
    apply --ray, status --ray
            {"complete": bool, "changed": bool, "nodes": [NODE]}
    error   {"error": {"kind": "usage" | "unsupported-target" | "source-conflict" |
             "access" | "server" | "interrupted" | "bug", "exit_code": int,
             "message": str}}

    SGLANG  {"path": str, "version": str, "release": str, "found": str,
             "editable": bool}
    FILE    {"path": str, "state": "original" | "patched" | "edited" | "replaced" |
             "missing", "pristine": bool?}
    NODE    {"node_id": str, "address": str, "hostname": str, "before": STATUS?,
             "applied": APPLY?, "status": STATUS?, "error": str?}

STATUS and APPLY are the documents of `status` and `apply` on that node: `before` is from
before the apply, `status` from the end. `?` may be null. Keys are only ever added. The
attributes of the results of `api` and `cluster` have the same names and say what each
means.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

import click

from agentcore_patches._version import __version__
from agentcore_patches.install import Install
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
from agentcore_patches.transaction import FileState

if TYPE_CHECKING:
    from agentcore_patches.results import NodeResult

_STATES = {
    FileState.ORIGINAL: "not patched",
    FileState.PATCHED: "patched",
    FileState.EDITED: "edited since",
    FileState.REPLACED: "replaced since",
    FileState.MISSING: "missing",
}

_PLANNED = {"patched": "to patch", "restored": "to restore", "unchanged": "unchanged"}

# Stands for a space where no line may be broken: inside a command.
_GLUE = "\0"

_RESTART = "A server that is already running keeps the old code until it is restarted."

_UNRECORDED = (
    "Nothing tells what was there before them (our folder `.agentcore-patch` in the "
    "package is gone), so `agentcore-patch revert` cannot take them out."
)


@dataclass(frozen=True)
class Failure:
    """Why a command ends early; `kind` is for scripts, `message` for people."""

    kind: str
    exit_code: int
    message: str


class Format(Protocol):
    """One way to show what a command found and did."""

    def applied(self, result: ApplyResult) -> str: ...
    def status(self, result: StatusResult) -> str: ...
    def reverted(self, result: RevertResult) -> str: ...
    def patches(self, patches: Sequence[PatchInfo]) -> str: ...
    def applied_on_ray(self, results: Sequence[NodeResult]) -> str: ...
    def status_on_ray(self, results: Sequence[NodeResult]) -> str: ...
    def failure(self, failure: Failure) -> str: ...


class Json:
    """One document for scripts, as the module's docstring has it."""

    def applied(self, result: ApplyResult) -> str:
        return self._dump(_document(result))

    def status(self, result: StatusResult) -> str:
        return self._dump(_document(result))

    def reverted(self, result: RevertResult) -> str:
        return self._dump(_document(result))

    def patches(self, patches: Sequence[PatchInfo]) -> str:
        listed = [asdict(patch) for patch in patches]
        return self._dump({"sglang_versions": SUPPORTED_VERSIONS, "patches": listed})

    def applied_on_ray(self, results: Sequence[NodeResult]) -> str:
        return self._nodes(results)

    def status_on_ray(self, results: Sequence[NodeResult]) -> str:
        return self._nodes(results)

    def failure(self, failure: Failure) -> str:
        return self._dump({"error": asdict(failure)})

    def _nodes(self, results: Sequence[NodeResult]) -> str:
        nodes = [
            {
                **asdict(result.node),
                "before": result.before and _document(result.before),
                "applied": result.applied and _document(result.applied),
                "status": result.status and _document(result.status),
                "error": result.error,
            }
            for result in results
        ]
        complete = all(result.complete for result in results)
        changed = any(result.changed for result in results)
        return self._dump({"complete": complete, "changed": changed, "nodes": nodes})

    def _dump(self, document: dict[str, Any]) -> str:
        return json.dumps(document, indent=2)


def _document(result: ApplyResult | StatusResult | RevertResult) -> dict[str, Any]:
    rest = asdict(result)
    install = rest.pop("install")
    sglang = {
        "path": str(install["package"]),
        "version": install["version"],
        "release": install["release"],
        "found": install["found"],
        "editable": install["editable"],
    }
    more = {"complete": result.complete} if isinstance(result, StatusResult) else {}
    return {"sglang": sglang, **rest, **more}


class Text:
    """Tables and sentences for people; `width` None: lines are not wrapped."""

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
            (file.path, "restored", _source(file.pristine)) for file in result.files
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
                _done(result),
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
        whole = re.sub("`[^`]*`", lambda command: command[0].replace(" ", _GLUE), text)
        return textwrap.fill(
            whole,
            max(self._width, 20),
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        ).replace(_GLUE, " ")


def _applied(result: ApplyResult) -> Iterator[str]:
    hold = _are(result.patches)
    patched = sum(file.action == "patched" for file in result.files)
    restored = sum(file.action == "restored" for file in result.files)
    if not result.recorded:
        yield f"Nothing to do: {hold} in these sources already. {_UNRECORDED}"
    elif not result.changed:
        yield f"Nothing to do: {hold} in place."
    elif result.dry_run:
        also = f", {_files(restored)} restored" if restored else ""
        yield f"Dry run, nothing was written: {_files(patched)} would be patched{also}."
        if result.removed:
            yield f"{_and(result.removed)} would be taken out, not being asked for."
    else:
        also = f", restored {_files(restored)}" if restored else ""
        yield f"Patched {_files(patched)}{also}: {hold} in place now."
        if result.removed:
            yield f"{_are(result.removed)} out, not being asked for."
        yield _RESTART
        yield "`agentcore-patch revert` gives the originals back."


def _status(result: StatusResult) -> Iterator[str]:
    names: dict[PatchState, list[str]] = {state: [] for state in PatchState}
    for name in result.wanted:
        names[result.patches[name]].append(name)

    if result.pending is not None:
        yield (
            f"Found {result.pending}. Run `agentcore-patch status` again as a user who "
            "may write there, when no other command is at work."
        )
    if in_place := names[PatchState.IN_PLACE]:
        yield (
            f"{_are(in_place)} in place, applied by agentcore-patch {result.applied_by}."
            if result.recorded
            else f"{_are(in_place)} in these sources. {_UNRECORDED}"
        )
    elif not result.recorded:
        yield f"There are parts of patches in these sources. {_UNRECORDED}"
    if outdated := names[PatchState.OUTDATED]:
        another = "another build of " * (result.applied_by == __version__)
        yield (
            f"{_are(outdated)} as {another}agentcore-patch {result.applied_by} wrote "
            f"them; `agentcore-patch apply` brings those of {__version__}."
        )
    if changed := names[PatchState.CHANGED]:
        yield f"{_are(changed)} not whole any more."
        yield from _changed(result.files)
    if absent := names[PatchState.ABSENT]:
        held = [
            name
            for name, state in result.patches.items()
            if state is not PatchState.ABSENT and name in registry.names()
        ]
        yield f"{_are(absent)} not applied; `{_apply([*held, *absent])}` does that."


def _changed(files: Sequence[FileStatus]) -> Iterator[str]:
    """Who changed what since it was patched, and what to do."""
    paths: dict[FileState, list[str]] = {state: [] for state in FileState}
    for file in files:
        paths[file.state].append(file.path)
    if edited := paths[FileState.EDITED]:
        yield (
            f"Somebody edited {_and(edited)} since: undo that, or drop it with "
            "`agentcore-patch revert --force`."
        )
    if replaced := paths[FileState.REPLACED]:
        yield (
            f"Somebody replaced {_and(replaced)} since (a reinstall?): "
            "`agentcore-patch apply` patches again."
        )
    if missing := paths[FileState.MISSING]:
        yield f"Missing: {_and(missing)}; reinstall SGLang."


def _reverted(result: RevertResult) -> Iterator[str]:
    if result.changed:
        yield f"Restored {_files(len(result.files))}: {_are(result.patches)} out."
        yield _RESTART
    elif result.patches:
        yield f"Nothing to restore: {_are(result.patches)} out already."
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
        yield "`agentcore-patch apply --ray` brings what is missing."


def _on_nodes(results: Sequence[NodeResult]) -> Iterator[str]:
    """On how many nodes the patches are in place, and how many failed."""
    seen = [result.status for result in results if result.status]
    if seen:
        complete = sum(result.complete for result in results)
        yield f"{_are(seen[0].wanted)} in place on {_of(complete, results)}."
    if failed := sum(result.error is not None for result in results):
        yield f"{_of(failed, results)} failed."


def _of(count: int, results: Sequence[NodeResult]) -> str:
    nodes = "1 node" if len(results) == 1 else f"{len(results)} nodes"
    if count == len(results):
        return nodes if count == 1 else f"all {nodes}"
    return f"{count or 'none'} of {nodes}"


def _node(result: NodeResult) -> tuple[str, str, str]:
    return result.node.address, result.node.hostname, result.node.node_id[:8]


def _where(result: NodeResult) -> str:
    status = result.status or result.before
    return f"{status.install.version} in {status.install.package}" if status else "?"


def _done(result: NodeResult) -> str:
    if result.error or not result.applied:
        return "failed"
    changed = _files(sum(file.action != "unchanged" for file in result.applied.files))
    if not result.applied.changed:
        return "nothing to do"
    return f"{changed} to write" if result.applied.dry_run else f"{changed} written"


def _summary(status: StatusResult | None) -> str:
    """The state of the patches asked about in a few words."""
    if status is None:
        return "?"
    states = {name: status.patches[name] for name in status.wanted}
    held = {name: state for name, state in states.items() if state != "not applied"}
    names = "" if held in ({}, states) else f"{_and(list(held))} "
    return names + next(iter((held or states).values())).value


def _source_notes(result: ApplyResult | StatusResult | RevertResult) -> Iterator[str]:
    """What the column SOURCE means, where it says anything but the usual."""
    release = f"SGLang {result.install.release}"
    if differing := [file.path for file in result.files if file.pristine is False]:
        yield (
            f"Apart from the patches, {_and(differing)} {_differ(differing)} from the "
            f"wheel of {release}: somebody else's changes, which are kept."
        )
    if result.files and (result.install.editable or not result.install.dist_info):
        yield (
            f"Whether the sources are those of {release} is unknown: no wheel's RECORD "
            "covers them."
        )


def _edits(file: FileChange) -> str:
    if file.applied:
        return f"{file.applied} applied"
    return f"{file.present} present" if file.present else "none"


def _source(pristine: bool | None) -> str:
    return {True: "as released", False: "modified", None: "unknown"}[pristine]


def _apply(patches: Sequence[str]) -> str:
    """The command that brings these patches."""
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
