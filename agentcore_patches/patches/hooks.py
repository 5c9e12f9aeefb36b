"""The changes that patches make to SGLang, each in the form that a release needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from itertools import pairwise
from types import ModuleType
from typing import Any

from agentcore_patches.edits import Check, InvalidEdit, ScopedEdit
from agentcore_patches.errors import PatchError
from agentcore_patches.patches.paths import RELEASES, WRITING_ORDER
from agentcore_patches.patches.releases import (
    ByRelease,
    is_between,
    is_first,
    with_names_of,
)


@dataclass(frozen=True)
class Absent:
    """No edit; holds the reason why these releases need none."""

    why: str


absent = Absent


@dataclass(frozen=True, eq=False)
class Hook:
    """One change to SGLang, in the form that each release needs.

    Attributes:
        name: its name in conflicts, SGLang's files and `list --edits`.
        why: the reason; one line that lands as a comment above the change.
        form: the edit from the oldest release on that has its file, or the reason why
            none is needed.
        since: the forms of later releases, by their first release; each applies until the
            next one. No release is left out silently: `Absent` holds the reason why one
            needs no edit.
        upstream: the pull request of SGLang that does or proposes the same, or the issue
            that reports the fault; with its state or the release that has it. Empty if
            none is known.
        also: more scopes of the same file that get the same change.
    """

    name: str
    why: str
    form: ScopedEdit | Absent
    since: Mapping[str, ScopedEdit | Absent] = field(default_factory=dict)
    upstream: str = ""
    also: tuple[str, ...] = ()

    def edits(self, version: str) -> tuple[ScopedEdit, ...]:
        """Return the edits for a release, with its names: one per scope, or none."""
        form = self._forms().of(version)
        return () if isinstance(form, Absent) else self._named(form, version)

    def ranges(self) -> Iterator[tuple[str, str, ScopedEdit | Absent]]:
        """Yield each form with its first and last release."""
        return self._forms().ranges()

    @property
    def ends(self) -> str:
        """The first release that no longer needs an edit; empty if the newest does."""
        *_, (first, _, last_form) = self.ranges()
        return first if isinstance(last_form, Absent) else ""

    def check(self) -> None:
        """Validate the hook as written, without any source.

        Raises:
            InvalidEdit: the releases are not covered, or a form has a mistake.
        """
        by_release = self._forms()
        try:
            by_release.check()
        except ValueError as error:
            raise InvalidEdit(str(error)) from None
        ranges = list(by_release.ranges())
        forms = [form for _, _, form in ranges]
        if all(isinstance(form, Absent) for form in forms):
            raise InvalidEdit("it has no edit for any release")
        for form, next_one in pairwise(forms):
            if form == next_one:
                raise InvalidEdit("two forms, one after the other, are the same")
        for first, last, form in ranges:
            if isinstance(form, ScopedEdit):
                self._check(form, first)
                self._check(form, last)

    def _check(self, form: ScopedEdit, version: str) -> None:
        try:
            edits = self._named(form, version)
        except (KeyError, ValueError) as error:
            raise InvalidEdit(
                f"a `$` names nothing that is in NAMES: {error}"
            ) from error
        for edit in edits:
            _check_once(edit)
        [named, *_] = edits
        if isinstance(named, Check):
            return
        if named.file not in WRITING_ORDER:
            raise InvalidEdit(
                f"{named.file} is not in WRITING_ORDER of patches/paths.py"
            )
        if not is_between(version, *RELEASES.get(named.file, ("", ""))):
            raise InvalidEdit(f"SGLang {version} has no {named.file}")

    def _forms(self) -> ByRelease[ScopedEdit | Absent]:
        if isinstance(self.form, Absent):
            return ByRelease(self.form, self.since)
        first, last = RELEASES.get(self.form.file, ("", ""))
        if last and not self.since:
            raise InvalidEdit(f"not all releases have {self.form.file}")
        if not first or is_first(first):
            return ByRelease(self.form, self.since)
        no_file = Absent("SGLang has no such file")
        return ByRelease(no_file, {first: self.form, **self.since})

    def _named(self, form: ScopedEdit, version: str) -> tuple[ScopedEdit, ...]:
        code: dict[str, Any] = {
            one.name: with_names_of(version, value)
            for one in fields(form)
            if isinstance(value := getattr(form, one.name), str)
        }
        named = replace(form, **{**code, "name": self.name, "note": self.why})
        others = (with_names_of(version, scope) for scope in self.also)
        return named, *(replace(named, scope=scope) for scope in others)


@cache
def _check_once(edit: ScopedEdit) -> None:
    """Check an edit; most are the same in the first and the last release of a form."""
    edit.check()


@dataclass(frozen=True)
class Patch:
    """Contents of a patch module; `summary` is one line."""

    summary: str
    hooks: tuple[Hook, ...]
    response_fields: tuple[str, ...]


def checked(name: str, module: ModuleType) -> Patch:
    """Check a patch module and return its contents.

    Raises:
        PatchError: it lacks something, or one of its hooks has a mistake.
    """
    summary = (module.__doc__ or "").strip().partition("\n")[0]
    if not summary:
        raise PatchError(
            f"The patch `{name}` has no docstring; its first line must say what the "
            "patch gives."
        )
    listed: tuple[Hook, ...] = module.HOOKS
    names = [hook.name for hook in listed]
    mistakes = []
    for hook in listed:
        try:
            if names.count(hook.name) > 1:
                raise InvalidEdit("another hook has this name")
            hook.check()
        except InvalidEdit as error:
            mistakes.append(f"{hook.name}: {error}")
    if mistakes:
        raise PatchError(
            f"The patch `{name}` has a hook that is written wrongly: "
            f"{'; '.join(dict.fromkeys(mistakes))}."
        )
    return Patch(summary, listed, module.RESPONSE_FIELDS)
