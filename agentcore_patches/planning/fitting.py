"""The release whose edits fit an SGLang that is no supported release."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from agentcore_patches.errors import SourceConflict
from agentcore_patches.planning.plan import Plan, make_plan
from agentcore_patches.planning.selection import Selection


def fitting_release(
    patches: Sequence[str],
    releases: Sequence[str],
    sources: Callable[[Iterable[str]], Mapping[str, bytes]],
    read: Callable[[str], bytes | None],
) -> Selection:
    """Return patches for the newest of the releases whose edits fit.

    All releases that fit make the same files of this SGLang.

    The edits of a release are tried together, since only these ever stood together.

    Args:
        sources: gives the original texts of files; those that are absent are left out.
        read: gives the text of any file of the install; None if there is none.

    Raises:
        SourceConflict: none fits, or two that make different files of it.
    """
    plans: dict[Selection, Plan] = {}
    reason = ""
    for release in reversed(releases):
        selection = Selection(tuple(patches), release)
        try:
            texts = sources(selection.files)
            plans[selection] = make_plan(texts, selection, read)
        except SourceConflict as refusal:
            reason = reason or str(refusal).partition(". Nothing was written")[0]
    if not plans:
        raise SourceConflict(
            "No listed release has edits that all fit this SGLang. Those of "
            f"{releases[-1]}, the newest, do not: {reason}. Nothing was written. Install "
            "a listed release, or an agentcore-patch that lists this one."
        )
    (chosen, plan), *others = plans.items()
    for other, second in others:
        if second.files != plan.files:
            files = {
                path
                for path in {**plan.files, **second.files}
                if plan.files.get(path) != second.files.get(path)
            }
            raise SourceConflict(
                f"The edits of SGLang {chosen.release} and those of {other.release} both "
                "fit this one, and make different files of it: "
                f"{', '.join(sorted(files))}. Nothing was written. Install a listed "
                "release."
            )
    return chosen
