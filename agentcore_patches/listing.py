"""Data of `list`: the patches, and their hooks.

Apart from `api` and `results`, as each class takes time at every start of the command.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentcore_patches import api
from agentcore_patches.errors import UnsupportedTarget, refuse_unknown
from agentcore_patches.installs.install import Install, StrPath, find
from agentcore_patches.patches import registry
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS, is_between
from agentcore_patches.results import PatchState


@dataclass(frozen=True)
class PatchInfo:
    """The core, or an extra.

    Attributes:
        name: its name.
        summary: what it adds.
        files: the files that it changes, below the `sglang` package.
        state: its state in the SGLang at hand; None if no SGLang can be patched.
    """

    name: str
    summary: str
    files: tuple[str, ...]
    state: PatchState | None = None


@dataclass(frozen=True)
class EditInfo:
    """The change that a hook makes in a range of releases.

    Attributes:
        name: the hook's name, which is in SGLang's file above the change, and in
            agentcore_patches/patches.
        why: the reason.
        upstream: the pull request or release of SGLang that does or proposes the same;
            empty if none is known.
        ends: the first release that no longer needs the hook; empty if the newest does.
        patch: `core`, or the extra that has the hook.
        since: the first of the releases.
        until: the last of them.
        file: below the `sglang` package; empty if nothing is changed.
        scope: the changed definitions, separated by commas; empty if none is changed.
        change: the change, or the reason why there is none.
    """

    name: str
    why: str
    upstream: str
    ends: str
    patch: str
    since: str
    until: str
    file: str
    scope: str
    change: str


@dataclass(frozen=True)
class EditList:
    """The hooks of all patches, in the order of the patches."""

    edits: tuple[EditInfo, ...]


@dataclass(frozen=True)
class PatchList:
    """The core and the extras, for the SGLang at hand.

    Attributes:
        install: the SGLang whose files are named; None if no SGLang can be patched: the
            files are then those of the newest supported release.
        reason: why `install` is None.
        sglang_versions: the supported releases, oldest first.
        patches: the core and the extras.
    """

    install: Install | None
    reason: str | None
    sglang_versions: tuple[str, ...]
    patches: tuple[PatchInfo, ...]


def available(
    *, sglang_dir: StrPath | None = None, python: StrPath | None = None
) -> PatchList:
    """Return the core and the extras, with the files that they change in the SGLang at hand.

    If neither `sglang_dir` nor `python` is given and this interpreter has no SGLang that
    can be patched, they are those of the newest supported release.

    Raises:
        UsageError, UnsupportedTarget, AccessError
    """
    install, reason, release = None, None, SUPPORTED_VERSIONS[-1]
    try:
        install = find(sglang_dir, python)
        release = install.require_release()
    except UnsupportedTarget as error:
        if sglang_dir is not None or python is not None:
            raise
        reason = str(error)
        install = None
    status = api.status(sglang_dir=sglang_dir, python=python) if install else None

    def state(name: str) -> PatchState | None:
        if status is None:
            return None
        return status.state if name in status.patches else PatchState.ABSENT

    patches = tuple(
        PatchInfo(
            name, registry.summary(name), registry.files([name], release), state(name)
        )
        for name in registry.names()
    )
    return PatchList(install, reason, SUPPORTED_VERSIONS, patches)


def listed_edits(release: str | None = None) -> EditList:
    """Return the changes of all hooks, each with its releases of SGLang.

    Args:
        release: list only the changes for this release, with its names.

    Raises:
        UsageError: `release` is not a supported one.
    """
    from agentcore_patches.patches.hooks import Absent

    if release is not None:
        refuse_unknown([release], SUPPORTED_VERSIONS, "release", "releases")
    hooks = [(hook, name) for name in registry.names() for hook in registry.hooks(name)]
    found = []
    for hook, patch in hooks:
        for since, until, form in hook.ranges():
            if release is not None and not is_between(release, since, until):
                continue
            edits = hook.edits(release or until)
            found.append(
                EditInfo(
                    name=hook.name,
                    why=hook.why,
                    upstream=hook.upstream,
                    ends=hook.ends,
                    patch=patch,
                    since=since,
                    until=until,
                    file=edits[0].file if edits else "",
                    scope=", ".join(edit.scope for edit in edits),
                    change=form.why if isinstance(form, Absent) else form.describe(),
                )
            )
    return EditList(tuple(found))
