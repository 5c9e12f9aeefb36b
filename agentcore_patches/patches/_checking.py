"""What a patch module must have, checked before any source is read."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

from agentcore_patches.edits import Edit, MalformedEdit
from agentcore_patches.errors import PatchError
from agentcore_patches.patches._files import WRITING_ORDER
from agentcore_patches.patches.versions import is_between


@dataclass(frozen=True)
class Patch:
    """What a patch module says: `summary` is one line."""

    summary: str
    edits: tuple[Edit, ...]
    response_fields: tuple[str, ...]


def checked(name: str, module: ModuleType) -> Patch:
    """What a patch module says, once it has been checked.

    Raises:
        PatchError: it lacks something, or one of its edits is written wrongly.
    """
    summary = (module.__doc__ or "").strip().partition("\n")[0]
    if not summary:
        raise PatchError(
            f"The patch `{name}` has no docstring; its first line must say what the "
            "patch gives."
        )
    listed, fields = (
        getattr(module, name, None) for name in ("EDITS", "RESPONSE_FIELDS")
    )
    for attribute, value, kind in (
        ("EDITS", listed, Edit),
        ("RESPONSE_FIELDS", fields, str),
    ):
        if not isinstance(value, tuple) or not all(isinstance(v, kind) for v in value):
            raise PatchError(
                f"The patch `{name}` must have {attribute}, a tuple of {kind.__name__}."
            )
    assert isinstance(listed, tuple) and isinstance(fields, tuple)
    for edit in listed:
        try:
            _check_edit(edit)
        except MalformedEdit as error:
            raise PatchError(
                f"The patch `{name}` has an edit that is written wrongly: "
                f"{edit.describe()} in `{edit.scope}` of {edit.file}: {error}."
            ) from error
    return Patch(summary, listed, fields)


def _check_edit(edit: Edit) -> None:
    if edit.file not in WRITING_ORDER:
        raise MalformedEdit("its file is not in WRITING_ORDER of patches/_files.py")
    edit.check()
    try:
        backwards = bool(edit.since) and not is_between(
            edit.since, edit.since, edit.until
        )
        is_between("0", edit.since, edit.until)
    except ValueError as error:
        raise MalformedEdit(f"since or until: {error}") from error
    if backwards:
        raise MalformedEdit(f"since {edit.since} is later than until {edit.until}")
