"""Report the patches of a running server, and check its environment at start."""

from __future__ import annotations

import logging
import os
import re
from typing import TYPE_CHECKING, Any

from .. import release
from . import conversations, defaults, metrics

if TYPE_CHECKING:
    from sglang.srt.server_args import ServerArgs

logger = logging.getLogger(__name__)

ALLOW_UNPATCHED = "AGENTCORE_ALLOW_UNPATCHED"


def check_environment(server_args: ServerArgs) -> None:
    """Refuse to start with environment variables that are wrong or not supported."""
    if release.HAS_RUST_SERVER:
        from sglang.srt.environ import envs

        if envs.SGLANG_RUST_SERVER.get():
            refuse_rust_server()
    defaults.values()
    conversations.check_server(server_args)


def refuse_rust_server() -> None:
    """Refuse to start the Rust server: it does not run the patched code."""
    what = (
        "SGLANG_RUST_SERVER=1 starts SGLang's Rust server, which does not run the "
        f"code that agentcore-patch {release.VERSION} changed"
    )
    if os.environ.get(ALLOW_UNPATCHED) != "1":
        raise ValueError(
            f"{what}. Unset it, or set {ALLOW_UNPATCHED}=1 to serve without patches."
        )
    logger.warning("%s: requests are answered without the patches.", what)


def announce(info: dict[str, Any], server_args: ServerArgs) -> None:
    """Report the installed patches in the log, in /server_info and on /metrics."""
    from sglang.version import __version__

    listed = listed_release(__version__)
    # SGLang's switch, for all requests: logprobs from before the temperature.
    is_raw = os.environ.get("SGLANG_RETURN_ORIGINAL_LOGPROB", "").lower()
    logprobs = "raw" if is_raw in ("1", "true") else "processed"
    info["agentcore_patches"] = {
        "version": release.VERSION,
        "patches": list(release.INSTALLED),
        "release": listed,
        "logprobs": logprobs,
    }
    patches = f"agentcore-patch {release.VERSION}: {', '.join(release.INSTALLED)}"
    patches += f" ({logprobs} logprobs)"
    if listed is None:
        logger.warning(
            "%s. It does not support SGLang %s: run "
            "`agentcore-patch verify --model scripted` on it.",
            patches,
            __version__,
        )
    else:
        logger.info(patches)
    for value in (True, False):
        if names := [name for name, one in defaults.values().items() if one is value]:
            text = f"{value} by default: {', '.join(names)}".lower()
            logger.info("%s: %s", defaults.VARIABLE, text)
    metrics.start(server_args)
    memory = conversations.memory()
    if memory is not None:
        metrics.set_to(metrics.MEMORY_LIMIT, memory.max_bytes)


def listed_release(version: str) -> str | None:
    """Return the supported release of a version string, None if there is none."""
    from packaging.version import InvalidVersion, Version

    try:
        stated = Version(version)
    except InvalidVersion:
        return None
    # setuptools-scm adds this to a release's own commit with uncommitted changes.
    is_changed = re.search(r"(^|\.)d\d{8}$", stated.local or "")
    for name in release.LISTED:
        listed = Version(name)
        if stated.public == listed.public:
            return name
        *head, micro = listed.release
        next_ones = (
            (f"{listed.base_version}.post{listed.post + 1}.dev0",)
            if listed.post is not None
            else (
                f"{'.'.join(map(str, [*head, micro + 1]))}.dev0",
                f"{name}.post1.dev0",
                f"{name}.post0",
            )
        )
        if is_changed and stated.public in next_ones:
            return name
    return None
