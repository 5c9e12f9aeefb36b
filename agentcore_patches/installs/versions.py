"""The version of an install, and the supported release that it matches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from agentcore_patches._version import __version__
from agentcore_patches.disk.filesystem import read_bytes
from agentcore_patches.errors import UnsupportedTarget
from agentcore_patches.patches.releases import SUPPORTED_VERSIONS

if TYPE_CHECKING:
    from packaging.version import Version


UNKNOWN = "unknown"
"""The version of an SGLang that does not state one."""

_MOST_VERSION = 1024 * 1024

_VERSION = re.compile(
    r"""^__version__ = (?:\w+ = )*(["'])(.+?)\1\s*(?:#.*)?$""", re.MULTILINE
)

# The version that setuptools-scm gives if there is no git metadata.
_PLACEHOLDER = "0.0.0.dev0"


def refuse_unsupported(version: str, package: Path) -> NoReturn:
    if version == UNKNOWN:
        raise UnsupportedTarget(
            f"The version of the SGLang in {package} is unknown: it is neither in "
            "`_version.py` nor in installed metadata.",
            hint="Install the checkout, which writes it "
            f"(without git, set SETUPTOOLS_SCM_PRETEND_VERSION={SUPPORTED_VERSIONS[-1]}).",
        )
    raise UnsupportedTarget(
        f"SGLang {version} in {package} is not supported.", hint=advise_on(version)
    )


def is_older_than_supported(version: str) -> bool:
    """True if a version is a release before the first supported one."""
    from packaging.version import Version

    parsed = _parsed(version)
    if parsed is None or parsed.is_devrelease or parsed.is_postrelease:
        return False
    return parsed < Version(SUPPORTED_VERSIONS[0])


def advise_on(version: str) -> str:
    """Say what can be done with an unsupported version of SGLang."""
    first, last = SUPPORTED_VERSIONS[0], SUPPORTED_VERSIONS[-1]
    supported = f"agentcore-patch {__version__} supports SGLang {first} to {last}."
    if is_older_than_supported(version):
        return f"{supported} Install one of these (`pip install sglang=={last}`)."
    parsed = _parsed(version)
    own = ""
    if parsed is not None and (parsed.is_devrelease or parsed.is_postrelease):
        own = (
            "This is a development version. If it is a supported release with your own "
            "commits, install it with SETUPTOOLS_SCM_PRETEND_VERSION="
            f"{nearest(version)}+own set. "
        )
    return (
        f"{supported} {own}`agentcore-patch apply --unlisted` patches another version if "
        "the edits of a supported release fit it."
    )


def same_release(one: str, other: str) -> bool:
    """True if two versions differ in their local labels at most (`0.5.9+cu130`)."""
    return one.partition("+")[0] == other.partition("+")[0]


def version_of(package: Path, dist_info: Path | None) -> str:
    stated = [
        _literal_version(package / name) for name in ("_version.py", "version.py")
    ]
    if dist_info is not None:
        stated.append(_metadata_version(dist_info / "METADATA"))
    for version in stated:
        if version is not None and version != _PLACEHOLDER and version.isprintable():
            return version[:100]
    return UNKNOWN


def _literal_version(file: Path) -> str | None:
    try:
        text = read_bytes(file, follow=True, most=_MOST_VERSION).decode(
            errors="replace"
        )
    except (FileNotFoundError, NotADirectoryError):
        return None
    found = _VERSION.search(text)
    return found and found[2]


def _metadata_version(file: Path) -> str | None:
    try:
        text = read_bytes(file, follow=True).decode("utf-8", errors="replace")
    except FileNotFoundError:
        return None
    header = text.replace("\r\n", "\n").partition("\n\n")[0]
    found = re.search(r"^Version:\s*(\S+)", header, re.MULTILINE)
    return found and found[1]


def supported_release(version: str) -> str | None:
    if version in SUPPORTED_VERSIONS:
        return version
    parsed = _parsed(version)
    if parsed is None:
        return None
    from packaging.version import Version

    return next(
        (name for name in SUPPORTED_VERSIONS if _is_release(parsed, Version(name))),
        None,
    )


def _parsed(version: str) -> Version | None:
    from packaging.version import InvalidVersion, Version

    try:
        return Version(version)
    except InvalidVersion:
        return None


def nearest(version: str, releases: Sequence[str] = SUPPORTED_VERSIONS) -> str:
    """Return the newest of the releases up to a version, or else the oldest.

    Of an unknown version, it is the newest of all.
    """
    from packaging.version import Version

    parsed = _parsed(version)
    older = [name for name in releases if parsed is None or Version(name) <= parsed]
    return older[-1] if older else releases[0]


def _is_release(version: Version, release: Version) -> bool:
    """True if a version has the sources of a release, maybe changed locally.

    It may have a local label (`0.5.9+cu130`), or be the version that setuptools-scm gives
    to the tagged commit with uncommitted changes: zero commits after it, and a date
    (`0.5.10.dev0+g1a2b3c4.d20260301`).
    """
    if version.public == release.public:
        return True
    *head, micro = release.release
    names = (
        (f"{release.base_version}.post{release.post + 1}.dev0",)
        if release.post is not None
        else (
            f"{'.'.join(map(str, [*head, micro + 1]))}.dev0",
            f"{release.public}.post1.dev0",
            f"{release.public}.post0",
        )
    )
    dirty = re.search(r"(^|\.)d\d{8}$", version.local or "")
    return version.public in names and dirty is not None
