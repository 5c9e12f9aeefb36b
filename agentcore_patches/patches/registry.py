"""Find the patches, the core and the extras, by their folders."""

from __future__ import annotations

import hashlib
import pkgutil
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from agentcore_patches.errors import PatchError
from agentcore_patches.patches.paths import EVER_PATCHED as EVER_PATCHED
from agentcore_patches.patches.paths import (
    FACTS_MODULE,
    LANDED,
    LANDING_SOURCES,
    RELEASES,
)
from agentcore_patches.patches.paths import LANDING as LANDING
from agentcore_patches.patches.paths import WRITING_ORDER as WRITING_ORDER
from agentcore_patches.patches.releases import (
    facts_module,
    is_between,
    unused_lines,
)

if TYPE_CHECKING:
    from agentcore_patches.edits import Edit, Land
    from agentcore_patches.patches.hooks import Hook, Patch

CORE = "core"

_PATCHES = Path(__file__).parent
ORDER = (
    # A trace of token IDs writes the metadata of the first chunk.
    ("prefix/stream", "chat-streams/stamp"),
    # The conversation is remembered before versions are added to its answer.
    ("prefix/whole", "weight-versions/whole-chat"),
    # The logprobs of the prompt come from the engine's answer.
    ("weight-versions/whole-completion", "vllm-api/finished"),
    # New requests wait until the version of the replaced adapter is set.
    ("weight-versions/name-adapter", "vllm-api/adapter"),
    # A response whose token IDs are rejected has no turn.
    ("prefix/responses", "responses/stamp"),
    # Token IDs go on the events that have the metadata.
    ("prefix/messages-stream", "messages/stamp"),
    # Tokens are written as text once the prompt is known.
    ("prefix/tokenize-client", "vllm-api/tokenize"),
    # The start of the experts is compared with the final prompt.
    ("prefix/engine", "token-ids/ask-chat"),
)
"""Hooks of one function, by name, of which the first must be made before the second.

A decorator that is made later is outside.
"""


@cache
def extras() -> tuple[str, ...]:
    """Return the names of the extras: folders beside that of the core."""
    return tuple(
        module.name.replace("_", "-")
        for module in pkgutil.iter_modules([str(_PATCHES)])
        if module.ispkg and module.name != CORE
    )


def names() -> tuple[str, ...]:
    """Return the names of all patches, the core first."""
    return CORE, *extras()


def hooks(name: str) -> tuple[Hook, ...]:
    """The hooks of a patch, for all releases."""
    return _patch(name).hooks


@cache
def edits(name: str, version: str) -> tuple[Edit, ...]:
    """Return the edits of a patch for an SGLang release of `SUPPORTED_VERSIONS`.

    The modules that land come first, without the one of `facts`, which depends on the
    extras. A file whose edits call them imports them.

    Raises:
        PatchError: the patch has a mistake.
    """
    from agentcore_patches.edits import Import, Land

    chosen = [edit for hook in hooks(name) for edit in _edits(hook, version)]
    calling = [edit.file for edit in chosen if "agentcore." in edit.new_code]
    return (
        *(Land(path, _landing_text(path)) for path in landed(name)),
        *(
            Import(file, "sglang.srt", "agentcore", name="called below")
            for file in dict.fromkeys(calling)
        ),
        *chosen,
    )


def landed(name: str) -> tuple[str, ...]:
    """Return the paths of the modules that land with a patch, without `FACTS_MODULE`."""
    folders = {extra.replace("-", "_"): extra for extra in extras()}
    return tuple(
        path
        for path in LANDED
        if folders.get(path.split("/")[-2], CORE) == name and path != FACTS_MODULE
    )


def facts(names: Sequence[str], version: str) -> Land:
    """Return the edit that lands the facts about the release and these patches."""
    from agentcore_patches.edits import Land

    return Land(FACTS_MODULE, facts_module(version, names))


def in_order(edits: Iterable[Edit]) -> list[Edit]:
    """Return edits in the order of `ORDER`, otherwise in their present order.

    Raises:
        PatchError: two decorate one function, and `ORDER` does not list them.
    """
    from agentcore_patches.edits import Decorate

    ordered = list(edits)
    for first, second in ORDER:
        seconds = [i for i, edit in enumerate(ordered) if edit.name == second]
        late = [
            edit for edit in ordered[min(seconds, default=0) :] if edit.name == first
        ]
        if seconds and late:
            ordered = [edit for edit in ordered if edit not in late]
            ordered[seconds[0] : seconds[0]] = late
    inner: dict[tuple[str, str], Edit] = {}
    for edit in ordered:
        if not isinstance(edit, Decorate):
            continue
        other = inner.setdefault((edit.file, edit.scope), edit)
        if other is not edit and (other.name, edit.name) not in ORDER:
            raise PatchError(
                f"The hooks `{other.name}` and `{edit.name}` decorate `{edit.scope}`, and "
                "ORDER in patches/registry.py does not say which one comes first."
            )
        inner[edit.file, edit.scope] = edit
    return ordered


def files(names: Iterable[str], version: str) -> tuple[str, ...]:
    """Return the paths below `sglang` that these patches write, in writing order."""
    from agentcore_patches.edits import Check

    touched = {
        edit.file
        for name in names
        for edit in edits(name, version)
        if not isinstance(edit, Check)
    }
    if not touched.isdisjoint(landed(CORE)):
        touched.add(FACTS_MODULE)
    return tuple(sorted(touched, key=WRITING_ORDER.index))


def is_file_of(version: str, path: str) -> bool:
    """True if patches change this file of SGLang in that release."""
    changed = path in WRITING_ORDER and path not in LANDED
    return changed and is_between(version, *RELEASES.get(path, ("", "")))


def summary(name: str) -> str:
    """Return the one-line summary of a patch."""
    return _patch(name).summary


@cache
def response_fields() -> frozenset[str]:
    """Return the names of all fields that patches add to responses."""
    return frozenset(
        field for name in names() for field in _patch(name).response_fields
    )


@cache
def fingerprint() -> str:
    """Hash all code that decides the contents of a patched install.

    The version is left out: a commit alone changes nothing that is applied.
    """
    digest = hashlib.sha256()
    for folder in ("edits", "landing", "patches", "planning", "stubs"):
        for file in sorted((_PATCHES.parent / folder).rglob("*.py*")):
            if file.suffix != ".pyc":
                digest.update(file.read_bytes())
    return digest.hexdigest()


@cache
def _edits(hook: Hook, version: str) -> tuple[Edit, ...]:
    return hook.edits(version)


@cache
def _landing_text(path: str) -> str:
    return (LANDING_SOURCES / path.removeprefix(f"{LANDING}/")).read_text("utf-8")


@cache
def _patch(name: str) -> Patch:
    from agentcore_patches.patches.hooks import checked

    if tables := unused_lines():
        raise PatchError(f"The tables of releases are wrong: {'; '.join(tables)}.")
    try:
        return checked(name, import_module(f"{__package__}.{name.replace('-', '_')}"))
    except PatchError:
        raise
    except Exception as error:
        raise PatchError(
            f"The patch `{name}` cannot be imported: {type(error).__name__}: {error}."
        ) from error
