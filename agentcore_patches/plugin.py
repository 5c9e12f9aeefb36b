"""The guard that SGLang 0.5.11 and later run as a plugin when a server starts.

SGLang logs and ignores the errors of a plugin, but not a `SystemExit`. It runs plugins in
the process that starts the server, and again in processes which that one spawns.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from multiprocessing import parent_process
from typing import TYPE_CHECKING

from agentcore_patches._version import __version__
from agentcore_patches.errors import (
    PROGRAM,
    AgentcoreError,
    SourceConflict,
    UsageError,
    and_list,
    refuse_unknown,
)

if TYPE_CHECKING:
    from agentcore_patches.installs.install import Install

REQUIRE = "AGENTCORE_REQUIRE"
"""The environment variable that names the patches without which no server starts."""

APPLY = "AGENTCORE_APPLY"
"""The environment variable that makes the guard apply the patches first."""

EXIT_CODE = 78
"""The exit code of a server that may not start: EX_CONFIG of sysexits.h."""

_CHECKED = "_AGENTCORE_CHECKED"
_LOG = logging.getLogger("agentcore_patches")


def register() -> None:
    """Check the patches in the first process of a server, and log one line.

    Raises:
        SystemExit: the environment asks for patches that are not in place.
    """
    require, apply = os.environ.get(REQUIRE, ""), os.environ.get(APPLY) or "0"
    # SGLang spawned this process. A trainer may have spawned the first one.
    if parent_process() is not None and os.environ.get(_CHECKED) == require + apply:
        return
    level = logging.INFO
    try:
        line = _check(tuple(filter(None, map(str.strip, require.split(",")))), apply)
    except Exception as error:
        known = isinstance(error, AgentcoreError)
        line = str(error) if known else f"{type(error).__name__}: {error}"
        if require or apply != "0":
            print(f"error: {PROGRAM} {__version__}: {line}", file=sys.stderr)
            raise SystemExit(EXIT_CODE) from None
        level = logging.WARNING
    os.environ[_CHECKED] = require + apply
    _LOG.log(level, "%s %s: %s", PROGRAM, __version__, line)


def _check(required: tuple[str, ...], apply: str) -> str:
    """Return the line about patches that are in place; raise if any are missing."""
    from agentcore_patches.installs.install import find
    from agentcore_patches.patches.registry import CORE, names

    refuse_unknown(required, names(), "patch", "patches")
    if apply not in ("0", "1"):
        raise UsageError(f"{APPLY} must be 0 or 1, not {apply!r}.")
    install, imported = find(), _imported()
    patches, problem = _look(install, required)
    # `apply` refuses an unlisted SGLang, even one that has the patches.
    if apply == "1" and not imported and (problem or install.release is not None):
        from agentcore_patches import api

        extras = [name for name in required if name != CORE]
        api.apply(extras=extras, notify=_LOG.warning)
        importlib.invalidate_caches()
        patches, problem = _look(install, required)
    if problem:
        late = f" {APPLY}=1 is too late here: {imported} is imported already."
        raise SourceConflict(problem + (late if apply == "1" else ""))
    return f"{and_list(patches)} {'are' if len(patches) > 1 else 'is'} in place."


def _look(install: Install, required: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the patches, and the problem with them or an empty text."""
    from agentcore_patches.patches.registry import CORE
    from agentcore_patches.state.snapshot import FileState, inspect, patched_files

    snapshot = inspect(install)
    patches: tuple[str, ...] = snapshot.record.patches if snapshot.record else ()
    if snapshot.record is None and any(patched_files(install.package)):
        # Without a record, only planning shows the patches, in a second or two.
        from agentcore_patches import api

        patches = api.status().patches
    place = f"SGLang {install.version} in {install.package}"
    options = [f"--with {name}" for name in required if name != CORE]
    if install.release is None:
        options.append("--unlisted")
    command = " ".join((PROGRAM, "apply", *options))
    remedy = f"run `{command}`."
    states = list(snapshot.files.values())
    if not patches or snapshot.superseded:
        return patches, f"{place} is not patched: {remedy}"
    if reason := snapshot.sglang_change or snapshot.pending:
        return patches, f"{place} is not fully patched ({reason}): {remedy}"
    if changed := len(states) - states.count(FileState.PATCHED):
        return patches, (
            f"{changed} of {len(states)} patched files in {install.package} were changed "
            f"since: `{PROGRAM} status` names them and the remedy."
        )
    if missing := tuple(name for name in required if name not in patches):
        return patches, f"{place} lacks {and_list(missing)}: {remedy}"
    return patches, ""


def _imported() -> str:
    """Return a module that patches change and that is imported, or an empty text."""
    from agentcore_patches.patches.registry import EVER_PATCHED, LANDING

    paths = (path.removesuffix(".py") for path in (LANDING, *EVER_PATCHED))
    modules = (f"sglang.{path.replace('/', '.')}" for path in paths)
    return next((module for module in modules if module in sys.modules), "")
