"""Turn an install's sources into new texts. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning.selection import Selection

if TYPE_CHECKING:
    from agentcore_patches.edits import Edit

_REMEDY = (
    "If another tool changed these sources, put the originals back "
    "first (`pip install --force-reinstall --no-deps sglang=={version}`, or `git "
    "checkout` in a checkout), then apply again."
)


@dataclass(frozen=True)
class Plan:
    """Files to write.

    Attributes:
        files: new text by path below `sglang`, in the order it must be written; files
            that hold all of their edits already are not among them.
        changed: whether each edit changed anything, in the order of application.
    """

    files: Mapping[str, bytes]
    changed: Mapping[Edit, bool]


def make_plan(
    sources: Mapping[str, bytes],
    selection: Selection,
    read: Callable[[str], bytes | None] = lambda path: None,
) -> Plan:
    """Rewrite `sources`, by path below `sglang`, so that the selected patches hold.

    A file that is absent in the install is absent in `sources`. `read` returns the text of
    any other file of the install, None if it is missing: new code may need its
    definitions.

    Raises:
        SourceConflict: a place is missing, found too often, or changed; or new code needs
            definitions that the install lacks.
    """
    # Importing libcst takes longer than the rest of `status`.
    from agentcore_patches.edits import Check, apply_edits
    from agentcore_patches.planning.classes import Install
    from agentcore_patches.planning.name_check import refuse_unbound_updates
    from agentcore_patches.planning.stubs import refuse_missing

    edits = list(selection.edits)
    refusals = [edit for edit in edits if isinstance(edit, Check)]
    files: dict[str, bytes] = {}
    changed: dict[Edit, bool] = {}
    try:
        for refusal in refusals:
            text = sources.get(refusal.file) or read(refusal.file)
            if text is not None:
                apply_edits(text, [refusal])
        for file in selection.files:
            here = [
                edit for edit in edits if edit.file == file and edit not in refusals
            ]
            new, made = apply_edits(sources.get(file), here)
            changed.update(zip(here, made, strict=True))
            if any(made):
                files[file] = new
                if file in sources:
                    _check(sources[file], new, file)
        _refuse_halves(changed)
        if files:
            install = Install(sources, read, changed)
            refuse_unbound_updates(changed, install)
            refuse_missing(changed, install, selection.release)
    except SourceConflict as conflict:
        remedy = _REMEDY.format(version=selection.release)
        raise SourceConflict(f"{conflict}. Nothing was written.", remedy) from None
    return Plan(files, {edit: changed[edit] for edit in edits if edit in changed})


def _refuse_halves(changed: Mapping[Edit, bool]) -> None:
    """Refuse sources that already hold some of the edits, but not all."""
    foreign = next((edit for edit, made in changed.items() if not made), None)
    missing = next((edit for edit, made in changed.items() if made), None)
    if foreign is not None and missing is not None:
        raise SourceConflict(
            f"{foreign.file}: {foreign.where} has {foreign.describe()} already, but "
            f"{missing.file}: {missing.where} lacks {missing.describe()}: the sources "
            "contain another version of this patch, or only a part of it"
        )


def _check(old: bytes, new: bytes, file: str) -> None:
    """Refuse a text that does not compile, or new code that reads unbound names.

    If a fork renamed a variable or dropped an import, the code would land and then fail at
    run time.
    """
    try:
        compile(new, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        raise SourceConflict(
            f"{file} would not compile once patched: {error}"
        ) from error
    from agentcore_patches.planning.name_check import refuse_unbound_names

    refuse_unbound_names(old, new, file)
