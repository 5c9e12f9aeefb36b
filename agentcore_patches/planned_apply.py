"""What `apply` has to change in an install, by planning its patches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from agentcore_patches.install import Install, pristine_texts, read_texts
from agentcore_patches.patches import registry
from agentcore_patches.plan import make_plan
from agentcore_patches.results import ApplyResult, FileChange
from agentcore_patches.state.snapshot import FileState, Snapshot


class PlannedApply:
    """What `apply` has to change in an install, and the result that tells of it."""

    def __init__(
        self,
        install: Install,
        release: str,
        patches: tuple[str, ...],
        snapshot: Snapshot,
        sources: Callable[[Iterable[str]], dict[str, bytes]],
    ) -> None:
        ours = [p for p, state in snapshot.files.items() if state is FileState.PATCHED]
        files = registry.files(patches, release)
        record = None if snapshot.superseded else snapshot.record
        before = record.patches if record else ()
        self.install = install
        self.patched_as = None if install.release else release
        self.sglang_change = snapshot.sglang_change
        self.removed = tuple(name for name in before if name not in patches)
        self.originals = sources(dict.fromkeys([*files, *ours]))
        self.plan = make_plan(
            self.originals,
            patches,
            release,
            read=lambda path: read_texts(install, [path]).get(path),
        )
        paths = tuple(dict.fromkeys([*files, *ours, *self.plan.files]))
        self.before = read_texts(install, paths)
        self.after = {**self.originals, **self.plan.files}
        self.all_paths = tuple(
            path for path in paths if path in self.before or path in self.after
        )

    @property
    def paths(self) -> tuple[str, ...]:
        """Files whose present text differs from the planned one."""
        return tuple(
            path
            for path in self.all_paths
            if self.before.get(path) != self.after.get(path)
        )

    def result(
        self,
        changed: Sequence[str],
        *,
        diff: bool,
        dry_run: bool,
        recovered: str | None,
    ) -> ApplyResult:
        return ApplyResult(
            install=self.install,
            patches=self.plan.patches,
            removed=self.removed,
            files=self._files(changed, diff),
            edits=self.plan.outcomes,
            changed=bool(changed),
            dry_run=dry_run,
            recorded=bool(self.plan.files),
            recovered=recovered,
            pending=None,
            sglang_change=self.sglang_change,
            patched_as=self.patched_as,
        )

    def _files(self, changed: Sequence[str], diff: bool) -> tuple[FileChange, ...]:
        wheel = pristine_texts(self.install, self.originals)
        # An edit that several patches share is made once.
        edits = {
            (e.file, e.scope, e.description, e.outcome) for e in self.plan.outcomes
        }
        counts = Counter((file, outcome) for file, _, _, outcome in edits)
        return tuple(
            FileChange(
                path=path,
                applied=counts[path, "applied"],
                present=counts[path, "present"],
                action="unchanged"
                if path not in changed
                else "patched"
                if path in self.plan.files
                else "restored",
                pristine=None if counts[path, "present"] else wheel.get(path),
                diff=self._diff(path) if diff else "",
            )
            for path in self.all_paths
        )

    def _diff(self, path: str) -> str:
        from agentcore_patches.diff import unified_diff

        return unified_diff(path, self.before.get(path), self.after.get(path))
