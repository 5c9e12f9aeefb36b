"""The changes that `apply` makes to one install, and their result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentcore_patches.disk.filesystem import digest
from agentcore_patches.installs.install import pristine, read_texts
from agentcore_patches.patches import registry
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.planning.diffs import unified_diff
from agentcore_patches.planning.fitting import fitting_release
from agentcore_patches.planning.plan import Plan, make_plan
from agentcore_patches.planning.selection import Selection
from agentcore_patches.results import ApplyResult, EditOutcome, FileChange
from agentcore_patches.state.originals import Originals
from agentcore_patches.state.snapshot import FileState


@dataclass(frozen=True)
class PlannedApply:
    """The changes that `apply` makes to an install.

    Attributes:
        originals: the files before any patch.
        selection: the patches, with the edits of one release.
        texts: original texts of the files that are changed or restored, by path.
        before: present texts, by path.
        plan: the new texts.
    """

    originals: Originals
    selection: Selection
    texts: Mapping[str, bytes]
    before: Mapping[str, bytes]
    plan: Plan

    def dry_run(self, *, diff: bool) -> ApplyResult:
        """Return the result of an `apply` that writes nothing.

        Raises:
            SourceConflict: it could not be done.
        """
        self.originals.for_commit(self.plan.files)
        changed = [
            path
            for path in self._paths
            if self.before.get(path) != self._after.get(path)
        ]
        return self.result(changed, diff=diff, dry_run=True)

    def result(
        self,
        changed: Sequence[str],
        *,
        diff: bool,
        dry_run: bool = False,
        recovered: str | None = None,
    ) -> ApplyResult:
        """Return the result of an `apply` that changed these files."""
        install, snapshot = self.originals.install, self.originals.snapshot
        before = snapshot.record.patches if snapshot.record else ()
        removed = {*before} - {*self.selection.patches}
        return ApplyResult(
            install=install,
            patches=self.selection.patches,
            removed=tuple(name for name in registry.extras() if name in removed),
            files=self._files(changed, diff),
            edits=tuple(self._outcomes()),
            changed=bool(changed),
            dry_run=dry_run,
            recorded=bool(self.plan.files),
            recovered=recovered,
            sglang_change=snapshot.sglang_change,
            patched_as=None if install.release else self.selection.release,
        )

    def _outcomes(self) -> Iterator[EditOutcome]:
        for edit, made in self.plan.changed.items():
            yield EditOutcome(
                patch=self.selection.edits[edit],
                name=edit.name,
                file=edit.file,
                scope=getattr(edit, "scope", ""),
                description=edit.describe(),
                outcome="applied" if made else "present",
            )

    @property
    def _after(self) -> Mapping[str, bytes]:
        return {**self.texts, **self.plan.files}

    @property
    def _paths(self) -> list[str]:
        """Paths of the files that exist before or after, in writing order."""
        after = self._after
        paths = dict.fromkeys(
            [*self.selection.files, *_patched(self.originals), *self.plan.files]
        )
        return [path for path in paths if path in self.before or path in after]

    def _files(self, changed: Sequence[str], diff: bool) -> tuple[FileChange, ...]:
        hashes = {path: digest(text) for path, text in self.texts.items()}
        wheel = pristine(self.originals.install, hashes)
        counts = Counter((edit.file, made) for edit, made in self.plan.changed.items())
        after = self._after
        return tuple(
            FileChange(
                path=path,
                applied=counts[path, True],
                present=counts[path, False],
                action="unchanged"
                if path not in changed
                else "patched"
                if path in self.plan.files
                else "restored",
                pristine=None if counts[path, False] else wheel.get(path),
                diff=unified_diff(path, self.before.get(path), after.get(path))
                if diff
                else "",
            )
            for path in self._paths
        )


def plan_apply(patches: tuple[str, ...], originals: Originals) -> PlannedApply:
    """Plan the patches of an install.

    Raises:
        SourceConflict: the patches do not fit its sources.
    """
    install = originals.install

    def read(path: str) -> bytes | None:
        return read_texts(install, [path]).get(path)

    if install.release:
        selection = Selection(patches, install.release)
    else:
        # The patches change a post-release as its release.
        releases = [name for name in SUPPORTED_VERSIONS if ".post" not in name]
        selection = fitting_release(
            patches, releases, originals.texts, read, version=install.version
        )
    paths = [*selection.files, *_patched(originals)]
    texts = originals.texts(dict.fromkeys(paths))
    plan = make_plan(texts, selection, read)
    before = {
        path: seen.text
        for path in dict.fromkeys([*paths, *plan.files])
        if (seen := originals.seen(path))
    }
    return PlannedApply(originals, selection, texts, before, plan)


def _patched(originals: Originals) -> list[str]:
    """Paths of the files that are now patched."""
    files = originals.snapshot.files
    return [path for path, state in files.items() if state is FileState.PATCHED]
