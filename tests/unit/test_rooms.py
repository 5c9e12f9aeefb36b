"""The order of the rooms: a room imports only from rooms above it in this list."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import agentcore_patches
import agentcore_verify

ROOMS = (
    "agentcore_patches._version",
    "agentcore_patches.errors",
    "agentcore_patches.disk",
    "agentcore_patches.edits",
    "agentcore_patches.patches",
    "agentcore_patches.installs",
    "agentcore_patches.state",
    "agentcore_patches.results",
    "agentcore_patches.planning",
    "agentcore_patches.api",
    "agentcore_patches.listing",
    "agentcore_patches.cluster",
    "agentcore_patches.shell",
    "agentcore_verify",
    "agentcore_patches.command",
    "agentcore_patches.__main__",
    "agentcore_patches.plugin",
)
"""The packages and modules, the lowest first."""

ROOTS = {
    package.__name__: Path(str(package.__file__)).parent
    for package in (agentcore_patches, agentcore_verify)
}
FILES = {
    ".".join((name, *file.relative_to(root).with_suffix("").parts)): file
    for name, root in ROOTS.items()
    for file in root.rglob("*.py")
    # Landing code is SGLang's: it imports nothing of this package.
    if "landing" not in file.parts
}


def room_of(module: str) -> str | None:
    """Return the room of a module; None for the package itself, and landing code."""
    return next((r for r in ROOMS if f"{module}.".startswith(f"{r}.")), None)


def imports(module: str) -> Iterator[str]:
    """Yield the modules of this project that a module imports, anywhere in it."""
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        match node:
            case ast.Import(names=names):
                found = [name.name for name in names]
            case ast.ImportFrom(module=str(parent), names=names, level=0):
                inside = (f"{parent}.{name.name}" for name in names)
                found = [one if one in FILES else parent for one in inside]
            case _:
                continue
        for name in found:
            if name.partition(".")[0] in ROOTS:
                package = f"{name}.__init__"
                yield package if package in FILES else name


def test_every_module_is_in_a_room() -> None:
    outside = [module for module in FILES if room_of(module) is None]
    assert outside == ["agentcore_patches.__init__"]


def test_imports_go_down_and_never_in_a_circle() -> None:
    graph = {module: {*imports(module)} - {module} for module in FILES}
    for module, imported in graph.items():
        # The package itself offers the functions of `api`, which it imports when used.
        own = room_of(module) or ROOMS[-1]
        for name in imported:
            assert ROOMS.index(room_of(name) or own) <= ROOMS.index(own), (module, name)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))
