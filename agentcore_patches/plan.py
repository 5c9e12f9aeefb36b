"""An install's sources in, new texts and an outcome per edit out. Pure: reads and writes no file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class EditOutcome:
    """What one edit found in a file and did to its text."""

    patch: str
    file: str
    scope: str
    description: str
    outcome: Literal["applied", "present"]


@dataclass(frozen=True)
class Plan:
    """New texts by path below the `sglang` package, in the order they must be written."""

    patches: tuple[str, ...]
    files: Mapping[str, bytes]
    outcomes: tuple[EditOutcome, ...]


def source_files(patches: Sequence[str], version: str) -> tuple[str, ...]:
    """Paths below the `sglang` package that these patches change, in writing order."""
    raise NotImplementedError


def make_plan(
    sources: Mapping[str, bytes], patches: Sequence[str], version: str
) -> Plan:
    """Rewrite `sources` (by path below the `sglang` package) so that `patches` hold.

    Raises:
        SourceConflict: a place is missing, found twice, or already changed by others.
    """
    raise NotImplementedError
