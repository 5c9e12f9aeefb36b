"""A place in SGLang that a patch changes, in the form that each release needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from types import ModuleType
from typing import Any

from agentcore_patches.edits import Check, MalformedEdit, ScopedEdit
from agentcore_patches.errors import PatchError
from agentcore_patches.patches.files import RELEASES, WRITING_ORDER
from agentcore_patches.patches.releases import (
    SUPPORTED_VERSIONS,
    is_between,
    of_release,
    with_names_of,
)


@dataclass(frozen=True)
class Absent:
    """No edit: says why these releases need none."""

    why: str


absent = Absent


@dataclass(frozen=True, eq=False)
class Place:
    """One change of SGLang, in the form that each release needs.

    Attributes:
        name: its name in conflicts, SGLang's files and `list --edits`.
        why: the reason; one line that lands as a comment above the change.
        forms: the edit of all releases that have its file; or the edits by the first
            release that each is for, which holds until the next one's. A release is
            never left out by silence: `Absent` says why one needs no edit.
        upstream: the pull request of SGLang that does or proposes the same.
        also: more scopes of the same file in which the same is done.
    """

    name: str
    why: str
    forms: ScopedEdit | Mapping[str, ScopedEdit | Absent]
    upstream: str = ""
    also: tuple[str, ...] = ()

    def edits(self, version: str) -> tuple[ScopedEdit, ...]:
        """The edits for a release, in its names: one a scope, none if it needs none."""
        form = of_release(version, self._by_first())
        return () if isinstance(form, Absent) else self._named(form, version)

    def ranges(self) -> Iterator[tuple[str, str, ScopedEdit | Absent]]:
        """Each form with the first and the last release that it is for."""
        by_first = self._by_first()
        firsts = list(by_first)
        for first, next_one in zip(firsts, [*firsts[1:], ""], strict=True):
            end = SUPPORTED_VERSIONS.index(next_one) if next_one else None
            yield first, SUPPORTED_VERSIONS[:end][-1], by_first[first]

    def check(self) -> None:
        """Validate the place as written, without any source.

        Raises:
            MalformedEdit: the releases are not covered, or a form is written wrongly.
        """
        firsts = list(self._by_first())
        listed = [version for version in SUPPORTED_VERSIONS if version in firsts]
        if not firsts or firsts[0] != SUPPORTED_VERSIONS[0]:
            raise MalformedEdit(f"no form is for {SUPPORTED_VERSIONS[0]}")
        if firsts != listed or any(".post" in first for first in firsts):
            raise MalformedEdit(
                f"its forms are for {', '.join(firsts)}: these must be supported "
                "releases, oldest first, and no post-releases"
            )
        forms = [form for _, _, form in self.ranges()]
        if all(isinstance(form, Absent) for form in forms):
            raise MalformedEdit("it has no edit for any release")
        for form, next_one in pairwise(forms):
            if form == next_one:
                raise MalformedEdit("two forms, one after the other, are the same")
        for first, last, form in self.ranges():
            if isinstance(form, ScopedEdit):
                self._check(form, first)
                self._check(form, last)

    def _check(self, form: ScopedEdit, version: str) -> None:
        try:
            edits = self._named(form, version)
        except (KeyError, ValueError) as error:
            raise MalformedEdit(
                f"a `$` names nothing that is in NAMES: {error}"
            ) from error
        for edit in edits:
            edit.check()
        [named, *_] = edits
        if isinstance(named, Check):
            return
        if named.file not in WRITING_ORDER:
            raise MalformedEdit(
                f"{named.file} is not in WRITING_ORDER of patches/files.py"
            )
        if not is_between(version, *RELEASES.get(named.file, ("", ""))):
            raise MalformedEdit(f"SGLang {version} has no {named.file}")

    def _by_first(self) -> Mapping[str, ScopedEdit | Absent]:
        if not isinstance(self.forms, ScopedEdit):
            return self.forms
        oldest = SUPPORTED_VERSIONS[0]
        first, last = RELEASES.get(self.forms.file, (oldest, ""))
        if last:
            raise MalformedEdit(f"not all releases have {self.forms.file}")
        without_file = {oldest: Absent("SGLang has no such file")}
        return {**(without_file if first != oldest else {}), first: self.forms}

    def _named(self, form: ScopedEdit, version: str) -> tuple[ScopedEdit, ...]:
        code: dict[str, Any] = {
            field.name: with_names_of(version, value)
            for field in fields(form)
            if isinstance(value := getattr(form, field.name), str)
        }
        named = replace(form, **{**code, "name": self.name, "note": self.why})
        others = (with_names_of(version, scope) for scope in self.also)
        return named, *(replace(named, scope=scope) for scope in others)


@dataclass(frozen=True)
class Patch:
    """Contents of a patch module; `summary` is one line."""

    summary: str
    places: tuple[Place, ...]
    response_fields: tuple[str, ...]
    request_flags: tuple[str, ...] = ()


def checked(name: str, module: ModuleType) -> Patch:
    """Check a patch module and return its contents.

    Raises:
        PatchError: it lacks something, or one of its places is written wrongly.
    """
    summary = (module.__doc__ or "").strip().partition("\n")[0]
    if not summary:
        raise PatchError(
            f"The patch `{name}` has no docstring; its first line must say what the "
            "patch gives."
        )
    listed, fields = (
        getattr(module, attribute, None) for attribute in ("PLACES", "RESPONSE_FIELDS")
    )
    flags = getattr(module, "REQUEST_FLAGS", ())
    for attribute, value, kind in (
        ("PLACES", listed, Place),
        ("RESPONSE_FIELDS", fields, str),
        ("REQUEST_FLAGS", flags, str),
    ):
        if not isinstance(value, tuple) or not all(isinstance(v, kind) for v in value):
            raise PatchError(
                f"The patch `{name}` must have {attribute}, a tuple of {kind.__name__}."
            )
    assert isinstance(listed, tuple) and isinstance(fields, tuple)
    names = [place.name for place in listed]
    for place in listed:
        try:
            if names.count(place.name) > 1:
                raise MalformedEdit("another place has this name")
            place.check()
        except MalformedEdit as error:
            raise PatchError(
                f"The patch `{name}` has a place that is written wrongly: "
                f"{place.name}: {error}."
            ) from error
    return Patch(summary, listed, fields, flags)
