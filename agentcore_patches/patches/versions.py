"""Which SGLang releases there are patches for."""

from __future__ import annotations

SUPPORTED_VERSIONS = ("0.5.9",)


def is_between(version: str, since: str, until: str) -> bool:
    """Whether a release is one of `since` to `until`, both included.

    An empty `since` or `until` is no limit. A post-release counts as its release: the
    two have the same code.
    """
    # Only planning needs this: `status` and an `apply` with nothing to do are fast.
    from packaging.version import Version

    release = Version(version).release
    return not (
        (since and release < Version(since).release)
        or (until and release > Version(until).release)
    )
