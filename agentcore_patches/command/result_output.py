"""Output for people: tables, sentences and diffs. Nothing is printed here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

import click

from agentcore_patches._version import __version__, full_version
from agentcore_patches.errors import and_list
from agentcore_patches.installs.install import Install
from agentcore_patches.installs.versions import advise_on, is_older_than_supported
from agentcore_patches.patches import registry
from agentcore_patches.results import (
    ApplyResult,
    FileChange,
    PatchState,
    RevertResult,
    StatusResult,
)
from agentcore_patches.shell.text_output import NO_RUST_SERVER, TextOutput
from agentcore_patches.state.ownership import is_created
from agentcore_patches.state.snapshot import FileState

if TYPE_CHECKING:
    from agentcore_patches.cluster.results import NodeResult
    from agentcore_patches.command.documentation import Page
    from agentcore_patches.listing import EditInfo, EditList, PatchList

_STATES = {
    FileState.ORIGINAL: "not patched",
    FileState.PATCHED: "patched",
    FileState.EDITED: "edited since",
    FileState.REPLACED: "replaced since",
    FileState.MISSING: "missing",
}

_PAST = {"edit": "edited", "add": "added", "restore": "restored", "remove": "removed"}

_RESTART = "Restart its servers."
_DRY_RUN = "Dry run: nothing was written."

_UNRECORDED = (
    "The original files are unknown (the folder `.agentcore-patch` in the package, where "
    "they are saved, is gone), so `agentcore-patch revert` cannot remove the patches."
)


class ResultOutput(TextOutput):
    """Results of commands; tables have only the unusual rows, unless `verbose`."""

    def applied(self, result: ApplyResult) -> str:
        rows = [
            (
                file.path,
                _edits(file),
                _done(file.action, would=result.dry_run),
                _source(file.path, file.pristine),
            )
            for file in result.files
            if self.verbose
            or file.action == "restored"
            or file.present
            or file.pristine is False
        ]
        diffs = (_coloured(file.diff) for file in result.files if file.diff)
        table = self.table(("FILE", "EDITS", "ACTION", "SOURCE"), rows)
        return _blocks(*diffs, self._result(result, table, _applied(result)))

    def status(self, result: StatusResult) -> str:
        changed = result.state is PatchState.CHANGED
        files = [
            (file.path, _STATES[file.state], _source(file.path, file.pristine))
            for file in result.files
            if self.verbose
            or file.pristine is False
            or (changed and file.state is not FileState.PATCHED)
            or file.state not in (FileState.PATCHED, FileState.ORIGINAL)
        ]
        table = self.table(("FILE", "STATE", "SOURCE"), files)
        return self._result(result, table, _status(result))

    def reverted(self, result: RevertResult) -> str:
        rows = [
            (
                file.path,
                _done(
                    "removed" if is_created(file.path) else "restored",
                    would=result.dry_run,
                ),
                _source(file.path, file.pristine),
            )
            for file in result.files
            if self.verbose or file.pristine is False
        ]
        table = self.table(("FILE", "ACTION", "SOURCE"), rows)
        return self._result(result, table, _reverted(result))

    def patches(self, result: PatchList) -> str:
        first, last = result.sglang_versions[0], result.sglang_versions[-1]
        install = result.install
        place = f" in {install.package}" if install else ""
        version = install.version if install else last
        rows = [
            (
                patch.name,
                patch.state.value if patch.state else "?",
                str(sum(not is_created(file) for file in patch.files)),
                str(sum(map(is_created, patch.files))),
                patch.summary,
            )
            for patch in result.patches
        ]
        return _blocks(
            self.wrapped(f"The core and the extras for SGLang {version}{place}:"),
            self.table(("NAME", "STATE", "EDITS", "ADDS", "GIVES"), rows),
            self.wrapped(result.reason or ""),
            self.wrapped(
                f"EDITS and ADDS count files. Supported are SGLang {first} to {last} "
                f"({len(result.sglang_versions)} releases)."
            ),
        )

    def topics(self, pages: Sequence[Page]) -> str:
        """A row for each page of the documentation."""
        rows = [(page.topic, page.title) for page in pages]
        usage = "`agentcore-patch docs tutorial` shows the first of them to read."
        return _blocks(self.table(("TOPIC", "TITLE"), rows), self.wrapped(usage))

    def edits(self, result: EditList) -> str:
        return _blocks(
            *(
                "\n".join(_place(list(edits)))
                for _, edits in groupby(result.edits, lambda edit: edit.name)
            )
        )

    def on_ray(self, results: Sequence[NodeResult], *, applied: bool) -> str:
        """A row for each node; with what `apply` did, if it was `applied`."""
        rows = [
            (
                *_node(result),
                *((_summary(result.before), _applied_on(result)) if applied else ()),
                _summary(result.status),
                *_where(result),
            )
            for result in results
        ]
        more = ("BEFORE", "APPLY") if applied else ()
        header = ("NODE", "HOST", "ID", *more, "NOW", "SGLANG", "PYTHON")
        notes = _applied_on_ray if applied else _status_on_ray
        return _blocks(
            self.table(header, rows),
            self.node_errors(results),
            self.paragraph(*_on_nodes(results), *notes(results)),
        )

    def node_errors(self, results: Sequence[NodeResult]) -> str:
        return "\n".join(
            self.wrapped(f"{' '.join(_node(result))}: {result.error}")
            for result in results
            if result.error
        )

    def _result(
        self,
        result: ApplyResult | StatusResult | RevertResult,
        table: str,
        sentences: Iterator[str],
    ) -> str:
        """A table of files, and sentences; with -v, how the SGLang was found."""
        install = result.install
        found = f"SGLang {install.version} in {install.package} ({install.found})"
        return _blocks(
            self.wrapped(found) if self.verbose else "",
            table,
            self.paragraph(*sentences),
            self.paragraph(*_source_notes(result)),
        )


def _place(edits: Sequence[EditInfo]) -> Iterator[str]:
    """Yield a hook's name and reason, and a line for each range of releases."""
    first = edits[0]
    known = [f"SGLang: {first.upstream}"] if first.upstream else []
    if first.ends:
        known.append(f"ends in {first.ends}")
    about = f" ({'; '.join(known)})" if known else ""
    yield f"{first.name}: {first.why}{about}"
    for edit in edits:
        releases = f"{edit.since} to {edit.until}"
        if edit.since == edit.until:
            releases = edit.since
        where = f"{edit.file} {edit.scope}: {edit.change}"
        yield f"    {releases}  {where if edit.file else f'nothing: {edit.change}'}"


def _done(action: str, *, would: bool) -> str:
    return f"would be {action}" if would and action != "unchanged" else action


def _applied(result: ApplyResult) -> Iterator[str]:
    if not result.recorded:
        yield (
            f"Nothing to do: {_are(result.patches)} already in these sources. "
            f"{_UNRECORDED}"
        )
        return
    if not result.changed:
        yield f"Nothing to do: {_are(result.patches)} already in place."
        return
    if result.pending:
        yield (
            f"Found {result.pending}, which `agentcore-patch apply` finishes or undoes "
            "first; nothing more is known."
        )
        yield _DRY_RUN
        return
    would = result.dry_run
    made = Counter(
        "add"
        if is_created(file.path) and file.action != "restored"
        else "remove"
        if is_created(file.path)
        else "restore"
        if file.action == "restored"
        else "edit"
        for file in result.files
    )
    found = [_named(result.patches), *_counted(made, would=would)]
    if result.sglang_change:
        again = "would be patched again" if would else "patched again"
        yield f"{result.sglang_change} since the last apply; {again}."
    yield (
        f"{'Would patch' if would else 'Patched'} SGLang {result.install.version} in "
        f"{result.install.package}: {', '.join(found)}."
    )
    if result.patched_as:
        yield (
            f"This SGLang is not supported; the edits of {result.patched_as} fit it. Run "
            "`agentcore-patch verify --model scripted`, which shows whether they are "
            "right."
        )
    if removed := result.removed:
        was = "would be" if would else "was" if len(removed) == 1 else "were"
        yield f"{and_list(removed)} {was} removed."
    if would:
        yield _DRY_RUN
    else:
        yield f"{_RESTART} To undo: `agentcore-patch revert`."


def _status(result: StatusResult) -> Iterator[str]:
    install, state = result.install, result.state
    can_apply = bool(install.release) or not is_older_than_supported(install.version)

    if result.pending is not None:
        yield (
            f"Found {result.pending}: another command is at work, or was killed. The "
            "next `agentcore-patch apply` or `agentcore-patch revert` finishes or undoes "
            "it."
        )
    if result.sglang_change is not None:
        yield f"{result.sglang_change} since the last apply."
    if result.rust_server:
        yield f"{NO_RUST_SERVER} Unset it before you start a server."
    yield f"SGLang {result.install.version} in {result.install.package}:"
    are = _are(result.patches) if result.patches else ""
    if state is PatchState.IN_PLACE:
        yield (
            f"{are} in place ({_patched_files(result)}), applied by agentcore-patch "
            f"{result.applied_by}."
            if result.recorded
            else f"{are} in these sources. {_UNRECORDED}"
        )
    elif not result.recorded:
        yield f"These sources contain parts of patches. {_UNRECORDED}"
    elif state is PatchState.OUTDATED:
        build = "another build of " if result.applied_by == full_version() else ""
        yield f"{are} outdated: applied by {build}agentcore-patch {result.applied_by}."
        if can_apply:
            yield f"`{_apply(install)}` replaces this with {full_version()}."
    elif state is PatchState.CHANGED:
        yield f"{are} incomplete."
        yield from _changed(result)
    elif state is PatchState.ABSENT:
        yield "not patched."
        if install.release is not None:
            yield f"To patch it: `{_apply(install)}`."
    yield from _unlisted(result)


def _unlisted(result: StatusResult) -> Iterator[str]:
    """Say what can be done with an unsupported SGLang."""
    install = result.install
    if install.release is not None:
        return
    if result.recorded and result.state is PatchState.IN_PLACE:
        yield (
            f"agentcore-patch {__version__} does not support SGLang {install.version}, "
            "which was patched with --unlisted: `agentcore-patch verify --model "
            "scripted` shows whether its patches are right."
        )
        return
    yield f"SGLang {install.version} is not supported."
    if result.state is not PatchState.ABSENT:
        yield "`agentcore-patch revert` removes the patches."
    yield advise_on(install.version)


def _patched_files(result: StatusResult) -> str:
    """Count the files that are edited and added."""
    patched = [file for file in result.files if file.state is FileState.PATCHED]
    made = Counter("add" if is_created(file.path) else "edit" for file in patched)
    return ", ".join(_counted(made, would=False))


def _counted(made: Mapping[str, int], *, would: bool) -> Iterator[str]:
    """Count files by their change; only the first count says `files`."""
    noun = True
    for verb, past in _PAST.items():
        if count := made.get(verb, 0):
            files = _files(count) if noun else str(count)
            yield f"{files} {f'to {verb}' if would else past}"
            noun = False


def _changed(result: StatusResult) -> Iterator[str]:
    """List the files that changed since they were patched, with the remedy."""
    paths: dict[FileState, list[str]] = {state: [] for state in FileState}
    for file in result.files:
        paths[file.state].append(file.path)
    if edited := paths[FileState.EDITED]:
        yield (
            f"Edited since: {and_list(edited)}. Undo that change, or discard it with "
            "`agentcore-patch revert --force`."
        )
    if replaced := paths[FileState.REPLACED]:
        yield (
            f"Replaced since, perhaps by a reinstall of SGLang: {and_list(replaced)}. To "
            f"patch again: `{_apply(result.install)}`."
        )
    if missing := paths[FileState.MISSING]:
        yield (
            f"Missing: {and_list(missing)}. Restore the files with `agentcore-patch revert "
            "--force`, or reinstall SGLang."
        )


def _reverted(result: RevertResult) -> Iterator[str]:
    if result.sglang_change:
        yield (
            f"{result.sglang_change} since the last apply; the new files were left as they "
            "are."
        )
    if not result.changed:
        yield "Nothing to revert: SGLang's files are the originals."
        return
    would = result.dry_run
    changed = [file for file in result.files if not is_created(file.path)]
    yield (
        f"{'Would restore' if would else 'Restored'} SGLang {result.install.version}: "
        f"{_files(len(changed))}. {'Would remove' if would else 'Removed'} "
        f"{_named(result.patches)}."
    )
    yield _DRY_RUN if would else _RESTART


def _applied_on_ray(results: Sequence[NodeResult]) -> Iterator[str]:
    if any(result.applied and result.applied.dry_run for result in results):
        yield _DRY_RUN
    elif any(result.changed for result in results):
        yield _RESTART


def _status_on_ray(results: Sequence[NodeResult]) -> Iterator[str]:
    from agentcore_patches.cluster.results import are_alike

    if any(not result.complete and not result.error for result in results):
        yield "To apply what is missing: `agentcore-patch apply`."
    if not are_alike(results):
        yield (
            "The nodes have different extras, but the ranks of a server must have the "
            "same: apply with --with or --without."
        )


def _on_nodes(results: Sequence[NodeResult]) -> Iterator[str]:
    """Count the nodes with the patches in place, and those that failed."""
    if any(result.status for result in results):
        complete = sum(result.complete for result in results)
        yield f"The patches are in place on {_of_nodes(complete, results)}."
    if failed := sum(result.error is not None for result in results):
        yield f"{_of_nodes(failed, results)} failed."


def _of_nodes(count: int, results: Sequence[NodeResult]) -> str:
    nodes = "1 node" if len(results) == 1 else f"{len(results)} nodes"
    if count == len(results):
        return nodes if count == 1 else f"all {nodes}"
    return f"{count or 'none'} of {nodes}"


def _node(result: NodeResult) -> tuple[str, str, str]:
    return result.node.address, result.node.hostname, result.node.node_id[:8]


def _where(result: NodeResult) -> tuple[str, str]:
    """Return the SGLang of a node, and the Python of Ray's worker there."""
    status = result.status or result.before
    where = f"{status.install.version} in {status.install.package}" if status else "?"
    return where, result.python or "?"


def _applied_on(result: NodeResult) -> str:
    if result.error or not result.applied:
        return "failed"
    changed = _files(sum(file.action != "unchanged" for file in result.applied.files))
    if not result.applied.changed:
        return "nothing to do"
    return f"{changed} to write" if result.applied.dry_run else f"{changed} written"


def _summary(status: StatusResult | None) -> str:
    """Return the patches and their state, in a few words."""
    if status is None:
        return "?"
    return f"{' + '.join(status.patches)} {status.state.value}".strip()


def _source_notes(result: ApplyResult | StatusResult | RevertResult) -> Iterator[str]:
    """Explain `modified` and `unknown` in the column SOURCE."""
    release = f"SGLang {result.install.release or result.install.version}"
    if differing := [file.path for file in result.files if file.pristine is False]:
        differ = "differs" if len(differing) == 1 else "differ"
        yield (
            f"Apart from the patches, {and_list(differing)} {differ} from the wheel of "
            f"{release}. These changes are kept."
        )
    if result.files and (result.install.editable or not result.install.dist_info):
        yield (
            f"Whether the sources are those of {release} is unknown: there is no wheel's "
            "RECORD with their hashes."
        )


def _edits(file: FileChange) -> str:
    """Count the edits that a file gets, and the ones that it already had."""
    count = str(file.applied + file.present)
    return f"{count}, {file.present} there before" if file.present else count


def _source(path: str, pristine: bool | None) -> str:
    if is_created(path):
        return "added"
    return {True: "as released", False: "modified", None: "unknown"}[pristine]


def _apply(install: Install) -> str:
    """Return the command that patches an install."""
    unlisted = " --unlisted" if install.release is None else ""
    return f"agentcore-patch apply{unlisted}"


def _named(patches: Sequence[str]) -> str:
    """Return the names of the core and of extras as words."""
    return and_list(
        [f"the {name}" if name == registry.CORE else name for name in patches]
    )


def _are(patches: Sequence[str]) -> str:
    return f"{_named(patches)} {'is' if len(patches) == 1 else 'are'}"


def _files(count: int) -> str:
    return f"{count} file" if count == 1 else f"{count} files"


def _blocks(*blocks: str) -> str:
    return "\n\n".join(block for block in blocks if block)


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
