"""Which patches there are, found by the file names of their modules."""

from __future__ import annotations

import dataclasses
import hashlib
import pkgutil
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentcore_patches.errors import PatchError
from agentcore_patches.patches._files import RELEASES
from agentcore_patches.patches._files import WRITING_ORDER as WRITING_ORDER
from agentcore_patches.patches.versions import is_between, with_names_of

if TYPE_CHECKING:
    from agentcore_patches.edits import Edit
    from agentcore_patches.patches._checking import Patch

_PATCHES = Path(__file__).parent
_OTHER_MODULES = ("registry", "versions")


@cache
def names() -> tuple[str, ...]:
    """The names of all patches, as `--only` takes them."""
    modules = (module.name for module in pkgutil.iter_modules([str(_PATCHES)]))
    return tuple(
        module.replace("_", "-")
        for module in modules
        if not module.startswith("_") and module not in _OTHER_MODULES
    )


def edits(name: str, version: str) -> tuple[Edit, ...]:
    """The edits of a patch for an SGLang release of `SUPPORTED_VERSIONS`.

    Raises:
        PatchError: the patch is written wrongly, or has no edit for this release.
    """
    chosen = tuple(
        _in_names_of(version, edit)
        for edit in _patch(name).edits
        if is_between(version, edit.since, edit.until)
    )
    if not chosen:
        raise PatchError(f"The patch `{name}` has no edit for SGLang {version}.")
    return chosen


def files(names: Iterable[str], version: str) -> tuple[str, ...]:
    """Paths below `sglang` of the files these patches change, in writing order."""
    touched = {edit.file for name in names for edit in edits(name, version)}
    return tuple(sorted(touched, key=WRITING_ORDER.index))


def is_file_of(version: str, path: str) -> bool:
    """Whether a release has a file of `WRITING_ORDER`."""
    return is_between(version, *RELEASES.get(path, ("", "")))


def summary(name: str) -> str:
    """What a patch gives, in one line."""
    return _patch(name).summary


def response_fields() -> frozenset[str]:
    """The names of all fields that patches add to answers."""
    return frozenset(
        field for name in names() for field in _patch(name).response_fields
    )


@cache
def fingerprint() -> str:
    """A hash of all the code that decides what a patched file looks like."""
    package = _PATCHES.parent
    sources = [
        package / "plan.py",
        *sorted((package / "edits").glob("*.py")),
        *sorted(_PATCHES.glob("*.py")),
        *sorted((package / "grafts").glob("*.py")),
    ]
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.read_bytes())
    return digest.hexdigest()


@cache
def _in_names_of(version: str, edit: Edit) -> Edit:
    """The edit with the names that a release has for those of v0.5.9."""
    changed: dict[str, Any] = {
        field.name: code
        for field in dataclasses.fields(edit)
        if isinstance(old := getattr(edit, field.name), str)
        and (code := with_names_of(version, old)) != old
    }
    return dataclasses.replace(edit, **changed) if changed else edit


@cache
def _patch(name: str) -> Patch:
    from agentcore_patches.patches._checking import checked

    try:
        module = import_module(f"{__package__}.{name.replace('-', '_')}")
    except Exception as error:
        raise PatchError(
            f"The patch `{name}` cannot be imported: {type(error).__name__}: {error}."
        ) from error
    return checked(name, module)
