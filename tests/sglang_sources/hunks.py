"""The changes of a release as hunks, located by definition instead of line number."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from itertools import pairwise

from agentcore_patches.patches.paths import LANDED
from tests.sglang_sources.surgery import DEFINITIONS, extent, tree

N_CONTEXT = 1
_NAME = "# agentcore-patch: "
"""Begins the line with a hook's name. The next one, the hook's reason, is left out."""


@dataclass(frozen=True)
class Hunk:
    """One change; the text around it in the file does not count.

    Attributes:
        path: the file.
        scope: the definition that it changes or decorates.
        change: the removed and added lines, as in a diff.
        lines: the same, with the lines around.
    """

    path: str
    scope: str
    change: str
    lines: str = field(compare=False)

    def __str__(self) -> str:
        return f"@@ {self.path} {self.scope}\n{self.lines}"


def hunks(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> list[Hunk]:
    """Return the changes between texts, by path, without the landing modules."""
    return [
        hunk
        for path, text in sorted(after.items())
        if path not in LANDED
        for hunk in _hunks(path, before[path], text)
    ]


def _hunks(path: str, before: bytes, after: bytes) -> Iterator[Hunk]:
    old, new = before.decode().split("\n"), after.decode().split("\n")
    scopes = list(_scopes(tree(after)))
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    for group in matcher.get_grouped_opcodes(N_CONTEXT):
        first = next(start for tag, _, _, start, _ in group if tag != "equal")
        # Comments and blank lines above a definition belong to it.
        while first < len(new) and new[first].strip()[:1] in ("", "#"):
            first += 1
        around = [name for name, start, end in scopes if start <= first < end]
        lines = []
        for tag, old_start, old_end, new_start, new_end in group:
            if tag == "equal":
                lines += [f" {line}" for line in old[old_start:old_end]]
                continue
            lines += [f"-{line}" for line in old[old_start:old_end]]
            added = [f"+{line}" for line in new[new_start:new_end]]
            lines += [
                line
                for previous, line in pairwise(["", *added])
                if not re.fullmatch(rf"\+ *{_NAME}[^ :]+", previous)
            ]
        change = "\n".join(line for line in lines if not line.startswith(" "))
        scope = around[-1] if around else ""
        yield Hunk(path, scope, change, "\n".join([*lines, ""]))


def _scopes(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, int, int]]:
    """Return every definition with its lines, the outer ones first."""
    for child in ast.iter_child_nodes(node):
        name = prefix
        if isinstance(child, DEFINITIONS):
            name = f"{prefix}{child.name}"
            yield (name, *extent(child))
            name += "."
        yield from _scopes(child, name)


def written(
    version: str, own: Sequence[Hunk], before: str, of_before: Sequence[Hunk]
) -> str:
    """Write the hunks of a release, or their differences from the release before."""
    if not before:
        return "\n".join([f"SGLang {version}\n", *map(str, own)])
    gone = _beyond(of_before, own)
    new = _beyond(own, of_before)
    heading = f"SGLang {version}: as {before}"
    if not gone and not new:
        return f"{heading}.\n"
    without = ["Without:", *map(_summary, gone), ""] if gone else []
    return "\n".join([f"{heading}, but for these.\n", *without, *map(str, new)])


def _beyond(some: Sequence[Hunk], others: Sequence[Hunk]) -> list[Hunk]:
    """Return the hunks that `others` lack or have fewer times."""
    left = Counter(others)
    beyond = []
    for hunk in some:
        if left[hunk] <= 0:
            beyond.append(hunk)
        left[hunk] -= 1
    return beyond


def _summary(hunk: Hunk) -> str:
    """Return one line on a hunk that an earlier release shows in full."""
    changed = [line for line in hunk.change.split("\n") if line.startswith("+")]
    named = [line for line in changed if _NAME in line]
    what = [*named, *changed, ""][0].removeprefix("+").strip()
    return f"@@ {hunk.path} {hunk.scope} {what}".rstrip()
