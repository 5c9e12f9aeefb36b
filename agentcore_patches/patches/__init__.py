"""What is changed in SGLang: one module per patch, found by its file name.

A patch module has a docstring whose first line says what the patch gives, and `EDITS`:
for each supported SGLang version the edits that make it.
"""

from __future__ import annotations

import hashlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agentcore_patches.patches._files import WRITING_ORDER as WRITING_ORDER

if TYPE_CHECKING:
    from agentcore_patches.edits import Edit

SUPPORTED_VERSIONS = ("0.5.9",)

_HERE = Path(__file__).parent


@cache
def names() -> tuple[str, ...]:
    """The names of all patches, as `--only` takes them."""
    modules = (module.name for module in pkgutil.iter_modules([str(_HERE)]))
    return tuple(
        module.replace("_", "-") for module in modules if not module.startswith("_")
    )


def edits(name: str, version: str) -> tuple[Edit, ...]:
    """The edits of a patch for an SGLang version of `SUPPORTED_VERSIONS`."""
    by_version: dict[str, tuple[Edit, ...]] = _module(name).EDITS
    return by_version[version]


def files(names: Iterable[str], version: str) -> tuple[str, ...]:
    """Paths below `sglang` of the files these patches change, in writing order."""
    touched = {edit.file for name in names for edit in edits(name, version)}
    return tuple(sorted(touched, key=WRITING_ORDER.index))


def summary(name: str) -> str:
    """What a patch gives, in one line."""
    return (_module(name).__doc__ or "").splitlines()[0]


@cache
def fingerprint() -> str:
    """A hash of all the code that decides what a patched file looks like."""
    package = _HERE.parent
    sources = [
        package / "plan.py",
        *sorted((package / "edits").glob("*.py")),
        *sorted(_HERE.glob("*.py")),
        *sorted((package / "grafts").glob("*.py")),
    ]
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


def _module(name: str):  # type: ignore[no-untyped-def]
    return import_module(f"{__name__}.{name.replace('-', '_')}")
