"""Which SGLang releases there are patches for, and what each of them calls things."""

from __future__ import annotations

import re
from dataclasses import dataclass

SUPPORTED_VERSIONS = (
    "0.5.8",
    "0.5.8.post1",
    "0.5.9",
    "0.5.10",
    "0.5.10.post1",
    "0.5.11",
    "0.5.12",
    "0.5.12.post1",
    "0.5.13",
    "0.5.13.post1",
    "0.5.14",
    "0.5.15",
    "0.5.15.post1",
    "0.5.16",
    "0.5.17",
    "0.5.18",
    "0.5.19",
    "0.5.20",
    "0.5.21",
    "0.5.22",
    "0.5.23",
)


@dataclass(frozen=True)
class Rename:
    """A name that SGLang changed.

    Attributes:
        name: as v0.5.9 has it; edits are written with it.
        since: the first release that has the new name.
        new: what stands for it from then on.
    """

    name: str
    since: str
    new: str


RENAMES: tuple[Rename, ...] = (
    # The arguments have it as it was given, without what --lora-paths means.
    Rename("self.server_args.enable_lora", "0.5.16", "self.enable_lora"),
    Rename(
        "self.server_args.stream_output",
        "0.5.20",
        "self.incremental_streaming_output",
    ),
    Rename(
        "server_args.stream_output",
        "0.5.10",
        "server_args.incremental_streaming_output",
    ),
    Rename("self._processor.tokenizer", "0.5.10", "self._tokenizer"),
    Rename("_fast_sse_content", "0.5.13", "build_sse_content"),
    Rename(
        "self.send_to_scheduler.send_pyobj", "0.5.15", "self._dispatch_to_scheduler"
    ),
)


def is_between(version: str, since: str, until: str) -> bool:
    """Whether a release is one of `since` to `until`, both included.

    An empty `since` or `until` is no limit. A post-release counts as its release: the
    patches change the two alike.
    """
    release = _numbers(version)
    first = _numbers(since) if since else release
    last = _numbers(until) if until else release
    return first <= release <= last


def _numbers(version: str) -> tuple[int, ...]:
    """The release's numbers, without those of a post-release."""
    try:
        return tuple(map(int, version.partition(".post")[0].split(".")))
    except ValueError:
        raise ValueError(f"Invalid version: {version!r}") from None


def with_names_of(version: str, code: str) -> str:
    """Code of an edit with the names that a release has for those of v0.5.9."""
    for rename in RENAMES:
        if rename.name in code and is_between(version, rename.since, ""):
            code = re.sub(rf"\b{re.escape(rename.name)}\b", rename.new, code)
    return code
