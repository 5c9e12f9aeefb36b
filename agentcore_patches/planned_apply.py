"""The changes `apply` will make to one installation."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from agentcore_patches.errors import SourceConflict
from agentcore_patches.files import digest
from agentcore_patches.install import pristine, read_texts
from agentcore_patches.patches import registry
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS
from agentcore_patches.plan import Plan, make_plan
from agentcore_patches.results import ApplyResult, FileChange
from agentcore_patches.state.originals import Originals
from agentcore_patches.state.snapshot import FileState


class PlannedApply:
    """The changes `apply` will make to one installation, and their result.

    Raises:
        SourceConflict: the patches do not fit its sources.
    """

    def __init__(self, patches: tuple[str, ...], originals: Originals) -> None:
        self.install = originals.install
        self.snapshot = originals.snapshot
        self.originals = originals
        self.patches = patches
        release = self.install.release or self._fitting_release()
        ours = [
            path
            for path, state in self.snapshot.files.items()
            if state is FileState.PATCHED
        ]
        files = registry.files(patches, release)
        self.patched_as = None if self.install.release else release
        self.texts = originals.texts(dict.fromkeys([*files, *ours]))
        self.plan = make_plan(self.texts, patches, release, read=self._read)
        paths = tuple(dict.fromkeys([*files, *ours, *self.plan.files]))
        self.before = {
            path: seen.text for path in paths if (seen := originals.seen(path))
        }
        self.after = {**self.texts, **self.plan.files}
        self.paths = [p for p in paths if p in self.before or p in self.after]

    def dry_run(self, *, diff: bool) -> ApplyResult:
        """Return the result of a dry run.

        Raises:
            SourceConflict: it could not be.
        """
        self.originals.for_commit(self.plan.files)
        changed = [
            path for path in self.paths if self.before.get(path) != self.after.get(path)
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
        """Return the result for the files that were changed."""
        record = None if self.snapshot.superseded else self.snapshot.record
        before = record.patches if record else ()
        return ApplyResult(
            install=self.install,
            patches=self.patches,
            removed=tuple(name for name in before if name not in self.patches),
            files=self._files(changed, diff),
            edits=self.plan.outcomes,
            changed=bool(changed),
            dry_run=dry_run,
            recorded=bool(self.plan.files),
            recovered=recovered,
            sglang_change=self.snapshot.sglang_change,
            patched_as=self.patched_as,
        )

    def _files(self, changed: Sequence[str], diff: bool) -> tuple[FileChange, ...]:
        hashes = {path: digest(text) for path, text in self.texts.items()}
        wheel = pristine(self.install, hashes)
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
                diff=unified_diff(path, self.before.get(path), self.after.get(path))
                if diff
                else "",
            )
            for path in self.paths
        )

    def _read(self, path: str) -> bytes | None:
        return read_texts(self.install, [path]).get(path)

    def _fitting_release(self) -> str:
        """The release whose edits fit an SGLang that is not listed."""
        # The patches change a post-release as its release.
        releases = [name for name in SUPPORTED_VERSIONS if ".post" not in name]
        return fitting_release(self.patches, releases, self.originals.texts, self._read)


def fitting_release(
    patches: Sequence[str],
    releases: Sequence[str],
    sources: Callable[[Iterable[str]], Mapping[str, bytes]],
    read: Callable[[str], bytes | None],
) -> str:
    """The newest of the releases whose edits fit; all that fit make the same files of it.

    The edits of a release are tried together, since only these ever stood together.

    Args:
        sources: gives the original texts of files; those that are absent are left out.
        read: gives the text of any file of the install; None if there is none.

    Raises:
        SourceConflict: none fits, or two that make different files of it.
    """
    plans: dict[str, Plan] = {}
    reason = ""
    for release in reversed(releases):
        try:
            texts = sources(registry.files(patches, release))
            plans[release] = make_plan(texts, patches, release, read)
        except SourceConflict as refusal:
            reason = reason or str(refusal).partition(". Nothing was written")[0]
    if not plans:
        raise SourceConflict(
            "No listed release has edits that all fit this SGLang. Those of "
            f"{releases[-1]}, the newest, do not: {reason}. Nothing was written. Install "
            "a listed release, or an agentcore-patch that lists this one."
        )
    (chosen, plan), *others = plans.items()
    for other, second in others:
        if second.files != plan.files:
            files = {
                path
                for path in {**plan.files, **second.files}
                if plan.files.get(path) != second.files.get(path)
            }
            raise SourceConflict(
                f"The edits of SGLang {chosen} and those of {other} both fit this one, "
                f"and make different files of it: {', '.join(sorted(files))}. Nothing was "
                "written. Install a listed release."
            )
    return chosen


def unified_diff(path: str, before: bytes | None, after: bytes | None) -> str:
    """A unified diff for `patch -p1` in the folder that holds `sglang`.

    None stands for a file that does not exist.
    """
    import difflib

    lines = difflib.unified_diff(
        _lines(before),
        _lines(after),
        "/dev/null" if before is None else f"a/sglang/{path}",
        "/dev/null" if after is None else f"b/sglang/{path}",
    )
    ended = (
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
        for line in lines
    )
    return "".join(ended)


def _lines(text: bytes | None) -> list[str]:
    decoded = (text or b"").decode("utf-8", errors="backslashreplace")
    return list(io.StringIO(decoded, newline="\n"))
