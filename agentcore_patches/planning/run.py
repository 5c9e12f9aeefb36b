"""The changes that `apply` makes to one install, and their result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from agentcore_patches.disk.filesystem import digest
from agentcore_patches.installs.install import pristine, read_texts
from agentcore_patches.installs.versions import nearest
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
        paths: the files that are changed or restored, in writing order.
        texts: original texts of these files, by path; some do not exist.
        plan: the new texts.
    """

    originals: Originals
    selection: Selection
    paths: Sequence[str]
    texts: Mapping[str, bytes]
    plan: Plan

    def dry_run(self, *, diff: bool) -> ApplyResult:
        """Return the result of an `apply` that writes nothing.

        Raises:
            SourceConflict: it could not be done.
        """
        self.originals.for_commit(self.plan.files)
        changed = [p for p in self.paths if self._before(p) != self._after(p)]
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

    def _before(self, path: str) -> bytes | None:
        seen = self.originals.seen(path)
        return seen.text if seen else None

    def _after(self, path: str) -> bytes | None:
        return self.plan.files.get(path, self.texts.get(path))

    def _files(self, changed: Sequence[str], diff: bool) -> tuple[FileChange, ...]:
        hashes = {path: digest(text) for path, text in self.texts.items()}
        wheel = pristine(self.originals.install, hashes)
        counts = Counter((edit.file, made) for edit, made in self.plan.changed.items())
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
                diff=unified_diff(path, self._before(path), self._after(path))
                if diff
                else "",
            )
            for path in self.paths
            if (self._before(path), self._after(path)) != (None, None)
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
            patches,
            releases,
            originals.texts,
            read,
            version=install.version,
            closest=nearest(install.version, releases),
        )
    now = originals.snapshot.files
    patched = [path for path, state in now.items() if state is FileState.PATCHED]
    paths = list(dict.fromkeys([*selection.files, *patched]))
    texts = originals.texts(paths)
    plan = make_plan(texts, selection, read)
    return PlannedApply(originals, selection, paths, texts, plan)
